"""Simulated browsers: each loads a page with its files, keeps its live stream open, and continues with the next page.

    GET page ── GET style and script, the first time ── GET /live, read it for some seconds ──► the next page

The console's own script does the same. They start at different pages, so that ten of them never load one page at once.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Final
from urllib.parse import quote, urlsplit

STAY_S: Final = 10.0
"""The time on one page."""
_FILES: Final = re.compile(rb'(?:href|src)="(/static/[^"]+)"')
_COOKIE: Final = re.compile(rb"(?i)\r\nset-cookie: ([^;\r]+)")


class Watched:
    """The totals of all browsers."""

    def __init__(self) -> None:
        self.events = 0
        self.pages = 0
        self.bytes = 0


class _Browser:
    """One browser with its cookie and cached files."""

    def __init__(self, url: str, watched: Watched) -> None:
        self._url = urlsplit(url)
        self._watched = watched
        self._cookie = b""
        self._files: set[bytes] = set()

    async def walk(self, pages: Sequence[str]) -> None:
        while True:
            for page in pages:
                await self._load(page)
                with suppress(TimeoutError):
                    async with asyncio.timeout(STAY_S):
                        await self._watch(page)

    async def _load(self, page: str) -> None:
        html = await self._get(page.encode(), closes=True)
        self._watched.pages += 1
        for file in {*_FILES.findall(html)} - self._files:
            self._files.add(file)
            await self._get(file, closes=True)

    async def _watch(self, page: str) -> None:
        await self._get(b"/live?at=" + quote(page, safe="").encode(), closes=False)

    async def _get(self, path: bytes, *, closes: bool) -> bytes:
        """All that is answered; of a stream there is no end."""
        reader, writer = await asyncio.open_connection(self._url.hostname, self._url.port)
        lines = [b"GET " + path + b" HTTP/1.1", b"Host: " + self._url.netloc.encode()]
        lines += [b"Cookie: " + self._cookie] if self._cookie else []
        lines += [b"Connection: close"] if closes else []
        writer.write(b"\r\n".join([*lines, b"", b""]))
        whole = bytearray()
        try:
            while part := await reader.read(65_536):
                self._watched.bytes += len(part)
                self._watched.events += part.count(b"event: live")
                if closes:
                    whole += part
        finally:
            writer.close()
        if found := _COOKIE.search(whole):
            self._cookie = found[1]
        return bytes(whole)


@asynccontextmanager
async def watchers(url: str, pages: Sequence[str]) -> AsyncIterator[Watched]:
    """One for each of `pages`, as long as the block lasts. Each begins at its own and goes through all."""
    watched = Watched()
    tasks = [
        asyncio.create_task(_Browser(url, watched).walk([*pages[first:], *pages[:first]]))
        for first in range(len(pages))
    ]
    try:
        yield watched
        if failed := [task for task in tasks if task.done()]:
            await failed[0]
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

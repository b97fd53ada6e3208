"""Browsers that watch, without the browser: each keeps the live stream of a page open and reads what comes."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from urllib.parse import quote, urlsplit


class Watched:
    """What came, of all of them."""

    def __init__(self) -> None:
        self.events = 0
        self.bytes = 0


@asynccontextmanager
async def watchers(url: str, pages: Sequence[str]) -> AsyncIterator[Watched]:
    """One for each of `pages`, as long as the block lasts."""
    watched = Watched()
    tasks = [asyncio.create_task(_watch(url, page, watched)) for page in pages]
    try:
        yield watched
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _watch(url: str, page: str, watched: Watched) -> None:
    place = urlsplit(url)
    reader, writer = await asyncio.open_connection(place.hostname, place.port)
    writer.write(f"GET /live?at={quote(page)} HTTP/1.1\r\nHost: {place.netloc}\r\n\r\n".encode())
    try:
        while part := await reader.read(65_536):
            watched.events += part.count(b"event: live")
            watched.bytes += len(part)
    finally:
        writer.close()

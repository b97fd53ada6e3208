"""The length of the path of a request through the broker, in calls and modules. This test detects that it grows."""

import asyncio
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest
from tests.broker.running import in_virtual_time, running

from pocketmq.broker.requests.turns import Turns
from pocketmq.net.connection import Connection
from pocketmq.store.log.commit_log import CommitLog
from pocketmq.store.queues.sound_entries import SoundEntries

pytestmark = pytest.mark.usefixtures("twin")
SEND = {"python": (26, 13), "compiled": (22, 12)}
"""Calls and modules from the bytes of a socket to the write of the log."""
DEFERRED = {"python": 14, "compiled": 11}
"""Calls for each further connection whose send is in the same write."""
PULL = {"python": 51, "compiled": 27}
"""Calls from the bytes of a socket to the answer of a pull like the one before it."""


class CallPath:
    """Calls of the package's functions from one function up to another, by the code that runs while it records.

    Comprehensions do not count; they are calls up to Python 3.11 only.
    """

    def __init__(self, begins: Callable[..., Any], ends: Callable[..., Any]) -> None:
        self._begins, self._ends = begins.__code__, ends.__code__
        self._now: list[str] | None = None
        self.found: list[str] = []
        """The last path, one `module function` for each call."""

    @contextmanager
    def recording(self) -> Iterator[None]:
        sys.setprofile(self._note)
        try:
            yield
        finally:
            sys.setprofile(None)

    def _note(self, frame: FrameType, event: str, _: object) -> None:
        module, code = frame.f_globals.get("__name__", ""), frame.f_code
        if event != "call" or code.co_name.startswith("<"):
            return
        if not module.startswith("pocketmq.") or module.startswith("pocketmq.testing."):
            return
        if code is self._begins:
            self._now = []
        if self._now is None:
            return
        self._now.append(f"{module} {code.co_qualname}")
        if code is self._ends:
            self.found, self._now = self._now, None

    @property
    def text(self) -> str:
        return "\n".join(self.found)

    @property
    def modules(self) -> int:
        return len({call.partition(" ")[0] for call in self.found})


@in_virtual_time
async def test_a_send_needs_few_calls_from_its_bytes_to_the_log_write(twin: str) -> None:
    path = CallPath(Connection.buffer_updated, CommitLog.write)
    async with running() as broker:
        client = await broker.connect()
        await client.sent(b"before")

        with path.recording():
            await client.sent()

    most_calls, most_modules = SEND[twin]
    assert len(path.found) <= most_calls, path.text
    assert path.modules <= most_modules, path.text


@in_virtual_time
async def test_each_further_send_of_one_write_needs_few_calls(twin: str) -> None:
    path = CallPath(Turns.handle_deferred, CommitLog.write)
    calls: list[int] = []
    async with running() as broker:
        clients = [await broker.connect() for _ in range(9)]
        for client in clients:
            await client.sent(b"before")

        for count in (1, 9):
            with path.recording():
                await asyncio.gather(*(client.sent() for client in clients[:count]))
            calls.append(len(path.found))

    assert (calls[1] - calls[0]) / 8 <= DEFERRED[twin], path.text


@in_virtual_time
async def test_a_pull_needs_few_calls_from_its_bytes_to_its_answer(twin: str) -> None:
    path = CallPath(Turns.handle, Connection.write)
    async with running() as broker:
        client = await broker.connect()
        await client.sent()
        await client.pull()

        with path.recording():
            await client.pull()

    assert len(path.found) <= PULL[twin], path.text


@in_virtual_time
async def test_a_woken_pull_reads_its_entries_once() -> None:
    path = CallPath(SoundEntries.read, Connection.write)
    async with running() as broker:
        client, other = await broker.connect(), await broker.connect()
        await other.sent()

        held = asyncio.ensure_future(client.pull(1, wait_ms=10_000))
        await asyncio.sleep(1)
        with path.recording():
            await other.sent()
            await held

    assert path.found.count(path.found[0]) == 1, path.text

"""Room for messages that are on their way: so many, and so many bytes. Who finds none waits for his turn.

    take ── there is room, and nobody waits ──► goes on at once
         └─ else ──► waits, first come, first served ── someone gives room back ──► goes on

A message that is larger than the whole room goes when it would be alone, so nothing waits for ever.
"""

import asyncio
from collections import deque

from pocketmq.errors import TooManyCalls

_Waiter = tuple[asyncio.Future[None], int, int]


class Room:
    """Bounds on what is under way. Who took room gives the same back."""

    __slots__ = ("_bytes", "_count", "_emptied", "_max_bytes", "_max_count", "_waiters")

    def __init__(self, max_count: int, max_bytes: int) -> None:
        self._max_count = max_count
        self._max_bytes = max_bytes
        self._count = 0
        self._bytes = 0
        self._waiters: deque[_Waiter] = deque()
        self._emptied: asyncio.Future[None] | None = None

    @property
    def count(self) -> int:
        """Messages under way."""
        return self._count

    @property
    def waiting(self) -> int:
        """How many wait for room."""
        return len(self._waiters)

    def try_take(self, count: int, size: int) -> bool:
        """Take room if there is some and nobody waits for it."""
        all_count, all_bytes = self._count + count, self._bytes + size
        if self._waiters or ((all_count > self._max_count or all_bytes > self._max_bytes) and self._count):
            return False
        self._count, self._bytes = all_count, all_bytes
        return True

    def take_now(self, count: int, size: int) -> None:
        """TooManyCalls when there is no room."""
        if not self.try_take(count, size):
            raise TooManyCalls(
                f"{self._count} messages with {self._bytes} bytes are on their way, the limit of this producer: "
                "await `send` instead, or wait for some of the futures first"
            )

    async def take(self, count: int, size: int) -> None:
        """Wait until there is room."""
        if self.try_take(count, size):
            return
        future = asyncio.get_running_loop().create_future()
        waiter = (future, count, size)
        self._waiters.append(waiter)
        try:
            await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled():
                self.give(count, size)  # it was given room and left before it noticed
            elif waiter in self._waiters:
                self._waiters.remove(waiter)
                self._let_in()
            raise

    def give(self, count: int, size: int) -> None:
        """What took this much is done."""
        self._count -= count
        self._bytes -= size
        if self._waiters:
            self._let_in()
        if not self._count and self._emptied is not None:
            if not self._emptied.done():
                self._emptied.set_result(None)
            self._emptied = None

    async def wait_empty(self) -> None:
        """Return when nothing is under way."""
        while self._count:
            if self._emptied is None:
                self._emptied = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._emptied)

    def _fits(self, count: int, size: int) -> bool:
        if not self._count:
            return True
        return self._count + count <= self._max_count and self._bytes + size <= self._max_bytes

    def _let_in(self) -> None:
        while self._waiters:
            future, count, size = self._waiters[0]
            if not self._fits(count, size):
                return
            self._waiters.popleft()
            if future.cancelled():
                continue
            self._count += count
            self._bytes += size
            future.set_result(None)

"""Room for messages that are on their way: so many, and so many bytes. Who finds none waits for his turn.

    take ── there is room, and nobody waits ──► goes on at once
         └─ else ──► waits, first come, first served ── someone gives room back ──► goes on

A message that is larger than the whole room goes when it would be alone, so nothing waits for ever.
"""

import asyncio
from collections import deque
from typing import NoReturn

from pocketmq.errors import TooManyCalls

_Waiter = tuple[asyncio.Future[None], int, int]


class Room:
    """Bounds on what is under way. Who took room gives the same back.

    `count` messages with `bytes` are under way. The outbox, for which a call of `take` and `give` is half of what it does, counts
    for itself while there is room and nobody `is_watched` for.
    """

    __slots__ = ("_emptied", "_waiters", "bytes", "count", "is_watched", "max_bytes", "max_count")

    def __init__(self, max_count: int, max_bytes: int) -> None:
        self.max_count = max_count
        self.max_bytes = max_bytes
        self.count = 0
        self.bytes = 0
        self.is_watched = False
        """Whether somebody waits for room, or until nothing is under way: then only `take` and `give` may change it."""
        self._waiters: deque[_Waiter] = deque()
        self._emptied: asyncio.Future[None] | None = None

    @property
    def waiting(self) -> int:
        """How many wait for room."""
        return len(self._waiters)

    def try_take(self, count: int, size: int) -> bool:
        """Take room if there is some and nobody waits for it."""
        all_count, all_bytes = self.count + count, self.bytes + size
        if self._waiters or ((all_count > self.max_count or all_bytes > self.max_bytes) and self.count):
            return False
        self.count, self.bytes = all_count, all_bytes
        return True

    def take_now(self, count: int, size: int) -> None:
        """TooManyCalls when there is no room."""
        if not self.try_take(count, size):
            self.refuse()

    def refuse(self) -> NoReturn:
        """Say that there is no room."""
        raise TooManyCalls(
            f"{self.count} messages with {self.bytes} bytes are on their way, the limit of this producer: "
            "await `send` instead, or wait for some of the futures first"
        )

    async def take(self, count: int, size: int) -> None:
        """Wait until there is room."""
        if self.try_take(count, size):
            return
        future = asyncio.get_running_loop().create_future()
        waiter = (future, count, size)
        self._waiters.append(waiter)
        self.is_watched = True
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
        self.count -= count
        self.bytes -= size
        if self._waiters:
            self._let_in()
        if not self.count and self._emptied is not None:
            if not self._emptied.done():
                self._emptied.set_result(None)
            self._emptied = None
        self.is_watched = bool(self._waiters) or self._emptied is not None

    async def wait_empty(self) -> None:
        """Return when nothing is under way."""
        while self.count:
            if self._emptied is None:
                self._emptied = asyncio.get_running_loop().create_future()
                self.is_watched = True
            await asyncio.shield(self._emptied)

    def _fits(self, count: int, size: int) -> bool:
        if not self.count:
            return True
        return self.count + count <= self.max_count and self.bytes + size <= self.max_bytes

    def _let_in(self) -> None:
        while self._waiters:
            future, count, size = self._waiters[0]
            if not self._fits(count, size):
                return
            self._waiters.popleft()
            if future.cancelled():
                continue
            self.count += count
            self.bytes += size
            future.set_result(None)

"""The in-flight limit: so many messages, and so many bytes, that were handed over and are not done. Whoever exceeds it waits.

    acquire ── within the limit, and nobody waits ──► goes on at once
            └─ else ──► waits, first come, first served ── somebody releases ──► goes on

A message that exceeds the limit by itself goes when it would be alone, so nothing waits for ever. Threads that submit wait
for a limit of their own, with the same numbers.
"""

import asyncio
import threading
from collections import deque
from typing import NoReturn

from pocketmq.errors import TooManyCalls

_Waiter = tuple[asyncio.Future[None], int, int]


class InFlightLimit:
    """Bounds on what is in flight. Whoever acquired releases the same.

    `count` messages with `bytes` are in flight. The outbox, for which a call of `acquire` and `release` is half of what it does,
    counts for itself unless there are waiters.
    """

    __slots__ = ("_emptied", "_waiters", "bytes", "count", "has_waiters", "max_bytes", "max_count")

    def __init__(self, max_count: int, max_bytes: int) -> None:
        self.max_count = max_count
        self.max_bytes = max_bytes
        self.count = 0
        self.bytes = 0
        self.has_waiters = False
        """Whether somebody waits for the limit, or until nothing is in flight: then only `acquire` and `release` may count."""
        self._waiters: deque[_Waiter] = deque()
        self._emptied: asyncio.Future[None] | None = None

    @property
    def waiting(self) -> int:
        """How many wait for the limit."""
        return len(self._waiters)

    def try_acquire(self, count: int, size: int) -> bool:
        """Count as in flight if that is within the limit and nobody waits."""
        all_count, all_bytes = self.count + count, self.bytes + size
        if self._waiters or ((all_count > self.max_count or all_bytes > self.max_bytes) and self.count):
            return False
        self.count, self.bytes = all_count, all_bytes
        return True

    def refuse(self) -> NoReturn:
        """Say that too much is in flight."""
        raise TooManyCalls(
            f"{self.count} messages with {self.bytes} bytes are on their way, the limit of this producer: "
            "await `send` instead, or wait for some of the futures first"
        )

    async def acquire(self, count: int, size: int) -> None:
        """Count as in flight, as soon as that is within the limit."""
        if self.try_acquire(count, size):
            return
        future = asyncio.get_running_loop().create_future()
        waiter = (future, count, size)
        self._waiters.append(waiter)
        self.has_waiters = True
        try:
            await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled():
                self.release(count, size)  # it was let in and left before it noticed
            elif waiter in self._waiters:
                self._waiters.remove(waiter)
                self._let_in()
            raise

    def release(self, count: int, size: int) -> None:
        """So much is done."""
        self.count -= count
        self.bytes -= size
        if self._waiters:
            self._let_in()
        if not self.count and self._emptied is not None:
            if not self._emptied.done():
                self._emptied.set_result(None)
            self._emptied = None
        self.has_waiters = bool(self._waiters) or self._emptied is not None

    async def wait_empty(self) -> None:
        """Return when nothing is in flight."""
        while self.count:
            if self._emptied is None:
                self._emptied = asyncio.get_running_loop().create_future()
                self.has_waiters = True
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


class BlockingInFlightLimit:
    """The bounds of `limit.InFlightLimit` for threads. A message that is larger than all of it goes when it would be alone."""

    def __init__(self, max_count: int, max_bytes: int) -> None:
        self._changed = threading.Condition()  # guards the two below
        self._count = 0
        self._bytes = 0
        self._max_count = max_count
        self._max_bytes = max_bytes

    @property
    def is_empty(self) -> bool:
        """Whether nothing is on its way."""
        return not self._count

    def acquire(self, size: int) -> None:
        """Count a message of this size as in flight, as soon as that is within the limit."""
        with self._changed:
            while not self._fits(size):
                self._changed.wait()
            self._count += 1
            self._bytes += size

    def release(self, size: int) -> None:
        with self._changed:
            self._count -= 1
            self._bytes -= size
            self._changed.notify_all()

    def _fits(self, size: int) -> bool:
        return not self._count or (self._count < self._max_count and self._bytes + size <= self._max_bytes)

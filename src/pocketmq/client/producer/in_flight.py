"""The in-flight limit: how many messages and bytes of a producer may be without a result. Further sends wait.

    acquire ── within the limit, no waiters ──► continues at once
            └─ else ──► waits in order of arrival ── release ──► continues

A message that exceeds the limit alone is sent when nothing else is in flight, so no message waits without end. Threads that submit have
a limit of their own with the same numbers.
"""

import asyncio
import threading
from collections import deque
from typing import NoReturn

from pocketmq.errors import TooManyCalls

_Waiter = tuple[asyncio.Future[None], int, int]


class InFlightLimit:
    """Limits messages and bytes in flight. Each `acquire` needs a `release` of the same size.

    `count` messages with `bytes` are in flight. The outbox updates both directly while there are no waiters, because calls of `acquire`
    and `release` would double its cost.
    """

    __slots__ = ("_emptied", "_waiters", "bytes", "count", "has_waiters", "max_bytes", "max_count")

    def __init__(self, max_count: int, max_bytes: int) -> None:
        self.max_count = max_count
        self.max_bytes = max_bytes
        self.count = 0
        self.bytes = 0
        self.has_waiters = False
        """Whether calls of `acquire` or `wait_empty` wait. Then only `acquire` and `release` may update the counts."""
        self._waiters: deque[_Waiter] = deque()
        self._emptied: asyncio.Future[None] | None = None

    @property
    def waiting(self) -> int:
        """The number of calls that wait for the limit."""
        return len(self._waiters)

    def try_acquire(self, count: int, size: int) -> bool:
        """Count as in flight if that is within the limit and there are no waiters."""
        all_count, all_bytes = self.count + count, self.bytes + size
        if self._waiters or ((all_count > self.max_count or all_bytes > self.max_bytes) and self.count):
            return False
        self.count, self.bytes = all_count, all_bytes
        return True

    def refuse(self) -> NoReturn:
        """Raise the error for a reached limit."""
        raise TooManyCalls(
            f"flow control: {self.count} messages with {self.bytes} bytes are in flight, the limit of this producer; "
            "await `send` instead, or wait for some of the futures first"
        )

    async def acquire(self, count: int, size: int) -> None:
        """Count as in flight, after waiting for the limit."""
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
                self.release(count, size)  # it was counted before the cancellation arrived
            elif waiter in self._waiters:
                self._waiters.remove(waiter)
                self._admit_waiting()
            raise

    def release(self, count: int, size: int) -> None:
        """Count as in flight no longer."""
        self.count -= count
        self.bytes -= size
        if self._waiters:
            self._admit_waiting()
        if not self.count and self._emptied is not None:
            if not self._emptied.done():
                self._emptied.set_result(None)
            self._emptied = None
        self.has_waiters = bool(self._waiters) or self._emptied is not None

    async def wait_empty(self) -> None:
        """Wait until nothing is in flight."""
        while self.count:
            if self._emptied is None:
                self._emptied = asyncio.get_running_loop().create_future()
                self.has_waiters = True
            await asyncio.shield(self._emptied)

    def _fits(self, count: int, size: int) -> bool:
        if not self.count:
            return True
        return self.count + count <= self.max_count and self.bytes + size <= self.max_bytes

    def _admit_waiting(self) -> None:
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
    """`InFlightLimit` for threads."""

    def __init__(self, max_count: int, max_bytes: int) -> None:
        self._changed = threading.Condition()  # guards the two below
        self._count = 0
        self._bytes = 0
        self._max_count = max_count
        self._max_bytes = max_bytes

    @property
    def is_empty(self) -> bool:
        """Whether nothing is in flight."""
        return not self._count

    def acquire(self, size: int) -> None:
        """Count a message of this size as in flight, after waiting for the limit."""
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

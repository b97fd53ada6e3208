"""Limits the memory of incomplete frames: received bytes of requests that are not complete, over all connections of a server.

    read ── frame complete ──► served                        counted: nothing
      └──── frame incomplete ─► its bytes are buffered and counted
                                  all connections      > max_bytes           ─┐ close the connection with the
                                  unsigned connections > max_unsigned_bytes  ─┤ largest bytes x seconds
                                  one frame            > timeout_s           ─┘ close that connection

A frame may be 16 MiB long, so 64 connections with incomplete frames could hold a gigabyte. Bytes multiplied by seconds distinguish
them from honest uploads, which end soon, and from small frames, which cost little. If requests must be signed, a connection counts
as unsigned until its first request with a valid signature.

The bytes of a frame are in many small blocks. After a burst, freed memory is returned to the system explicitly, because malloc keeps
free blocks below any block in use.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from pocketmq.errors import ConnectionLost, InvalidSetting
from pocketmq.memory import return_free_memory
from pocketmq.net.connection import CloseReason, Connection
from pocketmq.protocol.frames import DEFAULT_LIMITS

BURST_BYTES: Final = 16 * 1024 * 1024
"""After more bytes than this were buffered, free memory is returned to the system."""
TRIM_AFTER_S: Final = 2.0
"""The delay before that, counted from the first released frame."""


class UnfinishedLimits(msgspec.Struct, frozen=True):
    """Limits for frames that are being received."""

    max_bytes: int = 256 * 1024 * 1024
    """Limit on the bytes of incomplete frames of all connections together."""
    max_unsigned_bytes: int = 32 * 1024 * 1024
    """The same limit for connections that have not sent a validly signed request, where accounts are used."""
    timeout_s: float = 60
    """A connection whose frame takes longer to arrive is closed, in seconds."""

    def __post_init__(self) -> None:
        smallest = DEFAULT_LIMITS.frame_bytes
        if min(self.max_bytes, self.max_unsigned_bytes) < smallest:
            raise InvalidSetting(
                f"max_bytes={self.max_bytes} and max_unsigned_bytes={self.max_unsigned_bytes} of unfinished frames "
                f"must be at least {smallest}, the size of the largest frame"
            )
        if self.timeout_s <= 0:
            raise InvalidSetting(f"timeout_s={self.timeout_s} of unfinished frames must be above 0")


class _Kept(msgspec.Struct):
    """The buffered bytes of a frame, and the loop time of its first byte."""

    size: int
    since: float


class UnfinishedFrames:
    """The count for one server. A `Connection` calls `update` after each read, and `forget` when it is closed."""

    def __init__(
        self, limits: UnfinishedLimits, *, must_sign: bool, give_back: Callable[[], object] = return_free_memory
    ) -> None:
        self._limits = limits
        self._give_back = give_back
        self._was_burst = False
        self._giving_back: asyncio.TimerHandle | None = None
        self._must_sign = must_sign
        self._kept: dict[Connection, _Kept] = {}
        self._timer: asyncio.TimerHandle | None = None
        self.size = 0
        """Bytes kept now."""

    def update(self, connection: Connection, size: int, *, completed: bool) -> None:
        """`connection` buffers `size` bytes of a frame. `completed`: its last read completed an earlier frame."""
        kept = self._kept.get(connection)
        if kept is not None and (completed or not size):
            self.forget(connection)
            kept = None
        if not size:
            return
        if kept is None:
            kept = self._kept[connection] = _Kept(0, connection.loop.time())
            if self._timer is None:
                self._timer = connection.loop.call_later(self._limits.timeout_s, self._close_overdue, connection.loop)
        self.size += size - kept.size
        kept.size = size
        if self.size > BURST_BYTES:
            self._was_burst = True
        if self.size > self._limits.max_bytes:
            self._close_largest(self._kept, connection.loop.time(), self._limits.max_bytes)
        elif self._must_sign and not connection.authenticated and self.size > self._limits.max_unsigned_bytes:
            self._bound_unsigned(connection.loop.time())

    def forget(self, connection: Connection) -> None:
        """`connection` buffers nothing any more."""
        kept = self._kept.pop(connection, None)
        if kept is not None:
            self.size -= kept.size
            if self._was_burst and self._giving_back is None:
                self._giving_back = connection.loop.call_later(TRIM_AFTER_S, self._end_burst)

    def _end_burst(self) -> None:
        self._giving_back = None
        if self.size < BURST_BYTES // 2:  # else the next released frame checks again
            self._was_burst = False
            self._give_back()

    def close(self) -> None:
        """Cancel all timers."""
        for timer in (self._timer, self._giving_back):
            if timer is not None:
                timer.cancel()
        self._timer = self._giving_back = None

    def _bound_unsigned(self, now: float) -> None:
        unsigned = [connection for connection in self._kept if not connection.authenticated]
        if sum(self._kept[connection].size for connection in unsigned) > self._limits.max_unsigned_bytes:
            self._close_largest(unsigned, now, self._limits.max_unsigned_bytes)

    def _close_largest(self, connections: Iterable[Connection], now: float, limit: int) -> None:
        """Close the connection with the largest bytes x seconds. A new frame counts as one second old."""
        connection = max(
            connections, key=lambda connection: self._kept[connection].size * (1 + now - self._kept[connection].since)
        )
        kept = self._kept[connection]
        text = (
            f"incomplete frames exceed {limit} bytes; this connection has buffered {kept.size} of them "
            f"for {now - kept.since:.1f} s"
        )
        self._close(connection, text)

    def _close_overdue(self, loop: asyncio.AbstractEventLoop) -> None:
        """Close connections whose frame takes too long. The dict is in the order of first bytes."""
        self._timer = None
        now, timeout_s = loop.time(), self._limits.timeout_s
        while self._kept:
            connection, kept = next(iter(self._kept.items()))
            if kept.since + timeout_s > now:
                self._timer = loop.call_at(kept.since + timeout_s, self._close_overdue, loop)
                return
            self._close(connection, f"a frame did not arrive within {timeout_s} s; {kept.size} bytes were received")

    def _close(self, connection: Connection, text: str) -> None:
        self.forget(connection)
        connection.drop(CloseReason.UNFINISHED, ConnectionLost(text))

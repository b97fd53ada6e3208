"""Memory for unfinished frames: bytes of requests that have not arrived completely, over all connections of a server.

    read ── frame complete ──► served                     counted: nothing
      └──── frame incomplete ─► its bytes are kept, and counted here
                                  all connections    > max_bytes           ─┐ the connection with the largest
                                  unsigned ones      > max_unsigned_bytes  ─┤ bytes x seconds is closed
                                  one frame          > timeout_s           ─┘ that connection is closed

A frame may announce 16 MiB, so 64 connections that never finish theirs could hold a gigabyte. Bytes multiplied by seconds tell such
connections from honest ones: an upload that proceeds ends soon, and a small frame costs little however long it takes.
Where requests must be signed, a connection counts as unsigned until its first request with a valid signature.

Frames lie in memory as they came, in many pieces. When they were many bytes and are gone, what is free is given back to the system:
by itself malloc keeps it, as long as anything behind it is in use.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from pocketmq.errors import ConnectionLost, InvalidSetting
from pocketmq.memory import give_back_freed
from pocketmq.net.connection import CloseReason, Connection
from pocketmq.protocol.frames import DEFAULT_LIMITS

BURST_BYTES: Final = 16 * 1024 * 1024
"""When so many bytes were kept, they are given back afterwards."""
GIVE_BACK_AFTER_S: Final = 2.0
"""And so long after the first of them went, if most of the others have gone by then."""


class UnfinishedLimits(msgspec.Struct, frozen=True):
    """Bounds for frames that are being received."""

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
    """What a connection keeps of a frame, and the loop time of its first byte."""

    size: int
    since: float


class UnfinishedFrames:
    """The count for one server. A `Connection` notes what it keeps after each read, and `forget`s it when it is gone."""

    def __init__(
        self, limits: UnfinishedLimits, *, must_sign: bool, give_back: Callable[[], object] = give_back_freed
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

    def note(self, connection: Connection, size: int, *, completed: bool) -> None:
        """`line` keeps `size` bytes of a frame. `completed`: its last read ended an earlier frame, so this one began there."""
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
        """`line` keeps nothing any more."""
        kept = self._kept.pop(connection, None)
        if kept is not None:
            self.size -= kept.size
            if self._was_burst and self._giving_back is None:
                self._giving_back = connection.loop.call_later(GIVE_BACK_AFTER_S, self._end_burst)

    def _end_burst(self) -> None:
        self._giving_back = None
        if self.size < BURST_BYTES // 2:  # else the next that goes asks again
            self._was_burst = False
            self._give_back()

    def close(self) -> None:
        """The server stops: no deadline is watched any more."""
        for timer in (self._timer, self._giving_back):
            if timer is not None:
                timer.cancel()
        self._timer = self._giving_back = None

    def _bound_unsigned(self, now: float) -> None:
        unsigned = [connection for connection in self._kept if not connection.authenticated]
        if sum(self._kept[connection].size for connection in unsigned) > self._limits.max_unsigned_bytes:
            self._close_largest(unsigned, now, self._limits.max_unsigned_bytes)

    def _close_largest(self, connections: Iterable[Connection], now: float, limit: int) -> None:
        """Close the connection that has kept most bytes for longest. A frame that has just begun counts with a second."""
        connection = max(
            connections, key=lambda connection: self._kept[connection].size * (1 + now - self._kept[connection].since)
        )
        kept = self._kept[connection]
        text = (
            f"unfinished frames exceed {limit} bytes, and this connection has kept {kept.size} of them "
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
            self._close(connection, f"a frame did not arrive within {timeout_s} s; {kept.size} bytes of it did")

    def _close(self, connection: Connection, text: str) -> None:
        self.forget(connection)
        connection.drop(CloseReason.UNFINISHED, ConnectionLost(text))

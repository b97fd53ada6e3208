"""The two ends of an in-memory connection, and the two pipes between them.

    MemoryTransport ── write ──► Pipe: unsent ── window ──► in transit ──► receive ── MemoryTransport
          ▲                                                                                  │
          └──── receive ◄── in transit ◄── window ── unsent :Pipe ◄── write ────────────────┘

`memory_net` decides delays, sizes and faults. This module keeps the promises of a transport to its protocol.
"""

import asyncio
from collections import deque
from collections.abc import Callable

from pocketmq.net import Address

DEFAULT_HIGH_BYTES = 64 * 1024

Piece = bytes | ConnectionResetError | None
"""A segment, the end of the stream (None), or a reset."""


class Pipe:
    """One direction of a connection. Pieces arrive in order, each with its own delay."""

    def __init__(
        self,
        window_bytes: int,
        segment_bytes: Callable[[], int],
        delay_s: Callable[[], float],
        record: Callable[[str, int], None],
    ) -> None:
        self.source: MemoryTransport
        self.target: MemoryTransport
        self._window_bytes = window_bytes
        self._segment_bytes = segment_bytes
        self._delay_s = delay_s
        self._record = record
        self._loop = asyncio.get_running_loop()
        self._unsent = bytearray()
        self._in_transit: deque[tuple[float, Piece]] = deque()
        self._transit_bytes = 0
        self._last_arrival = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._is_paused = False
        self._is_half_open = False
        self._ended = False

    @property
    def unsent_bytes(self) -> int:
        return len(self._unsent)

    def send(self, data: bytes | bytearray | memoryview) -> None:
        self._unsent += data
        self._fill_window()

    def end(self) -> None:
        """End the stream after the bytes in transit."""
        self._ended = True
        self._fill_window()

    def reset(self) -> None:
        """Drop unsent bytes. The other side gets a reset after the bytes in transit."""
        self._unsent.clear()
        if not self._is_half_open:
            self._dispatch(ConnectionResetError("connection reset by peer"))

    def pause(self, paused: bool) -> None:
        """A paused pipe delivers nothing and loses nothing."""
        self._is_paused = paused
        self.wake()

    def half_open(self) -> None:
        """Lose everything from now on, without an error for the sender."""
        self._is_half_open = True
        self.empty()
        self.source.bytes_sent()

    def empty(self) -> None:
        """Drop unsent bytes and bytes in transit."""
        self._unsent.clear()
        self._in_transit.clear()
        self._transit_bytes = 0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def wake(self) -> None:
        """Schedule the arrival of the next piece."""
        if self._timer is None and self._in_transit and not self._is_paused and self.target.accepts_pieces:
            self._timer = self._loop.call_at(max(self._in_transit[0][0], self._loop.time()), self._arrive)

    def _fill_window(self) -> None:
        if self._is_half_open:
            self._unsent.clear()
        while self._unsent and self._transit_bytes < self._window_bytes:
            size = min(self._segment_bytes(), self._window_bytes - self._transit_bytes)
            segment = bytes(self._unsent[:size])
            del self._unsent[:size]
            self._transit_bytes += len(segment)
            self._dispatch(segment)
        if self._ended and not self._unsent:
            self._ended = False
            if not self._is_half_open:
                self._dispatch(None)
            self.source.all_sent()
        self.wake()

    def _dispatch(self, piece: Piece) -> None:
        self._last_arrival = max(self._last_arrival, self._loop.time() + self._delay_s())
        self._in_transit.append((self._last_arrival, piece))
        self.wake()

    def _arrive(self) -> None:
        self._timer = None
        if self._is_paused or not self.target.accepts_pieces:
            return
        _, piece = self._in_transit.popleft()
        if isinstance(piece, bytes):
            self._transit_bytes -= len(piece)
            self._record("segment", len(piece))
        else:
            self._record("end" if piece is None else "reset", 0)
        self.target.receive(piece)
        self._fill_window()
        self.source.bytes_sent()


class MemoryTransport(asyncio.Transport):
    """One end of a connection, as an asyncio transport."""

    def __init__(
        self,
        own: Address,
        other: Address,
        outgoing: Pipe,
        incoming: Pipe,
        protocol: asyncio.BaseProtocol,
        on_lost: Callable[[], None],
    ) -> None:
        super().__init__({"sockname": tuple(own), "peername": tuple(other)})
        self._loop = asyncio.get_running_loop()
        self._protocol = protocol
        self._outgoing = outgoing
        self._incoming = incoming
        self._high = DEFAULT_HIGH_BYTES
        self._low = DEFAULT_HIGH_BYTES // 4
        self._paused_reading = False
        self._paused_protocol = False
        self._closing = False
        self._half_closed = False
        self._lost = False
        self._on_lost = on_lost
        outgoing.source = self
        incoming.target = self

    def start(self) -> None:
        self._protocol.connection_made(self)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._protocol

    @property
    def is_lost(self) -> bool:
        return self._lost

    @property
    def accepts_pieces(self) -> bool:
        return not self._paused_reading or self._closing

    def is_reading(self) -> bool:
        return not self._paused_reading and not self._closing

    def pause_reading(self) -> None:
        self._paused_reading = True

    def resume_reading(self) -> None:
        self._paused_reading = False
        self._incoming.wake()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        if high is None:
            high = DEFAULT_HIGH_BYTES if low is None else 4 * low
        self._high, self._low = high, high // 4 if low is None else low
        self._pause_if_full()

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low, self._high

    def get_write_buffer_size(self) -> int:
        return self._outgoing.unsent_bytes

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._half_closed:
            raise RuntimeError("cannot write after write_eof")
        if self._closing or not data:
            return
        self._outgoing.send(data)
        self._pause_if_full()

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        if not self._half_closed and not self._closing:
            self._half_closed = True
            self._outgoing.end()

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        if self._closing:
            return
        self._closing = True
        if self._half_closed:
            if not self._outgoing.unsent_bytes:
                self.lose(None)
        else:
            self._outgoing.end()

    def abort(self) -> None:
        if not self._lost:
            self._outgoing.reset()
            self.lose(None)

    def lose(self, error: Exception | None) -> None:
        """Close this end. The loop calls `connection_lost` of its protocol later."""
        self._closing = True
        if not self._lost:
            self._lost = True
            self._loop.call_soon(self._report_lost, error)

    def all_sent(self) -> None:
        """Called by the pipe: everything up to the end of the stream is in transit."""
        if self._closing:
            self.lose(None)

    def bytes_sent(self) -> None:
        """Called by the pipe: it has sent bytes."""
        if self._paused_protocol and not self._lost and self._outgoing.unsent_bytes <= self._low:
            self._paused_protocol = False
            self._protocol.resume_writing()

    def receive(self, piece: Piece) -> None:
        """Called by the pipe with the next piece. Data after `close` is dropped, as by a closed socket."""
        if isinstance(piece, ConnectionResetError):
            self.lose(piece)
        elif self._closing:
            return
        elif piece is not None:
            self._feed(piece)
        elif not self._keeps_half_open():
            self.close()

    def _keeps_half_open(self) -> bool:
        protocol = self._protocol
        assert isinstance(protocol, asyncio.Protocol | asyncio.BufferedProtocol)
        return bool(protocol.eof_received())

    def _feed(self, segment: bytes) -> None:
        protocol = self._protocol
        if isinstance(protocol, asyncio.Protocol):
            protocol.data_received(segment)
            return
        assert isinstance(protocol, asyncio.BufferedProtocol)
        at = 0
        while at < len(segment):
            buffer = memoryview(protocol.get_buffer(-1))
            size = min(len(buffer), len(segment) - at)
            buffer[:size] = segment[at : at + size]
            protocol.buffer_updated(size)
            at += size

    def _pause_if_full(self) -> None:
        if not self._paused_protocol and self._outgoing.unsent_bytes > self._high:
            self._paused_protocol = True
            self._protocol.pause_writing()

    def _report_lost(self, error: Exception | None) -> None:
        self._protocol.connection_lost(error)
        self._on_lost()

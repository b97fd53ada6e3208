"""A connection: reads frames from an asyncio transport, and writes bytes to it.

    read ── split ──► on_turn(connection, all complete frames of this read) ── all it wrote ──► one write
                                              bytes written outside a turn are joined in the next step of the loop

    unsent bytes   0 ───── low ────────── high ──────────────────── max
                   writable ──────────────► not writable: reading pauses, the turn puts back its remaining requests
                   ◄── both resume ──────┘   │ for `slow_s`      │
                                             └──► disconnected ◄─┘   the peer does not read its responses

    open ── close, idle, protocol error ──► closing: written bytes are sent within `linger_s` ──► lost, reported once
      └──── slow peer, peer closed ────────────────────────────────────────────────────────────┘

All connections of a loop read into one buffer, which a turn empties. One buffer for each would cost gigabytes with
10,000 connections, and a new one for each read costs page faults.
"""

import asyncio
import logging
from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, cast
from weakref import WeakKeyDictionary

import msgspec

from pocketmq.errors import ConnectionLost, InvalidSetting, PocketMQError, ProtocolError, WrongState
from pocketmq.net.address import Address
from pocketmq.protocol.frames import DEFAULT_LIMITS, Frame, FrameLimits, FrameSplitter

if TYPE_CHECKING:
    from pocketmq.net.unfinished import UnfinishedFrames

log = logging.getLogger("pocketmq.net")

RECEIVE_BYTES = 128 * 1024
"""The largest read, and so the largest turn. Twice as much halves the rate of full turns: malloc returns the copy of a larger
buffer to the system after each of them, and each new one is faulted in page by page."""
JOINED_BYTES = 64 * 1024
"""Writes of more bytes than this are not joined before they are sent."""

_receive_buffers: WeakKeyDictionary[asyncio.AbstractEventLoop, memoryview] = WeakKeyDictionary()


class ConnectionSettings(msgspec.Struct, frozen=True):
    """Limits of one connection."""

    limits: FrameLimits = DEFAULT_LIMITS
    idle_s: float = 120.0
    """The connection is closed when neither side has sent anything for this time."""
    unsent_low_bytes: int = 256 * 1024
    unsent_high_bytes: int = 1024 * 1024
    """Above this, the connection is not writable until fewer than `unsent_low_bytes` are left."""
    unsent_max_bytes: int = 64 * 1024 * 1024
    """Above this, the peer is disconnected at once."""
    slow_s: float = 30.0
    """The peer is disconnected when the connection was not writable for this time."""
    linger_s: float = 5.0
    """How long a closing connection may take to send the bytes already written."""
    pause_reading: bool = True
    """Whether to stop reading while the connection is not writable. A client must keep reading: responses unblock it."""

    def __post_init__(self) -> None:
        if not 0 <= self.unsent_low_bytes < self.unsent_high_bytes < self.unsent_max_bytes:
            raise InvalidSetting(
                "unsent_low_bytes, unsent_high_bytes and unsent_max_bytes must be 0 <= low < high < max"
            )
        if min(self.idle_s, self.slow_s, self.linger_s) <= 0:
            raise InvalidSetting("idle_s, slow_s and linger_s of a connection must be above 0")


class CloseReason(Enum):
    """Why a connection was closed."""

    CLOSED = "closed here"
    PEER = "closed by the peer"
    IDLE = "idle"
    SLOW = "slow peer"
    PROTOCOL = "protocol error"
    FAILED = "internal error"
    UNFINISHED = "incomplete frame"


class Connection(asyncio.BufferedProtocol):
    """One connection.

    `on_turn(connection, frames)` must not block. If it raises ProtocolError, the bytes it wrote are sent and the connection is
    closed. Between two requests it checks `should_pause`; if true, it calls `put_back` with the remaining frames, and gets them
    again when the connection is writable. `on_lost(connection, reason)` is called exactly once, if and only if `on_made` was.
    """

    __slots__ = (
        "__weakref__",
        "_capacity",
        "_idle_timer",
        "_in_turn",
        "_input_ended",
        "_keeps_bytes",
        "_linger_timer",
        "_lost",
        "_on_lost",
        "_on_made",
        "_on_turn",
        "_out",
        "_out_bytes",
        "_put_off",
        "_reading",
        "_returned",
        "_settings",
        "_slow_timer",
        "_splitter",
        "_transport",
        "_unfinished",
        "_view",
        "_waiters",
        "address",
        "authenticated",
        "ending",
        "loop",
        "reason",
        "received_at",
        "sent_at",
        "writable",
    )

    def __init__(
        self,
        on_turn: "Callable[[Connection, list[Frame]], None]",
        on_lost: "Callable[[Connection, PocketMQError], None]",
        on_made: "Callable[[Connection], None] | None" = None,
        settings: ConnectionSettings | None = None,
        unfinished: "UnfinishedFrames | None" = None,
    ) -> None:
        self._on_turn = on_turn
        self._on_lost = on_lost
        self._on_made = on_made
        self._settings = settings = settings or ConnectionSettings()
        self._splitter = FrameSplitter(settings.limits)
        self._unfinished = unfinished
        self.loop: asyncio.AbstractEventLoop
        """Set when the connection is made."""
        self._transport: asyncio.Transport
        self._view: memoryview
        self._lost: asyncio.Future[None] | None = None
        self._out: list[bytes | memoryview] = []
        self._out_bytes = 0
        self._capacity = settings.unsent_max_bytes
        self._in_turn = False
        self._input_ended = False
        self._keeps_bytes = False
        self._returned: list[Frame] = []
        self._put_off: list[Frame] = []
        self._reading = True
        self._waiters: set[asyncio.Future[None]] = set()
        self._idle_timer: asyncio.TimerHandle | None = None
        self._slow_timer: asyncio.TimerHandle | None = None
        self._linger_timer: asyncio.TimerHandle | None = None
        self.address = Address("", 0)
        self.authenticated = False
        """Whether the peer has sent a request with a valid signature."""
        self.writable = False
        self.received_at = 0.0
        self.sent_at = 0.0
        self.ending: CloseReason | None = None
        self.reason: PocketMQError | None = None

    @property
    def is_open(self) -> bool:
        """Connected and not closing."""
        return self._lost is not None and self.ending is None

    @property
    def own_address(self) -> Address:
        """The local address of the socket."""
        if self._lost is None:
            raise WrongState("the connection is not open yet")
        return Address(*(self._transport.get_extra_info("sockname") or ("", 0))[:2])

    @property
    def unsent_bytes(self) -> int:
        """Bytes written here that the operating system has not accepted yet."""
        if self._lost is None or self._lost.done():
            return 0
        return self._out_bytes + self._transport.get_write_buffer_size()

    @property
    def should_pause(self) -> bool:
        """Whether too many bytes wait to be sent to serve another request now."""
        return self.answer_capacity <= 0

    @property
    def answer_capacity(self) -> int:
        """How many bytes of responses may be written before `should_pause` is true."""
        settings = self._settings
        if not settings.pause_reading:
            return settings.unsent_max_bytes
        return settings.unsent_high_bytes - self._out_bytes if self.writable else 0

    @property
    def ends_after_turn(self) -> bool:
        """Whether the current turn is the last one: no more bytes can be read after it."""
        return self._input_ended or self._splitter.failure is not None

    def put_back(self, frames: list[Frame]) -> None:
        """During a turn: return its last `frames` unserved. They become a turn of their own when the connection is writable."""
        assert self._in_turn, "only the turn that got the frames can defer them"
        self._returned = frames

    def put_off(self, frames: list[Frame]) -> None:
        """During a turn: defer all its frames until `take_put_off` is called, in the next step of the loop."""
        assert self._in_turn, "frames are put off by the turn that got them"
        self._put_off = frames

    def take_put_off(self, take: Callable[[list[Frame]], None] | None = None) -> None:
        """Run the deferred turn, including frames read since, with `take` or `on_turn`. Without one, nothing happens."""
        frames, self._put_off = self._put_off, []
        if frames:
            self._turn(frames, take)

    def write(self, data: bytes | memoryview) -> None:
        """Send `data` at the end of this turn, or in the next step of the loop. A closing connection drops it.

        The bytes behind a memoryview must not change afterwards: the kernel may read them seconds later.
        """
        if self.ending is not None:
            return
        if self._lost is None:
            raise WrongState("the connection is not open yet")
        if not self._out and not self._in_turn:
            self.loop.call_soon(self._flush)
        self._out.append(data)
        self._out_bytes += len(data)
        if self._out_bytes > self._capacity:
            self._check_capacity()

    def write_now(self, data: bytes) -> None:
        """Send `data` at once if no turn is running, else at its end. For a caller that has nothing else to write."""
        if self._in_turn:
            self.write(data)
            return
        self._in_turn = True  # so that `write` does not schedule a flush
        try:
            self.write(data)
        finally:
            self._in_turn = False
        self._flush()

    def flush(self) -> None:
        """Send written bytes at once if no turn is running, else at its end. For a caller that has nothing else to write."""
        if not self._in_turn:
            self._flush()

    async def wait_writable(self) -> None:
        """Return when the connection is writable; raise ConnectionLost when it is closed first."""
        while not self.writable:
            if not self.is_open:
                raise ConnectionLost(f"{self.address}: {self.reason or 'not connected'}")
            waiter = self.loop.create_future()
            self._waiters.add(waiter)
            try:
                await waiter
            finally:
                self._waiters.discard(waiter)

    def close(self, reason: PocketMQError | None = None) -> None:
        """Send the written bytes, then close. Idempotent."""
        self._end(CloseReason.CLOSED, reason or ConnectionLost("closed here"))

    def abort(self, reason: PocketMQError | None = None) -> None:
        """Close at once and drop unsent bytes."""
        self._end(CloseReason.CLOSED, reason or ConnectionLost("closed here"), at_once=True)

    def drop(self, ending: CloseReason, reason: PocketMQError) -> None:
        """Close at once because of something that the peer did."""
        self._end(ending, reason, at_once=True)

    def give_up(self, reason: PocketMQError) -> None:
        """Close after a cancelled connect. uvloop then drops the connection without calling `connection_lost`."""
        if self._lost is not None and not self._lost.done():
            self.abort(reason)
            self.connection_lost(None)

    async def wait_lost(self) -> None:
        """Return when the connection is closed and `on_lost` has been called."""
        if self._lost is not None:
            await asyncio.shield(self._lost)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        settings = self._settings
        self.loop = loop = asyncio.get_running_loop()
        self._transport = transport = cast("asyncio.Transport", transport)  # uvloop's has another base class
        self._lost = loop.create_future()
        self._view = _receive_buffer(loop)
        transport.set_write_buffer_limits(settings.unsent_high_bytes, settings.unsent_low_bytes)
        self.address = Address(*(transport.get_extra_info("peername") or ("", 0))[:2])
        self.writable = True
        self.received_at = self.sent_at = loop.time()
        self._idle_timer = loop.call_later(settings.idle_s, self._check_idle)
        if self._on_made is not None:
            self._on_made(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._view

    def buffer_updated(self, nbytes: int) -> None:
        if self.ending is not None:
            return
        self.received_at = self.loop.time()
        frames = self._splitter.feed(bytes(self._view[:nbytes]))
        if self._put_off:
            self._put_off += frames
        elif frames:
            self._turn(frames)
        elif self._splitter.failure is not None:
            self._end(CloseReason.PROTOCOL, self._splitter.failure)
        if self._unfinished is not None and (self._splitter.pending or self._keeps_bytes):
            self._count_unfinished(completed=bool(frames))

    def _count_unfinished(self, *, completed: bool) -> None:
        assert self._unfinished is not None
        kept = self._splitter.pending if self.ending is None else 0
        self._keeps_bytes = kept > 0
        self._unfinished.update(self, kept, completed=completed)

    def pause_writing(self) -> None:
        self.writable = False
        self._measure_capacity()
        self._slow_timer = self.loop.call_later(self._settings.slow_s, self._drop_slow_peer)
        self._set_reading()

    def resume_writing(self) -> None:
        self._capacity = self._settings.unsent_max_bytes
        if self._slow_timer is not None:
            self._slow_timer.cancel()
        if self.ending is not None:
            return
        self.writable = True
        self._set_reading()
        self._wake_waiters()

    def eof_received(self) -> None:
        self._input_ended = True
        self.take_put_off()
        self._end(CloseReason.PEER, ConnectionLost("closed by the peer"))

    def connection_lost(self, exc: Exception | None) -> None:
        if self._lost is not None and self._lost.done():
            return  # after `give_up`
        if self.ending is None:
            self.ending = CloseReason.PEER
            self.reason = ConnectionLost(f"connection lost: {exc or 'closed'}")
            log.debug("%s: %s", self.address, self.reason)
        assert self.reason is not None
        self.writable = False
        self._out = []
        self._out_bytes = 0
        self._returned = []
        self._put_off = []
        self._splitter.clear()
        if self._unfinished is not None:
            self._unfinished.forget(self)
        for timer in (self._idle_timer, self._slow_timer, self._linger_timer):
            if timer is not None:
                timer.cancel()
        self._wake_waiters()
        try:
            self._on_lost(self, self.reason)
        finally:
            if self._lost is not None:
                self._lost.set_result(None)

    def _turn(self, frames: list[Frame], take: Callable[[list[Frame]], None] | None = None) -> None:
        self._in_turn = True
        try:
            if take is None:
                self._on_turn(self, frames)
            else:
                take(frames)
        except ProtocolError as error:
            self._end(CloseReason.PROTOCOL, error)
        except Exception as error:
            log.exception("%s: a turn of %d frames failed; closing the connection", self.address, len(frames))
            self._end(CloseReason.FAILED, ConnectionLost(f"a turn failed: {error}"))
        finally:
            self._in_turn = False
        if self._put_off:
            return
        if self._out:
            self._flush()
        if self._splitter.failure is not None and not self._returned:
            self._end(CloseReason.PROTOCOL, self._splitter.failure)
        elif self._returned or not self._reading:
            self._set_reading()

    def _serve_returned(self) -> None:
        if self._returned and self.writable:
            frames, self._returned = self._returned, []
            self._turn(frames)

    def _set_reading(self) -> None:
        """Read while responses can be sent and no older frames wait; else serve those first."""
        if self.ending is not None:
            return
        reading = not self._returned and (self.writable or not self._settings.pause_reading)
        if reading is not self._reading:
            self._reading = reading
            if reading:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()
        if self._returned and self.writable:
            self.loop.call_soon(self._serve_returned)

    def _flush(self) -> None:
        out = self._out
        if not out:
            return
        is_large, self._out, self._out_bytes = self._out_bytes > JOINED_BYTES, [], 0
        if not self._in_turn:
            self.sent_at = self.loop.time()
        if len(out) == 1:
            self._transport.write(out[0])
        elif is_large:
            self._write_pieces(out)
        else:
            self._transport.write(b"".join(out))
        if not self.writable:
            self._measure_capacity()

    def _write_pieces(self, pieces: list[bytes | memoryview]) -> None:
        """Send large writes without joining them. Works around a fault of asyncio in Python 3.12 and 3.13."""
        transport, settings = self._transport, self._settings
        if transport.is_closing():
            return  # asyncio would register a closed descriptor, whose number the next socket gets
        transport.writelines(pieces)
        if self.writable and transport.get_write_buffer_size() > settings.unsent_high_bytes:
            # Before 3.12.9 and 3.13.2, writelines does not check the high-water mark; setting the limits does.
            transport.set_write_buffer_limits(settings.unsent_high_bytes, settings.unsent_low_bytes)

    def _measure_capacity(self) -> None:
        self._capacity = self._settings.unsent_max_bytes - self._transport.get_write_buffer_size()

    def _check_capacity(self) -> None:
        # The capacity was measured at the last write; the peer may have read since.
        self._measure_capacity()
        if self._out_bytes > self._capacity:
            text = f"{self.unsent_bytes} unsent bytes exceed the limit of {self._settings.unsent_max_bytes}; the peer does not read"
            self._end(CloseReason.SLOW, ConnectionLost(text), at_once=True)

    def _drop_slow_peer(self) -> None:
        text = f"{self.unsent_bytes} bytes unsent; the peer has not read for {self._settings.slow_s} s"
        self._end(CloseReason.SLOW, ConnectionLost(text), at_once=True)

    def _check_idle(self) -> None:
        # Reads and writes only record their time, because they are frequent and this timer is not.
        due = max(self.received_at, self.sent_at) + self._settings.idle_s
        if due > self.loop.time():
            self._idle_timer = self.loop.call_at(due, self._check_idle)
        else:
            self._end(CloseReason.IDLE, ConnectionLost(f"idle for {self._settings.idle_s} s"))

    def _end(self, ending: CloseReason, reason: PocketMQError, *, at_once: bool = False) -> None:
        if self._lost is None or self._lost.done():
            return
        if self.ending is None:
            if not at_once:
                self._flush()
            self.ending, self.reason, self.writable = ending, reason, False
            unusual = ending in (CloseReason.PROTOCOL, CloseReason.SLOW, CloseReason.UNFINISHED)
            log.log(logging.WARNING if unusual else logging.DEBUG, "%s: %s: %s", self.address, ending.value, reason)
            self._wake_waiters()
            self._transport.close()
            self._linger_timer = self.loop.call_later(self._settings.linger_s, self._transport.abort)
        if at_once:
            self._transport.abort()

    def _wake_waiters(self) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)


def _receive_buffer(loop: asyncio.AbstractEventLoop) -> memoryview:
    view = _receive_buffers.get(loop)
    if view is None:
        view = _receive_buffers[loop] = memoryview(bytearray(RECEIVE_BYTES))
    return view

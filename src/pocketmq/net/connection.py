"""A line: the only place where bytes come from and go to a transport.

    read ── split ──► on_turn(line, all complete frames of this read) ── everything written meanwhile ──► one write
                                                                  written outside a turn: joined until the loop comes round

    unsent bytes   0 ───── low ────────── high ──────────────────── max
                   writable ──────────────► not writable: reading stops, and requests of this turn are put back
                   ◄── both resume ──────┘   │ for `slow_s`      │
                                             └──► disconnected ◄─┘   the peer does not read what it asked for

    open ── close, idle, protocol broken ──► ending: what was written goes out within `linger_s` ──► lost, told once
      └──── slow peer, peer gone ──────────────────────────────────────────────────────────────────────┘

All lines of a loop read into one buffer: it is emptied before the loop does anything else. A buffer each would cost 10,000 lines
gigabytes, and a fresh one per read costs page faults.
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
"""The most that one read, and so one turn, brings. Twice as much halves the rate of full turns: the copy of a larger buffer is
given back to the system after each of them, and faulted in again page by page."""
JOINED_BYTES = 64 * 1024
"""Pieces of more bytes than this are not copied together to be sent with one call."""

_receive_buffers: WeakKeyDictionary[asyncio.AbstractEventLoop, memoryview] = WeakKeyDictionary()


class ConnectionSettings(msgspec.Struct, frozen=True):
    """Bounds of one line."""

    limits: FrameLimits = DEFAULT_LIMITS
    idle_s: float = 120.0
    """Closed when neither side said anything for so long."""
    unsent_low_bytes: int = 256 * 1024
    unsent_high_bytes: int = 1024 * 1024
    """From here on the line is not writable, until less than `unsent_low_bytes` are left."""
    unsent_max_bytes: int = 64 * 1024 * 1024
    """Beyond this the peer is disconnected at once."""
    slow_s: float = 30.0
    """Disconnected when the line was not writable for so long."""
    linger_s: float = 5.0
    """How long a closing line may take to send what was written."""
    pause_reading: bool = True
    """Read no requests while their answers cannot be sent. A side that mostly asks must go on reading: answers free it."""

    def __post_init__(self) -> None:
        if not 0 <= self.unsent_low_bytes < self.unsent_high_bytes < self.unsent_max_bytes:
            raise InvalidSetting("unsent bytes of a line must be 0 <= low < high < max")
        if min(self.idle_s, self.slow_s, self.linger_s) <= 0:
            raise InvalidSetting("idle_s, slow_s and linger_s of a line must be above 0")


class CloseReason(Enum):
    """Why a line ended."""

    CLOSED = "closed here"
    PEER = "closed by the peer"
    IDLE = "idle"
    SLOW = "the peer reads too slowly"
    PROTOCOL = "the peer broke the protocol"
    FAILED = "a turn failed here"
    UNFINISHED = "the peer does not finish its frame"


class Connection(asyncio.BufferedProtocol):
    """One connection.

    `on_turn(line, frames)` must not wait. What it writes before a ProtocolError goes out, then the line is closed. Between two
    requests it looks at `should_pause`; when true it puts back the frames that are left, and gets them again when there is room.
    `on_lost(line, reason)` is called exactly once, if and only if `on_made(line)` was.
    """

    __slots__ = (
        "__weakref__",
        "_gone",
        "_held",
        "_idle_timer",
        "_in_turn",
        "_input_ended",
        "_keeps_bytes",
        "_linger_timer",
        "_on_lost",
        "_on_made",
        "_on_turn",
        "_out",
        "_out_bytes",
        "_put_off",
        "_reading",
        "_room",
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
        "heard_at",
        "loop",
        "reason",
        "spoke_at",
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
        """Known once it is connected."""
        self._transport: asyncio.Transport
        self._view: memoryview
        self._gone: asyncio.Future[None] | None = None
        self._out: list[bytes | memoryview] = []
        self._out_bytes = 0
        self._room = settings.unsent_max_bytes
        self._in_turn = False
        self._input_ended = False
        self._keeps_bytes = False
        self._held: list[Frame] = []
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
        self.heard_at = 0.0
        self.spoke_at = 0.0
        self.ending: CloseReason | None = None
        self.reason: PocketMQError | None = None

    @property
    def is_open(self) -> bool:
        """Connected, and nobody has begun to close it."""
        return self._gone is not None and self.ending is None

    @property
    def own_address(self) -> Address:
        """This side of the connection, as this machine sees it."""
        if self._gone is None:
            raise WrongState("this line is not connected yet")
        return Address(*(self._transport.get_extra_info("sockname") or ("", 0))[:2])

    @property
    def unsent_bytes(self) -> int:
        """Bytes written here that the operating system has not taken yet."""
        if self._gone is None or self._gone.done():
            return 0
        return self._out_bytes + self._transport.get_write_buffer_size()

    @property
    def should_pause(self) -> bool:
        """Whether so much waits to be sent that no further request should be served now."""
        return self.answer_room <= 0

    @property
    def answer_room(self) -> int:
        """How many bytes of answers may be written before the line should pause."""
        settings = self._settings
        if not settings.pause_reading:
            return settings.unsent_max_bytes
        return settings.unsent_high_bytes - self._out_bytes if self.writable else 0

    @property
    def ends_after_turn(self) -> bool:
        """Whether nothing can be read behind the turn that is under way: the line ends with it."""
        return self._input_ended or self._splitter.failure is not None

    def put_back(self, frames: list[Frame]) -> None:
        """During a turn: its last `frames`, not served. They are a turn of their own when there is room again."""
        assert self._in_turn, "frames are put back by the turn that got them"
        self._held = frames

    def put_off(self, frames: list[Frame]) -> None:
        """During a turn: all its frames, not served, for who will `take_put_off` when the loop comes round."""
        assert self._in_turn, "frames are put off by the turn that got them"
        self._put_off = frames

    def take_put_off(self, take: Callable[[list[Frame]], None] | None = None) -> None:
        """Have the turn that was put off, with what was read since, by `take` or `on_turn`. Harmless when there is none."""
        frames, self._put_off = self._put_off, []
        if frames:
            self._turn(frames, take)

    def write(self, data: bytes | memoryview) -> None:
        """Send `data` at the end of this turn, or when the loop comes round. A line that is ending drops it.

        What a view shows must not change any more: the kernel may read it when the peer has room, seconds later.
        """
        if self.ending is not None:
            return
        if self._gone is None:
            raise WrongState("this line is not connected yet")
        if not self._out and not self._in_turn:
            self.loop.call_soon(self._flush)
        self._out.append(data)
        self._out_bytes += len(data)
        if self._out_bytes > self._room:
            self._check_room()

    def write_now(self, data: bytes) -> None:
        """Send `data` at once, for a writer who knows that nothing follows. Within a turn, its end does that."""
        if self._in_turn:
            self.write(data)
            return
        self._in_turn = True  # a turn of its own, so that nobody is told to come back for it
        try:
            self.write(data)
        finally:
            self._in_turn = False
        self._flush()

    def flush(self) -> None:
        """Send now what was written, for a writer who knows that nothing follows. Within a turn, its end does that."""
        if not self._in_turn:
            self._flush()

    async def wait_writable(self) -> None:
        """Return when there is room for more; ConnectionLost when the line ends first."""
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
        """Send what was written, then end. Harmless when done twice."""
        self._end(CloseReason.CLOSED, reason or ConnectionLost("closed here"))

    def abort(self, reason: PocketMQError | None = None) -> None:
        """End at once; what was not sent is dropped."""
        self._end(CloseReason.CLOSED, reason or ConnectionLost("closed here"), at_once=True)

    def drop(self, ending: CloseReason, reason: PocketMQError) -> None:
        """End at once, for a cause that the peer gave."""
        self._end(ending, reason, at_once=True)

    def give_up(self, reason: PocketMQError) -> None:
        """The connect that made this line was given up. uvloop drops such a connection and tells nobody, so the line ends here."""
        if self._gone is not None and not self._gone.done():
            self.abort(reason)
            self.connection_lost(None)

    async def wait_lost(self) -> None:
        """Return when the line is gone, and `on_lost` has been called."""
        if self._gone is not None:
            await asyncio.shield(self._gone)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        settings = self._settings
        self.loop = loop = asyncio.get_running_loop()
        self._transport = transport = cast("asyncio.Transport", transport)  # uvloop's is one in all but its class
        self._gone = loop.create_future()
        self._view = _receive_buffer(loop)
        transport.set_write_buffer_limits(settings.unsent_high_bytes, settings.unsent_low_bytes)
        self.address = Address(*(transport.get_extra_info("peername") or ("", 0))[:2])
        self.writable = True
        self.heard_at = self.spoke_at = loop.time()
        self._idle_timer = loop.call_later(settings.idle_s, self._look_whether_idle)
        if self._on_made is not None:
            self._on_made(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._view

    def buffer_updated(self, nbytes: int) -> None:
        if self.ending is not None:
            return
        self.heard_at = self.loop.time()
        frames = self._splitter.feed(bytes(self._view[:nbytes]))
        if self._put_off:
            self._put_off += frames
        elif frames:
            self._turn(frames)
        elif self._splitter.failure is not None:
            self._end(CloseReason.PROTOCOL, self._splitter.failure)
        if self._unfinished is not None and (self._splitter.pending or self._keeps_bytes):
            self._note_unfinished(completed=bool(frames))

    def _note_unfinished(self, *, completed: bool) -> None:
        assert self._unfinished is not None
        kept = self._splitter.pending if self.ending is None else 0
        self._keeps_bytes = kept > 0
        self._unfinished.note(self, kept, completed=completed)

    def pause_writing(self) -> None:
        self.writable = False
        self._measure_room()
        self._slow_timer = self.loop.call_later(self._settings.slow_s, self._drop_slow_peer)
        self._set_reading()

    def resume_writing(self) -> None:
        self._room = self._settings.unsent_max_bytes
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
        if self._gone is not None and self._gone.done():
            return  # it was given up before
        if self.ending is None:
            self.ending = CloseReason.PEER
            self.reason = ConnectionLost(f"connection lost: {exc or 'closed'}")
            log.debug("%s: %s", self.address, self.reason)
        assert self.reason is not None
        self.writable = False
        self._out = []
        self._out_bytes = 0
        self._held = []
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
            if self._gone is not None:
                self._gone.set_result(None)

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
            log.exception("%s: a turn of %d frames failed; the line is closed", self.address, len(frames))
            self._end(CloseReason.FAILED, ConnectionLost(f"a turn failed: {error}"))
        finally:
            self._in_turn = False
        if self._put_off:
            return
        if self._out:
            self._flush()
        if self._splitter.failure is not None and not self._held:
            self._end(CloseReason.PROTOCOL, self._splitter.failure)
        elif self._held or not self._reading:
            self._set_reading()

    def _serve_held(self) -> None:
        if self._held and self.writable:
            frames, self._held = self._held, []
            self._turn(frames)

    def _set_reading(self) -> None:
        """Read when there is room for answers and nothing older to serve; else serve that first, or wait for room."""
        if self.ending is not None:
            return
        reading = not self._held and (self.writable or not self._settings.pause_reading)
        if reading is not self._reading:
            self._reading = reading
            if reading:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()
        if self._held and self.writable:
            self.loop.call_soon(self._serve_held)

    def _flush(self) -> None:
        out = self._out
        if not out:
            return
        is_large, self._out, self._out_bytes = self._out_bytes > JOINED_BYTES, [], 0
        if not self._in_turn:
            self.spoke_at = self.loop.time()
        if len(out) == 1:
            self._transport.write(out[0])
        elif is_large:
            self._write_pieces(out)
        else:
            self._transport.write(b"".join(out))
        if not self.writable:
            self._measure_room()

    def _write_pieces(self, pieces: list[bytes | memoryview]) -> None:
        """Send them without copying them together. What asyncio of Python 3.12 and 3.13 forgets here is done for it."""
        transport, settings = self._transport, self._settings
        if transport.is_closing():
            return  # lost, and about to be told: it would wait for room in a socket whose number the next one gets
        transport.writelines(pieces)
        if self.writable and transport.get_write_buffer_size() > settings.unsent_high_bytes:
            # Before 3.12.9 and 3.13.2 it takes any number of bytes and never says so. It looks when limits are set.
            transport.set_write_buffer_limits(settings.unsent_high_bytes, settings.unsent_low_bytes)

    def _measure_room(self) -> None:
        self._room = self._settings.unsent_max_bytes - self._transport.get_write_buffer_size()

    def _check_room(self) -> None:
        # The room was measured at the last write; the peer may have read since.
        self._measure_room()
        if self._out_bytes > self._room:
            text = f"{self.unsent_bytes} bytes wait for a peer that does not read them; the limit is {self._settings.unsent_max_bytes}"
            self._end(CloseReason.SLOW, ConnectionLost(text), at_once=True)

    def _drop_slow_peer(self) -> None:
        text = f"{self.unsent_bytes} bytes wait for a peer that has not read them for {self._settings.slow_s} s"
        self._end(CloseReason.SLOW, ConnectionLost(text), at_once=True)

    def _look_whether_idle(self) -> None:
        # Reads and writes only leave their time; the timer comes by rarely and looks when it was.
        due = max(self.heard_at, self.spoke_at) + self._settings.idle_s
        if due > self.loop.time():
            self._idle_timer = self.loop.call_at(due, self._look_whether_idle)
        else:
            self._end(CloseReason.IDLE, ConnectionLost(f"idle for {self._settings.idle_s} s"))

    def _end(self, ending: CloseReason, reason: PocketMQError, *, at_once: bool = False) -> None:
        if self._gone is None or self._gone.done():
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

"""The other end of a line: ask it, tell it, serve it. Both sides of a connection use the same class.

    call(command) ──► a number, a future ──► line          line ──► turn ──► response ──► its future
    oneway(command) ───────────────────────► line                     └────► request ───► serve ──► answer ──► line
                                                                                             └─ a coroutine: a task of this line

One timer serves all calls of a peer. A peer that answers nothing although it was asked, while a call times out, is taken for
dead after `silence_s`: a half-open connection never says so itself.

A server may take the turn itself (`on_turn`). The contract of a turn:
- `on_turn(peer, frames)` gets every complete frame of one read, in order, and must not wait;
- it answers with `peer.connection.write(bytes)`, now or at any later time; what it writes before it returns goes out in one write;
- before each request it looks at `peer.connection.should_pause`, and if so gives the frames that are left to `peer.connection.put_back`;
- it may give all of them to `peer.connection.put_off`, and have the turn with `peer.connection.take_put_off` when the loop comes round;
- every command that it does not want, responses above all, it gives to `peer.handle(command)`;
- a ProtocolError that it raises ends the line, after what was written before; any other exception too, and is logged.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol, TypeVarTuple

import msgspec

from pocketmq.codes import Version
from pocketmq.errors import (
    CallTimedOut,
    ConnectionLost,
    GoAway,
    InvalidSetting,
    PocketMQError,
    RequestNotSupported,
    ServiceNotAvailable,
    SystemBusy,
    TooManyCalls,
    WrongState,
)
from pocketmq.net.address import Address
from pocketmq.net.connection import Connection, ConnectionSettings
from pocketmq.net.unfinished import UnfinishedFrames
from pocketmq.protocol.command import RESPONSE, Command, decode_command
from pocketmq.protocol.frames import Frame
from pocketmq.protocol.hot_headers import NOT_STORED, StoredAnswer, read_stored
from pocketmq.protocol.pending_calls import MAX_IN_FLIGHT, PendingCalls, failure_reply

log = logging.getLogger("pocketmq.net")

Serve = Callable[["Peer", Command], Command | Coroutine[Any, Any, Command | None] | None]
"""Answers a request, at once or as a coroutine; None sends no answer. An error that it raises is answered with its code."""

Ts = TypeVarTuple("Ts")
"""What a caller of `ask_encoded` or `ask_for` wants to have given back when the frame is written."""

OnTurn = Callable[["Peer", list[Frame]], None]


class PeerSettings(msgspec.Struct, frozen=True):
    """Bounds of one peer."""

    connection: ConnectionSettings = ConnectionSettings()
    call_s: float = 3.0
    """Time for an answer, unless the call says otherwise."""
    silence_s: float = 10.0
    """A call that times out ends the line when the peer has said nothing for so long after being asked."""
    max_in_flight: int = MAX_IN_FLIGHT
    """Calls that wait for an answer; one more is TooManyCalls."""
    max_serving: int = 4096
    """Requests of the peer that are being served by coroutines; one more is answered with SYSTEM_BUSY."""

    def __post_init__(self) -> None:
        if min(self.call_s, self.silence_s, self.max_in_flight, self.max_serving) <= 0:
            raise InvalidSetting("call_s, silence_s, max_in_flight and max_serving of a peer must be above 0")


class Waiting(Protocol):
    """Who waits for an answer: is told of it or of its failure, once, in the turn that brings it, and must neither wait nor raise.

    `code` and `timeout_s` are the request and its time, for what is said when no answer comes.
    """

    @property
    def code(self) -> int: ...

    @property
    def timeout_s(self) -> float: ...

    def answered(self, response: Command) -> None:
        """The response came, whatever its code."""

    def stored(self, answer: StoredAnswer) -> bool:
        """The same for a response that says where a message was stored; False: it wants to have the whole of it."""

    def failed(self, error: PocketMQError) -> None:
        """None came in time, or the line is gone."""


class _Awaited(msgspec.Struct, eq=False):
    """A future, which may have been given up meanwhile."""

    future: asyncio.Future[Command]
    code: int
    timeout_s: float

    def answered(self, response: Command) -> None:
        if not self.future.done():
            self.future.set_result(response)

    def stored(self, answer: StoredAnswer) -> bool:
        return False

    def failed(self, error: PocketMQError) -> None:
        if not self.future.done():
            self.future.set_exception(error)


class Peer:
    """One connection seen as somebody to talk to. Give `peer.connection` to a network, which connects it."""

    __slots__ = (
        "__weakref__",
        "_asked_at",
        "_asked_many",
        "_calls",
        "_on_lost",
        "_on_made",
        "_on_turn",
        "_serve",
        "_serving",
        "_settings",
        "_timer",
        "_timer_at",
        "connection",
        "refusing",
    )

    def __init__(
        self,
        *,
        serve: Serve | None = None,
        on_turn: OnTurn | None = None,
        on_made: "Callable[[Peer], None] | None" = None,
        on_lost: "Callable[[Peer, PocketMQError], None] | None" = None,
        settings: PeerSettings | None = None,
        unfinished: UnfinishedFrames | None = None,
    ) -> None:
        self._settings = settings = settings or PeerSettings()
        self._serve = serve or _not_supported
        self._on_turn = on_turn or Peer.take_turn
        self._on_made = on_made
        self._on_lost = on_lost
        self._calls: PendingCalls[Waiting] = PendingCalls(
            max_in_flight=settings.max_in_flight, frame_bytes=settings.connection.limits.frame_bytes
        )
        self._serving: set[asyncio.Task[None]] = set()
        self.refusing = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._asked_at = 0.0
        self._asked_many = False
        self.connection = Connection(self._turn, self._lost, self._made, settings.connection, unfinished)

    def __repr__(self) -> str:
        return f"<Peer {self.address}>"

    @property
    def address(self) -> Address:
        return self.connection.address

    @property
    def is_open(self) -> bool:
        return self.connection.is_open

    @property
    def in_flight(self) -> int:
        """Calls that wait for their answer."""
        return self._calls.in_flight

    @property
    def unmatched(self) -> int:
        """Responses that belonged to no open call."""
        return self._calls.unmatched

    @property
    def serving(self) -> frozenset[asyncio.Task[None]]:
        """The requests of this peer that coroutines are working on."""
        return frozenset(self._serving)

    async def call(self, command: Command, timeout: float | None = None) -> Command:  # noqa: ASYNC109 the deadline is kept with the call
        """The response, whatever its code. While the line is not writable the call waits, within its `timeout` in seconds."""
        seconds = self._settings.call_s if timeout is None else timeout
        deadline = asyncio.get_running_loop().time() + seconds
        if self.connection.is_open and not self.connection.writable:
            await self._wait_writable(command.code, seconds, deadline)
        future = self._ask(command, seconds, deadline)
        number = command.opaque
        try:
            return await future
        except asyncio.CancelledError:
            self._calls.forget(number)
            raise

    def ask(self, command: Command, timeout: float | None = None) -> asyncio.Future[Command]:
        """Like `call` without waiting: the future of the response. TooManyCalls when the line is not writable."""
        seconds = self._settings.call_s if timeout is None else timeout
        self._require_writable()
        return self._ask(command, seconds, asyncio.get_running_loop().time() + seconds)

    def ask_encoded(
        self, code: int, encode: Callable[[*Ts, int], bytes], timeout: float, *arguments: *Ts
    ) -> asyncio.Future[Command]:
        """Like `ask` for a caller that writes the frame itself: `encode(*arguments, number)` gives its bytes."""
        if not self.connection.writable:
            self._require_writable()
        loop = self.connection.loop
        future: asyncio.Future[Command] = loop.create_future()
        self.ask_for(_Awaited(future, code, timeout), loop.time() + timeout, encode, *arguments)
        return future

    def ask_for(self, waiting: Waiting, deadline: float, encode: Callable[[*Ts, int], bytes], *arguments: *Ts) -> None:
        """The same, and `waiting` is told of the answer. `deadline` is a time of the loop."""
        connection = self.connection
        if not connection.writable:  # one that is not open is not writable either
            self._require_writable()
        number = self._calls.begin(deadline, waiting)
        try:
            connection.write(encode(*arguments, number))
        except BaseException:
            self._calls.forget(number)
            raise
        if self._asked_at <= connection.heard_at or self._timer is None or deadline < self._timer_at:
            self._await_answer(deadline)

    def ask_many(self, waiting: Sequence[Waiting], deadline: float) -> Sequence[int]:
        """Open calls for a caller that writes all their frames at once: the numbers to put into them. All or none."""
        connection = self.connection
        if not connection.writable:
            self._require_writable()
        numbers = self._calls.begin_many(deadline, waiting)
        self._asked_many = True
        if self._asked_at <= connection.heard_at or self._timer is None or deadline < self._timer_at:
            self._await_answer(deadline)
        return numbers

    @property
    def spare_calls(self) -> int:
        """How many more calls may wait for an answer now."""
        return self._calls.spare

    def oneway(self, command: Command) -> None:
        """Send and expect nothing back. TooManyCalls when the line is not writable."""
        self._require_writable()
        self.connection.write(self._calls.oneway(command))

    def take_turn(self, frames: list[Frame]) -> None:
        """The turn of a peer that was given no other: responses to their calls, requests to `serve`."""
        may_pause = self._settings.connection.pause_reading
        if self._asked_many and not may_pause:
            self._take_answers(frames)
            return
        for at, frame in enumerate(frames, 1):
            self.handle(decode_command(frame))
            if may_pause and self.connection.should_pause:
                self.connection.put_back(frames[at:])
                return

    def _take_answers(self, frames: list[Frame]) -> None:
        """The turn of a peer that was asked for many things at once: usual answers to sends are not made commands first."""
        take = self._calls.take_number
        for frame in frames:
            encoding, header, body = frame
            try:
                answer = None if encoding or body else read_stored(header)
            except NOT_STORED:
                answer = None
            if answer is None:
                self.handle(decode_command(frame))
            elif (waiting := take(answer.opaque)) is not None and not waiting.stored(answer):
                waiting.answered(decode_command(frame))

    def handle(self, command: Command) -> None:
        """One command of this line, from a turn that does not want it."""
        if not command.flag & RESPONSE:
            self._serve_request(command)
        elif (waiting := self._calls.take(command)) is not None:
            waiting.answered(command)

    def answer(self, request: Command, response: Command) -> None:
        """Send the answer of a request; that of a one-way request is dropped."""
        if request.is_oneway:
            return
        try:
            data = self._calls.reply(request, response)
        except PocketMQError as error:
            log.warning("%s: the answer to request %d cannot be sent: %s", self.address, request.code, error)
            data = self._calls.reply(request, failure_reply(request, error))
        self.connection.write(data)

    def run(self, work: Coroutine[Any, Any, None]) -> bool:
        """Let a coroutine go on that serves a request of a turn of one's own; it ends with the line.

        False, and it is closed, when as many are under way as may be.
        """
        if len(self._serving) >= self._settings.max_serving:
            work.close()
            return False
        task = asyncio.get_running_loop().create_task(work)
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)
        return True

    def refuse_requests(self) -> None:
        """From now on every new request is told to go elsewhere; those being served are finished.

        A turn of one's own looks at `refusing` for itself.
        """
        self.refusing = True

    def close(self, reason: PocketMQError | None = None) -> None:
        """Send what was written, then end; open calls fail when the line is gone. Harmless when done twice."""
        self.connection.close(reason)

    async def wait_lost(self) -> None:
        """Return when the line is gone."""
        await self.connection.wait_lost()

    def _made(self, connection: Connection) -> None:
        if self._on_made is not None:
            self._on_made(self)

    def _turn(self, connection: Connection, frames: list[Frame]) -> None:
        self._on_turn(self, frames)

    def _lost(self, connection: Connection, reason: PocketMQError) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for task in self._serving:
            task.cancel()
        for waiting in self._calls.close(reason):
            waiting.failed(ConnectionLost(f"{self.address}: {reason}"))
        if self._on_lost is not None:
            self._on_lost(self, reason)

    def _ask(self, command: Command, timeout_s: float, deadline: float) -> asyncio.Future[Command]:
        self._require_open()
        if (loop := asyncio.get_running_loop()) is not self.connection.loop:
            raise WrongState(
                f"{self.address}: this connection lives on another event loop, where its client was started"
            )
        future: asyncio.Future[Command] = loop.create_future()
        self.connection.write(self._calls.call(command, deadline, _Awaited(future, command.code, timeout_s)))
        self._await_answer(deadline)
        return future

    def _await_answer(self, deadline: float) -> None:
        if self._asked_at <= self.connection.heard_at:
            self._asked_at = asyncio.get_running_loop().time()
        if self._timer is None or deadline < self._timer_at:
            self._set_timer(deadline)

    def _set_timer(self, deadline: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = deadline
        self._timer = asyncio.get_running_loop().call_at(deadline, self._expire)

    def _expire(self) -> None:
        self._timer = None
        now = asyncio.get_running_loop().time()
        expired = self._calls.expire(now)
        for waiting in expired:
            waiting.failed(_timed_out(waiting.code, self.address, waiting.timeout_s))
        if expired and self._asked_at > self.connection.heard_at and now - self._asked_at >= self._settings.silence_s:
            self.connection.abort(
                ConnectionLost(f"no sign of life since it was asked {now - self._asked_at:.1f} s ago")
            )
        deadline = self._calls.next_deadline()
        if deadline is not None:
            self._set_timer(deadline)

    async def _wait_writable(self, code: int, timeout_s: float, deadline: float) -> None:
        try:
            async with asyncio.timeout_at(deadline):
                await self.connection.wait_writable()
        except TimeoutError:
            raise _timed_out(code, self.address, timeout_s) from None

    def _require_open(self) -> None:
        # A line that is ending drops what is written to it, and a caller must not learn that by waiting.
        if self.connection.is_open:
            return
        if self.connection.reason is None:
            raise WrongState("this peer is not connected yet")
        raise ConnectionLost(f"{self.address}: {self.connection.reason}")

    def _require_writable(self) -> None:
        self._require_open()
        if not self.connection.writable:
            raise TooManyCalls(f"{self.address}: {self.connection.unsent_bytes} bytes wait to be sent; try again later")

    def _serve_request(self, request: Command) -> None:
        try:
            if self.refusing:
                raise _stopping(request)
            outcome = self._serve(self, request)
        except Exception as error:
            self._answer_failure(request, error)
            return
        if isinstance(outcome, Command):
            self.answer(request, outcome)
        elif outcome is not None:
            self._serve_later(request, outcome)

    def _serve_later(self, request: Command, work: Coroutine[Any, Any, Command | None]) -> None:
        if not self.run(self._finish(request, work)):
            work.close()
            busy = SystemBusy(
                f"[OVERLOAD]{len(self._serving)} requests of this connection are being served; try again later"
            )
            self._answer_failure(request, busy)

    async def _finish(self, request: Command, work: Coroutine[Any, Any, Command | None]) -> None:
        """Cancelled when the line is lost: a handler that must not stop half-way shields itself."""
        try:
            response = await work
        except Exception as error:
            self._answer_failure(request, error)
        else:
            if response is not None:
                self.answer(request, response)

    def _answer_failure(self, request: Command, error: Exception) -> None:
        if not isinstance(error, PocketMQError):
            log.error("%s: request %d failed", self.address, request.code, exc_info=error)
        self.answer(request, failure_reply(request, error))


def _not_supported(peer: Peer, request: Command) -> Command:
    raise RequestNotSupported(f" request type {request.code} not supported")


def _timed_out(code: int, address: Address, timeout_s: float) -> CallTimedOut:
    return CallTimedOut(f"{address}: no answer to request {code} within {timeout_s} s; it may have been carried out")


def _stopping(request: Command) -> PocketMQError:
    """Only newer clients know the word for it."""
    text = "this server is stopping; go elsewhere"
    return GoAway(text) if request.version > Version.V5_3_1 else ServiceNotAvailable(text)

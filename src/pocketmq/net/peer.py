"""The other side of a connection: call it, notify it, serve its requests. Client and server use the same class.

    call(command) ──► number, future ──► connection      connection ──► turn ──► response ──► its future
    oneway(command) ───────────────────► connection                       └────► request ───► serve ──► response ──► connection
                                                                                                └─ coroutine: a task of this peer

One timer serves all calls of a peer. If calls time out and nothing was received for `silence_s` since the first unanswered
request, the connection is closed: a half-open connection reports nothing by itself.

A server may handle whole turns itself (`on_turn`). The contract:
- `on_turn(peer, frames)` gets all complete frames of one read, in order, and must not block.
- It responds with `peer.connection.write(bytes)`, now or later. Bytes written before it returns go out in one write.
- Before each request it checks `peer.connection.should_pause`; if true, it gives the remaining frames to `put_back`.
- It may defer all frames with `put_off`, and run them in the next step of the loop with `take_put_off`.
- It gives every command that it does not handle, such as responses, to `peer.handle(command)`.
- A ProtocolError that it raises closes the connection after the written bytes are sent. So does any other exception, which is logged.
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
"""Returns the response, a coroutine for it, or None for no response. An error that it raises is sent with its code."""

Ts = TypeVarTuple("Ts")
"""The arguments that `ask_encoded` and `ask_for` pass to `encode`."""

OnTurn = Callable[["Peer", list[Frame]], None]


class PeerSettings(msgspec.Struct, frozen=True):
    """Limits of one peer."""

    connection: ConnectionSettings = ConnectionSettings()
    call_s: float = 3.0
    """Default timeout of a call."""
    silence_s: float = 10.0
    """A call that times out closes the connection if nothing was received for this time."""
    max_in_flight: int = MAX_IN_FLIGHT
    """Calls that wait for a response; one more raises TooManyCalls."""
    max_serving: int = 4096
    """Requests of the peer that coroutines are serving; one more gets SYSTEM_BUSY."""

    def __post_init__(self) -> None:
        if min(self.call_s, self.silence_s, self.max_in_flight, self.max_serving) <= 0:
            raise InvalidSetting("call_s, silence_s, max_in_flight and max_serving of a peer must be above 0")


class Waiting(Protocol):
    """Receives the response of a call, or its failure, once, during the turn that reads it. Must neither block nor raise.

    `code` and `timeout_s` of the request are for the error text of a timeout.
    """

    @property
    def code(self) -> int: ...

    @property
    def timeout_s(self) -> float: ...

    def answered(self, response: Command) -> None:
        """The response arrived, with any code."""

    def stored(self, answer: StoredAnswer) -> bool:
        """A successful send response, already decoded. Return False to get the whole response by `answered` instead."""

    def failed(self, error: PocketMQError) -> None:
        """The call timed out, or the connection was lost."""


class _Awaited(msgspec.Struct, eq=False):
    """A future, which may have been cancelled meanwhile."""

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
    """The other side of `peer.connection`, which a `Network` connects."""

    __slots__ = (
        "__weakref__",
        "_calls",
        "_has_many_calls",
        "_on_lost",
        "_on_made",
        "_on_turn",
        "_requested_at",
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
        self._requested_at = 0.0
        self._has_many_calls = False
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
        """Calls that wait for their response."""
        return self._calls.in_flight

    @property
    def unmatched(self) -> int:
        """Responses without a pending call."""
        return self._calls.unmatched

    @property
    def serving(self) -> frozenset[asyncio.Task[None]]:
        """Tasks that serve requests of this peer."""
        return frozenset(self._serving)

    async def call(self, command: Command, timeout: float | None = None) -> Command:  # noqa: ASYNC109 the deadline is kept with the call
        """The response, with any code. Waits while the connection is not writable, within `timeout` seconds."""
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
        """Like `call` without waiting: the future of the response. TooManyCalls when the connection is not writable."""
        seconds = self._settings.call_s if timeout is None else timeout
        self._require_writable()
        return self._ask(command, seconds, asyncio.get_running_loop().time() + seconds)

    def ask_encoded(
        self, code: int, encode: Callable[[*Ts, int], bytes], timeout: float, *arguments: *Ts
    ) -> asyncio.Future[Command]:
        """Like `ask`, with a frame that `encode(*arguments, number)` builds."""
        if not self.connection.writable:
            self._require_writable()
        loop = self.connection.loop
        future: asyncio.Future[Command] = loop.create_future()
        self.ask_for(_Awaited(future, code, timeout), loop.time() + timeout, encode, *arguments)
        return future

    def ask_for(self, waiting: Waiting, deadline: float, encode: Callable[[*Ts, int], bytes], *arguments: *Ts) -> None:
        """Like `ask_encoded`, with a receiver of the response instead of a future. `deadline` is in loop time."""
        connection = self.connection
        if not connection.writable:  # one that is not open is not writable either
            self._require_writable()
        number = self._calls.begin(deadline, waiting)
        try:
            connection.write(encode(*arguments, number))
        except BaseException:
            self._calls.forget(number)
            raise
        if self._requested_at <= connection.received_at or self._timer is None or deadline < self._timer_at:
            self._await_answer(deadline)

    def ask_many(self, waiting: Sequence[Waiting], deadline: float) -> Sequence[int]:
        """Start calls whose frames the caller writes at once. Returns their numbers. All calls start, or none."""
        connection = self.connection
        if not connection.writable:
            self._require_writable()
        numbers = self._calls.begin_many(deadline, waiting)
        self._has_many_calls = True
        if self._requested_at <= connection.received_at or self._timer is None or deadline < self._timer_at:
            self._await_answer(deadline)
        return numbers

    @property
    def spare_calls(self) -> int:
        """How many more calls can be started now."""
        return self._calls.spare

    def oneway(self, command: Command) -> None:
        """Send a one-way request. TooManyCalls when the connection is not writable."""
        self._require_writable()
        self.connection.write(self._calls.oneway(command))

    def take_turn(self, frames: list[Frame]) -> None:
        """The default `on_turn`: responses to their calls, requests to `serve`."""
        may_pause = self._settings.connection.pause_reading
        if self._has_many_calls and not may_pause:
            self._take_answers(frames)
            return
        for at, frame in enumerate(frames, 1):
            self.handle(decode_command(frame))
            if may_pause and self.connection.should_pause:
                self.connection.put_back(frames[at:])
                return

    def _take_answers(self, frames: list[Frame]) -> None:
        """The turn after `ask_many`: decodes successful send responses without building commands."""
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
        """Handle one command that an `on_turn` does not handle itself."""
        if not command.flag & RESPONSE:
            self._serve_request(command)
        elif (waiting := self._calls.take(command)) is not None:
            waiting.answered(command)

    def answer(self, request: Command, response: Command) -> None:
        """Send the response of a request. A one-way request gets none."""
        if request.is_oneway:
            return
        try:
            data = self._calls.reply(request, response)
        except PocketMQError as error:
            log.warning(
                "%s: cannot send the response to request %d, sending an error instead: %s",
                self.address,
                request.code,
                error,
            )
            data = self._calls.reply(request, failure_reply(request, error))
        self.connection.write(data)

    def run(self, work: Coroutine[Any, Any, None]) -> bool:
        """Start a task that serves a request of a custom `on_turn`. It is cancelled when the connection is lost.

        Returns False, and closes the coroutine, when `max_serving` tasks are running.
        """
        if len(self._serving) >= self._settings.max_serving:
            work.close()
            return False
        task = asyncio.get_running_loop().create_task(work)
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)
        return True

    def refuse_requests(self) -> None:
        """From now on, refuse new requests; running ones are finished. A custom `on_turn` checks `refusing` itself."""
        self.refusing = True

    def close(self, reason: PocketMQError | None = None) -> None:
        """Send the written bytes, then close. Pending calls fail when the connection is closed. Idempotent."""
        self.connection.close(reason)

    async def wait_lost(self) -> None:
        """Return when the connection is closed."""
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
                f"{self.address}: this connection belongs to another event loop, on which its client was started"
            )
        future: asyncio.Future[Command] = loop.create_future()
        self.connection.write(self._calls.call(command, deadline, _Awaited(future, command.code, timeout_s)))
        self._await_answer(deadline)
        return future

    def _await_answer(self, deadline: float) -> None:
        if self._requested_at <= self.connection.received_at:
            self._requested_at = asyncio.get_running_loop().time()
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
        if (
            expired
            and self._requested_at > self.connection.received_at
            and now - self._requested_at >= self._settings.silence_s
        ):
            self.connection.abort(
                ConnectionLost(f"nothing received since a request was sent {now - self._requested_at:.1f} s ago")
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
        # A closing connection drops writes; the caller must not wait for a timeout to learn that.
        if self.connection.is_open:
            return
        if self.connection.reason is None:
            raise WrongState("the peer is not connected yet")
        raise ConnectionLost(f"{self.address}: {self.connection.reason}")

    def _require_writable(self) -> None:
        self._require_open()
        if not self.connection.writable:
            raise TooManyCalls(f"{self.address}: {self.connection.unsent_bytes} unsent bytes; try again later")

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
                f"[OVERLOAD]{len(self._serving)} requests of this connection are in progress; try again later"
            )
            self._answer_failure(request, busy)

    async def _finish(self, request: Command, work: Coroutine[Any, Any, Command | None]) -> None:
        """Cancelled when the connection is lost. A handler that must not stop half-way shields itself."""
        try:
            response = await work
        except Exception as error:
            self._answer_failure(request, error)
        else:
            if response is not None:
                self.answer(request, response)

    def _answer_failure(self, request: Command, error: Exception) -> None:
        if not isinstance(error, PocketMQError):
            log.error(
                "%s: unexpected error in request %d; answering with an error",
                self.address,
                request.code,
                exc_info=error,
            )
        self.answer(request, failure_reply(request, error))


def _not_supported(peer: Peer, request: Command) -> Command:
    raise RequestNotSupported(f" request type {request.code} not supported")


def _timed_out(code: int, address: Address, timeout_s: float) -> CallTimedOut:
    return CallTimedOut(
        f"{address}: no response to request {code} within {timeout_s} s; the request may have been executed"
    )


def _stopping(request: Command) -> PocketMQError:
    """GO_AWAY exists since RocketMQ 5.3.1."""
    text = "server is shutting down"
    return GoAway(text) if request.version > Version.V5_3_1 else ServiceNotAvailable(text)

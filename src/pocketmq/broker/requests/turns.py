"""A turn: everything that one read from a socket requests. This is the broker's hot path.

    frames ──► head ─┬─ send ────────────► staged in the store ─┐
                     ├─ pull, offset … ──► answered at once     ├─ end of turn: one write to the log, one write of answers
                     └─ anything else ───► the store's turn ends first, then its handler (`net.peer`)

    several connections send in one iteration of the event loop:
        A ── sends ──► deferred ─┐
        B ── a pull ─► answered  │
        C ── sends ──► deferred ─┴─► A's sends, C's sends ── one write to the log ──► answers to A, to C

    the turn takes too long, or the log is busy ──► the rest waits in `flow`, and a sweep serves it:
        check the log ── reject expired requests ── serve the classes in turn, a few of each, within the same budget

A send that fails does not affect the others of its turn, unless part of it is staged already (`log_turn`).

If requests must be signed, `check` verifies each request first, before it may wait. All requests are decoded as
commands then, because a head no longer has the signature.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from pocketmq.broker.handlers.checked_pulls import CheckedPulls
from pocketmq.broker.handlers.destinations import TopicIsNew
from pocketmq.broker.handlers.sending import Sending
from pocketmq.broker.requests import flow
from pocketmq.broker.requests.flow import STORING, Cause, Kind, LogGate, WaitingRequest, WaitingRequests, kind_of
from pocketmq.broker.requests.log_turn import MAX_ANSWER_BYTES, LogTurn, Resumed, Stage, StageRun
from pocketmq.broker.settings import FlowSettings
from pocketmq.broker.state import BrokerState
from pocketmq.errors import ConnectionLost, PocketMQError, PoolEmpty, StoreBusy
from pocketmq.net import Check, Peer
from pocketmq.protocol.api import request_header
from pocketmq.protocol.command import ONEWAY, Command, decode_command, encode_command
from pocketmq.protocol.frames import Frame
from pocketmq.protocol.hot_headers import (
    HEADS,
    LEASE_CODES,
    Head,
    SendBatchHead,
    SendHead,
    SendV2Head,
    decode_head,
)
from pocketmq.protocol.pending_calls import failure_reply

log = logging.getLogger("pocketmq.broker")

Serve = Callable[[Peer, Any, bytes], bytes | None]
"""Answers a hot request with a whole frame; None if the answer follows later, or never."""

Run = Callable[[Peer, list[Frame], int], int]
"""Handles requests from an index on, and returns how many. 0: handle the first by itself."""

_PLAIN_PULLS = b'{"code":11,', b'{"code":361'
_LEASES = b'{"code":200'
"""Requests about leases, and a few others."""
_PLAIN_ACK = b'{"code":200051,'
BEGINNING: Final = 11
"""Length of the first bytes of a header, which contain the request code in the form of all clients."""
PLAIN_SENDS: Final = b'{"code":310', b'{"code":320'
_DEFERRED: Final = frozenset({*PLAIN_SENDS, _LEASES})
MAX_DEFERRED_BYTES: Final = 32 * 1024
"""Turns with larger bodies are not deferred."""
_CHECK_EVERY = 16
"""Requests between two time checks."""
_CHECK_EVERY_BYTES = 256 * 1024
"""The same for waiting requests, which may be large, in bytes."""


class Turns:
    """Handles turns for `net.server`. `serve` has a function for each hot head that stores nothing, `stages` one for each
    that stores something, except sends.
    """

    def __init__(
        self,
        state: BrokerState,
        sends: Sending,
        serve: Mapping[type[Any], Serve],
        pulls: CheckedPulls,
        stages: Mapping[type[Any], Stage],
        stage_acks: StageRun,
        check: Check | None,
    ) -> None:
        settings = state.settings.now.flow
        self._check = check
        self._store, self._clock = state.store, state.clock
        self._sends = sends
        self._serve: dict[type[Any], Serve] = {**serve, Command: self._handle}
        self._budget_s = settings.turn_budget_ms / 1000
        self._new_topic_bytes = 0
        self._sweep_s = settings.sweep_interval_ms / 1000
        self._stage: dict[type[Any], Stage] = {
            SendHead: sends.stage,
            SendV2Head: sends.stage,
            SendBatchHead: sends.stage_batch,
        }
        self._of_sends = frozenset(self._stage)
        self._stage |= stages
        self._runs = self._run_handlers(pulls, stage_acks) if check is None else {}
        self._turn = LogTurn(state, sends)
        self._resumed = Resumed(self._turn, self._serve_resumed, state.clock, self._budget_s)
        self._deferred: list[Peer] = []
        self._last_sender: Peer | None = None
        self._sweeping: asyncio.Handle | None = None
        self._has_waiting = self._awaits_log = False
        self._blocked: Counter[Kind] = Counter()
        self.waiting = WaitingRequests(settings)
        self.gate = LogGate(settings)

    def apply(self, settings: FlowSettings) -> None:
        self.waiting.apply(settings)
        self.gate.apply(settings)

    def handle(self, peer: Peer, frames: list[Frame]) -> None:
        """`on_turn` of the server: see `net.peer` for the contract."""
        if self._defer(peer, frames):
            return
        try:
            self._handle_all(peer, frames)
        finally:
            self._turn.end()

    def _defer(self, peer: Peer, frames: list[Frame]) -> bool:
        """Defer sends, so that they are written to the log together with those of other connections.

        If many connections send one message each and wait, most of the work is one write per message. A connection that
        sends alone is not deferred, nor is one that sends much at once: the write is cheap compared to its messages, and
        together with other batches it would exceed the CPU cache.
        """
        is_first = not self._deferred
        if frames[0][1][:BEGINNING] not in _DEFERRED or (is_first and peer is self._last_sender):
            return False
        if peer.refusing or peer.connection.ends_after_turn:
            return False
        if sum(len(body) for _, _, body in frames) > MAX_DEFERRED_BYTES:
            return False
        if is_first:
            peer.connection.loop.call_soon(self.handle_deferred)
        peer.connection.put_off(frames)
        self._deferred.append(peer)
        self._last_sender = peer
        return True

    def handle_deferred(self) -> None:
        """Handle the deferred turns, and write the log once for all of them. Does nothing if there are none.

        No await in between, so nothing is half staged between two steps of the loop. If it takes long, the log is written
        in between, so that the first connection does not wait for the last.
        """
        peers, self._deferred = self._deferred, []
        deadline = self._clock.monotonic() + self._budget_s
        try:
            for peer in peers:
                peer.connection.take_put_off(partial(self._handle_part, peer))
                if self._clock.monotonic() > deadline:
                    self._turn.end()
                    deadline = self._clock.monotonic() + self._budget_s
            self._turn.end()
        except Exception as error:
            log.exception("Unexpected error while serving %d connections together; closing them", len(peers))
            for peer in peers:
                peer.connection.abort(ConnectionLost(f"the deferred turn failed: {error}"))

    def _handle_part(self, peer: Peer, frames: list[Frame]) -> None:
        """Handle one of the deferred turns. A connection that closes afterwards gets its answers first."""
        closes = True
        try:
            self._handle_all(peer, frames)
            closes = peer.connection.ends_after_turn
        finally:
            if closes:
                self._turn.end()

    def _handle_all(self, peer: Peer, frames: list[Frame]) -> None:
        if peer.refusing:
            for frame in frames:
                peer.handle(decode_command(frame))
            return
        started = self._clock.monotonic()
        index, check_at = 0, _CHECK_EVERY - 1
        while index < len(frames):
            if index >= check_at:
                check_at = index + _CHECK_EVERY
                if self._clock.monotonic() - started > self._budget_s:
                    self._queue_rest(peer, frames[index:], started)
                    return
            frame = frames[index]
            run = self._runs.get(frame[1][:BEGINNING])
            if run is not None and not self._has_waiting and (count := run(peer, frames, index)):
                index += count
                continue
            index += 1
            head = self._read(peer, frame)
            if head is None:
                continue
            if type(head) not in self._of_sends and peer.connection.should_pause:
                peer.connection.put_back(frames[index - 1 :])
                return
            if self._has_waiting and self._must_wait(peer, head, frame):
                continue
            try:
                self._serve_one(peer, head, frame[2])
            except Exception as error:
                self._failed(WaitingRequest(peer, head, frame, started), error)

    # many requests

    def _run_handlers(self, pulls: CheckedPulls, stage_acks: StageRun) -> dict[bytes, Run]:
        """Functions that handle several plain requests of one kind at once, by the first bytes of the header."""
        runs: dict[bytes, Run] = {_LEASES: partial(self._stage_acks, stage_acks)}
        if self._sends.supports_runs:
            runs |= dict.fromkeys(PLAIN_SENDS, partial(self._stage_run, self._sends.stage_run))
        if pulls.in_use:
            runs |= dict.fromkeys(_PLAIN_PULLS, pulls.answer_run)
        return runs

    def _stage_acks(self, stage: StageRun, peer: Peer, frames: list[Frame], at: int) -> int:
        return self._stage_run(stage, peer, frames, at) if frames[at][1].startswith(_PLAIN_ACK) else 0

    def _stage_run(self, stage: StageRun, peer: Peer, frames: list[Frame], at: int) -> int:
        try:
            count, replies, waits = stage(peer, frames, at)
            if count:
                self._turn.answer_later(peer.connection, replies, waits)
                return count
        except PocketMQError:  # the store accepts nothing now: each request waits or fails by itself
            pass
        except Exception as error:  # each request is retried by itself
            log.error("Cannot store requests of %s as one batch; storing them one by one", peer.address, exc_info=error)
            self._turn.roll_back(error)
        self._turn.roll_back()
        return 0

    # one request

    def _serve_one(self, peer: Peer, head: Any, body: bytes) -> None:
        stage = self._stage.get(type(head))
        if stage is None:
            reply = self._serve[type(head)](peer, head, body)
            if reply is not None and not head.flag & ONEWAY:
                peer.connection.write(reply)
            return
        if self._turn.large_bytes > MAX_ANSWER_BYTES:
            self._turn.end()
        outcome = stage(peer, head, body)
        if isinstance(outcome, tuple):
            reply, waits = outcome
            self._turn.answer_later(peer.connection, b"" if head.flag & ONEWAY else reply, waits)
        else:
            self._turn.answer_later(peer.connection, b"", waits=False)
            self._resumed.answer_after(WaitingRequest(peer, head, (0, b"", body), 0.0), outcome, self._refuse)

    def _serve_resumed(self, request: WaitingRequest) -> None:
        peer, head, frame, _ = request
        if head.code in LEASE_CODES and not peer.is_open:
            return  # no client would get the messages
        if not (self._has_waiting and self._must_wait(peer, head, frame)):
            try:
                self._serve_one(peer, head, frame[2])
            except Exception as error:
                self._failed(request, error)

    def _read(self, peer: Peer, frame: Frame) -> Head | Command | None:
        """The head of a hot request, or the command in a frame. None if it needs no further work."""
        if self._check is None and (known := decode_head(frame)) is not None:
            return known
        command = decode_command(frame)
        if command.is_response:
            peer.handle(command)
            return None
        try:
            if self._check is not None:
                self._check(peer, command)
            make_head = HEADS.get(command.code)
            if make_head is None:
                return command
            ext = request_header(command.code).decode(command.ext)
        except PocketMQError as error:
            peer.answer(command, failure_reply(command, error))
            return None
        head: Head = make_head(ext=ext, opaque=command.opaque, flag=command.flag, version=command.version)
        return head

    def _handle(self, peer: Peer, command: Command, body: bytes) -> None:
        self._turn.end()  # the handler may append, and needs the store between two turns
        if kind_of(command) in STORING and (busy := self._busy()):
            raise busy
        peer.handle(command)

    def _busy(self, size: int = 0) -> StoreBusy | None:
        """Why the log cannot accept `size` bytes now. None if it can, or if waiting does not help."""
        try:
            self._store.check_space(size)
        except StoreBusy as error:
            return error if flow.may_pass(error) else None
        except PocketMQError:
            return None
        return None

    def _failed(self, request: WaitingRequest, error: Exception) -> None:
        """A failed request waits if that may help; else it is rejected."""
        self._turn.roll_back(error)
        if isinstance(error, TopicIsNew):
            self._wait_for_route(request, error.known)
            return
        if isinstance(error, StoreBusy) and flow.may_pass(error):
            self._log_is_busy(error, self._clock.monotonic())
            self._wait(kind_of(request.head), request)
            self._schedule_sweep(self._sweep_s)
            return
        if isinstance(error, PoolEmpty):
            error = self.waiting.refusal(kind_of(request.head), Cause.REJECTED, str(error))
        elif not isinstance(error, PocketMQError):
            log.error(
                "Unexpected error in request %d of %s; answering with an error",
                request.head.code,
                request.peer.address,
                exc_info=error,
            )
        self._refuse(request, error)

    def _wait_for_route(self, request: WaitingRequest, known: asyncio.Future[None]) -> None:
        """Serve a send to a new topic when the name servers know the topic. Other requests do not wait for it."""
        if self._new_topic_bytes + request.size > self.waiting.max_bytes:
            why = f"{self._new_topic_bytes} bytes wait for the registration of new topics"
            self._refuse(request, self.waiting.refusal(Kind.SEND, Cause.OVERLOAD, why))
            return
        self._new_topic_bytes += request.size

        def serve(_: object) -> None:
            self._new_topic_bytes -= request.size
            self._resumed.serve_soon(request)

        known.add_done_callback(serve)

    def _log_is_busy(self, error: StoreBusy, now: float) -> None:
        """Sends wait for the next sweep, or until the slow disk has finished its write."""
        since = self._store.busy_since
        self.gate.refused(error, now if since is None else since)
        if since is not None and not self._awaits_log:
            self._awaits_log = True
            self._store.when_free(self._log_is_free)

    def _log_is_free(self) -> None:
        self._awaits_log = False
        if self._sweeping is not None:
            self._sweeping.cancel()
            self._sweeping = asyncio.get_running_loop().call_soon(self._sweep)

    def _refuse(self, request: WaitingRequest, error: Exception) -> None:
        head = request.head
        if head.flag & ONEWAY:
            return
        if type(head) in self._of_sends:
            request.peer.connection.write(self._sends.failed(head.opaque, error))
        else:
            reply = failure_reply(Command(head.code, opaque=head.opaque), error)
            request.peer.connection.write(encode_command(reply))

    # overload

    def _queue_rest(self, peer: Peer, frames: list[Frame], since: float) -> None:
        """The turn is over its budget: the rest waits, so that other connections are served."""
        try:
            for frame in frames:
                head = self._read(peer, frame)
                if head is not None:
                    self._wait(kind_of(head), WaitingRequest(peer, head, frame, since))
        finally:
            self._schedule_sweep(0)

    def _must_wait(self, peer: Peer, head: Head | Command, frame: Frame) -> bool:
        """Whether a request was queued behind others of its class or because the log is busy, or was rejected."""
        kind = kind_of(head)
        log_is_busy = kind in STORING and not self.gate.is_open
        if not log_is_busy and self.waiting.count(kind) <= self._blocked[kind]:
            return False
        request = WaitingRequest(peer, head, frame, now := self._clock.monotonic())
        if kind is Kind.SEND and self.gate.is_shut(now):
            why = f"{self.gate.why} for {self.gate.busy_ms(now)} ms"
            self._refuse(request, self.waiting.refusal(kind, Cause.REJECTED, why))
        else:
            self._wait(kind, request)
        return True

    def _wait(self, kind: Kind, request: WaitingRequest) -> None:
        try:
            self.waiting.put(kind, request, self._why)
        except PocketMQError as refusal:
            self._refuse(request, refusal)

    @property
    def _why(self) -> str:
        return self.gate.why or "more requests arrive than can be served"

    def _schedule_sweep(self, delay_s: float) -> None:
        self._has_waiting = True
        if self._sweeping is None:
            loop = asyncio.get_running_loop()
            self._sweeping = loop.call_later(delay_s, self._sweep) if delay_s else loop.call_soon(self._sweep)

    def _sweep(self) -> None:
        """Reject waiting requests that expired, and serve those that can be served."""
        self._sweeping = None
        now = self._clock.monotonic()
        out_of_time = False
        try:
            self._check_log(now)
            for request, refusal in self.waiting.pop_expired(now, self._why):
                self._refuse(request, refusal)
            out_of_time = self._serve_waiting(now + self._budget_s)
        finally:
            if len(self.waiting) or not self.gate.is_open:
                self._schedule_sweep(0 if out_of_time else self._sweep_s)
            else:
                self._has_waiting = False

    def _check_log(self, now: float) -> None:
        if self.gate.is_open:
            return
        busy = self._busy(first.size if (first := self.waiting.first(Kind.SEND)) else 0)
        if busy is None:
            self.gate.accepted()
            return
        self._log_is_busy(busy, now)
        if self.gate.is_shut(now):
            for request, refusal in self.waiting.pop_all(Kind.SEND, Cause.LOG_BUSY, now, self._why):
                self._refuse(request, refusal)

    def _serve_waiting(self, deadline: float) -> bool:
        """Serve waiting requests until none can be served, or the time is over; True in the latter case.

        A request whose connection cannot accept its answer keeps waiting, and does not block those behind it.
        """
        blocked: list[tuple[Kind, WaitingRequest]] = []
        kinds = list(Kind)
        out_of_time = False
        try:
            while kinds and not out_of_time:
                kinds = [kind for kind in kinds if self._serve_some(kind, blocked)]
                out_of_time = bool(kinds) and self._clock.monotonic() > deadline
        finally:
            self._turn.end()
            for kind, request in reversed(blocked):
                self.waiting.put_first(kind, request)
            self._blocked = Counter(kind for kind, _ in blocked)
        return out_of_time

    def _serve_some(self, kind: Kind, blocked: list[tuple[Kind, WaitingRequest]]) -> bool:
        """Serve a few requests of a class. Return whether more of them may be served now."""
        left = _CHECK_EVERY_BYTES
        while left > 0:
            if kind in STORING and not self.gate.is_open:
                return False
            acks = self._runs.get(_LEASES) if kind is Kind.LEASE else None
            if acks is not None and (count := self.waiting.serve_run(kind, acks)):
                left -= count * _CHECK_EVERY_BYTES // _CHECK_EVERY
                continue
            request = self.waiting.pop(kind)
            if request is None:
                return False
            left -= request.size + _CHECK_EVERY_BYTES // _CHECK_EVERY
            connection = request.peer.connection
            if connection.should_pause and connection.is_open and type(request.head) not in self._of_sends:
                blocked.append((kind, request))
            else:
                self._serve_again(kind, request)
        return True

    def _serve_again(self, kind: Kind, request: WaitingRequest) -> None:
        try:
            self._serve_one(request.peer, request.head, request.frame[2])
        except Exception as error:
            if isinstance(error, StoreBusy) and flow.may_pass(error):
                self._turn.roll_back(error)
                self._log_is_busy(error, self._clock.monotonic())
                self.waiting.put_first(kind, request)
            else:
                self._failed(request, error)

    def lost(self, peer: Peer) -> None:
        """A connection was lost: drop its waiting requests."""
        self.waiting.forget(peer)

    def stop(self) -> None:
        """Handle what was read, and reject the requests that still wait."""
        self.handle_deferred()
        if self._sweeping is not None:
            self._sweeping.cancel()
        now = self._clock.monotonic()
        for kind in Kind:
            for request, refusal in self.waiting.pop_all(kind, Cause.REJECTED, now, "the broker is shutting down"):
                self._refuse(request, refusal)

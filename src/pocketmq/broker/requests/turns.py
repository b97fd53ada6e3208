"""A turn: everything that one read from a socket asks for. This is the broker's hot path.

    frames ──► head ─┬─ send ────────────► staged in the store ─┐
                     ├─ pull, offset … ──► answered at once     ├─ end of turn: one write to the log, all answers in one write
                     └─ anything else ───► the store's turn ends first, then its handler (`net.peer`)

    several connections send in one step of the loop:
        A ── sends ──► put off ─┐
        B ── a pull ─► answered │
        C ── sends ──► put off ─┴─► A's sends, C's sends ── one write to the log ──► answers to A, to C

    the turn takes too long, or the log is busy ──► the rest waits in `flow`, and is served by a sweep:
        the log looked at ── who waited too long refused ── classes served by turns, a few of each, within the same budget

A send that fails by itself leaves the others of its turn alone, unless something of it is staged already (`log_turn`).

Where requests must be signed, `check` looks at each before anything else happens to it, waiting included. A head has lost the
signature, so all of them are decoded as commands then.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from pocketmq.broker.messages.destinations import TopicIsNew
from pocketmq.broker.requests.flow import STORING, Cause, Kind, LogGate, Waiting, WaitingRequests, kind_of
from pocketmq.broker.requests.log_turn import LogTurn, Pulls, PutStats, Sends, StagedSend
from pocketmq.broker.settings import FlowSettings
from pocketmq.clock import Clock
from pocketmq.codes import RequestCode
from pocketmq.errors import ConnectionLost, PocketMQError, PoolEmpty, StoreBusy
from pocketmq.net.dispatcher import Check
from pocketmq.net.peer import Peer
from pocketmq.protocol.api import API
from pocketmq.protocol.command import ONEWAY, Command, decode_command, encode_command
from pocketmq.protocol.fields import read_fields
from pocketmq.protocol.frames import Frame
from pocketmq.protocol.hot_headers import (
    Head,
    LitePullHead,
    PullHead,
    QueryOffsetHead,
    SendBatchHead,
    SendHead,
    SendV2Head,
    UpdateOffsetHead,
    decode_head,
)
from pocketmq.protocol.pending_calls import failure_reply
from pocketmq.store.message_store import MessageStore

log = logging.getLogger("pocketmq.broker")

Serve = Callable[[Peer, Any, bytes], bytes | None]
"""Answers a hot request with a whole frame; None when the answer comes later, or never."""

Stage = Callable[[Peer, Any, bytes], tuple[StagedSend, bool]]

Run = Callable[[Peer, list[Frame], int], int]
"""Takes requests from an index on; how many. None of them: look at the first by itself."""

_HEADS: dict[int, Any] = {
    head.code: head
    for head in (SendHead, SendV2Head, SendBatchHead, PullHead, LitePullHead, QueryOffsetHead, UpdateOffsetHead)
}
_USUAL_PULLS = b'{"code":11,', b'{"code":361'
BEGINNING: Final = 11
"""Bytes with which a header tells its code, with whatever library a client writes it."""
USUAL_SENDS: Final = b'{"code":310', b'{"code":320'
SHARED_BYTES: Final = 32 * 1024
"""Turns with more bytes of bodies are not put off."""
_LOOK_EVERY = 16
"""Requests between two looks at the time."""
_LOOK_EVERY_BYTES = 256 * 1024
"""Of waiting requests, which may be large."""


class Turns:
    """Takes turns for `net.server`. `serve` has a function for each hot head that is not a send."""

    def __init__(
        self,
        store: MessageStore,
        sends: Sends,
        serve: Mapping[type[Any], Serve],
        settings: FlowSettings,
        clock: Clock,
        stats: PutStats,
        check: Check | None = None,
        pulls: Pulls | None = None,
    ) -> None:
        self._check = check
        self._store = store
        self._sends = sends
        self._serve: dict[type[Any], Serve] = {**serve, Command: self._handle}
        self._clock = clock
        self._budget_s = settings.turn_budget_ms / 1000
        self._new_topic_bytes = 0
        self._sweep_s = settings.sweep_interval_ms / 1000
        self._stage: dict[type[Any], Stage] = {
            SendHead: sends.stage,
            SendV2Head: sends.stage,
            SendBatchHead: sends.stage_batch,
        }
        self._runs = self._usual_runs(pulls) if check is None else {}
        self._turn = LogTurn(store, sends, clock, stats)
        self._sharing: list[Peer] = []
        self._last_sender: Peer | None = None
        self._sweeping: asyncio.Handle | None = None
        self._crowded = self._awaits_log = False
        self._unread: Counter[Kind] = Counter()
        self.waiting = WaitingRequests(settings)
        self.gate = LogGate(settings)

    def apply(self, settings: FlowSettings) -> None:
        """Go by other waiting times and bounds from now on."""
        self.waiting.apply(settings)
        self.gate.apply(settings)

    def take(self, peer: Peer, frames: list[Frame]) -> None:
        """`on_turn` of the server: see `net.peer` for the contract."""
        if self._shares_write(peer, frames):
            return
        try:
            self._take_all(peer, frames)
        finally:
            self._turn.end()

    def _shares_write(self, peer: Peer, frames: list[Frame]) -> bool:
        """Whether these are sends that are put off, to share a write to the log with those of other connections.

        Where many connections send one message each and wait, a write for each of them is most of the work. A connection that
        sends alone has nothing to share and does not wait, nor does one that sends much at once: a write costs little beside
        that, and with the batches of others it would be one of megabytes, which no cache holds.
        """
        is_first = not self._sharing
        if frames[0][1][:BEGINNING] not in USUAL_SENDS or (is_first and peer is self._last_sender):
            return False
        if peer.refusing or peer.connection.ends_after_turn:
            return False
        if sum(len(body) for _, _, body in frames) > SHARED_BYTES:
            return False
        if is_first:
            peer.connection.loop.call_soon(self.take_shared)
        peer.connection.put_off(frames)
        self._sharing.append(peer)
        self._last_sender = peer
        return True

    def take_shared(self) -> None:
        """Take the turns that were put off, and write the log once for all of them. Harmless when there are none.

        All is done in one go, so nothing is half staged between two steps of the loop. When it takes long, the log is written
        in between, so that the first need not wait for the last.
        """
        peers, self._sharing = self._sharing, []
        deadline = self._clock.monotonic() + self._budget_s
        try:
            for peer in peers:
                peer.connection.take_put_off(partial(self._take_part, peer))
                if self._clock.monotonic() > deadline:
                    self._turn.end()
                    deadline = self._clock.monotonic() + self._budget_s
            self._turn.end()
        except Exception as error:
            log.exception("turns of %d connections failed; these are closed", len(peers))
            for peer in peers:
                peer.connection.abort(ConnectionLost(f"a turn that several connections share failed: {error}"))

    def _take_part(self, peer: Peer, frames: list[Frame]) -> None:
        """One of the turns that share a write. A connection that closes behind it gets its answers before."""
        closes = True
        try:
            self._take_all(peer, frames)
            closes = peer.connection.ends_after_turn
        finally:
            if closes:
                self._turn.end()

    def _take_all(self, peer: Peer, frames: list[Frame]) -> None:
        if peer.refusing:
            for frame in frames:
                peer.handle(decode_command(frame))
            return
        started = self._clock.monotonic()
        index, look_at = 0, _LOOK_EVERY - 1
        while index < len(frames):
            if index >= look_at:
                look_at = index + _LOOK_EVERY
                if self._clock.monotonic() - started > self._budget_s:
                    self._put_off(peer, frames[index:], started)
                    return
            frame = frames[index]
            take_run = self._runs.get(frame[1][:BEGINNING])
            if take_run is not None and not self._crowded and (taken := take_run(peer, frames, index)):
                index += taken
                continue
            index += 1
            head = self._read(peer, frame)
            if head is None:
                continue
            if type(head) not in self._stage and peer.connection.should_pause:
                peer.connection.put_back(frames[index - 1 :])
                return
            if self._crowded and self._kept_waiting(peer, head, frame):
                continue
            try:
                self._serve_one(peer, head, frame[2])
            except Exception as error:
                self._failed(Waiting(peer, head, frame, started), error)

    # many requests

    def _usual_runs(self, pulls: Pulls | None) -> dict[bytes, Run]:
        """Who takes usual requests of one kind that follow one another, all at once, by how their headers begin."""
        runs: dict[bytes, Run] = {}
        if self._sends.takes_runs:
            runs |= dict.fromkeys(USUAL_SENDS, self._stage_run)
        if pulls is not None and pulls.in_use:
            runs |= dict.fromkeys(_USUAL_PULLS, partial(_serve_pulls, pulls))
        return runs

    def _stage_run(self, peer: Peer, frames: list[Frame], at: int) -> int:
        try:
            taken, replies, waits = self._sends.stage_run(peer, frames, at)
            if taken:
                self._turn.answer_later(peer.connection, replies, waits)
                return taken
        except PocketMQError:  # the store takes nothing now: each send is told so, or waits, by itself
            pass
        except Exception as error:  # each is tried by itself
            log.error("%s: sends could not be staged together", peer.address, exc_info=error)
            self._turn.give_back(error)
        self._turn.give_back()
        return 0

    # one request

    def _serve_one(self, peer: Peer, head: Any, body: bytes) -> None:
        stage = self._stage.get(type(head))
        if stage is None:
            reply = self._serve[type(head)](peer, head, body)
            if reply is not None and not head.flag & ONEWAY:
                peer.connection.write(reply)
            return
        send, waits = stage(peer, head, body)
        self._turn.answer_later(peer.connection, b"" if head.flag & ONEWAY else self._sends.stored(send), waits)

    def _read(self, peer: Peer, frame: Frame) -> Head | Command | None:
        """The head of a hot request, or the command that a frame holds. None when there is nothing more to do with it."""
        if self._check is None and (known := decode_head(frame)) is not None:
            return known
        command = decode_command(frame)
        if command.is_response:
            peer.handle(command)
            return None
        try:
            if self._check is not None:
                self._check(peer, command)
            make_head = _HEADS.get(command.code)
            if make_head is None:
                return command
            ext = read_fields(API[RequestCode(command.code)].request, command.ext)
        except PocketMQError as error:
            peer.answer(command, failure_reply(command, error))
            return None
        head: Head = make_head(ext=ext, opaque=command.opaque, flag=command.flag, version=command.version)
        return head

    def _handle(self, peer: Peer, command: Command, body: bytes) -> None:
        self._turn.end()  # the handler may append, and must find the store between two turns
        if kind_of(command) in STORING and (busy := self._busy()):
            raise busy
        peer.handle(command)

    def _busy(self, size: int = 0) -> StoreBusy | None:
        """Why the log does not take so many bytes at the moment; None when it does, or when waiting would not help."""
        try:
            self._store.check_room(size)
        except StoreBusy as error:
            return error if _may_pass(error) else None
        except PocketMQError:
            return None
        return None

    def _failed(self, request: Waiting, error: Exception) -> None:
        """What could not be served waits, if that may help; else its sender is told."""
        self._turn.give_back(error)
        if isinstance(error, TopicIsNew):
            self._take_later(request, error.known)
            return
        if isinstance(error, StoreBusy) and _may_pass(error):
            self._log_is_busy(error, self._clock.monotonic())
            self._wait(kind_of(request.head), request)
            self._crowd(self._sweep_s)
            return
        if isinstance(error, PoolEmpty):
            error = self.waiting.refusal(Kind.SEND, Cause.REJECTED, str(error))
        elif not isinstance(error, PocketMQError):
            log.error("%s: request %d failed", request.peer.address, request.head.code, exc_info=error)
        self._refuse(request, error)

    def _take_later(self, request: Waiting, known: asyncio.Future[None]) -> None:
        """A send to a new topic is served when the name servers know the topic. No other request waits for it."""
        if self._new_topic_bytes + request.size > self.waiting.max_bytes:
            why = f"{self._new_topic_bytes} bytes wait for the name servers to know new topics"
            self._refuse(request, self.waiting.refusal(Kind.SEND, Cause.OVERLOAD, why))
            return
        self._new_topic_bytes += request.size

        def serve(_: object) -> None:
            self._new_topic_bytes -= request.size
            try:
                self._serve_one(request.peer, request.head, request.frame[2])
            except Exception as error:
                self._failed(request, error)
            finally:
                self._turn.end()

        known.add_done_callback(serve)

    def _log_is_busy(self, error: StoreBusy, now: float) -> None:
        """Sends wait, until the next sweep, or until a slow disk has taken what it has."""
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

    def _refuse(self, request: Waiting, error: Exception) -> None:
        head = request.head
        if head.flag & ONEWAY:
            return
        if type(head) in self._stage:
            request.peer.connection.write(self._sends.failed(head.opaque, error))
        else:
            reply = failure_reply(Command(head.code, opaque=head.opaque), error)
            request.peer.connection.write(encode_command(reply))

    # when there is too much to do

    def _put_off(self, peer: Peer, frames: list[Frame], since: float) -> None:
        """This turn has had its time: the rest waits, so that other connections get theirs."""
        try:
            for frame in frames:
                head = self._read(peer, frame)
                if head is not None:
                    self._wait(kind_of(head), Waiting(peer, head, frame, since))
        finally:
            self._crowd(0)

    def _kept_waiting(self, peer: Peer, head: Head | Command, frame: Frame) -> bool:
        """Whether a request has to wait behind others of its class or for the log, or was refused."""
        kind = kind_of(head)
        log_is_busy = kind in STORING and not self.gate.is_open
        if not log_is_busy and self.waiting.count(kind) <= self._unread[kind]:
            return False
        now = self._clock.monotonic()
        request = Waiting(peer, head, frame, now)
        if kind is Kind.SEND and self.gate.is_shut(now):
            why = f"{self.gate.why} for {self.gate.busy_ms(now)} ms"
            self._refuse(request, self.waiting.refusal(kind, Cause.REJECTED, why))
        else:
            self._wait(kind, request)
        return True

    def _wait(self, kind: Kind, request: Waiting) -> None:
        try:
            self.waiting.put(kind, request, self._why)
        except PocketMQError as refusal:
            self._refuse(request, refusal)

    @property
    def _why(self) -> str:
        return self.gate.why or "more is asked for than can be served at once"

    def _crowd(self, delay_s: float) -> None:
        self._crowded = True
        if self._sweeping is None:
            loop = asyncio.get_running_loop()
            self._sweeping = loop.call_later(delay_s, self._sweep) if delay_s else loop.call_soon(self._sweep)

    def _sweep(self) -> None:
        """Look at those that wait: refuse who waited too long, serve who can be served."""
        self._sweeping = None
        now = self._clock.monotonic()
        out_of_time = False
        try:
            self._look_at_log(now)
            for request, refusal in self.waiting.take_expired(now, self._why):
                self._refuse(request, refusal)
            out_of_time = self._serve_waiting(now + self._budget_s)
        finally:
            if len(self.waiting) or not self.gate.is_open:
                self._crowd(0 if out_of_time else self._sweep_s)
            else:
                self._crowded = False

    def _look_at_log(self, now: float) -> None:
        if self.gate.is_open:
            return
        first = self.waiting.first(Kind.SEND)
        busy = self._busy(first.size if first else 0)
        if busy is None:
            self.gate.took()
            return
        self._log_is_busy(busy, now)
        if self.gate.is_shut(now):
            for request, refusal in self.waiting.take_all(Kind.SEND, Cause.LOG_BUSY, now, self._why):
                self._refuse(request, refusal)

    def _serve_waiting(self, deadline: float) -> bool:
        """Serve until none is left that can be served now; True when the time was over before.

        Whose line is full waits on, and nobody behind it has to.
        """
        unread: list[tuple[Kind, Waiting]] = []
        kinds = list(Kind)
        out_of_time = False
        try:
            while kinds and not out_of_time:
                kinds = [kind for kind in kinds if self._serve_some(kind, unread)]
                out_of_time = bool(kinds) and self._clock.monotonic() > deadline
        finally:
            self._turn.end()
            for kind, request in reversed(unread):
                self.waiting.put_first(kind, request)
            self._unread = Counter(kind for kind, _ in unread)
        return out_of_time

    def _serve_some(self, kind: Kind, unread: list[tuple[Kind, Waiting]]) -> bool:
        """Serve a few of a class; whether more of them may be served now."""
        left = _LOOK_EVERY_BYTES
        while left > 0:
            if kind in STORING and not self.gate.is_open:
                return False
            request = self.waiting.take(kind)
            if request is None:
                return False
            left -= request.size + _LOOK_EVERY_BYTES // _LOOK_EVERY
            connection = request.peer.connection
            if connection.should_pause and connection.is_open and type(request.head) not in self._stage:
                unread.append((kind, request))
            else:
                self._serve_again(kind, request)
        return True

    def _serve_again(self, kind: Kind, request: Waiting) -> None:
        try:
            self._serve_one(request.peer, request.head, request.frame[2])
        except Exception as error:
            if isinstance(error, StoreBusy) and _may_pass(error):
                self._turn.give_back(error)
                self._log_is_busy(error, self._clock.monotonic())
                self.waiting.put_first(kind, request)
            else:
                self._failed(request, error)

    def lost(self, peer: Peer) -> None:
        """A line is gone: nobody waits for its answers."""
        self.waiting.forget(peer)

    def stop(self) -> None:
        """Serve what was read, and refuse what still waits."""
        self.take_shared()
        if self._sweeping is not None:
            self._sweeping.cancel()
        now = self._clock.monotonic()
        for kind in Kind:
            for request, refusal in self.waiting.take_all(kind, Cause.REJECTED, now, "the broker is stopping"):
                self._refuse(request, refusal)


def _may_pass(error: StoreBusy) -> bool:
    """Whether it helps to wait a moment. An empty pool fills up again at once with what has waited."""
    return not isinstance(error, PoolEmpty)


def _serve_pulls(pulls: Pulls, peer: Peer, frames: list[Frame], at: int) -> int:
    taken, replies = pulls.serve_run(frames, at, peer.connection.answer_capacity)
    for piece in replies:
        peer.connection.write(piece)
    return taken

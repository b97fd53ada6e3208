"""A turn of the store: requests that are staged, then written to the log together, and their answers.

    stage … stage ──► end ──► one write to the log ──► queue entries ──┬─ async flush ──► answered at once
                                     │                                 └─ synced ───────► answered; 10 after a time limit
                                     ├─ the disk is slow ──► a thread writes; the answers follow
                                     └─ not written ───────► an error for each request

A turn that fails for any reason is rolled back as a whole: each request gets an error, and leases and positions of pops
are as before (`messages.Effect`). Requests that wait for a sync are answered when the sync that covers their turn is done:
one sync for all turns since the last.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from typing import Any, Final

from pocketmq.broker.handlers.sending import Sending
from pocketmq.broker.requests.flow import WaitingRequest
from pocketmq.broker.state import BrokerState
from pocketmq.clock import Clock
from pocketmq.codes import ResponseCode
from pocketmq.errors import ConnectionLost, PocketMQError, ServerFailed, SystemBusy, WrongState
from pocketmq.net import Connection, Peer
from pocketmq.protocol.command import ONEWAY, Command, decode_command, encode_command
from pocketmq.protocol.frames import Frame, split_frames
from pocketmq.protocol.hot_headers import with_code
from pocketmq.protocol.pending_calls import failure_reply
from pocketmq.store.settings import FlushMode

log = logging.getLogger("pocketmq.broker")


LEASE_NUMBERS: Final = "popTime", "invisibleTime", "reviveQid", "restNum"
LARGE_ANSWER: Final = 4096
MAX_ANSWER_BYTES: Final = 4 * 1024 * 1024
"""A turn ends when its large answers have so many bytes: those of pops contain messages."""

Wait = Coroutine[Any, Any, bytes | None]
"""Returns the answer; or None, then the request is served again."""

Stage = Callable[[Peer, Any, bytes], tuple[bytes, bool] | Wait]
"""Stages a request. Returns the answer for when it is stored, and whether that waits for the disk; or what to wait for."""

StageRun = Callable[[Peer, list[Frame], int], tuple[int, bytes, bool]]
"""Stages requests from an index on. Returns how many, their answers, and whether these wait for the disk."""

Settle = Callable[[bool], None]
"""Called once with whether the turn is stored."""

Answers = dict[Connection, tuple[list[bytes], list[bytes]]]
"""The answers of each connection after the turn: those sent at once, and those after the sync."""


class LogTurn:
    """The current turn of the store."""

    def __init__(self, state: BrokerState, sends: Sending) -> None:
        self._store, self._clock, self._stats = state.store, state.clock, state.stats
        self._appender, self._replicas = state.appender, state.replicas
        self._sends = sends
        self._slow_s = state.store.settings.slow_write_ms / 1000
        self._answers: Answers = {}
        self._answered_to = -1
        self.large_bytes = 0
        """The bytes of large answers so far."""

    def answer_later(self, connection: Connection, reply: bytes, waits: bool) -> None:
        """Something was staged. Send `reply` when it is stored."""
        last_staged, size = self._store.last_staged, len(reply)
        if (own := self._answers.get(connection)) is None:
            own = self._answers[connection] = [], []
        if reply:
            own[1 if waits else 0].append(reply)
        self._answered_to = last_staged
        if size > LARGE_ANSWER:
            self.large_bytes += size

    def end(self) -> None:
        """Write the log once, enter the queues, and answer. Does nothing if nothing is staged."""
        if not self._answers:
            return
        answers, self._answers = self._answers, {}
        settle: Settle | None = None
        began, upto = 0.0, -1
        self.large_bytes = 0
        try:
            if self._appender.effects:
                upto = self._store.end
                settle = self._appender.take_effects()
            began = self._clock.monotonic()
            is_written = self._store.end_turn(self._ended, answers, settle, began)
        except BaseException as error:
            self._appender.abandon_turn()
            if settle is not None:
                settle(self._store.end >= upto)
            self._write_failed(answers, error)
            if not isinstance(error, Exception):
                raise
            return
        if not is_written:
            return
        try:
            if settle is not None:
                settle(True)
            took_s = self._clock.monotonic() - began
            if took_s >= self._slow_s:
                self._store.count_slow_write(took_s)
            self._answer(answers, took_s)
        except Exception as error:
            for connection in answers:
                _abort(connection, error)
            raise

    def _ended(self, answers: Answers, settle: Settle | None, began: float, error: PocketMQError | None) -> None:
        """A thread wrote the turn, or failed to."""
        if settle is not None:
            settle(error is None)
        if error is None:
            self._answer(answers, self._clock.monotonic() - began)
        else:
            self._write_failed(answers, error)

    def _answer(self, answers: Answers, took_s: float) -> None:
        for connection, (at_once, synced) in answers.items():
            try:
                if at_once:
                    connection.write_now(b"".join(at_once))
                if synced:
                    self._answer_safe(connection, b"".join(synced))
            except Exception as failure:  # the messages are stored; other connections still need their answers
                log.exception("Cannot answer stored requests of %s; closing the connection", connection.address)
                _abort(connection, failure)
        self._stats.put_times.record(took_s)

    def _answer_safe(self, connection: Connection, replies: bytes) -> None:
        """Answer when the messages are on disk, and on slaves, as the broker promises."""
        store, replicas, upto = self._store, self._replicas, self._store.end
        if not replicas.promised:
            store.when_synced(upto, partial(answer_synced, connection, replies))
        elif store.settings.flush is FlushMode.SYNC:
            both = _Both(connection, replies)
            store.when_synced(upto, both.synced)
            replicas.when_copied(upto, both.copied)
        else:
            replicas.when_copied(upto, partial(answer_copied, connection, replies))

    def _write_failed(self, answers: Answers, error: BaseException) -> None:
        log.error(
            "Commit log write failed: %s; requests of %d connections rejected",
            error,
            len(answers),
            exc_info=_unexpected(error),
        )
        for connection, (at_once, synced) in answers.items():
            try:
                replies = b"".join(at_once + synced)
                if replies:
                    connection.write_now(b"".join(self._failures(replies, _client_error(error))))
            except Exception as failure:
                _abort(connection, failure)

    def _failures(self, replies: bytes, error: Exception) -> Iterator[bytes]:
        """Errors in place of these answers. Java needs the numbers of an answer about leases in errors too."""
        for frame in split_frames(replies):
            answer = decode_command(frame)
            ext = answer.ext or {}
            if "msgId" in ext:
                self._stats.failed_puts += 1
                yield self._sends.failed(answer.opaque, error)
            else:
                failure = failure_reply(Command(0, opaque=answer.opaque), error)
                failure.ext = {name: "0" for name in LEASE_NUMBERS if name in ext} or None
                yield encode_command(failure)

    def roll_back(self, error: Exception | None = None) -> None:
        """Undo a failed request.

        If nothing else is staged, the turn of the store is abandoned: the next one begins at its own time. If something is
        staged without an answer, the whole turn fails.
        """
        if not self._answers:
            self._appender.abandon_turn()
        elif self._store.last_staged != self._answered_to:
            self._appender.abandon_turn()
            answers, self._answers = self._answers, {}
            self._write_failed(answers, error or WrongState("a request of this turn is staged without an answer"))


class Resumed:
    """Requests that waited for something, such as held pops: those that can be served now share one turn."""

    def __init__(self, turn: LogTurn, serve: Callable[[WaitingRequest], None], clock: Clock, budget_s: float) -> None:
        self._turn = turn
        self._serve = serve
        self._clock = clock
        self._budget_s = budget_s
        self._requests: deque[WaitingRequest] = deque()

    def answer_after(
        self, request: WaitingRequest, wait: Wait, refuse: Callable[[WaitingRequest, Exception], None]
    ) -> None:
        """Answer when the wait ends, or serve the request again. Not if its connection is lost meanwhile."""
        if not request.peer.run(self._finish(request, wait, refuse)):
            wait.close()
            refuse(request, SystemBusy("[OVERLOAD]too many requests of this connection wait; try again later"))

    async def _finish(
        self, request: WaitingRequest, wait: Wait, refuse: Callable[[WaitingRequest, Exception], None]
    ) -> None:
        try:
            reply = await wait
        except Exception as error:
            refuse(request, error)
            return
        if reply is None:
            self.serve_soon(request)
        elif not request.head.flag & ONEWAY:
            request.peer.connection.write(reply)

    def serve_soon(self, request: WaitingRequest) -> None:
        """Serve the request in a turn with all others that can be served from now on."""
        self._requests.append(request)
        if len(self._requests) == 1:
            asyncio.get_running_loop().call_soon(self._serve_all)

    def _serve_all(self) -> None:
        deadline = self._clock.monotonic() + self._budget_s
        try:
            while self._requests and self._clock.monotonic() <= deadline:
                self._serve(self._requests.popleft())
        finally:
            if self._requests:
                asyncio.get_running_loop().call_soon(self._serve_all)
            self._turn.end()


def _abort(connection: Connection, error: BaseException) -> None:
    """The answers are lost. Closing the connection ends the wait of the client."""
    connection.abort(ConnectionLost(f"the turn failed: {error}"))


def _unexpected(error: BaseException) -> BaseException | None:
    return None if isinstance(error, PocketMQError) else error


def _client_error(error: BaseException) -> Exception:
    """The error that a client gets. Details of unexpected errors stay in the log."""
    return (
        error
        if isinstance(error, PocketMQError)
        else ServerFailed(f"the message is not stored: {type(error).__name__}")
    )


class _Both:
    """Sends that wait for the disk and for slaves. As in RocketMQ, the slaves' failure is the one that is answered."""

    def __init__(self, connection: Connection, replies: bytes) -> None:
        self._connection, self._replies = connection, replies
        self._is_safe: bool | None = None
        self._code: ResponseCode | None = None

    def synced(self, is_safe: bool) -> None:
        self._is_safe = is_safe
        self._answer()

    def copied(self, code: ResponseCode) -> None:
        self._code = code
        self._answer()

    def _answer(self) -> None:
        if self._is_safe is None or self._code is None:
            return
        if self._code == ResponseCode.SUCCESS:
            answer_synced(self._connection, self._replies, self._is_safe)
        else:
            answer_copied(self._connection, self._replies, self._code)


def answer_copied(connection: Connection, replies: bytes, code: ResponseCode) -> None:
    """Slaves have the messages, or this is why not."""
    connection.write(replies if code == ResponseCode.SUCCESS else with_code(replies, code))


def answer_synced(connection: Connection, replies: bytes, is_safe: bool) -> None:
    """The sync is done, or took too long."""
    connection.write(replies if is_safe else with_code(replies, ResponseCode.FLUSH_DISK_TIMEOUT))

"""A turn of the store: sends that are staged, then written to the log together, and what their senders are told.

    stage … stage ──► end ──► one write to the log ──► queue entries ──┬─ no sync asked for ──► answered at once
                                     │                                 └─ synced ────────────► answered; 10 when that takes too long
                                     ├─ the disk is slow ──► a thread writes, and the answers come when it has
                                     └─ not written ───────► an error for each of them

A turn that fails, for whatever reason, is given back as a whole: each send of it gets an error. Sends that must be synced are
answered when the sync that covers their turn is done: one sync for all turns since the last.
"""

import logging
from functools import partial
from typing import Any, Protocol

from pocketmq.clock import Clock
from pocketmq.codes import ResponseCode
from pocketmq.errors import ConnectionLost, PocketMQError, ServerFailed, WrongState
from pocketmq.model.durations import Durations
from pocketmq.net.connection import Connection
from pocketmq.net.peer import Peer
from pocketmq.protocol.frames import Frame
from pocketmq.protocol.hot_headers import opaques_of, with_code
from pocketmq.store.message_store import MessageStore

log = logging.getLogger("pocketmq.broker")


StagedSend = tuple[int, bytes, int, int, str | None, str | None]
"""A send that is staged: opaque, message id, queue id, queue offset, transaction id, recall handle."""


class Sends(Protocol):
    """What a turn needs of the send handler."""

    takes_runs: bool
    """Whether there is a compiled twin, so that `stage_run` is worth a call."""

    def stage(self, peer: Peer, head: Any, body: bytes) -> tuple[StagedSend, bool]:
        """Put a send into the store's turn; its answer, and whether that waits for the disk."""
        ...

    def stage_batch(self, peer: Peer, head: Any, body: bytes) -> tuple[StagedSend, bool]: ...

    def stage_run(self, peer: Peer, frames: list[Frame], at: int) -> tuple[int, bytes, bool]:
        """Put usual sends from `at` on into the store's turn: how many, their answers, and whether those wait for the disk."""
        ...

    def stored(self, send: StagedSend) -> bytes:
        """The answer to a send that is stored."""
        ...

    def failed(self, opaque: int, error: Exception) -> bytes:
        """The answer to a send that is not."""
        ...


class Pulls(Protocol):
    """What a turn needs of pulls that were checked before."""

    in_use: bool

    def serve_run(self, frames: list[Frame], at: int, room: int) -> tuple[int, list[bytes | memoryview]]:
        """Answer usual pulls from `at` on until `room` bytes are full: how many, and the pieces of their answers."""
        ...


class PutStats(Protocol):
    """Counts how turns were stored."""

    put_times: Durations
    failed_puts: int


Answers = dict[Connection, tuple[list[bytes], list[bytes]]]
"""What each connection is told when the turn has ended: at once, and after the sync."""


class LogTurn:
    """The turn of the store that is under way."""

    def __init__(self, store: MessageStore, sends: Sends, clock: Clock, stats: PutStats) -> None:
        self._store = store
        self._sends = sends
        self._clock = clock
        self._stats = stats
        self._slow_s = store.settings.slow_write_ms / 1000
        self._answers: Answers = {}
        self._answered_to = -1

    def answer_later(self, connection: Connection, reply: bytes, waits: bool) -> None:
        """Something is staged, and this is said when it is stored."""
        last_staged = self._store.last_staged
        if (own := self._answers.get(connection)) is None:
            own = self._answers[connection] = [], []
        if reply:
            own[1 if waits else 0].append(reply)
        self._answered_to = last_staged

    def end(self) -> None:
        """Write the log once, enter the queues, and answer. Harmless when nothing is staged."""
        if not self._answers:
            return
        answers, self._answers = self._answers, {}
        began = 0.0
        try:
            began = self._clock.monotonic()
            is_written = self._store.end_turn(self._ended, answers, began)
        except BaseException as error:
            self._store.abandon_turn()
            self._not_written(answers, error)
            if not isinstance(error, Exception):
                raise
            return
        if not is_written:
            return
        try:
            took_s = self._clock.monotonic() - began
            if took_s >= self._slow_s:
                self._store.note_slow_write(took_s)
            self._answer(answers, took_s)
        except Exception as error:
            for connection in answers:
                _hang_up(connection, error)
            raise

    def _ended(self, answers: Answers, began: float, error: PocketMQError | None) -> None:
        """A thread has written the turn, or could not."""
        if error is None:
            self._answer(answers, self._clock.monotonic() - began)
        else:
            self._not_written(answers, error)

    def _answer(self, answers: Answers, took_s: float) -> None:
        """The turn is written."""
        for connection, (at_once, synced) in answers.items():
            try:
                if at_once:
                    connection.write_now(b"".join(at_once))
                if synced:
                    self._store.when_synced(self._store.end, partial(tell_synced, connection, b"".join(synced)))
            except Exception as failure:  # it is stored, and the others must hear of it
                log.exception("%s: sends are stored and cannot be answered; the line is closed", connection.address)
                _hang_up(connection, failure)
        self._stats.put_times.note(took_s)

    def _not_written(self, answers: Answers, error: BaseException) -> None:
        log.error("a turn could not be written and is given back: %s", error, exc_info=_unexpected(error))
        for connection, (at_once, synced) in answers.items():
            try:
                opaques = opaques_of(b"".join(at_once + synced))
                self._stats.failed_puts += len(opaques)
                if opaques:
                    connection.write_now(b"".join([self._sends.failed(opaque, _told(error)) for opaque in opaques]))
            except Exception as failure:
                _hang_up(connection, failure)

    def give_back(self, error: Exception | None = None) -> None:
        """A send that failed may have begun a turn of the store, with nothing in it: the next one begins at its own time.

        Or something of it is staged, for which there is no answer: then the whole turn cannot be written.
        """
        if not self._answers:
            self._store.abandon_turn()
        elif self._store.last_staged != self._answered_to:
            self._store.abandon_turn()
            answers, self._answers = self._answers, {}
            self._not_written(answers, error or WrongState("a send of this turn is staged without an answer"))


def _hang_up(connection: Connection, error: BaseException) -> None:
    """Answers are lost: a client that would wait for them in vain sees its connection close."""
    connection.abort(ConnectionLost(f"a turn failed: {error}"))


def _unexpected(error: BaseException) -> BaseException | None:
    return None if isinstance(error, PocketMQError) else error


def _told(error: BaseException) -> Exception:
    """What a client hears: not the insides of an error that is no refusal."""
    return (
        error
        if isinstance(error, PocketMQError)
        else ServerFailed(f"the message is not stored: {type(error).__name__}")
    )


def tell_synced(connection: Connection, replies: bytes, is_safe: bool) -> None:
    """The sync is done, or took too long."""
    connection.write(replies if is_safe else with_code(replies, ResponseCode.FLUSH_DISK_TIMEOUT))

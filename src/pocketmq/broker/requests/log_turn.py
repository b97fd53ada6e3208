"""A turn of the store: sends that are staged, then written to the log together, and their answers.

    stage … stage ──► end ──► one write to the log ──► queue entries ──┬─ async flush ──► answered at once
                                     │                                 └─ synced ───────► answered; 10 after a time limit
                                     ├─ the disk is slow ──► a thread writes; the answers follow
                                     └─ not written ───────► an error for each send

A turn that fails for any reason is rolled back as a whole: each send gets an error. Sends that wait for a sync are
answered when the sync that covers their turn is done: one sync for all turns since the last.
"""

import logging
from functools import partial

from pocketmq.broker.handlers.sending import Sending
from pocketmq.broker.state import BrokerState
from pocketmq.codes import ResponseCode
from pocketmq.errors import ConnectionLost, PocketMQError, ServerFailed, WrongState
from pocketmq.net import Connection
from pocketmq.protocol.hot_headers import opaques_of, with_code

log = logging.getLogger("pocketmq.broker")


Answers = dict[Connection, tuple[list[bytes], list[bytes]]]
"""The answers of each connection after the turn: those sent at once, and those after the sync."""


class LogTurn:
    """The current turn of the store."""

    def __init__(self, state: BrokerState, sends: Sending) -> None:
        self._store, self._clock, self._stats = state.store, state.clock, state.stats
        self._sends = sends
        self._slow_s = state.store.settings.slow_write_ms / 1000
        self._answers: Answers = {}
        self._answered_to = -1

    def answer_later(self, connection: Connection, reply: bytes, waits: bool) -> None:
        """Something was staged. Send `reply` when it is stored."""
        last_staged = self._store.last_staged
        if (own := self._answers.get(connection)) is None:
            own = self._answers[connection] = [], []
        if reply:
            own[1 if waits else 0].append(reply)
        self._answered_to = last_staged

    def end(self) -> None:
        """Write the log once, enter the queues, and answer. Does nothing if nothing is staged."""
        if not self._answers:
            return
        answers, self._answers = self._answers, {}
        began = 0.0
        try:
            began = self._clock.monotonic()
            is_written = self._store.end_turn(self._ended, answers, began)
        except BaseException as error:
            self._store.abandon_turn()
            self._write_failed(answers, error)
            if not isinstance(error, Exception):
                raise
            return
        if not is_written:
            return
        try:
            took_s = self._clock.monotonic() - began
            if took_s >= self._slow_s:
                self._store.count_slow_write(took_s)
            self._answer(answers, took_s)
        except Exception as error:
            for connection in answers:
                _abort(connection, error)
            raise

    def _ended(self, answers: Answers, began: float, error: PocketMQError | None) -> None:
        """A thread wrote the turn, or failed to."""
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
                    self._store.when_synced(self._store.end, partial(answer_synced, connection, b"".join(synced)))
            except Exception as failure:  # the sends are stored; other connections still need their answers
                log.exception("Cannot answer stored sends of %s; closing the connection", connection.address)
                _abort(connection, failure)
        self._stats.put_times.record(took_s)

    def _write_failed(self, answers: Answers, error: BaseException) -> None:
        log.error(
            "Commit log write failed: %s; sends of %d connections rejected",
            error,
            len(answers),
            exc_info=_unexpected(error),
        )
        for connection, (at_once, synced) in answers.items():
            try:
                opaques = opaques_of(b"".join(at_once + synced))
                self._stats.failed_puts += len(opaques)
                if opaques:
                    connection.write_now(
                        b"".join([self._sends.failed(opaque, _client_error(error)) for opaque in opaques])
                    )
            except Exception as failure:
                _abort(connection, failure)

    def roll_back(self, error: Exception | None = None) -> None:
        """Undo a failed send.

        If nothing else is staged, the turn of the store is abandoned: the next one begins at its own time. If something is
        staged without an answer, the whole turn fails.
        """
        if not self._answers:
            self._store.abandon_turn()
        elif self._store.last_staged != self._answered_to:
            self._store.abandon_turn()
            answers, self._answers = self._answers, {}
            self._write_failed(answers, error or WrongState("a send of this turn is staged without an answer"))


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


def answer_synced(connection: Connection, replies: bytes, is_safe: bool) -> None:
    """The sync is done, or took too long."""
    connection.write(replies if is_safe else with_code(replies, ResponseCode.FLUSH_DISK_TIMEOUT))

"""Writes a turn to the log: on the owner's thread while the disk is fast, on another thread while it is slow.

    fast ── a write took `slow_write_ms`, or is expected to ──► slow: a thread writes each turn
      ▲                                                          │ one turn at a time; the log is busy meanwhile
      └─ a write was quick, and the last slow one is ten times ──┘
         as long ago as it took, 0.1 s at least and 10 s at most

A write to a healthy page cache takes microseconds, less than passing it to a thread. Using a thread for every write
halves the rate of a sequential client. So the owner's thread writes, but without waiting (RWF_NOWAIT): a write that
would wait fails at once, and the thread makes it. XFS also refuses a harmless write now and then, at clock ticks.

ext4 and tmpfs do not support RWF_NOWAIT. There the owner's thread makes the first slow write, and waits for it, unless
another operation is slow first: a sync of the log, or a write to consume queues, key index or checkpoint.

If the thread cannot write a turn of sends, the turn is rolled back, as on the owner's thread. A turn with the broker's
own messages is kept and retried until the disk accepts it, because the broker's offsets already include it.
"""

import logging
from collections.abc import Callable
from functools import partial
from typing import Final

from pocketmq.clock import Clock
from pocketmq.errors import StoreError, WrongState
from pocketmq.store.log.commit_log import CommitLog, Pieces
from pocketmq.store.log.segments import disk_error
from pocketmq.store.settings import StoreSettings
from pocketmq.store.worker import Post, Worker

log = logging.getLogger("pocketmq.store")

LONG_QUEUE_WRITE_S: Final = 0.25
"""A write to consume queues or the checkpoint that takes a thread this long is a sign that log writes may stall, too.
On a busy processor, threads start late, so the limit is not lower.
"""
CALM_FACTOR: Final = 10
LEAST_CALM_S: Final = 0.1
"""A write also looks slow on a busy processor; that must not cost much."""
MOST_CALM_S: Final = 10.0
STALLED_S: Final = 1.0
"""A running write that has taken this long is logged."""


Store = Callable[[Callable[[], None]], None]
"""Enters a written turn into its queues, then calls its argument. May raise before that, but not after it."""


class _Turn:
    """A turn for the thread. `is_revoked`: the thread must no longer write it. `is_refused`: the disk has rejected it
    before.
    """

    __slots__ = ("failed", "is_refused", "is_revoked", "pieces", "since", "store", "written")

    def __init__(
        self,
        since: float,
        store: Store,
        written: Callable[[], None],
        failed: Callable[[StoreError], None] | None,
    ) -> None:
        self.pieces: Pieces = ()
        self.since = since
        self.store = store
        self.written = written
        self.failed = failed
        self.is_refused = self.is_revoked = False


class LogWriter:
    """Decides which thread writes a turn, and owns the writing thread. Owned by the store's thread."""

    def __init__(
        self, settings: StoreSettings, clock: Clock, commit_log: CommitLog, post: Post, worker: Worker | None = None
    ) -> None:
        self._clock = clock
        self._log = commit_log
        self._worker = worker or Worker("pocketmq-log", post)
        self._retry_s = settings.retry_ms / 1000
        self._close_timeout_s = settings.close_timeout_ms / 1000
        self._turn: _Turn | None = None
        self._retry_at: float | None = None
        self._calm_at = 0.0
        self._is_stall_reported = False
        self._waiting: list[Callable[[], None]] = []
        self.slow_s = settings.slow_write_ms / 1000
        """A write that takes at least this long is slow."""
        self.is_calm = self.slow_s > 0
        """Whether the owner's thread writes turns itself."""

    @property
    def busy(self) -> bool:
        """Whether the thread is at work."""
        return self._worker.busy

    @property
    def busy_since(self) -> float | None:
        """Monotonic time since which the thread has had a turn; None if it has none."""
        return None if self._turn is None else self._turn.since

    @property
    def end(self) -> int:
        """The log offset after all messages that are stored, or will certainly be stored."""
        turn = self._turn
        return self._log.end if turn is None or turn.failed is None else self._log.written

    def is_stalled(self, now: float, longer_than_s: float) -> bool:
        """Whether the thread has waited so long for the disk that other writes should wait, too.

        A disk that rejected the turn does respond: retention may have to free space before the turn can be written.
        """
        return self._turn is not None and self._retry_at is None and now - self._turn.since >= longer_than_s

    # which thread writes

    def record(self, took_s: float) -> None:
        """Record the duration of a write."""
        now = self._clock.monotonic()
        if took_s < self.slow_s or not self.slow_s:
            if not self.is_calm and self.slow_s and now >= self._calm_at:
                self.is_calm = True
                log.info("disk is fast again; the event loop writes the log")
            return
        self._leave_loop(now, took_s, f"a write to the log took {took_s * 1000:.0f} ms")

    def tick(self, now: float, long_sync_s: float, queues_s: float) -> None:
        """Check for other slow operations, and retry failed writes. A sync of the log has run unusually long, for
        `long_sync_s`; a write to consume queues, key index or checkpoint has run for `queues_s`.
        """
        self._worker.settle()
        if long_sync_s:
            self._leave_loop(now, 0, f"a sync of the log has taken {long_sync_s * 1000:.0f} ms so far")
        elif queues_s >= LONG_QUEUE_WRITE_S:
            self._leave_loop(
                now, 0, f"a write to consume queues, key index or checkpoint has taken {queues_s * 1000:.0f} ms so far"
            )
        if self._turn is None:
            return
        if self._retry_at is not None and now >= self._retry_at:
            self._try(self._turn)
        elif not self._is_stall_reported and self.is_stalled(now, STALLED_S):
            self._is_stall_reported = True
            waited_ms = (now - self._turn.since) * 1000
            log.warning("commit log write has taken %.0f ms so far; rejecting sends meanwhile", waited_ms)

    def _leave_loop(self, now: float, took_s: float, why: str) -> None:
        calm_s = min(max(CALM_FACTOR * took_s, LEAST_CALM_S), MOST_CALM_S)
        self._calm_at = max(self._calm_at, now + calm_s)
        if self.is_calm:
            self.is_calm = False
            log.warning("%s; a thread writes the log until the disk has been fast for %.1f s", why, calm_s)

    # by the thread

    def hand_over(
        self,
        store: Store,
        written: Callable[[], None],
        failed: Callable[[StoreError], None] | None,
        pieces: Pieces = (),
    ) -> None:
        """End the turn of the log, and let the thread write it. `pieces` are those of a turn that has ended already.

        After the write, `store` is called, then `written`. If the write or `store` fails, the turn is rolled back and
        `failed` is called. Without `failed`, the write is retried until it succeeds.
        """
        turn = _Turn(self._clock.monotonic(), store, written, failed)
        turn.pieces = pieces or self._log.begin_write()
        self._turn = turn
        try:
            self._try(turn)
        except Exception as error:
            self._broke(turn, error)

    def when_free(self, callback: Callable[[], None]) -> None:
        """Call back when the thread has no turn any more; immediately if it has none."""
        if self._turn is None:
            callback()
        else:
            self._waiting.append(callback)

    def close(self) -> None:
        """Wait for the thread and end it. Raises StoreError if the disk does not respond."""
        if self._turn is not None and self._retry_at is not None:
            self._try(self._turn)
        answers = self._worker.drain(self._close_timeout_s) if self._turn is not None else True
        self._worker.close(self._close_timeout_s if answers else 0)
        if not answers:
            raise StoreError(
                "the result of the last commit log write is unknown: the disk did not respond within "
                f"{self._close_timeout_s:g} s"
            )
        if self._turn is not None:
            raise StoreError(f"the broker's own messages at log offset {self._log.written} could not be written")

    def _try(self, turn: _Turn) -> None:
        self._retry_at = None
        try:
            self._worker.submit(partial(self._write, turn), partial(self._wrote, turn), partial(self._broke, turn))
        except (WrongState, MemoryError) as error:
            self._broke(turn, error)

    def _write(self, turn: _Turn) -> float:
        """On the thread: the duration of the write."""
        began = self._clock.monotonic()
        for piece in turn.pieces:
            if not turn.is_revoked:
                piece.write()
        return self._clock.monotonic() - began

    def _wrote(self, turn: _Turn, took_s: float) -> None:
        if turn.is_revoked:
            return
        try:
            self.record(took_s)
            turn.store(self._finish)
        except Exception as error:
            self._broke(turn, error)
            return
        turn.written()
        self._ended(turn)

    def _finish(self) -> None:
        self._log.end_write()
        self._turn = None

    def _broke(self, turn: _Turn, error: Exception) -> None:
        if turn.is_revoked:
            return
        if turn.failed is not None:
            turn.is_revoked = True
            self._turn = None
            turn.failed(self._log.fail_write(turn.pieces, error))
            self._ended(turn)
            return
        what = "commit log write of the broker's own messages failed; retrying"
        failure = disk_error(what, error) if isinstance(error, OSError) else StoreError(f"{what}: {error}")
        if not turn.is_refused:  # retries may continue for hours
            log.error("%s", failure)
        turn.is_refused = True
        self._log.refuse_meanwhile(failure)
        self._retry_at = self._clock.monotonic() + self._retry_s

    def _ended(self, turn: _Turn) -> None:
        if self._is_stall_reported:
            self._is_stall_reported = False
            log.warning("disk accepts writes again after %.0f ms", (self._clock.monotonic() - turn.since) * 1000)
        waiting, self._waiting = self._waiting, []
        for callback in waiting:
            callback()

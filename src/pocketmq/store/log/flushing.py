"""Flushing: one thread waits for the disk, so that the owner of the store does not.

    what the thread does next, first match:
    1  repair     overwrite the rest of a failed write with zeros, sync    the log accepts nothing before that
    2  log        one sync for all turns written so far: group commit      sends wait for it, or the async policy is due
    3  derived    queue, index and other files, in the order given         interrupted between two files by 1 or 2

The async policy syncs every `flush_interval_ms` when at least `flush_least_pages` are new, and every
`flush_thorough_ms` in any case. A send that waits longer than `sync_timeout_ms` gets False: stored, not yet safe.

If a file cannot be opened, for example because too many are open, the thread retries. After a failed sync, the store
accepts no more writes: the system may have dropped the bytes and reports that only once, so a second sync proves
nothing. The log is halted with SyncFailed until a restart has read what is on disk. A sync that hangs blocks only its
thread. `close` waits `close_timeout_ms` for it, then raises SyncFailed.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from pocketmq.clock import Clock
from pocketmq.errors import SyncFailed
from pocketmq.files import File, Files, FolderNotOpened
from pocketmq.model.durations import Durations
from pocketmq.store.log.commit_log import CommitLog, LogRange
from pocketmq.store.log.segments import zero_from
from pocketmq.store.settings import PAGE_BYTES, StoreSettings
from pocketmq.store.worker import Post, Worker

log = logging.getLogger("pocketmq.store")


DERIVED_STEP = 64
"""Derived files in one job of the thread: there may be tens of thousands, and a sync of the log may become due
meanwhile.
"""


LONG_SYNC_S = 1.0
"""A sync of the log that runs for this time, even with much to sync, is a sign that writes may stall, too."""
LEAST_LONG_SYNC_S = 0.2
UNUSUAL_FACTOR = 3
"""The same for a sync that takes so many times the usual duration, and at least `LEAST_LONG_SYNC_S`."""
_FORGET = 0.95
"""The factor by which the longest duration so far decreases with each sync."""


class _Waiter(NamedTuple):
    """A callback for the moment when the log is safe up to an offset."""

    upto: int
    deadline: float
    callback: Callable[[bool], None]


class _Batch(NamedTuple):
    """Derived files to be synced together."""

    paths: deque[Path]
    done: Callable[[], None]


class Flusher:
    """The sync thread, seen from the owner's side."""

    def __init__(
        self,
        settings: StoreSettings,
        clock: Clock,
        post: Post,
        files: Files,
        commit_log: CommitLog,
        worker: Worker | None = None,
    ) -> None:
        self._clock = clock
        self._files = files
        self._log = commit_log
        self._worker = worker or Worker("pocketmq-sync", post)
        self.apply(settings)
        self._close_timeout_s = settings.close_timeout_ms / 1000
        self._waiters: deque[_Waiter] = deque()
        self._derived: deque[_Batch] = deque()
        self._written = 0
        self._written_ms = 0
        self._clean_at = 0.0
        self._typical_s = 0.0
        self._at_work = self._syncing = self._urgent = self._closing = False
        self._repair_due = self._derived_due = True
        self._complaint = ""
        self.synced_ms = 0
        """Store time of the last record that is safe."""
        self.failed: SyncFailed | None = None
        self.syncs = 0
        """Log syncs that were done."""
        self.sync_times = Durations()
        """The duration of each sync, including the way to the thread and back."""

    def apply(self, settings: StoreSettings) -> None:
        """Apply these settings from now on."""
        self._interval_s = settings.flush_interval_ms / 1000
        self._thorough_s = settings.flush_thorough_ms / 1000
        self._least_pages = settings.flush_least_pages
        self._timeout_s = settings.sync_timeout_ms / 1000

    @property
    def synced(self) -> int:
        """The log is safe up to here."""
        return self._log.synced

    @property
    def busy(self) -> bool:
        """Whether the thread is at work."""
        return self._worker.busy

    def long_sync_seconds(self, now: float) -> float:
        """For how long a sync of the log has been running, if that is unusually long; else 0."""
        took_s = now - self._clean_at if self._syncing else 0.0
        long_s = min(LONG_SYNC_S, max(LEAST_LONG_SYNC_S, UNUSUAL_FACTOR * self._typical_s))
        return took_s if took_s >= long_s else 0.0

    def begin(self, store_ms: int) -> None:
        """Start at the end of recovery: the log is safe up to its end, and `store_ms` is its last record's time."""
        self._written = self._log.synced
        self._written_ms = self.synced_ms = store_ms
        self._clean_at = self._clock.monotonic()

    # requests of the owner

    def mark_written(self, upto: int, store_ms: int) -> None:
        """The log is written up to `upto`; its last record there has this store time."""
        self._written = upto
        self._written_ms = store_ms
        if self._waiters:
            self._go_on()

    def when_synced(self, upto: int, callback: Callable[[bool], None]) -> None:
        """Call back with True once the log is safe up to `upto`; with False if that fails or times out.

        Callbacks run in the order of their offsets, on the owner's thread; immediately if the log is safe already.
        """
        if upto <= self._log.synced or self.failed is not None:
            callback(upto <= self._log.synced)
            return
        self._waiters.append(_Waiter(upto, self._clock.monotonic() + self._timeout_s, callback))
        self._go_on()

    def sync_files(self, paths: Iterable[Path], done: Callable[[], None]) -> None:
        """Sync derived files when no sync of the log is due, then call `done`. Deleted files are skipped. The sync of
        a folder makes its names safe.

        Takes paths instead of open files, because the owner may close its files at any time.
        """
        self._derived.append(_Batch(deque(paths), done))
        self._go_on()

    def tick(self, now: float) -> None:
        """The owner calls this every 10 to 100 ms: timeouts, the async policy, and retries of harmless failures."""
        self._worker.settle()
        while self._waiters and self._waiters[0].deadline <= now:
            self._waiters.popleft().callback(False)
        self._repair_due = self._derived_due = True
        if self._written == self._log.synced:
            self._clean_at = now
        elif self._is_due(now - self._clean_at):
            self._urgent = True
        self._go_on()

    def _is_due(self, dirty_s: float) -> bool:
        pages = self._written // PAGE_BYTES - self._log.synced // PAGE_BYTES
        return dirty_s >= self._thorough_s or (dirty_s >= self._interval_s and pages >= self._least_pages)

    def close(self) -> None:
        """Sync the rest, log and derived files, and end the thread. Raises SyncFailed if that fails."""
        self._closing = True
        patience_s = self._close_timeout_s
        while self._is_unfinished():
            self._urgent = self._written > self._log.synced
            self._derived_due = True
            self._go_on()
            if not self._worker.drain(patience_s):
                patience_s = 0
                self._fail(TimeoutError(f"the disk did not respond within {self._close_timeout_s:g} s"))
        self._worker.close(patience_s)
        self._give_up_waiters()
        if self.failed is not None:
            raise SyncFailed(*self.failed.args) from self.failed

    def _is_unfinished(self) -> bool:
        return self.failed is None and (self._at_work or self._written > self._log.synced or bool(self._derived))

    # what the thread does next

    def _go_on(self) -> None:
        """Give the thread its next job, if it has none."""
        if self._waiters and self._written > self._log.synced:
            self._urgent = True
        if self._at_work or self.failed is not None:
            return
        if self._log.stale and self._repair_due:
            self._repair()
        elif self._urgent and self._written > self._log.synced:
            self._sync_log()
        elif self._derived and self._derived_due:
            self._sync_derived()

    def _repair(self) -> None:
        self._at_work = True
        self._worker.submit(partial(_overwrite, tuple(self._log.stale)), self._repaired, self._not_repaired)

    def _repaired(self, _: None) -> None:
        self._at_work = False
        self._log.repaired()
        self._go_on()

    def _not_repaired(self, error: Exception) -> None:
        if isinstance(error, SyncFailed):
            self._fail(error)
            return
        self._at_work = self._repair_due = False
        self._complain(f"cannot overwrite the rest of a failed log write yet; retrying: {error}")
        self._go_on()

    def _sync_log(self) -> None:
        covered = self._log.files_between(self._log.synced, self._written)
        done = partial(self._log_synced, self._written, self._written_ms)
        self._clean_at = self._clock.monotonic()
        self._at_work = self._syncing = True
        self._urgent = False
        self._worker.submit(partial(_sync_all, covered), done, self._fail)

    def _log_synced(self, upto: int, store_ms: int, _: None) -> None:
        self._at_work = self._urgent = self._syncing = False
        self._log.synced = upto
        self.synced_ms = store_ms
        self.syncs += 1
        took_s = self._clock.monotonic() - self._clean_at
        self._typical_s = max(took_s, self._typical_s * _FORGET)
        self.sync_times.record(took_s)
        while self._waiters and self._waiters[0].upto <= upto:
            self._waiters.popleft().callback(True)
        self._go_on()

    def _sync_derived(self) -> None:
        paths = self._derived[0].paths
        if not paths:
            self._derived.popleft().done()
            self._go_on()
            return
        self._at_work = True
        some = tuple(islice(paths, DERIVED_STEP))
        self._worker.submit(partial(self._sync_paths, some), self._derived_synced, self._fail)

    def _sync_paths(self, paths: tuple[Path, ...]) -> tuple[int, OSError | None]:
        """On the thread: how many files were synced before a sync of the log became due, and why the next could not
        be opened.
        """
        for count, path in enumerate(paths):
            if count and (self._urgent or self._log.stale):
                return count, None
            try:
                file = self._open_to_sync(path)
            except FileNotFoundError:
                continue
            except OSError as error:
                return count, error
            if file is not None:
                with file:
                    file.sync()
                continue
            try:
                self._files.sync_dir(path)
            except FolderNotOpened as error:
                return count, error
        return len(paths), None

    def _open_to_sync(self, path: Path) -> File | None:
        """On the thread: the open file, or None for a folder. An OSError here is not a failed sync: no bytes were
        involved.
        """
        status = self._files.status(path)
        return None if status is not None and status.is_dir else self._files.open(path)

    def _derived_synced(self, outcome: tuple[int, OSError | None]) -> None:
        count, error = outcome
        self._at_work = False
        batch = self._derived[0]
        for _ in range(count):
            batch.paths.popleft()
        if error is not None and self._closing:
            self._fail(error)
        elif error is not None:
            self._derived_due = False
            self._complain(f"cannot open a file to sync it; retrying: {error}")
        elif not batch.paths:
            self._derived.popleft().done()
        self._go_on()

    def _fail(self, error: Exception) -> None:
        self._at_work = self._syncing = False
        self.failed = SyncFailed(
            f"syncing to the disk failed: {error}. Messages after log offset {self._log.synced} may be lost; the "
            "store accepts no messages until a restart recovers the log"
        )
        log.critical("%s", self.failed)
        self._log.halt(self.failed)
        self._give_up_waiters()

    def _complain(self, what: str) -> None:
        """Log a retried failure, but only once."""
        if what != self._complaint:
            log.warning("%s", what)
        self._complaint = what

    def _give_up_waiters(self) -> None:
        while self._waiters:
            self._waiters.popleft().callback(False)


def _sync_all(files: list[File]) -> None:
    for file in files:
        file.sync()


def _overwrite(stale: tuple[LogRange, ...]) -> None:
    for file, start, end in stale:
        zero_from(file, start, end)
        try:
            file.sync()
        except OSError as error:
            raise SyncFailed(str(error)) from error

"""The background work of a store, in small steps at every tick, so that no turn waits for it.

    every tick        timeouts and syncs of the log; a slice of the key index, smaller while messages arrive, and its
                      next write, in a thread; a part of the cleanup after retention; a slice of the repair of a damaged consume
                      queue
    every 0.1 s       write the entries of queues that have many pending, in the same thread
    every second      write the checkpoint, if it changed, in the same thread
    every 10 s        write all pending queue entries, some at a time, then sync them; less often if there are many
    every 10 s        retention checks the disk
    every minute      write the resume point, if queues were added

Recovery relies on one order. Queue entries are written, then synced (files and names). Then, and after the keys of the
same messages, the checkpoint covers them. The same holds for the index. A flush that takes several ticks covers only
entries that were added before it began.
"""

import logging
from collections.abc import Callable, Collection
from functools import partial
from itertools import chain, islice, zip_longest
from math import inf
from pathlib import Path

from pocketmq.errors import StoreBusy, StoreError
from pocketmq.store.log.segments import disk_error
from pocketmq.store.parts import StoreParts
from pocketmq.store.queues.consume_queue import ConsumeQueue
from pocketmq.store.queues.queue_writer import QUEUES_PER_JOB
from pocketmq.store.recovery.queue_repair import QueueRepair
from pocketmq.store.recovery.resume_upkeep import QueueTimes, ResumeUpkeep
from pocketmq.store.retention import AgedFile, Dropped, Retention
from pocketmq.store.settings import MIB

log = logging.getLogger("pocketmq.store")

INDEX_SLICE_S = 0.005
"""How long one tick may spend on the key index; while messages arrive, a part of it, in proportion to the backlog."""
INDEX_STEP = 128
"""Messages indexed between two checks of the clock."""
INDEX_PAYBACK = 2
"""Messages that are indexed for each new one when the backlog is full."""
LOOKUP_SLICE_S = 0.01
"""How long a query by key may block while the index catches up; a caller that can wait longer waits for the ticks."""
LOOKUP_HURRY_S = 1.0
"""How long after a query each tick spends as much time on the index as the query itself."""
STALLED_S = 0.1
"""How long a write to the log may take before nothing else is written to the disk."""
FULL_QUEUES_S = 0.1
"""How often entries of queues with many pending ones are written. Each write of the thread costs two thread switches,
so few large ones are better.
"""
MAX_PENDING_BYTES = 64 * MIB
"""The limit on queue entries in memory while the disk does not accept them; above it, messages are rejected."""
DELETE_WAIT_S = 0.2
"""How long the deletion of a topic waits for a running write to consume queues."""
FLUSHED_QUEUES_PER_S = 400
"""How many queues are flushed per second in the long run. Syncing a file costs as much as fifty messages, so with
thousands of queues in use the next flush waits longer: with ten thousand, half a minute."""
RETENTION_S = 10.0
MAX_DROPS_BY_HAND = 200
"""Log files that one request of an administrator deletes."""
FOLLOW_STEP = 100
"""Queues whose start is updated in one tick."""
_NEEDED = ("queues", "index", "index files", "resume file")
"""These writes must succeed before more messages are accepted."""


class Upkeep:
    """Keeps the derived files, the checkpoint and the disk usage up to date. Owned by the store's thread."""

    def __init__(self, parts: StoreParts, on_dropped: Callable[[Dropped], None]) -> None:
        self._parts = parts
        self._on_dropped = on_dropped
        settings = parts.settings
        self._thorough_s = settings.queue_thorough_ms / 1000
        self._checkpoint_s = settings.checkpoint_interval_ms / 1000
        self._thorough_at = self._checkpoint_at = self._retention_at = self._pending_at = self._full_at = 0.0
        self._unsynced: dict[Path, None] = {}
        self._new_folders: dict[Path, None] = {}
        self._unwritten: dict[ConsumeQueue, None] | None = None
        self._flushed = 0, 0
        self._queue_times = QueueTimes()
        self._flushing = self._index_writing = self._index_syncing = False
        self._entered_ms = 0
        self._max_backlog_bytes = settings.index_backlog_bytes if settings.index_enabled else inf
        self._written_seen = -1
        self._hurried_until = 0.0
        self._followers: dict[ConsumeQueue, int] = {}
        self._dropped: Dropped | None = None
        self._failures: dict[str, StoreError] = {}
        self.derived_failure: StoreError | None = None
        """Why queue or index files cannot be written; nothing is lost, but messages are rejected meanwhile."""
        self._resume = ResumeUpkeep(parts)
        self.repair = QueueRepair(parts)
        self.retention = Retention(
            settings, self._aged_files, self._used_ratio, parts.log.drop_first, self._log_dropped
        )

    def start(self) -> None:
        now = self._parts.clock.monotonic()
        self._thorough_at = now + self._thorough_s
        self._checkpoint_at = now + self._checkpoint_s
        self._retention_at = now
        self._entered_ms = self._parts.last_store_ms
        self._resume.start()

    def tick(self) -> None:
        now = self._parts.clock.monotonic()
        self._parts.log.tick()
        self._parts.flusher.tick(now)
        self._parts.queue_writer.tick()
        queues_s = self._parts.queue_writer.seconds(now)
        self._parts.writer.tick(now, self._parts.flusher.long_sync_seconds(now), queues_s)
        if self._parts.writer.is_stalled(now, STALLED_S) or queues_s >= STALLED_S:
            self._limit_pending(now, queues_s)
            return  # the disk does not respond: a write here would block the event loop
        if "marks of deleted topics" in self._failures:
            self.write_failed()
        if "queues" in self._failures or (now >= self._thorough_at and not self._flushing):
            self._begin_flush(now)
        self._write_queues(now)
        if now >= self._checkpoint_at:
            self._checkpoint_at = now + self._checkpoint_s
            self._save_checkpoint()
        self._resume.tick()
        if self.repair.is_busy:
            self._guarded("repair of consume queues", self.repair.work)
        if now >= self._retention_at:
            self._retention_at = now + RETENTION_S
            self._guarded("retention", lambda: self.retention.run(self._parts.clock.settled_ms()))
            self._record_retention()
        self._guarded("index", lambda: self.index_for(self._index_slice_s(now)))
        self._write_index(flush="index files" in self._failures or self._parts.index.is_flushing)
        if self._followers:
            self._guarded("derived files", self._follow_some)

    # queues

    def entered(self, touched: Collection[ConsumeQueue], count: int, store_ms: int) -> None:
        """So many queue entries were appended; the last one belongs to a record with this store time."""
        self._entered_ms = store_ms
        parts = self._parts
        parts.queues.entered(touched)
        if parts.log.written - parts.index_builder.indexed_to > self._max_backlog_bytes:
            self._guarded("index", lambda: self._index_some(INDEX_PAYBACK * count))
            self._write_index()

    @property
    def is_flushing(self) -> bool:
        """Whether queue entries are being written, in parts at every tick."""
        return self._unwritten is not None

    def _begin_flush(self, now: float) -> None:
        """Mark all pending entries for writing, in parts; afterwards the checkpoint may cover them.

        Not while the thread writes: later entries of its queues are pending, too, and would count as written.
        """
        if self._unwritten is None and not self._parts.queue_writer.is_writing:
            self._unwritten = dict.fromkeys(self._parts.queues.dirty())
            self._thorough_at = now + self._thorough_s + len(self._unwritten) / FLUSHED_QUEUES_PER_S
            self._flushed = self._parts.log.written, self._entered_ms

    def _write_queues(self, now: float) -> None:
        """Let the thread write entries, unless it is busy: of queues with many pending entries, and of the rest of a
        flush.
        """
        parts = self._parts
        if parts.queue_writer.is_writing:
            return
        full: list[ConsumeQueue] = []
        if now >= self._full_at:
            self._full_at = now + FULL_QUEUES_S
            full = parts.queues.full()
        if full or self._unwritten is not None:
            queues = dict.fromkeys(islice(chain(full, self._unwritten or ()), QUEUES_PER_JOB))
            parts.queue_writer.write(queues, self._queues_written, self._queues_refused)

    def _queues_written(self, written: list[ConsumeQueue]) -> None:
        queues = self._parts.queues
        self._unsynced.update(dict.fromkeys(queues.take_written()))
        self._new_folders.update(dict.fromkeys(queues.take_new_folders()))
        for queue in written:
            queues.written(queue)
            if self._unwritten is not None:
                self._unwritten.pop(queue, None)
        if self._unwritten is not None and not self._unwritten:
            self._works("queues")
            self._sync_queues()

    def _queues_refused(self, error: OSError | StoreError) -> None:
        """A rejection counts until all entries are written."""
        self._fail("queues", error)

    def _limit_pending(self, now: float, queues_s: float) -> None:
        """Entries stay in memory while the disk does not accept them; if these are too many, messages are rejected."""
        if now < self._pending_at:
            return
        self._pending_at = now + 1
        pending = self._parts.queues.pending_bytes
        if pending > MAX_PENDING_BYTES:
            why = f"{pending} bytes of queue entries are waiting: a write has taken {queues_s * 1000:.0f} ms so far"
            self._fail("queues", StoreBusy(why))

    def _sync_queues(self) -> None:
        """All entries of this flush are in files: start their sync."""
        parts = self._parts
        flushed = self._flushed
        bounds = self._resume.due_bounds()
        paths, self._unsynced = self._unsynced, {}
        folders, self._new_folders = self._new_folders, {}
        self._unwritten = None
        self._flushing = True

        def synced() -> None:
            self._flushing = False
            self._queue_times.synced(*flushed)
            self._resume.flushed(bounds)

        parts.flusher.sync_files([*paths, *folders], synced)
        self._write_index(flush=True)

    def delete_topic(self, topic: str) -> None:
        """Remove the queues of a topic, with their files."""
        if not self._parts.queue_writer.drain(DELETE_WAIT_S):  # it could create a deleted file again
            raise StoreBusy(f"topic {topic} cannot be removed while a write to consume queues is not finished")
        try:
            self._resume.forget_topic(topic)
            self._parts.queues.delete_topic(topic)
        except OSError as error:
            raise disk_error(f"the queues of topic {topic} cannot be removed", error) from error

    def write_failed(self) -> None:
        """A turn was rolled back, and the log may end earlier."""
        self._guarded("marks of deleted topics", self._resume.lower_deletions)

    # index

    @property
    def index_backlog_bytes(self) -> int:
        """How far the key index is behind the log."""
        return self._parts.index_builder.backlog_bytes(self._parts.log.written)

    def hurry_index(self) -> None:
        """A caller waits for the index: for some time, ticks work on it even while messages arrive."""
        self._hurried_until = self._parts.clock.monotonic() + LOOKUP_HURRY_S

    def index_now(self) -> None:
        """Let the index catch up before a query, within the time limit of a blocking call."""
        self.hurry_index()
        stop_at = self._parts.clock.monotonic() + LOOKUP_SLICE_S
        self._guarded("index", lambda: self.index_for(LOOKUP_SLICE_S))
        while self._parts.index_builder.waits and (left := stop_at - self._parts.clock.monotonic()) > 0:
            self._write_index()
            if not self._parts.queue_writer.drain(left):
                break
            self._guarded("index", lambda: self.index_for(0))

    def index_for(self, seconds: float) -> None:
        """Spend up to `seconds` on the index, with at least one step."""
        clock = self._parts.clock
        stop_at = clock.monotonic() + seconds
        while self._index_some(INDEX_STEP) and clock.monotonic() < stop_at:
            pass

    def _index_some(self, count: int) -> bool:
        """Index up to `count` messages. Returns whether there are more that need no write first."""
        parts = self._parts
        if not parts.settings.index_enabled:
            return False
        return parts.index_builder.work(parts.log.start, parts.log.written, count) and not parts.index_builder.waits

    def _index_slice_s(self, now: float) -> float:
        """The time for the index in this tick: a whole slice if no message arrived since the last tick, else in
        proportion to the backlog. A short burst ends before its keys are indexed; in a long one, the backlog grows
        until keys are indexed as fast as they arrive.
        """
        seen, self._written_seen = self._written_seen, self._parts.log.written
        if now < self._hurried_until:
            return LOOKUP_SLICE_S
        if seen == self._written_seen:
            return INDEX_SLICE_S
        return INDEX_SLICE_S * min(1.0, self.index_backlog_bytes / max(1.0, self._max_backlog_bytes))

    def _write_index(self, *, flush: bool = False) -> None:
        """Let the thread make the next write of the index: one that new keys wait for, or a step of a flush. A step
        waits for the sync of the one before.
        """
        if self._index_writing or self._parts.queue_writer.is_closing:
            return
        parts = self._parts
        try:
            write = parts.index.next_write()
            if write is None and flush and not self._index_syncing:
                write = parts.index.next_step(parts.log.synced, parts.checkpoint.saved_index_ms)
                parts.checkpoint.index_ms = max(parts.checkpoint.index_ms, parts.index.newest_ms)
        except OSError as error:
            self._fail("index files", error)
            return
        if write is not None:
            parts.queue_writer.run(
                write.make, partial(self._index_written, write.done, write.to_sync), self._index_refused
            )
            self._index_writing = True

    def _index_written(self, done: Callable[[], object], to_sync: Collection[Path], _made: object) -> None:
        self._index_writing = False
        done()
        self._works("index files")
        if to_sync:
            self._index_syncing = True
            self._parts.flusher.sync_files([*to_sync], self._index_synced)
        elif self._parts.index_builder.waits:
            self._guarded("index", lambda: self.index_for(0))
            self._write_index()

    def _index_synced(self) -> None:
        self._index_syncing = False
        self._write_index(flush=True)

    def _index_refused(self, error: OSError | StoreError) -> None:
        self._index_writing = False
        self._fail("index files", error)

    def _save_checkpoint(self) -> None:
        parts = self._parts
        parts.checkpoint.physic_ms = max(parts.checkpoint.physic_ms, parts.flusher.synced_ms)
        queues_ms = self._queue_times.take_covered(*self._keys_covered())
        if queues_ms is not None:
            parts.checkpoint.logics_ms = queues_ms
        raw = parts.checkpoint.begin_save()
        if raw is not None:
            parts.queue_writer.run(
                partial(parts.checkpoint.write, raw), self._checkpoint_written, self._checkpoint_refused
            )

    def _checkpoint_written(self, paths: list[Path]) -> None:
        self._works("checkpoint")
        self._parts.flusher.sync_files(paths, self._parts.checkpoint.saved)

    def _checkpoint_refused(self, error: OSError | StoreError) -> None:
        self._parts.checkpoint.not_saved()
        self._fail("checkpoint", error)

    def _keys_covered(self) -> tuple[float, float]:
        """The log offset up to which keys are indexed, and the store time up to which these are synced."""
        parts = self._parts
        if not parts.settings.index_enabled:
            return inf, inf
        return parts.index_builder.indexed_to, inf if parts.index.is_settled else parts.index.recorded_ms

    # retention

    def _aged_files(self) -> list[AgedFile]:
        """The oldest log files that may be deleted, up to the limit of one run, and one more, which stays."""
        most = min(self._parts.log.droppable, self._parts.settings.max_deletes_per_run)
        statuses = self._parts.log.file_statuses(most + 1)
        ends = [first for first, _ in statuses[1:]]
        return [
            AgedFile(first, self._written_ms(status.modified_ms, end))
            for (first, status), end in zip_longest(statuses, ends)
        ]

    def _written_ms(self, modified_ms: int, end: int | None) -> int:
        """The time of the last write to a log file that ends at `end`.

        The modification time of the file is from the wall clock, which may have been wrong. The store time of the
        next record never decreases.
        """
        record = None if end is None else self._parts.log.record(end)
        if record is None:
            return modified_ms
        assert end is not None
        stored_ms = self._parts.log.store_ms_at(end)
        return max(modified_ms, stored_ms) if modified_ms <= self._parts.clock.now_ms() else stored_ms

    def _used_ratio(self) -> float:
        return self._parts.files.usage(self._parts.settings.folder).used_ratio

    def drop_expired(self) -> int:
        """Delete log files that are older than the retention time, at any hour. Returns their number."""
        dropped = self.retention.run_by_hand(self._parts.clock.now_ms(), MAX_DROPS_BY_HAND)
        self._record_retention()
        return dropped

    def _record_retention(self) -> None:
        self._parts.disk_full = self.retention.refuses_writes
        self._parts.dropped_needed_files = self.retention.dropped_needed_files

    def _log_dropped(self, first_offset: int, end_offset: int, why: str) -> None:
        before = self._dropped
        if before is None:
            self._dropped = Dropped(first_offset, end_offset, why, {})
        else:  # not all queues are updated yet: both deletions are reported together
            self._dropped = before._replace(end_offset=end_offset, why=why)
        self.follow_log_start()

    def follow_log_start(self) -> None:
        """The oldest log files were deleted: update the index, and the queues a few at a time."""
        # Record the start of each queue now: a reader may update its queue earlier.
        known = self._followers
        self._followers = {queue: known.get(queue, queue.min_offset) for queue in self._parts.queues}
        self._parts.index.drop_before(self._parts.log.start)

    def _follow_some(self) -> None:
        queues, dropped = self._parts.queues, self._dropped
        for _ in range(min(FOLLOW_STEP, len(self._followers))):
            queue, first = self._followers.popitem()
            # A queue that was deleted meanwhile must not delete files of its successor.
            if queues.find(*queue.key) is queue:
                queues.follow(queue, self._parts.log.start)
                if dropped is not None and queue.min_offset > first:
                    first = dropped.ranges.get(queue.key, (first,))[0]
                    dropped.ranges[queue.key] = first, queue.min_offset
        if not self._followers and dropped is not None:
            self._dropped = None
            self._on_dropped(dropped)

    # stopping

    def end_writing(self) -> None:
        """Wait for queue entries that are being written. Raises StoreError if the disk does not respond."""
        timeout_s = self._parts.settings.close_timeout_ms / 1000
        if not self._parts.queue_writer.close(timeout_s):
            raise StoreError(
                "the result of the last write to consume queues is unknown: the disk did not respond within "
                f"{timeout_s:g} s"
            )

    def stop(self) -> None:
        """After the last record is synced: write and sync all derived files, so that the next start is quick."""
        parts = self._parts
        self.repair.close()
        try:
            while self._followers:
                self._follow_some()
            # Completely: a RocketMQ broker that opens this store next never searches for missing keys.
            stop_at = parts.clock.monotonic() + parts.settings.close_timeout_ms / 1000
            self.index_for(parts.settings.close_timeout_ms / 1000)
            while parts.index.write_next() and parts.clock.monotonic() < stop_at:
                self.index_for(max(0.0, stop_at - parts.clock.monotonic()))
            self._unsynced.update(dict.fromkeys(parts.queues.flush()))
            self._new_folders.update(dict.fromkeys(parts.queues.take_new_folders()))
            for path in sorted(self._unsynced):
                _sync(parts, path)
            for folder in self._new_folders:
                if parts.files.status(folder) is not None:
                    parts.files.sync_dir(folder)
            parts.checkpoint.physic_ms = max(parts.checkpoint.physic_ms, parts.flusher.synced_ms)
            parts.checkpoint.logics_ms = self._entered_ms
            parts.index.settle(parts.log.synced, self._save_index_time)
            self._save_index_time(parts.checkpoint.index_ms)
            self._resume.save_clean()
        except OSError as error:
            raise disk_error("cannot close the store cleanly; the next start recovers it", error) from error

    def _save_index_time(self, index_ms: int) -> None:
        self._parts.checkpoint.index_ms = index_ms
        for path in self._parts.checkpoint.save():
            _sync(self._parts, path)
        self._parts.checkpoint.saved()

    # what fails

    def _guarded(self, what: str, step: Callable[[], object]) -> None:
        """Run a step that writes files. If the disk rejects derived files, the store rejects messages, but the
        program continues.
        """
        try:
            step()
        except (OSError, StoreError) as error:
            self._fail(what, error)
        else:
            self._works(what)

    def _works(self, what: str) -> None:
        if self._failures.pop(what, None) is not None:
            log.warning("%s: the disk accepts writes again", what)
            self._judge()

    def _fail(self, what: str, error: OSError | StoreError) -> None:
        if what not in self._failures:
            log.error("%s: disk error, retrying: %s", what, error)
        if isinstance(error, OSError):
            error = disk_error(f"the store cannot write its {what}", error)
        self._failures[what] = error
        self._judge()

    def _judge(self) -> None:
        refusing = (self._failures[what] for what in _NEEDED if what in self._failures)
        self.derived_failure = next(refusing, None)


def _sync(parts: StoreParts, path: Path) -> None:
    """Sync a file, unless it was deleted meanwhile, with its topic or by retention."""
    if parts.files.status(path) is None:
        return
    with parts.files.open(path) as file:
        file.sync()

"""The background work of a store, a little at every tick, so that no turn waits for it.

    every tick        timeouts and syncs of the log; a slice of the key index, smaller while messages arrive, and its
                      next write; a slice of what follows retention; a slice of the repair of a damaged consume queue
    every 0.1 s       write the entries of queues that have many pending, in a thread
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
"""How long one tick may spend on the key index; while messages come, a part of it: as large a part as there is backlog."""
INDEX_STEP = 128
"""Messages indexed between two looks at the clock."""
INDEX_PAYBACK = 2
"""Messages that are indexed for each new one when the backlog is full."""
LOOKUP_SLICE_S = 0.01
"""How long a look-up by key may keep its caller with the index; who can wait for more, waits for the ticks."""
LOOKUP_HURRY_S = 1.0
"""How long after a look-up each tick spends as much on the index as the look-up itself."""
STALLED_S = 0.1
"""How long the disk may take for a write to the log before nothing else is written to it."""
FULL_QUEUES_S = 0.1
"""How often entries of queues that have many pending are written. Each write of the thread costs the loop two switches, so few large ones are better."""
MAX_PENDING_BYTES = 64 * MIB
"""Queue entries that may gather in memory while the disk does not take them; beyond that no message is taken."""
DELETE_WAIT_S = 0.2
"""How long the deletion of a topic waits for a write to consume queues that is under way."""
FLUSHED_QUEUES_PER_S = 400
"""How many queues are flushed per second in the long run. To sync a file costs as much as fifty messages, so with thousands of
queues in use the next flush waits longer: with ten thousand, half a minute."""
RETENTION_S = 10.0
MAX_DROPS_BY_HAND = 200
"""Log files that one request of an administrator drops."""
FOLLOW_STEP = 100
"""Queues that follow the log's start in one tick."""
_NEEDED = ("queues", "index", "index files", "marks of deleted topics")
"""What must be written before more is taken: it would gather in memory, or count as deleted."""


class Upkeep:
    """Keeps the derived files, the checkpoint and the disk in order. Owned by the store's thread."""

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
        self._flushing = self._index_flushing = False
        self._entered_ms = 0
        self._max_backlog_bytes = settings.index_backlog_bytes if settings.index_enabled else inf
        self._written_seen = -1
        self._hurried_until = 0.0
        self._followers: dict[ConsumeQueue, int] = {}
        self._dropped: Dropped | None = None
        self._failures: dict[str, StoreError] = {}
        self.derived_failure: StoreError | None = None
        """Why queue or index files cannot be written; nothing is lost by it, but no message is taken meanwhile."""
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
            return  # the disk does not answer: whatever is written here would wait for it, and everybody with it
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
        if "index files" in self._failures or self._parts.index.is_flushing:
            self._guarded("index files", self._flush_index)
        if self._followers:
            self._guarded("files behind the log", self._follow_some)

    # queues

    def entered(self, touched: Collection[ConsumeQueue], count: int, store_ms: int) -> None:
        """So many queue entries were appended; the last of them belongs to a record with this store time."""
        self._entered_ms = store_ms
        parts = self._parts
        parts.queues.entered(touched)
        if parts.log.written - parts.index_builder.indexed_to > self._max_backlog_bytes:
            self._guarded("index", lambda: self._index_some(INDEX_PAYBACK * count))

    @property
    def is_flushing(self) -> bool:
        """Whether queue entries are being written, some at every tick."""
        return self._unwritten is not None

    def _begin_flush(self, now: float) -> None:
        """All that is pending now shall be written, in slices; then the checkpoint may speak of it.

        Not while the thread writes: of a queue that it has, later entries are pending, too, and it would count as written.
        """
        if self._unwritten is None and not self._parts.queue_writer.is_writing:
            self._unwritten = dict.fromkeys(self._parts.queues.dirty())
            self._thorough_at = now + self._thorough_s + len(self._unwritten) / FLUSHED_QUEUES_PER_S
            self._flushed = self._parts.log.written, self._entered_ms

    def _write_queues(self, now: float) -> None:
        """Let the thread write entries, unless it does: of queues that have many, and of those that the flush has still to write."""
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
        """A refusal counts until all are written: those that are may not be the ones refused."""
        self._fail("queues", error)

    def _limit_pending(self, now: float, queues_s: float) -> None:
        """Entries stay in memory while the disk does not take them; when these are too many, no message is taken."""
        if now < self._pending_at:
            return
        self._pending_at = now + 1
        pending = self._parts.queues.pending_bytes
        if pending > MAX_PENDING_BYTES:
            why = f"{pending} bytes of queue entries wait: a write has taken {queues_s * 1000:.0f} ms so far"
            self._fail("queues", StoreBusy(why))

    def _sync_queues(self) -> None:
        """All entries of this flush are in files: have them synced."""
        parts = self._parts
        flushed = self._flushed
        noted = self._resume.due_bounds()
        paths, self._unsynced = self._unsynced, {}
        folders, self._new_folders = self._new_folders, {}
        self._unwritten = None
        self._flushing = True

        def synced() -> None:
            self._flushing = False
            self._queue_times.synced(*flushed)
            self._resume.flushed(noted)

        parts.flusher.sync_files([*paths, *folders], synced)
        self._guarded("index files", self._flush_index)

    def delete_topic(self, topic: str) -> None:
        """Remove the queues of a topic, with their files."""
        if not self._parts.queue_writer.drain(DELETE_WAIT_S):  # it could make a file again that was removed
            raise StoreBusy(f"topic {topic} cannot be removed while a write to consume queues is not finished")
        try:
            self._resume.forget_topic(topic)
            self._parts.queues.delete_topic(topic)
        except OSError as error:
            raise disk_error(f"the queues of topic {topic} cannot be removed", error) from error

    def write_failed(self) -> None:
        """A turn was given back that had moved the end of the log."""
        self._guarded("marks of deleted topics", self._resume.lower_deletions)

    # index

    @property
    def index_backlog_bytes(self) -> int:
        """How far the key index is behind the log."""
        return self._parts.index_builder.backlog_bytes(self._parts.log.written)

    def hurry_index(self) -> None:
        """A caller waits for the index: for a while it is worked on though messages come."""
        self._hurried_until = self._parts.clock.monotonic() + LOOKUP_HURRY_S

    def index_now(self) -> None:
        """Let the index catch up before a look-up, for as long as a caller can wait."""
        self.hurry_index()
        self._guarded("index", lambda: self.index_for(LOOKUP_SLICE_S))

    def index_for(self, seconds: float) -> None:
        """Spend up to `seconds` on the index, but take one step in any case."""
        clock = self._parts.clock
        stop_at = clock.monotonic() + seconds
        while self._index_some(INDEX_STEP) and clock.monotonic() < stop_at:
            pass

    def _index_some(self, count: int) -> bool:
        """Index up to `count` messages; whether there are more."""
        parts = self._parts
        return parts.settings.index_enabled and parts.index_builder.work(parts.log.start, parts.log.written, count)

    def _index_slice_s(self, now: float) -> float:
        """What this tick may spend: a whole slice when no message came since the last, else as much as the backlog asks for.

        A short burst is over before its keys cost anything; in a long one the backlog grows until they are worked off as fast
        as they come.
        """
        seen, self._written_seen = self._written_seen, self._parts.log.written
        if now < self._hurried_until:
            return LOOKUP_SLICE_S
        if seen == self._written_seen:
            return INDEX_SLICE_S
        return INDEX_SLICE_S * min(1.0, self.index_backlog_bytes / max(1.0, self._max_backlog_bytes))

    def _flush_index(self) -> None:
        """Take the next step of writing the index back; each step waits for the sync of the one before."""
        parts = self._parts
        if self._index_flushing:
            return
        paths = parts.index.flush(parts.log.synced, parts.checkpoint.saved_index_ms)
        parts.checkpoint.index_ms = max(parts.checkpoint.index_ms, parts.index.newest_ms)
        if not paths:
            return
        self._index_flushing = True

        def synced() -> None:
            self._index_flushing = False
            self._guarded("index files", self._flush_index)

        parts.flusher.sync_files(paths, synced)

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
        """Up to which log offset keys were entered, and up to which store time they are safe of what was entered."""
        parts = self._parts
        if not parts.settings.index_enabled:
            return inf, inf
        return parts.index_builder.indexed_to, inf if parts.index.is_settled else parts.index.recorded_ms

    # retention

    def _aged_files(self) -> list[AgedFile]:
        """The oldest log files that may go, as many as one run drops, and one more, which stays."""
        most = min(self._parts.log.droppable, self._parts.settings.max_deletes_per_run)
        statuses = self._parts.log.file_statuses(most + 1)
        ends = [first for first, _ in statuses[1:]]
        return [
            AgedFile(first, self._written_ms(status.modified_ms, end))
            for (first, status), end in zip_longest(statuses, ends)
        ]

    def _written_ms(self, modified_ms: int, end: int | None) -> int:
        """When a log file that ends at `end` was last written.

        Its own date is by the wall clock, which may have been wrong just then. The store time of the next record never goes back.
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
        """Drop log files that are older than the retention time, whatever the hour; how many."""
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
        else:  # the queues have not all followed it yet: both are reported together
            self._dropped = before._replace(end_offset=end_offset, why=why)
        self.follow_log_start()

    def follow_log_start(self) -> None:
        """The oldest log files went: queues and index follow, the queues a few at a time."""
        # Where each begins is noted now: a reader makes its queue follow before its turn.
        known = self._followers
        self._followers = {queue: known.get(queue, queue.min_offset) for queue in self._parts.queues}
        self._parts.index.drop_before(self._parts.log.start)

    def _follow_some(self) -> None:
        queues, dropped = self._parts.queues, self._dropped
        for _ in range(min(FOLLOW_STEP, len(self._followers))):
            queue, first = self._followers.popitem()
            # One that was deleted meanwhile must not take the files of its successor with it.
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
        """Wait for queue entries that are being written. StoreError when the disk does not answer."""
        timeout_s = self._parts.settings.close_timeout_ms / 1000
        if not self._parts.queue_writer.close(timeout_s):
            raise StoreError(
                f"the result of the last write to consume queues is unknown: no answer within {timeout_s:g} s"
            )

    def stop(self) -> None:
        """After the log took its last record and is synced: bring everything derived to the disk, for a quick start."""
        parts = self._parts
        self.repair.close()
        try:
            while self._followers:
                self._follow_some()
            # All of it: a broker of the other kind that opens this store next never looks back for missing keys.
            self.index_for(parts.settings.close_timeout_ms / 1000)
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
        """Run a step that writes files. A disk that refuses derived files stops the taking of messages, not the program."""
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
    """Sync a file, unless it went meanwhile, with its topic or by retention."""
    if parts.files.status(path) is None:
        return
    with parts.files.open(path) as file:
        file.sync()

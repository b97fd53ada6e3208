"""Makes the queues match the log: recovery scans the log again from an offset L on. Also the report of a recovery.

    before the scan    each queue keeps its entries that point below L; these were safe before the checkpoint covered them
    during the scan    every record from L on adds its entry to its queue
    after the scan     queues with missing entries are rebuilt from the whole log; stale bytes become zeros

    files of a queue    [ expired ]   [ expired | kept … < L | torn, stale or lost ]
                        └ its name was restored by a crash; unlinked again

Recovery may be interrupted at any point and started again. Only a queue that is being rebuilt looks complete before it
is, so the resume point contains its name until all its entries are safe.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from pocketmq.codes import SysFlag
from pocketmq.errors import InvalidName
from pocketmq.model import LMQ_PREFIX, StoredMessage, parse_topic
from pocketmq.store.log.log_scan import LogScan, Unreadable, list_log_files
from pocketmq.store.parts import StoreParts
from pocketmq.store.queues.consume_queue import (
    ENTRY,
    ConsumeQueue,
    Entry,
    enters_queue,
    is_entry,
    is_head,
    is_message,
    log_offset_of,
    tags_code_of,
)
from pocketmq.store.queues.queue_entries import Placing, QueueSeries
from pocketmq.store.queues.queues import MAX_QUEUE_ID, MAX_QUEUE_OFFSET, QueueKey
from pocketmq.store.queues.sound_entries import points_to_message
from pocketmq.store.resume import Bounds, ResumePoint


class RecoveryReport(msgspec.Struct):
    """The findings and changes of a recovery."""

    clean: bool
    scanned_from: int = 0
    log_end: int = 0
    records: int = 0
    cut: str = ""
    """Why the log was truncated, with the offset; empty if it ended at unused bytes."""
    cut_bytes: int = 0
    """Nonzero bytes after the cut, which were overwritten."""
    rebuilt_queues: list[str] = []
    trimmed_queues: int = 0
    """Queues that had stale entries after their end."""
    discarded_index_files: int = 0
    unplaced: int = 0
    """Records with an impossible topic, queue or queue offset; they stay in the log but have no queue entry."""
    foreign: list[Path] = []
    seconds: float = 0.0
    is_new: bool = False
    """The store has never been used before."""

    def __str__(self) -> str:
        stop = "clean stop" if self.clean else "crash"
        if self.is_new:
            return "created a new, empty store"
        text = f"after a {stop}: scanned {self.records} records from log offset {self.scanned_from}, the log ends at {self.log_end}"
        if self.cut:
            text += f"; cut {self.cut} ({self.cut_bytes} bytes dropped)"
        if self.rebuilt_queues:
            text += f"; {len(self.rebuilt_queues)} queues rebuilt"
        if self.trimmed_queues:
            text += f"; {self.trimmed_queues} queues trimmed"
        if self.discarded_index_files:
            text += f"; {self.discarded_index_files} index files to rebuild"
        if self.unplaced:
            text += f"; {self.unplaced} records belong to no queue"
        if self.foreign:
            text += f"; {len(self.foreign)} unknown files left alone"
        return text


FLUSH_BYTES = 256 * 1024
"""Entries of a queue that are collected during a scan before they are written."""
_PREPARED = SysFlag.TRANSACTION_PREPARED
_pack_entry = ENTRY.pack


class QueueRecovery:
    """The queues of a store during recovery."""

    def __init__(self, parts: StoreParts, report: RecoveryReport, known: ResumePoint) -> None:
        self._parts = parts
        self._log, self._queues = parts.log, parts.queues
        self._report = report
        self._known = known
        self._delay_levels = parts.settings.delay_levels
        self._gaps: dict[QueueKey, int] = {}
        """Queues with missing entries, each with an offset that it must reach."""
        self._regular: dict[QueueKey, ConsumeQueue] = {}
        """Queues whose next record needs only a check of its offset."""
        for key in self._known.unfinished:
            self._record_gap(key, 0)

    # before the scan

    def resume(self) -> bool:
        """Read the bounds from the resume file of a clean stop; False if a necessary file is missing."""
        for (topic, queue_id), (low, high) in self._known.queues.items():
            queue = self._queues.get(topic, queue_id)
            queue.min_offset, queue.max_offset, queue.next_offset = low, high, high
            # A RocketMQ broker does not update the resume file when it deletes files, so the oldest or the newest may
            # be missing.
            if high > low and not self._queues.has_entry_files(queue, low, high - 1):
                self._queues.forget_all()
                return False
        return True

    def load(self) -> int:
        """Read the bounds from the files after a clean stop. Returns the log offset of the newest message with an
        entry, or -1.
        """
        for key, reached in self._queues.load().items():
            self._record_gap(key, reached)
        newest = -1
        for queue in self._queues:
            if self._has_lost_head(queue):
                self._record_gap(queue.key, queue.max_offset)
            entry = queue.entry(queue.max_offset - 1) if queue.max_offset > queue.min_offset else None
            if entry is not None and is_message(entry):
                newest = max(newest, entry[0])
        return newest

    def cut_to(self, log_offset: int) -> bool:
        """After a crash, keep the entries that point below `log_offset`. Returns whether any queue has a file."""
        assigned = set()
        for queue, starts in self._queues.scan():
            if starts:
                self._assign(queue, starts, log_offset)
                assigned.add(queue.key)
        for key, (low, high) in self._known.queues.items():
            if low == high and key not in assigned:  # it had no message even then, and no file that shows its offset
                self._queues.get(*key).begin_anew(high)
        return bool(assigned)

    def _assign(self, queue: ConsumeQueue, starts: list[int], log_offset: int) -> None:
        # Old files are deleted without waiting for the disk, so a crash may restore any of them, with a gap after it.
        for run in reversed(list(_runs(starts, self._queues.file_bytes))):
            self._queues.span_files(queue, run)
            self._cut_verified(queue, log_offset)
            if self._points_behind_deletion(queue, queue.max_offset - 1):
                break
        else:
            if queue.topic in self._known.deleted:
                self._queues.remove_files(queue)
                queue.begin_anew()
        if (
            not self._is_sound(queue, queue.min_offset)
            or self._has_lost_head(queue)
            or self._goes_on(queue, log_offset)
        ):
            self._record_gap(queue.key, queue.max_offset)

    def _has_lost_head(self, queue: ConsumeQueue) -> bool:
        """Whether files before the first one may be missing: only files of expired messages are deleted, and its own
        first message is not expired.
        """
        first = queue.min_offset - queue.min_offset % self._parts.settings.queue_file_entries
        low, _ = self._known.queues.get(queue.key, (0, 0))
        if first <= low or first >= queue.max_offset or queue.topic.startswith(LMQ_PREFIX):
            return False
        entry = queue.entry(first)
        return entry is not None and is_entry(entry) and not is_head(entry) and log_offset_of(entry) >= self._log.start

    def _goes_on(self, queue: ConsumeQueue, log_offset: int) -> bool:
        """Whether valid entries that point below `log_offset` follow the end that was found; then the entries between
        are damaged.
        """
        return any(
            is_message(entry) and entry[0] < log_offset and points_to_message(self._log, queue, offset, entry)
            for offset, entry in self._queues.entries_behind(queue)
        )

    def _points_behind_deletion(self, queue: ConsumeQueue, offset: int) -> bool:
        """Whether there is an entry at `offset` that was made after the last deletion of the topic, if any."""
        entry = queue.entry(offset) if offset >= queue.min_offset else None
        return entry is not None and log_offset_of(entry) >= self._known.deleted.get(queue.topic, -1)

    def _cut_verified(self, queue: ConsumeQueue, log_offset: int) -> None:
        """The entries before `log_offset` may be followed by anything, so bisection may go wrong: the last entry that
        it finds must be valid, otherwise the end is before it.
        """
        queue.min_offset = self._queues.first_message(queue)
        while True:
            end = queue.first_at_or_beyond(log_offset)
            queue.cut(end)
            if self._is_sound(queue, end - 1):
                return
            queue.cut(end - 1)

    def _is_sound(self, queue: ConsumeQueue, offset: int) -> bool:
        """Whether the entry at `offset` of the queue matches its message."""
        if not queue.min_offset <= offset < queue.max_offset:
            return True
        entry = queue.entry(offset)
        if entry is None or not is_entry(entry):
            return False
        if log_offset_of(entry) < self._log.start:
            return self._follows(queue, offset, entry)
        if offset == queue.min_offset and not self._points_behind_deletion(queue, offset):
            return False
        return not is_message(entry) or points_to_message(self._log, queue, offset, entry)

    def _follows(self, queue: ConsumeQueue, offset: int, entry: Entry) -> bool:
        """The record of an expired message is deleted, so only the entry before it can be checked: torn entries have
        no matching entry before them.
        """
        before = queue.entry(offset - 1) if offset > queue.min_offset else None
        return before is None or (is_entry(before) and log_offset_of(before) < log_offset_of(entry))

    # the scan

    def dispatch(self, log_offset: int, message: StoredMessage) -> None:
        """Add the entry of a scanned record to its queue."""
        queue, offset = self._regular.get((message.topic, message.queue_id)), message.queue_offset
        if queue is None or queue.next_offset != offset or offset > MAX_QUEUE_OFFSET or message.sys_flag & _PREPARED:
            self._dispatch_unusual(log_offset, message)
            return
        # Like `_enter`, without its calls: most records need no more, and a start waits for all of them.
        stored_ms = message.store_ms if queue.is_delay else 0
        code = tags_code_of(message.raw_properties, queue.is_delay, stored_ms, self._delay_levels)
        queue.pending += _pack_entry(log_offset, message.size, code)
        queue.max_offset = queue.next_offset = offset + 1
        if len(queue.pending) >= FLUSH_BYTES:
            queue.flush()

    def _dispatch_unusual(self, log_offset: int, message: StoredMessage) -> None:
        queue = self._queue_of(message)
        if queue is None or queue.key in self._gaps:
            return
        offset = message.queue_offset
        if offset == queue.next_offset:
            self._enter(queue, log_offset, message)
        elif offset > queue.next_offset:
            self._record_gap(queue.key, offset)
        elif self._report.clean and self._is_entered(queue, offset, log_offset):
            pass
        elif offset:
            self._record_gap(queue.key, queue.next_offset)  # files before the end that was found are missing or damaged
        else:
            # The topic was deleted and created again: its offsets restarted, and the older entries are not of its
            # messages.
            self._queues.remove_files(queue)
            queue.begin_anew(offset)
            self._enter(queue, log_offset, message)

    def _queue_of(self, message: StoredMessage) -> ConsumeQueue | None:
        """The queue of a record; None if it has none, or contains impossible values."""
        if not enters_queue(message.sys_flag):
            return None
        deleted = self._known.deleted
        if deleted and message.log_offset < deleted.get(message.topic, 0):
            return None
        queue = self._queues.find(message.topic, message.queue_id)
        if 0 <= message.queue_offset <= MAX_QUEUE_OFFSET and 0 <= message.queue_id <= MAX_QUEUE_ID:
            if queue is not None:
                return queue
            try:
                return self._queues.get(parse_topic(message.topic), message.queue_id)
            except InvalidName:
                pass
        self._report.unplaced += 1
        return None

    def _is_entered(self, queue: ConsumeQueue, offset: int, log_offset: int) -> bool:
        entry = queue.entry(offset) if offset >= queue.min_offset else None
        return entry is not None and entry[0] == log_offset

    def _enter(self, queue: ConsumeQueue, log_offset: int, message: StoredMessage) -> None:
        queue.append(log_offset, message.size, self._tags_code(queue, message))
        queue.next_offset = queue.max_offset
        self._queues.mark_dirty(queue)
        if queue.topic not in self._known.deleted:
            self._regular[queue.key] = queue
        if len(queue.pending) >= FLUSH_BYTES:
            queue.flush()

    def _tags_code(self, queue: ConsumeQueue, message: StoredMessage) -> int:
        return tags_code_of(message.raw_properties, queue.is_delay, message.store_ms, self._delay_levels)

    # after the scan

    def finish(self, *, trim: bool) -> None:
        """Rebuild missing entries, and, with `trim`, remove bytes after the ends of the queues."""
        if trim:
            for queue in self._queues:
                if not self._ends_in_log(queue):
                    queue.cut(queue.first_at_or_beyond(self._log.end))
        for key, (low, high) in self._known.queues.items():
            known = self._queues.find(*key)
            # Nothing expired since the clean stop, so the first file is missing if a queue begins later.
            if known is None or known.max_offset < high or (self._report.clean and known.min_offset > low):
                self._record_gap(key, high)
        if self._gaps:
            self._rebuild_gaps()
        if trim:
            for queue in self._queues:
                self._trim(queue)

    def _ends_in_log(self, queue: ConsumeQueue) -> bool:
        """Whether the last entry is valid, and so all are below the end of the log. A search among damaged entries
        could go wrong.
        """
        entry = queue.entry(queue.max_offset - 1)
        return entry is not None and points_to_message(self._log, queue, queue.max_offset - 1, entry)

    def _record_gap(self, key: QueueKey, offset: int) -> None:
        _, high = self._known.queues.get(key, (0, 0))
        self._regular.pop(key, None)
        self._gaps[key] = max(offset, high, self._gaps.get(key, 0))

    def _rebuild_gaps(self) -> None:
        """Rebuild the queues with missing entries from the whole log, damaged or not."""
        gaps = self._gaps
        highs = {key: (0, high) for key, high in gaps.items()}
        self._save_point(self._known.queues | highs, unfinished=sorted(gaps))
        for key, high in gaps.items():
            queue = self._queues.get(*key)
            self._queues.remove_files(queue)
            queue.begin_anew(high)  # also if all its messages are deleted from the log: its offsets continue
        rebuilt = self._assign_again(gaps)
        self._sync_queues()
        self._save_point({queue.key: (queue.min_offset, queue.max_offset) for queue in self._queues})
        self._report.rebuilt_queues = sorted(f"{topic}:{queue_id}" for topic, queue_id in rebuilt)

    def _save_point(self, queues: dict[QueueKey, Bounds], unfinished: Sequence[QueueKey] = ()) -> None:
        deleted = self._parts.deleted_topics
        self._parts.resume.save(ResumePoint(clean=False, queues=queues, unfinished=list(unfinished), deleted=deleted))

    def _assign_again(self, gaps: dict[QueueKey, int]) -> set[QueueKey]:
        """Assign every record to these queues again. Returns the queues that have records."""
        files, segments = self._parts.files, self._log.segments
        series = QueueSeries(self._queues)
        assigned: set[QueueKey] = set()
        for message in LogScan(files, list_log_files(files, segments.folder), segments.file_bytes):
            if isinstance(message, Unreadable) or (message.topic, message.queue_id) not in gaps:
                continue
            queue = self._queue_of(message)
            if queue is None:
                continue
            code = self._tags_code(queue, message)
            series.assign(queue, Placing(message.queue_offset, message.log_offset, message.size, code))
            assigned.add(queue.key)
            if len(queue.pending) >= FLUSH_BYTES:
                queue.flush()
        series.finish()
        self._report.unplaced += len(series.misplaced)
        return assigned

    def _sync_queues(self) -> None:
        files = self._parts.files
        for path in self._queues.flush():
            with files.open(path) as file:
                file.sync()
        for folder in self._queues.take_new_folders():
            files.sync_dir(folder)

    def _trim(self, queue: ConsumeQueue) -> None:
        """Overwrite stale bytes after the end of a queue, so that no crash restores them."""
        queue.raise_min(self._log.start)
        queue.flush()
        if self._queues.zero_behind(queue):
            self._report.trimmed_queues += 1


def _runs(starts: list[int], file_bytes: int) -> Iterator[list[int]]:
    """Groups of adjacent files without a gap, the oldest first."""
    run: list[int] = []
    for start in starts:
        if run and start != run[-1] + file_bytes:
            yield run
            run = []
        run.append(start)
    yield run

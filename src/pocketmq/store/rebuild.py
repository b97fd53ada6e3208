"""Makes the derived files of a store new: consume queues and key index, from the log alone.

    log ──► rebuild/consumequeue, rebuild/index ──► synced ──► take the places of the old files, one by one
            beside the old ones, which nobody touches yet

A crash at any moment leaves, for each queue file, the old one or the new one, and a mark by which the next start looks for
damage. Running it again completes it. The log and the tables are only read; a part of the log that cannot be read is passed over,
so that the messages behind it keep their places. What is not understood is left where it is.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from pocketmq.clock import Clock
from pocketmq.files import Files, zero_from
from pocketmq.model.flags import SysFlag
from pocketmq.model.message import StoredMessage
from pocketmq.model.names import LMQ_PREFIX, is_system_topic
from pocketmq.store.checkpoint import FILE_BYTES as CHECKPOINT_BYTES
from pocketmq.store.checkpoint import Checkpoint
from pocketmq.store.checks.findings import Progress
from pocketmq.store.checks.table_check import TableCheck
from pocketmq.store.consume_queue import ENTRY, ENTRY_BYTES, NOTHING_HERE_SIZE, is_entry
from pocketmq.store.dispatch import enters_queue, tags_code_of
from pocketmq.store.dump import Skipped
from pocketmq.store.index_file import PlacedKey
from pocketmq.store.key_index import KeyIndex
from pocketmq.store.layout import StoreLayout
from pocketmq.store.log_scan import LogScan, Unreadable, written_bytes
from pocketmq.store.owner import Owner
from pocketmq.store.queue_entries import QueueEntries, QueueFile, list_queue_files
from pocketmq.store.queue_series import Placing, QueueSeries
from pocketmq.store.queues import QueueKey, Queues
from pocketmq.store.rebuild_plan import is_topic, list_queues
from pocketmq.store.resume import ResumeFile, ResumePoint
from pocketmq.store.segments import MAX_OFFSET
from pocketmq.store.settings import StoreSettings
from pocketmq.store.staging import Staging

FLUSH_BYTES: Final = 8 * 1024
"""Entries that a queue collects before they are written: there may be ten thousand queues."""
SETTLE_MESSAGES: Final = 1_000_000
"""Messages after which index files that became full are let go of: each has its slots in memory until then."""
PUT_KEYS: Final = 1024
"""Keys that are entered into the index at once."""
PROGRESS_BYTES: Final = 1024 * 1024
"""Bytes of the log between two reports of progress."""

Event = Progress | Skipped


class RebuildReport(msgspec.Struct):
    """What a rebuild did."""

    messages: int = 0
    queues: int = 0
    queue_entries: int = 0
    index_files: int = 0
    removed_files: int = 0
    """Old queue files that no new one took the place of."""
    gaps: int = 0
    """Queue offsets whose messages are not in the log."""
    deleted_topics: list[str] = []
    """Topics with messages in the log that exist no more: they got no queues."""
    kept_queues: list[str] = []
    """Queues that were left as they were: batches, which are not understood."""


class Rebuild:
    """One rebuild. Iterate over `run`; afterwards, `report` tells what was done."""

    def __init__(self, files: Files, clock: Clock, layout: StoreLayout) -> None:
        assert layout.index_shape is not None, "the plan was made before"
        self._files = files
        self._layout = layout
        self._staging = Staging(files, layout)
        settings = StoreSettings(
            folder=self._staging.folder,
            queue_file_entries=layout.queue_file_entries,
            index_slots=layout.index_shape.slots,
            index_entries=layout.index_shape.entries,
        )
        self._queues = Queues(settings, files)
        self._series = QueueSeries(self._queues)
        self._index = KeyIndex(settings, files, clock)
        self._old_queues = set(list_queues(files, layout))
        self._batches: set[QueueKey] = set()
        self._deleted_topics: set[str] = set()
        self._topics: frozenset[str] | None = None
        self._keys: list[PlacedKey] = []
        self._newest_ms = 0
        self._skipped = 0
        self._is_moving = False
        self.report = RebuildReport(deleted_topics=[], kept_queues=[])

    def run(self) -> Iterator[Event]:
        """Take the store and rebuild. StoreLocked when somebody has it; nothing is lost, whenever this ends."""
        owner = Owner(self._files, self._layout.folder)
        was_clean = owner.take()
        done = False
        try:
            self._staging.clear()
            yield from self._make()
            self._is_moving = True
            self._move()
            self._save_checkpoint(was_clean=was_clean)
            done = True
        finally:
            self._queues.close()
            self._index.close()
            self._staging.discard()
            # As long as nothing was moved, the store is what it was.
            owner.release(clean=was_clean and (done or not self._is_moving))

    # making

    def _make(self) -> Iterator[Event]:
        self._index.load()
        self._topics = self._existing_topics()
        scan = LogScan(self._files, self._layout.log_files, self._layout.log_file_bytes)
        start, total = self._layout.log_start, written_bytes(self._files, self._layout.log_files)
        report_at = start
        for found in scan:
            if isinstance(found, Unreadable):
                self._skipped += 1
                yield Skipped(f"no sound record from log offset {found.begin} to {found.end}: {found.reason}")
                continue
            self._take(found)
            if found.log_offset >= report_at:
                yield Progress(min(found.log_offset - start, total), total)
                report_at = found.log_offset + PROGRESS_BYTES
        self._series.finish()
        yield from self._told()
        self._sync()
        yield Progress(total, total)

    def _existing_topics(self) -> frozenset[str] | None:
        tables = TableCheck(self._files, self._layout.folder)
        for _ in tables.run():
            pass  # what is wrong with the tables is not asked here
        return tables.topics

    def _take(self, message: StoredMessage) -> None:
        self.report.messages += 1
        self._newest_ms = max(self._newest_ms, message.store_ms)
        if enters_queue(message.sys_flag) and self._has_queue(message):
            self._place(message)
        self._keys += self._index.keys_of(
            message.topic.encode(), message.raw_properties, message.sys_flag, message.log_offset, message.store_ms
        )
        if len(self._keys) >= PUT_KEYS:
            self._put_keys()
        if self.report.messages % SETTLE_MESSAGES == 0:
            self._index.settle(MAX_OFFSET, _no_checkpoint)

    def _put_keys(self) -> None:
        keys, self._keys = self._keys, []
        self._index.put(keys)

    def _has_queue(self, message: StoredMessage) -> bool:
        """Whether a message belongs into a queue that is made here: of a topic that exists, and of the usual kind."""
        key = (message.topic, message.queue_id)
        if message.sys_flag & SysFlag.INNER_BATCH:
            self._batches.add(key)
        if key in self._batches:
            return False
        if self._queues.find(*key) is not None:
            return True
        if message.queue_id < 0 or not is_topic(message.topic) or message.topic.startswith(LMQ_PREFIX):
            return False
        if key in self._old_queues:
            return True
        if message.queue_offset and not self._layout.log_start and not self._skipped:
            self._series.misplaced.append(message.log_offset)  # nothing is gone, so a queue begins with its message 0
            return False
        if self._topics is None or message.topic in self._topics or is_system_topic(message.topic):
            return True
        self._deleted_topics.add(message.topic)
        return False

    def _place(self, message: StoredMessage) -> None:
        queue = self._queues.get(message.topic, message.queue_id)
        code = tags_code_of(message.raw_properties, queue.is_delay, message.store_ms, self._layout.delay_levels)
        self._series.place(queue, Placing(message.queue_offset, message.log_offset, message.size, code))
        if len(queue.pending) >= FLUSH_BYTES:
            queue.flush()

    def _told(self) -> Iterator[Skipped]:
        for log_offset in self._series.corrected:
            yield Skipped(
                f"the record at log offset {log_offset} says a wrong queue offset; the ones around it tell its own"
            )
        for log_offset in self._series.misplaced:
            yield Skipped(f"the record at log offset {log_offset} fits into no queue and was left out")

    def _sync(self) -> None:
        """What is renamed must be safe before: else a crash could leave the new name without its bytes."""
        for path in self._queues.flush():
            with self._files.open(path) as file:
                file.sync()
        self._queues.close()
        self._put_keys()
        self._index.settle(MAX_OFFSET, _no_checkpoint)
        self._index.close()

    # moving

    def _move(self) -> None:
        made = [
            queue for queue in self._queues if queue.max_offset > queue.min_offset and queue.key not in self._batches
        ]
        self._save_resume({queue.key: (queue.min_offset, queue.max_offset) for queue in made})
        report = self.report
        for queue in made:
            report.removed_files += self._staging.move_queue(*queue.key)
        self._staging.keep_queues({queue.topic for queue in made})
        for key in sorted(self._old_queues - {queue.key for queue in made} - self._batches):
            report.removed_files += self._trim(*key)
        report.index_files = self._staging.move_index()
        report.queues = len(made)
        report.queue_entries = self._series.entries
        report.gaps = self._series.gaps
        report.deleted_topics = sorted(self._deleted_topics)
        report.kept_queues = sorted(f"{topic}/{queue_id}" for topic, queue_id in self._batches)

    def _save_resume(self, bounds: dict[QueueKey, tuple[int, int]]) -> None:
        """The file of where the queues end must not say anything that is no longer true."""
        resume = ResumeFile(self._files, self._layout.folder)
        if self._files.status(resume.path) is not None:
            old = resume.load() or ResumePoint(clean=False)
            resume.save(msgspec.structs.replace(old, clean=False, queues=old.queues | bounds))

    def _trim(self, topic: str, queue_id: int) -> int:
        """A queue of which the log has no message: entries of messages that expired stay, all others go. How many files.

        Its last entry tells with which offset the queue goes on, so it must not vanish with the messages.
        """
        folder = self._layout.queue_folder / topic / str(queue_id)
        ours = list_queue_files(self._files, folder)
        end = self._end_of_expired(ours, folder) * ENTRY_BYTES if ours else 0
        removed = 0
        for file in ours:
            if file.first >= end:
                self._files.unlink(file.path)
                removed += 1
            elif file.first + file.size > end:
                with self._files.open(file.path) as opened:
                    if zero_from(opened, end - file.first, file.size):
                        opened.sync()
        if removed:
            self._files.sync_dir(folder)
        return removed

    def _end_of_expired(self, ours: list[QueueFile], folder: Path) -> int:
        entries = QueueEntries(self._files, folder, self._layout.queue_file_entries)
        offset = ours[0].first // ENTRY_BYTES
        while len(raw := entries.raw(offset)) == ENTRY_BYTES:
            entry = ENTRY.unpack(raw)
            is_gone = entry[1] == NOTHING_HERE_SIZE or entry[0] < self._layout.log_start
            if not (is_entry(entry) and is_gone):
                break
            offset += 1
        return offset

    def _save_checkpoint(self, *, was_clean: bool) -> None:
        """After a clean stop all files are whole now, and the checkpoint says so. After a crash it stays as careful as it was."""
        checkpoint = Checkpoint(self._files, self._layout.folder).load()
        if was_clean:
            checkpoint.logics_ms = checkpoint.index_ms = self._newest_ms
            checkpoint.physic_ms = self._newest_ms if checkpoint.flaw else checkpoint.physic_ms
        checkpoint.save()
        with self._files.open(checkpoint.path) as file:
            file.truncate(CHECKPOINT_BYTES)
            file.sync()
        checkpoint.saved()


def _no_checkpoint(index_ms: int) -> None:
    """New files are not under the checkpoint's eye yet."""

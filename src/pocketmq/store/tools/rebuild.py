"""Rebuilds the derived files of a store, consume queues and key index, from the log alone.

    log ──► rebuild/consumequeue, rebuild/index ──► synced ──► replace the old files, one by one
            below the store's own folder, so that a rename moves them

    each queue file   renamed over the old one; old files without a successor are deleted after that
    index files       the old ones are deleted, newest first; then the new ones are moved in, oldest first

After a crash, each queue has complete files, old or new, and a mark makes the next start check for damage. The index
then contains the first files of the old or of the new one. A second run completes the rebuild. The log and the tables
are only read. Unreadable parts of the log are skipped, so the messages after them keep their offsets. Files with
unknown names are never deleted.
"""

from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from pocketmq.clock import Clock
from pocketmq.codes import SysFlag
from pocketmq.errors import InvalidSetting, StoreError
from pocketmq.files import Files, files_below
from pocketmq.model import LMQ_PREFIX, StoredMessage, is_system_topic, is_topic
from pocketmq.store.checkpoint import FILE_BYTES as CHECKPOINT_BYTES
from pocketmq.store.checkpoint import Checkpoint
from pocketmq.store.index.index_file import KeyEntry, list_index_files
from pocketmq.store.index.key_index import KeyIndex
from pocketmq.store.layout import INDEX, LOG, QUEUES, StoreLayout
from pocketmq.store.log.log_scan import LogScan, Unreadable, written_bytes
from pocketmq.store.log.segments import MAX_OFFSET, zero_from
from pocketmq.store.owner import Owner
from pocketmq.store.queues.consume_queue import (
    ENTRY,
    ENTRY_BYTES,
    NOTHING_HERE_SIZE,
    enters_queue,
    is_entry,
    tags_code_of,
)
from pocketmq.store.queues.queue_entries import (
    Placing,
    QueueEntries,
    QueueFile,
    QueueSeries,
    list_queue_files,
    list_queue_ids,
)
from pocketmq.store.queues.queues import QueueKey, Queues
from pocketmq.store.resume import ResumeFile, ResumePoint
from pocketmq.store.settings import StoreSettings
from pocketmq.store.tools.dump import Skipped
from pocketmq.store.tools.findings import Progress
from pocketmq.store.tools.folder_check import STAGING, TableCheck


class RebuildPlan(msgspec.Struct, frozen=True):
    """The files that a rebuild creates or deletes."""

    queue_files: list[QueueFile]
    index_files: list[Path]
    log_bytes: int


def plan_rebuild(files: Files, layout: StoreLayout) -> RebuildPlan:
    """The files that a rebuild would replace. Raises StoreError without a log, InvalidSetting if the shape of index
    files is unknown.
    """
    if not layout.log_files:
        raise StoreError(f"there is no log in {layout.folder / LOG}, so there is nothing to rebuild from")
    if layout.index_shape is None:
        raise InvalidSetting(
            f"the files in {layout.index_folder} do not contain their numbers of slots and entries, and new files "
            "must have the same numbers. Set index_slots and index_entries (maxHashSlotNum, maxIndexNum)"
        )
    queue_files = [
        file
        for topic, queue_id in list_queues(files, layout)
        for file in list_queue_files(files, layout.queue_folder / topic / str(queue_id))
    ]
    index_files = list_index_files(files, layout.index_folder)
    return RebuildPlan(queue_files, index_files, written_bytes(files, layout.log_files))


def list_queues(files: Files, layout: StoreLayout) -> list[QueueKey]:
    """The queues on disk that a rebuild can handle."""
    topics = [name for name in files.list(layout.queue_folder) if is_topic(name) and not name.startswith(LMQ_PREFIX)]
    return [(topic, queue_id) for topic in topics for queue_id in list_queue_ids(files, layout.queue_folder / topic)]


class Staging:
    """The work folder of a rebuild."""

    def __init__(self, files: Files, layout: StoreLayout) -> None:
        self._files = files
        self._layout = layout
        self.folder = layout.folder / STAGING

    def clear(self) -> None:
        """Delete the files of an earlier rebuild. Raises StoreError if there are other files, which stay."""
        if self._files.status(self.folder) is None:
            return
        paths = list(files_below(self._files, self.folder))
        strangers = [path for path in paths if not self._is_ours(path)]
        if strangers:
            raise StoreError(
                f"{strangers[0]} is in {self.folder}, the work folder of a rebuild, but no rebuild created it. "
                "Move it away first"
            )
        for path in paths:
            self._files.unlink(path)
        self._remove_folders(self.folder)

    def _is_ours(self, path: Path) -> bool:
        top = path.relative_to(self.folder).parts[0]
        if top == QUEUES:
            return any(path == file.path for file in list_queue_files(self._files, path.parent))
        return top == INDEX and path in list_index_files(self._files, path.parent)

    def _remove_folders(self, folder: Path) -> None:
        for name in self._files.list(folder):
            self._remove_folders(folder / name)
        self._files.remove_dir(folder)

    def move_queue(self, topic: str, queue_id: int) -> int:
        """Replace the old files of a queue with the new ones. Returns how many old ones had no successor."""
        source = self.folder / QUEUES / topic / str(queue_id)
        target = self._layout.queue_folder / topic / str(queue_id)
        self._files.make_dir(target)
        new = [file.path.name for file in list_queue_files(self._files, source)]
        for name in new:
            self._files.replace(source / name, target / name)
        old = [file.path for file in list_queue_files(self._files, target) if file.path.name not in new]
        for path in old:
            self._files.unlink(path)
        self._files.sync_dir(target)
        return len(old)

    def keep_queues(self, topics: Collection[str]) -> None:
        """After this, the names of new folders for queues of these topics are synced."""
        for topic in sorted(topics):
            self._files.sync_dir(self._layout.queue_folder / topic)
        if topics:
            self._files.sync_dir(self._layout.queue_folder)
            self._files.sync_dir(self._layout.folder)

    def move_index(self) -> int:
        """Replace the old index files with the new, synced ones. Returns their number."""
        for path in reversed(list_index_files(self._files, self._layout.index_folder)):
            self._files.unlink(path)
        self._files.make_dir(self._layout.index_folder)
        self._files.sync_dir(self._layout.index_folder)
        new = list_index_files(self._files, self.folder / INDEX)
        for path in new:
            self._files.replace(path, self._layout.index_folder / path.name)
            self._files.sync_dir(self._layout.index_folder)
        self._files.sync_dir(self._layout.folder)
        return len(new)

    def discard(self) -> None:
        """Delete as much as possible: called after another error, which must be reported instead."""
        with suppress(OSError, StoreError):
            self.clear()


FLUSH_BYTES: Final = 8 * 1024
"""The limit on entries that a queue collects before they are written: there may be ten thousand queues."""
SETTLE_MESSAGES: Final = 1_000_000
"""After so many messages, full index files are closed: each has its slots in memory until then."""
PUT_KEYS: Final = 1024
"""Keys that are added to the index at once."""
PROGRESS_BYTES: Final = 1024 * 1024
"""Bytes of the log between two reports of progress."""

Event = Progress | Skipped


class RebuildReport(msgspec.Struct):
    """The result of a rebuild."""

    messages: int = 0
    queues: int = 0
    queue_entries: int = 0
    index_files: int = 0
    removed_files: int = 0
    """Old queue files without a new one."""
    gaps: int = 0
    """Queue offsets whose messages are not in the log."""
    deleted_topics: list[str] = []
    """Deleted topics with messages in the log: they got no queues."""
    kept_queues: list[str] = []
    """Queues that were not changed: batch queues, which are not supported."""


class Rebuild:
    """One rebuild. Iterate over `run`; then `report` contains the result."""

    def __init__(self, files: Files, clock: Clock, layout: StoreLayout) -> None:
        assert layout.index_shape is not None, "the plan exists"
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
        self._keys: list[KeyEntry] = []
        self._newest_ms = 0
        self._skipped = 0
        self._is_moving = False
        self.report = RebuildReport(deleted_topics=[], kept_queues=[])

    def run(self) -> Iterator[Event]:
        """Lock the store and rebuild. Raises StoreLocked if another process has it. Nothing is lost if the caller
        stops early.
        """
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
            # Until the first file is moved, the store is unchanged.
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
                yield Skipped(f"no valid record from log offset {found.begin} to {found.end}: {found.reason}")
                continue
            self._take(found)
            if found.log_offset >= report_at:
                yield Progress(min(found.log_offset - start, total), total)
                report_at = found.log_offset + PROGRESS_BYTES
        self._series.finish()
        yield from self._described()
        self._sync()
        yield Progress(total, total)

    def _existing_topics(self) -> frozenset[str] | None:
        tables = TableCheck(self._files, self._layout.folder)
        for _ in tables.run():
            pass  # errors in the tables do not matter here
        return tables.topics

    def _take(self, message: StoredMessage) -> None:
        self.report.messages += 1
        self._newest_ms = max(self._newest_ms, message.store_ms)
        if enters_queue(message.sys_flag) and self._has_queue(message):
            self._assign(message)
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
        """Whether a message belongs to a queue that is rebuilt: a regular queue of a topic that exists."""
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
            self._series.misplaced.append(
                message.log_offset
            )  # no message is deleted, so a queue begins with its message 0
            return False
        if self._topics is None or message.topic in self._topics or is_system_topic(message.topic):
            return True
        self._deleted_topics.add(message.topic)
        return False

    def _assign(self, message: StoredMessage) -> None:
        queue = self._queues.get(message.topic, message.queue_id)
        code = tags_code_of(message.raw_properties, queue.is_delay, message.store_ms, self._layout.delay_levels)
        self._series.assign(queue, Placing(message.queue_offset, message.log_offset, message.size, code))
        if len(queue.pending) >= FLUSH_BYTES:
            queue.flush()

    def _described(self) -> Iterator[Skipped]:
        for log_offset in self._series.corrected:
            yield Skipped(
                f"the record at log offset {log_offset} has a wrong queue offset; its neighbours show its own"
            )
        for log_offset in self._series.misplaced:
            yield Skipped(f"the record at log offset {log_offset} fits into no queue and was skipped")

    def _sync(self) -> None:
        """Files are synced before the rename; otherwise a crash could leave the new name without its bytes."""
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
        """The resume file must not contain outdated bounds."""
        resume = ResumeFile(self._files, self._layout.folder)
        if self._files.status(resume.path) is not None:
            old = resume.load() or ResumePoint(clean=False)
            resume.save(msgspec.structs.replace(old, clean=False, queues=old.queues | bounds))

    def _trim(self, topic: str, queue_id: int) -> int:
        """A queue without messages in the log: entries of expired messages stay, all others are deleted. Returns the
        number of files.

        Its last entry contains the offset at which the queue continues, so it must stay.
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
            is_expired = entry[1] == NOTHING_HERE_SIZE or entry[0] < self._layout.log_start
            if not (is_entry(entry) and is_expired):
                break
            offset += 1
        return offset

    def _save_checkpoint(self, *, was_clean: bool) -> None:
        """After a clean stop, all files are complete now, and the checkpoint covers them. After a crash, it is
        unchanged.
        """
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
    """New files are not covered by the checkpoint yet."""

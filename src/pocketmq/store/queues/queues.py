"""All consume queues of a store, by topic and queue id. An idle queue costs a small object and no open file.

    consumequeue/<topic>/<queue id>/<byte offset of the first entry, 20 digits>

Entries are pending in memory, then in files, then safe. Bytes are safe after the paths from `take_written` are synced,
names after the folders from `take_new_folders` are. Before that a crash may lose any part of them, so the checkpoint
covers entries only after both syncs.

Files with other names are not changed. A file that is too long is damage. A new file gets its full size before its
first entry, but a crash may lose that size, or a part of it, until the file is synced. After a clean stop, a file
that is too short has lost its end, and its queue is rebuilt. If no file has the right size, the settings are wrong.
"""

import logging
from bisect import bisect_left
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Final

from pocketmq.errors import InvalidName, StoreDamaged
from pocketmq.files import Files
from pocketmq.model import TopicName, parse_topic
from pocketmq.store.log.segments import MAX_OFFSET, NAME_DIGITS, OpenFiles, zero_from
from pocketmq.store.queues.consume_queue import (
    ENTRY,
    ENTRY_BYTES,
    ConsumeQueue,
    Entered,
    Entry,
    is_entry,
    is_head,
    take_out,
)
from pocketmq.store.settings import PAGE_BYTES, StoreSettings

log = logging.getLogger("pocketmq.store")

QueueKey = tuple[str, int]
MAX_QUEUE_ID: Final = 2**31 - 1
MAX_QUEUE_OFFSET: Final = MAX_OFFSET // ENTRY_BYTES
_ADVICE = "Set queue_file_entries (mappedFileSizeConsumeQueue) to the value that the store was created with"


class QueueFolders:
    """The folders of all queues, whose files have `file_bytes` each."""

    def __init__(self, files: Files, folder: Path, file_bytes: int) -> None:
        self._files = files
        self._folder = folder
        self._file_bytes = file_bytes
        self.foreign: list[Path] = []
        """Other entries of the folder, found by the last scan."""
        self.damaged: dict[QueueKey, int] = {}
        """Queues with a truncated file, found by the last scan, and the start of that file."""

    def scan(self, *, mend: bool) -> Iterator[tuple[TopicName, int, list[int]]]:
        """Every queue that has a folder: topic, queue id, and where its files begin.

        A file that is too short is extended. After a crash (`mend`) that is normal. Otherwise the queue is damaged,
        and an empty file before the last one counts as missing.
        """
        self.foreign = []
        self.damaged = {}
        for name in self._names_in(self._folder):
            folder = self._folder / name
            try:
                topic = parse_topic(name)
            except InvalidName:
                self.foreign.append(folder)
                continue
            for queue_name in self._names_in(folder):
                queue_id = _parse_queue_id(queue_name)
                found = None if queue_id is None else self._find(folder / queue_name)
                if queue_id is None or found is None:
                    self.foreign.append(folder / queue_name)
                    continue
                ours, foreign = found
                self.foreign += foreign
                for start, size in ours:
                    self._check(folder / queue_name / file_name(start), start, size, mend=mend)
                    if 0 < size < self._file_bytes and not mend:
                        self.damaged[topic, queue_id] = start
                yield topic, queue_id, [start for start, size in ours if size or mend or start == ours[-1][0]]

    def starts(self, folder: Path) -> list[int]:
        """The starts of the files of the queue in `folder`, in order; without files of impossible names or sizes."""
        ours, _ = self._find(folder) or ([], [])
        return [start for start, size in ours if start % self._file_bytes == 0 and size <= self._file_bytes]

    def _names_in(self, folder: Path) -> list[str]:
        try:
            return self._files.list(folder)
        except NotADirectoryError:
            self.foreign.append(folder)
            return []

    def _find(self, folder: Path) -> tuple[list[tuple[int, int]], list[Path]] | None:
        """Start and size of every file with a valid name, in order, and the other entries; None if there is no folder."""
        try:
            names = self._files.list(folder)
        except NotADirectoryError:
            return None
        ours, foreign = [], []
        for name in names:
            status = self._files.status(folder / name)
            named = len(name) == NAME_DIGITS and name.isascii() and name.isdecimal() and int(name) <= MAX_OFFSET
            if status is None or status.is_dir or not named:
                foreign.append(folder / name)
            else:
                ours.append((int(name), status.size))
        return ours, foreign

    def _check(self, path: Path, start: int, size: int, *, mend: bool) -> None:
        if start % self._file_bytes:
            raise StoreDamaged(
                f"{path} begins at {start}, which is not a multiple of the file size {self._file_bytes}. {_ADVICE}"
            )
        is_cut = 0 < size < self._file_bytes and not mend
        if size > self._file_bytes or (is_cut and size % ENTRY_BYTES == 0 and not self._has_whole_file()):
            raise StoreDamaged(
                f"{path} has {size} bytes; consume queue files of this store have {self._file_bytes}. {_ADVICE}"
            )
        if is_cut:
            log.warning("%s has only %d of %d bytes; rebuilding its queue from the log", path, size, self._file_bytes)
        if size < self._file_bytes:
            with self._files.open(path) as file:
                file.truncate(self._file_bytes)
                file.sync()

    def _has_whole_file(self) -> bool:
        """Whether any file has the size of the settings: otherwise the settings are wrong, and the files may be right."""
        topics = [folder for name in self._files.list(self._folder) if self._find(folder := self._folder / name)]
        queues = (self._find(folder / name) for folder in topics for name in self._files.list(folder))
        return any(size == self._file_bytes for found in queues if found for _, size in found[0])


def file_name(start: int) -> str:
    """The name of the file whose first entry is at byte offset `start` of the queue."""
    return f"{start:0{NAME_DIGITS}d}"


def _parse_queue_id(name: str) -> int | None:
    """The queue id in the name of a folder; None if it is no queue id."""
    if not (name.isascii() and name.isdecimal() and len(name) <= 10):
        return None
    queue_id = int(name)
    return queue_id if str(queue_id) == name and queue_id <= MAX_QUEUE_ID else None


_BEHIND_BYTES = 4096 * ENTRY_BYTES
_NO_ENTRY = (0, 0, 0)


class Queues:
    """The table of queues and their pending writes. Owned by the store's thread."""

    def __init__(self, settings: StoreSettings, files: Files) -> None:
        self._files = files
        self._folder = settings.folder / "consumequeue"
        self._file_entries = settings.queue_file_entries
        self._least_bytes = settings.queue_least_pages * PAGE_BYTES
        self._open_files = OpenFiles(files, settings.max_open_queue_files - settings.max_open_queue_files // 4)
        self._folders = QueueFolders(files, self._folder, self.file_bytes)
        self._table: dict[QueueKey, ConsumeQueue] = {}
        self._dirty: set[ConsumeQueue] = set()
        self._full: dict[ConsumeQueue, None] = {}
        self.mark_dirty = self._dirty.add
        """Mark a queue as having pending entries, now or soon."""

    @property
    def folder(self) -> Path:
        return self._folder

    @property
    def file_bytes(self) -> int:
        return self._file_entries * ENTRY_BYTES

    @property
    def foreign(self) -> list[Path]:
        """Entries of consumequeue/ that are not queues; they are not changed."""
        return self._folders.foreign

    def __iter__(self) -> Iterator[ConsumeQueue]:
        return iter(self._table.values())

    def __len__(self) -> int:
        return len(self._table)

    def find(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        return self._table.get((topic, queue_id))

    def get(self, topic: str, queue_id: int) -> ConsumeQueue:
        """The queue; created if it is new. `topic` has passed `parse_topic`, because it becomes the name of a folder."""
        queue = self._table.get((topic, queue_id))
        if queue is None:
            folder = self._folder / topic / str(queue_id)
            queue = ConsumeQueue(topic, queue_id, folder, self._open_files, self._file_entries)
            self._table[queue.key] = queue
        return queue

    # writing

    def enter_all(self, staged: Sequence[Entered]) -> tuple[Collection[ConsumeQueue], int]:
        """Append entries to their queues, all or none. Returns these queues, and the number of entries."""
        touched: dict[ConsumeQueue, None] = {}  # in the order of the turn, which a set would not keep
        count = number = 0
        try:
            for number, (queue, entries) in enumerate(staged):  # noqa: B007 how far it came, if it fails
                if queue not in touched:
                    self.mark_dirty(queue)
                    touched[queue] = None
                # Like `ConsumeQueue.append`, without the call. Everything that can fail comes before the first change.
                added = len(entries) // ENTRY_BYTES
                max_offset = queue.max_offset + added
                count += added
                queue.pending += entries
                queue.max_offset = max_offset
        except BaseException:
            take_out([*staged[:number]])
            raise
        return touched, count

    def entered(self, queues: Collection[ConsumeQueue]) -> None:
        """Entries were appended to `queues`, which are already marked as dirty. Queues with many pending entries are
        written soon.
        """
        for queue in queues:
            if len(queue.pending) >= self._least_bytes:
                self._full[queue] = None

    def full(self) -> list[ConsumeQueue]:
        """Queues with so many pending entries that they should be written now, in the order in which they reached the
        limit.
        """
        return list(self._full)

    def written(self, queue: ConsumeQueue) -> None:
        """The pending entries of this queue are in files, except new ones."""
        self._full.pop(queue, None)
        if not queue.pending:
            self._dirty.discard(queue)
        elif len(queue.pending) >= self._least_bytes:  # at the end, so that waiting queues come first
            self._full[queue] = None

    def flush(self) -> list[Path]:
        """Write all pending entries now. Returns the paths to sync. After an OSError, the next call continues."""
        for queue in self.dirty():
            queue.flush()
            self.written(queue)
        return self.take_written()

    def dirty(self) -> list[ConsumeQueue]:
        """Queues that have, or may have, pending entries, sorted by name."""
        return sorted(self._dirty, key=lambda queue: queue.key)

    def mark_written_by(self, files: OpenFiles) -> None:
        """Another thread has written entries to files of these queues, and no longer uses them."""
        self._open_files.take_over(files)

    def take_written(self) -> list[Path]:
        """The files that were written since the last call: sync them to make their bytes safe."""
        return self._open_files.take_written()

    @property
    def dirty_count(self) -> int:
        return len(self._dirty)

    @property
    def pending_bytes(self) -> int:
        """The pending entries in memory."""
        return sum(len(queue.pending) for queue in self._dirty)

    def take_new_folders(self) -> list[Path]:
        """Folders whose names changed since the last call: sync them to make the names safe."""
        folders: dict[Path, None] = {}
        for path in self._open_files.take_renamed():
            for folder in (path.parent, path.parent.parent, self._folder, self._folder.parent):
                folders[folder] = None
        return [folder for folder in folders if self._files.status(folder) is not None]

    def doubt_names(self, doubt: bool) -> None:
        """In doubt, written files count as new although they exist: see `take_new_folders`."""
        self._open_files.doubts_names = doubt

    # loading

    def scan(self, *, mend: bool = True) -> Iterator[tuple[ConsumeQueue, list[int]]]:
        """Every queue that has a folder, with the byte offsets of its files in order.

        Files that are too short are extended; without `mend`, as after a clean stop, they count as damage.
        """
        for topic, queue_id, starts in self._folders.scan(mend=mend):
            yield self.get(topic, queue_id), starts

    def load(self) -> dict[QueueKey, int]:
        """Read the bounds of every queue from its files: from the first entry up to the first empty one.

        Returns the queues with a gap, each with an offset that it had reached. A gap is a missing file, a missing
        part of a file, or an empty entry before others. Entries after the gap cannot be used, so these queues must be
        rebuilt.
        """
        holes = {}
        for queue, starts in self.scan(mend=False):
            if starts:
                self._load_bounds(queue, starts)
                if starts[-1] - starts[0] != (len(starts) - 1) * self.file_bytes:
                    holes[queue.key] = starts[-1] // ENTRY_BYTES
                for offset, _ in self.entries_behind(queue):
                    holes[queue.key] = max(offset + 1, holes.get(queue.key, 0))
        for key, start in self._folders.damaged.items():
            holes[key] = max(start // ENTRY_BYTES, holes.get(key, 0))
        return holes

    def entries_behind(self, queue: ConsumeQueue) -> Iterator[tuple[int, Entry]]:
        """Nonzero bytes after the end of the queue's files, by offset. Holes cost nothing."""
        end = queue.flushed_offset * ENTRY_BYTES
        for start in self._folders.starts(queue.folder):
            if start + self.file_bytes <= end:
                continue
            with self._files.open(queue.folder / file_name(start), write=False) as file:
                at = file.next_data(max(0, end - start))
                while at is not None and at < self.file_bytes:
                    at -= at % ENTRY_BYTES
                    chunk = file.read_at(at, _BEHIND_BYTES)
                    whole = chunk[: len(chunk) // ENTRY_BYTES * ENTRY_BYTES]
                    if any(whole):
                        for offset, entry in enumerate(ENTRY.iter_unpack(whole), (start + at) // ENTRY_BYTES):
                            if entry != _NO_ENTRY:
                                yield offset, entry
                    at = file.next_data(at + len(whole)) if whole else None

    def span_files(self, queue: ConsumeQueue, starts: list[int]) -> list[int]:
        """Extend `queue` over its files, full or not, up to the first missing one. Returns the byte offsets of these
        files.
        """
        contiguous = 1
        while contiguous < len(starts) and starts[contiguous] == starts[contiguous - 1] + self.file_bytes:
            contiguous += 1
        queue.min_offset = starts[0] // ENTRY_BYTES
        queue.max_offset = queue.next_offset = (starts[contiguous - 1] + self.file_bytes) // ENTRY_BYTES
        return starts[:contiguous]

    def _load_bounds(self, queue: ConsumeQueue, starts: list[int]) -> None:
        # Later files are empty if an earlier one is not full; go back to the last one that begins with an entry.
        spanned = self.span_files(queue, starts)
        for start in reversed(spanned):
            end = self._end_in_file(queue, start // ENTRY_BYTES)
            if end > start // ENTRY_BYTES or start == spanned[0]:
                queue.cut(end)
                break
        queue.min_offset = self.first_message(queue)

    def _end_in_file(self, queue: ConsumeQueue, first: int) -> int:
        """The first empty entry of a file that has entries followed by zeros."""
        end = first + self._file_entries
        return bisect_left(range(end), True, first, key=lambda at: not is_entry(queue.entry(at) or _NO_ENTRY))

    def first_message(self, queue: ConsumeQueue) -> int:
        """The end of the filled head of the first file; `min_offset` is still the file's first entry."""
        low, high = queue.min_offset, min(queue.min_offset + self._file_entries, queue.max_offset)
        first = queue.entry(low)
        if first is None or not is_head(first):
            return low  # most queues have no head
        return bisect_left(range(high), True, low, high, key=lambda at: not is_head(queue.entry(at) or _NO_ENTRY))

    def has_entry_files(self, queue: ConsumeQueue, first: int, last: int) -> bool:
        """Whether the files of these two entries, and all between them, exist with their full size; usually this is
        one file.
        """
        low, high = min(first, last), max(first, last)
        begins = range(low // self._file_entries * self._file_entries, high + 1, self._file_entries)
        statuses = (self._files.status(queue.file_of(offset)) for offset in begins)
        return all(status is not None and status.size == self.file_bytes for status in statuses)

    # cutting and deleting

    def zero_behind(self, queue: ConsumeQueue) -> list[Path]:
        """Overwrite the bytes after the end in the queue's files, and delete later files: when the queue grows, stale
        entries must not look valid. Returns the changed paths; the change is synced.
        """
        end = queue.flushed_offset * ENTRY_BYTES
        starts = self._folders.starts(queue.folder)
        changed = []
        for start in starts:
            path = queue.folder / file_name(start)
            # An empty file stays if it is the first: only its name shows the next offset of the queue.
            if start > end or (start == end and start > starts[0]):
                self._open_files.unlink(str(path))
                changed.append(path)
            elif start + self.file_bytes > end:
                with self._files.open(path) as file:
                    if zero_from(file, end - start, self.file_bytes):
                        file.sync()
                        changed.append(path)
        if changed:
            self._files.sync_dir(queue.folder)
        return changed

    def follow(self, queue: ConsumeQueue, log_start: int) -> int:
        """Delete the files of a queue that belong to deleted log files. Returns their number."""
        queue.raise_min(log_start)
        return self._drop_files(queue)

    def _drop_files(self, queue: ConsumeQueue) -> int:
        """Delete the files before the one with the first message. The newest stays: it shows the end of the queue."""
        first_kept = min(queue.min_offset, max(queue.flushed_offset - 1, 0)) // self._file_entries * self.file_bytes
        if self._files.status(queue.folder / file_name(first_kept - self.file_bytes)) is None:
            return 0
        dropped = [start for start in self._folders.starts(queue.folder) if start < first_kept]
        for start in dropped:
            self._open_files.unlink(str(queue.folder / file_name(start)))
        return len(dropped)

    def delete_topic(self, topic: str) -> None:
        """Remove the queues of a topic and delete their files; other entries of the folders are not changed."""
        for queue in [queue for queue in self if queue.topic == topic]:
            # Removed only after its files: a queue created meanwhile would use the old files.
            self.remove_files(queue)
            queue.abandon()
            self._dirty.discard(queue)
            self._full.pop(queue, None)
            del self._table[queue.key]
            self._remove_if_empty(queue.folder)
        self._remove_if_empty(self._folder / topic)

    def remove_files(self, queue: ConsumeQueue) -> None:
        """Delete all files of a queue: it is deleted, or will be rebuilt."""
        for start in self._folders.starts(queue.folder):
            self._open_files.unlink(str(queue.folder / file_name(start)))

    def forget_all(self) -> None:
        """Drop the loaded queues; the files stay."""
        self._table.clear()
        self._dirty.clear()
        self._full.clear()

    def wipe(self) -> None:
        """Remove every queue: there is no log."""
        for topic in sorted({queue.topic for queue, _ in list(self.scan())}):
            self.delete_topic(topic)

    def _remove_if_empty(self, folder: Path) -> None:
        if self._files.status(folder) is not None and not self._files.list(folder):
            self._files.remove_dir(folder)

    def close(self) -> None:
        self._open_files.close()

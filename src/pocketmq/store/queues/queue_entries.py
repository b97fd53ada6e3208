"""The entries of one queue for verification, dumps and rebuilds: read from the files, or put in order from the log.

`QueueEntries` reads the files a block at a time, never writes, checks every entry, and keeps no file open, because
there may be ten thousand queues. A broker's own `ConsumeQueue` also knows the queue's bounds and its pending entries.

`QueueSeries` assigns the records of a log to their queues again, although a record may have a wrong queue offset:

    next = 5:    5  6  7       regular
                 8  9  10      messages 5 to 7 are not in the log: their entries mean "no message"
                 8  6  7       the record that says 8 is message 5, as the record after it shows
                 8  5  6       the record that says 8 belongs to another queue: it is left out
                 0  1  2       the topic was deleted and created again: the queue starts again

An irregular record waits for the next record of its queue, which decides what it was.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from pocketmq.files import Files
from pocketmq.store.log.log_scan import is_offset_name
from pocketmq.store.queues.consume_queue import ENTRY_BYTES, ConsumeQueue
from pocketmq.store.queues.queues import QueueKey

BLOCK_ENTRIES: Final = 128
"""Entries of one read: 2.5 KB for each queue being read."""


class QueueFile(NamedTuple):
    path: Path
    first: int
    """Byte offset of its first entry, which is its name."""
    size: int


def list_queue_ids(files: Files, folder: Path) -> list[int]:
    """The queues of the topic in `folder`, by their ids; empty if there is no such folder."""
    names = [name for name in _names_in(files, folder) if name.isascii() and name.isdecimal()]
    return sorted(int(name) for name in names if str(int(name)) == name)


def list_queue_files(files: Files, folder: Path) -> list[QueueFile]:
    """The files of the queue in `folder`, in order; ignores other names."""
    found = []
    for name in _names_in(files, folder):
        status = files.status(folder / name) if is_offset_name(name) else None
        if status is not None and not status.is_dir:
            found.append(QueueFile(folder / name, int(name), status.size))
    return found


def _names_in(files: Files, folder: Path) -> list[str]:
    try:
        return files.list(folder)
    except NotADirectoryError:
        return []


class QueueEntries:
    """Entries by their offset, as bytes. Fast if they are read in order."""

    __slots__ = ("_block", "_file_entries", "_files", "_first", "folder")

    def __init__(self, files: Files, folder: Path, file_entries: int) -> None:
        self._files = files
        self.folder = folder
        self._file_entries = file_entries
        self._first = 0
        self._block = b""

    def raw(self, offset: int) -> bytes:
        """The entry at `offset`; fewer than ENTRY_BYTES bytes if no file has it."""
        at = (offset - self._first) * ENTRY_BYTES
        if not 0 <= at < len(self._block):
            self._fill(offset)
            at = 0
        return self._block[at : at + ENTRY_BYTES]

    def _fill(self, offset: int) -> None:
        path, at = self.position_of(offset)
        count = min(BLOCK_ENTRIES, self._file_entries - offset % self._file_entries)
        self._first = offset
        try:
            with self._files.open(path, write=False) as file:
                self._block = file.read_at(at, count * ENTRY_BYTES)
        except FileNotFoundError:
            self._block = b""

    def position_of(self, offset: int) -> tuple[Path, int]:
        """The file and position of the entry at `offset`."""
        number, index = divmod(offset, self._file_entries)
        return self.folder / f"{number * self._file_entries * ENTRY_BYTES:020d}", index * ENTRY_BYTES

    def forget(self) -> None:
        """Free the memory."""
        self._block = b""


class Placing(NamedTuple):
    """The fields of a record that a queue entry needs."""

    queue_offset: int
    log_offset: int
    size: int
    tags_code: int


class SeriesQueues(Protocol):
    """The queues that are rebuilt."""

    def get(self, topic: str, queue_id: int) -> ConsumeQueue: ...

    def mark_dirty(self, queue: ConsumeQueue) -> None: ...

    def remove_files(self, queue: ConsumeQueue) -> None: ...


class QueueSeries:
    """Rebuilds queues. Add every record that has a queue entry, in the order of the log.

    Those that have `begun` continue with their offset; the others begin with their first record's.
    """

    def __init__(self, queues: SeriesQueues, begun: Iterable[QueueKey] = ()) -> None:
        self._queues = queues
        self._begun = set(begun)
        self._waiting: dict[QueueKey, Placing] = {}
        self.entries = 0
        self.gaps = 0
        """Offsets whose messages are not in the log."""
        self.misplaced: list[int] = []
        """Log offsets of records that fit into no queue."""
        self.corrected: list[int] = []
        """Log offsets of records with a wrong queue offset."""

    def assign(self, queue: ConsumeQueue, record: Placing) -> None:
        waiting = self._waiting.pop(queue.key, None) if self._waiting else None
        if waiting is not None:
            self._settle(queue, waiting, record.queue_offset)
        if queue.key not in self._begun:
            self._begun.add(queue.key)
            queue.begin_anew(record.queue_offset)
        if record.queue_offset == queue.next_offset:
            self._enter(queue, record)
        else:
            self._waiting[queue.key] = record

    def finish(self) -> None:
        """There are no more records: waiting ones keep the offset that they contain."""
        for key, waiting in sorted(self._waiting.items()):
            self._take_by_its_word(self._queues.get(*key), waiting)
        self._waiting.clear()

    def _settle(self, queue: ConsumeQueue, waiting: Placing, following: int) -> None:
        if following == waiting.queue_offset + 1:
            self._take_by_its_word(queue, waiting)
        elif following == queue.next_offset + 1:
            self.corrected.append(waiting.log_offset)
            self._enter(queue, waiting)
        elif following == queue.next_offset:
            self.misplaced.append(waiting.log_offset)
        else:
            self._take_by_its_word(queue, waiting)

    def _take_by_its_word(self, queue: ConsumeQueue, record: Placing) -> None:
        missing = record.queue_offset - queue.next_offset
        if record.queue_offset == 0:
            self._queues.remove_files(queue)
            queue.begin_anew()
        elif missing < 0 or not queue.skip_to(record.queue_offset, record.log_offset):
            self.misplaced.append(record.log_offset)
            return
        else:
            self.gaps += missing
        self._enter(queue, record)

    def _enter(self, queue: ConsumeQueue, record: Placing) -> None:
        queue.append(record.log_offset, record.size, record.tags_code)
        queue.next_offset = queue.max_offset
        self.entries += 1
        self._queues.mark_dirty(queue)

"""The entries of one queue, read from its files a block at a time and never written: for verification and dumps.

A broker's own `ConsumeQueue` knows the queue's bounds and what is not in a file yet. This knows only the files, believes nothing,
and holds none of them open: there may be ten thousand queues.
"""

from pathlib import Path
from typing import Final, NamedTuple

from pocketmq.files import Files
from pocketmq.store.consume_queue import ENTRY_BYTES
from pocketmq.store.log_scan import is_offset_name

BLOCK_ENTRIES: Final = 128
"""Entries that are read at once: 2.5 KB per queue that is being read."""


class QueueFile(NamedTuple):
    path: Path
    first: int
    """Byte offset of its first entry, which is its name."""
    size: int


def list_queue_ids(files: Files, folder: Path) -> list[int]:
    """The queues of the topic in `folder`, by their ids; none when there is no such folder."""
    names = [name for name in _names_in(files, folder) if name.isascii() and name.isdecimal()]
    return sorted(int(name) for name in names if str(int(name)) == name)


def list_queue_files(files: Files, folder: Path) -> list[QueueFile]:
    """The files of the queue in `folder`, in order; anything with another name is left out."""
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
    """Entries by their offset, as bytes. Cheap when they are asked for in order."""

    __slots__ = ("_block", "_file_entries", "_files", "_first", "folder")

    def __init__(self, files: Files, folder: Path, file_entries: int) -> None:
        self._files = files
        self.folder = folder
        self._file_entries = file_entries
        self._first = 0
        self._block = b""

    def raw(self, offset: int) -> bytes:
        """The entry at `offset`; fewer than ENTRY_BYTES bytes where no file has it."""
        at = (offset - self._first) * ENTRY_BYTES
        if not 0 <= at < len(self._block):
            self._fill(offset)
            at = 0
        return self._block[at : at + ENTRY_BYTES]

    def _fill(self, offset: int) -> None:
        path, at = self.place(offset)
        count = min(BLOCK_ENTRIES, self._file_entries - offset % self._file_entries)
        self._first = offset
        try:
            with self._files.open(path, write=False) as file:
                self._block = file.read_at(at, count * ENTRY_BYTES)
        except FileNotFoundError:
            self._block = b""

    def place(self, offset: int) -> tuple[Path, int]:
        """The file that must hold the entry at `offset`, and where in it."""
        number, index = divmod(offset, self._file_entries)
        return self.folder / f"{number * self._file_entries * ENTRY_BYTES:020d}", index * ENTRY_BYTES

    def forget(self) -> None:
        """Give the memory back."""
        self._block = b""

"""What lies below consumequeue/: which folders and files are ours, and whether they can be.

    consumequeue/<topic>/<queue id>/<byte offset of the first entry, 20 digits>

Anything with another name is not ours, and left alone. A file of another size is damage, with one exception: a new file gets its
full size before its first entry, but a crash may lose that size, or all but part of it, as long as nobody has synced the file.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from pocketmq.errors import InvalidName, StoreDamaged
from pocketmq.files import Files
from pocketmq.model.names import TopicName, parse_topic
from pocketmq.store.segments import MAX_OFFSET, NAME_DIGITS

MAX_QUEUE_ID: Final = 2**31 - 1
_ADVICE = "Set queue_file_entries (mappedFileSizeConsumeQueue) to what the store was made with"


class QueueFolders:
    """The folders of all queues, whose files have `file_bytes` each."""

    def __init__(self, files: Files, folder: Path, file_bytes: int) -> None:
        self._files = files
        self._folder = folder
        self._file_bytes = file_bytes
        self.foreign: list[Path] = []
        """What the last scan found that is not ours."""

    def scan(self, *, mend: bool) -> Iterator[tuple[TopicName, int, list[int]]]:
        """Every queue that has a folder: topic, queue id, and where its files begin.

        With `mend` a file that is too short gets its size back; without it, after a clean stop, it is damage. Then an empty one
        before the last is none: somebody has emptied it.
        """
        self.foreign = []
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
                yield topic, queue_id, [start for start, size in ours if size or mend or start == ours[-1][0]]

    def starts(self, folder: Path) -> list[int]:
        """Where the files of the queue in `folder` begin, in order; those that cannot be ours are left out."""
        ours, _ = self._find(folder) or ([], [])
        return [start for start, size in ours if start % self._file_bytes == 0 and size <= self._file_bytes]

    def _names_in(self, folder: Path) -> list[str]:
        try:
            return self._files.list(folder)
        except NotADirectoryError:
            self.foreign.append(folder)
            return []

    def _find(self, folder: Path) -> tuple[list[tuple[int, int]], list[Path]] | None:
        """Start and size of every file that is named like ours, in order, and what else is there; None when no folder."""
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
                f"{path} begins at {start}, which is no multiple of the files' size {self._file_bytes}. {_ADVICE}"
            )
        if size > self._file_bytes or (0 < size < self._file_bytes and not mend):
            raise StoreDamaged(
                f"{path} has {size} bytes; consume queue files of this store have {self._file_bytes}. {_ADVICE}"
            )
        if size < self._file_bytes:
            with self._files.open(path) as file:
                file.truncate(self._file_bytes)
                file.sync()


def file_name(start: int) -> str:
    """The name of the file whose first entry is at byte offset `start` of the queue."""
    return f"{start:0{NAME_DIGITS}d}"


def _parse_queue_id(name: str) -> int | None:
    """The queue id that a folder is named by; None when it is no such name."""
    if not (name.isascii() and name.isdecimal() and len(name) <= 10):
        return None
    queue_id = int(name)
    return queue_id if str(queue_id) == name and queue_id <= MAX_QUEUE_ID else None

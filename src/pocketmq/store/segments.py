"""A run of files of one size that are addressed by one offset, as if they were one long file.

    00000000000000000000      00000000000000032768      00000000000000065536
    |----- file_bytes ------| |----- file_bytes ------| |----- file_bytes ------|
    └ start                                                                      └ end_of_files

A file is named by its first offset in 20 digits. The run has no holes: it is made in order, and unlinked from its ends one name
at a time, each made safe before the next. So a hole or a wrong size is damage, with one exception: a crash while the newest
file was made leaves it empty. Anything with another name is not ours, and left alone.
"""

import errno
from pathlib import Path

from pocketmq.errors import StoreBusy, StoreDamaged, StoreError, StoreFull
from pocketmq.files import File, Files, FileStatus

NAME_DIGITS = 20
MAX_OFFSET = 2**63 - 1
_SHORTAGES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN, errno.EINTR})
"""Of descriptors or memory, not of the disk: they pass."""


def disk_error(what: str, error: OSError) -> StoreError:
    """The store's error for a call to the disk that failed: `what` is a sentence's beginning."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StoreFull(f"{what}: {error}. Writing resumes by itself when there is space")
    if error.errno in _SHORTAGES:
        return StoreBusy(f"{what}: {error}. It is tried again until this process has what it needs")
    return StoreError(f"{what}: {error}")


class Segment:
    """One file of a run. It is opened when first used, and mapped when first read."""

    __slots__ = ("_disk", "_file", "_map", "_writable", "end", "first", "path")

    def __init__(
        self, disk: Files, path: Path, first: int, size: int, file: File | None = None, *, writable: bool = True
    ) -> None:
        self._disk = disk
        self.path = path
        self.first = first
        self.end = first + size
        self._file = file
        self._map: memoryview | None = None
        self._writable = writable

    @property
    def file(self) -> File:
        if self._file is None:
            self._file = self._disk.open(self.path, write=self._writable)
        return self._file

    @property
    def map(self) -> memoryview:
        """All bytes, read only. Lives on after the segment is closed or removed."""
        if self._map is None:
            try:
                self._map = self.file.map(self.end - self.first)
            except OSError as error:
                raise disk_error(f"cannot read {self.path}", error) from error
        return self._map

    def status(self) -> FileStatus | None:
        return self._disk.status(self.path)

    def close(self) -> None:
        self._map = None
        if self._file is not None:
            self._file.close()
            self._file = None

    def remove(self) -> None:
        """Close and unlink; when this returns the name is gone for good. Views that are out live on."""
        self.close()
        if self.status() is not None:
            self._disk.unlink(self.path)
        self._disk.sync_dir(self.path.parent)


class Segments:
    """The files of a folder, in order. Owned by one thread."""

    def __init__(self, disk: Files, folder: Path, file_bytes: int, *, writable: bool = True) -> None:
        self._disk = disk
        self._writable = writable
        self.folder = folder
        self.file_bytes = file_bytes
        self.files: list[Segment] = []
        self.foreign: list[Path] = []
        """What is in the folder and is not ours."""
        self.unfinished: Path | None = None
        """A newest file that is empty: a crash came while it was made."""

    @property
    def start(self) -> int:
        return self.files[0].first if self.files else 0

    @property
    def end_of_files(self) -> int:
        return self.files[-1].end if self.files else 0

    def load(self) -> None:
        """Find the files. StoreDamaged when they are not a run."""
        self.close()
        self.files, self.foreign, self.unfinished = [], [], None
        found = self._find()
        if found and found[-1][1] == 0:
            self.unfinished = self.path_of(found.pop()[0])
        for first, size in found:
            self._check(first, size)
            self.files.append(self._segment(first))

    def _find(self) -> list[tuple[int, int]]:
        """First offset and size of every file that is named like ours, in order."""
        found = []
        for name in self._disk.list(self.folder):
            status = self._disk.status(self.folder / name)
            ours = len(name) == NAME_DIGITS and name.isascii() and name.isdecimal()
            if status is None or status.is_dir or not ours or int(name) > MAX_OFFSET - self.file_bytes:
                self.foreign.append(self.folder / name)
            else:
                found.append((int(name), status.size))
        return found

    def _check(self, first: int, size: int) -> None:
        path = self.path_of(first)
        if size != self.file_bytes:
            raise StoreDamaged(
                f"{path} has {size} bytes, expected {self.file_bytes}. "
                "The size of files must stay what it was when the store was made"
            )
        if first % self.file_bytes:
            raise StoreDamaged(f"{path} begins at {first}, which is no multiple of the files' size {self.file_bytes}")
        if self.files and first != self.end_of_files:
            raise StoreDamaged(f"{path} begins at {first}, but the file before it ends at {self.end_of_files}")

    def path_of(self, first: int) -> Path:
        return self.folder / f"{first:0{NAME_DIGITS}d}"

    def file_at(self, offset: int) -> Segment | None:
        """The file that holds `offset`; None before the first and behind the last."""
        number = (offset - self.start) // self.file_bytes
        return self.files[number] if 0 <= number < len(self.files) else None

    def between(self, start: int, end: int) -> list[Segment]:
        """The files that hold bytes from `start` up to, not including, `end`."""
        return [segment for segment in self.files if segment.first < end and start < segment.end]

    def add(self, first: int, file: File) -> Segment:
        """Go on with `file`, which must begin where the last one ends."""
        assert not self.files or first == self.end_of_files, "a run has no holes"
        segment = self._segment(first, file)
        self.files.append(segment)
        return segment

    def forget_first(self) -> Segment:
        """Take the oldest file out of the run; the caller removes it."""
        return self.files.pop(0)

    def drop_first(self) -> None:
        """Remove the oldest file."""
        self.forget_first().remove()

    def drop_after(self, offset: int) -> None:
        """Remove the files that begin behind `offset`, and an unfinished one; newest first, so that no hole can come."""
        if self.unfinished is not None:
            self._disk.unlink(self.unfinished)
            self._disk.sync_dir(self.folder)
            self.unfinished = None
        while self.files and self.files[-1].first > offset:
            self.files.pop().remove()

    def close(self) -> None:
        """Close all files; they are opened again when used."""
        for segment in self.files:
            segment.close()

    def _segment(self, first: int, file: File | None = None) -> Segment:
        return Segment(self._disk, self.path_of(first), first, self.file_bytes, file, writable=self._writable)

"""Files of one size in a folder, addressed by one offset as if they were one long file; and a bounded set of open
files.

    00000000000000000000      00000000000000032768      00000000000000065536
    |----- file_bytes ------| |----- file_bytes ------| |----- file_bytes ------|
    └ start                                                                      └ end_of_files

`Segments`: a file is named by its first offset in 20 digits. The sequence has no gaps: files are created in order and
unlinked from the ends one by one, each synced before the next. So a gap or a wrong size is damage, with one
exception: a crash during the creation of the newest file leaves it empty. Files with other names are not changed.

`OpenFiles`: ten thousand queues must not need ten thousand descriptors, so the least recently used file is closed
first. It remembers which files were written, created or removed until the caller syncs them, so a half failed write
is synced, too. Names are plain strings: every read uses one, and a `Path` costs more than the read.

Owned by the store's thread; the sync thread opens its own files.
"""

import errno
from collections import OrderedDict
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from pocketmq.errors import StoreBusy, StoreDamaged, StoreError, StoreFull
from pocketmq.files import File, Files, FileStatus

NAME_DIGITS = 20
MAX_OFFSET = 2**63 - 1
_SHORTAGES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN, errno.EINTR})
"""These errors concern descriptors or memory, not the disk; they are temporary."""


def disk_error(what: str, error: OSError) -> StoreError:
    """The StoreError for a failed call to the disk; `what` is the beginning of its text."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StoreFull(f"{what}: {error}. Writing resumes automatically when there is space")
    if error.errno in _SHORTAGES:
        return StoreBusy(f"{what}: {error}. Retrying until the resource is available")
    return StoreError(f"{what}: {error}")


class Segment:
    """One file of a sequence. It is opened when first used, and mapped when first read."""

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
        """All bytes, read only. Stays valid after the segment is closed or removed."""
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
        """Close and delete. After the return, the name is removed and synced. Existing views stay valid."""
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
        """Entries of the folder that are not files of this sequence."""
        self.unfinished: Path | None = None
        """An empty newest file: a crash interrupted its creation."""

    @property
    def start(self) -> int:
        return self.files[0].first if self.files else 0

    @property
    def end_of_files(self) -> int:
        return self.files[-1].end if self.files else 0

    def load(self) -> None:
        """Find the files. Raises StoreDamaged if they have gaps or wrong sizes."""
        self.close()
        self.files, self.foreign, self.unfinished = [], [], None
        found = self._find()
        if found and found[-1][1] == 0:
            self.unfinished = self.path_of(found.pop()[0])
        for first, size in found:
            self._check(first, size)
            self.files.append(self._segment(first))

    def _find(self) -> list[tuple[int, int]]:
        """First offset and size of every file with a valid name, in order."""
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
                "The file size of a store cannot change after its creation"
            )
        if first % self.file_bytes:
            raise StoreDamaged(f"{path} begins at {first}, which is not a multiple of the file size {self.file_bytes}")
        if self.files and first != self.end_of_files:
            raise StoreDamaged(f"{path} begins at {first}, but the file before it ends at {self.end_of_files}")

    def path_of(self, first: int) -> Path:
        return self.folder / f"{first:0{NAME_DIGITS}d}"

    def file_at(self, offset: int) -> Segment | None:
        """The file with `offset`; None before the first file and after the last."""
        number = (offset - self.start) // self.file_bytes
        return self.files[number] if 0 <= number < len(self.files) else None

    def between(self, start: int, end: int) -> list[Segment]:
        """The files that hold bytes from `start` up to, not including, `end`."""
        return [segment for segment in self.files if segment.first < end and start < segment.end]

    def add(self, first: int, file: File) -> Segment:
        """Append `file`, which must begin where the last one ends."""
        assert not self.files or first == self.end_of_files, "the files have no gaps"
        segment = self._segment(first, file)
        self.files.append(segment)
        return segment

    def forget_first(self) -> Segment:
        """Remove the oldest file from the sequence; the caller deletes it."""
        return self.files.pop(0)

    def drop_first(self) -> None:
        """Delete the oldest file."""
        self.forget_first().remove()

    def drop_after(self, offset: int) -> None:
        """Delete the files that begin after `offset`, and an unfinished one; newest first, so that no gap can appear."""
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


class OpenFiles:
    """A bounded set of open files. `for_owner`: a thread writes them, and opens each new one for its owner, too."""

    def __init__(self, files: Files, most: int, *, for_owner: bool = False) -> None:
        self._files = files
        self._most = max(1, most)
        self._open: OrderedDict[str, File] = OrderedDict()
        self._written: set[str] = set()
        self._renamed: set[str] = set()
        self._replaced: set[str] = set()
        self._for_owner: dict[str, File] | None = {} if for_owner else None
        self.doubts_names = False
        """Whether an existing file may come from a process that was killed before it synced the name."""

    def __len__(self) -> int:
        return len(self._open)

    def get(self, name: str) -> File:
        """The file of that name, which must exist."""
        file = self._open.get(name)
        if file is None:
            return self._remember(name, self._files.open(Path(name)))
        self._open.move_to_end(name)
        return file

    def make(self, name: str, size: int) -> File:
        """The file of that name for writing. Creates it if it is missing, and extends it with zeros to `size` if it
        is shorter.
        """
        self._written.add(name)
        if self.doubts_names:
            self._renamed.add(name)
        path = Path(name)
        if name in self._open:
            status = self._files.status(path)
            if status is not None and status.size >= size:
                return self.get(name)
            # Another program deleted or truncated it: data written to a deleted file would be lost with this process.
            self._open.pop(name).close()
        file = self._create(path)
        try:
            if file.size() < size:
                self._renamed.add(name)
                self._replaced.add(name)
                file.truncate(size)
                if self._for_owner is not None:
                    self._open_for_owner(name, path, self._for_owner)
        except OSError:
            file.close()
            raise
        return self._remember(name, file)

    def _open_for_owner(self, name: str, path: Path, opened: dict[str, File]) -> None:
        with suppress(OSError):  # then the owner opens it
            if name in opened:
                opened.pop(name).close()
            opened[name] = self._files.open(path)

    def _create(self, path: Path) -> File:
        try:
            return self._files.open(path, create=True)
        except FileNotFoundError:
            self._files.make_dir(path.parent)
            return self._files.open(path, create=True)

    def unlink(self, name: str) -> None:
        """Delete the file of that name, if it exists."""
        self._close({name})
        with suppress(FileNotFoundError):
            self._files.unlink(Path(name))
        self._written.discard(name)
        self._renamed.add(name)
        self._replaced.add(name)

    def take_written(self) -> list[Path]:
        """The files that were written since the last call and are not synced yet."""
        if not self._written:
            return []
        written, self._written = self._written, set()
        return [Path(name) for name in sorted(written)]

    def take_renamed(self) -> list[Path]:
        """The files that were created or deleted since the last call: their names are not synced yet."""
        renamed, self._renamed = self._renamed, set()
        return [Path(name) for name in sorted(renamed)]

    def take_over(self, other: "OpenFiles") -> None:
        """Take over the files that `other` wrote and created. `other` must not be in use.

        Each of them closes the files that the other one created or deleted, because the name now belongs to another
        file.
        """
        self._written |= other._written
        self._renamed |= other._renamed
        self._close(other._replaced)
        other._close(self._replaced)
        while other._for_owner:
            name, file = other._for_owner.popitem()
            if name in self._replaced or name in self._open:
                file.close()  # the owner deleted it meanwhile
            else:
                self._remember(name, file)
        for names in (other._written, other._renamed, other._replaced, self._replaced):
            names.clear()

    def close(self) -> None:
        self._close(list(self._open))
        while self._for_owner:
            self._for_owner.popitem()[1].close()

    def _close(self, names: Iterable[str]) -> None:
        for name in names:
            file = self._open.pop(name, None)
            if file is not None:
                file.close()

    def _remember(self, name: str, file: File) -> File:
        self._open[name] = file
        if len(self._open) > self._most:
            self._open.popitem(last=False)[1].close()
        return file


_ZERO_CHUNK = bytes(64 * 1024)


def zero_from(file: File, offset: int, end: int) -> bool:
    """Overwrite nonzero bytes from `offset` to `end` with zeros. Returns whether there were any. Holes cost nothing."""
    found = False
    at = file.next_data(offset)
    while at is not None and at < end:
        chunk = file.read_at(at, min(len(_ZERO_CHUNK), end - at))
        if not chunk:
            break
        if chunk != _ZERO_CHUNK[: len(chunk)]:
            used = len(
                chunk.rstrip(b"\0")
            )  # only up to here: zeros beyond may be a hole, and a full disk may have no space for it
            file.write_at(at, _ZERO_CHUNK[:used])
            found = True
        at = file.next_data(at + len(chunk))
    return found

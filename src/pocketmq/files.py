"""The only access to disk. All file operations go through a `Files`, so that tests can inject faults.

    Files ── names: list, replace, unlink, folders, disk usage
      └─ open ─► File ── bytes of one file: read_at, write_at, sync, map …

What survives a crash, and what callers have to do for it:
- Bytes are safe after `File.sync`. Before it, any part of them may be lost, in any order, in whole sectors or torn.
- A name (created, replaced, unlinked) is safe after `sync_dir` of its folder.
- `replace` is atomic: after a crash the name refers to the old file or the new one, never to a mixture.

Writes and syncs release the interpreter lock. A read-only map does not copy, and keeps its bytes alive after `unlink` and `close`, so
retention may unlink a file that is being read.

New folders get mode 0700 and new files 0600, unless they are `shared`. Locks and temporary folders belong to the process that created
them: the child of a fork holds no lock and removes no folder.
"""

import atexit
import errno
import os
import shutil
import stat
import sys
import tempfile
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, Protocol, Self, TextIO

from pocketmq import system

PRIVATE_FOLDER = 0o700
PRIVATE_FILE = 0o600
STDERR = 2
"""The file descriptor of the standard error stream."""
LAST_LINES_S = 2.0


class DiskUsage(NamedTuple):
    """Size and free space of a file system in bytes, without the blocks reserved for the administrator, as in `df`."""

    total: int
    free: int

    @property
    def used_ratio(self) -> float:
        """The used part, 0 to 1."""
        return 1 - self.free / self.total if self.total else 1.0


class FileStatus(NamedTuple):
    size: int
    modified_ms: int
    is_dir: bool
    mode: int = PRIVATE_FOLDER
    """The permission bits."""


class WrittenFile(Protocol):
    """One open file of any file system. All offsets are absolute."""

    def write_at(self, offset: int, data: bytes | bytearray | memoryview) -> None:
        """Write all of `data`, or raise. After an error any part of it may be written."""

    def size(self) -> int: ...

    def truncate(self, size: int) -> None:
        """Cut or extend (with zeros that take no space) to `size`."""

    def sync(self) -> None:
        """Wait until all writes are on the disk. After an error their state is unknown."""

    def lock(self) -> bool:
        """Lock the file; False if another process holds the lock. Released by `close`, or when the process ends."""

    def close(self) -> None:
        """Idempotent. Maps stay valid."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *exc: object) -> None: ...


class File(WrittenFile, Protocol):
    """One open file of a disk."""

    @property
    def path(self) -> Path: ...

    def read_at(self, offset: int, size: int) -> bytes:
        """Up to `size` bytes; fewer only at the end of the file."""

    def write_at(self, offset: int, data: bytes | bytearray | memoryview, *, wait: bool = True) -> None:
        """`wait=False`: BlockingIOError if it would have to wait for the disk, and the file system can tell."""

    def allocate(self, size: int) -> None:
        """Reserve real blocks up to `size`, so that later writes below it cannot run out of space."""

    def next_data(self, offset: int) -> int | None:
        """The next offset, from `offset` on, with bytes that may not be zero; None if the rest is a hole."""

    def map(self, size: int) -> memoryview:
        """The first `size` bytes, read-only. Later writes are visible in it."""

    def is_locked(self) -> bool:
        """Whether another open file holds the lock. Works for a file opened for reading."""

    def lock_holder(self) -> int | None:
        """The id of the process that holds the lock, if known."""


class FolderNotOpened(OSError):
    """A folder could not be opened for a sync. Nothing is lost, and a retry may succeed, unlike after a failed sync."""


class FolderLock(Protocol):
    """A folder that is locked until `close`, or until the process ends."""

    def close(self) -> None: ...


class NamedFiles(Protocol):
    """Names in any file system that renames atomically."""

    def open(self, path: Path, *, create: bool = False, write: bool = True) -> WrittenFile:
        """Open `path`; with `create`, create it if it does not exist."""

    def read(self, path: Path) -> bytes: ...

    def status(self, path: Path) -> FileStatus | None:
        """None if `path` does not exist."""

    def list(self, folder: Path) -> list[str]:
        """The sorted names in `folder`; empty if it does not exist."""

    def make_dir(self, folder: Path) -> None:
        """Create `folder` and its parents if they do not exist."""

    def remove_dir(self, folder: Path) -> None:
        """Remove an empty folder."""

    def replace(self, source: Path, target: Path) -> None: ...

    def unlink(self, path: Path) -> None: ...

    def sync_dir(self, folder: Path) -> None:
        """Wait until the names in `folder` are on the disk. FolderNotOpened if it could not be opened."""

    def usage(self, path: Path) -> DiskUsage: ...


class Files(NamedFiles, Protocol):
    """Names on a disk."""

    def open(self, path: Path, *, create: bool = False, write: bool = True) -> File: ...

    def lock_dir(self, folder: Path) -> "FolderLock | None":
        """Lock a folder, independently of `File.lock`; None if another process holds the lock."""


class DiskFile:
    """A `File` of the operating system."""

    def __init__(self, path: Path, flags: int, mode: int = PRIVATE_FILE) -> None:
        self._path = path
        self._fd = os.open(path, flags | system.OPEN_FLAGS, mode)
        self._always_waits = not system.can_write_without_wait()

    @property
    def path(self) -> Path:
        return self._path

    def read_at(self, offset: int, size: int) -> bytes:
        data = system.read_at(self._fd, size, offset)
        if len(data) == size or not data:
            return data
        pieces = [data]
        missing = size - len(data)
        while missing and (piece := system.read_at(self._fd, missing, offset + size - missing)):
            pieces.append(piece)
            missing -= len(piece)
        return b"".join(pieces)

    def write_at(self, offset: int, data: bytes | bytearray | memoryview, *, wait: bool = True) -> None:
        if wait or self._always_waits:
            written = system.write_at(self._fd, data, offset)
        else:
            written = self._write_without_wait(offset, data)
        if written == len(data):
            return
        rest = memoryview(data)
        while written < len(rest):
            count = system.write_at(self._fd, rest[written:], offset + written)
            if count == 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._path))
            written += count

    def _write_without_wait(self, offset: int, data: bytes | bytearray | memoryview) -> int:
        try:
            written = system.write_without_wait(self._fd, data, offset)
        except BlockingIOError:
            raise
        except OSError:  # mostly EOPNOTSUPP: up to Linux 6.18, ext4 and tmpfs cannot tell
            self._always_waits = True
            return system.write_at(self._fd, data, offset)
        if written < len(data):
            raise BlockingIOError(errno.EAGAIN, f"{written} of {len(data)} bytes are written")
        return written

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)

    def allocate(self, size: int) -> None:
        system.allocate(self._fd, size)

    def sync(self) -> None:
        system.sync_data(self._fd)

    def next_data(self, offset: int) -> int | None:
        return system.next_data(self._fd, offset)

    def map(self, size: int) -> memoryview:
        if size == 0:  # to mmap, 0 means the whole file
            return memoryview(b"")
        return system.map_file(self._fd, size)

    def lock(self) -> bool:
        # A record lock on the first byte, as in Java, so that both kinds of brokers exclude each other. It belongs to the
        # open file (OFD) and not to the process, so that it also works between two stores of one process.
        if not system.lock_first_byte(self._fd):
            return False
        _locked_files.add(self)
        return True

    def lock_holder(self) -> int | None:
        return system.lock_owner(self._fd) or _process_with_lock(os.fstat(self._fd))  # OFD locks have no process

    def is_locked(self) -> bool:
        return system.is_first_byte_locked(self._fd)

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            system.unlock(fd)
            os.close(fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class LockedFolder:
    """A folder that this process has locked, until `close`."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        _locked_files.add(self)

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


def _process_with_lock(lock: os.stat_result) -> int | None:
    """The process that holds a lock on this file, if this user may see it."""
    for process in os.listdir("/proc") if os.path.isdir("/proc") else ():  # noqa: PTH208, PTH112
        try:
            for fd in os.listdir(f"/proc/{process}/fd") if process.isdigit() else ():  # noqa: PTH208
                found = os.stat(f"/proc/{process}/fd/{fd}")  # noqa: PTH116
                is_same = (found.st_dev, found.st_ino) == (lock.st_dev, lock.st_ino)
                if is_same and "lock:" in Path(f"/proc/{process}/fdinfo/{fd}").read_text():
                    return int(process)
        except OSError:
            continue  # ended, or of another user
    return None


_locked_files: "weakref.WeakSet[DiskFile | LockedFolder]" = weakref.WeakSet()
"""Files and folders locked by this process."""


def _drop_locks() -> None:
    """In the child of a fork, which would keep the locks of its parent after the parent ends."""
    for file in list(_locked_files):
        file.close()


system.after_fork_in_child(_drop_locks)


class DiskFiles:
    """The `Files` of the operating system. With `shared`, files and folders get the default modes."""

    def __init__(self, *, shared: bool = False) -> None:
        self._file_mode, self._folder_mode = (0o666, 0o777) if shared else (PRIVATE_FILE, PRIVATE_FOLDER)

    def open(self, path: Path, *, create: bool = False, write: bool = True) -> DiskFile:
        flags = os.O_RDWR if write else os.O_RDONLY
        return DiskFile(path, flags | os.O_CREAT if create else flags, self._file_mode)

    def read(self, path: Path) -> bytes:
        return path.read_bytes()

    def status(self, path: Path) -> FileStatus | None:
        try:
            found = os.stat(path)  # noqa: PTH116 called for each synced file; Path.stat is slower
        except (FileNotFoundError, NotADirectoryError):
            return None
        mode = found.st_mode
        return FileStatus(found.st_size, found.st_mtime_ns // 1_000_000, stat.S_ISDIR(mode), stat.S_IMODE(mode))

    def list(self, folder: Path) -> list[str]:
        try:
            return sorted(entry.name for entry in os.scandir(folder))
        except FileNotFoundError:
            return []

    def make_dir(self, folder: Path) -> None:
        missing = [path for path in (folder, *folder.parents) if not path.exists()]
        for path in reversed(missing):
            path.mkdir(self._folder_mode, exist_ok=True)
        if not missing:
            folder.mkdir(exist_ok=True)  # raises if it is not a folder

    def lock_dir(self, folder: Path) -> LockedFolder | None:
        fd = system.open_folder(folder)
        if fd is None:
            return LockedFolder(-1)
        if system.lock_folder(fd):
            return LockedFolder(fd)
        os.close(fd)
        return None

    def remove_dir(self, folder: Path) -> None:
        folder.rmdir()

    def replace(self, source: Path, target: Path) -> None:
        source.replace(target)

    def unlink(self, path: Path) -> None:
        path.unlink()

    def sync_dir(self, folder: Path) -> None:
        try:
            fd = system.open_folder(folder)
        except OSError as error:
            raise FolderNotOpened(*error.args[:2], str(folder)) from error
        if fd is None:
            return
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def usage(self, path: Path) -> DiskUsage:
        return DiskUsage(*system.disk_usage(path))


def write_atomically(files: NamedFiles, path: Path, data: bytes) -> None:
    """Replace `path` with `data`: after a crash it is the old content or the new, whole and synced."""
    new = path.with_name(path.name + ".tmp")
    with files.open(new, create=True) as file:
        file.truncate(0)
        file.write_at(0, data)
        file.sync()
    files.replace(new, path)
    files.sync_dir(path.parent)


def make_executable(path: Path) -> None:
    """Add execute permission wherever there is read permission."""
    mode = path.stat().st_mode
    path.chmod(mode | (mode & 0o444) >> 2)


def may_write_in(folder: Path) -> bool:
    """Whether this user may create files in a folder, and the folder if it does not exist."""
    nearest = next(path for path in (folder.absolute(), *folder.absolute().parents) if os.path.lexists(path))
    try:
        Path(tempfile.mkdtemp(prefix=".pocketmq-", dir=nearest)).rmdir()  # os.access lets root pass, even in /proc
    except OSError:
        return False
    return True


def user_folder() -> Path:
    """The home folder of the user. RuntimeError if there is none."""
    return Path.home()


def find_program(name: str, path: str | None = None) -> Path | None:
    """The path of a program, searched in `path` or PATH; None if not found."""
    found = shutil.which(name, path=path)
    return None if found is None else Path(found)


def files_below(files: NamedFiles, folder: Path) -> Iterator[Path]:
    """Every file below `folder`, in name order."""
    for name in files.list(folder):
        path = folder / name
        status = files.status(path)
        if status is None:
            continue
        if status.is_dir:
            yield from files_below(files, path)
        else:
            yield path


def remove_whole(path: Path) -> None:
    """Remove a file, or a folder with its content. A link is removed, but not its target."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


_temporary: dict[Path, int] = {}
"""Existing temporary folders, and the processes that created them."""


@contextmanager
def temporary_folder(prefix: str) -> Iterator[Path]:
    """A new private folder. It is removed at the end of the block, or when the process that created it ends."""
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    _temporary[folder] = os.getpid()
    try:
        yield folder
    finally:
        _remove_temporary(folder)


def _remove_temporary(folder: Path) -> None:
    # The child of a fork has a copy of the table, but does not own the folders.
    if _temporary.pop(folder, None) == os.getpid():
        shutil.rmtree(folder, ignore_errors=True)


@atexit.register
def _remove_all_temporary() -> None:
    for folder in list(_temporary):
        _remove_temporary(folder)


@contextmanager
def _errors_to(fd: int) -> Iterator[int]:
    """Redirect the error stream to `fd`, which is closed. Yields the previous descriptor."""
    sys.stderr.flush()
    before = os.dup(STDERR)
    os.dup2(fd, STDERR)
    os.close(fd)
    try:
        yield before
    finally:
        sys.stderr.flush()
        os.dup2(before, STDERR)
        os.close(before)


@contextmanager
def diverted_errors(path: Path) -> Iterator[TextIO]:
    """Append the error stream of this process and its children to `path`. Yields the previous stream."""
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | system.OPEN_FLAGS, PRIVATE_FILE)
    with _errors_to(log) as before, os.fdopen(os.dup(before), "w", encoding="utf-8", errors="replace") as stream:
        yield stream


@contextmanager
def captured_errors(on_line: Callable[[str], None]) -> Iterator[None]:
    """Call `on_line` for each line that this process and its children write to the error stream."""
    reading, writing = os.pipe()
    reader = threading.Thread(target=_read_lines, args=(reading, on_line), name="pocketmq captured errors", daemon=True)
    reader.start()
    try:
        with _errors_to(writing):
            yield
    except BaseException:
        reader.join(LAST_LINES_S)  # so that the last lines of a failed child come before the error
        raise


def _read_lines(reading: int, on_line: Callable[[str], None]) -> None:
    with os.fdopen(reading, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            on_line(line.rstrip("\n"))

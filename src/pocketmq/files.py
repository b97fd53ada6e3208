"""The only door to disk. Everything that touches a file goes through a `Files`, so that faults can be injected here.

    Files ── names: list, replace, unlink, folders, how full the disk is
      └─ open ─► File ── bytes of one file: read_at, write_at, sync, map …

What survives a crash, and what the callers therefore have to do:
- bytes are safe after `File.sync`; before it, any part of them may be lost, in any order, in whole sectors or torn;
- a name (created, replaced, unlinked) is safe after `sync_dir` of its folder;
- `replace` is atomic: after a crash the name means the old file or the new one, never a mixture.

Writes and syncs release the interpreter lock; a read-only map does not copy. A map keeps its bytes alive after `unlink`
and after `close`, so retention may unlink a file while a reader still looks at it.

What is made here can be read by its owner alone: folders get mode 0700 and files 0600, unless they are made to be shared.
Locks and temporary folders belong to the process that took them: the child of a fork holds no lock, and removes nothing.
"""

import atexit
import errno
import fcntl
import mmap
import os
import shutil
import stat
import struct
import sys
import tempfile
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple, Protocol, Self, TextIO

PRIVATE_FOLDER = 0o700
PRIVATE_FILE = 0o600
STDERR = 2
"""The number of the error stream."""
HEARING_S = 2.0
_LOCK = struct.Struct("hhqqi4x")
_FIRST_BYTE = _LOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)


class DiskUsage(NamedTuple):
    """Size of the file system that holds a path, and what of it is free, in bytes; as with `df`, without what only the administrator may take."""

    total: int
    free: int

    @property
    def used_ratio(self) -> float:
        """Part in use, 0 to 1."""
        return 1 - self.free / self.total if self.total else 1.0


class FileStatus(NamedTuple):
    size: int
    modified_ms: int
    is_dir: bool
    mode: int = PRIVATE_FOLDER
    """Who may do what: the permission bits."""


class File(Protocol):
    """One open file. Offsets are absolute: there is no position."""

    @property
    def path(self) -> Path: ...

    def read_at(self, offset: int, size: int) -> bytes:
        """Up to `size` bytes; fewer only at the end of the file."""

    def write_at(self, offset: int, data: bytes | bytearray | memoryview) -> None:
        """Write all of `data`, or raise; after an error any part of it may be there."""

    def write_now(self, offset: int, data: bytes) -> bool:
        """`write_at`, or False if it would block, where the file system can tell: XFS can, ext4 cannot. Part may be written."""

    def size(self) -> int: ...

    def truncate(self, size: int) -> None:
        """Cut or extend (with zeros that take no space) to `size`."""

    def allocate(self, size: int) -> None:
        """Reserve real blocks up to `size`, so that later writes below it cannot run out of space."""

    def sync(self) -> None:
        """Wait until what was written is on the disk. After an error nothing may be assumed about it."""

    def next_data(self, offset: int) -> int | None:
        """Where bytes that may differ from zero begin at or behind `offset`; None when all the rest is a hole."""

    def map(self, size: int) -> memoryview:
        """The first `size` bytes, read only; later writes show in it."""

    def lock(self) -> bool:
        """Take the file for this process; False when another one has it. Freed by `close`, or with the process."""

    def is_locked(self) -> bool:
        """Whether another opening of the file has it. Takes nothing, and may be asked of a file opened for reading."""

    def lock_holder(self) -> int | None:
        """The id of the process that has the file, if that can be found out."""

    def close(self) -> None:
        """Closing twice is harmless. Maps live on."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *exc: object) -> None: ...


class FolderNotOpened(OSError):
    """A folder could not be opened to sync it: nothing is lost, and another attempt may help. A sync that failed is another error."""


class FolderLock(Protocol):
    """A folder that is taken until `close`, or the end of the process."""

    def close(self) -> None: ...


class Files(Protocol):
    """Names on a disk."""

    def open(self, path: Path, *, create: bool = False, write: bool = True) -> File:
        """Open `path`; with `create`, make it (empty) when it is missing."""

    def read(self, path: Path) -> bytes: ...

    def status(self, path: Path) -> FileStatus | None:
        """None when there is nothing of that name."""

    def list(self, folder: Path) -> list[str]:
        """Names in `folder`, sorted; none when it does not exist."""

    def make_dir(self, folder: Path) -> None:
        """Make `folder` and its parents; harmless when it exists."""

    def remove_dir(self, folder: Path) -> None:
        """Remove an empty folder."""

    def lock_dir(self, folder: Path) -> "FolderLock | None":
        """Take a folder for this process, by another lock than `File.lock`; None when another one has it."""

    def replace(self, source: Path, target: Path) -> None: ...

    def unlink(self, path: Path) -> None: ...

    def sync_dir(self, folder: Path) -> None:
        """Wait until the names in `folder` are on the disk. FolderNotOpened when that could not even begin."""

    def usage(self, path: Path) -> DiskUsage: ...


class DiskFile:
    """A `File` of the operating system."""

    def __init__(self, path: Path, flags: int, mode: int = PRIVATE_FILE) -> None:
        self._path = path
        self._fd = os.open(path, flags | os.O_CLOEXEC, mode)
        self._can_tell = hasattr(os, "RWF_NOWAIT")

    @property
    def path(self) -> Path:
        return self._path

    def read_at(self, offset: int, size: int) -> bytes:
        data = os.pread(self._fd, size, offset)
        if len(data) == size or not data:
            return data
        pieces = [data]
        missing = size - len(data)
        while missing and (piece := os.pread(self._fd, missing, offset + size - missing)):
            pieces.append(piece)
            missing -= len(piece)
        return b"".join(pieces)

    def write_at(self, offset: int, data: bytes | bytearray | memoryview) -> None:
        written = os.pwrite(self._fd, data, offset)
        if written == len(data):
            return
        rest = memoryview(data)
        while written < len(rest):
            count = os.pwrite(self._fd, rest[written:], offset + written)
            if count == 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._path))
            written += count

    def write_now(self, offset: int, data: bytes) -> bool:
        if self._can_tell:
            try:
                return os.pwritev(self._fd, (data,), offset, os.RWF_NOWAIT) == len(data)
            except BlockingIOError:
                return False
            except OSError as error:
                if error.errno != errno.EOPNOTSUPP:
                    raise
                self._can_tell = False
        self.write_at(offset, data)
        return True

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)

    def allocate(self, size: int) -> None:
        os.posix_fallocate(self._fd, 0, size)

    def sync(self) -> None:
        os.fdatasync(self._fd)

    def next_data(self, offset: int) -> int | None:
        try:
            return os.lseek(self._fd, offset, os.SEEK_DATA)
        except OSError as failure:
            if failure.errno == errno.ENXIO:  # nothing but a hole, or the end
                return None
            raise

    def map(self, size: int) -> memoryview:
        if size == 0:  # to mmap, 0 means the whole file
            return memoryview(b"")
        return memoryview(mmap.mmap(self._fd, size, prot=mmap.PROT_READ))

    def lock(self) -> bool:
        # A record lock on the first byte, as Java takes it, so that a broker of either kind keeps the other out; bound to
        # this open file (OFD) and not to the process, so that it also works between two stores of one process.
        try:
            fcntl.fcntl(self._fd, fcntl.F_OFD_SETLK, _FIRST_BYTE)
        except (BlockingIOError, PermissionError):
            return False
        _held.add(self)
        return True

    def lock_dir(self) -> bool:
        """Take a folder that was opened. A file system without such locks is taken for granted."""
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:
            return True
        _held.add(self)
        return True

    def lock_holder(self) -> int | None:
        pid: int = _LOCK.unpack(fcntl.fcntl(self._fd, fcntl.F_OFD_GETLK, _FIRST_BYTE))[4]
        return pid if pid > 0 else _process_with_lock(os.fstat(self._fd))  # ours are of an open file, not of a process

    def is_locked(self) -> bool:
        return bool(_LOCK.unpack(fcntl.fcntl(self._fd, fcntl.F_OFD_GETLK, _FIRST_BYTE))[0] != fcntl.F_UNLCK)

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _process_with_lock(lock: os.stat_result) -> int | None:
    """The process that holds a lock on this file, as far as this user may see."""
    for process in os.listdir("/proc") if os.path.isdir("/proc") else ():  # noqa: PTH208, PTH112
        try:
            for fd in os.listdir(f"/proc/{process}/fd") if process.isdigit() else ():  # noqa: PTH208
                found = os.stat(f"/proc/{process}/fd/{fd}")  # noqa: PTH116
                is_same = (found.st_dev, found.st_ino) == (lock.st_dev, lock.st_ino)
                if is_same and "lock:" in Path(f"/proc/{process}/fdinfo/{fd}").read_text():
                    return int(process)
        except OSError:
            continue  # it has ended, or belongs to another user
    return None


_held: "weakref.WeakSet[DiskFile]" = weakref.WeakSet()
"""Files and folders that are locked by this process."""


def _drop_locks() -> None:
    """In the child of a fork: it shares the locks of its parent, and would keep them when the parent ends."""
    for file in list(_held):
        file.close()


os.register_at_fork(after_in_child=_drop_locks)


class DiskFiles:
    """The `Files` of the operating system. Files and folders that are `shared` get the usual modes: others may read them."""

    def __init__(self, *, shared: bool = False) -> None:
        self._file_mode, self._folder_mode = (0o666, 0o777) if shared else (PRIVATE_FILE, PRIVATE_FOLDER)

    def open(self, path: Path, *, create: bool = False, write: bool = True) -> DiskFile:
        flags = os.O_RDWR if write else os.O_RDONLY
        return DiskFile(path, flags | os.O_CREAT if create else flags, self._file_mode)

    def read(self, path: Path) -> bytes:
        return path.read_bytes()

    def status(self, path: Path) -> FileStatus | None:
        try:
            found = os.stat(path)  # noqa: PTH116 asked of every file that is synced; a Path's own takes longer
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
            folder.mkdir(exist_ok=True)  # raises when it is something else

    def lock_dir(self, folder: Path) -> DiskFile | None:
        opened = DiskFile(folder, os.O_RDONLY | os.O_DIRECTORY)
        if opened.lock_dir():
            return opened
        opened.close()
        return None

    def remove_dir(self, folder: Path) -> None:
        folder.rmdir()

    def replace(self, source: Path, target: Path) -> None:
        source.replace(target)

    def unlink(self, path: Path) -> None:
        path.unlink()

    def sync_dir(self, folder: Path) -> None:
        try:
            fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise FolderNotOpened(*error.args[:2], str(folder)) from error
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def usage(self, path: Path) -> DiskUsage:
        found = os.statvfs(path)
        used = found.f_blocks - found.f_bfree
        return DiskUsage(found.f_frsize * (used + found.f_bavail), found.f_frsize * found.f_bavail)


def write_atomically(files: Files, path: Path, data: bytes) -> None:
    """Replace `path` with `data`: after a crash it is the old content or the new, whole and synced."""
    new = path.with_name(path.name + ".tmp")
    with files.open(new, create=True) as file:
        file.truncate(0)
        file.write_at(0, data)
        file.sync()
    files.replace(new, path)
    files.sync_dir(path.parent)


def is_running(pid: int) -> bool:
    """Whether there is a process with this id."""
    try:
        with suppress(PermissionError):
            os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def make_executable(path: Path) -> None:
    """Let whoever may read a file run it, too."""
    mode = path.stat().st_mode
    path.chmod(mode | (mode & 0o444) >> 2)


def may_write_in(folder: Path) -> bool:
    """Whether this user may make files in a folder, and the folder itself where there is none yet."""
    nearest = next(path for path in (folder.absolute(), *folder.absolute().parents) if os.path.lexists(path))
    return nearest.is_dir() and os.access(nearest, os.W_OK | os.X_OK)


def home_folder() -> Path:
    """The home folder of the user; RuntimeError when there is none to be found."""
    return Path.home()


def find_program(name: str, path: str | None = None) -> Path | None:
    """Where a shell finds a program of this name, by the PATH unless another one is given; None when it does not."""
    found = shutil.which(name, path=path)
    return None if found is None else Path(found)


def memory_bytes() -> int:
    """Memory of this machine: how much of what was written lately a read finds without the disk."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def walk(files: Files, folder: Path) -> Iterator[Path]:
    """Every file below `folder`, in name order."""
    for name in files.list(folder):
        path = folder / name
        status = files.status(path)
        if status is None:
            continue
        if status.is_dir:
            yield from walk(files, path)
        else:
            yield path


def remove_whole(path: Path) -> None:
    """Remove a file, or a folder with everything in it. Of a link the link itself goes, and never what it leads to."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


_temporary: dict[Path, int] = {}
"""Temporary folders that are there, and the process that made each of them."""


@contextmanager
def temporary_folder(prefix: str) -> Iterator[Path]:
    """A new folder that only this user can read. At the end, or with the process that made it, it is removed with everything in it."""
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    _temporary[folder] = os.getpid()
    try:
        yield folder
    finally:
        _remove_temporary(folder)


def _remove_temporary(folder: Path) -> None:
    # The child of a fork has a copy of the table, and no folder of its own in it.
    if _temporary.pop(folder, None) == os.getpid():
        shutil.rmtree(folder, ignore_errors=True)


@atexit.register
def _remove_all_temporary() -> None:
    for folder in list(_temporary):
        _remove_temporary(folder)


@contextmanager
def _errors_to(fd: int) -> Iterator[int]:
    """Meanwhile the error stream is `fd`, which is closed here; what it was before is yielded."""
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
    """What this process and those that it starts say on the error stream goes to the end of `path`; the stream as it was is yielded."""
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, PRIVATE_FILE)
    with _errors_to(log) as before, os.fdopen(os.dup(before), "w", encoding="utf-8", errors="replace") as stream:
        yield stream


@contextmanager
def heard_errors(hear: Callable[[str], None]) -> Iterator[None]:
    """What this process, and those that it starts meanwhile for as long as they live, say on the error stream is told line by line."""
    reading, writing = os.pipe()
    hearing = threading.Thread(target=_hear, args=(reading, hear), name="pocketmq heard errors", daemon=True)
    hearing.start()
    try:
        with _errors_to(writing):
            yield
    except BaseException:
        hearing.join(HEARING_S)  # who failed has ended, and its last words are told before the failure is
        raise


def _hear(reading: int, hear: Callable[[str], None]) -> None:
    with os.fdopen(reading, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            hear(line.rstrip("\n"))

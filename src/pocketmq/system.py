"""Everything that depends on the operating system, each with what replaces it where the system lacks it.

    here, on Linux                    where it is missing
    ──────────────────────────────    ────────────────────────────────────────────────────────────────────────────
    pread, pwrite                     seek, then read or write, one thread at a time
    pwritev with RWF_NOWAIT           a write that may wait
    fdatasync                         F_FULLFSYNC on macOS, which also empties the disk's own cache; else fsync
    posix_fallocate                   zeros are written to the end of the file
    SEEK_DATA                         every byte may hold data
    lock of an open file (OFD)        record lock of the process, and a table of the process's own locks; msvcrt on Windows
    flock of a folder                 none: the lock file alone excludes a second broker
    open and sync a folder            none: Windows writes names with their file
    statvfs                           shutil.disk_usage
    fork, register_at_fork            no process forks
    loop.add_signal_handler           a handler that wakes the loop
    siginterrupt, SIGHUP, SIGKILL     left out; a process is terminated
    getrusage                         os.times
    sched_getaffinity                 the number of processors
    sysconf                           4 GiB of memory are assumed
    sendfile                          is not used: the parts of an answer are views of memory

`clock` reads the time, and `memory` sets options of glibc; both do without what is missing in the same way. A test takes all calls of the
left column away and runs the core of the tests.
"""

import asyncio
import errno
import mmap
import os
import shutil
import signal
import struct
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

try:
    import fcntl as _fcntl
    import resource as _resource
except ImportError:  # Windows
    fcntl: Any = None
    resource: Any = None
else:
    fcntl = _fcntl
    resource = _resource

Bytes = bytes | bytearray | memoryview

ASSUMED_MEMORY_BYTES: Final = 4 * 1024**3
ZEROS: Final = bytes(1024 * 1024)
STOP_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
SESSION_SIGNALS: Final = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)
"""Signals that end the programs of a terminal's session."""
KILL: Final = getattr(signal, "SIGKILL", signal.SIGTERM)
OPEN_FLAGS: Final[int] = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_OFD_SET: Final[int | None] = getattr(fcntl, "F_OFD_SETLK", None) if sys.platform == "linux" else None
_OFD_GET: Final[int | None] = getattr(fcntl, "F_OFD_GETLK", None) if sys.platform == "linux" else None
_FULL_SYNC: Final[int | None] = getattr(fcntl, "F_FULLFSYNC", None)
_LOCK: Final = struct.Struct("hhqqi4x")
"""The struct flock of Linux."""

_position_lock = threading.Lock()
"""Held between a seek and its read or write."""
_own_locks: dict[tuple[int, int], int] = {}
"""Where a lock belongs to the process: device and number of the files that it has locked, and by which descriptor."""


# Bytes of a file


def read_at(fd: int, size: int, offset: int) -> bytes:
    if hasattr(os, "pread"):
        return os.pread(fd, size, offset)
    with _position_lock:
        os.lseek(fd, offset, os.SEEK_SET)
        return os.read(fd, size)


def write_at(fd: int, data: Bytes, offset: int) -> int:
    """Returns how many bytes are written, which may be fewer."""
    if hasattr(os, "pwrite"):
        return os.pwrite(fd, data, offset)
    with _position_lock:
        os.lseek(fd, offset, os.SEEK_SET)
        return os.write(fd, data)


def can_write_without_wait() -> bool:
    return hasattr(os, "pwritev") and hasattr(os, "RWF_NOWAIT")


def write_without_wait(fd: int, data: Bytes, offset: int) -> int:
    """BlockingIOError if it would have to wait for the disk; another OSError if the file system cannot tell."""
    return os.pwritev(fd, (data,), offset, os.RWF_NOWAIT)


def sync_data(fd: int) -> None:
    if hasattr(os, "fdatasync"):
        os.fdatasync(fd)
    elif _FULL_SYNC is not None:
        fcntl.fcntl(fd, _FULL_SYNC)
    else:
        os.fsync(fd)


def allocate(fd: int, size: int) -> None:
    """Reserve blocks up to `size`, and extend the file to it."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(fd, 0, size)
        return
    at = os.fstat(fd).st_size
    while at < size:
        written = write_at(fd, ZEROS[: min(len(ZEROS), size - at)], at)
        if written == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        at += written


def next_data(fd: int, offset: int) -> int | None:
    """The next offset, from `offset` on, that may hold data; None if there is none."""
    if not hasattr(os, "SEEK_DATA"):
        return offset if offset < os.fstat(fd).st_size else None
    try:
        return os.lseek(fd, offset, os.SEEK_DATA)
    except OSError as failure:
        if failure.errno == errno.ENXIO:  # only a hole, or the end
            return None
        raise


def map_file(fd: int, size: int) -> memoryview:
    return memoryview(mmap.mmap(fd, size, access=mmap.ACCESS_READ))


def private_memory(size: int) -> mmap.mmap:
    """Memory of this process alone, also after a fork."""
    if hasattr(mmap, "MAP_PRIVATE"):
        return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return mmap.mmap(-1, size)


# Locks


def lock_first_byte(fd: int) -> bool:
    """Lock the first byte of a file, as Java does; False if another open file has the lock.

    A close gives it back, after `unlock`. Where the lock belongs to the process, a close of any descriptor of this file does.
    """
    if _OFD_SET is not None:
        return _is_granted(lambda: fcntl.fcntl(fd, _OFD_SET, _first_byte(fcntl.F_WRLCK)))
    file = _file_of(fd)
    if (owner := _own_locks.get(file)) is not None:
        return owner == fd
    if not _is_granted(lambda: _lock_for_process(fd)):
        return False
    _own_locks[file] = fd
    return True


def is_first_byte_locked(fd: int) -> bool:
    """Whether another open file has the lock."""
    if _OFD_GET is not None:
        return bool(_LOCK.unpack(fcntl.fcntl(fd, _OFD_GET, _first_byte(fcntl.F_WRLCK)))[0] != fcntl.F_UNLCK)
    if (owner := _own_locks.get(_file_of(fd))) is not None:
        return owner != fd
    if fcntl is None:
        with suppress(OSError):
            _lock_for_process(fd)
            _unlock_for_process(fd)
            return False
        return True
    try:  # a lock for writing needs a file opened for writing; one for reading shows the same
        fcntl.lockf(fd, fcntl.LOCK_SH | fcntl.LOCK_NB, 1)
        fcntl.lockf(fd, fcntl.LOCK_UN, 1)
    except (BlockingIOError, PermissionError):
        return True
    return False


def lock_owner(fd: int) -> int | None:
    """The process that has the lock, if it is known."""
    if _OFD_GET is None:
        return None
    pid: int = _LOCK.unpack(fcntl.fcntl(fd, _OFD_GET, _first_byte(fcntl.F_WRLCK)))[4]
    return pid if pid > 0 else None


def unlock(fd: int) -> None:
    """Before a close: forget a lock of the process. On Linux the close is enough."""
    if _own_locks and _own_locks.get(file := _file_of(fd)) == fd:
        del _own_locks[file]
        with suppress(OSError):
            _unlock_for_process(fd)


def lock_folder(fd: int) -> bool:
    """Lock an open folder; False if another process has it locked, True also on a file system without such locks."""
    if fcntl is None:
        return True
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def _first_byte(kind: int) -> bytes:
    return _LOCK.pack(kind, os.SEEK_SET, 0, 1, 0)


def _is_granted(lock: Callable[[], object]) -> bool:
    try:
        lock()
    except (BlockingIOError, PermissionError):
        return False
    return True


def _file_of(fd: int) -> tuple[int, int]:
    found = os.fstat(fd)
    return found.st_dev, found.st_ino


if sys.platform == "win32":
    import msvcrt

    def _lock_for_process(fd: int) -> None:
        with _position_lock:
            os.lseek(fd, 0, os.SEEK_SET)
            msvcrt.locking(fd, msvcrt.LK_NBLCK, 1)

    def _unlock_for_process(fd: int) -> None:
        with _position_lock:
            os.lseek(fd, 0, os.SEEK_SET)
            msvcrt.locking(fd, msvcrt.LK_UNLCK, 1)

else:

    def _lock_for_process(fd: int) -> None:
        if fcntl is not None:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1)

    def _unlock_for_process(fd: int) -> None:
        if fcntl is not None:
            fcntl.lockf(fd, fcntl.LOCK_UN, 1)


# Folders and disks


def open_folder(folder: Path) -> int | None:
    """A descriptor to lock or sync a folder; None where folders cannot be opened."""
    if not hasattr(os, "O_DIRECTORY"):
        return None
    return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | OPEN_FLAGS)


def disk_usage(path: Path) -> tuple[int, int]:
    """Total and free bytes, without the blocks reserved for the administrator."""
    if not hasattr(os, "statvfs"):
        usage = shutil.disk_usage(path)
        return usage.total, usage.free
    found = os.statvfs(path)
    used = found.f_blocks - found.f_bfree
    return found.f_frsize * (used + found.f_bavail), found.f_frsize * found.f_bavail


# Processes, processors and memory


def after_fork_in_child(callback: Callable[[], object]) -> None:
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=callback)


def is_running(pid: int) -> bool:
    """Whether a process exists. On Windows, where signal 0 is ctrl-C, it is taken to exist."""
    if sys.platform == "win32":
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def processor_s() -> float:
    """The processor time that this process has used."""
    if resource is None:
        used = os.times()
        return used.user + used.system
    spent = resource.getrusage(resource.RUSAGE_SELF)
    return float(spent.ru_utime + spent.ru_stime)


def usable_cores() -> int:
    """The processors that this process may use."""
    allowed = getattr(os, "sched_getaffinity", None)
    return (os.cpu_count() or 1) if allowed is None else len(allowed(0))


def memory_bytes() -> int:
    """The memory of this machine."""
    if not hasattr(os, "sysconf"):
        return ASSUMED_MEMORY_BYTES
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


# Signals


def add_signal_handler(
    loop: asyncio.AbstractEventLoop, number: int, callback: Callable[..., object], *values: Any
) -> None:
    """Call `callback` in the loop when the signal arrives. Only in the main thread."""
    try:
        loop.add_signal_handler(number, callback, *values)
    except NotImplementedError:  # the loops of Windows
        signal.signal(number, lambda *_: loop.call_soon_threadsafe(callback, *values))


def remove_signal_handler(loop: asyncio.AbstractEventLoop, number: int) -> None:
    try:
        loop.remove_signal_handler(number)
    except NotImplementedError:
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)


def restart_interrupted_calls(number: int) -> None:
    if hasattr(signal, "siginterrupt"):
        signal.siginterrupt(number, False)

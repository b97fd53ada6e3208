"""An in-memory disk that fails, stalls, fills up and loses power on demand. It implements `Files`, as `DiskFiles` does.

    program ──► FaultyFiles ──► the live state             read, list, map: always the latest
                   │  │            │ sync, sync_dir
                   │  │            ▼
                   │  │         the safe state ── crash(random) ──► another FaultyFiles: one legal state after a power loss
                   │  └─ journal: every operation in order ── state_at(n), crash_points(seed)
                   └─ fail, stall, capacity

The worst case that `crash` simulates, within the promise of `pocketmq.files`:

    write, then sync                     the bytes and the size survive if the name does
    write, no sync                       any subset of its sectors (512 bytes) survives, out of order with other writes; with
                                         `tear_bytes` also the first bytes of a sector. The size grows fully, partly or not, independently
    truncate, allocate, no sync          survives or not; unwritten bytes read as zeros
    a running sync                       covers nothing yet; when it ends, it covers the writes before its start
    a failed sync                        its bytes may be lost even after later successful syncs, as on Linux
    create, unlink, replace, no sync_dir survives or not, independently per name; operations on one name stay in order
    replace                              both names change or none: the old or the new file, never neither
    make_dir, then sync_dir inside       the names inside are safe, but the folder's own name needs a sync of its parent
    locks, open files, maps              do not survive

A map shows later writes until the file grows beyond its size at the first read or map, and keeps its bytes after `unlink` and
`close`. Threads can share a disk. The same seed and the same operations give the same states.
"""

import errno
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import NamedTuple

from pocketmq.clock import Clock
from pocketmq.errors import UsageError
from pocketmq.files import DiskFiles, DiskUsage, Files, FileStatus, FolderNotOpened
from pocketmq.testing.disk.contents import PAGE, Contents
from pocketmq.testing.disk.drive import Drive, FaultyFile, FaultyFolderLock
from pocketmq.testing.disk.faults import LONGEST_STALL_S, Call, Fault, Stall
from pocketmq.testing.disk.model import Disk, Operation, Survives
from pocketmq.testing.disk.names import os_error
from pocketmq.testing.fake_clock import FakeClock

JOURNAL_MAX = 100_000
"""The limit on recorded operations; older ones are dropped."""
ENDLESS = 1 << 40
"""The reported size of a disk without a capacity, in bytes."""


class CrashPoint(NamedTuple):
    """A disk after a power loss that followed `last`, the operation that led to `position`.

    `state_at(position).crash(Random(seed))` reproduces it.
    """

    position: int
    last: Operation | None
    seed: str
    files: "FaultyFiles"


class FaultyFiles:
    """An in-memory `Files` with faults, a journal and crash states.

    `capacity` limits it, in bytes. `clock` sets file times. `seed` decides how much of a failed write is written. `nowait`:
    `write_at` can tell whether it would have to wait.
    """

    def __init__(
        self,
        *,
        capacity: int | None = None,
        clock: Clock | None = None,
        seed: int = 0,
        journal_max: int = JOURNAL_MAX,
        nowait: bool = False,
    ) -> None:
        self._drive = Drive(
            Disk(),
            capacity=capacity,
            clock=clock or FakeClock(),
            seed=seed,
            journal_max=journal_max,
            nowait=nowait,
        )

    def open(self, path: Path, *, create: bool = False, write: bool = True) -> FaultyFile:
        name = str(path)
        self._drive.strike("open", name)
        if create and self.status(path) is None:
            self._drive.strike("create", name)
        with self._drive.lock:
            found = self._drive.disk.names.find(name)
            if found is None and create:
                found = self._drive.disk.next_number
                self._drive.do(Operation("create", name, found))
            if found is None:
                raise os_error(errno.ENOENT, name)
            return FaultyFile(self._drive, path, found, self._contents(found, name), writable=write)

    def read(self, path: Path) -> bytes:
        name = str(path)
        self._drive.strike("read", name)
        with self._drive.lock:
            contents = self._contents(self._drive.disk.names.existing(name), name)
            return contents.read(0, contents.size)

    def status(self, path: Path) -> FileStatus | None:
        with self._drive.lock:
            try:
                found = self._drive.disk.names.find(str(path))
            except NotADirectoryError:
                return None
            if found is None:
                return None
            contents = self._drive.disk.files.get(found)
            if contents is None:
                return FileStatus(0, 0, is_dir=True)
            return FileStatus(contents.size, contents.modified_ms, is_dir=False)

    def list(self, folder: Path) -> list[str]:
        with self._drive.lock:
            try:
                return sorted(self._drive.disk.names.folder(str(folder)).live)
            except FileNotFoundError:
                return []

    def make_dir(self, folder: Path) -> None:
        name = str(folder)
        self._drive.strike("make_dir", name)
        with self._drive.lock:
            for missing in tuple(self._drive.disk.names.missing_folders(name)):
                self._drive.do(Operation("make_dir", missing, self._drive.disk.next_number))

    def remove_dir(self, folder: Path) -> None:
        self._drive.strike("remove_dir", str(folder))
        with self._drive.lock:
            self._drive.do(Operation("remove_dir", str(folder)))

    def lock_dir(self, folder: Path) -> FaultyFolderLock | None:
        with self._drive.lock:
            lock = FaultyFolderLock(self._drive, self._drive.disk.names.existing(str(folder)))
            return lock if lock.take() else None

    def replace(self, source: Path, target: Path) -> None:
        self._drive.strike("replace", str(source), str(target))
        with self._drive.lock:
            self._drive.do(Operation("replace", str(source), target=str(target)))

    def unlink(self, path: Path) -> None:
        self._drive.strike("unlink", str(path))
        with self._drive.lock:
            self._drive.do(Operation("unlink", str(path)))

    def sync_dir(self, folder: Path) -> None:
        name = str(folder)
        try:
            self._drive.strike("open_dir", name)
        except OSError as refusal:
            raise FolderNotOpened(*refusal.args[:2], name) from refusal
        with self._drive.lock:
            names = self._drive.disk.names
            names.folder(name)
            number, covers = names.existing(name), names.issued
        error = self._drive.admit("sync_dir", name)
        with self._drive.lock:
            self._drive.do(Operation("sync_dir", name, number, covers=covers, failed=error is not None))
        if error is not None:
            raise error

    def usage(self, path: Path) -> DiskUsage:
        with self._drive.lock:
            self._drive.disk.names.existing(str(path))
            total = ENDLESS if self._drive.capacity is None else self._drive.capacity
            return DiskUsage(total, max(0, total - self._drive.disk.used()))

    def fail(self, call: Call, code: int = errno.EIO, path: str = "*", *, nth: int = 1, times: int | None = 1) -> Fault:
        """Raise `OSError(code)` from the `nth` next call on a path like `path`, `times` times; None: until healed.

        A failed write may be written partly. Bytes of a failed sync may be lost even after later syncs.
        """
        fault = Fault(call, code, path, nth, times)
        self._drive.add_fault(fault)
        return fault

    def stall(
        self,
        call: Call,
        path: str = "*",
        *,
        nth: int = 1,
        times: int | None = 1,
        longest_s: float = LONGEST_STALL_S,
    ) -> Stall:
        """Block the `nth` next call on a path like `path`, `times` in total, until the test releases it.

        A call that is not released for `longest_s` of real time raises `Stuck`.
        """
        stall = Stall(call, path, nth, times, longest_s)
        self._drive.add_stall(stall)
        return stall

    def heal(self) -> None:
        """End all faults and release all stalls."""
        self._drive.heal()

    def stalled(self) -> int:
        """The number of blocked calls; for `VirtualLoop.count_stalled`."""
        return self._drive.stalled()

    def resize(self, capacity: int | None) -> None:
        """Change the capacity; None removes the limit."""
        with self._drive.lock:
            self._drive.capacity = capacity

    def crash(self, random: Random, *, survives: Survives = "any", tear_bytes: bool = False) -> "FaultyFiles":
        """A possible disk after a power loss now. This disk does not change.

        `survives="everything"` is the state after the process is killed; `"nothing"` keeps only safe data.
        """
        with self._drive.lock:
            return self._with(self._drive.disk.crash(random, survives, tear_bytes=tear_bytes))

    @property
    def position(self) -> int:
        """The number of operations so far."""
        return self._drive.journal.position

    @property
    def operations(self) -> tuple[Operation, ...]:
        """The recorded operations, oldest first; the last one led to `position`."""
        with self._drive.lock:
            return tuple(self._drive.journal.operations)

    def state_at(self, position: int) -> "FaultyFiles":
        """The disk after `position` operations, before any power loss."""
        with self._drive.lock:
            return self._with(self._drive.journal.state_at(position))

    def crash_points(self, seed: int, *, states: int = 1, tear_bytes: bool = False) -> Iterator[CrashPoint]:
        """`states` power losses before the first recorded operation and after each."""
        with self._drive.lock:
            moments = self._drive.journal.replay()
        for position, last, disk in moments:
            for state in range(states):
                point_seed = f"{seed}/{position}/{state}"
                found = disk.crash(Random(point_seed), "any", tear_bytes=tear_bytes)  # noqa: S311 repeatable, not secret
                yield CrashPoint(position, last, point_seed, self._with(found))

    def materialise(self, folder: Path) -> None:
        """Write the live state below `folder` of the real disk."""
        with self._drive.lock:
            _save(self._drive.disk, folder, DiskFiles())

    @classmethod
    def load(cls, folder: Path, root: Path = Path("/")) -> "FaultyFiles":
        """A disk with a copy of the real `folder` as `root`; all of it is safe."""
        return cls()._with(_load(folder, root, DiskFiles()))

    def _with(self, disk: Disk) -> "FaultyFiles":
        other = FaultyFiles.__new__(FaultyFiles)
        other._drive = self._drive.like_this(disk)
        return other

    def _contents(self, number: int, name: str) -> Contents:
        contents = self._drive.disk.files.get(number)
        if contents is None:
            raise os_error(errno.EISDIR, name)
        return contents


_CHUNK = 256 * PAGE
_HOLE = bytes(PAGE)


def _save(disk: Disk, folder: Path, files: Files) -> None:
    """Write the live state of `disk` below `folder`."""
    if files.list(folder):
        raise UsageError(f"{folder} is not empty; use an empty or a new folder")
    files.make_dir(folder)
    for name, contents in disk.entries():
        path = folder / name[1:]
        if contents is None:
            files.make_dir(path)
        else:
            _save_file(contents, path, files)


def _save_file(contents: Contents, path: Path, files: Files) -> None:
    with files.open(path, create=True) as file:
        file.truncate(contents.size)
        for number, page in contents.image.after(contents.log).pages.items():
            start = number * PAGE
            file.write_at(start, page[: contents.size - start])


def _load(folder: Path, root: Path, files: Files) -> Disk:
    """A disk with a copy of `folder` as `root`; all of it is safe."""
    disk = Disk()
    _make_folder(disk, root)
    for name in files.list(folder):
        _load_entry(disk, folder / name, root / name, files)
    return disk.crash(Random(0), "everything", tear_bytes=False)  # noqa: S311 nothing is random here


def _load_entry(disk: Disk, path: Path, copy: Path, files: Files) -> None:
    status = files.status(path)
    if status is None:
        return  # deleted meanwhile
    if status.is_dir:
        _make_folder(disk, copy)
        for name in files.list(path):
            _load_entry(disk, path / name, copy / name, files)
        return
    number = disk.next_number
    disk.apply(Operation("create", str(copy), number))
    for offset, page in _pages(path, files):
        disk.apply(Operation("write", str(copy), number, offset, page))
    disk.apply(Operation("truncate", str(copy), number, size=status.size, at_ms=status.modified_ms))


def _make_folder(disk: Disk, path: Path) -> None:
    for missing in list(disk.names.missing_folders(str(path))):
        disk.apply(Operation("make_dir", missing, disk.next_number))


def _pages(path: Path, files: Files) -> Iterator[tuple[int, bytes]]:
    with files.open(path, write=False) as file:
        for start in range(0, file.size(), _CHUNK):
            chunk = file.read_at(start, _CHUNK)
            for offset in range(0, len(chunk), PAGE):
                page = chunk[offset : offset + PAGE]
                if page != _HOLE[: len(page)]:
                    yield start + offset, page

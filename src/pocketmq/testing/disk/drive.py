"""Calls to the disk: rules first, then the disk, then the journal; and open files.

    call ── admit ──────────── do ──────────────► Disk.apply ──► Journal.record
             │ stalls block     │ under the lock
             └ faults raise     └ dated by the clock

`lock` is the only lock of a disk. Every access to `disk` or `journal` holds it; a stalled call does not.

The journal has every operation in order, so that any earlier state can be restored:

    start ── op ── op ── op ── … ── now
      └ a copy of the disk at `first`; applying the operations gives every later state

Beyond `limit` operations, the older half is applied to `start` and dropped.
"""

import errno
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Self

from pocketmq.clock import Clock
from pocketmq.errors import UsageError
from pocketmq.testing.disk.contents import Contents
from pocketmq.testing.disk.faults import Call, Fault, Stall
from pocketmq.testing.disk.model import Disk, Operation
from pocketmq.testing.disk.names import os_error


class Journal:
    def __init__(self, start: Disk, limit: int) -> None:
        if limit < 1:
            raise UsageError(f"journal_max={limit} must be at least 1")
        self.first = 0
        self.operations: list[Operation] = []
        self._start = start
        self._limit = limit

    @property
    def position(self) -> int:
        """The number of operations so far."""
        return self.first + len(self.operations)

    def record(self, operation: Operation) -> None:
        self.operations.append(operation)
        if len(self.operations) > self._limit:
            self._forget(len(self.operations) // 2)

    def _forget(self, count: int) -> None:
        count = max(count, 1)
        for operation in self.operations[:count]:
            self._start.apply(operation)
        del self.operations[:count]
        self.first += count

    def state_at(self, position: int) -> Disk:
        """The disk after the first `position` operations."""
        if not self.first <= position <= self.position:
            raise UsageError(
                f"no state at {position}: the journal has {self.first} to {self.position}; increase journal_max to keep more"
            )
        disk = self._start.copy()
        for operation in self.operations[: position - self.first]:
            disk.apply(operation)
        return disk

    def replay(self) -> Iterator[tuple[int, Operation | None, Disk]]:
        """Each position with its operation and the disk, which changes with the next step."""
        return _steps(self._start.copy(), self.first, tuple(self.operations))


def _steps(disk: Disk, first: int, operations: tuple[Operation, ...]) -> Iterator[tuple[int, Operation | None, Disk]]:
    yield first, None, disk
    for position, operation in enumerate(operations, first + 1):
        disk.apply(operation)
        yield position, operation, disk


class Drive:
    """The state that all open files of a disk share."""

    def __init__(
        self, disk: Disk, *, capacity: int | None, clock: Clock, seed: int, journal_max: int, nowait: bool
    ) -> None:
        self.lock = threading.Lock()
        self.disk = disk
        self.journal = Journal(disk.copy(), journal_max)
        self.journal_max = journal_max
        self.capacity = capacity
        self.clock = clock
        self.seed = seed
        self.nowait = nowait
        self.random = Random(seed)  # noqa: S311 repeatable, not secret
        self.owners: dict[int, object] = {}
        self._faults: tuple[Fault, ...] = ()
        self._stalls: tuple[Stall, ...] = ()

    def like_this(self, disk: Disk) -> "Drive":
        """A drive with the same settings and another disk, without faults, stalls and locks."""
        return Drive(
            disk,
            capacity=self.capacity,
            clock=self.clock,
            seed=self.seed,
            journal_max=self.journal_max,
            nowait=self.nowait,
        )

    def do(self, operation: Operation) -> None:
        dated = operation._replace(at_ms=self.clock.now_ms())
        self.disk.apply(dated)
        self.journal.record(dated)

    def free_bytes(self, contents: Contents, offset: int, size: int) -> int:
        """The number of `size` bytes at `offset` that fit on the disk."""
        return size if self.capacity is None else self.disk.free_bytes(contents, offset, size, self.capacity)

    def admit(self, call: Call, *paths: str) -> OSError | None:
        """Block if a stall applies; returns the error that the call must raise, if any."""
        if not self._faults and not self._stalls:
            return None
        with self.lock:
            stalls = [stall for stall in self._stalls if stall.meets(call, paths)]
            faults = [fault for fault in self._faults if fault.meets(call, paths)]
        for stall in stalls:
            stall.block()
        return os_error(faults[0].code, paths[0]) if faults else None

    def would_wait(self, call: Call, *paths: str) -> bool:
        """Whether `admit` would block. False on a disk that cannot tell."""
        with self.lock:
            return self.nowait and any(stall.would_meet(call, paths) for stall in self._stalls)

    def strike(self, call: Call, *paths: str) -> None:
        """`admit` for calls that do nothing if they fail."""
        error = self.admit(call, *paths)
        if error is not None:
            raise error

    def add_fault(self, fault: Fault) -> None:
        with self.lock:
            self._faults = (*(old for old in self._faults if not old.over), fault)

    def add_stall(self, stall: Stall) -> None:
        with self.lock:
            self._stalls = (*(old for old in self._stalls if not old.released), stall)

    def heal(self) -> None:
        with self.lock:
            faults, self._faults = self._faults, ()
            stalls, self._stalls = self._stalls, ()
        for fault in faults:
            fault.heal()
        for stall in stalls:
            stall.release()

    def stalled(self) -> int:
        return sum(stall.waiting for stall in self._stalls)


class FaultyFile:
    """An open file. `FaultyFiles.open` creates it under the lock."""

    def __init__(self, drive: Drive, path: Path, number: int, contents: Contents, *, writable: bool) -> None:
        self._drive = drive
        self._path = path
        self._name = str(path)
        self._number = number
        self._contents = contents
        self._writable = writable
        self._closed = False
        contents.opens += 1

    @property
    def path(self) -> Path:
        return self._path

    def read_at(self, offset: int, size: int) -> bytes:
        self._drive.strike("read", self._name)
        with self._drive.lock:
            self._check(offset, size)
            return self._contents.read(offset, size)

    def write_at(self, offset: int, data: bytes | bytearray | memoryview, *, wait: bool = True) -> None:
        if not wait and self._drive.would_wait("write", self._name):
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN), self._name)
        error = self._drive.admit("write", self._name)
        with self._drive.lock:
            self._check(offset)
            self._check_writable(errno.EBADF)
            if error is not None:
                kept = self._drive.random.randrange(len(data) + 1)
            else:
                kept = self._drive.free_bytes(self._contents, offset, len(data))
                error = os_error(errno.ENOSPC, self._name) if kept < len(data) else None
            if kept:
                failed = error is not None
                self._drive.do(Operation("write", self._name, self._number, offset, bytes(data[:kept]), failed=failed))
        if error is not None:
            raise error

    def size(self) -> int:
        with self._drive.lock:
            self._check()
            return self._contents.size

    def truncate(self, size: int) -> None:
        self._drive.strike("truncate", self._name)
        with self._drive.lock:
            self._check(size)
            self._check_writable(errno.EINVAL)
            self._drive.do(Operation("truncate", self._name, self._number, size=size))

    def allocate(self, size: int) -> None:
        self._drive.strike("allocate", self._name)
        with self._drive.lock:
            self._check(size - 1)
            self._check_writable(errno.EBADF)
            if self._drive.free_bytes(self._contents, 0, size) < size:
                raise os_error(errno.ENOSPC, self._name)
            self._drive.do(Operation("allocate", self._name, self._number, size=size))

    def sync(self) -> None:
        with self._drive.lock:
            self._check()
            covers = self._contents.issued
        error = self._drive.admit("sync", self._name)
        with self._drive.lock:
            self._drive.do(Operation("sync", self._name, self._number, covers=covers, failed=error is not None))
        if error is not None:
            raise error

    def next_data(self, offset: int) -> int | None:
        with self._drive.lock:
            self._check(offset)
            return self._contents.next_data(offset)

    def map(self, size: int) -> memoryview:
        with self._drive.lock:
            self._check(size)
            if size > self._contents.size:
                raise ValueError(f"cannot map {size} bytes of {self._name}, which has {self._contents.size}")
            return self._contents.map(size)

    def lock(self) -> bool:
        with self._drive.lock:
            self._check()
            return self._drive.owners.setdefault(self._number, self) is self

    def is_locked(self) -> bool:
        with self._drive.lock:
            self._check()
            return self._drive.owners.get(self._number, self) is not self

    def lock_holder(self) -> int | None:
        return None

    def close(self) -> None:
        with self._drive.lock:
            if self._closed:
                return
            self._closed = True
            self._contents.opens -= 1
            if self._drive.owners.get(self._number) is self:
                del self._drive.owners[self._number]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _check(self, *numbers: int) -> None:
        if self._closed:
            raise os_error(errno.EBADF, self._name)
        if any(number < 0 for number in numbers):
            raise os_error(errno.EINVAL, self._name)

    def _check_writable(self, code: int) -> None:
        if not self._writable:
            raise os_error(code, self._name)


class FaultyFolderLock:
    """The lock of a folder. The caller of `take` holds the lock of the drive."""

    def __init__(self, drive: Drive, number: int) -> None:
        self._drive = drive
        self._number = number

    def take(self) -> bool:
        return self._drive.owners.setdefault(self._number, self) is self

    def close(self) -> None:
        with self._drive.lock:
            if self._drive.owners.get(self._number) is self:
                del self._drive.owners[self._number]

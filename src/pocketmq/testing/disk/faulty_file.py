"""One open file of the disk in memory: a `File` that answers and fails as the operating system's does."""

import errno
from pathlib import Path
from typing import Self

from pocketmq.testing.disk.contents import Contents
from pocketmq.testing.disk.drive import Drive
from pocketmq.testing.disk.model import Operation
from pocketmq.testing.disk.names import os_error


class FaultyFile:
    """Opened by `FaultyFiles.open`, which holds the drive's lock meanwhile."""

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

    def write_at(self, offset: int, data: bytes | bytearray | memoryview) -> None:
        error = self._drive.admit("write", self._name)
        with self._drive.lock:
            self._check(offset)
            self._check_writable(errno.EBADF)
            if error is not None:
                kept = self._drive.random.randrange(len(data) + 1)
            else:
                kept = self._drive.room(self._contents, offset, len(data))
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
            if self._drive.room(self._contents, 0, size) < size:
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
    """A folder that is taken. `take` is called with the drive's lock held."""

    def __init__(self, drive: Drive, number: int) -> None:
        self._drive = drive
        self._number = number

    def take(self) -> bool:
        return self._drive.owners.setdefault(self._number, self) is self

    def close(self) -> None:
        with self._drive.lock:
            if self._drive.owners.get(self._number) is self:
                del self._drive.owners[self._number]

"""One owner per store folder, and a mark that shows the next owner whether the last stop was clean.

lock     locked while the process lives; the operating system unlocks it. Apache's broker locks it, too
folder   locked in the same way: the file `lock` may be removed, and the next process would create another
abort    exists while a store is open, with the process id in it; if it is found at the start, the last stop was a crash

take ──► lock, folder, check abort, write abort ──► … ──► release(clean=True) ──► abort removed, lock freed
"""

import errno
import logging
import os
import shlex
from contextlib import suppress
from pathlib import Path

from pocketmq import system
from pocketmq.errors import StoreError, StoreFull, StoreLocked, WrongState
from pocketmq.files import File, Files, FolderLock

log = logging.getLogger("pocketmq.store")


class Owner:
    """The right to write to a store's folder."""

    def __init__(self, files: Files, folder: Path) -> None:
        self._files = files
        self._folder = folder
        self._lock_path = folder / "lock"
        self._abort_path = folder / "abort"
        self._lock: File | None = None
        self._folder_lock: FolderLock | None = None

    def take(self) -> bool:
        """Lock the folder, which is created if it is missing. Returns whether the last stop was clean.

        Raises StoreLocked if another process has it, StoreError if it is not writable.
        """
        if self._lock is not None:
            raise WrongState(f"{self._folder} is already open in this process")
        try:
            return self._take()
        except OSError as error:
            self._let_go()
            reason = error.strerror or str(error)
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise StoreFull(
                    f"the store folder {self._folder} cannot be used: {reason}. Free some space on its disk, then start again"
                ) from error
            raise StoreError(
                f"the store folder {self._folder} cannot be used: {reason}. "
                "It must be a folder that this user can write to"
            ) from error

    def _take(self) -> bool:
        self._make_folder()
        self._lock = self._files.open(self._lock_path, create=True)
        if self._lock.lock():
            self._folder_lock = self._files.lock_dir(self._folder)
        if self._folder_lock is None:
            owner = self._present_owner(self._lock.lock_holder())
            self._let_go()
            raise StoreLocked(
                f"the store in {self._folder} is in use by {owner}. Stop it first, or choose another folder"
            )
        self._warn_if_open()
        self._lock.write_at(0, b"lock")
        clean = self._files.status(self._abort_path) is None
        with self._files.open(self._abort_path, create=True) as abort:
            abort.truncate(0)
            abort.write_at(0, str(os.getpid()).encode())
            abort.sync()
        self._files.sync_dir(self._folder)
        return clean

    def _make_folder(self) -> None:
        """Create the folder and sync its name: without the name, its files would not survive a crash."""
        missing = [path for path in (self._folder, *self._folder.parents) if self._files.status(path) is None]
        self._files.make_dir(self._folder)
        # Even if the folder exists: a process that created it may have been killed before the sync.
        for path in reversed(missing or [self._folder]):
            with suppress(PermissionError):  # a parent folder without read permission is not ours to sync
                self._files.sync_dir(path.parent)

    def _warn_if_open(self) -> None:
        status = self._files.status(self._folder)
        if status is not None and status.mode & 0o077:
            log.warning(
                "the data folder %s has mode %04o, so other users of this machine can read its messages; to prevent this, run: "
                "chmod -R go= %s",
                self._folder,
                status.mode,
                shlex.quote(str(self._folder)),
            )

    def _present_owner(self, holder: int | None) -> str:
        """The process that holds the lock. If that is unknown, the process of the abort file, if it still runs."""
        if holder is not None and holder != os.getpid():
            return f"process {holder}"
        try:
            pid = self._files.read(self._abort_path)
        except OSError:
            pid = b""
        return f"process {int(pid)}" if pid.isdigit() and system.is_running(int(pid)) else "another process"

    def release(self, *, clean: bool) -> None:
        """Unlock the folder. `clean` means that everything is on the disk: the next start need not check for damage."""
        if self._lock is None:
            return
        try:
            if clean and self._files.status(self._abort_path) is not None:
                self._files.unlink(self._abort_path)
                self._files.sync_dir(self._folder)
        except OSError as error:
            raise StoreError(f"{self._abort_path} could not be removed: {error.strerror}") from error
        finally:
            self._let_go()

    def _let_go(self) -> None:
        locks = self._folder_lock, self._lock
        self._folder_lock = self._lock = None
        for lock in locks:
            if lock is not None:
                lock.close()

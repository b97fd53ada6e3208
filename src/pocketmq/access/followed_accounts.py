"""Accounts as their file says now: it is looked at every few seconds, and read again when it or a file of secrets has changed.

    unchanged ──► nothing
    changed ── read ──┬─ right: these accounts count from now on; connections of accounts that changed are closed
                      └─ wrong: the accounts of before stay, the log says what is wrong, and it is read again when it changes

Variables of the environment, which `secret_env` names, cannot change while a program runs.
"""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pocketmq.access.accounts import Account, Accounts
from pocketmq.access.accounts_file import read_accounts
from pocketmq.errors import InvalidSetting
from pocketmq.files import Files, FileStatus

log = logging.getLogger("pocketmq.access")

FOLLOW_S: Final = 2.0
"""Between two looks at the file."""
OTHERS_MAY_READ: Final = 0o004


class FollowedAccounts:
    """The accounts of one file."""

    def __init__(self, files: Files, path: Path, environment: Mapping[str, str]) -> None:
        """InvalidSetting when the file cannot be used."""
        self._files = files
        self._path = path
        self._environment = environment
        self._seen: dict[Path, FileStatus | None] = {}
        self.now: Accounts = self._read()

    def look(self) -> list[Account]:
        """Read the file again if it has changed; the accounts of before that are gone or different now."""
        if all(_status(self._files, path) == status for path, status in self._seen.items()):
            return []
        try:
            read = self._read()
        except InvalidSetting as error:
            log.error("the changed accounts are not used, those of before stay: %s", error)
            return []
        before, self.now = self.now, read
        gone = [one for one in before if read.get(one.access_key) != one]
        fresh = [one.access_key for one in read if before.get(one.access_key) is None]
        told = ", ".join(
            [*(f"changed or removed: {one.access_key}" for one in gone), *(f"new: {key}" for key in fresh)]
        )
        log.info("%d accounts were read from %s, which has changed; %s", len(read), self._path, told or "all as before")
        return gone

    def _read(self) -> Accounts:
        noted = _NotedFiles(self._files)
        try:
            return read_accounts(noted, self._path, self._environment)
        finally:
            self._seen = noted.seen
            warn_of_shared_files(noted.seen)


class _NotedFiles:
    """Reads files, and remembers how each was."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self.seen: dict[Path, FileStatus | None] = {}

    def read(self, path: Path) -> bytes:
        self.seen[path] = _status(self._files, path)
        return self._files.read(path)


def warn_of_shared_files(seen: Mapping[Path, FileStatus | None]) -> None:
    """Log which of these files, which hold secrets, every user of the machine can read."""
    for path, status in seen.items():
        if status is not None and status.mode & OTHERS_MAY_READ:
            log.warning(
                "%s holds secrets, and every user of this machine can read it (mode %04o); protect it with: chmod 600 %s",
                path,
                status.mode,
                path,
            )


def _status(files: Files, path: Path) -> FileStatus | None:
    try:
        return files.status(path)
    except OSError:  # reading it says why
        return None

"""Those who may log in, as their file says now: a user who is removed, or gets another password or role, is out within a second.

file as before ──► those known
file changed   ──► read anew; whoever is not in it as before is out, with all sessions
file wrong or gone ──► nobody is in until it can be read; the log says why, once
"""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pocketmq.access.followed_accounts import warn_of_shared_files
from pocketmq.clock import Clock
from pocketmq.console.users_file import User, read_users
from pocketmq.errors import InvalidSetting
from pocketmq.files import Files, FileStatus

log = logging.getLogger("pocketmq.console")

LOOK_EVERY_S: Final = 1.0
"""The file is looked at no more often, however many pages are asked for. A login looks at once."""


class KnownUsers:
    """The users of one file; without a file nobody is asked who they are."""

    def __init__(self, files: Files, path: Path | None, clock: Clock) -> None:
        """InvalidSetting when the file cannot be read, is wrong, or lets nobody in."""
        self._files = files
        self._path = path
        self._clock = clock
        self._status = self._look()
        self._users: Mapping[str, User] = {} if path is None else read_users(files, path)
        if path is not None:
            warn_of_shared_files({path: self._status})
        self._looked = clock.monotonic()
        self._trouble = ""

    @property
    def is_login_needed(self) -> bool:
        return self._path is not None

    def find(self, name: str) -> User | None:
        """For a login: as the file is at this moment."""
        self._follow()
        return self._users.get(name)

    def has(self, user: User) -> bool:
        """Whether somebody who logged in may still be in, with the same password and role."""
        if self._clock.monotonic() - self._looked >= LOOK_EVERY_S:
            self._follow()
        return self._users.get(user.name) == user

    def _follow(self) -> None:
        self._looked = self._clock.monotonic()
        status = self._look()
        if self._path is None or (status == self._status and not self._trouble):
            return
        self._status = status
        try:
            self._users = read_users(self._files, self._path)
        except InvalidSetting as error:
            self._be_in_trouble(str(error))
        else:
            self._trouble = ""
            log.info("%s has changed; who may log in: %s", self._path, ", ".join(self._users))

    def _be_in_trouble(self, why: str) -> None:
        self._users = {}
        if why != self._trouble:
            log.error("nobody can log in now, and all who had are out: %s", why)
        self._trouble = why

    def _look(self) -> FileStatus | None:
        try:
            return None if self._path is None else self._files.status(self._path)
        except OSError:  # reading it will say why
            return None

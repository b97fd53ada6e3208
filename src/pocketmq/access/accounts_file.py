"""The file of accounts: TOML, read at the start of a server and again after a change.

    [[account]]
    access_key = "orders-service"
    secret_env = "ORDERS_SECRET"                    # or secret_file = "orders.secret", or secret = "…"
    topics = { "orders*" = ["Pub", "Sub"] }
    groups = { "orders-workers" = ["Sub"] }
    sources = ["10.1.0.0/16"]

    [[account]]
    access_key = "operator"
    secret_file = "operator.secret"                 # relative to the folder of this file, or absolute
    admin = true

Errors name the account. They never contain a secret.

`FollowedAccounts` checks every few seconds whether the file, or a file with a secret, has changed:

    unchanged ──► nothing
    changed ── read ──┬─ valid: the new accounts are used; connections of changed accounts are closed
                      └─ invalid: the old accounts stay, the error is logged, and the next change is read

Environment variables of `secret_env` cannot change while a program runs.
"""

import logging
import re
import tomllib
from collections.abc import Mapping
from difflib import get_close_matches
from ipaddress import ip_network
from pathlib import Path
from typing import Any, Final, Protocol

from pocketmq.access.accounts import ANYTHING, Account, Accounts, Action, Network, Rights
from pocketmq.errors import InvalidSetting
from pocketmq.files import Files, FileStatus
from pocketmq.model import group_of
from pocketmq.protocol.signing import Credentials

MAX_FILE_BYTES: Final = 4 * 1024 * 1024
MAX_ACCOUNTS: Final = 10_000
MAX_KEY_CHARS: Final = 128
MIN_SECRET_CHARS: Final = 8

_SECRETS: Final = ("secret", "secret_env", "secret_file")
_RIGHTS: Final = ("topics", "groups", "clusters")
_NAMES: Final = ("access_key", *_SECRETS, "admin", *_RIGHTS, "sources")
_PATTERN: Final = re.compile(r"[%|a-zA-Z0-9_-]*\*?")
_ACTIONS: Final = {action.value.lower(): action for action in Action}


class FileReader(Protocol):
    def read(self, path: Path) -> bytes: ...


def read_accounts(files: FileReader, path: Path, environment: Mapping[str, str]) -> Accounts:
    """The accounts in the file at `path`. InvalidSetting names the error and the account."""
    try:
        tables = _tables(_text(files, path))
        rows = [_Row(table, number, path, files, environment) for number, table in enumerate(tables, 1)]
        return Accounts([row.account() for row in rows])
    except InvalidSetting as error:
        raise InvalidSetting(f"accounts in {path}: {error}") from None


def _text(files: FileReader, path: Path) -> str:
    try:
        data = files.read(path)
    except OSError as error:
        raise InvalidSetting(f"the file cannot be read: {error.strerror or error}") from None
    if len(data) > MAX_FILE_BYTES:
        raise InvalidSetting(f"the file has {len(data)} bytes; at most {MAX_FILE_BYTES} are read")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise InvalidSetting(f"the file is not UTF-8: at byte {error.start}") from None


def _tables(text: str) -> list[dict[str, Any]]:
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidSetting(f"not TOML: {error}") from None
    others = sorted(document.keys() - {"account"})
    if others:
        raise InvalidSetting(f"unknown name {others[0]!r}; each account begins with [[account]]")
    tables = document.get("account", [])
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise InvalidSetting("each account begins with [[account]], in double brackets")
    if not 0 < len(tables) <= MAX_ACCOUNTS:
        raise InvalidSetting(f"the file has {len(tables)} accounts; 1 to {MAX_ACCOUNTS} are allowed")
    return tables


class _Row:
    def __init__(
        self, table: dict[str, Any], number: int, path: Path, files: FileReader, environment: Mapping[str, str]
    ) -> None:
        self._table = table
        self._number = number
        self._folder = path.parent
        self._files = files
        self._environment = environment

    def account(self) -> Account:
        self._refuse_unknown_names()
        credentials = Credentials(self._access_key(), self._secret())
        is_admin = self._table.get("admin", False)
        if not isinstance(is_admin, bool):
            raise self._wrong("admin must be true or false")
        if is_admin and (present := [kind for kind in _RIGHTS if kind in self._table]):
            raise self._wrong(f"an administrator may do everything; remove {present[0]}, or admin")
        return Account(
            credentials=credentials,
            is_admin=is_admin,
            topics=self._rights("topics"),
            groups=self._rights("groups"),
            clusters=self._rights("clusters"),
            sources=self._sources(),
        )

    def _wrong(self, why: str) -> InvalidSetting:
        key = self._table.get("access_key")
        name = f" ({key[:MAX_KEY_CHARS]!r})" if isinstance(key, str) and key else ""
        return InvalidSetting(f"account {self._number}{name}: {why}")

    def _refuse_unknown_names(self) -> None:
        for name in self._table:
            if name not in _NAMES:
                near = get_close_matches(name, _NAMES, 1)
                raise self._wrong(f"unknown name {name!r}" + (f"; did you mean {near[0]!r}?" if near else ""))

    def _access_key(self) -> str:
        key = self._table.get("access_key")
        if not isinstance(key, str) or not key.strip() or len(key) > MAX_KEY_CHARS or not key.isprintable():
            raise self._wrong(f"access_key must be a text of 1 to {MAX_KEY_CHARS} printable characters")
        return key

    # the secret

    def _secret(self) -> str:
        present = [name for name in _SECRETS if name in self._table]
        if len(present) != 1:
            raise self._wrong(f"it needs one of {', '.join(_SECRETS)}, and has {' and '.join(present) or 'none'}")
        text = self._table[present[0]]
        if not isinstance(text, str):
            raise self._wrong(f"{present[0]} must be a text")
        secret = text
        if present[0] == "secret_env":
            secret = self._in_environment(text)
        elif present[0] == "secret_file":
            secret = self._in_file(text)
        if len(secret) < MIN_SECRET_CHARS:
            raise self._wrong(f"its secret must have at least {MIN_SECRET_CHARS} characters")
        return secret

    def _in_environment(self, name: str) -> str:
        if name not in self._environment:
            raise self._wrong(f"the environment variable {name} of secret_env is not set")
        return self._environment[name]

    def _in_file(self, name: str) -> str:
        path = self._folder / name
        try:
            return self._files.read(path).decode().rstrip("\r\n")
        except OSError as error:
            raise self._wrong(f"its secret_file {path} cannot be read: {error.strerror or error}") from None
        except UnicodeDecodeError:
            raise self._wrong(f"its secret_file {path} is not UTF-8") from None

    # the permissions

    def _rights(self, kind: str) -> Rights:
        patterns = self._table.get(kind, {})
        if not isinstance(patterns, dict):
            raise self._wrong(f'{kind} must be a table of names and actions: {kind} = {{ "orders*" = ["Sub"] }}')
        return Rights({pattern: self._actions(kind, pattern, words) for pattern, words in patterns.items()})

    def _actions(self, kind: str, pattern: str, words: object) -> list[Action]:
        if not pattern or not _PATTERN.fullmatch(pattern):
            raise self._wrong(
                f"{kind}: {pattern!r} is not a valid pattern; write a name, or its beginning followed by {ANYTHING!r}"
            )
        if kind == "topics" and (group := group_of(pattern)) is not None:
            raise self._wrong(
                f"topics: {pattern!r} has no effect, because retry and dead-letter topics belong to their group; "
                f'use groups = {{ "{group}" = ["Sub"] }}'
            )
        if not isinstance(words, list) or not words or not all(isinstance(word, str) for word in words):
            raise self._wrong(f'{kind}: {pattern!r} must have a list of actions, such as ["Pub", "Sub"]')
        actions = [self._action(kind, word) for word in words]
        if kind == "clusters" and pattern == ANYTHING and set(actions) - {Action.GET, Action.LIST}:
            raise self._wrong("clusters: an account that may change all of them is an administrator; use admin = true")
        return actions

    def _action(self, kind: str, word: str) -> Action:
        if word.lower() not in _ACTIONS:
            raise self._wrong(f"{kind}: unknown action {word!r}; expected one of {', '.join(Action)}")
        return _ACTIONS[word.lower()]

    def _sources(self) -> tuple[Network, ...]:
        texts = self._table.get("sources", [])
        are_texts = isinstance(texts, list) and all(isinstance(text, str) for text in texts)
        if not are_texts or ("sources" in self._table and not texts):
            raise self._wrong('sources must be a list of addresses, such as ["10.1.0.0/16", "127.0.0.1"]')
        try:
            return tuple(ip_network(text) for text in texts)
        except ValueError as error:
            raise self._wrong(f"sources: {error}") from None


log = logging.getLogger("pocketmq.access")

FOLLOW_S: Final = 2.0
"""Interval between checks of the file."""
OTHERS_MAY_READ_OR_WRITE: Final = 0o006


class FollowedAccounts:
    """The current accounts of one file."""

    def __init__(self, files: Files, path: Path, environment: Mapping[str, str]) -> None:
        """InvalidSetting if the file cannot be used."""
        self._files = files
        self._path = path
        self._environment = environment
        self._seen: dict[Path, FileStatus | None] = {}
        self.current: Accounts = self._read()

    def reload(self) -> list[Account]:
        """Read the file again if it has changed. Return the old accounts that were changed or removed."""
        if all(_status(self._files, path) == status for path, status in self._seen.items()):
            return []
        try:
            read = self._read()
        except InvalidSetting as error:
            log.error("Cannot reload accounts: %s; the previous accounts stay in use", error)
            return []
        before, self.current = self.current, read
        changed = [one for one in before if read.get(one.access_key) != one]
        fresh = [one.access_key for one in read if before.get(one.access_key) is None]
        changes = ", ".join(
            [*(f"changed or removed: {one.access_key}" for one in changed), *(f"new: {key}" for key in fresh)]
        )
        log.info("Reloaded %d accounts from %s; %s", len(read), self._path, changes or "no account changed")
        return changed

    def _read(self) -> Accounts:
        recorded = _RecordedFiles(self._files)
        try:
            return read_accounts(recorded, self._path, self._environment)
        finally:
            self._seen = recorded.seen
            warn_of_shared_files(recorded.seen)


class _RecordedFiles:
    """Reads files, and records the status of each."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self.seen: dict[Path, FileStatus | None] = {}

    def read(self, path: Path) -> bytes:
        self.seen[path] = _status(self._files, path)
        return self._files.read(path)


def warn_of_shared_files(seen: Mapping[Path, FileStatus | None]) -> None:
    """Log a warning for each of these files that every user of the machine can read or change."""
    for path, status in seen.items():
        if status is not None and status.mode & OTHERS_MAY_READ_OR_WRITE:
            log.warning(
                "%s contains secrets, and every user of this machine can read or change it (mode %04o); run: chmod 600 %s",
                path,
                status.mode,
                path,
            )


def _status(files: Files, path: Path) -> FileStatus | None:
    try:
        return files.status(path)
    except OSError:  # the read reports the error
        return None

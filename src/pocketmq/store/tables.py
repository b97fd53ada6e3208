"""Tables: topics, groups, offsets. Small files that are replaced as a whole, in RocketMQ's JSON.

    config/topics.json            the last version
    config/topics.json.bak        the version before
    config/topics.json.tmp        being written; ignored
    config/topics.json.damaged    an unreadable version that was replaced since

    save:  new ──► .tmp, synced     main ──► .bak     .tmp ──► main     names synced

A crash at any moment leaves main or, between the two renames, only .bak: the old table or the new one, whole. A damaged
table is moved aside and never becomes a .bak. An empty file is damage, not an empty table.
"""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

from pocketmq.errors import InvalidName, ProtocolError, StoreDamaged
from pocketmq.files import Files
from pocketmq.protocol.java_json import JsonLimits, read_json
from pocketmq.store.log.segments import disk_error

log = logging.getLogger(__name__)

TABLE_LIMITS: Final = JsonLimits(document_bytes=1 << 30, values=100_000_000)
"""Limits for reading saved tables: any size, unlike bodies from the network."""

T = TypeVar("T")


def read_table(data: bytes) -> Any:
    """The value of a table's bytes. Raises ProtocolError if they are not JSON, as Java writes it."""
    value = read_json(data, TABLE_LIMITS)
    if value is None:
        raise ProtocolError("the JSON is null")
    return value


class Tables:
    """The tables of a store, by name (`topics.json`). For one thread at a time."""

    def __init__(self, files: Files, folder: Path) -> None:
        self._files = files
        self._folder = folder
        self._sound: set[str] = set()
        self.flaws: list[str] = []
        """The errors of tables that were read; each was logged when it was found."""

    def load(self, name: str, parse: Callable[[bytes], T] = read_table) -> T | None:
        """The value of a table; None if there is none. `parse` raises ProtocolError for invalid bytes. If a table
        cannot be read, the previous version is used. Raises StoreDamaged if that cannot be read either.
        """
        path, backup = self._path(name), self._path(name, ".bak")
        value, flaw = self._read(path, parse)
        if value is not None:
            self._sound.add(name)
            return value
        self._sound.discard(name)
        older, older_flaw = self._read(backup, parse)
        if older is not None:
            self._say(f"{flaw or f'{path} is missing'}; {backup.name}, the previous version, is used instead")
        elif flaw or older_flaw:
            raise StoreDamaged(
                f"{flaw or f'{path} is missing'}, and {older_flaw or f'there is no {backup.name}'}. Restore a "
                "valid copy, or move both files away to start without this table"
            )
        return older

    def _read(self, path: Path, parse: Callable[[bytes], T]) -> tuple[T | None, str]:
        """The value in a file, or None and the error; None and an empty text if the file does not exist."""
        if self._files.status(path) is None:
            return None, ""
        try:
            return parse(self._files.read(path)), ""
        except OSError as error:
            return None, f"{path} cannot be read ({error.strerror})"
        except ProtocolError as error:
            return None, f"{path} is damaged ({error})"

    def _say(self, flaw: str) -> None:
        if flaw not in self.flaws:
            self.flaws.append(flaw)
            log.warning("%s", flaw)

    def save(self, name: str, data: bytes) -> None:
        """Replace a table and wait for the disk. After an exception, as after a crash, it is the old or the new table."""
        path, new = self._path(name), self._path(name, ".tmp")
        try:
            self._make_folder()
            with self._files.open(new, create=True) as file:
                file.truncate(0)
                file.write_at(0, data)
                file.sync()
            self._move_aside(name, path)
            self._files.replace(new, path)
            self._files.sync_dir(self._folder)
        except OSError as error:
            raise disk_error(f"{path} cannot be saved", error) from error
        self._sound.add(name)

    def _make_folder(self) -> None:
        if self._files.status(self._folder) is None:
            self._files.make_dir(self._folder)
            self._files.sync_dir(self._folder.parent)

    def _move_aside(self, name: str, path: Path) -> None:
        """Keep the current table: as .bak if it is readable, so that one readable version always exists."""
        if self._files.status(path) is None:
            return
        if name not in self._sound:
            _, flaw = self._read(path, read_table)
            if flaw:
                self._say(f"{flaw}; keeping it as {name}.damaged")
                self._files.replace(path, self._path(name, ".damaged"))
                return
        self._files.replace(path, self._path(name, ".bak"))

    def _path(self, name: str, suffix: str = "") -> Path:
        if not name or "/" in name or name.startswith("."):
            raise InvalidName(f"invalid table name {name!r}; expected a file name without a folder")
        return self._folder / (name + suffix)

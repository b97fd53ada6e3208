"""Whether the tables of a store can be read: topics, groups, offsets. What they say is the broker's business.

NAME.json          must be whole JSON; RocketMQ's dialect, with bare numbers as keys
NAME.json.bak      what was saved before; used when NAME.json is missing or damaged
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from pocketmq.errors import ProtocolError
from pocketmq.files import Files
from pocketmq.protocol.java_json import read_json
from pocketmq.store.checks.findings import Finding, Kind
from pocketmq.store.layout import CONFIG
from pocketmq.store.resume import ResumeFile

RESUME: Final = "resume.json"
_PLAIN_NAMES: Final = ("timermetrics", "transactionMetrics")
"""Tables that RocketMQ writes without an ending."""


class TableCheck:
    """The files of the config folder."""

    def __init__(self, files: Files, folder: Path) -> None:
        self._files = files
        self._folder = folder / CONFIG
        self.tables = 0
        self.topics: frozenset[str] | None = None
        """The topics that exist; None when there is no table of them that can be read."""

    def run(self) -> Iterator[Finding]:
        names = set(self._files.list(self._folder)) - {RESUME}
        for name in sorted({name.removesuffix(".bak") for name in names if is_table(name)}):
            self.tables += 1
            value, flaw = self._read(name)
            old_value, old_flaw = self._read(name + ".bak")
            yield from _findings(name, flaw, old_flaw, has_main=name in names, has_backup=old_value is not None)
            if name == "topics.json":
                self.topics = _topics_of(value if value is not None else old_value)
        yield from self._check_resume()

    def _check_resume(self) -> Iterator[Finding]:
        """PocketMQ's own short cut for a quick start: no table, and nothing is lost with it."""
        if self._files.status(self._folder / RESUME) is None:
            return
        if ResumeFile(self._files, self._folder.parent).load() is None:
            text = "where the queues ended cannot be read from it; the next start finds out by itself"
            yield Finding(Kind.RESUME, f"{CONFIG}/{RESUME}", text)

    def _read(self, name: str) -> tuple[Any, str]:
        """The value of a table, or None and what is wrong with it; None and nothing when it is not there."""
        path = self._folder / name
        if self._files.status(path) is None:
            return None, ""
        data = self._files.read(path)
        if not data:
            return None, "it is empty"
        try:
            value = read_json(data)
        except ProtocolError as error:
            return None, str(error)
        return (value, "") if value is not None else (None, "it holds no table")


def is_table(name: str) -> bool:
    name = name.removesuffix(".bak")
    return name.endswith(".json") or name in _PLAIN_NAMES


def _findings(name: str, flaw: str, old_flaw: str, *, has_main: bool, has_backup: bool) -> Iterator[Finding]:
    path = f"{CONFIG}/{name}"
    instead = f"{name}.bak is used instead" if has_backup else f"there is no {name}.bak that could be used instead"
    if flaw:
        yield Finding(Kind.TABLE_DAMAGED, path, f"the table cannot be read: {flaw}; {instead}")
    elif not has_main and has_backup:
        yield Finding(Kind.TABLE_BACKUP, path, f"the table is missing; {instead}")
    if old_flaw:
        kind = Kind.TABLE_BACKUP if has_main else Kind.TABLE_DAMAGED
        yield Finding(kind, f"{path}.bak", f"the table as it was saved before cannot be read: {old_flaw}")


def _topics_of(table: Any) -> frozenset[str] | None:
    topics = table.get("topicConfigTable") if isinstance(table, dict) else None
    return frozenset(topics) if isinstance(topics, dict) else None

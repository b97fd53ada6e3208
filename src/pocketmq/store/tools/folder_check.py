"""Checks the folder of a store: unknown files, the tables, and how the last writer stopped. Changes nothing.

A name is known if any release of RocketMQ, or PocketMQ, creates it. Folders that only RocketMQ reads (timers,
compaction, RocksDB) are not checked.

A table must be readable; the broker checks its content:

    NAME.json          must be whole JSON; RocketMQ's dialect, with bare numbers as keys
    NAME.json.bak      the version before; used when NAME.json is missing or damaged

The state of the store:

    lock is held                       in use: the ends of all files may move during the check
    lock is free, abort file exists    crashed: unsynced data may be lost or torn; the next start repairs it
    lock is free, no abort file        clean: everything must be complete

The checkpoint says up to which store time each kind of file was safe. That part must be complete in any state.
"""

import struct
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any, Final, NamedTuple

from pocketmq.errors import ProtocolError
from pocketmq.files import Files
from pocketmq.protocol.java_json import read_json
from pocketmq.store.checkpoint import FILE_BYTES
from pocketmq.store.index.index_file import list_index_files
from pocketmq.store.layout import CONFIG, INDEX, LOG, QUEUES, StoreLayout
from pocketmq.store.resume import ResumeFile
from pocketmq.store.tools.findings import Finding, Kind

RESUME: Final = "resume.json"
_PLAIN_NAMES: Final = ("timermetrics", "transactionMetrics")
"""Tables that RocketMQ writes without a file name extension."""


class TableCheck:
    """The files of the config folder."""

    def __init__(self, files: Files, folder: Path) -> None:
        self._files = files
        self._folder = folder / CONFIG
        self.tables = 0
        self.topics: frozenset[str] | None = None
        """The topics that exist; None if there is no readable topic table."""

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
        """The resume file of PocketMQ, for a quick start: it is no table, and its loss has no effect."""
        if self._files.status(self._folder / RESUME) is None:
            return
        if ResumeFile(self._files, self._folder.parent).load() is None:
            text = "the bounds of the queues cannot be read from it; the next start reads them from the queue files"
            yield Finding(Kind.RESUME, f"{CONFIG}/{RESUME}", text)

    def _read(self, name: str) -> tuple[Any, str]:
        """The value of a table, or None and the error; None and an empty text if it does not exist."""
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
        return (value, "") if value is not None else (None, "it contains no table")


def is_table(name: str) -> bool:
    name = name.removesuffix(".bak")
    return name.endswith(".json") or name in _PLAIN_NAMES


def _findings(name: str, flaw: str, old_flaw: str, *, has_main: bool, has_backup: bool) -> Iterator[Finding]:
    path = f"{CONFIG}/{name}"
    instead = f"{name}.bak is used instead" if has_backup else f"there is no {name}.bak to use instead"
    if flaw:
        yield Finding(Kind.TABLE_DAMAGED, path, f"the table cannot be read: {flaw}; {instead}")
    elif not has_main and has_backup:
        yield Finding(Kind.TABLE_BACKUP, path, f"the table is missing; {instead}")
    if old_flaw:
        kind = Kind.TABLE_BACKUP if has_main else Kind.TABLE_DAMAGED
        yield Finding(kind, f"{path}.bak", f"the previous version of the table cannot be read: {old_flaw}")


def _topics_of(table: Any) -> frozenset[str] | None:
    topics = table.get("topicConfigTable") if isinstance(table, dict) else None
    return frozenset(topics) if isinstance(topics, dict) else None


STAGING: Final = "rebuild"
"""The folder in which a rebuild creates new files before they replace the old ones."""

_READ_BY_US: Final = (LOG, QUEUES, INDEX, CONFIG, "checkpoint", "abort", "lock", "broker.conf", STAGING)
_ROCKETMQS_OWN: Final = (
    "abort.bak",
    "batchconsumequeue",
    "brokerIdentity",
    "compaction",
    "consumequeue_ext",
    "controller",
    "epochFileCheckpoint",
    "rdb",
    "timerlog",
    "timerwheel",
    "transaction",
)
_CONFIG_OWN: Final = ("broker.properties", "consumerOffsets", "subscriptionGroups", "timercheck", "topics")
"""Entries of config/ that RocketMQ creates and that are no JSON tables."""


def find_foreign(files: Files, layout: StoreLayout) -> Iterator[Finding]:
    """Entries with unknown names. The queue check covers those below consumequeue."""
    folder = layout.folder
    for name in files.list(folder):
        if name not in _READ_BY_US and name not in _ROCKETMQS_OWN and not name.startswith("timerwheel."):
            yield foreign(layout, folder / name)
    known_log = {log_file.path.name for log_file in layout.log_files}
    for name in files.list(folder / LOG):
        if name not in known_log:
            yield foreign(layout, folder / LOG / name)
    known_index = {path.name for path in list_index_files(files, folder / INDEX)}
    for name in files.list(folder / INDEX):
        if name not in known_index:
            yield foreign(layout, folder / INDEX / name)
    for name in files.list(folder / CONFIG):
        if not (is_table(name) or name in _CONFIG_OWN or name.endswith((".tmp", ".damaged"))):
            yield foreign(layout, folder / CONFIG / name)


def foreign(layout: StoreLayout, path: Path) -> Finding:
    return Finding(
        Kind.FOREIGN, layout.name_of(path), "unknown file; it does not belong to the store and is not changed"
    )


_TIMES: Final = struct.Struct(">qqq")
_YEAR_MS: Final = 365 * 86_400_000


class Stop(Enum):
    CLEAN = "clean"
    CRASHED = "crashed"
    IN_USE = "in use"


class SafeTimes(NamedTuple):
    """Store times in ms: messages stored up to them are safe in the log, the queues and the index."""

    log_ms: int = 0
    queue_ms: int = 0
    index_ms: int = 0


class Condition(NamedTuple):
    stop: Stop
    owner: str
    """The process that has, or had, the store, if the abort file contains it."""
    safe: SafeTimes
    checkpoint_flaw: str
    """The error in the checkpoint; empty if there is none."""

    @property
    def is_clean(self) -> bool:
        return self.stop is Stop.CLEAN

    @property
    def is_in_use(self) -> bool:
        return self.stop is Stop.IN_USE

    def findings(self) -> Iterator[Finding]:
        owner = f"process {self.owner}" if self.owner else "a program"
        if self.is_in_use:
            text = f"the store is in use by {owner}: the last writes may not be in all files yet"
            yield Finding(Kind.IN_USE, "lock", text)
        elif not self.is_clean:
            text = "the store was not stopped cleanly: the next start recovers it from the log"
            yield Finding(Kind.CRASHED, "abort", text)

    def knows_later(self, newest_ms: int) -> bool:
        """Whether a valid checkpoint covers a message stored after `newest_ms`."""
        return newest_ms < self.safe.log_ms and (not newest_ms or self.safe.log_ms < newest_ms + _YEAR_MS)

    def check_checkpoint(self, newest_ms: int) -> Iterator[Finding]:
        """Compare the checkpoint with a log whose newest record was stored at `newest_ms`; 0 if there is none."""
        flaw = self.checkpoint_flaw
        if not newest_ms or self.is_in_use:
            return
        if not flaw and self.is_clean and not any(self.safe):
            flaw = "contains only zeros"
        if not flaw and max(self.safe) > newest_ms:
            flaw = f"says that files are safe up to {max(self.safe)} ms; the newest message is of {newest_ms} ms"
        if flaw:
            yield Finding(Kind.CHECKPOINT, "checkpoint", f"the checkpoint {flaw}", 0, _TIMES.size)


def look_at(files: Files, folder: Path) -> Condition:
    """The state of the store in `folder`."""
    abort = folder / "abort"
    has_abort = files.status(abort) is not None
    owner = files.read(abort).decode("ascii", "replace").strip() if has_abort else ""
    stop = Stop.CRASHED if has_abort else Stop.CLEAN
    if files.status(folder / "lock") is not None:
        with files.open(folder / "lock", write=False) as lock:
            stop = Stop.IN_USE if lock.is_locked() else stop
    safe, flaw = _read_checkpoint(files, folder / "checkpoint", stop)
    return Condition(stop, owner if owner.isdigit() else "", safe, flaw)


def _read_checkpoint(files: Files, path: Path, stop: Stop) -> tuple[SafeTimes, str]:
    if files.status(path) is None:
        return SafeTimes(), "is missing"
    data = files.read(path)
    if len(data) < _TIMES.size:
        return SafeTimes(), f"has only {len(data)} bytes"
    safe = SafeTimes(*_TIMES.unpack_from(data))
    if min(safe) < 0:
        return SafeTimes(), "holds a time before 1970"
    return safe, "" if len(data) == FILE_BYTES else f"has {len(data)} bytes instead of {FILE_BYTES}"

"""The findings of a check, and how severe they are; the facts about the log that several checks share.

    note         nothing is wrong; information
    repairable   a derived file differs from the log: a rebuild repairs it, and nothing is lost
    damage       the log or a table was changed after it was written

A finding names a path below the store's folder, and the bytes of that file from `begin` up to, not including, `end`.

`Runs` joins findings of one kind that follow each other in a file: a lost page is one finding, not two hundred. There
may be millions of runs, so `RunBudget` limits how many are kept; the rest is counted.
"""

from bisect import bisect_right
from collections.abc import Iterator
from enum import IntEnum, StrEnum
from pathlib import Path
from typing import Final

import msgspec


class Severity(IntEnum):
    NOTE = 0
    REPAIRABLE = 1
    DAMAGE = 2


class Kind(StrEnum):
    """The kinds of findings. docs/explanation/durability.md explains each."""

    IN_USE = "in-use"
    CRASHED = "crashed"
    FOREIGN = "foreign"

    LOG_FILE_SIZE = "log-file-size"
    LOG_FILE_MISSING = "log-file-missing"
    LOG_FILE_UNFINISHED = "log-file-unfinished"
    LOG_RECORD = "log-record"
    LOG_CHANGED = "log-changed"
    LOG_ORDER = "log-order"
    LOG_GAP = "log-gap"
    LOG_LOST_TAIL = "log-lost-tail"
    LOG_STALE_BYTES = "log-stale-bytes"
    LOG_TIME = "log-time"
    LOG_TOPIC = "log-topic"

    QUEUE_MISSING = "queue-missing"
    QUEUE_FILE_SIZE = "queue-file-size"
    QUEUE_ENTRY_MISSING = "queue-entry-missing"
    QUEUE_ENTRY_WRONG = "queue-entry-wrong"
    QUEUE_ENTRY_STALE = "queue-entry-stale"
    QUEUE_BEHIND = "queue-behind"
    QUEUE_AHEAD = "queue-ahead"
    QUEUE_DELETED = "queue-deleted"
    QUEUE_UNCHECKED = "queue-unchecked"

    INDEX_FILE_SIZE = "index-file-size"
    INDEX_HEADER = "index-header"
    INDEX_SLOT = "index-slot"
    INDEX_ENTRY = "index-entry"
    INDEX_KEY_MISSING = "index-key-missing"
    INDEX_BEHIND = "index-behind"
    INDEX_UNCHECKED = "index-unchecked"

    CHECKPOINT = "checkpoint"
    RESUME = "resume"
    TABLE_DAMAGED = "table-damaged"
    TABLE_BACKUP = "table-backup"


_NOTE, _REPAIRABLE, _DAMAGE = Severity
SEVERITY = {
    Kind.IN_USE: _NOTE,
    Kind.CRASHED: _NOTE,
    Kind.FOREIGN: _NOTE,
    Kind.LOG_FILE_SIZE: _DAMAGE,
    Kind.LOG_FILE_MISSING: _DAMAGE,
    Kind.LOG_FILE_UNFINISHED: _NOTE,
    Kind.LOG_RECORD: _DAMAGE,
    Kind.LOG_CHANGED: _DAMAGE,
    Kind.LOG_ORDER: _DAMAGE,
    Kind.LOG_GAP: _DAMAGE,
    Kind.LOG_LOST_TAIL: _DAMAGE,
    Kind.LOG_STALE_BYTES: _NOTE,
    Kind.LOG_TIME: _NOTE,
    Kind.LOG_TOPIC: _NOTE,
    Kind.QUEUE_MISSING: _REPAIRABLE,
    Kind.QUEUE_FILE_SIZE: _REPAIRABLE,
    Kind.QUEUE_ENTRY_MISSING: _REPAIRABLE,
    Kind.QUEUE_ENTRY_WRONG: _REPAIRABLE,
    Kind.QUEUE_ENTRY_STALE: _REPAIRABLE,
    Kind.QUEUE_BEHIND: _NOTE,
    Kind.QUEUE_AHEAD: _NOTE,
    Kind.QUEUE_DELETED: _NOTE,
    Kind.QUEUE_UNCHECKED: _NOTE,
    Kind.INDEX_FILE_SIZE: _REPAIRABLE,
    Kind.INDEX_HEADER: _REPAIRABLE,
    Kind.INDEX_SLOT: _REPAIRABLE,
    Kind.INDEX_ENTRY: _REPAIRABLE,
    Kind.INDEX_KEY_MISSING: _REPAIRABLE,
    Kind.INDEX_BEHIND: _NOTE,
    Kind.INDEX_UNCHECKED: _NOTE,
    Kind.CHECKPOINT: _REPAIRABLE,
    Kind.RESUME: _NOTE,
    Kind.TABLE_DAMAGED: _DAMAGE,
    Kind.TABLE_BACKUP: _NOTE,
}


class Finding(msgspec.Struct, frozen=True):
    """One finding: its kind, its file and bytes, and a sentence that describes it."""

    kind: Kind
    path: str
    text: str
    begin: int | None = None
    end: int | None = None

    @property
    def severity(self) -> Severity:
        return SEVERITY[self.kind]


class Progress(msgspec.Struct, frozen=True):
    """The progress of a long operation, in bytes of the log."""

    done: int
    total: int


MAX_RUNS: Final = 20_000
"""The limit on runs kept for one store; further runs are counted."""


class Run:
    """Entries from `first` to `last` of one file; `detail` describes the first of them."""

    __slots__ = ("begin", "detail", "end", "first", "kind", "last", "path")

    def __init__(self, kind: Kind, path: Path, begin: int, end: int, number: int, detail: str) -> None:
        self.kind = kind
        self.path = path
        self.begin = begin
        self.end = end
        self.first = self.last = number
        self.detail = detail

    @property
    def count(self) -> int:
        return self.last - self.first + 1

    def named(self, noun: str, plural: str) -> str:
        """`entry 5`, or `entries 5 to 9`."""
        return f"{noun} {self.first}" if self.count == 1 else f"{plural} {self.first} to {self.last}"


class RunBudget:
    """How many more runs may be kept."""

    def __init__(self) -> None:
        self.left = MAX_RUNS


class Runs:
    """The runs of one queue or one index file."""

    __slots__ = ("_budget", "_runs", "unlisted")

    def __init__(self, budget: RunBudget) -> None:
        self._budget = budget
        self._runs: list[Run] = []
        self.unlisted = 0
        """Entries in runs beyond the limit."""

    def __iter__(self) -> Iterator[Run]:
        return iter(self._runs)

    def __len__(self) -> int:
        return len(self._runs)

    def add(self, kind: Kind, path: Path, begin: int, size: int, number: int, detail: str) -> None:
        """Add entry `number`, which has `size` bytes from `begin` of `path`."""
        last = self._runs[-1] if self._runs else None
        if last is not None and last.kind is kind and last.path == path and last.end == begin:
            last.end, last.last = begin + size, number
        elif self._budget.left > 0:
            self._budget.left -= 1
            self._runs.append(Run(kind, path, begin, begin + size, number, detail))
        else:
            self.unlisted += 1

    def clear(self) -> None:
        self._budget.left += len(self._runs)
        self._runs.clear()
        self.unlisted = 0


MAX_HOLES: Final = 100_000
"""The limit on separate ranges; after it, the last range is extended."""


class LogFacts:
    """The start and end of the log, and its unreadable parts."""

    def __init__(self, start: int) -> None:
        self.start = start
        self.end = start
        """The end of the last valid record; final once the pass is over."""
        self.newest_ms = 0
        self.known_end = start
        """The largest end offset that queue entries point to; it is beyond `end` only if the log lost its tail."""
        self.known_by = ""
        """The queue with that entry."""
        self._begins: list[int] = []
        self._ends: list[int] = []

    @property
    def last_hole_end(self) -> int:
        """The end of the last unreadable part; before the start if there was none."""
        return self._ends[-1] if self._ends else -1

    def add_hole(self, begin: int, end: int) -> None:
        """The log has no valid record from `begin` to `end`. Call it in the order of the log."""
        if len(self._begins) >= MAX_HOLES:
            self._ends[-1] = end
            return
        self._begins.append(begin)
        self._ends.append(end)

    def in_hole(self, log_offset: int) -> bool:
        number = bisect_right(self._begins, log_offset) - 1
        return number >= 0 and log_offset < self._ends[number]

    def add_known(self, log_end: int, by: str) -> None:
        """A queue entry points to a message that ends at `log_end`."""
        if log_end > self.known_end:
            self.known_end, self.known_by = log_end, by

"""What a check may find, and how bad it is.

    note         nothing is wrong; worth knowing
    repairable   a derived file differs from the log: a rebuild makes it right, and nothing is lost
    damage       the log or a table is not what it was when it was written

A finding says where: a path below the store's folder, and the bytes of that file from `begin` up to, not including, `end`.
"""

from enum import IntEnum, StrEnum

import msgspec


class Severity(IntEnum):
    NOTE = 0
    REPAIRABLE = 1
    DAMAGE = 2


class Kind(StrEnum):
    """What was found. Each is explained in docs/store.md."""

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
    """One thing that a check found: what, where, and a sentence for a person."""

    kind: Kind
    path: str
    text: str
    begin: int | None = None
    end: int | None = None

    @property
    def severity(self) -> Severity:
        return SEVERITY[self.kind]


class Progress(msgspec.Struct, frozen=True):
    """How far a long piece of work has come, in bytes of the log."""

    done: int
    total: int

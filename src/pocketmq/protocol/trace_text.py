"""Trace records, which clients write to the trace topic for each message sent, consumed, decided or recalled.

    kind 0x01 field 0x01 field … 0x02 kind 0x01 field …      UTF-8, any number of records in one body

    Pub             a producer sent a message
    SubBefore       a consumer is about to handle a message   ┐ matched by the request id
    SubAfter        it has handled it                         ┘
    EndTransaction  a producer decided a half message
    Recall          a producer recalled a timed message

The fields of the classes are in wire order. A missing text is `null`, as in Java; numbers and booleans are written as in Java. Older
clients omit fields at the end, newer ones may add some.
"""

from collections.abc import Iterable
from enum import IntEnum, StrEnum
from types import NoneType
from typing import ClassVar, get_args, get_type_hints

import msgspec

from pocketmq.errors import ProtocolError, UsageError

FIELD_END = "\x01"
RECORD_END = "\x02"
NULL = "null"


class TracedType(IntEnum):
    """The kind of a message, with wire numbers."""

    NORMAL = 0
    HALF = 1
    COMMITTED = 2
    DELAYED = 3
    ORDERED = 4


class Outcome(IntEnum):
    """The outcome of a listener, with wire numbers."""

    SUCCESS = 0
    TIMED_OUT = 1
    RAISED = 2
    RETURNED_NOTHING = 3
    FAILED = 4


class Decision(StrEnum):
    """A producer's decision about a transaction."""

    COMMIT = "COMMIT_MESSAGE"
    ROLLBACK = "ROLLBACK_MESSAGE"
    UNKNOWN = "UNKNOW"


class _Trace(msgspec.Struct, frozen=True, array_like=True):
    """Base of known records. Fields with a default may be missing at the end."""

    kind: ClassVar[str]


class Pub(_Trace, frozen=True):
    kind: ClassVar[str] = "Pub"

    time_ms: int
    region: str | None
    group: str
    topic: str
    message_id: str
    tags: str | None
    keys: str | None
    store_host: str | None
    body_bytes: int
    cost_ms: int
    message_type: TracedType
    offset_id: str | None
    success: bool


class SubBefore(_Trace, frozen=True):
    kind: ClassVar[str] = "SubBefore"

    time_ms: int
    region: str | None
    group: str
    request_id: str
    message_id: str
    retry_times: int
    keys: str | None = None


class SubAfter(_Trace, frozen=True):
    """Clients of Alibaba's cloud and some releases of 4.x omit `time_ms` and `group`."""

    kind: ClassVar[str] = "SubAfter"

    request_id: str
    message_id: str
    cost_ms: int
    success: bool
    keys: str | None
    outcome: Outcome = Outcome.SUCCESS
    time_ms: int = 0
    group: str = ""


class EndTransaction(_Trace, frozen=True):
    kind: ClassVar[str] = "EndTransaction"

    time_ms: int
    region: str | None
    group: str
    topic: str
    message_id: str
    tags: str | None
    keys: str | None
    store_host: str | None
    message_type: TracedType
    transaction_id: str | None
    decision: Decision
    from_check: bool


class Recall(_Trace, frozen=True):
    kind: ClassVar[str] = "Recall"

    time_ms: int
    region: str | None
    group: str
    topic: str
    message_id: str
    success: bool


class OtherTrace(msgspec.Struct, frozen=True):
    """A record of an unknown kind, unchanged."""

    kind: str
    fields: tuple[str, ...]


Trace = Pub | SubBefore | SubAfter | EndTransaction | Recall | OtherTrace
_Known = type[Pub] | type[SubBefore] | type[SubAfter] | type[EndTransaction] | type[Recall]

_KINDS: dict[str, _Known] = {known.kind: known for known in (Pub, SubBefore, SubAfter, EndTransaction, Recall)}
_OLD_PUB_FIELDS = 12
"""Clients before 4.5 did not write the offset id, the field before the last one."""


def _nullable(known: _Known) -> frozenset[int]:
    """The fields that may be `null`."""
    hints = get_type_hints(known)
    names = known.__struct_fields__
    return frozenset(at for at, name in enumerate(names) if NoneType in get_args(hints[name]))


_NULLABLE = {kind: _nullable(known) for kind, known in _KINDS.items()}


def encode_trace(records: Iterable[Trace]) -> bytes:
    """Encode records as the body of a trace message."""
    return "".join([_record_text(record) for record in records]).encode()


def decode_trace(body: bytes) -> list[Trace]:
    """Decode the records. ProtocolError names an invalid one."""
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        raise ProtocolError(f"trace text: {error}") from None
    return [_record(number, line) for number, line in enumerate(text.split(RECORD_END)) if line]


def trace_keys(records: Iterable[Trace]) -> list[str]:
    """The index keys of a trace message: the ids and keys of all its messages."""
    found: dict[str, None] = {}
    for record in records:
        if not isinstance(record, OtherTrace):
            found[record.message_id] = None
        if isinstance(record, Pub | SubBefore | SubAfter | EndTransaction):
            found |= dict.fromkeys((record.keys or "").split())
    return list(found)


def _record_text(record: Trace) -> str:
    values = record.fields if isinstance(record, OtherTrace) else msgspec.structs.astuple(record)
    words = [record.kind, *(_text(value) for value in values)]
    if isinstance(record, SubBefore) and not record.keys:
        words[-1] = NULL  # Java drops an empty last field
    text = FIELD_END.join(words)
    if RECORD_END in text or text.count(FIELD_END) >= len(words):
        raise UsageError(
            f"a field of the trace record {words} contains 0x01 or 0x02, which separate fields and records"
        )
    return text + RECORD_END


def _text(value: object) -> str:
    if value is None:
        return NULL
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _record(number: int, line: str) -> Trace:
    kind, *fields = line.split(FIELD_END)
    known = _KINDS.get(kind)
    if known is None:
        return OtherTrace(kind, tuple(fields))
    while fields and not fields[-1]:
        fields.pop()  # as Java's split does; the cloud's SubAfter ends in an empty field
    nullable = _NULLABLE[kind]
    values = [None if field == NULL and at in nullable else field for at, field in enumerate(fields)]
    if known is Pub and len(values) == _OLD_PUB_FIELDS:
        values.insert(-1, None)
    try:
        return msgspec.convert(values, known, strict=False)
    except msgspec.ValidationError as error:
        raise ProtocolError(f"trace record {number} ({kind}): {error}") from None

"""Transactions in the log: half messages, and op messages that close them.

    half topic    0 │ 1 │ 2 │ 3 │ 4 │ 5        half messages; a check-back stores a new copy at the end
                      ▲   ▲       ▲
    op topic        "1,"  "2,4,"               queue offsets of closed ones: decided, checked, or given up

A half message without an op message is undecided: 0, 3 and 5 here. The broker and a reader of both topics get the same result.
A new copy keeps the queue offset of the first one, which identifies the transaction. Apache's broker writes no op message for a copy
that it has checked; there, only offsets from the one that group CID_RMQ_SYS_TRANS has committed in the half topic count.
"""

from collections.abc import Iterable

import msgspec

from pocketmq.model import properties as names
from pocketmq.model.message import StoredMessage

OP_TAG = "d"
"""The tag of an op message."""
_MAX_DIGITS = 19


class Undecided(msgspec.Struct, frozen=True, kw_only=True):
    """An undecided transaction. `half_offset` and `log_offset` are those of its newest copy."""

    transaction_id: str
    topic: str
    producer_group: str
    born_ms: int
    """When it was sent, by the producer's clock."""
    checks: int
    """The number of check-backs so far."""
    half_offset: int
    log_offset: int


def format_op(offsets: Iterable[int]) -> bytes:
    """The body of an op message that closes the half messages at these queue offsets."""
    return "".join([f"{offset}," for offset in offsets]).encode()


def parse_op(body: bytes) -> list[int]:
    """The queue offsets that an op message closes. RocketMQ 4.9 writes one without a comma. Other text is ignored."""
    return [int(part) for part in body.split(b",") if part.isdigit() and len(part) <= _MAX_DIGITS]


def checks_of(half: StoredMessage) -> int:
    """The number of check-backs so far."""
    return _number(half, names.TRANSACTION_CHECK_TIMES) or 0


def origin_of(half: StoredMessage) -> int:
    """The queue offset of the first copy, which identifies the transaction."""
    origin = _number(half, names.TRANSACTION_PREPARED_QUEUE_OFFSET)
    return half.queue_offset if origin is None else origin


def describe(half: StoredMessage) -> Undecided:
    """A half message as shown to administrators."""
    return Undecided(
        transaction_id=half.message_id,
        topic=half.properties.get(names.REAL_TOPIC, ""),
        producer_group=half.properties.get(names.PRODUCER_GROUP, ""),
        born_ms=half.born_ms,
        checks=checks_of(half),
        half_offset=half.queue_offset,
        log_offset=half.log_offset,
    )


def undecided(halves: Iterable[StoredMessage], ops: Iterable[StoredMessage]) -> list[Undecided]:
    """The undecided ones of `halves`. `ops` must contain all op messages since the first of them."""
    closed = {offset for op in ops if op.tags == OP_TAG for offset in parse_op(op.body)}
    return [describe(half) for half in halves if half.queue_offset not in closed]


def _number(half: StoredMessage, name: str) -> int | None:
    text = half.properties.get(name, "")
    return int(text) if text.isdecimal() and len(text) <= _MAX_DIGITS else None

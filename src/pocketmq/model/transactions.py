"""Transactions as they lie in a log: messages that wait for a decision, and notes of those that wait no longer.

    half topic    0 │ 1 │ 2 │ 3 │ 4 │ 5        a message waits here; when its producer is asked, it comes again at the end
                      ▲   ▲       ▲
    op topic        "1,"  "2,4,"               queue offsets of those that are closed: decided, asked about, or given up

What no op message names is undecided: 0, 3 and 5 here. A broker and whoever pulls both topics come to the same answer.
A message that comes again keeps the offset at which it first came, so that all its copies are known as one transaction.
Apache's broker writes no op message for a copy that it asked about; there, look only from the offset on that the group
CID_RMQ_SYS_TRANS has committed in the half topic.
"""

from collections.abc import Iterable

import msgspec

from pocketmq.model import properties as names
from pocketmq.model.message import StoredMessage

OP_TAG = "d"
"""The tag of an op message."""
_MAX_DIGITS = 19


class Undecided(msgspec.Struct, frozen=True, kw_only=True):
    """A transaction that waits for its producer's word. `half_offset` and `log_offset` are those of its newest copy."""

    transaction_id: str
    topic: str
    producer_group: str
    born_ms: int
    """When the producer made it, by the producer's clock."""
    checks: int
    """How often its producer has been asked."""
    half_offset: int
    log_offset: int


def format_op(offsets: Iterable[int]) -> bytes:
    """The body of an op message that closes the half messages at these queue offsets."""
    return "".join([f"{offset}," for offset in offsets]).encode()


def parse_op(body: bytes) -> list[int]:
    """The queue offsets that an op message closes. RocketMQ 4.9 writes one without a comma; what is no offset means nothing."""
    return [int(part) for part in body.split(b",") if part.isdigit() and len(part) <= _MAX_DIGITS]


def checks_of(half: StoredMessage) -> int:
    """How often the producer has been asked about it."""
    return _number(half, names.TRANSACTION_CHECK_TIMES) or 0


def origin_of(half: StoredMessage) -> int:
    """The queue offset at which its transaction first came to the half topic: the same for all its copies."""
    origin = _number(half, names.TRANSACTION_PREPARED_QUEUE_OFFSET)
    return half.queue_offset if origin is None else origin


def describe(half: StoredMessage) -> Undecided:
    """What an administrator wants to know of a half message."""
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
    """Which of these half messages nobody decided yet, when these are all op messages since the first of them."""
    closed = {offset for op in ops if op.tags == OP_TAG for offset in parse_op(op.body)}
    return [describe(half) for half in halves if half.queue_offset not in closed]


def _number(half: StoredMessage, name: str) -> int | None:
    text = half.properties.get(name, "")
    return int(text) if text.isdecimal() and len(text) <= _MAX_DIGITS else None

"""What a record of the timer topic asks for, and what is added to its properties when it leaves the topic or is rolled."""

from typing import Final, NamedTuple

from pocketmq.errors import InvalidMessage, ProtocolError
from pocketmq.model import properties as names
from pocketmq.model.message import StoredMessage
from pocketmq.model.properties import MAX_BYTES, raw_property
from pocketmq.protocol.record import properties_start

_OUT_MS: Final = names.TIMER_OUT_MS.encode()
_DEL_UNIQKEY: Final = names.TIMER_DEL_UNIQKEY.encode()
_UNIQ_KEY: Final = names.UNIQ_KEY.encode()
_ENQUEUE_MS: Final = names.TIMER_ENQUEUE_MS.encode()
_ROLL_TIMES: Final = names.TIMER_ROLL_TIMES.encode()
_LONGEST_TIME: Final = 18
"""Digits of a time that surely fits into 64 bits."""


class Wish(NamedTuple):
    """To be delivered when `out_ms` is over; or, with `recalled`, that another message is not."""

    out_ms: int
    recalled: bytes | None


def read_wish(record: bytes) -> Wish:
    """What a whole record asks for; InvalidMessage when that is nothing a timer can do."""
    try:
        raw = record[properties_start(record) :]
    except ProtocolError as error:
        raise InvalidMessage(str(error)) from None
    out_ms = raw_property(raw, _OUT_MS) or b""
    if not out_ms.isdigit() or len(out_ms) > _LONGEST_TIME:
        raise InvalidMessage(f"{names.TIMER_OUT_MS} = {out_ms[:40]!r} is not a time")
    return Wish(int(out_ms), raw_property(raw, _DEL_UNIQKEY))


def recalls(raw_properties: bytes) -> bool:
    """Whether this is a recall, which is delivered to nobody."""
    return raw_property(raw_properties, _DEL_UNIQKEY) is not None


def recall_key(topic: str, raw_properties: bytes) -> bytes:
    """By which a recall would name this message of `topic`."""
    return topic.encode() + b"+" + (raw_property(raw_properties, _UNIQ_KEY) or b"")


def delivered_properties(message: StoredMessage, now_ms: int, precision_ms: int) -> bytes:
    """With when the message began to wait and when it ceased to; as they are where there is no room for that."""
    return _with(message, {names.TIMER_DEQUEUE_MS: now_ms}, precision_ms)


def rolled_properties(message: StoredMessage, precision_ms: int) -> bytes:
    """With when the message began to wait, and how often it was rolled; as they are where there is no room for that."""
    times = raw_property(message.raw_properties, _ROLL_TIMES) or b"0"
    rolls = int(times) + 1 if times.isdigit() and len(times) < _LONGEST_TIME else 1
    return _with(message, {names.TIMER_ROLL_TIMES: rolls}, precision_ms)


def _with(message: StoredMessage, added: dict[str, int], precision_ms: int) -> bytes:
    raw = message.raw_properties
    if raw_property(raw, _ENQUEUE_MS) is None:
        added = {names.TIMER_ENQUEUE_MS: message.store_ms // precision_ms * precision_ms, **added}
    more = "".join(f"{name}\x01{value}\x02" for name, value in added.items()).encode()
    longer = raw + more if raw.endswith(b"\x02") else raw + b"\x02" + more
    return longer if len(longer) <= MAX_BYTES else raw

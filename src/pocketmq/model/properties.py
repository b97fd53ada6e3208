"""Message properties: names and values as one text.

    name 0x01 value 0x02 name 0x01 value 0x02 …      the last 0x02 may be missing

Readers drop an entry with an empty name or value, as Java does. A name or value that contains a separator would corrupt all entries
after it, so it is refused before it is written.
"""

from collections.abc import Mapping

from pocketmq.errors import InvalidMessage

NAME_END = "\x01"
VALUE_END = "\x02"
MAX_BYTES = 32767
"""The longest encoded text: its length is a signed 16-bit number."""

TAGS = "TAGS"
KEYS = "KEYS"
KEY_SEPARATOR = " "
UNIQ_KEY = "UNIQ_KEY"
WAIT = "WAIT"
DELAY = "DELAY"
TIMER_DELIVER_MS = "TIMER_DELIVER_MS"
TIMER_DELAY_SEC = "TIMER_DELAY_SEC"
TIMER_DELAY_MS = "TIMER_DELAY_MS"
TIMER_PROPERTIES = (TIMER_DELAY_SEC, TIMER_DELAY_MS, TIMER_DELIVER_MS)
"""The properties for timed delivery. The broker uses the first one that is set."""
DELAYING_PROPERTIES = (DELAY, *TIMER_PROPERTIES)
TIMER_OUT_MS = "TIMER_OUT_MS"
TIMER_ENQUEUE_MS = "TIMER_ENQUEUE_MS"
TIMER_DEQUEUE_MS = "TIMER_DEQUEUE_MS"
TIMER_ROLL_TIMES = "TIMER_ROLL_TIMES"
TIMER_DEL_UNIQKEY = "TIMER_DEL_UNIQKEY"
REAL_TOPIC = "REAL_TOPIC"
REAL_QUEUE_ID = "REAL_QID"
RETRY_TOPIC = "RETRY_TOPIC"
ORIGIN_MESSAGE_ID = "ORIGIN_MESSAGE_ID"
RECONSUME_TIME = "RECONSUME_TIME"
MAX_RECONSUME_TIMES = "MAX_RECONSUME_TIMES"
TRANSACTION_PREPARED = "TRAN_MSG"
PRODUCER_GROUP = "PGROUP"
TRANSACTION_PREPARED_QUEUE_OFFSET = "TRAN_PREPARED_QUEUE_OFFSET"
TRANSACTION_CHECK_TIMES = "TRANSACTION_CHECK_TIMES"
CHECK_IMMUNITY_SECONDS = "CHECK_IMMUNITY_TIME_IN_SECONDS"
TRANSACTION_ID = "__transactionId__"
REGION = "MSG_REGION"
TRACE_ON = "TRACE_ON"
CLUSTER = "CLUSTER"
MIN_OFFSET = "MIN_OFFSET"
MAX_OFFSET = "MAX_OFFSET"
CONSUME_START_TIME = "CONSUME_START_TIME"
MESSAGE_TYPE = "MSG_TYPE"
CORRELATION_ID = "CORRELATION_ID"
REPLY_TO_CLIENT = "REPLY_TO_CLIENT"
TTL = "TTL"
ARRIVE_TIME = "ARRIVE_TIME"
PUSH_REPLY_TIME = "PUSH_REPLY_TIME"
INSTANCE_ID = "INSTANCE_ID"
INNER_NUM = "INNER_NUM"
INNER_BASE = "INNER_BASE"
INNER_MULTI_DISPATCH = "INNER_MULTI_DISPATCH"
INNER_MULTI_QUEUE_OFFSET = "INNER_MULTI_QUEUE_OFFSET"
POP_CK = "POP_CK"
FIRST_POP_TIME = "1ST_POP_TIME"
POP_RETURNED = "__POP_RETURNED"
"""PocketMQ's own: the lease whose end stored this copy of a message."""
SHARDING_KEY = "__SHARDINGKEY"
CRC32 = "__CRC32#"
TRANSFER_FLAG = "TRANSFER_FLAG"
CORRECTION_FLAG = "CORRECTION_FLAG"
BUYER_ID = "BUYER_ID"
DUPLICATION = "DUP_INFO"
EXTEND_UNIQ_INFO = "EXTEND_UNIQ_INFO"
REPLY_MESSAGE_ARRIVE_TIME = "REPLY_MESSAGE_ARRIVE_TIME"
CLIENT_HOST = "__CLIENT_HOST"

RESERVED = frozenset(value for name, value in tuple(globals().items()) if name.isupper() and isinstance(value, str)) - {
    NAME_END,
    VALUE_END,
    KEY_SEPARATOR,
}
"""Names with a meaning in RocketMQ, which users may not set."""


def parse_properties(text: str) -> dict[str, str]:
    """Parse properties in order. The last of equal names wins. Never fails."""
    found: dict[str, str] = {}
    for entry in text.split(VALUE_END):
        name, _, value = entry.partition(NAME_END)
        if name and value:
            found[name] = value
    return found


def raw_property(raw: bytes, name: bytes) -> bytes | None:
    """The value of one property in encoded text, or None. Much cheaper than parsing all.

    The last of equal names wins, as in `parse_properties`: RocketMQ 5 appends the properties of a batch to those of each
    message in it, so these have two unique keys.
    """
    mark = name + b"\x01"
    before, found, behind = raw.rpartition(mark)
    if before and before[-1] != 2:  # the end of a longer name
        _, found, behind = raw.rpartition(b"\x02" + mark)
        if not found and raw.startswith(mark):
            found, behind = mark, raw[len(mark) :]
    return (behind.partition(b"\x02")[0] or None) if found else None


def format_properties(properties: Mapping[str, str]) -> str:
    """Encode `properties`, with a final 0x02 as RocketMQ 5 does. Entries with an empty name or value are left out."""
    pairs = [f"{name}\x01{value}\x02" for name, value in properties.items() if name and value]
    text = "".join(pairs)
    if text.count(NAME_END) + text.count(VALUE_END) != 2 * len(pairs):
        raise InvalidMessage(_culprit(properties))
    if not text.isascii():
        _check_text(text)
    return text


def _check_text(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidMessage(
            f"keys, tags and properties must be text: {error.object[error.start]!r} is an unpaired surrogate"
        ) from None


def _culprit(properties: Mapping[str, str]) -> str:
    for name, value in properties.items():
        if NAME_END in name or VALUE_END in name:
            return f"property name {name!r} contains 0x01 or 0x02, which separate properties on the wire"
        if NAME_END in value or VALUE_END in value:
            return f"the value of property {name!r} contains 0x01 or 0x02, which separate properties on the wire"
    raise AssertionError("called only when a separator was found")


def check_user_property(name: str, value: str) -> None:
    """Refuse reserved names, and names or values that would be dropped or corrupt others."""
    for text, what in ((name, "the name of property"), (value, "the value of property")):
        if not isinstance(text, str):
            raise InvalidMessage(
                f"{what} {name!r} is {type(text).__name__}, not str; properties are strings: give {str(text)!r}"
            )
    if name in RESERVED:
        raise InvalidMessage(f"property name {name!r} is reserved by RocketMQ; choose another")
    if not name or not value:
        raise InvalidMessage(f"property {name!r} = {value!r}: an empty name or value would be lost on the wire")
    if any(mark in text for text in (name, value) for mark in (NAME_END, VALUE_END)):
        raise InvalidMessage(_culprit({name: value}))

"""The meaning of a command, without values that differ between two runs of the same conversation.

Codes, remarks, header fields, JSON bodies and every field of every record are compared exactly, with these rules:

    not compared   opaque, version, language, encoding and order; the port of a born host, which the system gives; DataVersions,
                   which count changes since the broker's start; the queue of a send that left it to the broker
    LogOffset      where a record lies depends on all records before it: two runs must only agree with themselves. This
                   holds for offset ids, for log offsets in headers and records, and for what is said about the index
    OwnOffset      the same for offsets in queues that all conversations share: delayed, timed, half and trace messages
    Moment         the clock is set to the time of the recording: moments may differ by as long as the real broker took
    Rate           what happened in a while, by samples that each takes at its own times: only that it is a number
    UniqueId       the same; or, as far as the brokers made them up, the same wherever this message is spoken of
    no remark      is the same as an empty one: the binary encoding cannot tell them apart
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any, Generic, NamedTuple, TypeVar

from pocketmq.codes import RequestCode
from pocketmq.errors import PocketMQError
from pocketmq.model.message import StoredMessage
from pocketmq.model.message_id import RecallHandle
from pocketmq.model.names import TRACE_TOPIC
from pocketmq.model.properties import parse_properties
from pocketmq.protocol.command import Command
from pocketmq.protocol.java_json import read_json
from pocketmq.protocol.record import decode_records

T = TypeVar("T")

MOMENT_MS = 10_000
"""How far apart two moments may be: the recordings were made on a busy machine."""
HALF = "half messages"

SENDS = (RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE)
RECORDS = (
    RequestCode.PULL_MESSAGE,
    RequestCode.LITE_PULL_MESSAGE,
    RequestCode.POP_MESSAGE,
    RequestCode.QUERY_MESSAGE,
    RequestCode.VIEW_MESSAGE_BY_ID,
    RequestCode.CHECK_TRANSACTION_STATE,
)
"""What is answered, or asked, with records."""

_LOG_OFFSETS = frozenset({"commitLogOffset", "indexLastUpdatePhyoffset"})
_OFFSET_IDS = frozenset({"msgId", "offsetMsgId", "ORIGIN_MESSAGE_ID"})
_UNIQUE_IDS = frozenset({"transactionId", "UNIQ_KEY"})
_RATES = frozenset({"sum", "consumeTps", "topicPutTps", "tps", "avgpt", "delayTime"})
_MOMENTS = frozenset(
    {
        "popTime",
        "timestamp",
        "indexLastUpdateTimestamp",
        "storeTimestamp",
        "lastUpdateTimestamp",
        "lastTimestamp",
        "minTimeStamp",
        "maxTimeStamp",
        "consumeTimeStamp",
        "TIMER_OUT_MS",
        "TIMER_ENQUEUE_MS",
        "TIMER_DEQUEUE_MS",
        "ARRIVE_TIME",
        "PUSH_REPLY_TIME",
    }
)
_MOMENTS_AS_TEXT = frozenset({"minTimeStampStr", "maxTimeStampStr", "consumeTimeStampStr"})
_VERSION_KEYS = frozenset({"counter", "stateVersion", "timestamp"})
_TIMER_KEYS = frozenset({"TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS"})
_INSIDE = 100
"""Bytes from a record's beginning that an offset may be wrong by and still be meant for it."""
_OFFSET_ID_DIGITS = 16
"""Digits of an offset id that tell the log offset; those before them are the broker's address."""


class LogOffset(NamedTuple):
    value: int


class OwnOffset(NamedTuple):
    """An offset in one of the broker's own queues."""

    queue: str
    value: int


class Moment(NamedTuple):
    ms: int


class Rate(NamedTuple):
    value: float


class UniqueId(NamedTuple):
    """`made_up` by the broker, which then reports it for the first time."""

    text: str
    made_up: bool = False


class Pairs(Generic[T]):
    """What one run calls so, the other calls so. Both ways, so that no two become one."""

    def __init__(self) -> None:
        self._ours: dict[T, T] = {}
        self._theirs: dict[T, T] = {}

    def agree(self, theirs: T, ours: T) -> bool:
        """Whether the value equals an earlier one; the first value is recorded."""
        return self._ours.setdefault(theirs, ours) == ours and self._theirs.setdefault(ours, theirs) == theirs

    def known(self, theirs: T, ours: T) -> bool:
        return self._ours.get(theirs) == ours

    def ours(self, theirs: T) -> T:
        """Our name for theirs; theirs if we have none."""
        return self._ours.get(theirs, theirs)


class Offsets(Pairs[int]):
    """Offsets of one run, and of the other."""

    def ours(self, theirs: int) -> int:
        """An offset inside a record is as far inside ours."""
        distances = [theirs - known for known in self._ours if 0 <= theirs - known < _INSIDE]
        return self._ours[theirs - min(distances)] + min(distances) if distances else theirs


class Agreement:
    """What was learned about a conversation so far."""

    def __init__(self) -> None:
        self.log = Offsets()
        self.own: defaultdict[str, Offsets] = defaultdict(Offsets)
        self.ids: Pairs[str] = Pairs()

    def differences(self, theirs: Any, ours: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
        """The path of a difference, and both values."""
        if isinstance(theirs, dict) and isinstance(ours, dict):
            for name in sorted(theirs.keys() | ours.keys()):
                yield from self.differences(theirs.get(name), ours.get(name), f"{path}.{name}" if path else name)
        elif isinstance(theirs, list) and isinstance(ours, list) and len(theirs) == len(ours):
            for index, (one, other) in enumerate(zip(theirs, ours, strict=True)):
                yield from self.differences(one, other, f"{path}[{index}]")
        elif type(theirs) is not type(ours) or not self._same(theirs, ours):
            yield path, theirs, ours

    def _same(self, theirs: Any, ours: Any) -> bool:
        match theirs:
            case LogOffset(value):
                return self.log.agree(value, ours.value)
            case OwnOffset(queue, value):
                return queue == ours.queue and self.own[queue].agree(value, ours.value)
            case Moment(ms):
                return bool(abs(ms - ours.ms) <= MOMENT_MS)
            case Rate():
                return True
            case UniqueId(text, made_up):
                same = self.ids.agree if made_up else self.ids.known
                return bool(text == ours.text) or same(text, ours.text)
        return bool(theirs == ours)


def meaning(command: Command, request: Command | None = None) -> dict[str, Any]:
    """A command as a tree of values. `request` is the request that it answers, if any."""
    ext = _fields(command.ext or {})
    if request is not None and request.code in SENDS:
        ext |= _place_of_send(ext, request)
    code = request.code if request else command.code
    return {"code": command.code, "remark": command.remark or None, "ext": ext, "body": _body(code, command.body)}


def _body(code: int, body: bytes) -> Any:
    if not body:
        return None
    if code in RECORDS:
        is_half = code == RequestCode.CHECK_TRANSACTION_STATE
        return [_record(message, is_half) for message in decode_records(body)]
    try:
        return _json(read_json(body))
    except PocketMQError:
        return body


def _json(value: Any, name: str = "") -> Any:
    if isinstance(value, list):
        return sorted((_json(item) for item in value), key=repr)
    if isinstance(value, dict):
        if "counter" in value and value.keys() <= _VERSION_KEYS:
            return "a DataVersion"
        return {key: _json(item, key) for key, item in value.items() if key not in _MOMENTS_AS_TEXT}
    if name in _RATES:
        return Rate(float(value))
    return Moment(value) if name in _MOMENTS and isinstance(value, int) else value


def _record(message: StoredMessage, is_half: bool) -> dict[str, Any]:
    return {
        "topic": message.topic,
        "queue_id": message.queue_id,
        "queue_offset": OwnOffset(HALF, message.queue_offset) if is_half else message.queue_offset,
        "log_offset": LogOffset(message.log_offset),
        "body": message.body,
        "flag": message.flag,
        "sys_flag": message.sys_flag,
        "born_ms": message.born_ms,
        "born_host": message.born_host.ip_text,
        "store_ms": Moment(message.store_ms),
        "store_host": str(message.store_host),
        "reconsume_times": message.reconsume_times,
        "prepared_offset": LogOffset(message.prepared_offset) if message.prepared_offset else None,
        "properties": _fields(message.properties),
    }


def _fields(texts: Mapping[str, str]) -> dict[str, Any]:
    return {name: _field(name, text) for name, text in texts.items()}


def _field(name: str, text: str) -> Any:
    if name in _OFFSET_IDS:
        return [_offset_id(one) for one in text.split(",")]
    if name in _UNIQUE_IDS:
        return UniqueId(text)
    if name in _LOG_OFFSETS and int(text):
        return LogOffset(int(text))
    if name == "tranStateTableOffset":
        return OwnOffset(HALF, int(text))
    if name in _MOMENTS and text.isdecimal():
        return Moment(int(text))
    if name == "bornHost":
        return text.rpartition(":")[0]
    if name == "properties":
        return _fields(parse_properties(text))
    if name == "recallHandle":
        handle = RecallHandle.parse(text)
        return {**handle._asdict(), "deliver_ms": Moment(handle.deliver_ms)}
    return text


def _offset_id(text: str) -> Any:
    """An offset id, or another id of a message."""
    if len(text) == 32 and text[8:12] == "0000":
        return {"broker": text[:_OFFSET_ID_DIGITS], "log_offset": LogOffset(int(text[_OFFSET_ID_DIGITS:], 16))}
    return text


def _place_of_send(ext: Mapping[str, Any], send: Command) -> dict[str, Any]:
    """The destination of a send, as far as it is in the answer and can be compared."""
    asked = send.ext or {}
    properties = parse_properties(asked.get("i") or asked.get("properties") or "")
    place: dict[str, Any] = {}
    if "transactionId" in ext and send.code != RequestCode.SEND_BATCH_MESSAGE and "UNIQ_KEY" not in properties:
        place["transactionId"] = ext["transactionId"]._replace(made_up=True)
    own = _own_queue(asked.get("b") or asked.get("topic") or "", properties)
    if "queueOffset" in ext and own:
        place["queueOffset"] = OwnOffset(own, int(ext["queueOffset"]))
    if "queueOffset" in ext and (asked.get("e") or asked.get("queueId") or "").startswith("-"):
        place["queueId"] = place["queueOffset"] = "any"
    return place


def _own_queue(topic: str, properties: Mapping[str, str]) -> str:
    """The internal queue that a message goes to; empty for a message to a queue of its topic."""
    if "DELAY" in properties:
        return f"delay level {properties['DELAY']}"
    if properties.keys() & _TIMER_KEYS:
        return "timed messages"
    if "TRAN_MSG" in properties:
        return HALF
    return topic if topic == TRACE_TOPIC else ""

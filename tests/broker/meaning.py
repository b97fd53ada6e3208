"""What a command means, without what two runs of the same conversation cannot have in common.

Compared exactly: codes, remarks, header fields, JSON bodies whatever their order, and every field of every record, with these rules:

    not compared     opaque, version, language, encoding, order of fields; the port of a born host, which the system gives
    LogOffset        where a record lies depends on all records before it: two runs must only agree with themselves. This
                     holds for offset ids, log offsets in headers and records, and what is said about the end of the index
    OwnOffset        the same for offsets in queues that all conversations share: delayed, timed and half messages
    Moment           the clock is set to the time of the recording: moments may differ by as long as the real broker took
    generated        a unique id that a broker made up: only its length
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from pocketmq.codes import RequestCode
from pocketmq.errors import PocketMQError
from pocketmq.model.message import StoredMessage
from pocketmq.protocol.command import Command
from pocketmq.protocol.java_json import read_json
from pocketmq.protocol.recall_handle import RecallHandle
from pocketmq.protocol.record import decode_records

MOMENT_MS = 10_000
"""How far apart two moments may be: the recordings were made on a busy machine."""

RECORDS = (
    RequestCode.PULL_MESSAGE,
    RequestCode.LITE_PULL_MESSAGE,
    RequestCode.QUERY_MESSAGE,
    RequestCode.VIEW_MESSAGE_BY_ID,
    RequestCode.CHECK_TRANSACTION_STATE,
)
"""What is answered, or asked, with records."""

_LOG_OFFSETS = frozenset({"commitLogOffset", "indexLastUpdatePhyoffset"})
_OFFSET_IDS = frozenset({"msgId", "offsetMsgId", "ORIGIN_MESSAGE_ID"})
_MOMENTS = frozenset(
    {
        "timestamp",
        "indexLastUpdateTimestamp",
        "storeTimestamp",
        "lastUpdateTimestamp",
        "TIMER_OUT_MS",
        "TIMER_ENQUEUE_MS",
        "TIMER_DEQUEUE_MS",
        "ARRIVE_TIME",
        "PUSH_REPLY_TIME",
    }
)
HALF = "half messages"
_OFFSET_ID_PLACES = 16
"""Digits of an offset id that tell the log offset; those before them are the broker's address."""


class LogOffset(NamedTuple):
    value: int


class OwnOffset(NamedTuple):
    """An offset in one of the broker's own queues."""

    queue: str
    value: int


class Moment(NamedTuple):
    ms: int


class Generated(NamedTuple):
    length: int


class Pairs:
    """What one run calls by this number, the other calls by that. Both ways, so that no two become one."""

    def __init__(self) -> None:
        self._ours: dict[int, int] = {}
        self._theirs: dict[int, int] = {}

    def agree(self, theirs: int, ours: int) -> bool:
        """Whether this is what was said before; the first time it is learned."""
        return self._ours.setdefault(theirs, ours) == ours and self._theirs.setdefault(ours, theirs) == theirs

    def ours(self, theirs: int) -> int:
        """Our number for theirs; for one between two that are known, as far from the one below."""
        below = max((known for known in self._ours if known <= theirs), default=None)
        return theirs if below is None else self._ours[below] + theirs - below


class Agreement:
    """What was learned about a conversation so far."""

    def __init__(self) -> None:
        self.log = Pairs()
        self.own: defaultdict[str, Pairs] = defaultdict(Pairs)

    def differences(self, theirs: Any, ours: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
        """Where, and what stands there."""
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
                return abs(ms - ours.ms) <= MOMENT_MS
        return bool(theirs == ours)


def meaning(command: Command, asked: int | None, *, lands: str = "", made_up: bool = False) -> dict[str, Any]:
    """A command as a tree of values. `asked` is the request code that a response answers.

    `lands` is the queue of the broker's own that a send goes to, if any; `made_up` when it came without a unique id.
    """
    ext = {name: _field(name, text, lands, made_up) for name, text in (command.ext or {}).items()}
    code = asked if command.is_response else command.code
    return {"code": command.code, "remark": command.remark, "ext": ext, "body": _body(code, command.body)}


def _body(code: int | None, body: bytes) -> Any:
    if not body:
        return None
    if code in RECORDS:
        return [_record(message) for message in decode_records(body)]
    try:
        return _sorted(read_json(body))
    except PocketMQError:
        return body


def _sorted(value: Any) -> Any:
    if isinstance(value, list):
        return sorted((_sorted(item) for item in value), key=repr)
    return {key: _named(key, _sorted(item)) for key, item in value.items()} if isinstance(value, dict) else value


def _named(name: str, value: Any) -> Any:
    return Moment(value) if name in _MOMENTS and isinstance(value, int) else value


def _record(message: StoredMessage) -> dict[str, Any]:
    return {
        "topic": message.topic,
        "queue_id": message.queue_id,
        "queue_offset": message.queue_offset,
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
        "properties": _properties(message.properties),
    }


def _properties(properties: Mapping[str, str]) -> dict[str, Any]:
    return {name: _field(name, text) for name, text in properties.items()}


def _field(name: str, text: str, lands: str = "", made_up: bool = False) -> Any:
    if name in _OFFSET_IDS:
        return [_offset_id(one) for one in text.split(",")]
    if name in _LOG_OFFSETS:
        return LogOffset(int(text))
    if name == "tranStateTableOffset":
        return OwnOffset(HALF, int(text))
    if name == "queueOffset" and lands:
        return OwnOffset(lands, int(text))
    if name in _MOMENTS and text.isdecimal():
        return Moment(int(text))
    if name == "transactionId" and made_up:
        return Generated(len(text))
    if name == "recallHandle":
        handle = RecallHandle.parse(text)
        return {**handle._asdict(), "deliver_ms": Moment(handle.deliver_ms)}
    return text


def _offset_id(text: str) -> Any:
    """An offset id, or what else is called a message's id."""
    if len(text) == 32 and text[8:12] == "0000":
        return {"broker": text[:_OFFSET_ID_PLACES], "log_offset": LogOffset(int(text[_OFFSET_ID_PLACES:], 16))}
    return text

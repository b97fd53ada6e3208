"""A message, before it is sent and after it was stored.

A user creates a `Message`; a log stores and a consumer receives a `StoredMessage`. One object per message is on the hot path, so both
are slotted, and the fields of a stored message are parsed when they are first read.
"""

import struct
from collections.abc import Callable, Iterable, Mapping
from copy import copy
from typing import Final, Never, Self

import msgspec

from pocketmq.codes import SysFlag
from pocketmq.errors import InvalidMessage
from pocketmq.model import properties as names
from pocketmq.model.delay import delay_level_fault
from pocketmq.model.message_id import Host, offset_id
from pocketmq.model.names import TopicName, parse_topic, refuse_unknown
from pocketmq.model.properties import check_user_property, parse_properties
from pocketmq.model.queue import MessageQueue

SHOWN_BYTES: Final = 100
"""Bytes of a body that `repr` shows."""
MESSAGE_ARGUMENTS: Final = (
    "tags",
    "keys",
    "properties",
    "flag",
    "delay_level",
    "deliver_at_ms",
    "delay_ms",
    "sharding_key",
    "wait_stored",
)
"""The keyword arguments of `Message`."""
_unpack_int: Callable[[bytes, int], tuple[int]] = struct.Struct(">i").unpack_from
_unpack_long: Callable[[bytes, int], tuple[int]] = struct.Struct(">q").unpack_from


class Message:
    """A message to send. A body that is not bytes is encoded: text as UTF-8, other values as JSON (`encoded_body`).

    `keys` are indexed by the broker and can be searched; `tags` is the one tag that consumers filter by; `properties`
    are free. `delay_level`, `deliver_at_ms` and `delay_ms` delay the delivery; only one of them may be set.
    """

    __slots__ = ("body", "flag", "properties", "topic")

    topic: TopicName
    body: bytes
    properties: dict[str, str]
    flag: int

    def __init__(
        self,
        topic: str,
        body: object,
        *,
        tags: str | None = None,
        keys: str | Iterable[str] = (),
        properties: Mapping[str, str] | None = None,
        flag: int = 0,
        delay_level: int = 0,
        deliver_at_ms: int | None = None,
        delay_ms: int | None = None,
        sharding_key: str | None = None,
        wait_stored: bool = True,
        **unknown: Never,
    ) -> None:
        if unknown:
            refuse_unknown("Message", unknown, MESSAGE_ARGUMENTS)
        self.topic = parse_topic(topic)
        self.body = body if type(body) is bytes else encoded_body(body)
        self.flag = flag
        self.properties = all_properties = {}
        if properties:
            for name, value in _checked_mapping(properties).items():
                check_user_property(name, value)
                all_properties[name] = value
        if tags is not None:
            all_properties[names.TAGS] = _checked_tag(tags)
        if keys != () and (joined := keys if isinstance(keys, str) else _joined(keys)):
            all_properties[names.KEYS] = joined
        if sharding_key is not None:
            all_properties[names.SHARDING_KEY] = _checked_text("sharding_key", sharding_key)
        if not wait_stored:
            all_properties[names.WAIT] = "false"
        if (delay_level != 0) + (deliver_at_ms is not None) + (delay_ms is not None) > 1:
            raise InvalidMessage("give only one of delay_level, deliver_at_ms and delay_ms")
        if delay_level:
            if fault := delay_level_fault(delay_level):
                raise InvalidMessage(
                    f"{fault}; delay_ms gives any other time. For a broker whose messageDelayLevel has more levels, set "
                    f"message.properties[{names.DELAY!r}]"
                )
            all_properties[names.DELAY] = str(delay_level)
        if deliver_at_ms is not None:
            all_properties[names.TIMER_DELIVER_MS] = _checked_ms("deliver_at_ms", deliver_at_ms)
        if delay_ms is not None:
            all_properties[names.TIMER_DELAY_MS] = _checked_ms("delay_ms", delay_ms)

    @property
    def tags(self) -> str | None:
        return self.properties.get(names.TAGS)

    @property
    def keys(self) -> list[str]:
        return self.properties.get(names.KEYS, "").split()

    @property
    def delay_level(self) -> int:
        return _delay_level(self.properties)

    def with_properties(self, more: Mapping[str, str]) -> Self:
        """A copy with further properties."""
        for name, value in more.items():
            check_user_property(name, value)
        other = copy(self)
        other.properties = {**self.properties, **more}
        return other

    def __repr__(self) -> str:
        return f"Message(topic={self.topic!r}, {len(self.body)} bytes, {self.properties!r})"


def encoded_body(body: object) -> bytes:
    """The body as bytes: bytes unchanged, text as UTF-8, other values as JSON.

    JSON values are those of msgspec (dict, list, numbers, dataclass, Struct, datetime, UUID …) and pydantic models.
    """
    if isinstance(body, bytes | bytearray | memoryview):
        return bytes(body)
    if body is None:
        raise InvalidMessage("the body is missing (None); give bytes, text, or a value that can be encoded as JSON")
    try:
        if isinstance(body, str):
            return body.encode()
        as_json = getattr(body, "model_dump_json", None)  # pydantic
        if as_json is not None and not isinstance(body, type):
            return str(as_json()).encode()
        return msgspec.json.encode(body, enc_hook=_encodable)
    except UnicodeEncodeError as error:
        raise InvalidMessage(f"the body cannot be encoded as UTF-8: {error}") from None
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidMessage(
            f"a body of type {type(body).__name__} cannot be encoded as JSON: {error}; give bytes, text, a dict, a list, a "
            "dataclass, a msgspec Struct or a pydantic model"
        ) from error


def _encodable(inside: object) -> object:
    """Encode a part of a body whose type msgspec does not know."""
    dump = getattr(inside, "model_dump", None)
    if dump is None or isinstance(inside, type):
        raise TypeError(f"it contains a value of type {type(inside).__name__}")
    return dump(mode="json")


def _checked_mapping(properties: Mapping[str, str]) -> Mapping[str, str]:
    if not isinstance(properties, Mapping):
        raise InvalidMessage(f"properties must be a dict of str, not {type(properties).__name__}")
    return properties


def _checked_ms(name: str, value: int) -> str:
    if type(value) is not int or not 0 <= value < 2**63:
        example = "5000 for five seconds" if name == "delay_ms" else "int(when.timestamp() * 1000)"
        raise InvalidMessage(f"{name} = {value!r} must be a whole number of milliseconds, 0 or above: {example}")
    return str(value)


def _checked_text(name: str, value: str) -> str:
    if not isinstance(value, str):
        raise InvalidMessage(f"{name} = {value!r} is {type(value).__name__}, not str; give {str(value)!r}")
    return value


def _joined(keys: Iterable[str]) -> str:
    if not isinstance(keys, Iterable):
        raise InvalidMessage(f"keys = {keys!r} is {type(keys).__name__}, not str; give {str(keys)!r}, or a list of str")
    return names.KEY_SEPARATOR.join(_checked_text("a key", key) for key in keys)


def _checked_tag(tag: str) -> str:
    if not isinstance(tag, str):
        raise InvalidMessage(f"tags = {tag!r} is {type(tag).__name__}, not str; a message has one tag")
    if not tag.strip() or "||" in tag or tag == "*":
        raise InvalidMessage(f"tag {tag!r} cannot be subscribed to: it is empty, is '*', or contains '||'")
    return tag


def _delay_level(properties: Mapping[str, str]) -> int:
    """The delay level in properties; 0 if it is not a number, which only a broken client writes."""
    try:
        return int(properties.get(names.DELAY, "0"))
    except ValueError:
        return 0


class StoredMessage(msgspec.Struct, gc=False):
    """A message as stored in the log and received by a consumer.

    `body` is as stored, and compressed if `sys_flag` says so. Rarely used fields are decoded on access: numbers and hosts from
    the `head` of the record (drawn in `protocol.record`), properties from their text.
    """

    topic: str
    queue_id: int
    queue_offset: int
    sys_flag: int
    body: bytes
    raw_properties: bytes
    head: bytes
    """The bytes of the record before the body, at least 88."""
    size: int
    """The size of the record."""
    _queue: MessageQueue | None = None
    """The queue it was read from, if known."""
    _properties: dict[str, str] | None = None

    def __eq__(self, other: object) -> bool:
        """Whether both are the same message, regardless of their queues and of properties parsed already."""
        if not isinstance(other, StoredMessage):
            return NotImplemented
        return msgspec.structs.astuple(self)[:-2] == msgspec.structs.astuple(other)[:-2]

    def __repr__(self) -> str:
        body = self.body if len(self.body) <= SHOWN_BYTES else self.body[:SHOWN_BYTES] + b"..."
        return (
            f"StoredMessage(topic={self.topic!r}, queue_id={self.queue_id}, queue_offset={self.queue_offset}, "
            f"message_id={self.message_id!r}, tags={self.tags!r}, keys={self.keys!r}, body={body!r})"
        )

    @property
    def queue(self) -> MessageQueue:
        """The queue it was read from; for a retried message, a queue of the retry topic.

        The broker name is empty for a message that was found by its id or key.
        """
        queue = self._queue
        return MessageQueue(self.topic, "", self.queue_id) if queue is None else queue

    @property
    def body_crc(self) -> int:
        """The checksum of the body as stored."""
        return int.from_bytes(self.head[8:12])

    @property
    def flag(self) -> int:
        return _unpack_int(self.head, 16)[0]

    @property
    def log_offset(self) -> int:
        return _unpack_long(self.head, 28)[0]

    @property
    def born_ms(self) -> int:
        return _unpack_long(self.head, 40)[0]

    @property
    def packed_born_host(self) -> bytes:
        return self.head[48 : 68 if self.sys_flag & SysFlag.BORN_HOST_V6 else 56]

    @property
    def store_ms(self) -> int:
        return _unpack_long(self.head, -44 if self.sys_flag & SysFlag.STORE_HOST_V6 else -32)[0]

    @property
    def packed_store_host(self) -> bytes:
        return self.head[-36 if self.sys_flag & SysFlag.STORE_HOST_V6 else -24 : -16]

    @property
    def reconsume_times(self) -> int:
        return _unpack_int(self.head, -16)[0]

    @reconsume_times.setter
    def reconsume_times(self, times: int) -> None:
        self.head = self.head[:-16] + times.to_bytes(4, "big", signed=True) + self.head[-12:]

    @property
    def prepared_offset(self) -> int:
        return _unpack_long(self.head, -12)[0]

    @property
    def properties(self) -> dict[str, str]:
        properties = self._properties
        if properties is None:
            # Java replaces invalid UTF-8 too; it must not make a message unreadable.
            properties = self._properties = parse_properties(self.raw_properties.decode("utf-8", "replace"))
        return properties

    @property
    def tags(self) -> str | None:
        return self.properties.get(names.TAGS)

    @property
    def keys(self) -> list[str]:
        return self.properties.get(names.KEYS, "").split()

    @property
    def born_host(self) -> Host:
        return Host.unpack(self.packed_born_host)

    @property
    def store_host(self) -> Host:
        return Host.unpack(self.packed_store_host)

    @property
    def offset_id(self) -> str:
        """The broker's id: its address and the log offset."""
        return offset_id(self.packed_store_host, self.log_offset)

    @property
    def message_id(self) -> str:
        """The producer's id, or the broker's if the producer set none."""
        return self.properties.get(names.UNIQ_KEY) or self.offset_id

    @property
    def delay_level(self) -> int:
        return _delay_level(self.properties)

"""A message, before it is sent and after it was stored.

`Message` is what a user makes; `StoredMessage` is what a log keeps and a consumer gets. One object per message lives on the
hot path, so both are slotted, and a stored message parses its properties only when somebody asks.
"""

from collections.abc import Iterable, Mapping
from copy import copy
from typing import Self

import msgspec

from pocketmq.errors import InvalidMessage
from pocketmq.model import properties as names
from pocketmq.model.message_id import Host, offset_id
from pocketmq.model.names import TopicName, parse_topic
from pocketmq.model.properties import check_user_property, parse_properties


class Message:
    """A message to send.

    `keys` are indexed by the broker and can be searched; `tags` is the one tag that consumers filter by; `properties`
    are the user's own. `delay_level`, `deliver_at_ms` and `delay_ms` postpone delivery and exclude one another.
    """

    __slots__ = ("body", "flag", "properties", "topic")

    topic: TopicName
    body: bytes
    properties: dict[str, str]
    flag: int

    def __init__(
        self,
        topic: str,
        body: bytes,
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
    ) -> None:
        self.topic = parse_topic(topic)
        self.body = body
        self.flag = flag
        self.properties = all_properties = {}
        if properties:
            for name, value in properties.items():
                check_user_property(name, value)
                all_properties[name] = value
        if tags is not None:
            all_properties[names.TAGS] = _checked_tag(tags)
        if keys != () and (joined := keys if isinstance(keys, str) else names.KEY_SEPARATOR.join(keys)):
            all_properties[names.KEYS] = joined
        if sharding_key is not None:
            all_properties[names.SHARDING_KEY] = sharding_key
        if not wait_stored:
            all_properties[names.WAIT] = "false"
        if (delay_level != 0) + (deliver_at_ms is not None) + (delay_ms is not None) > 1:
            raise InvalidMessage("give only one of delay_level, deliver_at_ms and delay_ms")
        if delay_level:
            all_properties[names.DELAY] = str(delay_level)
        if deliver_at_ms is not None:
            all_properties[names.TIMER_DELIVER_MS] = str(deliver_at_ms)
        if delay_ms is not None:
            all_properties[names.TIMER_DELAY_MS] = str(delay_ms)

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
        """Another message with further properties of the user."""
        for name, value in more.items():
            check_user_property(name, value)
        other = copy(self)
        other.properties = {**self.properties, **more}
        return other

    def __repr__(self) -> str:
        return f"Message(topic={self.topic!r}, {len(self.body)} bytes, {self.properties!r})"


def _checked_tag(tag: str) -> str:
    if not tag.strip() or "||" in tag or tag == "*":
        raise InvalidMessage(f"tag {tag!r} could never be subscribed to: it is empty, '*' or holds '||'")
    return tag


def _delay_level(properties: Mapping[str, str]) -> int:
    """0 also for a level that is not a number: nobody but a broken client writes one."""
    try:
        return int(properties.get(names.DELAY, "0"))
    except ValueError:
        return 0


class StoredMessage(msgspec.Struct, gc=False):
    """A message as it lies in the log and as a consumer gets it.

    `body` is as stored, maybe compressed (`sys_flag` says so). What most readers never look at stays as bytes until asked
    for: hosts as packed ip and port, properties as their text.
    """

    topic: str
    queue_id: int
    queue_offset: int
    log_offset: int
    body: bytes
    raw_properties: bytes
    flag: int
    sys_flag: int
    born_ms: int
    packed_born_host: bytes
    store_ms: int
    packed_store_host: bytes
    reconsume_times: int
    prepared_offset: int
    body_crc: int
    size: int
    _properties: dict[str, str] | None = None

    def __eq__(self, other: object) -> bool:
        """Whether both are the same message, no matter whose properties somebody has looked at already."""
        if not isinstance(other, StoredMessage):
            return NotImplemented
        return msgspec.structs.astuple(self)[:-1] == msgspec.structs.astuple(other)[:-1]

    @property
    def properties(self) -> dict[str, str]:
        properties = self._properties
        if properties is None:
            # Java replaces bytes that are not UTF-8 as well; a message must not become unreadable by them.
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
        """Where it lies, as the broker names it."""
        return offset_id(self.packed_store_host, self.log_offset)

    @property
    def message_id(self) -> str:
        """The producer's id; the broker's where the producer gave none."""
        return self.properties.get(names.UNIQ_KEY) or self.offset_id

    @property
    def delay_level(self) -> int:
        return _delay_level(self.properties)

"""Messages before they are sent: validated, named, compressed, with their properties encoded as text.

    Message ── validation ── UNIQ_KEY, WAIT, INSTANCE_ID ── a body over 4 KiB is compressed ──► Outgoing ──► attempts

The user's message does not change: sending it twice sends two messages. All attempts of one send have the same message id.

The send methods also accept the parts of a message as arguments: `send("orders", b"…", keys="42", tags="new")`.
"""

from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Final, TypedDict

import msgspec

from pocketmq.client.hooks import HookList
from pocketmq.client.producer.queue_choice import Destination, QueueSelector, destination_of
from pocketmq.client.received import RetryMessage
from pocketmq.client.settings import ProducerSettings
from pocketmq.clock import Clock
from pocketmq.codes import SysFlag
from pocketmq.errors import InvalidMessage, UsageError
from pocketmq.model import Message, MessageQueue, UniqueIds
from pocketmq.model import properties as names
from pocketmq.model.message import MESSAGE_ARGUMENTS, encoded_body
from pocketmq.model.names import UNSENDABLE_TOPICS, is_retry, parse_topic, refuse_unknown, wrap
from pocketmq.model.properties import MAX_BYTES as MAX_PROPERTIES_BYTES
from pocketmq.model.properties import format_properties, parse_properties
from pocketmq.protocol.batch import encode_batch
from pocketmq.protocol.compression import compress, with_compression
from pocketmq.protocol.trace_text import TracedType

ITEM_OVERHEAD_BYTES: Final = 22
"""Bytes of a batch item without body and properties."""

_POSTPONED: Final = frozenset(names.DELAYING_PROPERTIES)
_NOT_PLAIN: Final = frozenset((names.WAIT, *names.TIMER_PROPERTIES))
_MAX_CHARS_SURELY_SHORT = MAX_PROPERTIES_BYTES // 4


class BatchKind(IntEnum):
    """Only messages of the same kind share a batch. Integers, because their hash is cheap."""

    WAITING = 1
    """The broker responds after the configured flush and replication, which applies to a whole batch."""
    NOT_WAITING = 2
    """The broker does not wait for flush and replication."""
    ALONE = 3
    """Never shares a batch."""


_WAITING: Final = BatchKind.WAITING  # an attribute of an enum class is slow
_NOT_WAITING: Final = BatchKind.NOT_WAITING
_ALONE: Final = BatchKind.ALONE


class Outgoing(msgspec.Struct, eq=False):
    """One message, or a batch of them, ready for any queue of its topic.

    `attempts` of a message to a retry topic are its reconsume times and their maximum.
    """

    message: Message
    topic: str
    message_id: str
    body: bytes
    properties: str
    sys_flag: int = 0
    members: "Sequence[Outgoing] | None" = None
    is_reply: bool = False
    attempts: tuple[int, int] | None = None

    @property
    def count(self) -> int:
        """The number of messages."""
        return 1 if self.members is None else len(self.members)

    @property
    def size(self) -> int:
        """Bytes that count as in flight."""
        return len(self.body) + len(self.properties)

    @property
    def batch_bytes(self) -> int:
        """Its size as an item of a batch."""
        text = self.properties
        return ITEM_OVERHEAD_BYTES + len(self.body) + (len(text) if text.isascii() else len(text.encode()))

    @property
    def batch_kind(self) -> BatchKind:
        """Which messages it may share a batch with.

        Compressed, delayed, reply, retry and half messages are sent alone.
        """
        message = self.message
        if self.sys_flag or self.is_reply or self.attempts is not None:
            return _ALONE
        if not message.properties and message.topic[:1] != "%":  # a fast path for most messages
            return _WAITING
        if not can_share_a_batch(message):
            return _ALONE
        return _NOT_WAITING if message.properties.get(names.WAIT) == "false" else _WAITING

    @property
    def is_timed(self) -> bool:
        """Whether it has a delivery time, which brokers before 5.0 do not support."""
        properties = self.message.properties
        return bool(properties) and any(name in properties for name in names.TIMER_PROPERTIES)

    @property
    def messages(self) -> list[Message]:
        return [self.message] if self.members is None else [member.message for member in self.members]

    @property
    def message_ids(self) -> list[str]:
        return [self.message_id] if self.members is None else [member.message_id for member in self.members]


class Packer:
    """Validates and encodes messages by a producer's settings."""

    def __init__(self, settings: ProducerSettings, ids: UniqueIds, clock: Clock) -> None:
        self._namespace = settings.namespace
        self._clock = clock
        self._max_bytes = settings.max_message_bytes
        self._compress_over = settings.compress_over_bytes
        self._compression = settings.compression_kind
        self._level = settings.compression_level
        self._compressed_flag = with_compression(0, self._compression)
        self._group = wrap(settings.namespace, settings.group)
        instance = "" if self._namespace is None else f"INSTANCE_ID\x01{self._namespace}\x02"
        self._after_id = f"\x02{instance}"
        self._after_id_and_wait = f"\x02WAIT\x01true\x02{instance}"
        self._most_own_chars = _MAX_CHARS_SURELY_SHORT - len(instance) - 128
        self.ids = ids
        self.after_plain_id = self._after_id_and_wait
        """The properties text of a plain message between its id and its own properties."""
        self.plain_below_bytes = min(settings.compress_over_bytes, settings.max_message_bytes + 1)
        """The body of a plain message is smaller than this, and not empty."""
        self.plain_overhead = len(names.UNIQ_KEY) + 1 + ids.id_chars + len(self._after_id_and_wait)
        """In-flight bytes of a plain message besides its body and its own properties."""

    def pack(self, message: Message) -> Outgoing:
        """The message ready for sending; InvalidMessage when it cannot be sent."""
        topic = self._topic_of(message)
        body = self.checked_body(message)
        message_id, properties = self._properties(message.properties)
        if len(body) >= self._compress_over:
            body = compress(body, self._compression, self._level)
            return Outgoing(message, topic, message_id, body, properties, self._compressed_flag)
        return Outgoing(message, topic, message_id, body, properties)

    def plain_properties(self, message: Message) -> str | None:
        """The own properties of a plain message as text; None when the message is not plain."""
        properties = message.properties
        if message.flag or not _NOT_PLAIN.isdisjoint(properties):
            return None
        text = format_properties(properties) if properties else ""
        return text if len(text) <= self._most_own_chars else None

    def repack(self, topic: str, message_id: str, body: bytes, own: str) -> Outgoing:
        """Convert a plain message into an `Outgoing`; `own` are its own properties."""
        message = replaced(Message(topic, body), body, parse_properties(own))
        text = f"{names.UNIQ_KEY}\x01{message_id}{self._after_id_and_wait}{own}"
        return Outgoing(message, self.wire_topic(topic), message_id, body, text)

    def pack_half(self, message: Message) -> Outgoing:
        """A half message of a transaction, which consumers receive after the commit. It cannot be delayed."""
        if message.delay_level or any(name in message.properties for name in _POSTPONED):
            raise InvalidMessage("a message in a transaction cannot be delayed: consumers receive it after the commit")
        marked = {**message.properties, names.TRANSACTION_PREPARED: "true", names.PRODUCER_GROUP: self._group}
        out = self.pack(replaced(message, message.body, marked))
        out.message = message
        out.sys_flag |= SysFlag.TRANSACTION_PREPARED
        return out

    def pack_retry(self, retry_message: RetryMessage) -> Outgoing:
        """A failed message for a retry topic. Its body and topic stay as received."""
        message = replaced(
            Message(retry_message.topic, retry_message.body, flag=retry_message.flag),
            retry_message.body,
            retry_message.properties,
        )
        message_id = retry_message.properties.get(names.UNIQ_KEY) or self.ids.next(self._clock.now_ms())
        text = format_properties({names.WAIT: "true", **retry_message.properties, names.UNIQ_KEY: message_id})
        attempts = retry_message.reconsume_times, retry_message.max_reconsume_times
        return Outgoing(
            message,
            retry_message.topic,
            message_id,
            retry_message.body,
            text,
            retry_message.sys_flag,
            attempts=attempts,
        )

    def pack_reply(self, message: Message) -> Outgoing:
        """The reply to a request, without the WAIT property."""
        message_id = self.ids.next(self._clock.now_ms())
        text = format_properties({**message.properties, names.UNIQ_KEY: message_id})
        return Outgoing(message, message.topic, message_id, self.checked_body(message), text, is_reply=True)

    def pack_batch(self, members: Sequence[Outgoing]) -> Outgoing:
        """One request for packed messages of a topic; a single message stays unchanged.

        Unlike Java's, the batch has no message id: brokers before 5.5 would set it on each of its messages.
        """
        if len(members) == 1:
            return members[0]
        message = members[0].message
        own = {names.WAIT: message.properties.get(names.WAIT, "true")}
        if self._namespace is not None:
            own[names.INSTANCE_ID] = self._namespace
        body = encode_batch([(one.message.flag, one.body, one.properties.encode()) for one in members])
        batch, message_id = Message(message.topic, body), members[0].message_id
        return Outgoing(batch, self._topic_of(message), message_id, body, format_properties(own), members=members)

    def checked_body(self, message: Message) -> bytes:
        """The encoded body; InvalidMessage when a broker would refuse it."""
        body = message.body
        if type(body) is not bytes:
            body = encoded_body(body)  # set after the message was created
        if not body:
            raise InvalidMessage("the body is empty; brokers refuse empty messages")
        if len(body) > self._max_bytes:
            raise InvalidMessage(f"the body has {len(body)} bytes, more than max_message_bytes ({self._max_bytes})")
        if message.flag and not -(2**31) <= message.flag < 2**31:
            raise InvalidMessage(f"the flag {message.flag} does not fit into 32 bits")
        if message.topic in UNSENDABLE_TOPICS:
            raise InvalidMessage(f"topic {message.topic!r} is a system topic; only brokers write to it")
        return body

    def _properties(self, own: dict[str, str]) -> tuple[str, str]:
        message_id = self.ids.next(self._clock.now_ms())
        text = f"UNIQ_KEY\x01{message_id}{self._after_id if names.WAIT in own else self._after_id_and_wait}"
        if own:
            text += format_properties(own)
            if len(text) > _MAX_CHARS_SURELY_SHORT and len(text.encode()) > MAX_PROPERTIES_BYTES:
                raise InvalidMessage(
                    f"keys, tags and properties have {len(text.encode())} bytes, more than the limit of {MAX_PROPERTIES_BYTES}"
                )
        return message_id, text

    def _topic_of(self, message: Message) -> str:
        return message.topic if self._namespace is None else self.wire_topic(message.topic)

    def wire_topic(self, topic: str) -> str:
        """The topic name on the wire, with the namespace."""
        return topic if self._namespace is None else parse_topic(wrap(self._namespace, topic))


def replaced(message: Message, body: bytes, properties: dict[str, str]) -> Message:
    """A copy with another body and properties, including property names that users must not set."""
    made = Message(message.topic, body, flag=message.flag)
    made.properties = properties
    return made


def can_share_a_batch(message: Message) -> bool:
    """Whether a message may share a batch: delayed, retry and half messages may not."""
    properties = message.properties
    return not (is_retry(message.topic) or (properties and not _POSTPONED.isdisjoint(properties)))


def traced_type(out: Outgoing) -> TracedType:
    """The message type in traces."""
    if out.sys_flag & SysFlag.TRANSACTION_PREPARED:
        return TracedType.HALF
    return TracedType.DELAYED if any(name in out.message.properties for name in _POSTPONED) else TracedType.NORMAL


SEND_ARGUMENTS: Final = ("queue", "selector", "selector_key", "timeout_s")
"""Keyword arguments of the send methods besides those of `Message`."""


class MessageOptions(TypedDict, total=False):
    """The keyword arguments of `Message`."""

    tags: str | None
    keys: str | Iterable[str]
    properties: Mapping[str, str] | None
    flag: int
    delay_level: int
    deliver_at_ms: int | None
    delay_ms: int | None
    sharding_key: str | None
    wait_stored: bool


class QueueOptions(MessageOptions, total=False):
    """Adds the destination: a queue, or a selector with its key."""

    queue: MessageQueue | None
    selector: QueueSelector | None
    selector_key: object


class SendOptions(QueueOptions, total=False):
    """Adds the timeout of all attempts; default is `send_timeout_ms` of the producer."""

    timeout_s: float | None


def require_messages(messages: Iterable[object]) -> None:
    """UsageError for the first item that is not a Message."""
    for index, each in enumerate(messages):
        if not isinstance(each, Message):
            raise UsageError(
                f"item {index} is {type(each).__name__}, not a Message: send_many([Message('topic', b'…'), …])"
            )


def addressed(hooks: HookList, what: Message | str, body: object, options: QueueOptions) -> tuple[Message, Destination]:
    """The message with the properties of hooks, and its destination."""
    if not options:
        message = hooks.with_extra_properties(message_of(what, body, options))
        return message, destination_of(message, None, None, None)
    queue, selector, key = options.pop("queue", None), options.pop("selector", None), options.pop("selector_key", None)
    message = hooks.with_extra_properties(message_of(what, body, options))
    return message, destination_of(message, queue, selector, key)


def message_of(what: Message | str, body: object, options: MessageOptions) -> Message:
    """The given message, or a new one for the given topic."""
    if not isinstance(what, Message):
        if body is None and isinstance(what, str):
            raise UsageError(f"a message to topic {what!r} needs a body: send({what!r}, b'…')")
        try:
            return Message(what, body, **options)
        except UsageError:
            unknown = options.keys() - set(MESSAGE_ARGUMENTS)
            refuse_unknown("send", unknown, (*MESSAGE_ARGUMENTS, *SEND_ARGUMENTS))
            raise
    if body is not None or options:
        refuse_unknown("send", options.keys() - set(MESSAGE_ARGUMENTS), (*MESSAGE_ARGUMENTS, *SEND_ARGUMENTS))
        extra = ", ".join(options) or "body"
        raise UsageError(f"with a Message, set {extra} on the Message and not in this call")
    return what

"""Messages of gRPC clients as messages of the remoting protocol, and back.

    tag, keys                TAGS, KEYS                      message_id          UNIQ_KEY
    message_group            __SHARDINGKEY                   delivery_timestamp  TIMER_DELIVER_MS
    transaction              TRAN_MSG, sysFlag 4             recovery duration   CHECK_IMMUNITY_TIME_IN_SECONDS
    trace_context            TRACE_CONTEXT                   born_host, born_ms  __BORNHOST, BORN_TIMESTAMP
    user_properties          under their own names

The type of a message follows from its properties: clients of both protocols see the same one. Bodies are stored as they are; a body
in GZIP is decompressed first, because remoting clients cannot read it, and received bodies are always plain.
"""

import hashlib
import re
import zlib
from typing import Final, NamedTuple

from pocketmq.client.received import readable
from pocketmq.codes import SysFlag
from pocketmq.errors import InvalidMessage, InvalidName
from pocketmq.model import StoredMessage, is_group_topic, is_system_topic, parse_group, parse_topic
from pocketmq.model import properties as names
from pocketmq.model.properties import format_properties
from pocketmq.protocol.pop import Handle
from pocketmq.proxy.messages import (
    Code,
    Digest,
    DigestType,
    Duration,
    Encoding,
    Message,
    MessageType,
    Resource,
    SystemProperties,
    Timestamp,
)
from pocketmq.proxy.settings import ProxySettings
from pocketmq.proxy.statuses import Refused

FIRST_S: Final = -62_135_596_800
LAST_S: Final = 253_402_300_799
TRACE_CONTEXT: Final = "TRACE_CONTEXT"
BORN_HOST: Final = "__BORNHOST"
BORN_TIMESTAMP: Final = "BORN_TIMESTAMP"
_RESERVED: Final = names.RESERVED | {TRACE_CONTEXT, BORN_HOST, BORN_TIMESTAMP, "__LITE_TOPIC", "_SYS_MSG_PRIORITY_"}
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_GZIP_OR_ZLIB: Final = 32 + zlib.MAX_WBITS


class Converted(NamedTuple):
    """A message for a send request."""

    topic: str
    body: bytes
    properties: dict[str, str]
    sys_flag: int
    born_ms: int
    type: MessageType

    @property
    def message_id(self) -> str:
        return self.properties[names.UNIQ_KEY]

    @property
    def properties_text(self) -> str:
        try:
            return format_properties(self.properties)
        except InvalidMessage as error:
            raise Refused(Code.ILLEGAL_MESSAGE_PROPERTY_KEY, str(error)) from None


def topic_of(resource: Resource) -> str:
    """The topic of a request; Refused if it is not one that clients may use."""
    try:
        topic = parse_topic(resource.name)
    except InvalidName as error:
        raise Refused(Code.ILLEGAL_TOPIC, str(error)) from None
    if is_system_topic(topic):
        raise Refused(Code.ILLEGAL_TOPIC, f"{topic} is a topic of the broker itself")
    return topic


def group_of(resource: Resource) -> str:
    """The consumer group of a request."""
    try:
        return parse_group(resource.name)
    except InvalidName as error:
        raise Refused(Code.ILLEGAL_CONSUMER_GROUP, str(error)) from None


def duration_ms(duration: Duration) -> int:
    return duration.seconds * 1000 + duration.nanos // 1_000_000


def duration_of(ms: int) -> Duration:
    return Duration(seconds=ms // 1000, nanos=ms % 1000 * 1_000_000)


def timestamp_ms(timestamp: Timestamp, refusal: Code = Code.BAD_REQUEST) -> int:
    """Refused if it is not from the year 1 to the year 9999, the limits of a timestamp."""
    if not FIRST_S <= timestamp.seconds <= LAST_S:
        raise Refused(refusal, f"a timestamp of {timestamp.seconds} s is not from {FIRST_S} to {LAST_S} s")
    return timestamp.seconds * 1000 + timestamp.nanos // 1_000_000


def timestamp_of(ms: int) -> Timestamp:
    return Timestamp(seconds=ms // 1000, nanos=ms % 1000 * 1_000_000)


# sending


def converted(message: Message, now_ms: int, settings: ProxySettings) -> Converted:
    """A message to send; Refused, with Apache's code, if a part of it is not allowed."""
    system, topic = message.system_properties, topic_of(message.topic)
    _check_user_properties(message, settings)
    properties = dict(message.user_properties)
    _add_words(properties, system, settings)
    sys_flag = 0
    if system.message_type == MessageType.TRANSACTION:
        properties[names.TRANSACTION_PREPARED] = "true"
        sys_flag |= SysFlag.TRANSACTION_PREPARED
        if system.HasField("orphaned_transaction_recovery_duration"):
            properties[names.CHECK_IMMUNITY_SECONDS] = _recovery(system, settings)
    if system.HasField("delivery_timestamp"):
        due_ms = timestamp_ms(system.delivery_timestamp, Code.ILLEGAL_DELIVERY_TIME)
        if due_ms - now_ms > settings.max_delay_s * 1000:
            raise Refused(
                Code.ILLEGAL_DELIVERY_TIME, f"the delivery time is more than {settings.max_delay_s} s from now"
            )
        properties[names.TIMER_DELIVER_MS] = str(due_ms)
    if system.trace_context:
        properties[TRACE_CONTEXT] = system.trace_context
    born_ms = timestamp_ms(system.born_timestamp) or now_ms
    properties |= {BORN_HOST: system.born_host, BORN_TIMESTAMP: str(born_ms), names.PRODUCER_GROUP: topic}
    return Converted(topic, _body(message, settings), properties, sys_flag, born_ms, type_of(properties))


def _check_user_properties(message: Message, settings: ProxySettings) -> None:
    user, system = message.user_properties, message.system_properties
    if len(user) > settings.max_properties:
        raise Refused(
            Code.MESSAGE_PROPERTIES_TOO_LARGE,
            f"the message has {len(user)} properties; at most {settings.max_properties} are allowed",
        )
    size = sum(len(name) + len(value) for name, value in user.items()) + len(system.tag) + sum(map(len, system.keys))
    if size > settings.max_properties_bytes:
        raise Refused(
            Code.MESSAGE_PROPERTIES_TOO_LARGE,
            f"properties, tag and keys have {size} characters; at most {settings.max_properties_bytes} are allowed",
        )
    for name, value in user.items():
        if name in _RESERVED:
            raise Refused(Code.ILLEGAL_MESSAGE_PROPERTY_KEY, f"property name {name!r} is reserved")
        if not name or _has_control(name) or _has_control(value):
            raise Refused(Code.ILLEGAL_MESSAGE_PROPERTY_KEY, f"property {name!r} is empty or has control characters")


def _add_words(properties: dict[str, str], system: SystemProperties, settings: ProxySettings) -> None:
    if system.HasField("tag"):
        if not system.tag.strip() or "|" in system.tag or _has_control(system.tag):
            raise Refused(Code.ILLEGAL_MESSAGE_TAG, f"tag {system.tag!r} is empty, or has '|' or control characters")
        properties[names.TAGS] = system.tag
    if system.keys:
        if bad := [key for key in system.keys if not key.strip() or _has_control(key)]:
            raise Refused(Code.ILLEGAL_MESSAGE_KEY, f"key {bad[0]!r} is empty or has control characters")
        properties[names.KEYS] = names.KEY_SEPARATOR.join(system.keys)
    if not system.message_id.strip():
        raise Refused(Code.ILLEGAL_MESSAGE_ID, "the message has no id")
    properties[names.UNIQ_KEY] = system.message_id
    if system.HasField("message_group"):
        group = system.message_group
        if not group.strip() or len(group.encode()) > settings.max_group_bytes or _has_control(group):
            raise Refused(
                Code.ILLEGAL_MESSAGE_GROUP,
                f"message group {group[:80]!r} is empty, has control characters, or is longer than {settings.max_group_bytes} bytes",
            )
        properties[names.SHARDING_KEY] = group


def _recovery(system: SystemProperties, settings: ProxySettings) -> str:
    seconds = duration_ms(system.orphaned_transaction_recovery_duration) // 1000
    if not 0 <= seconds <= settings.max_recovery_s:
        raise Refused(
            Code.BAD_REQUEST, f"a recovery duration of {seconds} s is not from 0 to {settings.max_recovery_s}"
        )
    return str(seconds)


def _body(message: Message, settings: ProxySettings) -> bytes:
    body, limit = message.body, settings.max_body_bytes
    if message.system_properties.body_encoding == Encoding.GZIP:
        try:
            body = zlib.decompressobj(_GZIP_OR_ZLIB).decompress(body, limit + 1)
        except zlib.error as error:
            raise Refused(Code.MESSAGE_CORRUPTED, f"the body is not valid GZIP: {error}") from None
    if not body:
        raise Refused(Code.MESSAGE_BODY_EMPTY, "the message has no body")
    if len(body) > limit:
        raise Refused(Code.MESSAGE_BODY_TOO_LARGE, f"the body has more than {limit} bytes")
    return body


def _has_control(text: str) -> bool:
    return _CONTROL.search(text) is not None


def type_of(properties: dict[str, str]) -> MessageType:
    """The type of a message, by its properties."""
    if names.TRANSACTION_PREPARED in properties:
        return MessageType.TRANSACTION
    if any(name in properties for name in names.DELAYING_PROPERTIES):
        return MessageType.DELAY
    if names.SHARDING_KEY in properties:
        return MessageType.FIFO
    return MessageType.NORMAL


def accepts(wanted: str, topic: str, sent: MessageType) -> bool:
    """Whether a topic whose `message.type` is `wanted` accepts such messages. Retry and dead-letter topics accept all."""
    return wanted == "MIXED" or sent.name == wanted or is_group_topic(topic)


# receiving


class HandleText(NamedTuple):
    """A receipt handle of this protocol: that of the broker, and the log offset of the message, -1 if it is unknown."""

    handle: Handle
    log_offset: int

    @classmethod
    def parse(cls, text: str) -> "HandleText":
        """ImpossibleRequest if it is not a handle."""
        words = text.split(" ")
        has_offset = len(words) == 9 and words[8].isdecimal() and len(words[8]) <= 19
        return cls(Handle.parse(text), int(words[8]) if has_offset else -1)

    def text(self) -> str:
        return f"{self.handle.text()} {self.log_offset}" if self.log_offset >= 0 else self.handle.text()


def proto_of(message: StoredMessage, topic: str, *, handle: str = "", attempt: int = 0) -> Message:
    """A stored message for clients. `topic` is the one that they sent it to. UnreadableMessage if its body is damaged."""
    message = readable(message, None)
    properties = message.properties
    digest = hashlib.md5(message.body, usedforsecurity=False).hexdigest().upper()
    system = SystemProperties(
        tag=properties.get(names.TAGS),
        keys=message.keys,
        message_id=message.message_id,
        body_digest=Digest(type=DigestType.MD5, checksum=digest),
        body_encoding=Encoding.IDENTITY,
        message_type=type_of(properties),
        born_timestamp=timestamp_of(message.born_ms),
        born_host=properties.get(BORN_HOST) or str(message.born_host),
        store_timestamp=timestamp_of(message.store_ms),
        store_host=str(message.store_host),
        receipt_handle=handle or None,
        queue_id=message.queue_id,
        queue_offset=message.queue_offset,
        delivery_attempt=attempt or message.reconsume_times + 1,
        message_group=properties.get(names.SHARDING_KEY),
        trace_context=properties.get(TRACE_CONTEXT),
    )
    if (due := properties.get(names.TIMER_DELIVER_MS, "")).isdecimal():
        system.delivery_timestamp.CopyFrom(timestamp_of(int(due)))
    if (seconds := properties.get(names.CHECK_IMMUNITY_SECONDS, "")).isdecimal():
        system.orphaned_transaction_recovery_duration.CopyFrom(duration_of(int(seconds) * 1000))
    return Message(
        topic=Resource(name=topic),
        user_properties={name: value for name, value in properties.items() if name not in _RESERVED},
        system_properties=system,
        body=message.body,
    )

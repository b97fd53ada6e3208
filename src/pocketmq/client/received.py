"""Responses to pulls, and their messages: prepared for users, or copied for the retry topic.

    records of a response ─┬─ sound ─────────────────────────────────────► messages
                           ├─ inner batch, whose items fit its offsets ──► one message for each item
                           └─ unreadable ────────────────────────────────► one message, for which `readable` raises

For users, bodies are decompressed and topics have no namespace. An unreadable body affects only its own message: it keeps its offset, fails
when a listener is called, and becomes a dead letter in the end.

Failed messages that cannot be sent back are copied to %RETRY%group, with their number of attempts. A dead letter is a copy that may not be
retried; it may have a reason.
"""

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from pocketmq.codes import ResponseCode, SysFlag
from pocketmq.errors import ProtocolError, UnreadableMessage, error_for
from pocketmq.model import GroupName, MessageQueue, StoredMessage, TopicName
from pocketmq.model import properties as names
from pocketmq.model.names import retry_topic, unwrap
from pocketmq.model.properties import raw_property
from pocketmq.model.retries import FIRST_RETRY_LEVEL
from pocketmq.protocol.api.messages import PullReply
from pocketmq.protocol.batch import BatchItem, decode_batch
from pocketmq.protocol.command import Command
from pocketmq.protocol.compression import decompress
from pocketmq.protocol.pop import retried_topic
from pocketmq.protocol.record import (
    MAGIC_V1,
    MAGIC_V2,
    SMALLEST_RECORD,
    SYS_FLAG_AT,
    decode_record,
    decode_records,
    with_flag,
)

_COMPRESSION: Final = SysFlag.COMPRESSED | SysFlag.COMPRESSION_MASK
_PACKED: Final = SysFlag.INNER_BATCH | SysFlag.NEED_UNWRAP
_DAMAGED: Final = 1 << 30
"""A flag of this module, never of a broker: the checksum of the body is wrong."""
NOT_PLAIN: Final = SysFlag.COMPRESSED | SysFlag.INNER_BATCH | _DAMAGED
"""Messages without these flags need no preparation."""

DEAD_LETTER_REASON: Final = "DEAD_LETTER_REASON"
"""The property with the reason of a dead letter."""
MAX_REASON_CHARS: Final = 500
_RETRY_TOPIC: Final = names.RETRY_TOPIC.encode()

_DROPPED: Final = frozenset((*names.DELAYING_PROPERTIES, names.TRANSACTION_PREPARED))
"""Properties that a copy must not have: the broker would delay it again, or wait for a decision about a transaction."""
_FLAGS_OF_BODY: Final = SysFlag.COMPRESSED | SysFlag.COMPRESSION_MASK | SysFlag.MULTI_TAGS


_PULL_CODES: Final = frozenset(
    {
        ResponseCode.SUCCESS,
        ResponseCode.PULL_NOT_FOUND,
        ResponseCode.PULL_RETRY_IMMEDIATELY,
        ResponseCode.PULL_OFFSET_MOVED,
    }
)
"""Response codes of a pull that include a header; all others are failures."""


_first_record: Final = struct.Struct(">4xI12xq")


class Pulled(NamedTuple):
    """The response to a pull: its code is 0, 19, 20 or 21. `records` are not decoded."""

    code: int
    header: PullReply
    records: bytes
    version: int


def passes_over(code: int, records: bytes | memoryview, offset: int) -> bool:
    """Whether a pull without a filter returned messages after `offset` only. Retention causes this: log files are deleted a moment before
    the smallest offsets of their queues are updated.
    """
    if code == ResponseCode.PULL_RETRY_IMMEDIATELY:
        return True
    if len(records) < SMALLEST_RECORD:
        return False
    magic, first = _first_record.unpack_from(records)
    return magic in (MAGIC_V1, MAGIC_V2) and first > offset


def is_hole(code: int, next_offset: int, offset: int) -> bool:
    """Whether consume queue entries are missing at `offset` (OFFSET_FOUND_NULL): no filter finds messages there."""
    return code == ResponseCode.PULL_NOT_FOUND and next_offset > offset


def pulled_of(answer: Command) -> Pulled:
    """The decoded response to a pull; a failure raises its error."""
    if answer.code not in _PULL_CODES:
        raise error_for(answer.code, answer.remark)
    return Pulled(answer.code, PullReply.decode(answer.ext), answer.body, answer.version)


def received(records: bytes, queue: MessageQueue, next_offset: int) -> tuple[Sequence[StoredMessage], int]:
    """The messages of a response to a pull of `queue`, and the offset of the next pull.

    Raises ProtocolError if the end of the first record cannot be found. If it is that of a later one, the next pull starts with it.
    """
    try:
        messages = decode_records(records, queue=queue)
    except ProtocolError:
        messages, is_whole = _decodable_records(records, queue)
        if not is_whole:
            next_offset = messages[-1].queue_offset + 1
    return split_inner_batches(messages, next_offset), next_offset


def popped(records: bytes) -> list[StoredMessage]:
    """The messages of a response to a pop, of several queues. Raises ProtocolError as `received` does."""
    try:
        return decode_records(records)
    except ProtocolError:
        return _decodable_records(records, None)[0]


def _decodable_records(records: bytes, queue: MessageQueue | None) -> tuple[list[StoredMessage], bool]:
    """The messages up to the first malformed record, and whether these are all. Damaged bodies are marked."""
    messages: list[StoredMessage] = []
    at = 0
    while at < len(records):
        try:
            message = decode_record(records, at, check_crc=False, queue=queue)
        except ProtocolError:
            if not messages:
                raise
            return messages, False
        try:
            decode_record(records, at)
        except ProtocolError:
            message.sys_flag |= _DAMAGED
        messages.append(message)
        at += message.size
    return messages, True


def readable(message: StoredMessage, namespace: str | None) -> StoredMessage:
    """The message with a decompressed body and the user's topic. Raises UnreadableMessage."""
    if message.sys_flag & NOT_PLAIN:
        message = _plain(message)
    return with_shown_topic(message, namespace)


def with_shown_topic(message: StoredMessage, namespace: str | None) -> StoredMessage:
    """The message with the user's topic, without the namespace."""
    if namespace is None:
        return message
    queue = message.queue
    shown = MessageQueue(unwrap(namespace, queue.topic), queue.broker_name, queue.queue_id)
    return replace(message, topic=unwrap(namespace, message.topic), _queue=shown)


def _plain(message: StoredMessage) -> StoredMessage:
    if message.sys_flag & _DAMAGED:
        raise UnreadableMessage(f"message {message.message_id}: the checksum of its body is wrong")
    if message.sys_flag & _PACKED == _PACKED:  # `split_inner_batches` could not split it
        try:
            count = len(_items(message))
        except ProtocolError as error:
            raise UnreadableMessage(f"message {message.message_id} is not a valid inner batch: {error}") from None
        raise UnreadableMessage(
            f"message {message.message_id} is an inner batch of {count} messages, but the broker used its offsets for others"
        )
    if not message.sys_flag & SysFlag.COMPRESSED:
        return message
    try:
        body = decompress(message.body, message.sys_flag)
    except ProtocolError as error:
        raise UnreadableMessage(f"message {message.message_id}: {error}") from None
    return replace(message, body=body, sys_flag=message.sys_flag & ~_COMPRESSION)


def split_inner_batches(messages: Sequence[StoredMessage], next_offset: int) -> Sequence[StoredMessage]:
    """Replace the batches that topics of RocketMQ 5 may contain by their messages.

    A batch of n messages has n offsets. It stays one message if the broker used some of them for other messages.
    """
    flags = {message.sys_flag for message in messages}  # mostly all are 0
    if not any(flags) or not any(flag & _PACKED == _PACKED for flag in flags):
        return messages
    ends = [*(message.queue_offset for message in messages[1:]), next_offset]
    return [one for message, end in zip(messages, ends, strict=True) for one in _unpacked(message, end)]


def _unpacked(message: StoredMessage, end: int) -> list[StoredMessage]:
    items = inner_batch(message, end)
    if not items:
        return [message]
    return [
        replace(
            message,
            body=body,
            raw_properties=properties,
            head=with_flag(message.head, flag),
            sys_flag=message.sys_flag & ~(_PACKED | _COMPRESSION),
            queue_offset=message.queue_offset + at,
            _properties=None,
        )
        for at, (flag, body, properties) in enumerate(items)
    ]


def inner_batch(message: StoredMessage, end: int) -> list[BatchItem]:
    """The items of an inner batch whose offsets end before `end`; none for any other message."""
    if message.sys_flag & (_PACKED | _DAMAGED) != _PACKED:
        return []
    try:
        items = _items(message)
    except ProtocolError:
        return []
    return items if len(items) <= end - message.queue_offset else []


def _items(message: StoredMessage) -> list[BatchItem]:
    return decode_batch(decompress(message.body, message.sys_flag))


def is_of_inner_batch(message: StoredMessage) -> bool:
    """Whether the message was an item of a batch. Brokers know only the batch, so the item cannot be sent back by its log offset."""
    flags = int.from_bytes(message.head[SYS_FLAG_AT : SYS_FLAG_AT + 4], "big")
    return flags & _PACKED == _PACKED and message.sys_flag & _PACKED != _PACKED


def is_unreadable_as_stored(message: StoredMessage) -> bool:
    """Whether a copy would hide that the body is unreadable: it gets a new checksum, and no flag of an inner batch."""
    return bool(message.sys_flag & _DAMAGED) or message.sys_flag & _PACKED == _PACKED


class RetryMessage(msgspec.Struct, frozen=True):
    """A copy of a failed message. Both counts are fields of the send header, not properties."""

    topic: TopicName
    body: bytes
    flag: int
    sys_flag: int
    properties: dict[str, str]
    reconsume_times: int
    max_reconsume_times: int


def retry_message(message: StoredMessage, group: GroupName, max_times: int) -> RetryMessage:
    """A copy for another attempt, with the delay that the broker would choose. After the last attempt it becomes a dead letter."""
    delay = {names.DELAY: str(FIRST_RETRY_LEVEL + message.reconsume_times)}
    return _retry_message(message, group, delay, max_times)


def dead_letter(message: StoredMessage, group: GroupName, reason: str = "") -> RetryMessage:
    """A copy for the dead letters: its attempts are used up."""
    text = _as_property(reason)
    return _retry_message(message, group, {DEAD_LETTER_REASON: text} if text else {}, message.reconsume_times)


def _retry_message(message: StoredMessage, group: GroupName, added: dict[str, str], max_times: int) -> RetryMessage:
    kept = {name: value for name, value in message.properties.items() if name not in _DROPPED}
    kept.setdefault(names.ORIGIN_MESSAGE_ID, message.message_id)
    kept[names.RETRY_TOPIC] = original_topic(message)
    return RetryMessage(
        topic=retry_topic(group),
        body=message.body,
        flag=message.flag,
        sys_flag=message.sys_flag & _FLAGS_OF_BODY,
        properties=kept | added,
        reconsume_times=message.reconsume_times + 1,
        max_reconsume_times=max_times,
    )


def original_topic(message: StoredMessage) -> str:
    """The topic to which a retried message was sent first."""
    return message.properties.get(names.RETRY_TOPIC) or message.topic


def add_property(message: StoredMessage, name: str, value: str) -> None:
    """Add a property to a received message. It replaces one with the same name."""
    mark = b"" if not message.raw_properties or message.raw_properties.endswith(b"\x02") else b"\x02"
    message.raw_properties += mark + f"{name}\x01{value}\x02".encode()
    message._properties = None


def name_first_topic(message: StoredMessage, group: str) -> None:
    """Let a pulled retry of a popped message name the topic that it was sent to first. Brokers store it without that name,
    or with the name of its retry topic.
    """
    known = raw_property(message.raw_properties, _RETRY_TOPIC)
    stored_in = message.topic if known is None else known.decode("utf-8", "replace")
    first = retried_topic(group, stored_in)
    if first != stored_in:
        add_property(message, names.RETRY_TOPIC, first)


def _as_property(reason: str) -> str:
    """The reason as a property: without separators, and not too long."""
    clean = "".join(char if char.isprintable() else " " for char in reason)
    return " ".join(clean.split())[:MAX_REASON_CHARS]

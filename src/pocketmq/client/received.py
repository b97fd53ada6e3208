"""Messages as their receiver wants them: each alone, the body as it was before it was compressed, the topic without the namespace.

    records of an answer ─┬─ sound ──────────────────────────────────────────────► messages
                          ├─ inner batch, whose items fit its offsets ───────────► one message for each item
                          └─ anything else that cannot be read ──────────────────► one message, which `readable` rejects

A body that cannot be read costs its own message and no other. The message keeps the offset that the broker gave it, fails when a
listener is about to get it, and ends among the dead letters.
"""

from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from pocketmq.errors import ProtocolError, UnreadableMessage
from pocketmq.model import properties as names
from pocketmq.model.flags import SysFlag
from pocketmq.model.message import StoredMessage
from pocketmq.model.names import GroupName, TopicName, retry_topic, unwrap
from pocketmq.model.queue import MessageQueue
from pocketmq.model.retries import FIRST_RETRY_LEVEL
from pocketmq.protocol.batch import BatchItem, decode_batch
from pocketmq.protocol.compression import decompress
from pocketmq.protocol.record import SYS_FLAG_AT, decode_record, decode_records, with_flag

_COMPRESSION: Final = SysFlag.COMPRESSED | SysFlag.COMPRESSION_MASK
_PACKED: Final = SysFlag.INNER_BATCH | SysFlag.NEED_UNWRAP
_DAMAGED: Final = 1 << 30
"""A bit that this module sets, and no broker: the checksum of the body is wrong."""
NOT_PLAIN: Final = SysFlag.COMPRESSED | SysFlag.INNER_BATCH | _DAMAGED
"""A message without these bits can be given to a listener as it is."""

DEAD_LETTER_REASON: Final = "DEAD_LETTER_REASON"
"""Property of a dead letter that says why it is one."""
MAX_REASON_CHARS: Final = 500

_OVER: Final = frozenset((*names.DELAYING_PROPERTIES, names.TRANSACTION_PREPARED))
"""Properties of what lies behind the message; they would make the broker delay it once more, or wait for a decision."""
_FLAGS_OF_BODY: Final = SysFlag.COMPRESSED | SysFlag.COMPRESSION_MASK | SysFlag.MULTI_TAGS


def received(records: bytes, queue: MessageQueue, next_offset: int) -> tuple[Sequence[StoredMessage], int]:
    """The messages of an answer to a pull of `queue`, and where the next pull begins.

    ProtocolError when the first record cannot be told from the next one. When a later one cannot, the next pull begins with it.
    """
    try:
        messages = decode_records(records, queue=queue)
    except ProtocolError:
        messages, is_whole = _sound_records(records, queue)
        if not is_whole:
            next_offset = messages[-1].queue_offset + 1
    return one_by_one(messages, next_offset), next_offset


def _sound_records(records: bytes, queue: MessageQueue) -> tuple[list[StoredMessage], bool]:
    """The messages up to the first record whose parts do not add up, and whether these are all. Wrong checksums are marked."""
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
    """`message` itself when nothing is to be done; UnreadableMessage when its body cannot be read."""
    if message.sys_flag & NOT_PLAIN:
        message = _plain(message)
    return with_shown_topic(message, namespace)


def with_shown_topic(message: StoredMessage, namespace: str | None) -> StoredMessage:
    """`message` with its topic as users of the namespace call it; its body is as it was."""
    if namespace is None:
        return message
    queue = message.queue
    shown = MessageQueue(unwrap(namespace, queue.topic), queue.broker_name, queue.queue_id)
    return replace(message, topic=unwrap(namespace, message.topic), _queue=shown)


def _plain(message: StoredMessage) -> StoredMessage:
    if message.sys_flag & _DAMAGED:
        raise UnreadableMessage(f"message {message.message_id}: the checksum of its body is wrong")
    if message.sys_flag & _PACKED == _PACKED:  # else `one_by_one` would have taken it apart
        try:
            count = len(_items(message))
        except ProtocolError as error:
            raise UnreadableMessage(f"message {message.message_id} is no inner batch: {error}") from None
        raise UnreadableMessage(
            f"message {message.message_id} is an inner batch of {count} messages, but the broker gave its offsets to others"
        )
    if not message.sys_flag & SysFlag.COMPRESSED:
        return message
    try:
        body = decompress(message.body, message.sys_flag)
    except ProtocolError as error:
        raise UnreadableMessage(f"message {message.message_id}: {error}") from None
    return replace(message, body=body, sys_flag=message.sys_flag & ~_COMPRESSION)


def one_by_one(messages: Sequence[StoredMessage], next_offset: int) -> Sequence[StoredMessage]:
    """The same messages; those that lie in the queue as one batch, as topics of RocketMQ 5 may keep them, each by itself.

    A batch of n items has n offsets. One that has fewer, because the broker stored another message there, stays one message.
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
    """Whether it was one item of a batch. Brokers know the batch only, so the item cannot be sent back by its place in the log."""
    flags = int.from_bytes(message.head[SYS_FLAG_AT : SYS_FLAG_AT + 4], "big")
    return flags & _PACKED == _PACKED and message.sys_flag & _PACKED != _PACKED


def is_unreadable_as_stored(message: StoredMessage) -> bool:
    """Whether a copy of its body would pass for a sound one: a copy has no checksum of the original, and is no inner batch."""
    return bool(message.sys_flag & _DAMAGED) or message.sys_flag & _PACKED == _PACKED


class RetryMessage(msgspec.Struct, frozen=True):
    """A failed message as a plain one. Both counts go into the header of the send, not among the properties."""

    topic: TopicName
    body: bytes
    flag: int
    sys_flag: int
    properties: dict[str, str]
    reconsume_times: int
    max_reconsume_times: int


def retry_message(message: StoredMessage, group: GroupName, max_times: int) -> RetryMessage:
    """For another attempt, after the delay that the broker itself would have chosen. It becomes a dead letter after the last."""
    delay = {names.DELAY: str(FIRST_RETRY_LEVEL + message.reconsume_times)}
    return _retry_message(message, group, delay, max_times)


def dead_letter(message: StoredMessage, group: GroupName, reason: str = "") -> RetryMessage:
    """For the dead letters, at once: it says that it may not be tried more often than it was."""
    words = _one_line(reason)
    return _retry_message(message, group, {DEAD_LETTER_REASON: words} if words else {}, message.reconsume_times)


def _retry_message(message: StoredMessage, group: GroupName, added: dict[str, str], max_times: int) -> RetryMessage:
    kept = {name: value for name, value in message.properties.items() if name not in _OVER}
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
    """The topic that its producer sent it to, which is what a listener sees of a retried message."""
    return message.properties.get(names.RETRY_TOPIC) or message.topic


def _one_line(reason: str) -> str:
    """`reason` as a property can hold it: no separators, not too long."""
    clean = "".join(char if char.isprintable() else " " for char in reason)
    return " ".join(clean.split())[:MAX_REASON_CHARS]

"""Everything in some queues of a store, and what differs between two such looks."""

import zlib
from collections.abc import Collection, Iterator

from conformance.broker_line import BrokerLine
from conformance.store.drafts import Draft
from pocketmq.model.message import StoredMessage

QueueKey = tuple[str, int]
"""Topic and queue id."""
Snapshot = dict[QueueKey, list[StoredMessage]]
"""Each queue's messages in order."""

_FIELDS = (
    *("topic", "queue_id", "queue_offset", "log_offset", "body", "raw_properties", "flag", "sys_flag", "born_ms"),
    *("packed_born_host", "store_ms", "packed_store_host", "reconsume_times", "prepared_offset", "body_crc", "size"),
)


def stored(draft: Draft, queue_offset: int, log_offset: int, store_ms: int, store_host: bytes) -> StoredMessage:
    """How a message must read once it is stored. Its head is made here, by the description of the format."""
    topic, properties = draft.topic.encode(), draft.raw_properties
    topic_length = 1 if len(topic) <= 127 else 2
    hosts = len(draft.born_host) + len(store_host)
    flags = (0x10 if len(draft.born_host) == 20 else 0) | (0x20 if len(store_host) == 20 else 0)
    fixed = 4 + 4 + 4 + 4 + 4 + 8 + 8 + 4 + 8 + 8 + 4 + 8 + 4 + 2
    size = fixed + hosts + topic_length + len(topic) + len(draft.body) + len(properties)
    sys_flag = draft.sys_flag | flags
    head = [
        size.to_bytes(4),
        (0xDAA320A7 if topic_length == 1 else 0xDAA320AB).to_bytes(4),
        (zlib.crc32(draft.body) & 0x7FFFFFFF).to_bytes(4),
        draft.queue_id.to_bytes(4),
        draft.flag.to_bytes(4, signed=True),
        queue_offset.to_bytes(8),
        log_offset.to_bytes(8),
        sys_flag.to_bytes(4),
        draft.born_ms.to_bytes(8),
        draft.born_host,
        store_ms.to_bytes(8),
        store_host,
        draft.reconsume_times.to_bytes(4),
        draft.prepared_offset.to_bytes(8),
        len(draft.body).to_bytes(4),
    ]
    return StoredMessage(
        draft.topic, draft.queue_id, queue_offset, sys_flag, draft.body, properties, b"".join(head), size
    )


def read_from(line: BrokerLine, queues: Collection[QueueKey]) -> Snapshot:
    """What a broker serves."""
    return {key: line.read_queue(*key) for key in queues}


def differences(expected: Snapshot, found: Snapshot, growing: Collection[str] = ()) -> Iterator[str]:
    """What is not as expected, in sentences. Topics in `growing` may have more messages behind the expected ones."""
    for (topic, queue_id), messages in expected.items():
        others = found.get((topic, queue_id), [])
        name = f"{topic}:{queue_id}"
        if len(others) < len(messages) or (len(others) > len(messages) and topic not in growing):
            yield f"{name} has {len(others)} messages instead of {len(messages)}"
        for message, other in zip(messages, others, strict=False):
            yield from unlike(message, other)


def unlike(expected: StoredMessage, found: StoredMessage) -> Iterator[str]:
    """The fields in which one message differs from what it should be."""
    if expected == found:
        return
    where = f"{expected.topic}:{expected.queue_id} offset {expected.queue_offset}"
    for name in _FIELDS:
        one, other = getattr(expected, name), getattr(found, name)
        if one != other:
            yield f"{where}: {name} is {_short(other)} instead of {_short(one)}"


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) < 80 else f"{text[:70]}… ({len(text)} characters)"

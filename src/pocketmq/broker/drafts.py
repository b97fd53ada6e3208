"""Drafts: messages that the broker itself is about to store, and the places they got.

The send handler stages what clients send straight from their bytes. Whatever the broker rewrites on the way (delays, half
messages, retries, dead letters, what comes due) is a draft: its properties are a mapping, to be changed at will.
"""

import msgspec

from pocketmq.model.message import StoredMessage
from pocketmq.model.message_id import offset_id
from pocketmq.model.properties import format_properties


class Draft(msgspec.Struct, kw_only=True):
    """A message before it is stored. `born_host` is packed, as records keep it."""

    topic: str
    queue_id: int
    body: bytes
    properties: dict[str, str]
    born_ms: int
    born_host: bytes
    flag: int = 0
    sys_flag: int = 0
    reconsume_times: int = 0
    prepared_offset: int = 0
    stored_before: bool = False
    """Whether it is the copy of a message that the store has taken: it is not measured again."""

    @classmethod
    def of(cls, message: StoredMessage) -> "Draft":
        """A copy of a stored message, to be changed and stored again."""
        return cls(
            topic=message.topic,
            queue_id=message.queue_id,
            body=message.body,
            properties=dict(message.properties),
            born_ms=message.born_ms,
            born_host=message.packed_born_host,
            flag=message.flag,
            sys_flag=message.sys_flag,
            reconsume_times=message.reconsume_times,
            prepared_offset=message.prepared_offset,
            stored_before=True,
        )

    def packed_properties(self) -> bytes:
        return format_properties(self.properties).encode()


class Place(msgspec.Struct, frozen=True):
    """Where a message was stored. `queue_id` and `queue_offset` are of the queue that it lies in now."""

    queue_id: int
    queue_offset: int
    log_offset: int

    def message_id(self, store_host: bytes) -> str:
        return offset_id(store_host, self.log_offset)

"""How far a group is: the two requests about it that every consumer sends all the time."""

from typing import Final

from pocketmq.broker.groups import GroupTable
from pocketmq.broker.members import Members
from pocketmq.broker.offsets import OffsetTable, QueueFacts, refuse_own_group
from pocketmq.broker.topics import TopicTable
from pocketmq.clock import Clock
from pocketmq.errors import GroupNotFound, InvalidParameter, NotFound, TopicNotFound
from pocketmq.net.peer import Peer
from pocketmq.protocol.heads import QueryOffsetHead, UpdateOffsetHead
from pocketmq.protocol.replies import OFFSET_UPDATED, offset_reply
from pocketmq.store.message_store import MessageStore

_UNKNOWN: Final = "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first"
_UNKNOWN_NOT_ZERO: Final = "Not found, do not set to zero, maybe this group boot first"
"""RocketMQ's words for a group that is new to a queue, and for one that does not want to begin at 0 then."""


RETURN_S: Final = 120.0
"""After a start, members that went on running have sent a heartbeat by then; before, they may be offsets of theirs that come first."""


class Consuming:
    """Queries and commits of offsets, for `turns`."""

    def __init__(
        self,
        store: MessageStore,
        topics: TopicTable,
        groups: GroupTable,
        offsets: OffsetTable,
        members: Members,
        clock: Clock,
    ) -> None:
        self._members = members
        self._clock = clock
        self._members_are_back = clock.monotonic() + RETURN_S
        self._store = store
        self._topics = topics
        self._groups = groups
        self._offsets = offsets

    def query(self, peer: Peer, head: QueryOffsetHead, body: bytes) -> bytes:
        """Where a member of a group begins."""
        ext = head.ext
        zero_if_new = ext.set_zero_if_not_found is not False
        facts = self._facts(ext.topic, ext.queue_id)
        offset = self._offsets.query(ext.consumer_group, ext.topic, ext.queue_id, facts, zero_if_new=zero_if_new)
        if offset is None:
            raise NotFound(_UNKNOWN if zero_if_new else _UNKNOWN_NOT_ZERO)
        return offset_reply(head.opaque, offset)

    def _facts(self, topic: str, queue_id: int) -> QueueFacts | None:
        """What the store knows of a queue; None when the topic has no such queue."""
        row = self._topics.get(topic)
        if row is None or not 0 <= queue_id < max(row.read_queue_nums, row.write_queue_nums):
            return None
        low, high = self._store.min_offset(topic, queue_id), self._store.max_offset(topic, queue_id)
        return QueueFacts(low, high, not low and high > 0 and self._store.is_in_memory(topic, queue_id, 0))

    def update(self, peer: Peer, head: UpdateOffsetHead, body: bytes) -> bytes:
        """A member says how far it is."""
        ext = head.ext
        refuse_own_group(ext.consumer_group)
        if ext.consumer_group not in self._groups:
            raise GroupNotFound(f"group {ext.consumer_group} does not exist on this broker")
        if ext.topic not in self._topics:
            raise TopicNotFound(f"topic {ext.topic} does not exist on this broker")
        if ext.queue_id < 0 or ext.commit_offset < 0:
            raise InvalidParameter(f"queue {ext.queue_id} and offset {ext.commit_offset} must not be negative")
        if not self._members.group(ext.consumer_group) and self._clock.monotonic() > self._members_are_back:
            # The group has no consumer: it is a program that keeps its progress here, or an administrator.
            self._offsets.hear(ext.consumer_group, ext.topic, ext.queue_id)
        end = self._store.max_offset(ext.topic, ext.queue_id)
        self._offsets.commit(ext.consumer_group, ext.topic, ext.queue_id, ext.commit_offset, end)
        return OFFSET_UPDATED.encode(head.opaque)

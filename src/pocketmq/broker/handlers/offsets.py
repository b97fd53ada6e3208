"""Offsets of queues and groups.

`Consuming` serves the two frequent requests of members, `OffsetHandlers` occasional queries of queues and tables.
"""

from collections.abc import Callable
from typing import Final

import msgspec

from pocketmq.broker.groups.offsets import QueueFacts, reject_broker_group
from pocketmq.broker.state import BrokerState
from pocketmq.codes import BoundaryType, RequestCode
from pocketmq.errors import (
    GroupNotFound,
    ImpossibleRequest,
    InvalidParameter,
    NotFound,
    TopicNotFound,
)
from pocketmq.net import Handler, Peer, PlainRequest, Reply, Request
from pocketmq.protocol.api.messages import (
    ForQueue,
    GetMaxOffset,
    OffsetReply,
    SearchOffset,
    StoreTimeReply,
)
from pocketmq.protocol.hot_headers import OFFSET_UPDATED, QueryOffsetHead, UpdateOffsetHead, offset_reply
from pocketmq.store.settings import MIB

MAX_TABLE_BYTES = 15 * MIB
"""Limit on a table: it must fit into one frame."""


class OffsetHandlers:
    """Queries of queues and of all offsets. A queue that does not exist is empty, as in RocketMQ.

    `delay_offsets` returns the offsets of delayed messages as JSON.
    """

    def __init__(self, state: BrokerState, delay_offsets: Callable[[], bytes]) -> None:
        self._state = state
        self._delay_offsets = delay_offsets

    def table(self) -> dict[RequestCode, Handler]:
        return {
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: self.at_time,
            RequestCode.GET_MAX_OFFSET: self.max_offset,
            RequestCode.GET_MIN_OFFSET: self.min_offset,
            RequestCode.GET_EARLIEST_MSG_STORETIME: self.earliest,
            RequestCode.GET_ALL_CONSUMER_OFFSET: self.all_consumed,
            RequestCode.GET_ALL_DELAY_OFFSET: self.all_delayed,
        }

    def at_time(self, request: Request[SearchOffset]) -> Reply:
        header = request.header
        boundary = header.boundary_type or BoundaryType.LOWER
        return Reply(
            OffsetReply(self._state.store.offset_at_time(header.topic, header.queue_id, header.timestamp, boundary))
        )

    def max_offset(self, request: Request[GetMaxOffset]) -> Reply:
        return Reply(OffsetReply(self._state.store.max_offset(request.header.topic, request.header.queue_id)))

    def min_offset(self, request: Request[ForQueue]) -> Reply:
        return Reply(OffsetReply(self._state.store.min_offset(request.header.topic, request.header.queue_id)))

    def earliest(self, request: Request[ForQueue]) -> Reply:
        topic, queue_id = request.header.topic, request.header.queue_id
        found = self._state.store.store_ms(topic, queue_id, self._state.store.min_offset(topic, queue_id))
        return Reply(StoreTimeReply(-1 if found is None else found))

    def all_consumed(self, request: PlainRequest) -> Reply:
        # Strict JSON, as in the file: Java reads it, and a large table is encoded many times as fast.
        body = msgspec.json.encode(self._state.offsets.snapshot())
        if len(body) > MAX_TABLE_BYTES:
            raise ImpossibleRequest(
                f"the table of all offsets has {len(body)} bytes; the limit of an answer is {MAX_TABLE_BYTES}; "
                "query group by group"
            )
        return Reply(body=body)

    def all_delayed(self, request: PlainRequest) -> Reply:
        return Reply(body=self._delay_offsets())


_UNKNOWN: Final = "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first"
_UNKNOWN_NOT_ZERO: Final = "Not found, do not set to zero, maybe this group boot first"
"""RocketMQ's words for a group that is new to a queue, without and with the option not to begin at 0."""


RETURN_S: Final = 120.0
"""By this time after a start, running members have sent a heartbeat. Their offsets may arrive before it."""


class Consuming:
    """Queries and commits of offsets, for `turns`."""

    def __init__(self, state: BrokerState) -> None:
        self._state = state
        self._members_are_back = state.clock.monotonic() + RETURN_S

    def query(self, peer: Peer, head: QueryOffsetHead, body: bytes) -> bytes:
        """The offset where a member of a group begins."""
        ext = head.ext
        zero_if_new = ext.set_zero_if_not_found is not False
        facts = self._facts(ext.topic, ext.queue_id)
        offset = self._state.offsets.query(ext.consumer_group, ext.topic, ext.queue_id, facts, zero_if_new=zero_if_new)
        if offset is None:
            if facts is not None and ext.consumer_group in self._state.groups:
                self._state.offsets.confirm_log(ext.consumer_group, ext.topic, ext.queue_id)
            raise NotFound(_UNKNOWN if zero_if_new else _UNKNOWN_NOT_ZERO)
        return offset_reply(head.opaque, offset)

    def _facts(self, topic: str, queue_id: int) -> QueueFacts | None:
        """What the store knows of a queue; None if the topic has no such queue."""
        row = self._state.topics.get(topic)
        if row is None or not 0 <= queue_id < max(row.read_queue_nums, row.write_queue_nums):
            return None
        low, high = self._state.store.min_offset(topic, queue_id), self._state.store.max_offset(topic, queue_id)
        return QueueFacts(low, high, not low and high > 0 and self._state.store.is_in_memory(topic, queue_id, 0))

    def update(self, peer: Peer, head: UpdateOffsetHead, body: bytes) -> bytes:
        ext = head.ext
        reject_broker_group(ext.consumer_group)
        if ext.consumer_group not in self._state.groups:
            raise GroupNotFound(f"group {ext.consumer_group} does not exist on this broker")
        if ext.topic not in self._state.topics:
            raise TopicNotFound(f"topic {ext.topic} does not exist on this broker")
        if ext.queue_id < 0 or ext.commit_offset < 0:
            raise InvalidParameter(f"queue {ext.queue_id} and offset {ext.commit_offset} must not be negative")
        if not self._state.members.group(ext.consumer_group) and self._state.clock.monotonic() > self._members_are_back:
            # The group has no consumer: the caller is a program that stores its offsets here, or an administrator.
            self._state.offsets.confirm_log(ext.consumer_group, ext.topic, ext.queue_id)
        end = self._state.store.max_offset(ext.topic, ext.queue_id)
        self._state.offsets.commit(ext.consumer_group, ext.topic, ext.queue_id, ext.commit_offset, end)
        return OFFSET_UPDATED.encode(head.opaque)

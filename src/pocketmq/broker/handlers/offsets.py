"""Offsets that are asked for now and then: where queues begin and end, where a time lies in them, and what all groups consumed.

What members of a group ask and tell all the time, their own offsets, is in `consuming`.
"""

from collections.abc import Callable

import msgspec

from pocketmq.broker.offsets import OffsetTable
from pocketmq.codes import BoundaryType, RequestCode
from pocketmq.errors import ImpossibleRequest
from pocketmq.net.request import Handler, Reply, Request
from pocketmq.protocol.api.offsets import (
    GetEarliestStoreTime,
    GetMaxOffset,
    GetMinOffset,
    OffsetReply,
    SearchOffset,
    StoreTimeReply,
)
from pocketmq.protocol.fields import NoFields
from pocketmq.store.message_store import MessageStore
from pocketmq.store.settings import MIB

MAX_TABLE_BYTES = 15 * MIB
"""A table that does not fit into one frame cannot be told."""


class OffsetHandlers:
    """Requests about queues and all offsets. A queue that is not there is empty: RocketMQ makes no difference either.

    `delay_offsets` is how far delayed messages are delivered, as JSON.
    """

    def __init__(self, store: MessageStore, offsets: OffsetTable, delay_offsets: Callable[[], bytes]) -> None:
        self._store = store
        self._offsets = offsets
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
        return Reply(OffsetReply(self._store.offset_at_time(header.topic, header.queue_id, header.timestamp, boundary)))

    def max_offset(self, request: Request[GetMaxOffset]) -> Reply:
        return Reply(OffsetReply(self._store.max_offset(request.header.topic, request.header.queue_id)))

    def min_offset(self, request: Request[GetMinOffset]) -> Reply:
        return Reply(OffsetReply(self._store.min_offset(request.header.topic, request.header.queue_id)))

    def earliest(self, request: Request[GetEarliestStoreTime]) -> Reply:
        topic, queue_id = request.header.topic, request.header.queue_id
        found = self._store.store_ms(topic, queue_id, self._store.min_offset(topic, queue_id))
        return Reply(StoreTimeReply(-1 if found is None else found))

    def all_consumed(self, request: Request[NoFields]) -> Reply:
        # Strict JSON, as in the file: Java reads it, and a large table is written many times as fast.
        body = msgspec.json.encode(self._offsets.snapshot())
        if len(body) > MAX_TABLE_BYTES:
            raise ImpossibleRequest(
                f"the table of all offsets has {len(body)} bytes, and an answer holds at most {MAX_TABLE_BYTES}; "
                "ask group by group"
            )
        return Reply(body=body)

    def all_delayed(self, request: Request[NoFields]) -> Reply:
        return Reply(body=self._delay_offsets())

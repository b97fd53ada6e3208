"""Offsets: the ends of a queue, the committed offset of a group, and resets."""

from pocketmq.codes import BoundaryType, RequestCode
from pocketmq.protocol.api.row import Api, Server
from pocketmq.protocol.fields import Fields, Int32, Int64


class OffsetReply(Fields):
    offset: Int64


class QueryConsumerOffset(Fields):
    consumer_group: str
    topic: str
    queue_id: Int32
    set_zero_if_not_found: bool | None = None


class UpdateConsumerOffset(Fields):
    consumer_group: str
    topic: str
    queue_id: Int32
    commit_offset: Int64


class GetMaxOffset(Fields):
    topic: str
    queue_id: Int32
    committed: bool | None = None


class GetMinOffset(Fields):
    topic: str
    queue_id: Int32


class SearchOffset(Fields):
    topic: str
    queue_id: Int32
    timestamp: Int64
    boundary_type: BoundaryType | None = None


class GetEarliestStoreTime(Fields):
    topic: str
    queue_id: Int32


class StoreTimeReply(Fields):
    """-1 if the queue is empty."""

    timestamp: Int64


class ResetOffset(Fields):
    """Reset a group: to `offset` in one queue, or to `timestamp` in all queues (-1: to the end)."""

    group: str
    topic: str
    timestamp: Int64
    is_force: bool
    queue_id: Int32 | None = None
    offset: Int64 | None = None


class GetConsumerStatus(Fields):
    topic: str
    group: str
    client_addr: str | None = None


class QueryCorrectionOffset(Fields):
    """`filter_groups` is joined by commas."""

    topic: str
    compare_group: str
    filter_groups: str | None = None


class CloneGroupOffset(Fields):
    src_group: str
    dest_group: str
    topic: str | None = None
    offline: bool | None = None


class QueryConsumeTimeSpan(Fields):
    topic: str
    group: str


ROWS = (
    Api(RequestCode.QUERY_CONSUMER_OFFSET, QueryConsumerOffset, OffsetReply),
    Api(RequestCode.UPDATE_CONSUMER_OFFSET, UpdateConsumerOffset),
    Api(RequestCode.GET_MAX_OFFSET, GetMaxOffset, OffsetReply),
    Api(RequestCode.GET_MIN_OFFSET, GetMinOffset, OffsetReply),
    Api(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, SearchOffset, OffsetReply),
    Api(RequestCode.GET_EARLIEST_MSG_STORETIME, GetEarliestStoreTime, StoreTimeReply),
    Api(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, ResetOffset),
    Api(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, ResetOffset, served_by=Server.CLIENT, oneway=True),
    Api(RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, GetConsumerStatus),
    Api(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, GetConsumerStatus, served_by=Server.CLIENT),
    Api(RequestCode.QUERY_CORRECTION_OFFSET, QueryCorrectionOffset),
    Api(RequestCode.CLONE_GROUP_OFFSET, CloneGroupOffset),
    Api(RequestCode.QUERY_CONSUME_TIME_SPAN, QueryConsumeTimeSpan),
    Api(RequestCode.GET_ALL_CONSUMER_OFFSET),
    Api(RequestCode.GET_ALL_DELAY_OFFSET),
)

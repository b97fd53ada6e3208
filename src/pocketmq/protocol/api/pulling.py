"""Reading messages: by queue and offset, by key, by id."""

from msgspec import field

from pocketmq.codes import RequestCode
from pocketmq.protocol.api.row import Api
from pocketmq.protocol.fields import Fields, Int32, Int64


class PullMessage(Fields):
    """`sys_flag` has bits of `PullFlag`; `commit_offset` and `subscription` only count with their bits."""

    consumer_group: str
    topic: str
    queue_id: Int32
    queue_offset: Int64
    max_msg_nums: Int32
    sys_flag: Int32
    commit_offset: Int64
    suspend_timeout_millis: Int64
    sub_version: Int64
    subscription: str | None = None
    expression_type: str | None = None
    max_msg_bytes: Int32 | None = None
    request_source: Int32 | None = None
    proxy_forward_client_id: str | None = field(default=None, name="proxyFrowardClientId")


class PullReply(Fields):
    """Java needs the first four in every response with code 0, 19, 20 or 21."""

    suggest_which_broker_id: Int64
    next_begin_offset: Int64
    min_offset: Int64
    max_offset: Int64
    offset_delta: Int64 | None = None
    topic_sys_flag: Int32 | None = None
    group_sys_flag: Int32 | None = None
    forbidden_type: Int32 | None = None


class QueryMessage(Fields):
    """Messages of a topic with this key, or with this unique key, stored between the two times."""

    topic: str
    key: str
    max_num: Int32
    begin_timestamp: Int64
    end_timestamp: Int64
    unique_key: bool | None = field(default=None, name="_UNIQUE_KEY_QUERY")


class QueryMessageReply(Fields):
    index_last_update_timestamp: Int64
    index_last_update_phyoffset: Int64


class ViewMessage(Fields):
    """`offset` is in the commit log."""

    offset: Int64
    topic: str | None = None


class QueryConsumeQueue(Fields):
    topic: str | None = None
    queue_id: Int32 | None = None
    index: Int64 | None = None
    count: Int32 | None = None
    consumer_group: str | None = None


ROWS = (
    Api(RequestCode.PULL_MESSAGE, PullMessage, PullReply),
    Api(RequestCode.LITE_PULL_MESSAGE, PullMessage, PullReply),
    Api(RequestCode.QUERY_MESSAGE, QueryMessage, QueryMessageReply),
    Api(RequestCode.VIEW_MESSAGE_BY_ID, ViewMessage),
    Api(RequestCode.QUERY_CONSUME_QUEUE, QueryConsumeQueue),
)

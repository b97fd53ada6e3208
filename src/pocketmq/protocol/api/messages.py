"""Headers of programs that send and receive messages: sends, transactions, pulls, offsets, and notifications between
clients and brokers.

Java marks as mandatory what has no default here. The header of a response is that of a success; a failure may have
none.
"""

from msgspec import field

from pocketmq.codes import BoundaryType
from pocketmq.protocol.fields import Fields, Int32, Int64


class ForConsumerGroup(Fields):
    consumer_group: str


class ForQueue(Fields):
    topic: str
    queue_id: Int32


# Sends, batches, replies, send-backs, recalls, and transactions. Code 10 has long field names, 310 and similar codes have letters. Both
# decode to a header with the same attributes, so one handler serves both.


class _Sent(Fields):
    """`default_topic` is the template for an unknown topic, with `default_topic_queue_nums` queues."""

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: Int32
    queue_id: Int32
    sys_flag: Int32
    born_timestamp: Int64
    flag: Int32


class SendMessage(_Sent):
    properties: str | None = None
    reconsume_times: Int32 | None = None
    unit_mode: bool | None = None
    max_reconsume_times: Int32 | None = None
    batch: bool | None = None
    broker_name: str | None = field(default=None, name="bname")


class SendMessageV2(SendMessage):
    """The same header with letters as field names, as Java clients send it."""

    producer_group: str = field(name="a")
    topic: str = field(name="b")
    default_topic: str = field(name="c")
    default_topic_queue_nums: Int32 = field(name="d")
    queue_id: Int32 = field(name="e")
    sys_flag: Int32 = field(name="f")
    born_timestamp: Int64 = field(name="g")
    flag: Int32 = field(name="h")
    properties: str | None = field(default=None, name="i")
    reconsume_times: Int32 | None = field(default=None, name="j")
    unit_mode: bool | None = field(default=None, name="k")
    max_reconsume_times: Int32 | None = field(default=None, name="l")
    batch: bool | None = field(default=None, name="m")
    broker_name: str | None = field(default=None, name="n")


class SendReply(Fields):
    """`msg_id` is the offset message id; for a batch, one per message, separated by commas. `transaction_id` is the unique key."""

    msg_id: str
    queue_id: Int32
    queue_offset: Int64
    transaction_id: str | None = None
    batch_uniq_id: str | None = None
    recall_handle: str | None = None
    region: str | None = field(default=None, name="MSG_REGION")
    trace_on: bool | None = field(default=None, name="TRACE_ON")


class PushReplyMessage(_Sent):
    """A reply, forwarded to the client that sent the request. Hosts are `ip:port`."""

    born_host: str
    store_host: str
    store_timestamp: Int64
    properties: str | None = None
    reconsume_times: Int32 | None = None
    unit_mode: bool | None = None


class SendMessageBack(Fields):
    """A consumer failed on the message at this log `offset`. `delay_level` 0: the broker chooses; -1: dead letter."""

    offset: Int64
    group: str
    delay_level: Int32
    origin_msg_id: str | None = None
    origin_topic: str | None = None
    unit_mode: bool | None = None
    max_reconsume_times: Int32 | None = None


class RecallMessage(Fields):
    topic: str
    recall_handle: str
    producer_group: str | None = None


class RecallReply(Fields):
    msg_id: str
    region: str | None = field(default=None, name="MSG_REGION")


class EndTransaction(Fields):
    """`commit_or_rollback` is a `TransactionState`; both offsets are those of the half message."""

    producer_group: str
    tran_state_table_offset: Int64
    commit_log_offset: Int64
    commit_or_rollback: Int32
    msg_id: str
    topic: str | None = None
    from_transaction_check: bool | None = None
    transaction_id: str | None = None


class CheckTransactionState(Fields):
    """`topic` is that of the half messages; the original topic is in the body."""

    tran_state_table_offset: Int64
    commit_log_offset: Int64
    topic: str | None = None
    msg_id: str | None = None
    transaction_id: str | None = None
    offset_msg_id: str | None = None


class ResumeCheckHalfMessage(Fields):
    topic: str | None = None
    msg_id: str | None = None


# Reading messages: by queue and offset, by key, by id.


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


# Offsets: the ends of a queue, the committed offset of a group, and resets.


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


class GetMaxOffset(ForQueue):
    committed: bool | None = None


class SearchOffset(ForQueue):
    timestamp: Int64
    boundary_type: BoundaryType | None = None


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


# Clients: heartbeats, connected clients, and requests that a broker sends to a client.


class HeartbeatReply(Fields):
    """RocketMQ 4 sends neither field. `sub_change` asks a client with heartbeats of version 2 to send all again."""

    support_heartbeat_v2: bool | None = field(default=None, name="IS_SUPPORT_HEART_BEAT_V2")
    sub_change: bool | None = field(default=None, name="IS_SUB_CHANGE")


class UnregisterClient(Fields):
    client_id: str = field(name="clientID")
    producer_group: str | None = None
    consumer_group: str | None = None


class GetConsumerRunningInfo(Fields):
    consumer_group: str
    client_id: str
    jstack_enable: bool | None = None


class ConsumeMessageDirectly(Fields):
    consumer_group: str
    client_id: str | None = None
    msg_id: str | None = None
    broker_name: str | None = None
    topic: str | None = None
    topic_sys_flag: Int32 | None = None
    group_sys_flag: Int32 | None = None


# POP: leases of messages, their receipt handles, and waiting for messages. `protocol.pop` has the texts in these fields.


class PopMessage(Fields):
    """Queue -1 means all queues. `init_mode`: where a group without an offset begins, 0 at the first message, 1 at the last."""

    consumer_group: str
    topic: str
    queue_id: Int32
    max_msg_nums: Int32
    invisible_time: Int64
    poll_time: Int64
    init_mode: Int32
    born_time: Int64 = 0
    exp_type: str | None = None
    exp: str | None = None
    order: bool | None = None
    attempt_id: str | None = None


class PopReply(Fields):
    """Java needs the first four in every response, also in 209 and 210."""

    pop_time: Int64
    invisible_time: Int64
    revive_qid: Int32
    rest_num: Int64
    start_offset_info: str | None = None
    msg_offset_info: str | None = None
    order_count_info: str | None = None


class AckMessage(Fields):
    """`topic` is the one that the message is in: for another attempt, a retry topic. `extra_info` is the receipt handle."""

    consumer_group: str
    topic: str
    queue_id: Int32
    extra_info: str
    offset: Int64
    lite_topic: str | None = None


class ChangeInvisibleTime(Fields):
    consumer_group: str
    topic: str
    queue_id: Int32
    extra_info: str
    offset: Int64
    invisible_time: Int64
    lite_topic: str | None = None
    suspend: bool | None = None


class ChangeInvisibleTimeReply(Fields):
    """Java needs all of them, also in failures."""

    pop_time: Int64
    invisible_time: Int64
    revive_qid: Int32


class PeekMessage(Fields):
    topic: str
    queue_id: Int32
    max_msg_nums: Int32
    consumer_group: str


class Notification(Fields):
    """Asks whether there are messages, and waits for them."""

    consumer_group: str
    topic: str
    queue_id: Int32
    poll_time: Int64
    born_time: Int64
    order: bool | None = None
    attempt_id: str | None = None
    exp_type: str | None = None
    exp: str | None = None


class NotificationReply(Fields):
    has_msg: bool
    polling_full: bool | None = None


class PollingInfo(Fields):
    consumer_group: str
    topic: str
    queue_id: Int32


class PollingInfoReply(Fields):
    polling_num: Int32

"""Sends, batches, replies, send-backs, recalls, and transactions.

Code 10 has long field names, 310 and similar codes have letters. Both decode to a header with the same attributes, so one handler
serves both: a `SendMessageV2` is a `SendMessage`.
"""

from msgspec import field

from pocketmq.codes import RequestCode
from pocketmq.protocol.api.row import Api, Server
from pocketmq.protocol.fields import Fields, Int32, Int64


class SendMessage(Fields):
    """`default_topic` is the template for an unknown topic, with `default_topic_queue_nums` queues."""

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: Int32
    queue_id: Int32
    sys_flag: Int32
    born_timestamp: Int64
    flag: Int32
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


class PushReplyMessage(Fields):
    """A reply, forwarded to the client that sent the request. Hosts are `ip:port`."""

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: Int32
    queue_id: Int32
    sys_flag: Int32
    born_timestamp: Int64
    flag: Int32
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


ROWS = (
    Api(RequestCode.SEND_MESSAGE, SendMessage, SendReply),
    Api(RequestCode.SEND_MESSAGE_V2, SendMessageV2, SendReply),
    Api(RequestCode.SEND_BATCH_MESSAGE, SendMessageV2, SendReply),
    Api(RequestCode.SEND_REPLY_MESSAGE, SendMessage, SendReply),
    Api(RequestCode.SEND_REPLY_MESSAGE_V2, SendMessageV2, SendReply),
    Api(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, PushReplyMessage, served_by=Server.CLIENT),
    Api(RequestCode.CONSUMER_SEND_MSG_BACK, SendMessageBack),
    Api(RequestCode.RECALL_MESSAGE, RecallMessage, RecallReply),
    Api(RequestCode.END_TRANSACTION, EndTransaction, oneway=True),
    Api(RequestCode.CHECK_TRANSACTION_STATE, CheckTransactionState, served_by=Server.CLIENT, oneway=True),
    Api(RequestCode.RESUME_CHECK_HALF_MESSAGE, ResumeCheckHalfMessage),
)

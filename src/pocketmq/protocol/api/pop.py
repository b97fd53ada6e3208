"""POP consumption: the broker leases messages for an invisible time and receives an acknowledgement for each.

The codes do not fit the binary header. Queue id -1 means any queue; `extra_info` is the receipt handle of a leased message.
"""

from pocketmq.codes import RequestCode
from pocketmq.protocol.api.row import Api
from pocketmq.protocol.fields import Fields, Int32, Int64


class PopMessage(Fields):
    """Without `born_time`, the time of arrival counts."""

    consumer_group: str
    topic: str
    queue_id: Int32
    max_msg_nums: Int32
    invisible_time: Int64
    poll_time: Int64
    init_mode: Int32
    born_time: Int64 | None = None
    exp_type: str | None = None
    exp: str | None = None
    order: bool | None = None
    attempt_id: str | None = None


class PopReply(Fields):
    pop_time: Int64
    invisible_time: Int64
    revive_qid: Int32
    rest_num: Int64
    start_offset_info: str | None = None
    msg_offset_info: str | None = None
    order_count_info: str | None = None


class AckMessage(Fields):
    consumer_group: str
    topic: str
    queue_id: Int32
    extra_info: str
    offset: Int64


class PeekMessage(Fields):
    consumer_group: str
    topic: str
    queue_id: Int32
    max_msg_nums: Int32


class ChangeInvisibleTime(Fields):
    consumer_group: str
    topic: str
    queue_id: Int32
    extra_info: str
    offset: Int64
    invisible_time: Int64


class InvisibleTimeReply(Fields):
    pop_time: Int64
    invisible_time: Int64
    revive_qid: Int32


class Notification(Fields):
    """Wait until there are messages to pop. Without `born_time`, the time of arrival counts."""

    consumer_group: str
    topic: str
    queue_id: Int32
    poll_time: Int64
    born_time: Int64 | None = None
    order: bool | None = None
    attempt_id: str | None = None


class NotificationReply(Fields):
    has_msg: bool
    polling_full: bool | None = None


class PollingInfo(Fields):
    consumer_group: str
    topic: str
    queue_id: Int32


class PollingInfoReply(Fields):
    polling_num: Int32


ROWS = (
    Api(RequestCode.POP_MESSAGE, PopMessage, PopReply),
    Api(RequestCode.PEEK_MESSAGE, PeekMessage, PopReply),
    Api(RequestCode.ACK_MESSAGE, AckMessage),
    Api(RequestCode.BATCH_ACK_MESSAGE),
    Api(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, ChangeInvisibleTime, InvisibleTimeReply),
    Api(RequestCode.NOTIFICATION, Notification, NotificationReply),
    Api(RequestCode.POLLING_INFO, PollingInfo, PollingInfoReply),
    Api(RequestCode.POP_ROLLBACK),
)

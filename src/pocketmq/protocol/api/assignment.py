"""Which member of a group may read a queue: order locks, and sharing out by the broker. All of it is in the bodies."""

from pocketmq.codes import RequestCode
from pocketmq.protocol.api.row import Api

ROWS = (
    Api(RequestCode.LOCK_BATCH_MQ),
    Api(RequestCode.UNLOCK_BATCH_MQ),
    Api(RequestCode.QUERY_ASSIGNMENT),
    Api(RequestCode.SET_MESSAGE_REQUEST_MODE),
    Api(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE),
)

"""Clients: heartbeats, connected clients, and requests that a broker sends to a client."""

from msgspec import field

from pocketmq.codes import RequestCode
from pocketmq.protocol.api.row import Api, Server
from pocketmq.protocol.fields import Fields, Int32


class HeartbeatReply(Fields):
    """RocketMQ 4 sends neither field. `sub_change` asks a client with heartbeats of version 2 to send all again."""

    support_heartbeat_v2: bool | None = field(default=None, name="IS_SUPPORT_HEART_BEAT_V2")
    sub_change: bool | None = field(default=None, name="IS_SUB_CHANGE")


class UnregisterClient(Fields):
    client_id: str = field(name="clientID")
    producer_group: str | None = None
    consumer_group: str | None = None


class GetConsumerList(Fields):
    consumer_group: str


class NotifyConsumerIdsChanged(Fields):
    consumer_group: str


class GetConsumerConnections(Fields):
    consumer_group: str


class GetProducerConnections(Fields):
    producer_group: str


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


ROWS = (
    Api(RequestCode.HEART_BEAT, response=HeartbeatReply),
    Api(RequestCode.UNREGISTER_CLIENT, UnregisterClient),
    Api(RequestCode.CHECK_CLIENT_CONFIG),
    Api(RequestCode.GET_CONSUMER_LIST_BY_GROUP, GetConsumerList),
    Api(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, NotifyConsumerIdsChanged, served_by=Server.CLIENT, oneway=True),
    Api(RequestCode.GET_CONSUMER_CONNECTION_LIST, GetConsumerConnections),
    Api(RequestCode.GET_PRODUCER_CONNECTION_LIST, GetProducerConnections),
    Api(RequestCode.GET_ALL_PRODUCER_INFO),
    Api(RequestCode.GET_CONSUMER_RUNNING_INFO, GetConsumerRunningInfo, served_by=Server.BROKER | Server.CLIENT),
    Api(RequestCode.CONSUME_MESSAGE_DIRECTLY, ConsumeMessageDirectly, served_by=Server.BROKER | Server.CLIENT),
)

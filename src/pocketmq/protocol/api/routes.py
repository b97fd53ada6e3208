"""The name server: routes of topics, registration of brokers, and its KV config."""

from pocketmq.codes import RequestCode
from pocketmq.protocol.api.row import Api, Server
from pocketmq.protocol.fields import Fields, Int32, Int64, NoFields


class RegisterBroker(Fields):
    """`body_crc32` 0 is not checked. Liveness ends after `heartbeat_timeout_millis`, or the name server's own limit."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    ha_server_addr: str
    broker_id: Int64
    heartbeat_timeout_millis: Int64 | None = None
    enable_acting_master: bool | None = None
    compressed: bool | None = None
    body_crc32: Int32 | None = None


class RegisterBrokerReply(Fields):
    """Addresses are filled for slaves only."""

    ha_server_addr: str | None = None
    master_addr: str | None = None
    topics_rejected: Int32 | None = None
    """PocketMQ only: the number of topics that the name server refused because of its limit; the remark says why."""


class UnregisterBroker(Fields):
    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Int64


class QueryDataVersion(Fields):
    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Int64


class DataVersionReply(Fields):
    changed: bool


class BrokerHeartbeat(Fields):
    cluster_name: str
    broker_addr: str
    broker_name: str
    broker_id: Int64 | None = None
    epoch: Int32 | None = None
    max_offset: Int64 | None = None
    confirm_offset: Int64 | None = None
    heartbeat_timeout_mills: Int64 | None = None
    election_priority: Int32 | None = None


class GetBrokerMemberGroup(Fields):
    cluster_name: str
    broker_name: str


class GetRoute(Fields):
    topic: str
    accept_standard_json_only: bool | None = None


class GetTopicsByCluster(Fields):
    cluster: str


class DeleteTopicRoute(Fields):
    topic: str
    cluster_name: str | None = None


class RegisterTopic(Fields):
    topic: str


class WipeWritePerm(Fields):
    broker_name: str


class WipeWritePermReply(Fields):
    wipe_topic_count: Int32


class AddWritePerm(Fields):
    broker_name: str


class AddWritePermReply(Fields):
    add_topic_count: Int32


class PutKvConfig(Fields):
    namespace: str
    key: str
    value: str


class GetKvConfig(Fields):
    namespace: str
    key: str


class KvConfigReply(Fields):
    value: str | None = None


class DeleteKvConfig(Fields):
    namespace: str
    key: str


class GetKvList(Fields):
    namespace: str


def _row(code: RequestCode, request: type[Fields] = NoFields, response: type[Fields] = NoFields) -> Api:
    return Api(code, request, response, Server.NAME_SERVER)


ROWS = (
    _row(RequestCode.REGISTER_BROKER, RegisterBroker, RegisterBrokerReply),
    _row(RequestCode.UNREGISTER_BROKER, UnregisterBroker),
    _row(RequestCode.QUERY_DATA_VERSION, QueryDataVersion, DataVersionReply),
    _row(RequestCode.BROKER_HEARTBEAT, BrokerHeartbeat),
    _row(RequestCode.GET_BROKER_MEMBER_GROUP, GetBrokerMemberGroup),
    _row(RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRoute),
    _row(RequestCode.GET_BROKER_CLUSTER_INFO),
    _row(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER),
    _row(RequestCode.GET_TOPICS_BY_CLUSTER, GetTopicsByCluster),
    _row(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS),
    _row(RequestCode.GET_UNIT_TOPIC_LIST),
    _row(RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST),
    _row(RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST),
    _row(RequestCode.DELETE_TOPIC_IN_NAMESRV, DeleteTopicRoute),
    _row(RequestCode.REGISTER_TOPIC_IN_NAMESRV, RegisterTopic),
    _row(RequestCode.WIPE_WRITE_PERM_OF_BROKER, WipeWritePerm, WipeWritePermReply),
    _row(RequestCode.ADD_WRITE_PERM_OF_BROKER, AddWritePerm, AddWritePermReply),
    _row(RequestCode.PUT_KV_CONFIG, PutKvConfig),
    _row(RequestCode.GET_KV_CONFIG, GetKvConfig, KvConfigReply),
    _row(RequestCode.DELETE_KV_CONFIG, DeleteKvConfig),
    _row(RequestCode.GET_KVLIST_BY_NAMESPACE, GetKvList),
    _row(RequestCode.UPDATE_NAMESRV_CONFIG),
    _row(RequestCode.GET_NAMESRV_CONFIG),
)

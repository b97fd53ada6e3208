"""The body of every request and of its answer, by request code.

    BODIES[code] = (body of the request, body of a successful answer)        None: there is none

Most bodies are JSON and have a type here, one file for each family. The others are named by their kind: see `protocol.record`
for messages and records, `properties_text` for settings. An answer may always come without its body, and a failure does.
"""

from enum import Enum
from typing import Any, NamedTuple

from pocketmq.codes import RequestCode
from pocketmq.protocol.bodies.clients import (
    CheckClientConfig,
    ConsumerConnection,
    ConsumerIdList,
    ConsumerRunningInfo,
    DirectConsumption,
    GroupConfigList,
    GroupForbidden,
    GroupList,
    GroupSubscription,
    GroupTable,
    HeartbeatData,
    LockedQueues,
    ProducerConnection,
    ProducerTable,
    QueryAssignment,
    QueueAssignments,
    QueueLocks,
    RequestMode,
    RequestModes,
    SubscriptionGroupConfig,
)
from pocketmq.protocol.bodies.registration import RegisterBrokerBody
from pocketmq.protocol.bodies.topics import (
    BrokerMemberGroup,
    BrokerStatsData,
    ClusterInfo,
    ConsumeQueueContent,
    ConsumerOffsets,
    ConsumerStatus,
    ConsumeStats,
    ConsumeStatsList,
    ConsumeTimeSpans,
    CorrectionOffsets,
    DataVersion,
    DelayOffsets,
    KVConfigFile,
    KVTable,
    LocalOffsets,
    MappedTopicConfig,
    MappedTopicTable,
    ReplicationStatus,
    ResetOffsets,
    TimerMetrics,
    TopicConfigList,
    TopicList,
    TopicRouteData,
    TopicStatsTable,
    TopicTable,
)
from pocketmq.protocol.pop import BatchAck


class BodyKind(Enum):
    JSON = "JSON of a type"
    MESSAGE = "the body of one message, or of several in a batch, as the producer gave it"
    RECORDS = "stored messages back to back"
    PROPERTIES = "Java properties"


class BodyForm(NamedTuple):
    """The form of a body. `type` is the argument of `read_body`, and None unless the kind is JSON."""

    kind: BodyKind
    type: Any = None


class BodyForms(NamedTuple):
    request: BodyForm | None = None
    response: BodyForm | None = None


def _json(request: Any = None, response: Any = None) -> BodyForms:
    return BodyForms(*(kind and BodyForm(BodyKind.JSON, kind) for kind in (request, response)))


_MESSAGE = BodyForm(BodyKind.MESSAGE)
_RECORDS = BodyForm(BodyKind.RECORDS)
_PROPERTIES = BodyForm(BodyKind.PROPERTIES)

NOT_SERVED = {
    RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC,
    RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG,
    RequestCode.RESET_MASTER_FLUSH_OFFSET,
    RequestCode.GET_BROKER_EPOCH_CACHE,
    *(code for code in RequestCode if RequestCode.UPDATE_COLD_DATA_FLOW_CTR_CONFIG <= code < RequestCode.POP_MESSAGE),
}
"""What PocketMQ neither serves nor sends: cold data, users, access rules and the like."""

BODIES: dict[RequestCode, BodyForms] = {
    **dict.fromkeys(set(RequestCode) - NOT_SERVED, BodyForms()),
    # messages
    RequestCode.SEND_MESSAGE: BodyForms(_MESSAGE),
    RequestCode.SEND_MESSAGE_V2: BodyForms(_MESSAGE),
    RequestCode.SEND_BATCH_MESSAGE: BodyForms(_MESSAGE),
    RequestCode.SEND_REPLY_MESSAGE: BodyForms(_MESSAGE),
    RequestCode.SEND_REPLY_MESSAGE_V2: BodyForms(_MESSAGE),
    RequestCode.PULL_MESSAGE: BodyForms(None, _RECORDS),
    RequestCode.LITE_PULL_MESSAGE: BodyForms(None, _RECORDS),
    RequestCode.QUERY_MESSAGE: BodyForms(None, _RECORDS),
    RequestCode.VIEW_MESSAGE_BY_ID: BodyForms(None, _RECORDS),
    RequestCode.HEART_BEAT: _json(HeartbeatData),
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: _json(None, ConsumerIdList),
    RequestCode.LOCK_BATCH_MQ: _json(QueueLocks, LockedQueues),
    RequestCode.UNLOCK_BATCH_MQ: _json(QueueLocks),
    RequestCode.CHECK_CLIENT_CONFIG: _json(CheckClientConfig),
    # POP
    RequestCode.POP_MESSAGE: BodyForms(None, _RECORDS),
    RequestCode.BATCH_ACK_MESSAGE: _json(BatchAck),
    RequestCode.QUERY_ASSIGNMENT: _json(QueryAssignment, QueueAssignments),
    RequestCode.SET_MESSAGE_REQUEST_MODE: _json(RequestMode),
    RequestCode.GET_ALL_MESSAGE_REQUEST_MODE: _json(None, RequestModes),
    # the broker asks its clients
    RequestCode.CHECK_TRANSACTION_STATE: BodyForms(_RECORDS),
    RequestCode.RESET_CONSUMER_CLIENT_OFFSET: _json(ResetOffsets),
    RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT: _json(None, ConsumerStatus),
    RequestCode.GET_CONSUMER_RUNNING_INFO: _json(None, ConsumerRunningInfo),
    RequestCode.CONSUME_MESSAGE_DIRECTLY: BodyForms(_RECORDS, BodyForm(BodyKind.JSON, DirectConsumption)),
    RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT: BodyForms(_MESSAGE),
    # name server
    RequestCode.REGISTER_BROKER: _json(RegisterBrokerBody, KVTable),
    RequestCode.GET_ROUTEINFO_BY_TOPIC: _json(None, TopicRouteData),
    RequestCode.GET_BROKER_CLUSTER_INFO: _json(None, ClusterInfo),
    RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: _json(None, TopicList),
    RequestCode.REGISTER_TOPIC_IN_NAMESRV: _json(TopicRouteData),
    RequestCode.GET_KVLIST_BY_NAMESPACE: _json(None, KVTable),
    RequestCode.GET_TOPICS_BY_CLUSTER: _json(None, TopicList),
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: _json(None, TopicList),
    RequestCode.GET_UNIT_TOPIC_LIST: _json(None, TopicList),
    RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: _json(None, TopicList),
    RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: _json(None, TopicList),
    RequestCode.UPDATE_NAMESRV_CONFIG: BodyForms(_PROPERTIES),
    RequestCode.GET_NAMESRV_CONFIG: BodyForms(None, _PROPERTIES),
    RequestCode.QUERY_DATA_VERSION: _json(DataVersion, DataVersion),
    RequestCode.GET_BROKER_MEMBER_GROUP: _json(None, BrokerMemberGroup),
    # administration of a broker
    RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: _json(TopicConfigList),
    RequestCode.GET_ALL_TOPIC_CONFIG: _json(None, MappedTopicTable),
    RequestCode.UPDATE_BROKER_CONFIG: BodyForms(_PROPERTIES),
    RequestCode.GET_BROKER_CONFIG: BodyForms(None, _PROPERTIES),
    RequestCode.GET_BROKER_RUNTIME_INFO: _json(None, KVTable),
    RequestCode.GET_ALL_CONSUMER_OFFSET: _json(None, ConsumerOffsets),
    RequestCode.GET_ALL_DELAY_OFFSET: _json(None, DelayOffsets),
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: _json(SubscriptionGroupConfig),
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: _json(None, GroupTable),
    RequestCode.GET_TOPIC_STATS_INFO: _json(None, TopicStatsTable),
    RequestCode.GET_CONSUMER_CONNECTION_LIST: _json(None, ConsumerConnection),
    RequestCode.GET_PRODUCER_CONNECTION_LIST: _json(None, ProducerConnection),
    RequestCode.GET_CONSUME_STATS: _json(None, ConsumeStats),
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: _json(None, ResetOffsets),
    RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: _json(None, ConsumerStatus),
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: _json(GroupConfigList),
    RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: _json(None, GroupList),
    RequestCode.QUERY_CONSUME_TIME_SPAN: _json(None, ConsumeTimeSpans),
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: _json(None, TopicList),
    RequestCode.QUERY_CORRECTION_OFFSET: _json(None, CorrectionOffsets),
    RequestCode.VIEW_BROKER_STATS_DATA: _json(None, BrokerStatsData),
    RequestCode.GET_BROKER_CONSUME_STATS: _json(None, ConsumeStatsList),
    RequestCode.QUERY_CONSUME_QUEUE: _json(None, ConsumeQueueContent),
    RequestCode.GET_ALL_PRODUCER_INFO: _json(None, ProducerTable),
    RequestCode.QUERY_TOPICS_BY_CONSUMER: _json(None, TopicList),
    RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER: _json(None, GroupSubscription),
    RequestCode.GET_TOPIC_CONFIG: _json(None, MappedTopicConfig),
    RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: _json(None, SubscriptionGroupConfig),
    RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN: _json(None, GroupForbidden),
    RequestCode.GET_BROKER_HA_STATUS: _json(None, ReplicationStatus),
    RequestCode.GET_TIMER_METRICS: _json(None, TimerMetrics),
}

FILES: dict[str, Any] = {
    "topics.json": TopicTable,
    "subscriptionGroup.json": GroupTable,
    "consumerOffset.json": ConsumerOffsets,
    "delayOffset.json": DelayOffsets,
    "kvConfig.json": KVConfigFile,
    "offsets.json": LocalOffsets,
    "messageRequestMode.json": RequestModes,
}
"""Types of the JSON files that brokers, name servers and broadcasting clients keep."""

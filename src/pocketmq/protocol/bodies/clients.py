"""Clients and consumer groups: heartbeats, connections, queue locks, assignments, settings of groups, running info of a consumer.

With version 2 of the heartbeat, a client sends a fingerprint of its subscriptions. While it stays the same, the client omits the
subscriptions (`without_sub`) and the broker keeps the ones it has.
"""

from enum import StrEnum

import msgspec
from msgspec.structs import replace

from pocketmq.model import MessageQueue, Subscription
from pocketmq.model.java_hash import java_hash
from pocketmq.protocol.bodies.topics import DataVersion
from pocketmq.protocol.fields import Int32, Int64
from pocketmq.protocol.java_json import EMPTY_MAP, Body


class ConsumeType(StrEnum):
    """How a consumer gets messages. Java's order, because some clients send the number."""

    CONSUME_ACTIVELY = "CONSUME_ACTIVELY"
    CONSUME_PASSIVELY = "CONSUME_PASSIVELY"
    CONSUME_POP = "CONSUME_POP"


class MessageModel(StrEnum):
    """Broadcasting: each member gets every message. Clustering: one member gets each message."""

    BROADCASTING = "BROADCASTING"
    CLUSTERING = "CLUSTERING"


class ConsumeFromWhere(StrEnum):
    """Where a group without an offset starts. Three values are deprecated."""

    CONSUME_FROM_LAST_OFFSET = "CONSUME_FROM_LAST_OFFSET"
    CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST = "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST"
    CONSUME_FROM_MIN_OFFSET = "CONSUME_FROM_MIN_OFFSET"
    CONSUME_FROM_MAX_OFFSET = "CONSUME_FROM_MAX_OFFSET"
    CONSUME_FROM_FIRST_OFFSET = "CONSUME_FROM_FIRST_OFFSET"
    CONSUME_FROM_TIMESTAMP = "CONSUME_FROM_TIMESTAMP"


class ProducerData(Body, frozen=True):
    group_name: str


class ConsumerData(Body, frozen=True):
    """One consumer group that the client is a member of."""

    group_name: str
    consume_type: ConsumeType = ConsumeType.CONSUME_PASSIVELY
    message_model: MessageModel = MessageModel.CLUSTERING
    consume_from_where: ConsumeFromWhere = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    subscription_data_set: tuple[Subscription, ...] = ()
    unit_mode: bool = False


class HeartbeatData(Body, frozen=True):
    """Fingerprint 0 means version 1."""

    client_id: str = msgspec.field(default="", name="clientID")
    producer_data_set: tuple[ProducerData, ...] = ()
    consumer_data_set: tuple[ConsumerData, ...] = ()
    heartbeat_fingerprint: Int32 = 0
    without_sub: bool = False


def fingerprint(heartbeat: HeartbeatData) -> int:
    """Java's hash of the heartbeat without client id and versions, with sorted sets."""
    anonymous = HeartbeatData(
        "",
        tuple(sorted(heartbeat.producer_data_set, key=lambda producer: producer.group_name)),
        tuple(map(_unversioned, sorted(heartbeat.consumer_data_set, key=lambda consumer: consumer.group_name))),
    )
    return java_hash(anonymous.encode().decode())


def _unversioned(consumer: ConsumerData) -> ConsumerData:
    subscriptions = sorted(consumer.subscription_data_set, key=lambda subscription: subscription.topic)
    ordered = (
        replace(one, sub_version=0, tags_set=tuple(sorted(one.tags_set)), code_set=tuple(sorted(one.code_set)))
        for one in subscriptions
    )
    return replace(consumer, subscription_data_set=tuple(ordered))


class ClientConnection(Body, frozen=True):
    """One client. `language` is the name of a `codes.Language`."""

    client_id: str
    client_addr: str | None = None
    language: str | None = None
    version: Int32 = 0


class ConsumerConnection(Body, frozen=True):
    """The members of a consumer group, and its last settings from a heartbeat."""

    connection_set: tuple[ClientConnection, ...] = ()
    subscription_table: dict[str, Subscription] = EMPTY_MAP
    consume_type: ConsumeType | None = None
    message_model: MessageModel | None = None
    consume_from_where: ConsumeFromWhere | None = None


class ProducerConnection(Body, frozen=True):
    """The members of a producer group."""

    connection_set: tuple[ClientConnection, ...] = ()


class ProducerInfo(Body, frozen=True):
    """One producer; its address has a slash in front, as Java prints addresses."""

    client_id: str
    remote_ip: str | None = msgspec.field(default=None, name="remoteIP")
    language: str | None = None
    version: Int32 = 0
    last_update_timestamp: Int64 = 0


class ProducerTable(Body, frozen=True):
    """All producers of a broker, by group."""

    data: dict[str, tuple[ProducerInfo, ...]] = EMPTY_MAP


class QueueLocks(Body, frozen=True):
    """Queues to lock or unlock for a client."""

    consumer_group: str
    client_id: str
    mq_set: tuple[MessageQueue, ...] = ()
    only_this_broker: bool = False


class LockedQueues(Body, frozen=True):
    """The requested queues that the client has locked now."""

    locked: tuple[MessageQueue, ...] = msgspec.field(default=(), name="lockOKMQSet")


class RetryPolicyType(StrEnum):
    EXPONENTIAL = "EXPONENTIAL"
    CUSTOMIZED = "CUSTOMIZED"


class ExponentialRetryPolicy(Body, frozen=True):
    """The first and the largest delay in milliseconds, and the factor between delays."""

    initial: Int64 = 5_000
    max: Int64 = 7_200_000
    multiplier: Int64 = 2


class CustomizedRetryPolicy(Body, frozen=True):
    """The delay of each retry in milliseconds; by default the delay levels."""

    next: tuple[Int64, ...] = ()


class GroupRetryPolicy(Body, frozen=True):
    """The delays between the retries of a message."""

    type: RetryPolicyType = RetryPolicyType.CUSTOMIZED
    exponential_retry_policy: ExponentialRetryPolicy | None = None
    customized_retry_policy: CustomizedRetryPolicy | None = None


class SimpleSubscription(Body, frozen=True):
    """A subscription that an administrator fixed for a group."""

    topic: str | None = None
    expression_type: str | None = None
    expression: str | None = None
    version: Int64 = 0


class SubscriptionGroupConfig(Body, frozen=True):
    """A consumer group on one broker."""

    group_name: str
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    consume_message_orderly: bool = False
    retry_queue_nums: Int32 = 1
    retry_max_times: Int32 = 16
    group_retry_policy: GroupRetryPolicy = GroupRetryPolicy()
    broker_id: Int64 = 0
    which_broker_when_consume_slowly: Int64 = 1
    notify_consumer_ids_changed_enable: bool = True
    group_sys_flag: Int32 = 0
    consume_timeout_minute: Int32 = 15
    subscription_data_set: tuple[SimpleSubscription, ...] | None = None
    attributes: dict[str, str] = EMPTY_MAP


class GroupTable(Body, frozen=True):
    """All groups of a broker, and their forbidden operations (group → topic → bits): the file subscriptionGroup.json."""

    data_version: DataVersion = DataVersion()
    forbidden_table: dict[str, dict[str, Int32]] = EMPTY_MAP
    subscription_group_table: dict[str, SubscriptionGroupConfig] = EMPTY_MAP


class GroupConfigList(Body, frozen=True):
    """Groups to create or change together."""

    group_config_list: tuple[SubscriptionGroupConfig, ...] = ()


class GroupList(Body, frozen=True):
    group_list: tuple[str, ...] = ()


class ConsumerIdList(Body, frozen=True):
    """Client ids of a group's members."""

    consumer_id_list: tuple[str, ...] = ()


class GroupForbidden(Body, frozen=True):
    """Whether a group may read a topic."""

    group: str | None = None
    topic: str | None = None
    readable: bool | None = None


class GroupSubscription(Body, frozen=True):
    """The subscription of a group to a topic, if any."""

    group: str | None = None
    topic: str | None = None
    subscription_data: Subscription | None = None


class CheckClientConfig(Body, frozen=True):
    """A subscription that a client asks the broker to check before it starts."""

    client_id: str | None = None
    group: str | None = None
    subscription_data: Subscription | None = None
    namespace: str | None = None


NAMESERVER_ADDR = "PROP_NAMESERVER_ADDR"
CONSUME_TYPE = "PROP_CONSUME_TYPE"
CONSUME_ORDERLY = "PROP_CONSUMEORDERLY"
THREADPOOL_CORE_SIZE = "PROP_THREADPOOL_CORE_SIZE"
CONSUMER_START_TIMESTAMP = "PROP_CONSUMER_START_TIMESTAMP"
CLIENT_VERSION = "PROP_CLIENT_VERSION"
"""Properties of a running info that tools read. A Java consumer adds all its settings."""
LEASE_KEYS = ("leased messages", "oldest lease (ms)", "returned messages", "lapsed leases", "rejected acks")
"""Properties of PocketMQ's consumers that pop."""


class ProcessQueueInfo(Body, frozen=True):
    """The process queue of one queue. `droped` is the spelling on the wire."""

    commit_offset: Int64 = 0
    cached_msg_min_offset: Int64 = 0
    cached_msg_max_offset: Int64 = 0
    cached_msg_count: Int32 = 0
    cached_msg_size_in_mib: Int32 = msgspec.field(default=0, name="cachedMsgSizeInMiB")
    transaction_msg_min_offset: Int64 = 0
    transaction_msg_max_offset: Int64 = 0
    transaction_msg_count: Int32 = 0
    locked: bool = False
    try_unlock_times: Int64 = 0
    last_lock_timestamp: Int64 = 0
    dropped: bool = msgspec.field(default=False, name="droped")
    last_pull_timestamp: Int64 = 0
    last_consume_timestamp: Int64 = 0


class PopProcessQueueInfo(Body, frozen=True):
    """The same for pop consumption."""

    wait_ack_count: Int32 = 0
    dropped: bool = msgspec.field(default=False, name="droped")
    last_pop_timestamp: Int64 = 0


class ConsumeStatus(Body, frozen=True):
    """Consume rates of a topic: times in milliseconds, rates per second, failures within the last hour."""

    pull_rt: float = msgspec.field(default=0.0, name="pullRT")
    pull_tps: float = msgspec.field(default=0.0, name="pullTPS")
    consume_rt: float = msgspec.field(default=0.0, name="consumeRT")
    consume_ok_tps: float = msgspec.field(default=0.0, name="consumeOKTPS")
    consume_failed_tps: float = msgspec.field(default=0.0, name="consumeFailedTPS")
    consume_failed_msgs: Int64 = 0


class ConsumerRunningInfo(Body, frozen=True):
    """The running info. `jstack` contains the stacks of all threads if requested."""

    properties: dict[str, str] = EMPTY_MAP
    subscription_set: tuple[Subscription, ...] = ()
    mq_table: dict[MessageQueue, ProcessQueueInfo] = EMPTY_MAP
    mq_pop_table: dict[MessageQueue, PopProcessQueueInfo] = EMPTY_MAP
    status_table: dict[str, ConsumeStatus] = EMPTY_MAP
    user_consumer_info: dict[str, str] = EMPTY_MAP
    jstack: str | None = None


class ConsumeOutcome(StrEnum):
    """The result of a listener."""

    CR_SUCCESS = "CR_SUCCESS"
    CR_LATER = "CR_LATER"
    CR_ROLLBACK = "CR_ROLLBACK"
    CR_COMMIT = "CR_COMMIT"
    CR_THROW_EXCEPTION = "CR_THROW_EXCEPTION"
    CR_RETURN_NULL = "CR_RETURN_NULL"


class DirectConsumption(Body, frozen=True):
    """The result of a direct consume request."""

    order: bool = False
    auto_commit: bool = True
    consume_result: ConsumeOutcome | None = None
    remark: str | None = None
    spent_time_mills: Int64 = 0


class QueryAssignment(Body, frozen=True):
    """A member asks which queues of a topic it consumes, and how."""

    topic: str
    consumer_group: str
    client_id: str
    strategy_name: str = "AVG"
    message_model: MessageModel = MessageModel.CLUSTERING


class QueueAssignment(Body, frozen=True):
    """A queue of a member. In mode POP, queue -1 means all queues of the topic on this broker."""

    message_queue: MessageQueue
    mode: str = "PULL"


class QueueAssignments(Body, frozen=True):
    """The queues of a member. Without a list, the member keeps those that it has."""

    message_queue_assignments: tuple[QueueAssignment, ...] | None = None


class RequestMode(Body, frozen=True):
    """How a group consumes a topic: PULL or POP. In mode POP, each member may share its queues with so many others."""

    topic: str
    consumer_group: str
    mode: str = "PULL"
    pop_share_queue_num: Int32 = 0


class RequestModes(Body, frozen=True):
    """The file messageRequestMode.json: topic → group → mode."""

    message_request_mode_map: dict[str, dict[str, RequestMode]] = EMPTY_MAP

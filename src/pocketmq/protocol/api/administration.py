"""Headers of administration: groups, topics and settings of a broker, and everything about the name server."""

from msgspec import field

from pocketmq.protocol.fields import Fields, Int32, Int64


class ForTopic(Fields):
    topic: str


class ForGroup(Fields):
    group: str


class ForProducerGroup(Fields):
    producer_group: str


# Consumer groups, topics and settings of a broker.


class GetAllGroups(Fields):
    """A slave reads its master's table in pages. Callers up to 5.3.3 send no field and get all of it."""

    group_seq: Int32 | None = None
    data_version: str | None = None
    max_group_num: Int32 | None = None


class AllGroupsReply(Fields):
    total_group_num: Int32 | None = None


class DeleteGroup(Fields):
    """RocketMQ 5 sends `clean_offset`, 4.9 `remove_offset`."""

    group_name: str
    clean_offset: bool | None = None
    remove_offset: bool | None = None


class GetConsumeStats(Fields):
    """`topic_list` is joined by semicolons."""

    consumer_group: str
    topic: str | None = None
    topic_list: str | None = None


class QuerySubscriptionByConsumer(Fields):
    group: str
    topic: str | None = None


class UpdateGroupForbidden(Fields):
    """Forbid or allow reading a topic if `readable` is set. The response has the current state."""

    group: str
    topic: str
    readable: bool | None = None


class CreateTopic(Fields):
    """`attributes` are changes: `+name=value,-name`. `topic_filter_type` is SINGLE_TAG or MULTI_TAG."""

    topic: str
    default_topic: str
    read_queue_nums: Int32
    write_queue_nums: Int32
    perm: Int32
    topic_filter_type: str
    order: bool
    topic_sys_flag: Int32 | None = None
    attributes: str | None = None
    force: bool | None = None


class GetAllTopics(Fields):
    """Like `GetAllGroups`."""

    topic_seq: Int32 | None = None
    data_version: str | None = None
    max_topic_num: Int32 | None = None


class AllTopicsReply(Fields):
    total_topic_num: Int32 | None = None


class BrokerConfigReply(Fields):
    """`version` is the JSON text of a data version."""

    version: str


class ViewBrokerStats(Fields):
    stats_name: str
    stats_key: str


class GetBrokerConsumeStats(Fields):
    is_order: bool


# The name server: routes of topics, registration of brokers, and its KV config.


class ForBroker(Fields):
    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Int64


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


class ForBrokerName(Fields):
    broker_name: str


class WipeWritePermReply(Fields):
    wipe_topic_count: Int32


class AddWritePermReply(Fields):
    add_topic_count: Int32


class ForNamespace(Fields):
    namespace: str


class KvKey(ForNamespace):
    key: str


class PutKvConfig(KvKey):
    value: str


class KvConfigReply(Fields):
    value: str | None = None


class Zone(Fields):
    """Any request to a name server may have these fields besides its own."""

    zone_name: str | None = field(default=None, name="__ZONE_NAME")
    zone_mode: str | None = field(default=None, name="__ZONE_MODE")

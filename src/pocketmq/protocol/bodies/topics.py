"""Topics: settings, queue mappings of static topics, routes, offsets of groups, statistics; versions of tables, and tables of texts."""

from enum import StrEnum

import msgspec

from pocketmq.codes import Perm
from pocketmq.model import MessageQueue, Subscription
from pocketmq.protocol.fields import Int32, Int64
from pocketmq.protocol.java_json import EMPTY_MAP, Body


class DataVersion(Body, frozen=True):
    """The version of a table. Versions are equal if all three numbers are; each change changes time and counter."""

    counter: Int64 = 0
    state_version: Int64 = 0
    timestamp: Int64 = 0

    def next_version(self, now_ms: int, state_version: int = 0) -> "DataVersion":
        """The version after a change at this time."""
        return DataVersion(self.counter + 1, state_version, now_ms)


class KVTable(Body, frozen=True):
    """One namespace of the name server, or a broker's runtime info."""

    table: dict[str, str] = EMPTY_MAP


class KVConfigFile(Body, frozen=True):
    """The name server's file kvConfig.json: namespace → key → value."""

    config_table: dict[str, dict[str, str]] = EMPTY_MAP


class TopicFilterType(StrEnum):
    SINGLE_TAG = "SINGLE_TAG"
    MULTI_TAG = "MULTI_TAG"


class TopicConfig(Body, frozen=True):
    """A topic on one broker. `perm` and `topic_sys_flag` have the bits of `Perm` and `TopicFlag`."""

    topic_name: str
    read_queue_nums: Int32 = 16
    write_queue_nums: Int32 = 16
    perm: Int32 = Perm.READ_WRITE
    topic_filter_type: TopicFilterType = TopicFilterType.SINGLE_TAG
    topic_sys_flag: Int32 = 0
    order: bool = False
    attributes: dict[str, str] = EMPTY_MAP


class QueueMappingItem(Body, frozen=True):
    """A range of a logical queue, and its position on a broker."""

    gen: Int32 = 0
    queue_id: Int32 = 0
    bname: str | None = None
    logic_offset: Int64 = 0
    start_offset: Int64 = 0
    end_offset: Int64 = -1
    time_of_start: Int64 = -1
    time_of_end: Int64 = -1


class QueueMappingInfo(Body, frozen=True):
    """Which logical queues of a static topic are on a broker: logical number → number there."""

    topic: str | None = None
    bname: str | None = None
    total_queues: Int32 = 0
    epoch: Int64 = 0
    scope: str = "__global__"
    dirty: bool = False
    curr_id_map: dict[Int32, Int32] = EMPTY_MAP


class QueueMappingDetail(QueueMappingInfo, frozen=True):
    """The same, with the whole history of each queue."""

    hosted_queues: dict[Int32, tuple[QueueMappingItem, ...]] = EMPTY_MAP


class MappedTopicConfig(TopicConfig, frozen=True):
    """A topic on one broker, with its queue mapping if it is static."""

    mapping_detail: QueueMappingDetail | None = None


class TopicTable(Body, frozen=True):
    """All topics of a broker: the file topics.json, and the response of brokers before 5.0."""

    data_version: DataVersion = DataVersion()
    topic_config_table: dict[str, TopicConfig] = EMPTY_MAP


class MappedTopicTable(TopicTable, frozen=True):
    """All topics of a broker with the mappings of static ones."""

    mapping_data_version: DataVersion = DataVersion()
    topic_queue_mapping_detail_map: dict[str, QueueMappingDetail] = EMPTY_MAP
    topic_queue_mapping_info_map: dict[str, QueueMappingInfo] = EMPTY_MAP


class TopicConfigList(Body, frozen=True):
    """Topics to create or change together."""

    topic_config_list: tuple[TopicConfig, ...] = ()


class TopicList(Body, frozen=True):
    """Names of topics; sometimes with the address of one broker that has them."""

    topic_list: tuple[str, ...] = ()
    broker_addr: str | None = None


class QueueData(Body, frozen=True):
    """A topic's queues on one broker name."""

    broker_name: str
    read_queue_nums: Int32 = 0
    write_queue_nums: Int32 = 0
    perm: Int32 = 0
    topic_sys_flag: Int32 = 0
    topic_syn_flag: Int32 | msgspec.UnsetType = msgspec.UNSET
    """The spelling of `topic_sys_flag` up to 4.8. Read as that, never written."""

    def __post_init__(self) -> None:
        if self.topic_syn_flag is not msgspec.UNSET:
            msgspec.structs.force_setattr(self, "topic_sys_flag", self.topic_syn_flag)
            msgspec.structs.force_setattr(self, "topic_syn_flag", msgspec.UNSET)


class BrokerData(Body, frozen=True):
    """A broker name and its addresses: id → address, 0 is the master."""

    cluster: str | None = None
    broker_name: str | None = None
    broker_addrs: dict[Int64, str] = EMPTY_MAP
    enable_acting_master: bool = False
    zone_name: str | None = None


class TopicRouteData(Body, frozen=True):
    """The route of a topic. `order_topic_conf` is `broker:queues;broker2:queues`."""

    queue_datas: tuple[QueueData, ...] = ()
    broker_datas: tuple[BrokerData, ...] = ()
    filter_server_table: dict[str, tuple[str, ...]] = EMPTY_MAP
    order_topic_conf: str | None = None
    topic_queue_mapping_by_broker: dict[str, QueueMappingInfo] | None = None


class ClusterInfo(Body, frozen=True):
    """All registered brokers by name, and broker names by cluster."""

    broker_addr_table: dict[str, BrokerData] = EMPTY_MAP
    cluster_addr_table: dict[str, tuple[str, ...]] = EMPTY_MAP


class BrokerMembers(Body, frozen=True):
    """The addresses of one broker name."""

    cluster: str | None = None
    broker_name: str | None = None
    broker_addrs: dict[Int64, str] = EMPTY_MAP


class BrokerMemberGroup(Body, frozen=True):
    """The response that contains them."""

    broker_member_group: BrokerMembers | None = None


class ConsumerOffsets(Body, frozen=True):
    """The committed offsets of all groups: `topic@group` → queue id → offset."""

    data_version: DataVersion = DataVersion()
    offset_table: dict[str, dict[Int32, Int64]] = EMPTY_MAP


class SavedOffsets(ConsumerOffsets, frozen=True):
    """The file consumerOffset.json. It also contains resets that no pull has used yet, the groups with offsets in a deleted topic with
    the queues that they have pulled since, the bounds after a crash, and the log offset up to which it includes the pops. RocketMQ
    does not store these, and ignores them.
    """

    reset_table: dict[str, dict[Int32, Int64]] = EMPTY_MAP
    recreated_table: dict[str, tuple[Int32, ...]] = EMPTY_MAP
    recovered_table: dict[str, dict[Int32, Int64]] | None = None
    confirmed_table: dict[str, dict[Int32, Int64]] = EMPTY_MAP
    popped_to: Int64 | None = None


class DelayOffsets(Body, frozen=True):
    """The file delayOffset.json: delay level → offset in that level's queue."""

    data_version: DataVersion = DataVersion()
    offset_table: dict[Int32, Int64] = EMPTY_MAP


class TimerMetrics(Body, frozen=True):
    """Waiting timed messages by topic: count and time."""

    data_version: DataVersion = DataVersion()
    timing_count: dict[str, dict[str, Int64]] = EMPTY_MAP


class LogMark(Body, frozen=True):
    """A message that was pulled. If another message has its offset, the queue belongs to another log."""

    queue_offset: Int64
    store_ms: Int64


class LocalOffsets(Body, frozen=True):
    """The file offsets.json with the offsets of a broadcasting client. RocketMQ ignores `log_table`."""

    offset_table: dict[MessageQueue, Int64] = EMPTY_MAP
    log_table: dict[MessageQueue, LogMark] | None = None


class ResetOffsets(Body, frozen=True):
    """The new offset of a group in each queue."""

    offset_table: dict[MessageQueue, Int64] = EMPTY_MAP


class CppQueueOffset(Body, frozen=True):
    topic: str
    broker_name: str
    queue_id: Int32
    offset: Int64


class CppResetOffsets(Body, frozen=True):
    """The same for C++ callers, whose maps cannot have objects as keys."""

    offset_table: tuple[CppQueueOffset, ...] = ()

    @classmethod
    def of(cls, offsets: ResetOffsets) -> "CppResetOffsets":
        return cls(
            tuple(
                CppQueueOffset(queue.topic, queue.broker_name, queue.queue_id, offset)
                for queue, offset in offsets.offset_table.items()
            )
        )

    def offsets(self) -> ResetOffsets:
        return ResetOffsets(
            {MessageQueue(one.topic, one.broker_name, one.queue_id): one.offset for one in self.offset_table}
        )


class ConsumerStatus(Body, frozen=True):
    """The offsets of clients: one client sends the first table, a broker that queried all of them the second."""

    message_queue_table: dict[MessageQueue, Int64] = EMPTY_MAP
    consumer_table: dict[str, dict[MessageQueue, Int64]] = EMPTY_MAP


class CorrectionOffsets(Body, frozen=True):
    """The smallest offset over some groups, by queue id."""

    correction_offsets: dict[Int32, Int64] = EMPTY_MAP


class OffsetProgress(Body, frozen=True):
    """A group in one queue. `last_timestamp` is the store time of the last message it consumed.

    The last two are PocketMQ's own: leased messages, and when the oldest of these leases began. Java ignores them.
    """

    broker_offset: Int64 = 0
    consumer_offset: Int64 = 0
    pull_offset: Int64 = 0
    last_timestamp: Int64 = 0
    leased: Int64 | None = msgspec.field(default=None, name="pocketmqLeased")
    leased_since: Int64 | None = msgspec.field(default=None, name="pocketmqLeasedSince")


class ConsumeStats(Body, frozen=True):
    """A group in all its queues."""

    offset_table: dict[MessageQueue, OffsetProgress] = EMPTY_MAP
    consume_tps: float = 0.0


class ConsumeStatsList(Body, frozen=True):
    """The statistics of all groups of a broker, by topic."""

    consume_stats_list: tuple[dict[str, tuple[ConsumeStats, ...]], ...] = ()
    broker_addr: str | None = None
    total_diff: Int64 = 0
    total_inflight_diff: Int64 = 0


class TopicOffset(Body, frozen=True):
    """The offsets of one queue."""

    min_offset: Int64 = 0
    max_offset: Int64 = 0
    last_update_timestamp: Int64 = 0


class TopicStatsTable(Body, frozen=True):
    """The offsets of all queues of a topic."""

    offset_table: dict[MessageQueue, TopicOffset] = EMPTY_MAP
    topic_put_tps: float = 0.0


class BrokerStatsItem(Body, frozen=True):
    """Sum, rate per second, and average per call."""

    sum: Int64 = 0
    tps: float = 0.0
    avgpt: float = 0.0


class BrokerStatsData(Body, frozen=True):
    """One counter of a broker over three spans."""

    stats_minute: BrokerStatsItem = BrokerStatsItem()
    stats_hour: BrokerStatsItem = BrokerStatsItem()
    stats_day: BrokerStatsItem = BrokerStatsItem()


class QueueTimeSpan(Body, frozen=True):
    """Store times of the first, last and last consumed message of a queue. Java adds each as a date text too."""

    message_queue: MessageQueue | None = None
    min_time_stamp: Int64 = 0
    max_time_stamp: Int64 = 0
    consume_time_stamp: Int64 = 0
    delay_time: Int64 = 0


class ConsumeTimeSpans(Body, frozen=True):
    consume_time_span_set: tuple[QueueTimeSpan, ...] = ()


class ConsumeQueueEntry(Body, frozen=True):
    """One consume queue entry, and whether a SQL92 filter matches it."""

    physic_offset: Int64 = 0
    physic_size: Int32 = 0
    tags_code: Int64 = 0
    extend_data_json: str | None = None
    bit_map: str | None = None
    eval: bool = False
    msg: str | None = None


class ConsumeQueueContent(Body, frozen=True):
    """A range of a consume queue."""

    subscription_data: Subscription | None = None
    filter_data: str | None = None
    queue_data: tuple[ConsumeQueueEntry, ...] | None = None
    max_queue_index: Int64 = 0
    min_queue_index: Int64 = 0


class ReplicaConnection(Body, frozen=True):
    """A replica, from its master's view."""

    addr: str | None = None
    slave_ack_offset: Int64 = 0
    diff: Int64 = 0
    in_sync: bool = False
    transferred_byte_in_second: Int64 = 0
    transfer_from_where: Int64 = 0


class ReplicaClient(Body, frozen=True):
    """A replica, from its own view."""

    master_addr: str | None = None
    transferred_byte_in_second: Int64 = 0
    max_offset: Int64 = 0
    last_read_timestamp: Int64 = 0
    last_write_timestamp: Int64 = 0
    master_flush_offset: Int64 = 0


class ReplicationStatus(Body, frozen=True):
    master: bool = False
    master_commit_log_max_offset: Int64 = 0
    in_sync_slave_nums: Int32 = 0
    ha_connection_info: tuple[ReplicaConnection, ...] = ()
    ha_client_runtime_info: ReplicaClient = ReplicaClient()

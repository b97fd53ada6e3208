"""Statistics: offsets of topics and groups, rates, consume queue entries, replicas, and cold data."""

from pocketmq.model.queue import MessageQueue
from pocketmq.model.subscription import Subscription
from pocketmq.protocol.bodies.body import EMPTY_MAP, Body
from pocketmq.protocol.fields import Int32, Int64


class OffsetProgress(Body, frozen=True):
    """A group in one queue. `last_timestamp` is the store time of the last message it consumed."""

    broker_offset: Int64 = 0
    consumer_offset: Int64 = 0
    pull_offset: Int64 = 0
    last_timestamp: Int64 = 0


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


class Epoch(Body, frozen=True):
    """A range of the log that was written by one master."""

    epoch: Int32 = 0
    start_offset: Int64 = 0
    end_offset: Int64 = 2**63 - 1


class EpochHistory(Body, frozen=True):
    cluster_name: str | None = None
    broker_name: str | None = None
    broker_id: Int64 = 0
    epoch_list: tuple[Epoch, ...] = ()
    max_offset: Int64 = 0


class ColdReads(Body, frozen=True):
    """Bytes that a group has read, and since when."""

    cold_acc: Int64 = 0
    last_cold_read_time_mills: Int64 = 0
    create_time_mills: Int64 = 0


class ColdReadLimits(Body, frozen=True):
    """Bytes that groups read, and their limits for each and in total."""

    runtime_table: dict[str, ColdReads] = EMPTY_MAP
    config_table: dict[str, Int64] = EMPTY_MAP
    cg_cold_read_threshold: Int64 = 0
    global_cold_read_threshold: Int64 = 0
    global_acc: Int64 = 0

"""Statistics: how far topics and groups are, how fast things go, and what lies in a consume queue."""

from pocketmq.model.queue import MessageQueue
from pocketmq.model.subscription import Subscription
from pocketmq.protocol.bodies.body import EMPTY_MAP, Body
from pocketmq.protocol.header import Int32, Int64


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
    """All groups of a broker: each with its stats, topic by topic."""

    consume_stats_list: tuple[dict[str, tuple[ConsumeStats, ...]], ...] = ()
    broker_addr: str | None = None
    total_diff: Int64 = 0
    total_inflight_diff: Int64 = 0


class TopicOffset(Body, frozen=True):
    """What one queue holds."""

    min_offset: Int64 = 0
    max_offset: Int64 = 0
    last_update_timestamp: Int64 = 0


class TopicStatsTable(Body, frozen=True):
    """What the queues of a topic hold."""

    offset_table: dict[MessageQueue, TopicOffset] = EMPTY_MAP
    topic_put_tps: float = 0.0


class BrokerStatsItem(Body, frozen=True):
    """Sum, per second, and average of one call over some time."""

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
    """One entry of a consume queue, and whether a SQL92 filter would take it."""

    physic_offset: Int64 = 0
    physic_size: Int32 = 0
    tags_code: Int64 = 0
    extend_data_json: str | None = None
    bit_map: str | None = None
    eval: bool = False
    msg: str | None = None


class ConsumeQueueContent(Body, frozen=True):
    """A stretch of a consume queue."""

    subscription_data: Subscription | None = None
    filter_data: str | None = None
    queue_data: tuple[ConsumeQueueEntry, ...] | None = None
    max_queue_index: Int64 = 0
    min_queue_index: Int64 = 0

"""Offsets: how far groups have consumed, and where they are told to go on."""

from pocketmq.model.queue import MessageQueue
from pocketmq.protocol.bodies.body import EMPTY_MAP, Body, DataVersion
from pocketmq.protocol.fields import Int32, Int64


class ConsumerOffsets(Body, frozen=True):
    """How far all groups are: `topic@group` → queue id → offset."""

    data_version: DataVersion = DataVersion()
    offset_table: dict[str, dict[Int32, Int64]] = EMPTY_MAP


class SavedOffsets(ConsumerOffsets, frozen=True):
    """The file consumerOffset.json; also resets that no pull has taken yet, which RocketMQ does not keep, and passes over.

    So it does with groups that had offsets in a topic when it was deleted, and the queues that they have pulled since.
    """

    reset_table: dict[str, dict[Int32, Int64]] = EMPTY_MAP
    recreated_table: dict[str, tuple[Int32, ...]] = EMPTY_MAP


class DelayOffsets(Body, frozen=True):
    """The file delayOffset.json: delay level → offset in that level's queue."""

    data_version: DataVersion = DataVersion()
    offset_table: dict[Int32, Int64] = EMPTY_MAP


class LogMark(Body, frozen=True):
    """A message that was pulled. Where another one has its offset, the queue is of another log."""

    queue_offset: Int64
    store_ms: Int64


class LocalOffsets(Body, frozen=True):
    """The file offsets.json, in which a broadcasting client keeps its own progress. RocketMQ passes over `log_table`."""

    offset_table: dict[MessageQueue, Int64] = EMPTY_MAP
    log_table: dict[MessageQueue, LogMark] | None = None


class ResetOffsets(Body, frozen=True):
    """Where a group goes on, queue by queue."""

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
    """Where clients stand in their queues: one client tells the first table, a broker that asked all of them the second."""

    message_queue_table: dict[MessageQueue, Int64] = EMPTY_MAP
    consumer_table: dict[str, dict[MessageQueue, Int64]] = EMPTY_MAP


class CorrectionOffsets(Body, frozen=True):
    """The smallest offset over some groups, by queue id."""

    correction_offsets: dict[Int32, Int64] = EMPTY_MAP

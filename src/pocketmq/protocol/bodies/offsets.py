"""Offsets of groups: committed offsets, resets, and the files that contain them."""

from pocketmq.model.queue import MessageQueue
from pocketmq.protocol.bodies.body import EMPTY_MAP, Body, DataVersion
from pocketmq.protocol.fields import Int32, Int64


class ConsumerOffsets(Body, frozen=True):
    """The committed offsets of all groups: `topic@group` → queue id → offset."""

    data_version: DataVersion = DataVersion()
    offset_table: dict[str, dict[Int32, Int64]] = EMPTY_MAP


class SavedOffsets(ConsumerOffsets, frozen=True):
    """The file consumerOffset.json. It also contains resets that no pull has used yet, and the groups with offsets in a deleted topic with
    the queues that they have pulled since. RocketMQ does not store these, and ignores them.
    """

    reset_table: dict[str, dict[Int32, Int64]] = EMPTY_MAP
    recreated_table: dict[str, tuple[Int32, ...]] = EMPTY_MAP


class DelayOffsets(Body, frozen=True):
    """The file delayOffset.json: delay level → offset in that level's queue."""

    data_version: DataVersion = DataVersion()
    offset_table: dict[Int32, Int64] = EMPTY_MAP


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

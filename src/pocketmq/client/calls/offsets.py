"""Offsets: where a queue begins and ends, where a group stands in it, and moving it elsewhere."""

from collections.abc import Iterable

from pocketmq.client.calls.asking import Calls, Target, named
from pocketmq.codes import BoundaryType, RequestCode
from pocketmq.errors import NotFound
from pocketmq.model.queue import MessageQueue
from pocketmq.protocol.api.offsets import (
    CloneGroupOffset,
    GetConsumerStatus,
    GetEarliestStoreTime,
    GetMaxOffset,
    GetMinOffset,
    OffsetReply,
    QueryConsumerOffset,
    QueryConsumeTimeSpan,
    QueryCorrectionOffset,
    ResetOffset,
    SearchOffset,
    StoreTimeReply,
    UpdateConsumerOffset,
)
from pocketmq.protocol.bodies.offsets import ConsumerStatus, CorrectionOffsets, ResetOffsets
from pocketmq.protocol.bodies.stats import ConsumeTimeSpans
from pocketmq.protocol.command import Command
from pocketmq.protocol.fields import Fields, read_fields
from pocketmq.protocol.java_json import read_optional_body


def first_of_topics(queues: Iterable[MessageQueue]) -> list[MessageQueue]:
    """One queue of each topic on each broker. Its offset is committed before those of the others where a group may be new to a topic:
    of two first offsets that come at once Apache's brokers lose one.
    """
    return list({(queue.broker_name, queue.topic): queue for queue in queues}.values())


class OffsetCalls(Calls):
    """Questions about one queue go to the broker that has it."""

    __slots__ = ()

    async def largest(self, queue: MessageQueue, *, committed: bool = True) -> int:
        """The offset that the next message of `queue` will get."""
        return await self._offset(
            queue, RequestCode.GET_MAX_OFFSET, GetMaxOffset(queue.topic, queue.queue_id, committed)
        )

    async def smallest(self, queue: MessageQueue) -> int:
        """The offset of the oldest message that `queue` still has."""
        return await self._offset(queue, RequestCode.GET_MIN_OFFSET, GetMinOffset(queue.topic, queue.queue_id))

    async def at_time(self, queue: MessageQueue, timestamp_ms: int, boundary: BoundaryType = BoundaryType.LOWER) -> int:
        """The offset of the first message stored at that time or later; the largest offset when there is none."""
        header = SearchOffset(queue.topic, queue.queue_id, timestamp_ms, boundary)
        return await self._offset(queue, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header)

    async def earliest_store_ms(self, queue: MessageQueue) -> int:
        """When the oldest message of `queue` was stored; -1 when it is empty."""
        header = GetEarliestStoreTime(queue.topic, queue.queue_id)
        answer = await self._ask(queue, RequestCode.GET_EARLIEST_MSG_STORETIME, header)
        return read_fields(StoreTimeReply, answer.ext).timestamp

    async def of_group(self, group: str, queue: MessageQueue, *, only_stored: bool = False) -> int | None:
        """Where `group` stands in `queue`; None when the broker knows of nothing.

        A broker may say 0 of a group that never was here, so that it begins with the first message; RocketMQ 5 does not
        when `only_stored` is what the group has committed.
        """
        header = QueryConsumerOffset(group, queue.topic, queue.queue_id, False if only_stored else None)
        try:
            return await self._offset(queue, RequestCode.QUERY_CONSUMER_OFFSET, header)
        except NotFound:
            return None

    async def commit(self, group: str, queue: MessageQueue, offset: int) -> None:
        """Tell where `group` stands, and hear that it was understood."""
        await self._ask(queue, RequestCode.UPDATE_CONSUMER_OFFSET, _update(group, queue, offset))

    async def tell_commit(self, group: str, queue: MessageQueue, offset: int) -> None:
        """Tell it one-way, as it is done every few seconds."""
        await self._brokers.tell(
            queue.broker_name,
            RequestCode.UPDATE_CONSUMER_OFFSET,
            _update(group, queue, offset),
            extra=named(queue.broker_name),
        )

    async def reset(self, target: Target, header: ResetOffset) -> ResetOffsets:
        """Move a group; where each of its queues goes on now."""
        answer = await self._brokers.ask(target, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)
        return read_optional_body(ResetOffsets, answer.body) or ResetOffsets()

    async def of_members(self, target: Target, topic: str, group: str, client_id: str | None = None) -> ConsumerStatus:
        """Where the members of a group themselves say that they stand."""
        header = GetConsumerStatus(topic, group, client_id)
        return await self._read(target, RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, ConsumerStatus, header)

    async def time_spans(self, target: Target, topic: str, group: str) -> ConsumeTimeSpans:
        """How old the messages are that a group reads now."""
        header = QueryConsumeTimeSpan(topic, group)
        return await self._read(target, RequestCode.QUERY_CONSUME_TIME_SPAN, ConsumeTimeSpans, header)

    async def smallest_of_groups(self, target: Target, topic: str, group: str, others: str = "") -> CorrectionOffsets:
        """The smallest offset over groups, by queue id; `others` are joined by commas."""
        header = QueryCorrectionOffset(topic, group, others or None)
        return await self._read(target, RequestCode.QUERY_CORRECTION_OFFSET, CorrectionOffsets, header)

    async def clone(self, target: Target, header: CloneGroupOffset) -> None:
        """Let one group stand where another stands."""
        await self._brokers.ask(target, RequestCode.CLONE_GROUP_OFFSET, header)

    async def _offset(self, queue: MessageQueue, code: RequestCode, header: Fields) -> int:
        return read_fields(OffsetReply, (await self._ask(queue, code, header)).ext).offset

    async def _ask(self, queue: MessageQueue, code: RequestCode, header: Fields) -> Command:
        return await self._brokers.ask(queue.broker_name, code, header, extra=named(queue.broker_name))


def _update(group: str, queue: MessageQueue, offset: int) -> UpdateConsumerOffset:
    return UpdateConsumerOffset(group, queue.topic, queue.queue_id, offset)

"""Calls to brokers about messages and offsets. Producers send messages by another way, see `producer.outbox`.

MessageCalls   pull, query by key or log offset, send back, end a transaction, recall
OffsetCalls    smallest, largest and committed offsets; commits, resets and clones of group offsets
"""

import struct
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, NamedTuple, TypeVar

from pocketmq.client.cluster.calls import Calls, Target, named
from pocketmq.codes import BoundaryType, RequestCode, ResponseCode
from pocketmq.errors import ConnectFailed, ConnectionLost, NotFound, PocketMQError, error_for
from pocketmq.model.message import StoredMessage
from pocketmq.model.queue import MessageQueue
from pocketmq.net.address import Address
from pocketmq.protocol.api.messages import (
    CloneGroupOffset,
    EndTransaction,
    ForQueue,
    GetConsumerStatus,
    GetMaxOffset,
    OffsetReply,
    PullMessage,
    PullReply,
    QueryConsumeQueue,
    QueryConsumerOffset,
    QueryConsumeTimeSpan,
    QueryCorrectionOffset,
    QueryMessage,
    QueryMessageReply,
    RecallMessage,
    RecallReply,
    ResetOffset,
    ResumeCheckHalfMessage,
    SearchOffset,
    SendMessageBack,
    StoreTimeReply,
    UpdateConsumerOffset,
    ViewMessage,
)
from pocketmq.protocol.bodies.topics import (
    ConsumeQueueContent,
    ConsumerStatus,
    ConsumeTimeSpans,
    CorrectionOffsets,
    ResetOffsets,
)
from pocketmq.protocol.command import Command
from pocketmq.protocol.fields import Fields, read_fields
from pocketmq.protocol.java_json import read_optional_body
from pocketmq.protocol.record import MAGIC_V1, MAGIC_V2, SMALLEST_RECORD, decode_records

_PULL_CODES: Final = frozenset(
    {
        ResponseCode.SUCCESS,
        ResponseCode.PULL_NOT_FOUND,
        ResponseCode.PULL_RETRY_IMMEDIATELY,
        ResponseCode.PULL_OFFSET_MOVED,
    }
)
"""Response codes of a pull that include a header; all others are failures."""


_first_record: Final = struct.Struct(">4xI12xq")


class Pulled(NamedTuple):
    """The response to a pull: its code is 0, 19, 20 or 21. `records` are not decoded."""

    code: int
    header: PullReply
    records: bytes
    version: int


def passes_over(code: int, records: bytes | memoryview, offset: int) -> bool:
    """Whether a pull without a filter returned messages after `offset` only. Retention causes this: log files are deleted a moment before
    the smallest offsets of their queues are updated.
    """
    if code == ResponseCode.PULL_RETRY_IMMEDIATELY:
        return True
    if len(records) < SMALLEST_RECORD:
        return False
    magic, first = _first_record.unpack_from(records)
    return magic in (MAGIC_V1, MAGIC_V2) and first > offset


def is_hole(code: int, next_offset: int, offset: int) -> bool:
    """Whether consume queue entries are missing at `offset` (OFFSET_FOUND_NULL): no filter finds messages there."""
    return code == ResponseCode.PULL_NOT_FOUND and next_offset > offset


def pulled_of(answer: Command) -> Pulled:
    """The decoded response to a pull; a failure raises its error."""
    if answer.code not in _PULL_CODES:
        raise error_for(answer.code, answer.remark)
    return Pulled(answer.code, read_fields(PullReply, answer.ext), answer.body, answer.version)


class MessageCalls(Calls):
    __slots__ = ()

    async def pull(
        self,
        address: Address,
        broker_name: str,
        header: PullMessage,
        *,
        timeout_s: float,
        code: RequestCode = RequestCode.PULL_MESSAGE,
    ) -> Pulled:
        """Pull from `address`, a master or slave of `broker_name`. `code` may be LITE_PULL_MESSAGE."""
        answer = await self._brokers.call(address, code, header, extra=named(broker_name), timeout_s=timeout_s)
        return pulled_of(answer)

    async def by_key(self, target: Target, header: QueryMessage) -> tuple[list[StoredMessage], QueryMessageReply]:
        """Messages with a key, and the last position of the index; NotFound when there are none."""
        answer = await self._brokers.ask(target, RequestCode.QUERY_MESSAGE, header)
        return decode_records(answer.body), read_fields(QueryMessageReply, answer.ext)

    async def at_log_offset(self, target: Target, log_offset: int, topic: str | None = None) -> StoredMessage:
        """The message at this offset of the commit log, which is part of an offset id."""
        answer = await self._brokers.ask(target, RequestCode.VIEW_MESSAGE_BY_ID, ViewMessage(log_offset, topic))
        return decode_records(answer.body)[0]

    async def queue_entries(self, target: Target, header: QueryConsumeQueue) -> ConsumeQueueContent:
        return await self._read(target, RequestCode.QUERY_CONSUME_QUEUE, ConsumeQueueContent, header)

    async def send_back(self, broker_name: str, header: SendMessageBack, *, timeout_s: float | None = None) -> None:
        """Send a failed message back to the broker, for a retry or as a dead letter."""
        await self._brokers.ask(
            broker_name, RequestCode.CONSUMER_SEND_MSG_BACK, header, extra=named(broker_name), timeout_s=timeout_s
        )

    async def recall(self, broker_name: str, header: RecallMessage, *, timeout_s: float | None = None) -> str:
        """Recall a timed message before it is delivered; returns its message id."""
        answer = await self._brokers.ask(
            broker_name, RequestCode.RECALL_MESSAGE, header, extra=named(broker_name), timeout_s=timeout_s
        )
        return read_fields(RecallReply, answer.ext).msg_id

    async def end_transaction(self, target: Target, broker_name: str, header: EndTransaction) -> None:
        """Commit or roll back a transaction, one-way as in RocketMQ. The broker checks a transaction whose decision was lost."""
        await self._brokers.send_one_way(target, RequestCode.END_TRANSACTION, header, extra=named(broker_name))

    async def decide(self, target: Target, broker_name: str, header: EndTransaction) -> None:
        """Commit or roll back a transaction, and wait for the response."""
        await self._brokers.ask(target, RequestCode.END_TRANSACTION, header, extra=named(broker_name))

    async def check_again(self, target: Target, header: ResumeCheckHalfMessage) -> None:
        """Resume the checks of a half message that reached the maximum number of checks."""
        await self._brokers.ask(target, RequestCode.RESUME_CHECK_HALF_MESSAGE, header)


T = TypeVar("T")


def first_of_topics(queues: Iterable[MessageQueue]) -> list[MessageQueue]:
    """One queue of each topic on each broker. Commit its offset before the others if the group may be new to the topic: when two first
    offsets arrive at once, Apache's brokers lose one.
    """
    return list({(queue.broker_name, queue.topic): queue for queue in queues}.values())


class OffsetCalls(Calls):
    """Calls about one queue go to the master of its broker.

    Slaves also know group offsets and the smallest offset of a queue. While the master cannot be connected, these calls use a slave, so that
    a consumer that reads from a slave continues and keeps its offsets. Only the master knows the largest offset.
    """

    __slots__ = ()

    async def largest(self, queue: MessageQueue, *, committed: bool = True) -> int:
        """The offset that the next message of `queue` will get."""
        return await self._offset(
            queue, RequestCode.GET_MAX_OFFSET, GetMaxOffset(queue.topic, queue.queue_id, committed)
        )

    async def smallest(self, queue: MessageQueue) -> int:
        """The offset of the oldest message that `queue` still has."""
        header = ForQueue(queue.topic, queue.queue_id)
        return _offset_in(await self._ask_any(queue, RequestCode.GET_MIN_OFFSET, header))

    async def at_time(self, queue: MessageQueue, timestamp_ms: int, boundary: BoundaryType = BoundaryType.LOWER) -> int:
        """The offset of the first message stored at that time or later; the largest offset when there is none."""
        header = SearchOffset(queue.topic, queue.queue_id, timestamp_ms, boundary)
        return await self._offset(queue, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header)

    async def earliest_store_ms(self, queue: MessageQueue) -> int:
        """When the oldest message of `queue` was stored; -1 when it is empty."""
        header = ForQueue(queue.topic, queue.queue_id)
        answer = await self._ask(queue, RequestCode.GET_EARLIEST_MSG_STORETIME, header)
        return read_fields(StoreTimeReply, answer.ext).timestamp

    async def of_group(self, group: str, queue: MessageQueue) -> int | None:
        """The offset that `group` has committed in `queue`; None when it has committed none.

        By default, brokers answer 0 for a group that is new to a queue whose first message is in memory, and the group would read all
        messages. `set_zero_if_not_found` prevents that. RocketMQ 4.9 ignores it: there, 0 may also mean that no offset is committed.
        """
        header = QueryConsumerOffset(group, queue.topic, queue.queue_id, set_zero_if_not_found=False)
        try:
            return _offset_in(await self._ask_any(queue, RequestCode.QUERY_CONSUMER_OFFSET, header))
        except NotFound:
            return None

    async def commit(self, group: str, queue: MessageQueue, offset: int) -> None:
        """Commit an offset of `group`, and wait for the response."""
        await self._ask_any(queue, RequestCode.UPDATE_CONSUMER_OFFSET, _update(group, queue, offset))

    async def commit_one_way(self, group: str, queue: MessageQueue, offset: int) -> None:
        """Commit an offset of `group` one-way, for periodic commits."""
        header, extra = _update(group, queue, offset), named(queue.broker_name)
        await self._first_connected(
            queue,
            lambda address: self._brokers.send_one_way(
                address, RequestCode.UPDATE_CONSUMER_OFFSET, header, extra=extra
            ),
        )

    async def reset(self, target: Target, header: ResetOffset) -> ResetOffsets:
        """Reset the offsets of a group; returns the new offset of each queue."""
        answer = await self._brokers.ask(target, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)
        return read_optional_body(ResetOffsets, answer.body) or ResetOffsets()

    async def of_members(self, target: Target, topic: str, group: str, client_id: str | None = None) -> ConsumerStatus:
        """The consume offsets that the members of a group report."""
        header = GetConsumerStatus(topic, group, client_id)
        return await self._read(target, RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, ConsumerStatus, header)

    async def time_spans(self, target: Target, topic: str, group: str) -> ConsumeTimeSpans:
        """The store times of the messages that a group consumes now."""
        header = QueryConsumeTimeSpan(topic, group)
        return await self._read(target, RequestCode.QUERY_CONSUME_TIME_SPAN, ConsumeTimeSpans, header)

    async def smallest_of_groups(self, target: Target, topic: str, group: str, others: str = "") -> CorrectionOffsets:
        """The smallest offset of several groups, by queue id; `others` are joined by commas."""
        header = QueryCorrectionOffset(topic, group, others or None)
        return await self._read(target, RequestCode.QUERY_CORRECTION_OFFSET, CorrectionOffsets, header)

    async def clone(self, target: Target, header: CloneGroupOffset) -> None:
        """Copy the offsets of one group to another."""
        await self._brokers.ask(target, RequestCode.CLONE_GROUP_OFFSET, header)

    async def _offset(self, queue: MessageQueue, code: RequestCode, header: Fields) -> int:
        return _offset_in(await self._ask(queue, code, header))

    async def _ask(self, queue: MessageQueue, code: RequestCode, header: Fields) -> Command:
        return await self._brokers.ask(queue.broker_name, code, header, extra=named(queue.broker_name))

    async def _ask_any(self, queue: MessageQueue, code: RequestCode, header: Fields) -> Command:
        extra = named(queue.broker_name)
        return await self._first_connected(queue, lambda address: self._brokers.ask(address, code, header, extra=extra))

    async def _first_connected(self, queue: MessageQueue, ask: Callable[[Address], Awaitable[T]]) -> T:
        """The result of `ask` with the master, or else with the first slave that can be connected."""
        failure: PocketMQError | None = None
        for address in self._brokers.addresses_of(queue.broker_name):
            try:
                return await ask(address)
            except (ConnectFailed, ConnectionLost) as error:
                failure = failure or error
        assert failure is not None  # `addresses_of` returns at least one address
        raise failure


def _offset_in(answer: Command) -> int:
    return read_fields(OffsetReply, answer.ext).offset


def _update(group: str, queue: MessageQueue, offset: int) -> UpdateConsumerOffset:
    return UpdateConsumerOffset(group, queue.topic, queue.queue_id, offset)

"""Messages: reading them by place, key or id, sending them back, deciding and recalling them. Sends have a road of their own.

Offsets: where a queue begins and ends, where a group stands in it, and moving it elsewhere.
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
from pocketmq.protocol.api.pulling import (
    PullMessage,
    PullReply,
    QueryConsumeQueue,
    QueryMessage,
    QueryMessageReply,
    ViewMessage,
)
from pocketmq.protocol.api.sending import (
    EndTransaction,
    RecallMessage,
    RecallReply,
    ResumeCheckHalfMessage,
    SendMessageBack,
)
from pocketmq.protocol.bodies.offsets import ConsumerStatus, CorrectionOffsets, ResetOffsets
from pocketmq.protocol.bodies.stats import ConsumeQueueContent, ConsumeTimeSpans
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
"""The answers to a pull that carry a header; all others are failures."""


_first_record: Final = struct.Struct(">4xI12xq")


class Pulled(NamedTuple):
    """The answer to a pull: its code is 0, 19, 20 or 21. Records stay as they came, for whoever wants them."""

    code: int
    header: PullReply
    records: bytes
    version: int


def passes_over(code: int, records: bytes | memoryview, offset: int) -> bool:
    """Whether an answer to a pull that wanted everything begins behind `offset`. Retention does that: log files go first, and their queues
    are told a moment later, so that for so long they seem to begin where they did.
    """
    if code == ResponseCode.PULL_RETRY_IMMEDIATELY:
        return True
    if len(records) < SMALLEST_RECORD:
        return False
    magic, first = _first_record.unpack_from(records)
    return magic in (MAGIC_V1, MAGIC_V2) and first > offset


def is_hole(code: int, next_offset: int, offset: int) -> bool:
    """Whether a broker lacks its own entries from `offset` on, OFFSET_FOUND_NULL: what lies there cannot be found, by whatever filter."""
    return code == ResponseCode.PULL_NOT_FOUND and next_offset > offset


def pulled_of(answer: Command) -> Pulled:
    """What the answer to a pull says; a failure is raised as the error that it stands for."""
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
        """One pull, of `address`: any broker behind the name of the queue. `code` may be LITE_PULL_MESSAGE."""
        answer = await self._brokers.call(address, code, header, extra=named(broker_name), timeout_s=timeout_s)
        return pulled_of(answer)

    async def by_key(self, target: Target, header: QueryMessage) -> tuple[list[StoredMessage], QueryMessageReply]:
        """Messages with a key, and how far the index reaches; NotFound when there are none."""
        answer = await self._brokers.ask(target, RequestCode.QUERY_MESSAGE, header)
        return decode_records(answer.body), read_fields(QueryMessageReply, answer.ext)

    async def at_log_offset(self, target: Target, log_offset: int, topic: str | None = None) -> StoredMessage:
        """The message that lies at this offset of the broker's log, as its offset id tells."""
        answer = await self._brokers.ask(target, RequestCode.VIEW_MESSAGE_BY_ID, ViewMessage(log_offset, topic))
        return decode_records(answer.body)[0]

    async def queue_entries(self, target: Target, header: QueryConsumeQueue) -> ConsumeQueueContent:
        return await self._read(target, RequestCode.QUERY_CONSUME_QUEUE, ConsumeQueueContent, header)

    async def send_back(self, broker_name: str, header: SendMessageBack, *, timeout_s: float | None = None) -> None:
        """Let a message that a consumer failed on come again later, or become a dead letter."""
        await self._brokers.ask(
            broker_name, RequestCode.CONSUMER_SEND_MSG_BACK, header, extra=named(broker_name), timeout_s=timeout_s
        )

    async def recall(self, broker_name: str, header: RecallMessage, *, timeout_s: float | None = None) -> str:
        """Take a timed message back before it is due; its id."""
        answer = await self._brokers.ask(
            broker_name, RequestCode.RECALL_MESSAGE, header, extra=named(broker_name), timeout_s=timeout_s
        )
        return read_fields(RecallReply, answer.ext).msg_id

    async def end_transaction(self, target: Target, broker_name: str, header: EndTransaction) -> None:
        """Tell how a transaction ended. RocketMQ never answers: a broker that did not hear it asks."""
        await self._brokers.tell(target, RequestCode.END_TRANSACTION, header, extra=named(broker_name))

    async def decide(self, target: Target, broker_name: str, header: EndTransaction) -> None:
        """The same for an administrator, who wants to hear whether it was understood."""
        await self._brokers.ask(target, RequestCode.END_TRANSACTION, header, extra=named(broker_name))

    async def check_again(self, target: Target, header: ResumeCheckHalfMessage) -> None:
        """Let a half message be asked about again that was given up."""
        await self._brokers.ask(target, RequestCode.RESUME_CHECK_HALF_MESSAGE, header)


T = TypeVar("T")


def first_of_topics(queues: Iterable[MessageQueue]) -> list[MessageQueue]:
    """One queue of each topic on each broker. Its offset is committed before those of the others where a group may be new to a topic:
    of two first offsets that come at once Apache's brokers lose one.
    """
    return list({(queue.broker_name, queue.topic): queue for queue in queues}.values())


class OffsetCalls(Calls):
    """Questions about one queue go to the master of its broker.

    Group offsets, and where a queue begins, can be had from a slave as well: while the master cannot be reached, any other broker of the
    name is asked, so that a consumer that reads from a slave goes on and keeps its offsets. Where a queue ends only the master knows.
    """

    __slots__ = ()

    async def largest(self, queue: MessageQueue, *, committed: bool = True) -> int:
        """The offset that the next message of `queue` will get."""
        return await self._offset(
            queue, RequestCode.GET_MAX_OFFSET, GetMaxOffset(queue.topic, queue.queue_id, committed)
        )

    async def smallest(self, queue: MessageQueue) -> int:
        """The offset of the oldest message that `queue` still has."""
        header = GetMinOffset(queue.topic, queue.queue_id)
        return _offset_in(await self._ask_any(queue, RequestCode.GET_MIN_OFFSET, header))

    async def at_time(self, queue: MessageQueue, timestamp_ms: int, boundary: BoundaryType = BoundaryType.LOWER) -> int:
        """The offset of the first message stored at that time or later; the largest offset when there is none."""
        header = SearchOffset(queue.topic, queue.queue_id, timestamp_ms, boundary)
        return await self._offset(queue, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header)

    async def earliest_store_ms(self, queue: MessageQueue) -> int:
        """When the oldest message of `queue` was stored; -1 when it is empty."""
        header = GetEarliestStoreTime(queue.topic, queue.queue_id)
        answer = await self._ask(queue, RequestCode.GET_EARLIEST_MSG_STORETIME, header)
        return read_fields(StoreTimeReply, answer.ext).timestamp

    async def of_group(self, group: str, queue: MessageQueue) -> int | None:
        """The offset that `group` has committed in `queue`; None when it has committed none.

        Unless told otherwise, brokers answer 0 for a group that is new to a queue while its first message is in their memory, and
        the group would read the whole history. RocketMQ 4.9 cannot be told: there 0 may also mean that nothing is stored.
        """
        header = QueryConsumerOffset(group, queue.topic, queue.queue_id, set_zero_if_not_found=False)
        try:
            return _offset_in(await self._ask_any(queue, RequestCode.QUERY_CONSUMER_OFFSET, header))
        except NotFound:
            return None

    async def commit(self, group: str, queue: MessageQueue, offset: int) -> None:
        """Tell where `group` stands, and hear that it was understood."""
        await self._ask_any(queue, RequestCode.UPDATE_CONSUMER_OFFSET, _update(group, queue, offset))

    async def tell_commit(self, group: str, queue: MessageQueue, offset: int) -> None:
        """Tell it one-way, as it is done every few seconds."""
        header, extra = _update(group, queue, offset), named(queue.broker_name)
        await self._first_reached(
            queue, lambda address: self._brokers.tell(address, RequestCode.UPDATE_CONSUMER_OFFSET, header, extra=extra)
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
        return _offset_in(await self._ask(queue, code, header))

    async def _ask(self, queue: MessageQueue, code: RequestCode, header: Fields) -> Command:
        return await self._brokers.ask(queue.broker_name, code, header, extra=named(queue.broker_name))

    async def _ask_any(self, queue: MessageQueue, code: RequestCode, header: Fields) -> Command:
        extra = named(queue.broker_name)
        return await self._first_reached(queue, lambda address: self._brokers.ask(address, code, header, extra=extra))

    async def _first_reached(self, queue: MessageQueue, ask: Callable[[Address], Awaitable[T]]) -> T:
        """What `ask` comes to at the master, or else at the first broker of its name that can be reached."""
        failure: PocketMQError | None = None
        for address in self._brokers.holders(queue.broker_name):
            try:
                return await ask(address)
            except (ConnectFailed, ConnectionLost) as error:
                failure = failure or error
        assert failure is not None  # `holders` gives one broker at least
        raise failure


def _offset_in(answer: Command) -> int:
    return read_fields(OffsetReply, answer.ext).offset


def _update(group: str, queue: MessageQueue, offset: int) -> UpdateConsumerOffset:
    return UpdateConsumerOffset(group, queue.topic, queue.queue_id, offset)

"""Messages: reading them by place, key or id, sending them back, deciding and recalling them. Sends have a road of their own."""

import struct
from typing import Final, NamedTuple

from pocketmq.client.calls.asking import Calls, Target, named
from pocketmq.codes import RequestCode, ResponseCode
from pocketmq.errors import error_for
from pocketmq.model.message import StoredMessage
from pocketmq.net.address import Address
from pocketmq.protocol.api.pulling import (
    PullMessage,
    PullReply,
    QueryConsumeQueue,
    QueryMessage,
    QueryMessageReply,
    ViewMessage,
)
from pocketmq.protocol.api.sending import RecallMessage, RecallReply, SendMessageBack
from pocketmq.protocol.api.transactions import EndTransaction, ResumeCheckHalfMessage
from pocketmq.protocol.bodies.stats import ConsumeQueueContent
from pocketmq.protocol.command import Command
from pocketmq.protocol.fields import read_fields
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

"""Undecided transactions: half messages whose producer has not decided them.

They are found in the two topics in which a broker keeps them; `model.transactions` says how their messages belong together.
"""

from collections.abc import Callable

import msgspec

from pocketmq.client.admin.targets import Operations, check_limit, read_queue
from pocketmq.codes import TransactionState
from pocketmq.errors import TopicNotFound
from pocketmq.model import MessageQueue, StoredMessage, Undecided
from pocketmq.model.names import CHECK_MAX_TIME_TOPIC, HALF_TOPIC, OP_HALF_TOPIC, TRANSACTION_CHECK_GROUP
from pocketmq.model.transactions import describe, undecided
from pocketmq.protocol.api.messages import EndTransaction, ResumeCheckHalfMessage

DEFAULT_LIMIT = 10_000


class OpenTransaction(Undecided, frozen=True, kw_only=True):
    """An undecided transaction at a broker."""

    broker: str


class GivenUp(Undecided, frozen=True, kw_only=True):
    """A transaction that a broker does not check any more, because all `transactionCheckMax` checks failed."""

    broker: str
    offset_id: str


class OpenTransactions(msgspec.Struct, frozen=True, kw_only=True):
    """The undecided transactions that were read. `is_complete` is False if there are more half messages."""

    found: tuple[OpenTransaction, ...]
    is_complete: bool


class TransactionAdmin(Operations):
    """Undecided transactions of the cluster."""

    async def undecided(self, *, limit: int = DEFAULT_LIMIT) -> OpenTransactions:
        """Undecided transactions, oldest first. Reads at most `limit` half messages of each broker.

        A transaction that was just decided may be included: brokers store decisions every few seconds.
        """
        check_limit(limit)
        brokers = [master.name for master in await self._targets.masters()]
        parts = await self._targets.gather(brokers, lambda broker: self._of_broker(broker, limit))
        found = sorted((one for part, _ in parts for one in part), key=lambda one: one.born_ms)
        return OpenTransactions(found=tuple(found), is_complete=all(is_complete for _, is_complete in parts))

    async def commit(self, transaction: OpenTransaction) -> None:
        """Commit a transaction on behalf of its producer: consumers get the message."""
        await self._end(transaction, TransactionState.COMMIT)

    async def roll_back(self, transaction: OpenTransaction) -> None:
        """Roll back a transaction on behalf of its producer: no consumer gets the message."""
        await self._end(transaction, TransactionState.ROLLBACK)

    async def given_up(self, *, limit: int = DEFAULT_LIMIT) -> list[GivenUp]:
        """Transactions that brokers do not check any more, oldest first. Reads the newest `limit` of each broker."""
        check_limit(limit)
        brokers = await self._targets.masters()
        parts = await self._targets.gather(brokers, lambda broker: self._given_up_at(broker.name, limit))
        return sorted((one for part in parts for one in part), key=lambda one: one.born_ms)

    async def check_again(self, broker: str, message_id: str) -> None:
        """Make the broker check a given-up transaction again, by its `GivenUp.offset_id`.

        RocketMQ does not detect a second call: it creates a second transaction.
        """
        header = ResumeCheckHalfMessage(HALF_TOPIC, message_id)
        await self._targets.brokers.messages.check_again((await self._targets.master(broker)).address, header)

    async def _end(self, transaction: OpenTransaction, state: TransactionState) -> None:
        header = EndTransaction(
            producer_group=transaction.producer_group,
            tran_state_table_offset=transaction.half_offset,
            commit_log_offset=transaction.log_offset,
            commit_or_rollback=int(state),
            msg_id=transaction.transaction_id,
            topic=self._targets.topic(transaction.topic),
            transaction_id=transaction.transaction_id,
        )
        broker = await self._targets.master(transaction.broker)
        await self._targets.brokers.messages.decide(broker.address, broker.name, header)

    async def _given_up_at(self, broker: str, limit: int) -> list[GivenUp]:
        queue = MessageQueue(CHECK_MAX_TIME_TOPIC, broker, 0)
        calls = self._targets.brokers.offsets
        try:
            begin, end = await calls.smallest(queue), await calls.largest(queue)
        except TopicNotFound:
            return []
        begin = max(begin, end - limit)
        return [
            GivenUp(
                **{**msgspec.structs.asdict(one), "topic": self._targets.shown(one.topic)},
                broker=broker,
                offset_id=message.offset_id,
            )
            async for message in read_queue(self._targets, queue, begin, end)
            for one in (describe(message),)
        ]

    async def _of_broker(self, broker: str, limit: int) -> tuple[list[OpenTransaction], bool]:
        """Reads half messages before decisions, so that a decision in between counts."""
        try:
            halves, is_complete = await self._read(MessageQueue(HALF_TOPIC, broker, 0), limit)
            ops, _ = await self._read(MessageQueue(OP_HALF_TOPIC, broker, 0), None)
        except TopicNotFound:
            return [], False  # RocketMQ 4.9 creates the topic at its first check, after the first messages
        newest = {one.transaction_id: one for one in undecided(halves, ops)}
        shown: Callable[[str], str] = self._targets.shown
        found = [
            OpenTransaction(**{**msgspec.structs.asdict(one), "topic": shown(one.topic)}, broker=broker)
            for one in newest.values()
        ]
        return found, is_complete

    async def _read(self, queue: MessageQueue, limit: int | None) -> tuple[list[StoredMessage], bool]:
        """Messages from the offset of the broker's own checks on, and whether these are all."""
        calls = self._targets.brokers.offsets
        begin = await calls.of_group(TRANSACTION_CHECK_GROUP, queue)
        begin = max(begin or 0, await calls.smallest(queue))
        end = await calls.largest(queue)
        stop = end if limit is None else min(end, begin + limit)
        return [message async for message in read_queue(self._targets, queue, begin, stop)], stop == end

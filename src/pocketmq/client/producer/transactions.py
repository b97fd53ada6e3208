"""Transactions: a message that consumers receive if and only if something else succeeded, such as a database commit.

    tx.send ──► half message: stored, invisible to consumers ──► the user's block ──┬─ ends ────► commit: consumers receive it
                                                                                    └─ raises ──► rollback: it is dropped
    the process ends in between, or the decision is lost ──► the broker checks (after 6 s, then every 30 s) ──► `check` decides

The decision is sent one-way, as in RocketMQ, so it may be lost; then the broker checks the transaction. The client answers a check of
an open transaction with "not known yet", of a transaction decided here from memory, and of others by calling `check`: a function
that looks up the outcome, for example in the database. After a restart only `check` knows the outcome.

A transaction is a block: `async with producer.transaction("orders") as tx:`. It commits at the end and rolls back on an exception.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType
from typing import Final, NamedTuple, Protocol, Self, Unpack

from pocketmq.client.cluster.instance import Instance
from pocketmq.client.hooks import DecisionEvent, HookList
from pocketmq.client.lifecycle import call
from pocketmq.client.producer.outbox import Outbox
from pocketmq.client.producer.outgoing import Outgoing, QueueOptions, SendOptions, addressed
from pocketmq.client.producer.queue_choice import Destination
from pocketmq.client.producer.results import SendResult
from pocketmq.client.received import readable
from pocketmq.client.settings import ProducerSettings, checked_seconds
from pocketmq.codes import RequestCode, ResponseCode, TransactionState
from pocketmq.errors import PocketMQError, UsageError, WrongState, error_for
from pocketmq.model import Message, OffsetId, StoredMessage
from pocketmq.model.names import wrap
from pocketmq.net import Peer
from pocketmq.protocol.api.messages import CheckTransactionState, EndTransaction

log = logging.getLogger("pocketmq.client")

CHECKS_AT_ONCE: Final = 16
"""Concurrent calls of `check`."""
MAX_REMEMBERED: Final = 10_000
"""Decisions kept in case they are lost on the way to the broker; `check` looks up older ones."""

Decision = TransactionState | bool | None
"""True commits, False rolls back, None means not known yet."""
Check = Callable[[StoredMessage], Decision | Awaitable[Decision]]
"""Returns how the transaction of a message ended."""


class TransactionListener(Protocol):
    """RocketMQ's API for transactions. Both methods may be `async def`."""

    def execute(self, message: Message, argument: object) -> Decision | Awaitable[Decision]:
        """Run the local transaction of a stored half message."""

    def check(self, message: StoredMessage) -> Decision | Awaitable[Decision]:
        """Return how the local transaction ended."""


class TransactionResult(NamedTuple):
    """Where the half message was stored, and how the transaction was decided."""

    sent: SendResult
    state: TransactionState


class Half(NamedTuple):
    """A stored half message without a decision."""

    out: Outgoing
    sent: SendResult


class Transactions:
    """The transactions of one producer."""

    def __init__(
        self,
        instance: Instance,
        outbox: Outbox,
        settings: ProducerSettings,
        hooks: HookList,
        check: Check | None,
    ) -> None:
        self._instance = instance
        self._outbox = outbox
        self._settings = settings
        self._hooks = hooks
        self._check = check
        self._group = wrap(settings.namespace, settings.group)
        self._open: set[str] = set()
        self._decided: OrderedDict[str, TransactionState] = OrderedDict()
        self._checks: set[asyncio.Task[None]] = set()
        self._turns = asyncio.Semaphore(CHECKS_AT_ONCE)

    @property
    def has_check(self) -> bool:
        return self._check is not None

    async def send_half(self, message: Message, destination: Destination, timeout_s: float | None) -> Half:
        """Store a half message. If it is not stored safely, roll it back and raise the error of its status."""
        out = self._outbox.packer.pack_half(message)
        self._open.add(out.message_id)
        try:
            sent = await self._outbox.deliver(out, destination, timeout_s)
        except BaseException:
            # It may be stored nevertheless; then it must never be committed.
            self._remember(out.message_id, TransactionState.ROLLBACK)
            raise
        half = Half(out, sent)
        if not sent.is_ok:
            await self.decide([half], TransactionState.ROLLBACK)
            raise error_for(ResponseCode[sent.status], "the half message is not stored safely and was rolled back")
        return half

    async def decide(self, halves: Sequence[Half], state: TransactionState) -> None:
        """Send the decision to the brokers. A lost decision is not an error: the broker checks the transaction later.

        All decisions are recorded before the first is sent, so that checks find them after any failure.
        """
        for half in halves:
            if state is TransactionState.UNKNOWN:
                self._open.discard(half.out.message_id)
            else:
                self._remember(half.out.message_id, state)
        for half in halves:
            await self._send_decision(half, state)
            if self._hooks.watch_decisions:
                self._notify_decision(half, state)

    async def _send_decision(self, half: Half, state: TransactionState) -> None:
        out, sent = half
        header = EndTransaction(
            producer_group=self._group,
            tran_state_table_offset=sent.queue_offset,
            commit_log_offset=OffsetId.parse(sent.offset_id).offset,
            commit_or_rollback=state,
            msg_id=out.message_id,
            topic=out.topic,
            from_transaction_check=False,
            transaction_id=sent.transaction_id,
        )
        broker_name = sent.queue.broker_name
        try:
            await self._instance.brokers.messages.end_transaction(broker_name, broker_name, header)
        except PocketMQError as error:
            log.warning("cannot send decision %s for transaction %s to %s; the broker will check it: %s",
                        state.name, out.message_id, broker_name, error)  # fmt: skip

    def handle_check(
        self, peer: Peer, header: CheckTransactionState, message: StoredMessage, broker_name: str | None
    ) -> None:
        """Handle a broker's check of a transaction. The answer is sent later; above `max_waiting_checks`, none is sent."""
        if len(self._checks) >= self._settings.max_waiting_checks:
            log.warning(
                "%d transaction checks already wait; ignoring one from %s, which will repeat it",
                len(self._checks),
                peer.address,
            )
            return
        task = asyncio.get_running_loop().create_task(self._answer(peer, header, message, broker_name))
        self._checks.add(task)
        task.add_done_callback(self._checks.discard)

    async def close(self) -> None:
        """Cancel all running checks."""
        for task in self._checks:
            task.cancel()
        if self._checks:
            await asyncio.wait(self._checks)

    async def _answer(
        self, peer: Peer, header: CheckTransactionState, message: StoredMessage, broker_name: str | None
    ) -> None:
        transaction_id = header.transaction_id or message.message_id
        async with self._turns:
            state = await self._state_of(transaction_id, message)
        answer = EndTransaction(
            producer_group=self._group,
            tran_state_table_offset=header.tran_state_table_offset,
            commit_log_offset=header.commit_log_offset,
            commit_or_rollback=state,
            msg_id=message.message_id,
            topic=header.topic,
            from_transaction_check=True,
            transaction_id=header.transaction_id,
        )
        extra = {"bname": broker_name} if broker_name else None
        try:
            rpc = self._instance.rpc
            rpc.send_one_way(peer, rpc.command(RequestCode.END_TRANSACTION, answer, extra=extra))
        except PocketMQError as error:
            log.warning(
                "cannot answer the check of %s for transaction %s; the broker will repeat it: %s",
                peer.address,
                transaction_id,
                error,
            )
        if self._hooks.watch_decisions:
            self._notify_checked(peer, header, message, state)

    async def _state_of(self, transaction_id: str, message: StoredMessage) -> TransactionState:
        if transaction_id in self._open:
            return TransactionState.UNKNOWN
        if (state := self._decided.get(transaction_id)) is not None:
            return state
        assert self._check is not None, "only producers with a check receive checks"
        try:
            return state_of(await call(self._check, readable(message, self._settings.namespace)))
        except Exception:
            log.exception("check failed for transaction %s; the broker will repeat it", transaction_id)
            return TransactionState.UNKNOWN

    def _remember(self, transaction_id: str, state: TransactionState) -> None:
        self._open.discard(transaction_id)
        self._decided[transaction_id] = state
        if len(self._decided) > MAX_REMEMBERED:
            self._decided.popitem(last=False)

    def _notify_decision(self, half: Half, state: TransactionState) -> None:
        self._hooks.after_decision(
            DecisionEvent(
                group=self._settings.group,
                message=half.out.message,
                topic=half.sent.queue.topic,
                message_id=half.out.message_id,
                transaction_id=half.sent.transaction_id,
                state=state,
                address=str(OffsetId.parse(half.sent.offset_id).host),
                at_ms=self._instance.clock.now_ms(),
                from_check=False,
            )
        )

    def _notify_checked(
        self, peer: Peer, header: CheckTransactionState, message: StoredMessage, state: TransactionState
    ) -> None:
        self._hooks.after_decision(
            DecisionEvent(
                group=self._settings.group,
                message=message,
                topic=readable(message, self._settings.namespace).topic,
                message_id=message.message_id,
                transaction_id=header.transaction_id,
                state=state,
                address=str(peer.address),
                at_ms=self._instance.clock.now_ms(),
                from_check=True,
            )
        )


def state_of(decision: Decision) -> TransactionState:
    """The state for a decision of user code; UsageError when it is invalid."""
    if isinstance(decision, TransactionState):
        return decision
    if decision is None:
        return TransactionState.UNKNOWN
    if isinstance(decision, bool):
        return TransactionState.COMMIT if decision else TransactionState.ROLLBACK
    raise UsageError(f"invalid transaction decision {decision!r}; return True, False, None or a TransactionState")


class Transaction:
    """Messages of one topic that are committed or rolled back at the end of a block.

    Each message has its own decision. After a crash between two decisions, the broker checks each open one.
    """

    def __init__(self, topic: str, transactions: Transactions, hooks: HookList) -> None:
        self._topic = topic
        self._transactions = transactions
        self._hooks = hooks
        self._halves: list[Half] = []
        self.state: TransactionState | None = None
        """The decision; None while the transaction is open."""

    async def send(self, message: object, **options: Unpack[SendOptions]) -> SendResult:
        """Store a message. Consumers receive it after the commit."""
        timeout_s = checked_seconds(options.pop("timeout_s", None))
        return await self.deliver(*self.addressed(message, options), timeout_s)

    def addressed(self, message: object, options: QueueOptions) -> tuple[Message, Destination]:
        """The given message, or a new one for the topic of this transaction, and its destination."""
        if isinstance(message, Message):
            return addressed(self._hooks, message, None, options)
        return addressed(self._hooks, self._topic, message, options)

    async def deliver(self, message: Message, destination: Destination, timeout_s: float | None) -> SendResult:
        """`send` for a message that already has the properties of hooks."""
        if self.state is not None:
            raise WrongState(f"this transaction has ended with {self.state.name}; start another one")
        half = await self._transactions.send_half(message, destination, timeout_s)
        self._halves.append(half)
        return half.sent

    async def commit(self) -> None:
        """Commit now, instead of at the end of the block."""
        await self.end(TransactionState.COMMIT)

    async def roll_back(self) -> None:
        """Roll back now; the block continues."""
        await self.end(TransactionState.ROLLBACK)

    async def leave_open(self) -> None:
        """End without a decision: the broker checks the transaction later."""
        await self.end(TransactionState.UNKNOWN)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self.state is None:
            await self.end(TransactionState.COMMIT if error is None else TransactionState.ROLLBACK)

    async def end(self, state: TransactionState) -> None:
        """Commit, roll back or leave open; WrongState when the transaction has ended."""
        if self.state is not None:
            raise WrongState(f"this transaction has ended with {self.state.name} already")
        self.state = state
        await self._transactions.decide(self._halves, state)

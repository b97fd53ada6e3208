"""One transaction, as a block: `async with producer.transaction("orders") as tx:`. It commits at the end, rolls back on an exception."""

from types import TracebackType
from typing import Self, Unpack

from pocketmq.client.hooks import HookList
from pocketmq.client.message_options import MessageOptions, message_of
from pocketmq.client.queue_choice import wish_for
from pocketmq.client.results import SendResult
from pocketmq.client.selectors import QueueSelector
from pocketmq.client.transactions import Half, Transactions
from pocketmq.errors import WrongState
from pocketmq.model.flags import TransactionState
from pocketmq.model.message import Message
from pocketmq.model.queue import MessageQueue


class Transaction:
    """Messages of one topic that become visible together with whatever the block does.

    Each is decided by itself: a crash between two decisions is made good by `check`, for each of them.
    """

    def __init__(self, topic: str, transactions: Transactions, hooks: HookList) -> None:
        self._topic = topic
        self._transactions = transactions
        self._hooks = hooks
        self._halves: list[Half] = []
        self.state: TransactionState | None = None
        """How it was decided; None while it is open."""

    async def send(
        self,
        message: object,
        *,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        selector_key: object = None,
        timeout_s: float | None = None,
        **options: Unpack[MessageOptions],
    ) -> SendResult:
        """Store a message that nobody sees until the block has ended well."""
        if self.state is not None:
            raise WrongState(f"this transaction has ended with {self.state.name}; begin another one")
        made = self._hooks.carrying(self.message_of(message, options))
        wish = wish_for(made, queue, selector, selector_key)
        half = await self._transactions.send_half(made, wish, timeout_s)
        self._halves.append(half)
        return half.sent

    def message_of(self, message: object, options: MessageOptions) -> Message:
        """The message that is meant: the one that was given, or a new one to the topic of this transaction."""
        return message if isinstance(message, Message) else message_of(self._topic, message, options)

    async def commit(self) -> None:
        """Show its messages now. The end of the block does it otherwise."""
        await self.end(TransactionState.COMMIT)

    async def roll_back(self) -> None:
        """Drop its messages now, and leave the block as usual."""
        await self.end(TransactionState.ROLLBACK)

    async def leave_open(self) -> None:
        """Decide nothing: the broker asks `check` later."""
        await self.end(TransactionState.UNKNOWN)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self.state is None:
            await self.end(TransactionState.COMMIT if error is None else TransactionState.ROLLBACK)

    async def end(self, state: TransactionState) -> None:
        """Decide it. Whoever does so twice gets WrongState."""
        if self.state is not None:
            raise WrongState(f"this transaction has ended with {self.state.name} already")
        self.state = state
        await self._transactions.decide(self._halves, state)

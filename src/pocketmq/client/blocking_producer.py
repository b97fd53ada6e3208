"""The producer for code that does not await: the same words as `AsyncProducer`.

    with Producer("127.0.0.1:9876", group="orders") as producer:
        producer.send("orders", b"…", keys="42")

Any number of threads may use it at once. In the child of a fork (gunicorn, multiprocessing, Spark) it connects anew by itself, the
first time that it is used there. Inside a running event loop it refuses: there, `AsyncProducer` is what you want.
"""

import asyncio
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from types import TracebackType
from typing import NamedTuple, Never, Self, Unpack, cast

from pocketmq.client.blocking import BlockingClient
from pocketmq.client.blocking_room import BlockingRoom
from pocketmq.client.calling import is_async
from pocketmq.client.direct_sends import DirectSends, Failed
from pocketmq.client.hooks import HookList, Hooks
from pocketmq.client.life import State
from pocketmq.client.mailbox import Mailbox
from pocketmq.client.message_options import MessageOptions, message_of
from pocketmq.client.outgoing import Outgoing
from pocketmq.client.producer import AsyncProducer
from pocketmq.client.queue_choice import Wish, wish_for
from pocketmq.client.results import SendResult
from pocketmq.client.selectors import QueueSelector
from pocketmq.client.settings import ProducerOptions, ProducerSettings
from pocketmq.client.transaction import Transaction
from pocketmq.client.transactions import Check, Decision, TransactionListener, TransactionResult, state_of
from pocketmq.clock import SystemClock
from pocketmq.errors import TooManyCalls, WrongState
from pocketmq.model.flags import TransactionState
from pocketmq.model.message import Message, StoredMessage
from pocketmq.model.queue import MessageQueue
from pocketmq.model.suggesting import refuse_unknown
from pocketmq.net.portal import refuse_in_a_loop


class _Handed(NamedTuple):
    """A message that a thread handed over."""

    message: Message
    queue: MessageQueue | None
    selector: QueueSelector | None
    selector_key: object
    timeout_s: float | None
    future: Future[SendResult]


class Producer(BlockingClient[AsyncProducer]):
    """Sends messages. Options are those of `AsyncProducer`; `check` and `listener` are plain functions or `async def`."""

    def __init__(
        self,
        name_servers: str | Sequence[str] | None = None,
        *,
        check: Check | None = None,
        listener: TransactionListener | None = None,
        hooks: Iterable[Hooks] = (),
        **options: Unpack[ProducerOptions],
    ) -> None:
        hooks = tuple(hooks)
        super().__init__(
            lambda: AsyncProducer(name_servers, check=check, listener=listener, hooks=hooks, **options), "producer"
        )
        self.hooks = HookList(hooks)
        self._listener = listener
        self._room = self._new_room()
        self._mailbox: Mailbox[_Handed]
        self._clock = SystemClock()
        self._direct: DirectSends | None = None
        self._is_direct = self.settings.tls is False and self.settings.linger_ms == 0

    @property
    def settings(self) -> ProducerSettings:
        return self._core.settings

    @property
    def client_id(self) -> str:
        """How brokers call this client."""
        return self.core().client_id

    @property
    def in_flight(self) -> int:
        """Messages that were handed over and are not done yet."""
        if self._state is not State.RUNNING:
            return self._core.in_flight
        core = self.core()
        return core.in_flight + len(self._mailbox)

    # sending

    def send(
        self,
        message: Message | str,
        body: object = None,
        *,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        selector_key: object = None,
        timeout_s: float | None = None,
        **options: Unpack[MessageOptions],
    ) -> SendResult:
        """Send a message and wait until it is stored: `send(message)` or `send("topic", b"body", keys="42")`."""
        made = self.hooks.carrying(message_of(message, body, options))
        core = self.core()
        if self._is_direct:
            refuse_in_a_loop()
            wish = wish_for(made, queue, selector, selector_key)
            # In a queue that was chosen it must not overtake what was submitted before, which goes another way.
            if wish.is_any or self._room.is_empty:
                result = self._send_directly(core, core.packer.pack(made), wish, timeout_s)
                if result is not None:
                    return result
        return self.call(
            core.send(made, queue=queue, selector=selector, selector_key=selector_key, timeout_s=timeout_s)
        )

    def submit(
        self,
        message: Message | str,
        body: object = None,
        *,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        selector_key: object = None,
        timeout_s: float | None = None,
        **options: Unpack[MessageOptions],
    ) -> Future[SendResult]:
        """Send without waiting for the result; while too much is on its way, this waits for room.

        The future's callbacks run on the client's own thread and must not block it.
        """
        made = self.hooks.carrying(message_of(message, body, options))
        self.core()
        size = len(made.body)
        self._room.take(size)
        future: Future[SendResult] = Future()
        future.add_done_callback(lambda _: self._room.give(size))
        try:
            self._mailbox.put(_Handed(made, queue, selector, selector_key, timeout_s, future))
        except RuntimeError:
            future.cancel()  # its room is free again
            raise WrongState("the producer was stopped while this message was handed over") from None
        return future

    def send_one_way(
        self,
        message: Message | str,
        body: object = None,
        *,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        selector_key: object = None,
        **options: Unpack[MessageOptions],
    ) -> None:
        """Send a message that nobody confirms. It may be lost, and nobody will know."""
        made = self.hooks.carrying(message_of(message, body, options))
        core = self.core()
        self.call(core.send_one_way(made, queue=queue, selector=selector, selector_key=selector_key))

    def send_many(
        self,
        messages: Iterable[Message],
        *,
        queue: MessageQueue | None = None,
        timeout_s: float | None = None,
        **unknown: Never,
    ) -> list[SendResult]:
        """Send messages in batches; their results in the same order. PartlySent when some were stored and others not."""
        refuse_unknown("send_many", unknown, ("queue", "timeout_s"))
        core = self.core()
        return self.call(core.send_many(list(map(self.hooks.carrying, messages)), queue=queue, timeout_s=timeout_s))

    def flush(self) -> None:
        """Send what waits for others to share a batch, and return when it is done."""
        core = self.core()
        self.call(core.flush())

    def queues(self, topic: str) -> list[MessageQueue]:
        """The queues of a topic that can be written to; TopicNotFound when it does not exist."""
        core = self.core()
        return self.call(core.queues(topic))

    def recall(self, topic: str, handle: str, *, timeout_s: float | None = None) -> str:
        """Take a timed message back before it is due, by the `recall_handle` of its send; its message id."""
        core = self.core()
        return self.call(core.recall(topic, handle, timeout_s=timeout_s))

    # request and reply

    def request(
        self,
        message: Message | str,
        body: object = None,
        *,
        timeout_s: float,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        selector_key: object = None,
        **options: Unpack[MessageOptions],
    ) -> StoredMessage:
        """Send a message and wait for the reply to it; CallTimedOut when none comes in time."""
        made = self.hooks.carrying(message_of(message, body, options))
        core = self.core()
        return self.call(
            core.request(made, timeout_s=timeout_s, queue=queue, selector=selector, selector_key=selector_key)
        )

    def reply(self, request: StoredMessage, body: object, *, timeout_s: float | None = None) -> SendResult:
        """Answer a request that a consumer got."""
        core = self.core()
        return self.call(core.reply(request, body, timeout_s=timeout_s))

    # transactions

    def transaction(self, topic: str) -> "BlockingTransaction":
        """`with producer.transaction("orders") as tx:` and in it `tx.send(b"…")`."""
        return BlockingTransaction(self, self.core().transaction(topic))

    def send_in_transaction(
        self, message: Message, argument: object = None, *, timeout_s: float | None = None
    ) -> TransactionResult:
        """Store `message`, let the listener `execute` in this thread, and do as it says.

        When it raises, the broker is left to ask `check`, for nobody knows what was done; the error goes on.
        """
        core, listener = self.core(), self._listener
        if listener is None or is_async(listener.execute):
            return self.call(core.send_in_transaction(self.hooks.carrying(message), argument, timeout_s=timeout_s))
        transaction = self.transaction(message.topic)
        sent = transaction.send(message, timeout_s=timeout_s)
        try:
            state = state_of(cast("Decision", listener.execute(message, argument)))
        except BaseException:
            transaction.leave_open()
            raise
        transaction.end(state)
        return TransactionResult(sent, state)

    def stop(self) -> None:
        if self._direct is not None:
            self._direct.close()
        was_running = self._state is State.RUNNING
        super().stop()
        if was_running:
            for handed in self._mailbox.left():  # too late for the loop that would have taken them
                if handed.future.set_running_or_notify_cancel():
                    handed.future.set_exception(WrongState("the producer was stopped before this message was sent"))

    def _send_directly(
        self, core: AsyncProducer, out: Outgoing, wish: Wish, timeout_s: float | None
    ) -> SendResult | None:
        """Past the loop, see `direct_sends`; None when that does not go."""
        assert self._direct is not None, "made by the start"
        seconds = self.settings.send_timeout_ms / 1000 if timeout_s is None else timeout_s
        started = self._clock.monotonic()
        outcome = self._direct.attempt(out, wish, seconds)
        if not isinstance(outcome, Failed):
            return outcome
        left_s = seconds - (self._clock.monotonic() - started)
        return self.call(core.sender.go_on(out, wish, left_s, outcome.queue, outcome.failure))

    def _new_room(self) -> BlockingRoom:
        return BlockingRoom(self.settings.max_in_flight_messages, self.settings.max_in_flight_bytes)

    def _forked(self) -> None:
        """What was on its way, and who held a lock, are the parent's."""
        super()._forked()
        self._room = self._new_room()
        if self._direct is not None:
            self._direct.lines.begin_anew()

    def _started(self) -> None:
        self._mailbox = Mailbox(self.call(_running_loop()), self._take)
        if self._direct is not None:
            self._direct.close()  # that of the parent of this process: only its descriptors here
        connect_s = self.settings.connect_timeout_ms / 1000
        self._direct = DirectSends(self._core.sender, self._clock, connect_s=connect_s)

    def _take(self, handed: _Handed) -> None:
        """On the loop: a message that a thread handed over."""
        future = handed.future
        if not future.set_running_or_notify_cancel():
            return
        message, queue, selector, key, timeout_s, _ = handed
        core = self._core
        try:
            sent = core.submit(message, queue=queue, selector=selector, selector_key=key, timeout_s=timeout_s)
        except TooManyCalls:  # others send too, and wait for their results
            sending = core.send(message, queue=queue, selector=selector, selector_key=key, timeout_s=timeout_s)
            sent = asyncio.get_running_loop().create_task(sending)
        except Exception as error:  # of the user's selector as well
            future.set_exception(error)
            return
        sent.add_done_callback(lambda done: _pass_on(done, future))


class BlockingTransaction:
    """One transaction, as a block; see `transaction.Transaction`."""

    def __init__(self, producer: Producer, transaction: Transaction) -> None:
        self._producer = producer
        self._transaction = transaction

    @property
    def state(self) -> TransactionState | None:
        """How it was decided; None while it is open."""
        return self._transaction.state

    def send(
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
        return self._producer.call(
            self._transaction.send(
                self._producer.hooks.carrying(self._transaction.message_of(message, options)),
                queue=queue,
                selector=selector,
                selector_key=selector_key,
                timeout_s=timeout_s,
            )
        )

    def commit(self) -> None:
        """Show its messages now. The end of the block does it otherwise."""
        self.end(TransactionState.COMMIT)

    def roll_back(self) -> None:
        """Drop its messages now, and leave the block as usual."""
        self.end(TransactionState.ROLLBACK)

    def leave_open(self) -> None:
        """Decide nothing: the broker asks `check` later."""
        self.end(TransactionState.UNKNOWN)

    def end(self, state: TransactionState) -> None:
        """Decide it."""
        self._producer.call(self._transaction.end(state))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self.state is None:
            self.end(TransactionState.COMMIT if error is None else TransactionState.ROLLBACK)


async def _running_loop() -> asyncio.AbstractEventLoop:
    return asyncio.get_running_loop()


def _pass_on(done: asyncio.Future[SendResult], future: Future[SendResult]) -> None:
    if done.cancelled():
        future.set_exception(WrongState("the producer was stopped while this message was being sent"))
    elif error := done.exception():
        future.set_exception(error)
    else:
        future.set_result(done.result())

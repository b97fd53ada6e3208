"""The producer for code without `async`, with the same methods as `AsyncProducer`.

    with Producer("127.0.0.1:9876", group="orders") as producer:
        producer.send("orders", b"…", keys="42")

Any number of threads may use it at the same time. In a forked child (gunicorn, multiprocessing, Spark) it connects again when it is first
used there. It must not be used inside a running event loop; use `AsyncProducer` there.

A thread that waits for its result sends over a blocking socket, without the event loop:

    thread ── an idle connection, or a new one ──► request ──► response ──► SendResult
                    └─ too many connections, no route yet, no master, batches, hooks, TLS, an order to keep: the loop sends

Only the first attempt is made so. The loop handles failures and all requests from brokers: these connections never send a heartbeat, so
a broker sends only responses over them. Threads only read the loop's state (routes, addresses). It may have just changed, which is the
same as for a message that is already in flight.
"""

from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from types import TracebackType
from typing import Final, NamedTuple, Never, Self, Unpack, cast

from pocketmq.client.blocking import BlockingClient, Mailbox, blocking
from pocketmq.client.hooks import HookList, Hooks, checked_hooks
from pocketmq.client.lifecycle import State, is_async
from pocketmq.client.producer.outbox import Outbox
from pocketmq.client.producer.outgoing import Outgoing, QueueOptions, SendOptions, addressed
from pocketmq.client.producer.pending import BlockingInFlightLimit
from pocketmq.client.producer.producer import AsyncProducer
from pocketmq.client.producer.queue_choice import Destination
from pocketmq.client.producer.results import SendResult, result_of
from pocketmq.client.producer.transactions import (
    Check,
    Decision,
    Transaction,
    TransactionListener,
    TransactionResult,
    state_of,
)
from pocketmq.client.settings import ProducerOptions, ProducerSettings, checked_seconds
from pocketmq.clock import Clock, SystemClock
from pocketmq.codes import TransactionState
from pocketmq.errors import ConnectFailed, PocketMQError, WrongState
from pocketmq.model import Message, MessageQueue, StoredMessage
from pocketmq.model.names import refuse_unknown
from pocketmq.net import Address, refuse_in_a_loop
from pocketmq.net.blocking import BlockingConnection, IdleConnections

MAX_CONNECTIONS: Final = 64
"""Connections to one broker. When all are busy, the loop sends."""
LEAST_CONNECT_S: Final = 0.001
"""A timeout of 0 would make the socket non-blocking."""


class Failed(NamedTuple):
    """A failed first attempt: the arguments of `Attempts.continue_after`."""

    out: Outgoing
    destination: Destination
    left_s: float
    queue: MessageQueue
    failure: PocketMQError


class DirectSends:
    """The blocking connections of one producer. Thread-safe."""

    def __init__(self, outbox: Outbox, clock: Clock, *, connect_s: float) -> None:
        self._outbox = outbox
        self._clock = clock
        self._unreached: set[Address] = set()
        """Addresses that cannot be connected. Threads do not try them until the loop is connected, see `Reconnects`."""

        def connect(address: Address, within_s: float) -> BlockingConnection:
            return BlockingConnection(address, clock, connect_s=max(min(connect_s, within_s), LEAST_CONNECT_S))

        self.connections = IdleConnections(connect, most=MAX_CONNECTIONS)

    def attempt(
        self, message: Message, destination: Destination, timeout_s: float | None = None
    ) -> SendResult | Failed | None:
        """Pack a message and make the first attempt to send it; None when the loop must send it."""
        out = self._outbox.packer.pack(message)
        timeout_s = self._outbox.timeout_s if timeout_s is None else timeout_s
        deadline = self._clock.monotonic() + timeout_s
        target = self._outbox.direct_target(out, destination)
        if target is None:
            return None
        queue, address = target
        if self._unreached and address in self._unreached:
            if not self._outbox.is_connected(address):
                return None
            self._unreached.discard(address)
        try:
            connection = self.connections.take(address, timeout_s)
            if connection is None:
                return None
            try:
                number = connection.next_number()
                frame = self._outbox.frames.encode(out, queue, self._clock.now_ms(), number)
                # The same timeout for every message saves a system call, see `blocking_connection`.
                left_s = timeout_s if number > 1 else deadline - self._clock.monotonic()
                # Threads that poll for their responses at the same time would keep each other from running.
                answer = connection.exchange(number, frame, left_s, watches=self.connections.in_use == 1)
            finally:
                self.connections.give(connection)
            return result_of(answer, out.message_id, self._outbox.choice.shown(queue))
        except PocketMQError as failure:
            if isinstance(failure, ConnectFailed):
                self._unreached.add(address)
            return Failed(out, destination, deadline - self._clock.monotonic(), queue, failure)

    def close(self) -> None:
        """Close idle connections now and the others after use. May be called twice."""
        self.connections.close()


class _Submitted(NamedTuple):
    """A message that a thread submitted."""

    message: Message
    destination: Destination
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
        hooks = checked_hooks(hooks)
        super().__init__(
            lambda: AsyncProducer(name_servers, check=check, listener=listener, hooks=hooks, **options), "producer"
        )
        self.hooks = HookList(hooks)
        self._listener = listener
        self._limit = self._new_limit()
        self._mailbox: Mailbox[_Submitted] | None = None
        self._direct: DirectSends | None = None
        self._is_direct = self.settings.tls is False and self.settings.linger_ms == 0

    @property
    def settings(self) -> ProducerSettings:
        return self._core.settings

    @property
    def client_id(self) -> str:
        """The client id that brokers know."""
        return self.core().client_id

    @property
    def in_flight(self) -> int:
        """Messages that were sent or submitted and have no result yet."""
        core = self.core() if self._state is State.RUNNING else self._core
        return core.in_flight + len(self._mailbox or ())

    # sending

    def send(self, message: Message | str, body: object = None, **options: Unpack[SendOptions]) -> SendResult:
        """Send a message and wait until it is stored: `send(message)` or `send("topic", b"body", keys="42")`."""
        timeout_s = checked_seconds(options.pop("timeout_s", None))
        made, destination = addressed(self.hooks, message, body, options)
        core, direct = self.core(), self._direct
        if direct is not None and self._is_direct:
            refuse_in_a_loop()
            # In a chosen queue it must not overtake submitted messages, which the loop sends.
            if destination.is_any or self._limit.is_empty:
                outcome = direct.attempt(made, destination, timeout_s)
                if isinstance(outcome, Failed):
                    return self.call(core.member.outbox.attempts.continue_after(*outcome))
                if outcome is not None:
                    return outcome
        return self.call(core.deliver(made, destination, timeout_s))

    def submit(self, message: Message | str, body: object = None, **options: Unpack[SendOptions]) -> Future[SendResult]:
        """Send without waiting for the result. Waits while the in-flight limit is reached.

        Callbacks of the future run on the client's own thread and must not block.
        """
        timeout_s = checked_seconds(options.pop("timeout_s", None))
        made, destination = addressed(self.hooks, message, body, options)
        self.core()
        mailbox = self._mailbox
        assert mailbox is not None, "made by the start"
        size = len(made.body)
        self._limit.acquire(size)
        future: Future[SendResult] = Future()
        future.add_done_callback(lambda _: self._limit.release(size))
        try:
            mailbox.put(_Submitted(made, destination, timeout_s, future))
        except RuntimeError:
            future.cancel()  # counts as in flight no longer
            raise WrongState("the producer was stopped while this message was submitted") from None
        return future

    def send_one_way(self, message: Message | str, body: object = None, **options: Unpack[QueueOptions]) -> None:
        """Send a message without confirmation. It may be lost without an error."""
        made, destination = addressed(self.hooks, message, body, options)
        outbox = self.core().member.outbox
        self.call(outbox.send_one_way(outbox.packer.pack(made), destination))

    def send_many(
        self,
        messages: Iterable[Message],
        *,
        queue: MessageQueue | None = None,
        timeout_s: float | None = None,
        **unknown: Never,
    ) -> list[SendResult]:
        """Send messages in batches; returns their results in the same order. PartlySent when only some were stored."""
        refuse_unknown("send_many", unknown, ("queue", "timeout_s"))
        core = self.core()
        return self.call(
            core.send_many(list(map(self.hooks.with_extra_properties, messages)), queue=queue, timeout_s=timeout_s)
        )

    flush = blocking(AsyncProducer.flush)
    queues = blocking(AsyncProducer.queues)
    recall = blocking(AsyncProducer.recall)

    # request and reply

    def request(
        self, message: Message | str, body: object = None, *, timeout_s: float, **options: Unpack[QueueOptions]
    ) -> StoredMessage:
        """Send a message and wait for its reply; CallTimedOut when no reply arrives in time."""
        checked_seconds(timeout_s)
        made, destination = addressed(self.hooks, message, body, options)
        return self.call(self.core().member.requests.request(made, destination, timeout_s))

    reply = blocking(AsyncProducer.reply)

    # transactions

    def transaction(self, topic: str) -> "BlockingTransaction":
        """`with producer.transaction("orders") as tx:` and in it `tx.send(b"…")`."""
        return BlockingTransaction(self, self.core().transaction(topic))

    def send_in_transaction(
        self, message: Message, argument: object = None, *, timeout_s: float | None = None
    ) -> TransactionResult:
        """Store `message`, call `execute` of the listener in this thread, and commit or roll back by its result.

        When `execute` raises, the transaction stays open and the broker calls `check` later; the error is raised.
        """
        core, listener = self.core(), self._listener
        if listener is None or is_async(listener.execute):
            return self.call(
                core.send_in_transaction(self.hooks.with_extra_properties(message), argument, timeout_s=timeout_s)
            )
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
        super().stop()
        for submitted in self._mailbox.undelivered() if self._mailbox is not None else ():  # the loop has ended
            if submitted.future.set_running_or_notify_cancel():
                submitted.future.set_exception(WrongState("the producer was stopped before this message was sent"))

    def _new_limit(self) -> BlockingInFlightLimit:
        return BlockingInFlightLimit(self.settings.max_in_flight_messages, self.settings.max_in_flight_bytes)

    def _forked(self) -> None:
        """Messages in flight and locks belong to the parent process."""
        super()._forked()
        self._limit = self._new_limit()
        if self._direct is not None:
            self._direct.connections.reset_after_fork()

    def _started(self) -> None:
        outbox = self._core.member.outbox
        self._mailbox = Mailbox(outbox.loop, self._submit)
        if self._direct is not None:
            self._direct.close()  # in a forked child, this closes the inherited descriptors
        connect_s = self.settings.connect_timeout_ms / 1000
        self._direct = DirectSends(outbox, SystemClock(), connect_s=connect_s)

    def _submit(self, submitted: _Submitted) -> None:
        """On the loop: send a message that a thread submitted."""
        if submitted.future.set_running_or_notify_cancel():
            try:
                self._core.submit_from_thread(*submitted)
            except Exception as error:  # includes errors of a user's selector
                submitted.future.set_exception(error)


class BlockingTransaction:
    """A transaction as a `with` block; see `transactions.Transaction`."""

    def __init__(self, producer: Producer, transaction: Transaction) -> None:
        self._transaction = transaction
        self.call = producer.call

    def core(self) -> Transaction:
        return self._transaction

    @property
    def state(self) -> TransactionState | None:
        """The decision; None while the transaction is open."""
        return self._transaction.state

    def send(self, message: object, **options: Unpack[SendOptions]) -> SendResult:
        """Store a message. Consumers receive it after the commit."""
        timeout_s = checked_seconds(options.pop("timeout_s", None))
        made, destination = self._transaction.addressed(message, options)
        return self.call(self._transaction.deliver(made, destination, timeout_s))

    commit = blocking(Transaction.commit)
    roll_back = blocking(Transaction.roll_back)
    leave_open = blocking(Transaction.leave_open)
    end = blocking(Transaction.end)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self.state is None:
            self.end(TransactionState.COMMIT if error is None else TransactionState.ROLLBACK)

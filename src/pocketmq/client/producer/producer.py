"""`AsyncProducer` sends messages. `blocking_producer.Producer` is the same for code without `async`.

new ── start ──► running ── stop, waits for messages in flight ──► stopped
                    │
send, submit ───────┤  pack, then the outbox sends it with others   see `outbox`, `batches`
send_many ──────────┤  batches, one after the other                 see `send_member`
transaction ────────┤  half message, then commit or rollback        see `transactions`
request, reply ─────┘  a message and its reply                      see `send_member`

This module is the public part. The running producer is a member of its group, see `send_member`.
"""

import asyncio
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Final, Never, Unpack

from pocketmq.client.cluster.identity import generation
from pocketmq.client.cluster.instance import Dependencies
from pocketmq.client.hooks import HookList, Hooks, checked_hooks
from pocketmq.client.lifecycle import AsyncClient, State, call
from pocketmq.client.producer.fault_strategy import SendKind
from pocketmq.client.producer.outgoing import QueueOptions, SendOptions, addressed, require_messages
from pocketmq.client.producer.pending import InFlightLimit, PendingSend, TopicBuffer, resolve
from pocketmq.client.producer.queue_choice import Destination, destination_of
from pocketmq.client.producer.results import SendResult
from pocketmq.client.producer.send_member import SendMember
from pocketmq.client.producer.transactions import Check, Transaction, TransactionListener, TransactionResult, state_of
from pocketmq.client.settings import (
    DEFAULT_PRODUCER_GROUP,
    ProducerOptions,
    ProducerSettings,
    checked_seconds,
    settings_of,
)
from pocketmq.client.telemetry.tracing import Traced, Tracer
from pocketmq.codes import TransactionState
from pocketmq.errors import InvalidSetting, WrongState
from pocketmq.model import Message, MessageQueue, StoredMessage
from pocketmq.model.message_id import RecallHandle
from pocketmq.model.names import refuse_unknown, wrap
from pocketmq.protocol.api.messages import RecallMessage

_AWAITED: Final = SendKind.AWAITED
_SUBMITTED: Final = SendKind.CALLBACK


class AsyncProducer(AsyncClient):
    """Sends messages. Use it as `async with AsyncProducer("127.0.0.1:9876", group="orders") as producer:`.

    `name_servers` and all other options are those of `ProducerSettings`. Transactions need `check`, or a `listener` with
    `execute` and `check`; both may be plain functions or `async def`. `hooks` run for every attempt.
    """

    def __init__(
        self,
        name_servers: str | Sequence[str] | None = None,
        *,
        check: Check | None = None,
        listener: TransactionListener | None = None,
        hooks: Iterable[Hooks] = (),
        dependencies: Dependencies | None = None,
        **options: Unpack[ProducerOptions],
    ) -> None:
        super().__init__("producer")
        self._settings = settings_of(ProducerSettings, name_servers, options, ("hooks", "check", "listener"))
        if check is not None and listener is not None:
            raise InvalidSetting("set check or listener, not both: a listener has its own check")
        self._check = listener.check if listener is not None else check
        if self._check is not None and self._settings.group == DEFAULT_PRODUCER_GROUP:
            raise InvalidSetting(
                "transactions need group=…: brokers send a transaction check to any member of the group"
            )
        self._listener = listener
        self._dependencies = dependencies or Dependencies()
        self._limit = InFlightLimit(self._settings.max_in_flight_messages, self._settings.max_in_flight_bytes)
        hooks = checked_hooks(hooks)
        self._tracer = None
        if self._settings.trace:
            self._tracer = Tracer(self._settings, self._settings.group, Traced.SENDS, self._dependencies)
            hooks = (*hooks, self._tracer)
        self._hooks = HookList(hooks)
        self._member: SendMember | None = None
        self._late: deque[PendingSend] = deque()  # submitted by threads while the in-flight limit was reached
        self._buffers: dict[object, TopicBuffer] = {}  # empty unless the producer runs, see `outbox`

    # lifecycle

    async def start(self) -> None:
        """Start the producer. It does not wait for servers, so it does not fail when none runs."""
        self._require_new()
        self._member = SendMember(
            self._settings, self._hooks, self._limit, self._tracer, self._check, self._dependencies
        )
        self._buffers = self._member.outbox.plain_buffers
        self._state = State.RUNNING

    async def _end(self) -> None:
        assert self._member is not None, "it was started"
        await self._member.stop()

    @property
    def member(self) -> SendMember:
        """The running member of the producer group."""
        if self._member is None or self._state is not State.RUNNING or self._made_in != generation():
            self._require_running()
        assert self._member is not None, "it runs"
        return self._member

    @property
    def settings(self) -> ProducerSettings:
        return self._settings

    @property
    def client_id(self) -> str:
        """The client id that brokers know."""
        return self.member.instance.client_id

    @property
    def in_flight(self) -> int:
        """Messages that were sent or submitted and have no result yet."""
        return self._limit.count

    # sending

    async def send(self, message: Message | str, body: object = None, **options: Unpack[SendOptions]) -> SendResult:
        """Send a message and wait until it is stored: `send(message)` or `send("topic", b"body", keys="42")`.

        Waits first while the in-flight limit is reached. A message with a `queue` or a `selector` is only sent to the
        chosen queue, without retries.
        """
        if not options and (buffer := self._buffers.get(message)) is not None:
            future = buffer.outbox.put_plain(buffer, body, _AWAITED)
            if future is not None:
                return await future
        if self._state is not State.RUNNING:
            self._require_running()
        timeout_s = checked_seconds(options.pop("timeout_s", None))
        return await self.deliver(*addressed(self._hooks, message, body, options), timeout_s)

    def submit(
        self, message: Message | str, body: object = None, **options: Unpack[SendOptions]
    ) -> asyncio.Future[SendResult]:
        """Send without waiting: returns the future of the result, which accepts `add_done_callback`.

        TooManyCalls when the in-flight limit is reached; `await producer.wait_for_capacity()` before the next call. Only lost
        connections and timeouts are retried, not errors from a broker.
        """
        if not options and (buffer := self._buffers.get(message)) is not None:
            future = buffer.outbox.put_plain(buffer, body, _SUBMITTED)
            if future is not None:
                return future
        outbox, timeout_s = self.member.outbox, checked_seconds(options.pop("timeout_s", None))
        made, destination = addressed(self._hooks, message, body, options)
        future = outbox.loop.create_future()
        if not outbox.put(outbox.pack(made, destination, _SUBMITTED, timeout_s, future)):
            self._limit.refuse()
        return future

    async def deliver(self, message: Message, destination: Destination, timeout_s: float | None) -> SendResult:
        """`send` for a message that already has the properties of hooks."""
        outbox = self.member.outbox
        if outbox.lingers and destination.selector is not None:
            seconds = outbox.timeout_s if timeout_s is None else timeout_s
            destination = await outbox.choice.pinned(message, destination, outbox.loop.time() + seconds)
        future: asyncio.Future[SendResult] = outbox.loop.create_future()
        pending = outbox.pack(message, destination, _AWAITED, timeout_s, future)
        if self._late:
            self._late.append(pending)
        elif not outbox.put(pending):
            await self._put_when_possible(pending)
        return await future

    def submit_from_thread(
        self, message: Message, destination: Destination, timeout_s: float | None, future: Future[SendResult]
    ) -> None:
        """`submit` for a message of a thread. When the in-flight limit is reached, the message waits here."""
        outbox = self.member.outbox
        pending = outbox.pack(message, destination, _SUBMITTED, timeout_s, future)
        if self._late or not outbox.put(pending):  # it must not overtake waiting messages
            self._late.append(pending)
            if len(self._late) == 1:
                self._put_first_late()

    async def wait_for_capacity(self) -> None:
        """Wait until one more message may be in flight."""
        self._require_running()
        await self._limit.acquire(1, 1)
        self._limit.release(1, 1)

    async def send_one_way(self, message: Message | str, body: object = None, **options: Unpack[QueueOptions]) -> None:
        """Send a message without confirmation. It may be lost without an error."""
        outbox = self.member.outbox
        made, destination = addressed(self._hooks, message, body, options)
        await outbox.send_one_way(outbox.packer.pack(made), destination)

    async def send_many(
        self,
        messages: Iterable[Message],
        *,
        queue: MessageQueue | None = None,
        timeout_s: float | None = None,
        **unknown: Never,
    ) -> list[SendResult]:
        """Send messages in batches, one after the other, in their order; returns their results in the same order.

        All messages are validated before the first is sent. When a batch fails after others were stored, PartlySent
        has the results of those that were stored. `timeout_s` applies to each batch.
        """
        refuse_unknown("send_many", unknown, ("queue", "timeout_s"))
        bulk = self.member.bulk
        checked_seconds(timeout_s)
        prepared = [self._hooks.with_extra_properties(message) for message in messages]
        try:
            return await bulk.send(prepared, queue, timeout_s)
        except AttributeError:
            require_messages(prepared)
            raise

    async def flush(self) -> None:
        """Send all waiting batches, and wait until they are done."""
        await self.member.outbox.flush()

    async def queues(self, topic: str) -> list[MessageQueue]:
        """The writable queues of a topic; TopicNotFound when it does not exist."""
        return await self.member.outbox.choice.all_of(topic)

    async def recall(self, topic: str, handle: str, *, timeout_s: float | None = None) -> str:
        """Recall a timed message before it is delivered, by the `recall_handle` of its send; returns its message id."""
        checked_seconds(timeout_s)
        instance = self.member.instance
        wire_topic = wrap(self._settings.namespace, topic)
        header = RecallMessage(wire_topic, handle, self.member.wire_group)
        broker_name = RecallHandle.parse(handle).broker_name
        await instance.routes.find(wire_topic)
        return await instance.brokers.messages.recall(broker_name, header, timeout_s=timeout_s)

    # request and reply

    async def request(
        self, message: Message | str, body: object = None, *, timeout_s: float, **options: Unpack[QueueOptions]
    ) -> StoredMessage:
        """Send a message and wait for its reply; CallTimedOut when no reply arrives in time."""
        checked_seconds(timeout_s)
        requests = self.member.requests
        return await requests.request(*addressed(self._hooks, message, body, options), timeout_s)

    async def reply(
        self,
        request: StoredMessage,
        body: object,
        *,
        properties: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
    ) -> SendResult:
        """Send the reply to a request that a consumer received."""
        return await self.member.requests.reply(request, body, properties, checked_seconds(timeout_s))

    # transactions

    def transaction(self, topic: str) -> Transaction:
        """`async with producer.transaction("orders") as tx:` and in it `await tx.send(b"…")`."""
        transactions = self.member.transactions
        if not transactions.has_check:
            raise WrongState(
                "transactions need check=…: a function that returns how a transaction ended when a broker checks it"
            )
        return Transaction(topic, transactions, self._hooks)

    async def send_in_transaction(
        self, message: Message, argument: object = None, *, timeout_s: float | None = None
    ) -> TransactionResult:
        """RocketMQ's API for transactions: store `message`, call `execute` of the listener, and commit or roll back.

        When `execute` raises, the transaction stays open and the broker calls `check` later; the error is raised.
        """
        checked_seconds(timeout_s)
        transactions = self.member.transactions
        if self._listener is None:
            raise WrongState("send_in_transaction needs listener=…, an object with `execute` and `check`")
        with_extra_properties = self._hooks.with_extra_properties(message)
        half = await transactions.send_half(with_extra_properties, destination_of(message, None, None, None), timeout_s)
        try:
            state = state_of(await call(self._listener.execute, message, argument))
        except BaseException:
            await transactions.decide([half], TransactionState.UNKNOWN)
            raise
        await transactions.decide([half], state)
        return TransactionResult(half.sent, state)

    async def _put_when_possible(self, pending: PendingSend) -> None:
        await self._limit.acquire(1, pending.size)
        try:
            outbox = self.member.outbox
        except WrongState:
            self._limit.release(1, pending.size)
            raise
        if pending.future.done():  # cancelled
            self._limit.release(1, pending.size)
        else:
            outbox.put(pending, is_counted=True)

    def _put_first_late(self) -> None:
        putting = self.member.outbox.loop.create_task(self._put_when_possible(self._late[0]))
        putting.add_done_callback(self._late_was_put)

    def _late_was_put(self, putting: asyncio.Task[None]) -> None:
        """Callback for the first waiting message: put the next ones."""
        late = self._late
        late.popleft().putting_ended(putting)
        while late:
            if putting.cancelled() or self._state is not State.RUNNING:
                resolve(late[0].future, WrongState("the producer was stopped before this message was sent"))
            elif not late[0].future.done() and not self.member.outbox.put(late[0]):
                self._put_first_late()
                return
            late.popleft()

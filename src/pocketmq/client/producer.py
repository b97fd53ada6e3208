"""The producer: sends messages. `blocking_producer.Producer` is the same for code that does not await.

new ── start ──► running ── stop: what is on its way is waited for ──► stopped
                    │
send, submit ───────┤  room ── usual: together at the end of the turn ──► broker  see `room`, `usual_messages`, `outbox`
                    │       └─ else: batch? ── route ── queue ── line ──► broker  see `batching`, `sending`
transaction ────────┤  half message, then a decision                              see `transactions`
request, reply ─────┘  a message and its answer                                   see `requests`

This is what users see of it. What it is made of, and what brokers see, is a member of its group: see `send_member`.
"""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Final, Never, Unpack

from pocketmq.client.batching import Batching, BatchKind
from pocketmq.client.calling import call
from pocketmq.client.hooks import Hooks
from pocketmq.client.instance import Surroundings
from pocketmq.client.life import Living, State
from pocketmq.client.message_options import MessageOptions, message_of
from pocketmq.client.outbox import Outbox, Tray
from pocketmq.client.outgoing import Packer
from pocketmq.client.queue_choice import Wish, wish_for
from pocketmq.client.results import SendResult
from pocketmq.client.retries import SendKind
from pocketmq.client.selectors import QueueSelector
from pocketmq.client.send_member import SendMember
from pocketmq.client.sending import Sender
from pocketmq.client.settings import DEFAULT_PRODUCER_GROUP, ProducerOptions, ProducerSettings, settings_of
from pocketmq.client.transaction import Transaction
from pocketmq.client.transactions import Check, TransactionListener, TransactionResult, state_of
from pocketmq.client.usual_messages import UsualMessage, UsualMessages
from pocketmq.errors import InvalidSetting, WrongState
from pocketmq.model.flags import TransactionState
from pocketmq.model.message import Message, StoredMessage
from pocketmq.model.names import wrap
from pocketmq.model.queue import MessageQueue
from pocketmq.model.suggesting import refuse_unknown
from pocketmq.protocol.api.sending import RecallMessage
from pocketmq.protocol.recall_handle import RecallHandle

_AWAITED: Final = SendKind.AWAITED
_SUBMITTED: Final = SendKind.CALLBACK


class AsyncProducer(Living):
    """Sends messages. Use it as `async with AsyncProducer("127.0.0.1:9876", group="orders") as producer:`.

    `name_servers` and all other options are those of `ProducerSettings`. `check`, or a `listener` with `execute` and
    `check`, makes transactions possible; both may be plain functions or `async def`. `hooks` hear of every attempt.
    """

    def __init__(
        self,
        name_servers: str | Sequence[str] | None = None,
        *,
        check: Check | None = None,
        listener: TransactionListener | None = None,
        hooks: Iterable[Hooks] = (),
        surroundings: Surroundings | None = None,
        **options: Unpack[ProducerOptions],
    ) -> None:
        super().__init__("producer")
        self._settings = settings_of(ProducerSettings, name_servers, options, ("hooks", "check", "listener"))
        if check is not None and listener is not None:
            raise InvalidSetting("give check or listener, not both: a listener brings its own check")
        self._check = listener.check if listener is not None else check
        if self._check is not None and self._settings.group == DEFAULT_PRODUCER_GROUP:
            raise InvalidSetting(
                "transactions need a group of their own: brokers ask any member of the group how a transaction ended"
            )
        self._listener = listener
        self._member = SendMember(self._settings, hooks, self._check, surroundings or Surroundings())
        self._hooks = self._member.hooks
        self._room = self._member.room
        self._lingers = self._settings.linger_ms > 0
        # What each send looks at, without a detour.
        self.sender: Sender
        self.packer: Packer
        self._batching: Batching
        self._outbox: Outbox
        self._usual: UsualMessages
        self._trays: dict[object, Tray] = {}  # who finds one here knows that the producer runs, see `usual_messages`
        self._usual_bytes = 0
        self._usual_overhead = 0

    # its life

    async def start(self) -> None:
        """Take part. Nothing is asked of any server yet, so it does not fail when none is there."""
        self._require_new()
        member = self._member
        member.start()
        self.sender, self.packer, self._batching = member.sender, member.packer, member.batching
        self._outbox, self._usual, self._trays = member.outbox, member.usual, member.usual.trays
        self._usual_bytes, self._usual_overhead = self.packer.usual_bytes, self.packer.usual_overhead
        self._state = State.RUNNING

    async def _end(self) -> None:
        await self._member.stop()

    @property
    def settings(self) -> ProducerSettings:
        return self._settings

    @property
    def client_id(self) -> str:
        """How brokers call this client."""
        self._require_running()
        return self._member.instance.client_id

    @property
    def in_flight(self) -> int:
        """Messages that were handed over and are not done yet."""
        return self._room.count

    # sending

    async def send(
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
        """Send a message and wait until it is stored: `send(message)` or `send("topic", b"body", keys="42")`.

        While too much is on its way this waits for room first. A `queue`, or one that a `selector` chooses, is kept to:
        there is no other attempt then.
        """
        if not options and queue is None and selector is None and selector_key is None and timeout_s is None:
            tray = self._trays.get(message)
            if tray is not None and type(body) is bytes and 0 < len(body) < self._usual_bytes:
                size = len(body) + self._usual_overhead
                future = self._outbox.put(tray, body, "", size, _AWAITED)
                if future is None:
                    return await self._put_when_there_is_room(UsualMessage(tray, body, "", size, _AWAITED))
                return await future
        if self._state is not State.RUNNING:
            self._require_running()
        made = self._hooks.carrying(message_of(message, body, options))
        wish = wish_for(made, queue, selector, selector_key)
        if timeout_s is None and (found := self._usual.find(made, wish, _AWAITED)) is not None:
            return await (self._outbox.put(*found) or self._put_when_there_is_room(found))
        if self._lingers:
            wish = wish if wish.selector is None else await self._pinned(made, wish, timeout_s)
            kind = self._batching.kind_of(made, wish)
            if kind is not None:
                return await self._send_with_others(made, wish, kind, timeout_s)
        out = self.packer.pack(made)
        size = out.size
        if not self._room.try_take(1, size):
            await self._room.take(1, size)
        try:
            if self._state is not State.RUNNING:
                self._require_running()
            return await self.sender.deliver(out, wish, timeout_s)
        finally:
            self._room.give(1, size)

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
    ) -> asyncio.Future[SendResult]:
        """Send without waiting: the future of the result; `add_done_callback` makes it a callback.

        TooManyCalls when there is no room for it; `await producer.wait_room()` helps. A broker's refusal is not tried
        again on this road, only lost lines and time-outs are.
        """
        if not options and queue is None and selector is None and selector_key is None and timeout_s is None:
            tray = self._trays.get(message)
            if tray is not None and type(body) is bytes and 0 < len(body) < self._usual_bytes:
                size = len(body) + self._usual_overhead
                return self._outbox.put(tray, body, "", size, _SUBMITTED) or self._room.refuse()
        if self._state is not State.RUNNING:
            self._require_running()
        made = self._hooks.carrying(message_of(message, body, options))
        wish = wish_for(made, queue, selector, selector_key)
        if timeout_s is None and (usual := self._usual.find(made, wish, _SUBMITTED)) is not None:
            return self._outbox.put(*usual) or self._room.refuse()
        kind = None
        if self._lingers:
            wish = wish if wish.selector is None else self.sender.choice.pinned_at_once(made, wish)
            kind = self._batching.kind_of(made, wish) if wish.selector is None else None
        if kind is None:
            return self.sender.submit(self.packer.pack(made), wish, timeout_s)
        size = len(made.body)
        self._room.take_now(1, size)
        try:
            return self._batching.add(made, wish, kind, size, timeout_s)
        except BaseException:
            self._room.give(1, size)
            raise

    async def wait_room(self) -> None:
        """Return when there is room for one more message."""
        self._require_running()
        await self._room.take(1, 1)
        self._room.give(1, 1)

    async def send_one_way(
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
        self._require_running()
        made = self._hooks.carrying(message_of(message, body, options))
        wish = wish_for(made, queue, selector, selector_key)
        await self.sender.tell(self.packer.pack(made), wish)

    async def send_many(
        self,
        messages: Iterable[Message],
        *,
        queue: MessageQueue | None = None,
        timeout_s: float | None = None,
        **unknown: Never,
    ) -> list[SendResult]:
        """Send messages in batches, one after the other, in their order; their results in the same order.

        All are checked before the first is sent. When a batch fails after others were stored, PartlySent tells which.
        `timeout_s` is for each batch.
        """
        refuse_unknown("send_many", unknown, ("queue", "timeout_s"))
        self._require_running()
        return await self._member.bulk.send([self._hooks.carrying(message) for message in messages], queue, timeout_s)

    async def flush(self) -> None:
        """Send what waits for others to share a batch, and return when it is done."""
        self._require_running()
        await self._batching.flush()

    async def queues(self, topic: str) -> list[MessageQueue]:
        """The queues of a topic that can be written to; TopicNotFound when it does not exist."""
        self._require_running()
        return await self.sender.choice.all_of(topic)

    async def recall(self, topic: str, handle: str, *, timeout_s: float | None = None) -> str:
        """Take a timed message back before it is due, by the `recall_handle` of its send; its message id."""
        self._require_running()
        wire_topic = wrap(self._settings.namespace, topic)
        header = RecallMessage(wire_topic, handle, self._member.wire_group)
        broker_name = RecallHandle.parse(handle).broker_name
        instance = self._member.instance
        await instance.routes.find(wire_topic)
        return await instance.brokers.messages.recall(broker_name, header, timeout_s=timeout_s)

    # request and reply

    async def request(
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
        self._require_running()
        made = self._hooks.carrying(message_of(message, body, options))
        wish = wish_for(made, queue, selector, selector_key)
        return await self._member.requests.request(made, wish, timeout_s)

    async def reply(self, request: StoredMessage, body: object, *, timeout_s: float | None = None) -> SendResult:
        """Answer a request that a consumer got."""
        self._require_running()
        return await self._member.requests.reply(request, body, timeout_s)

    # transactions

    def transaction(self, topic: str) -> Transaction:
        """`async with producer.transaction("orders") as tx:` and in it `await tx.send(b"…")`."""
        self._require_running()
        if not self._member.transactions.has_check:
            raise WrongState(
                "transactions need check=…: a function that looks up how one ended, for when a broker has to ask"
            )
        return Transaction(topic, self._member.transactions, self._hooks)

    async def send_in_transaction(
        self, message: Message, argument: object = None, *, timeout_s: float | None = None
    ) -> TransactionResult:
        """RocketMQ's own way: store `message`, let the listener `execute`, and do as it says.

        When it raises, the broker is left to ask `check`, for nobody knows what was done; the error goes on.
        """
        self._require_running()
        if self._listener is None:
            raise WrongState("send_in_transaction needs listener=…, an object with `execute` and `check`")
        carrying = self._hooks.carrying(message)
        half = await self._member.transactions.send_half(carrying, wish_for(message, None, None, None), timeout_s)
        try:
            state = state_of(await call(self._listener.execute, message, argument))
        except BaseException:
            await self._member.transactions.decide([half], TransactionState.UNKNOWN)
            raise
        await self._member.transactions.decide([half], state)
        return TransactionResult(half.sent, state)

    async def _put_when_there_is_room(self, usual: UsualMessage) -> SendResult:
        await self._room.take(1, usual.size)
        try:
            self._require_running()
            future = self._outbox.put(*usual, has_room=True)
        except BaseException:
            self._room.give(1, usual.size)
            raise
        assert future is not None, "it has room"
        return await future

    async def _send_with_others(
        self, message: Message, wish: Wish, kind: BatchKind, timeout_s: float | None
    ) -> SendResult:
        size = len(message.body)
        await self._room.take(1, size)
        try:
            self._require_running()
            future = self._batching.add(message, wish, kind, size, timeout_s)
        except BaseException:
            self._room.give(1, size)
            raise
        return await future

    async def _pinned(self, message: Message, wish: Wish, timeout_s: float | None) -> Wish:
        seconds = self._settings.send_timeout_ms / 1000 if timeout_s is None else timeout_s
        return await self.sender.choice.pinned(message, wish, asyncio.get_running_loop().time() + seconds)

"""The simple consumer: brokers lease messages to it, and its user acknowledges them. `SimpleConsumer` is the same for
code that does not use asyncio.

    async with AsyncSimpleConsumer("127.0.0.1:9876", group="billing") as consumer:
        await consumer.subscribe("orders")
        for message in await consumer.receive(invisible_s=30):
            ...
            await consumer.ack(message)

    receive ──► pops from each topic and broker in turn ──┬─ messages ──► leases ──► user
                     ▲                                    └─ none
                     └───── there may be messages ◄── a watch of each ──┘

There is no rebalance: a pop asks for messages of all queues. It never waits at the broker, so that no message is leased
to a caller that is gone. A watch is a request that waits (NOTIFICATION), and leases nothing.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AsyncExitStack
from math import inf
from typing import Final, Never, Unpack

from msgspec.structs import replace

from pocketmq.client.cluster.instance import Dependencies, Instance
from pocketmq.client.consumer.async_consumer import AsyncConsumer
from pocketmq.client.consumer.consume_stats import shown_settings
from pocketmq.client.consumer.group_member import GroupMember, MemberParts
from pocketmq.client.consumer.leases import LeaseCounts, LeaseTable
from pocketmq.client.consumer.listening import ConsumeEvents
from pocketmq.client.consumer.popping import ALL_QUEUES, Popping, require_pop
from pocketmq.client.consumer.pulling import PullEvents
from pocketmq.client.consumer.settings import BOUNDS, SimpleOptions, SimpleSettings, refuse_subscribe_arguments
from pocketmq.client.consumer.subscriptions import SubscriptionTable, filter_of
from pocketmq.client.hooks import HookList, Hooks, checked_hooks
from pocketmq.client.settings import checked_seconds
from pocketmq.client.telemetry.tracing import Traced, Tracer
from pocketmq.errors import PocketMQError, TopicNotFound, UsageError
from pocketmq.files import Files
from pocketmq.model import MessageQueue, StoredMessage
from pocketmq.model.names import refuse_unknown
from pocketmq.protocol.api.messages import Notification
from pocketmq.protocol.bodies.clients import ConsumerRunningInfo, ConsumeType, PopProcessQueueInfo
from pocketmq.protocol.bodies.topics import ResetOffsets

log = logging.getLogger("pocketmq.client")

MAX_MESSAGES: Final = 32
"""Brokers refuse pops of more messages."""
ONE_WATCH_S: Final = 5.0
"""How long a watch waits at the broker if there is only one."""
WATCH_S: Final = 1.0
"""The same with several: one of them may be left alone, and get the notice of a message instead of another member."""
FAILED_S: Final = 1.0
"""Pause after a failed request."""
FIRST_PAUSE_S: Final = 0.02
"""Pause when a watch reports messages and a pop returns none, doubled each time."""


class SimpleMember(GroupMember):
    """The group member of a simple consumer. Topics have their wire names; messages have those of users."""

    def __init__(
        self,
        settings: SimpleSettings,
        hooks: HookList,
        instance: Instance,
        files: Files,
        subscriptions: SubscriptionTable,
        tracer: Tracer | None,
    ) -> None:
        super().__init__(MemberParts(settings, instance, files, subscriptions, hooks), ConsumeType.CONSUME_POP)
        self._turn = 0
        self._watches: dict[MessageQueue, asyncio.Task[bool]] = {}
        self._pops: set[asyncio.Task[list[StoredMessage]]] = set()
        self._ready: deque[StoredMessage] = deque()
        """Received messages that no caller has: the rest of an iteration, or of a `receive` that was cancelled."""
        self._logged: dict[str, str] = {}
        self._popped_ms: dict[MessageQueue, int] = {}
        """When each source was popped last."""
        self._tracer = tracer
        consumption = ConsumeEvents(hooks, settings.group, settings.namespace, instance.clock, timeout_ms=inf)
        self.leases = LeaseTable(instance.brokers.leases, instance.clock, self._group, consumption)
        events = PullEvents(hooks, settings.group, settings.namespace)
        hold_s = settings.max_hold_ms / 1000 if settings.auto_renew else None
        self._popping = Popping(instance, settings, subscriptions, self.leases, events, hold_s=hold_s)

    # lifecycle

    async def start(self) -> None:
        async with AsyncExitStack() as undo:
            undo.push_async_callback(self._instance.leave)
            undo.push_async_callback(self._instance.remove_consumer, self)
            if self._tracer is not None:
                self._tracer.start()
                undo.push_async_callback(self._tracer.stop)
            await self._sources()
            self._instance.add_consumer(self)
            await self._instance.heartbeats.send_to_all(self._instance.brokers)
            for source in await self._sources():
                require_pop(self._instance, source.broker_name)
            undo.pop_all()
        self.leases.start()

    async def stop(self, drain_s: float) -> None:
        """Leave the group. Messages that are not acknowledged return when their time is over."""
        tasks = [*self._watches.values(), *self._pops]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        await self.leases.stop()
        if self._tracer is not None:
            await self._tracer.stop()
        await self._instance.remove_consumer(self)
        await self._instance.leave()

    # subscriptions

    def running_info(self, *, stacks: bool) -> ConsumerRunningInfo:
        info = super().running_info(stacks=stacks)
        properties = {**info.properties, **shown_settings(self._settings), **self.leases.counts().shown()}
        popped = {
            source: PopProcessQueueInfo(self.leases.count(source), False, at) for source, at in self._popped_ms.items()
        }
        return replace(info, properties=properties, mq_pop_table=popped)

    async def subscribe(self, topic: str, expression: str | None, kind: str) -> None:
        self._subscriptions.subscribe(topic, expression, kind, now_ms=self._clock.now_ms())
        self._instance.heartbeat_soon()

    async def unsubscribe(self, topic: str) -> None:
        if self._subscriptions.unsubscribe(topic):
            self._popped_ms = {source: at for source, at in self._popped_ms.items() if source.topic != topic}
            self._instance.heartbeat_soon()

    async def _sources(self) -> list[MessageQueue]:
        """Where to pop. A topic that does not exist is logged once, and looked for again by the next call."""
        found: list[MessageQueue] = []
        for subscription in self._subscriptions:
            topic = subscription.topic
            try:
                route = await self._instance.routes.find(topic)
            except PocketMQError as error:
                if not error.retriable and not isinstance(error, TopicNotFound):
                    raise
                self._log_failure(topic, error)
                continue
            self._logged.pop(topic, None)
            found += dict.fromkeys(MessageQueue(topic, queue.broker_name, ALL_QUEUES) for queue in route.readable)
        return found

    # messages

    async def receive(self, limit: int, invisible_s: float, wait_s: float) -> list[StoredMessage]:
        """Up to `limit` messages; none after `wait_s`. Raises the error of the brokers if none answered until then."""
        if not len(self._subscriptions):
            raise UsageError("there is no subscription: call subscribe(topic) before receive()")
        if waiting := self._take_ready(limit):
            return waiting
        deadline = self._clock.monotonic() + wait_s
        pause_s, reported = FIRST_PAUSE_S, False
        while True:
            sources = await self._sources()
            messages, error = await self._pop_any(sources, limit, invisible_s)
            left_s = deadline - self._clock.monotonic()
            if messages or left_s <= 0:
                if error is not None and not messages:
                    raise error
                return messages
            if error is not None or not sources:
                await asyncio.sleep(min(left_s, FAILED_S))
                continue
            if reported:
                await asyncio.sleep(min(left_s, pause_s))
                pause_s = min(2 * pause_s, FAILED_S)
            reported = await self._wait(sources, deadline - self._clock.monotonic())

    async def next_message(self, invisible_s: float, wait_s: float) -> StoredMessage | None:
        """One message of an iteration. The others of its pop wait here, and are left out when their lease is over."""
        if not (found := self._take_ready(1)):
            found = await self.receive(MAX_MESSAGES, invisible_s, wait_s)
            self._ready.extend(found[1:])
        return found[0] if found else None

    def _take_ready(self, limit: int) -> list[StoredMessage]:
        found: list[StoredMessage] = []
        while self._ready and len(found) < limit:
            message = self._ready.popleft()
            if self.leases.holds(message):
                found.append(message)
        return found

    async def _pop_any(
        self, sources: Sequence[MessageQueue], limit: int, invisible_s: float
    ) -> tuple[list[StoredMessage], PocketMQError | None]:
        """The messages of the first source that has any, beginning with another one each time. Or the last error, if no
        broker answered.
        """
        self._turn += 1
        failures: list[PocketMQError] = []
        for at in range(len(sources)):
            source = sources[(self._turn + at) % len(sources)]
            self._popped_ms[source] = self._clock.now_ms()
            try:
                messages = await self._pop(source, limit, invisible_s)
            except PocketMQError as error:
                if not error.retriable:
                    raise
                self._log_failure(source.broker_name, error)
                failures.append(error)
                continue
            self._logged.pop(source.broker_name, None)
            if messages:
                return messages, None
        return [], failures[-1] if failures and len(failures) == len(sources) else None

    async def _pop(self, source: MessageQueue, limit: int, invisible_s: float) -> list[StoredMessage]:
        """One pop. If the caller is cancelled meanwhile, the next one gets its messages."""
        task = asyncio.get_running_loop().create_task(self._popped(source, limit, invisible_s))
        self._pops.add(task)
        task.add_done_callback(self._pops.discard)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            task.add_done_callback(self._put_back)
            raise

    async def _popped(self, source: MessageQueue, limit: int, invisible_s: float) -> list[StoredMessage]:
        return self._popping.for_user(await self._popping.pop(source, limit, invisible_s))

    def _put_back(self, task: "asyncio.Task[list[StoredMessage]]") -> None:
        if not task.cancelled() and task.exception() is None:
            self._ready.extend(task.result())

    # waiting

    async def _wait(self, sources: Sequence[MessageQueue], left_s: float) -> bool:
        """Wait until a broker may have messages; False after the time."""
        hold_s = min(left_s, ONE_WATCH_S if len(sources) == 1 else WATCH_S)
        for source in [source for source, task in self._watches.items() if task.done() or source not in sources]:
            if self._watches[source].done():
                del self._watches[source]
        if hold_s <= 0:
            return False
        loop = asyncio.get_running_loop()
        for source in sources:
            if source not in self._watches:
                self._watches[source] = loop.create_task(self._watch(source, hold_s))
        done, _ = await asyncio.wait(
            [self._watches[source] for source in sources], timeout=left_s, return_when=asyncio.FIRST_COMPLETED
        )
        return any(task.result() for task in done if not task.cancelled())

    async def _watch(self, source: MessageQueue, hold_s: float) -> bool:
        """Whether there may be messages. Failures take a while."""
        subscription = self._subscriptions.get(source.topic)
        header = Notification(
            self._group,
            source.topic,
            ALL_QUEUES,
            poll_time=round(hold_s * 1000),
            born_time=0,
            exp_type=None if subscription is None else subscription.expression_type,
            exp=None if subscription is None else subscription.sub_string,
        )
        timeout_s = hold_s + self._settings.call_timeout_ms / 1000
        try:
            reply = await self._instance.brokers.leases.wait(source.broker_name, header, timeout_s=timeout_s)
        except PocketMQError as error:
            self._log_failure(source.broker_name, error)
            await asyncio.sleep(FAILED_S)
            return False
        if reply.polling_full:
            await asyncio.sleep(FAILED_S)
        return reply.has_msg

    def _log_failure(self, what: str, error: PocketMQError) -> None:
        """Log a failure once until its kind changes, or a request succeeds."""
        kind = type(error).__name__
        if self._logged.get(what) != kind:
            self._logged[what] = kind
            log.warning("Group %s cannot receive from %s: %s; retrying", self._group, what, error)

    # for the client instance; see `cluster.serving`

    def rebalance_soon(self) -> None:
        """Members own no queues."""

    def route_changed(self, topic: str) -> None:
        """Each pop uses the known route."""

    async def reset_offsets(self, topic: str, offsets: ResetOffsets) -> None:
        """The broker has the offsets."""


class AsyncSimpleConsumer(AsyncConsumer[SimpleMember, SimpleSettings]):
    """A member of a consumer group to which brokers lease messages. The options are those of `SimpleSettings`; `group` is
    required. `hooks` are called for pops, and may filter; and for the time from `receive` to the ack or the end of the lease.
    """

    def __init__(
        self,
        name_servers: str | Sequence[str] | None = None,
        *,
        hooks: Iterable[Hooks] = (),
        dependencies: Dependencies | None = None,
        **options: Unpack[SimpleOptions],
    ) -> None:
        refuse_subscribe_arguments(options, ("tags", "sql"), "subscribe()")
        super().__init__(SimpleSettings, name_servers, options, dependencies, is_stream=True)
        settings = self._settings
        self._tracer = (
            Tracer(settings, settings.group, Traced.CONSUMPTION, self._dependencies) if settings.trace else None
        )
        self._hooks = HookList(hooks if self._tracer is None else (*checked_hooks(hooks), self._tracer))
        self._subscriptions = SubscriptionTable(self._settings.wire_group, 0, with_retries=False)

    def _make_member(self, instance: Instance) -> SimpleMember:
        files = self._dependencies.files
        return SimpleMember(self._settings, self._hooks, instance, files, self._subscriptions, self._tracer)

    # subscriptions

    async def subscribe(
        self, /, topic: str, *, tags: str | None = None, sql: str | None = None, **unknown: Never
    ) -> None:
        """Receive messages of `topic`. All members of a group must have the same subscriptions."""
        refuse_unknown("subscribe", unknown, ("tags", "sql"))
        expression, kind = filter_of(topic, tags, sql)
        name = self._wire_topic(topic)
        if self.is_new:
            self._subscriptions.subscribe(name, expression, kind, now_ms=self._dependencies.clock.now_ms())
        else:
            await self._run(self._member.subscribe(name, expression, kind))

    async def unsubscribe(self, topic: str) -> None:
        name = self._wire_topic(topic)
        if self.is_new:
            self._subscriptions.unsubscribe(name)
        else:
            await self._run(self._member.unsubscribe(name))

    # messages

    async def receive(
        self,
        /,
        max_messages: int = MAX_MESSAGES,
        *,
        invisible_s: float | None = None,
        wait_s: float | None = None,
        **unknown: Never,
    ) -> list[StoredMessage]:
        """Messages that are leased to this consumer for `invisible_s`; an empty list if there are none for `wait_s`.

        Acknowledge each of them before its time is over; otherwise the broker delivers it again, with one attempt more.
        """
        refuse_unknown("receive", unknown, ("max_messages", "invisible_s", "wait_s"))
        if type(max_messages) is not int or not 1 <= max_messages <= MAX_MESSAGES:
            raise UsageError(f"max_messages = {max_messages!r} must be a whole number from 1 to {MAX_MESSAGES}")
        lease_s = self._settings.invisible_ms / 1000
        if invisible_s is not None:
            lease_s = _checked_invisible(invisible_s, BOUNDS["invisible_ms"][0])
        seconds = self._settings.wait_ms / 1000 if wait_s is None else checked_seconds(wait_s)
        return await self._run(self._member.receive(max_messages, lease_s, seconds))

    async def next_message(self) -> StoredMessage | None:
        """The next message of an iteration; None if there is none for `wait_ms`."""
        settings = self._settings
        return await self._run(self._member.next_message(settings.invisible_ms / 1000, settings.wait_ms / 1000))

    async def __aiter__(self) -> AsyncIterator[StoredMessage]:
        """The messages one by one, until the consumer is stopped. Acknowledge each of them."""
        self._require_running()
        while self.is_running:
            message = await self.next_message()
            if message is not None:
                yield message

    async def ack(self, messages: StoredMessage | Iterable[StoredMessage]) -> None:
        """Acknowledge received messages: they are not delivered again.

        Raises LeaseLost for messages whose time is over, after the others are acknowledged. After another error, call it
        again with the same messages.
        """
        chosen = [messages] if isinstance(messages, StoredMessage) else list(messages)
        for message in chosen:
            _require_message(message)
        await self._run(self._member.leases.acknowledge(chosen))

    async def change_invisible(self, message: StoredMessage, seconds: float) -> None:
        """Lease a received message for so many seconds from now on; with 0 it returns at once. `auto_renew` does not extend
        it any more. Raises LeaseLost if its time is over.
        """
        _require_message(message)
        await self._run(self._member.leases.change(message, _checked_invisible(seconds, 0)))

    @property
    def leases(self) -> LeaseCounts:
        """Leased messages, and what became of former ones."""
        return self._member.leases.counts()

    @property
    def open_leases(self) -> int:
        """Received messages that are neither acknowledged nor over."""
        return len(self._member.leases)


def _checked_invisible(seconds: float, least_ms: int) -> float:
    most_ms = BOUNDS["invisible_ms"][1]
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not least_ms <= seconds * 1000 <= most_ms:
        raise UsageError(
            f"an invisible time of {seconds!r} s is not possible: expected a number from {least_ms // 1000} to {most_ms // 1000}"
        )
    return seconds


def _require_message(message: object) -> None:
    if not isinstance(message, StoredMessage):
        raise UsageError(f"{message!r} is {type(message).__name__}, not a message that receive() returned")

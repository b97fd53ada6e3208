"""The pull consumer: its user decides what is pulled, and when. `blocking_pull_consumer.PullConsumer` is its blocking face.

    async with AsyncPullConsumer("127.0.0.1:9876", group="audit") as consumer:
        for queue in await consumer.queues("orders"):
            result = await consumer.pull(queue, await consumer.committed(queue) or 0)
            ...
            await consumer.commit({queue: result.next_offset})

Nothing is pulled ahead, nothing is shared out, nothing is committed by itself. A pull that finds nothing is no error: its status says so.

A member of a group that pulls what its user asks for, and nothing by itself: what pull consumers are made of.

It owns no queues. Who wants to know which ones would be its share registers for a topic, and is told with every change.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Final, Unpack

from msgspec.structs import replace

from pocketmq.client.cluster.instance import Instance, Surroundings
from pocketmq.client.cluster.routes import QueueNames
from pocketmq.client.consumer.allocation import AVERAGE
from pocketmq.client.consumer.async_consumer import AsyncConsumer
from pocketmq.client.consumer.consume_events import PullEvents
from pocketmq.client.consumer.consume_result import Verdict
from pocketmq.client.consumer.listener import as_seen
from pocketmq.client.consumer.lite_pull_consumer import QueuesChanged
from pocketmq.client.consumer.offsets import LocalFolder, Offsets, offset_store
from pocketmq.client.consumer.pulling import Pulling, PullResult
from pocketmq.client.consumer.rebalance import All, ByStrategy, OnShared, Rebalance
from pocketmq.client.consumer.retry_sender import RetrySender
from pocketmq.client.consumer.settings import PullOptions, PullSettings, SubscriptionTable, filter_of
from pocketmq.client.hooks import HookList, Hooks
from pocketmq.client.settings import settings_of
from pocketmq.errors import PocketMQError, ServerFailed, UsageError
from pocketmq.files import Files
from pocketmq.model.delay import delay_level_fault
from pocketmq.model.flags import PullFlag
from pocketmq.model.message import StoredMessage
from pocketmq.model.names import wrap
from pocketmq.model.queue import MessageQueue
from pocketmq.model.retries import DEAD_LETTER_LEVEL
from pocketmq.model.subscription import Subscription
from pocketmq.protocol.bodies.clients import ConsumerData, ConsumeType
from pocketmq.protocol.bodies.offsets import ResetOffsets
from pocketmq.protocol.bodies.running_info import (
    CONSUME_TYPE,
    CONSUMER_START_TIMESTAMP,
    NAMESERVER_ADDR,
    ConsumerRunningInfo,
    DirectConsumption,
)

REBALANCE_S = 20.0


class PullMember:
    """`namespace` is known here, but topics and queues have the names of the wire; messages have those of users."""

    def __init__(self, settings: PullSettings, hooks: HookList, instance: Instance, files: Files) -> None:
        self._settings = settings
        self._events = PullEvents(hooks, settings.group, settings.namespace)
        self._instance = instance
        self._group = settings.wire_group
        self._topics = SubscriptionTable(self._group, 0, with_retries=False)
        self._watched = _Watched()
        self._listeners: dict[str, OnShared] = {}
        self._started_ms = instance.clock.now_ms()
        folder = LocalFolder(files, settings.local_offsets, instance.client_id)
        local = folder if settings.broadcast else None
        self._offsets = Offsets(offset_store(instance.brokers.offsets, self._group, local, settings.own_offsets))
        self._pulls = self._pulling(PullFlag.SUBSCRIPTION)
        self._holds = self._pulling(PullFlag.SUBSCRIPTION | PullFlag.SUSPEND)
        self._retry_sender = RetrySender(
            instance, settings, self._group, settings.max_reconsume_times, is_orderly=False
        )
        self._rebalance = Rebalance(
            instance.routes,
            self.topics,
            All() if settings.broadcast else ByStrategy(instance, self._group, AVERAGE),
            self._watched,
            on_shared=self._shared,
            interval_s=REBALANCE_S,
        )

    # its life

    async def start(self) -> None:
        async with AsyncExitStack() as undo:
            undo.push_async_callback(self._instance.leave)
            self._instance.add_consumer(self)
            undo.pop_all()
        self._rebalance.start()

    async def stop(self, drain_s: float) -> None:
        await self._rebalance.stop()
        await self._instance.remove_consumer(self)
        await self._instance.leave()

    def _pulling(self, flags: int) -> Pulling:
        return Pulling(self._instance, self._group, flags=flags, wait_ms=self._settings.pull_wait_ms)

    # messages

    async def pull(
        self,
        queue: MessageQueue,
        offset: int,
        limit: int,
        filtered: tuple[str | None, str],
        *,
        may_wait: bool,
        timeout_s: float | None,
    ) -> PullResult:
        """One pull; with `may_wait`, the broker holds it while there is nothing. Failures are PocketMQErrors."""
        if offset < 0 or limit < 1:
            raise UsageError(
                f"{limit} messages from offset {offset} cannot be pulled: neither may be negative, nor 0 messages"
            )
        expression, kind = filtered
        subscription = Subscription.parse(queue.topic, expression, kind, sub_version=self._instance.clock.now_ms())
        await self._instance.routes.find(queue.topic)
        settings = self._settings
        if timeout_s is None:
            timeout_s = (settings.block_timeout_ms if may_wait else settings.pull_timeout_ms) / 1000
        pulling = self._holds if may_wait else self._pulls
        result = await pulling.pull(queue, offset, subscription, limit, timeout_s=timeout_s)
        if self._events.has_filters:
            result = self._events.filtered(queue, result)
        return self._seen(result, queue)

    def _seen(self, result: PullResult, queue: MessageQueue) -> PullResult:
        """What was pulled as the user sees it, up to the first message whose body cannot be read; the next pull begins there.

        UnreadableMessage when that is the first one.
        """
        seen: list[StoredMessage] = []
        for message in result.messages:
            try:
                seen.append(as_seen(message, self._settings.namespace))
            except PocketMQError as error:
                if seen:
                    return replace(result, messages=seen, next_offset=message.queue_offset)
                error.add_note(
                    f"this is offset {message.queue_offset} of {queue}; pull from {message.queue_offset + 1} to go on without it"
                )
                raise
        return replace(result, messages=seen)

    async def send_back(self, message: StoredMessage, broker_name: str, delay_level: int) -> None:
        """ServerFailed when neither the message's broker nor the retry topic takes it."""
        if fault := delay_level_fault(delay_level, least=DEAD_LETTER_LEVEL):
            raise UsageError(f"{fault}; 0 lets the broker choose, -1 makes it a dead letter")
        message = replace(message, topic=wrap(self._settings.namespace, message.topic))
        if not await self._retry_sender.send(message, broker_name, Verdict(False, delay_level)):
            raise ServerFailed(f"message {message.message_id} could not be sent back to {broker_name}")

    # queues and offsets

    async def readable(self, topic: str) -> list[MessageQueue]:
        return list((await self._instance.routes.find(topic)).readable)

    async def smallest(self, queue: MessageQueue) -> int:
        await self._instance.routes.find(queue.topic)
        return await self._instance.brokers.offsets.smallest(queue)

    async def largest(self, queue: MessageQueue) -> int:
        await self._instance.routes.find(queue.topic)
        return await self._instance.brokers.offsets.largest(queue)

    async def at_time(self, queue: MessageQueue, time_ms: int) -> int:
        await self._instance.routes.find(queue.topic)
        return await self._instance.brokers.offsets.at_time(queue, time_ms)

    async def earliest_ms(self, queue: MessageQueue) -> int:
        await self._instance.routes.find(queue.topic)
        return await self._instance.brokers.offsets.earliest_store_ms(queue)

    async def committed(self, queue: MessageQueue) -> int | None:
        await self._instance.routes.find(queue.topic)
        return await self._offsets.load(queue)

    async def commit(self, offsets: Mapping[MessageQueue, int]) -> None:
        for queue in offsets:
            await self._instance.routes.find(queue.topic)
        await self._offsets.keep(offsets)

    async def watch(self, topic: str, listener: OnShared) -> None:
        """Be told of this member's share of `topic`, now and with every change."""
        self._topics.subscribe(topic, now_ms=self._instance.clock.now_ms())
        self._listeners[topic] = listener
        await self._watched.drop_topic(topic)  # who comes later is told, too
        self._instance.heartbeat_soon()
        self._rebalance.soon()

    def _shared(self, topic: str, all_queues: Sequence[MessageQueue], mine: Sequence[MessageQueue]) -> None:
        self._listeners[topic](topic, all_queues, mine)

    # as a member of its client; see `members.ConsumerMember`

    @property
    def client_id(self) -> str:
        return self._instance.client_id

    @property
    def wire_group(self) -> str:
        return self._group

    def topics(self) -> Iterable[str]:
        return [subscription.topic for subscription in self._topics]

    def heartbeat(self) -> ConsumerData:
        return ConsumerData(
            self._group,
            ConsumeType.CONSUME_ACTIVELY,
            self._settings.model,
            subscription_data_set=tuple(self._topics),
            unit_mode=self._settings.unit_mode,
        )

    def rebalance_soon(self) -> None:
        self._rebalance.soon()

    def route_changed(self, topic: str) -> None:
        self._rebalance.soon()

    async def reset_offsets(self, topic: str, offsets: ResetOffsets) -> None:
        """Nothing is under way here that could be moved; whoever pulls asks where to begin."""

    def positions(self, topic: str) -> Mapping[MessageQueue, int]:
        return self._offsets.of_topic(topic)

    def running_info(self, *, stacks: bool) -> ConsumerRunningInfo:
        return ConsumerRunningInfo(
            properties={
                NAMESERVER_ADDR: f"{self._instance.name_servers};",
                CONSUME_TYPE: ConsumeType.CONSUME_ACTIVELY.value,
                CONSUMER_START_TIMESTAMP: str(self._started_ms),
            },
            subscription_set=tuple(self._topics),
        )

    async def consume_directly(self, message: StoredMessage, broker_name: str | None) -> DirectConsumption:
        raise ServerFailed("this consumer has no listener: its messages are pulled")


class _Watched:
    """Shares that somebody only wants to know of; a `rebalance.Sharing`."""

    def __init__(self) -> None:
        self._mine: dict[str, Sequence[MessageQueue]] = {}

    def topics(self) -> set[str]:
        return set(self._mine)

    async def apply(
        self, topic: str, all_queues: Sequence[MessageQueue], wanted: Sequence[MessageQueue], *, is_shared: bool
    ) -> tuple[bool, bool]:
        changed = self._mine.get(topic) != wanted
        self._mine[topic] = wanted
        return changed, True

    async def drop_topic(self, topic: str) -> None:
        self._mine.pop(topic, None)


log = logging.getLogger("pocketmq.client")

DEFAULT_PULL = 32
"""Messages of one pull."""
NEXT_TASK_S: Final = 0.2
"""When a task that says nothing is called again; RocketMQ's scheduler has the same times."""
FAILED_TASK_S: Final = 1.0

PullTask = Callable[[MessageQueue], Awaitable[float | None]]
"""Pulls and handles what it wants of a queue; after how many seconds it is to be called again."""


class AsyncPullConsumer(AsyncConsumer[PullMember, PullSettings]):
    """A member of a consumer group that pulls by itself. Options are those of `PullSettings`; `group` must be given. `hooks` may filter."""

    def __init__(
        self,
        name_servers: str | Sequence[str] | None = None,
        *,
        hooks: Iterable[Hooks] = (),
        surroundings: Surroundings | None = None,
        **options: Unpack[PullOptions],
    ) -> None:
        settings = settings_of(PullSettings, name_servers, options)
        super().__init__(settings, surroundings, is_stream=True)
        self._hooks = HookList(hooks)
        self._names = QueueNames(settings.namespace)
        self._tasks: dict[str, PullTasks] = {}

    def _make_member(self, instance: Instance) -> PullMember:
        return PullMember(self._settings, self._hooks, instance, self._around.files)

    # messages

    async def pull(
        self,
        queue: MessageQueue,
        offset: int,
        max_messages: int = DEFAULT_PULL,
        *,
        tags: str | None = None,
        sql: str | None = None,
        timeout_s: float | None = None,
    ) -> PullResult:
        """Messages of `queue` from `offset` on, as far as they are there now."""
        return await self._pull(queue, offset, max_messages, tags, sql, timeout_s, may_wait=False)

    async def pull_block_if_not_found(
        self,
        queue: MessageQueue,
        offset: int,
        max_messages: int = DEFAULT_PULL,
        *,
        tags: str | None = None,
        sql: str | None = None,
        timeout_s: float | None = None,
    ) -> PullResult:
        """The same; when there is nothing, the broker waits for a message, `pull_wait_ms` at most."""
        return await self._pull(queue, offset, max_messages, tags, sql, timeout_s, may_wait=True)

    async def send_back(self, message: StoredMessage, broker_name: str, *, delay_level: int = 0) -> None:
        """Let a message come again later, through the retry topic of the group; -1 makes it a dead letter."""
        await self._run(self._member.send_back(message, broker_name, delay_level))

    # queues and offsets

    async def queues(self, topic: str) -> list[MessageQueue]:
        """All queues of a topic that can be read; TopicNotFound when it does not exist."""
        found = await self._run(self._member.readable(wrap(self._settings.namespace, topic)))
        return [*map(self._names.shown, found)]

    async def min_offset(self, queue: MessageQueue) -> int:
        """The offset of the oldest message that `queue` still has."""
        return await self._run(self._member.smallest(self._wire(queue)))

    async def max_offset(self, queue: MessageQueue) -> int:
        """The offset that the next message of `queue` will get."""
        return await self._run(self._member.largest(self._wire(queue)))

    async def offset_at(self, queue: MessageQueue, time_ms: int) -> int:
        """The offset of the first message that was stored at that time or later."""
        return await self._run(self._member.at_time(self._wire(queue), time_ms))

    async def earliest_time_ms(self, queue: MessageQueue) -> int:
        """When the oldest message of `queue` was stored; -1 when it is empty."""
        return await self._run(self._member.earliest_ms(self._wire(queue)))

    async def committed(self, queue: MessageQueue) -> int | None:
        """Where the group is; None when it never was in this queue."""
        return await self._run(self._member.committed(self._wire(queue)))

    async def commit(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Let the group know how far it is."""
        await self._run(self._member.commit({self._wire(queue): offset for queue, offset in offsets.items()}))

    async def on_queues_changed(self, topic: str, listener: QueuesChanged) -> None:
        """Call `listener` with this member's share of the queues of `topic`, now and with every change."""
        loop, shown = asyncio.get_running_loop(), self._names.shown

        def changed(_: str, all_queues: Sequence[MessageQueue], mine: Sequence[MessageQueue]) -> None:
            loop.call_soon_threadsafe(listener, topic, [*map(shown, all_queues)], [*map(shown, mine)])

        await self._run(self._member.watch(wrap(self._settings.namespace, topic), changed))

    async def schedule(self, topic: str, task: PullTask) -> None:
        """Call `task` with each queue of this member's share of `topic`, again and again, until the queue is another member's.

        It returns after how many seconds to call it again, or nothing: 0.2. When it raises, that is logged, and it is called again
        after 1 s. Calls for different queues are made at the same time, for one queue one after the other. Another task for the same
        topic replaces the first.
        """
        if old := self._tasks.pop(topic, None):
            old.cancel()
        tasks = self._tasks[topic] = PullTasks(task)
        await self.on_queues_changed(topic, tasks.changed)

    async def _end(self) -> None:
        for tasks in self._tasks.values():
            tasks.cancel()
        await super()._end()

    async def _pull(
        self,
        queue: MessageQueue,
        offset: int,
        limit: int,
        tags: str | None,
        sql: str | None,
        timeout_s: float | None,
        *,
        may_wait: bool,
    ) -> PullResult:
        filtered = filter_of(queue.topic, tags, sql)
        work = self._member.pull(self._wire(queue), offset, limit, filtered, may_wait=may_wait, timeout_s=timeout_s)
        return await self._run(work)

    def _wire(self, queue: MessageQueue) -> MessageQueue:
        return self._names.on_the_wire(queue, wrap(self._settings.namespace, queue.topic))


class PullTasks:
    """The calls of one task: one at a time for each queue, on the loop on which the task was scheduled."""

    def __init__(self, task: PullTask) -> None:
        self._task = task
        self._running: dict[MessageQueue, asyncio.Task[None]] = {}
        self._is_over = False

    def changed(self, topic: str, all_queues: Sequence[MessageQueue], mine: Sequence[MessageQueue]) -> None:
        """After a rebalance: these queues are assigned to this member."""
        if self._is_over:
            return
        for queue in self._running.keys() - set(mine):
            log.info("the pull task of %s is cancelled: another member has the queue", queue)
            self._running.pop(queue).cancel()
        for queue in mine:
            if queue not in self._running:
                self._running[queue] = asyncio.get_running_loop().create_task(self._repeat(queue))

    def cancel(self) -> None:
        self._is_over = True
        for running in self._running.values():
            running.cancel()
        self._running.clear()

    async def _repeat(self, queue: MessageQueue) -> None:
        while True:
            try:
                asked_s = await self._task(queue)
                wait_s = NEXT_TASK_S if asked_s is None else max(0.0, float(asked_s))
            except Exception:
                log.exception("the pull task of %s failed; it is called again in %g s", queue, FAILED_TASK_S)
                wait_s = FAILED_TASK_S
            await asyncio.sleep(wait_s)

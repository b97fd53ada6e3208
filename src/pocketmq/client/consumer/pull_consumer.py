"""The pull consumer: its user decides when to pull from which queue. `PullConsumer` is the same for code that does not use asyncio.

    async with AsyncPullConsumer("127.0.0.1:9876", group="audit") as consumer:
        for queue in await consumer.queues("orders"):
            result = await consumer.pull(queue, await consumer.committed(queue) or 0)
            ...
            await consumer.commit({queue: result.next_offset})

It does not pull in advance, owns no queues and commits nothing by itself. A pull without messages is not an error: see the status of its
result. Use `on_queues_changed` or `schedule` to share the queues of a topic with the other members of the group.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Final, Never, Unpack

from msgspec.structs import replace

from pocketmq.client.cluster.calls import OffsetCalls
from pocketmq.client.cluster.instance import Dependencies, Instance
from pocketmq.client.consumer.allocation import AVERAGE
from pocketmq.client.consumer.async_consumer import AsyncConsumer
from pocketmq.client.consumer.consume_result import Verdict
from pocketmq.client.consumer.group_member import GroupMember, MemberParts
from pocketmq.client.consumer.listener import readable_prefix
from pocketmq.client.consumer.lite_pull_consumer import QueuesChanged
from pocketmq.client.consumer.pulling import PullEvents, Pulling, PullResult
from pocketmq.client.consumer.rebalance import Allocation, AllQueues, OnRebalanced, Rebalance, StrategyAllocator
from pocketmq.client.consumer.retry_sender import RetrySender
from pocketmq.client.consumer.settings import PullOptions, PullSettings
from pocketmq.client.consumer.subscriptions import SubscriptionTable, filter_of
from pocketmq.client.hooks import HookList, Hooks
from pocketmq.client.settings import checked_seconds
from pocketmq.codes import PullFlag
from pocketmq.errors import ServerFailed, UsageError
from pocketmq.files import Files
from pocketmq.model import MessageQueue, StoredMessage, Subscription
from pocketmq.model.delay import delay_level_fault
from pocketmq.model.names import refuse_unknown, wrap
from pocketmq.model.retries import DEAD_LETTER_LEVEL
from pocketmq.protocol.bodies.clients import ConsumeType
from pocketmq.protocol.bodies.topics import ResetOffsets

REBALANCE_S = 20.0


class PullMember(GroupMember):
    """The group member of a pull consumer. Topics and queues have their wire names; messages have those of users."""

    def __init__(self, settings: PullSettings, hooks: HookList, instance: Instance, files: Files) -> None:
        topics = SubscriptionTable(settings.wire_group, 0, with_retries=False)
        super().__init__(MemberParts(settings, instance, files, topics, hooks), ConsumeType.CONSUME_ACTIVELY)
        self._pull_settings = settings
        self._events = PullEvents(hooks, settings.group, settings.namespace)
        self._watched = _WatchedTopics()
        self._listeners: dict[str, OnRebalanced] = {}
        self._pulls = self._pulling(PullFlag.SUBSCRIPTION)
        self._holds = self._pulling(PullFlag.SUBSCRIPTION | PullFlag.SUSPEND)
        self._retry_sender = RetrySender(
            instance, settings, self._group, settings.max_reconsume_times, is_orderly=False
        )
        self._rebalance = Rebalance(
            instance.routes,
            self.topics,
            AllQueues() if settings.broadcast else StrategyAllocator(instance, self._group, AVERAGE),
            self._watched,
            on_rebalanced=self._rebalanced,
            interval_s=REBALANCE_S,
        )

    # lifecycle

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
        return Pulling(self._instance, self._group, flags=flags, wait_ms=self._pull_settings.pull_wait_ms)

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
        """One pull; with `may_wait`, the broker holds it while there is no message. Raises PocketMQError."""
        if offset < 0 or limit < 1:
            raise UsageError(
                f"cannot pull {limit} messages from offset {offset}: expected at least 1, and an offset of 0 or more"
            )
        expression, kind = filtered
        subscription = Subscription.parse(queue.topic, expression, kind, sub_version=self._instance.clock.now_ms())
        await self._instance.routes.find(queue.topic)
        settings = self._pull_settings
        if timeout_s is None:
            timeout_s = (settings.block_timeout_ms if may_wait else settings.pull_timeout_ms) / 1000
        pulling = self._holds if may_wait else self._pulls
        result = await pulling.pull(queue, offset, subscription, limit, timeout_s=timeout_s)
        if self._events.has_filters:
            result = self._events.filtered(queue, result)
        return self._prepared(result, queue)

    def _prepared(self, result: PullResult, queue: MessageQueue) -> PullResult:
        """The result up to the first unreadable message; the next pull begins there. Raises UnreadableMessage if no
        message is readable.
        """
        messages, error = readable_prefix(result.messages, self._settings.namespace)
        if error is None:
            return replace(result, messages=messages)
        offset = result.messages[len(messages)].queue_offset
        if not messages:
            error.add_note(f"this is offset {offset} of {queue}; pull from {offset + 1} to skip it")
            raise error
        return replace(result, messages=messages, next_offset=offset)

    async def send_back(self, message: StoredMessage, broker_name: str, delay_level: int) -> None:
        """Raises ServerFailed if neither the message's broker nor the retry topic accepts it."""
        if fault := delay_level_fault(delay_level, least=DEAD_LETTER_LEVEL):
            raise UsageError(f"{fault}; 0 lets the broker choose, -1 makes the message a dead letter")
        message = replace(message, topic=wrap(self._settings.namespace, message.topic))
        if not await self._retry_sender.send(message, broker_name, Verdict(False, delay_level)):
            raise ServerFailed(f"message {message.message_id} could not be sent back to {broker_name}")

    # queues and offsets

    async def commit(self, offsets: Mapping[MessageQueue, int]) -> None:
        for queue in offsets:
            await self._instance.routes.find(queue.topic)
        await self._offsets.commit(offsets)

    async def watch(self, topic: str, listener: OnRebalanced) -> None:
        """Call `listener` with the queues of `topic` that are allocated to this member, now and after each change."""
        self._subscriptions.subscribe(topic, now_ms=self._instance.clock.now_ms())
        self._listeners[topic] = listener
        await self._watched.drop_topic(topic)  # so that a second listener is called, too
        self._instance.heartbeat_soon()
        self._rebalance.soon()

    def _rebalanced(self, topic: str, all_queues: Sequence[MessageQueue], mine: Sequence[MessageQueue]) -> None:
        self._listeners[topic](topic, all_queues, mine)

    # for the client instance; see `cluster.serving`

    def rebalance_soon(self) -> None:
        self._rebalance.soon()

    def route_changed(self, topic: str) -> None:
        self._rebalance.soon()

    async def reset_offsets(self, topic: str, offsets: ResetOffsets) -> None:
        """There are no assigned queues: callers of `pull` choose their offsets."""


class _WatchedTopics:
    """Allocated queues that are only reported; a `RebalanceTarget`."""

    def __init__(self) -> None:
        self._mine: dict[str, Sequence[MessageQueue]] = {}

    def topics(self) -> set[str]:
        return set(self._mine)

    async def apply(self, topic: str, allocation: Allocation) -> tuple[bool, bool]:
        changed = self._mine.get(topic) != allocation.mine
        self._mine[topic] = allocation.mine
        return changed, True

    async def drop_topic(self, topic: str) -> None:
        self._mine.pop(topic, None)


log = logging.getLogger("pocketmq.client")

DEFAULT_PULL = 32
"""Messages of one pull."""
PULL_ARGUMENTS: Final = ("max_messages", "tags", "sql", "timeout_s")
NEXT_TASK_S: Final = 0.2
"""When a task that returns None is called again; RocketMQ's scheduler has the same times."""
FAILED_TASK_S: Final = 1.0

PullTask = Callable[[MessageQueue], Awaitable[float | None]]
"""Pulls from a queue and handles the messages. Returns after how many seconds to call it again."""


class AsyncPullConsumer(AsyncConsumer[PullMember, PullSettings]):
    """A member of a consumer group whose user pulls. The options are those of `PullSettings`; `group` is required. `hooks` may filter."""

    def __init__(
        self,
        name_servers: str | Sequence[str] | None = None,
        *,
        hooks: Iterable[Hooks] = (),
        dependencies: Dependencies | None = None,
        **options: Unpack[PullOptions],
    ) -> None:
        super().__init__(PullSettings, name_servers, options, dependencies, is_stream=True)
        self._hooks = HookList(hooks)
        self._tasks: dict[str, PullTasks] = {}

    def _make_member(self, instance: Instance) -> PullMember:
        return PullMember(self._settings, self._hooks, instance, self._dependencies.files)

    # messages

    async def pull(
        self,
        /,
        queue: MessageQueue,
        offset: int,
        max_messages: int = DEFAULT_PULL,
        *,
        tags: str | None = None,
        sql: str | None = None,
        timeout_s: float | None = None,
        **unknown: Never,
    ) -> PullResult:
        """Messages of `queue` from `offset` on, without waiting for new ones."""
        refuse_unknown("pull", unknown, PULL_ARGUMENTS)
        return await self._pull(queue, offset, max_messages, tags, sql, timeout_s, may_wait=False)

    async def pull_block_if_not_found(
        self,
        /,
        queue: MessageQueue,
        offset: int,
        max_messages: int = DEFAULT_PULL,
        *,
        tags: str | None = None,
        sql: str | None = None,
        timeout_s: float | None = None,
        **unknown: Never,
    ) -> PullResult:
        """As `pull`, but the broker waits for a message, up to `pull_wait_ms`."""
        refuse_unknown("pull_block_if_not_found", unknown, PULL_ARGUMENTS)
        return await self._pull(queue, offset, max_messages, tags, sql, timeout_s, may_wait=True)

    async def send_back(self, message: StoredMessage, broker_name: str, *, delay_level: int = 0) -> None:
        """Send a message to the retry topic of the group, from where it is delivered later; -1 makes it a dead letter."""
        await self._run(self._member.send_back(message, broker_name, delay_level))

    # queues and offsets

    async def queues(self, topic: str) -> list[MessageQueue]:
        """All readable queues of a topic; TopicNotFound if it does not exist."""
        found = await self._run(self._member.readable(wrap(self._settings.namespace, topic)))
        return [*map(self._names.shown, found)]

    async def min_offset(self, queue: MessageQueue) -> int:
        """The offset of the oldest message in `queue`."""
        return await self._run(self._member.query(self._wire(queue), OffsetCalls.smallest))

    async def max_offset(self, queue: MessageQueue) -> int:
        """The offset that the next message of `queue` will get."""
        return await self._run(self._member.query(self._wire(queue), OffsetCalls.largest))

    async def offset_at(self, queue: MessageQueue, time_ms: int) -> int:
        """The offset of the first message that was stored at that time or later."""
        return await self._run(self._member.offset_at(self._wire(queue), time_ms))

    async def earliest_time_ms(self, queue: MessageQueue) -> int:
        """When the oldest message of `queue` was stored; -1 if it is empty."""
        return await self._run(self._member.query(self._wire(queue), OffsetCalls.earliest_store_ms))

    async def committed(self, queue: MessageQueue) -> int | None:
        """The committed offset of the group; None without one."""
        return await self._run(self._member.committed(self._wire(queue)))

    async def commit(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Commit offsets for the group."""
        await self._run(self._member.commit({self._wire(queue): offset for queue, offset in offsets.items()}))

    async def on_queues_changed(self, topic: str, listener: QueuesChanged) -> None:
        """Call `listener` with the queues of `topic` that are allocated to this member, now and after each change."""
        loop, shown = asyncio.get_running_loop(), self._names.shown

        def changed(_: str, all_queues: Sequence[MessageQueue], mine: Sequence[MessageQueue]) -> None:
            loop.call_soon_threadsafe(listener, topic, [*map(shown, all_queues)], [*map(shown, mine)])

        await self._run(self._member.watch(wrap(self._settings.namespace, topic), changed))

    async def schedule(self, topic: str, task: PullTask) -> None:
        """Call `task` repeatedly with each queue of `topic` that is allocated to this member, until another member has the queue.

        It returns the seconds until its next call; None means 0.2. An exception is logged, and the next call follows after 1 s.
        Calls for different queues run at the same time, those for one queue one after the other. Another task for the same topic
        replaces the first.
        """
        if old := self._tasks.pop(topic, None):
            old.cancel()
        tasks = self._tasks[topic] = PullTasks(task)
        await self.on_queues_changed(topic, tasks.changed)

    async def cancel_tasks(self) -> None:
        """End all scheduled tasks. The result of a call that a thread makes now is dropped."""
        for tasks in self._tasks.values():
            tasks.cancel()

    async def _end(self) -> None:
        await self.cancel_tasks()
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
        wire, filtered = self._wire(queue), filter_of(queue.topic, tags, sql)
        checked_seconds(timeout_s)
        work = self._member.pull(wire, offset, limit, filtered, may_wait=may_wait, timeout_s=timeout_s)
        return await self._run(work)


class PullTasks:
    """The calls of one task, one at a time for each queue, on the event loop on which the task was scheduled."""

    def __init__(self, task: PullTask) -> None:
        self._task = task
        self._running: dict[MessageQueue, asyncio.Task[None]] = {}
        self._is_cancelled = False

    def changed(self, topic: str, all_queues: Sequence[MessageQueue], mine: Sequence[MessageQueue]) -> None:
        """A rebalance has allocated these queues to this member."""
        if self._is_cancelled:
            return
        for queue in self._running.keys() - set(mine):
            log.info("pull task of %s cancelled: the queue is allocated to another member", queue)
            self._running.pop(queue).cancel()
        for queue in mine:
            if queue not in self._running:
                self._running[queue] = asyncio.get_running_loop().create_task(self._repeat(queue))

    def cancel(self) -> None:
        self._is_cancelled = True
        for running in self._running.values():
            running.cancel()
        self._running.clear()

    async def _repeat(self, queue: MessageQueue) -> None:
        while True:
            try:
                delay_s = await self._task(queue)
                wait_s = NEXT_TASK_S if delay_s is None else max(0.0, float(delay_s))
            except Exception:
                log.exception("pull task of %s failed; next call in %g s", queue, FAILED_TASK_S)
                wait_s = FAILED_TASK_S
            await asyncio.sleep(wait_s)

"""The pull consumer: its user decides what is pulled, and when. `blocking_pull_consumer.PullConsumer` is its blocking face.

    async with AsyncPullConsumer("127.0.0.1:9876", group="audit") as consumer:
        for queue in await consumer.queues("orders"):
            result = await consumer.pull(queue, await consumer.committed(queue) or 0)
            ...
            await consumer.commit({queue: result.next_offset})

Nothing is pulled ahead, nothing is shared out, nothing is committed by itself. A pull that finds nothing is no error: its status says so.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final, Unpack

from pocketmq.client.async_consumer import AsyncConsumer
from pocketmq.client.consumer_settings import PullOptions, PullSettings
from pocketmq.client.hooks import Hooks
from pocketmq.client.instance import Surroundings
from pocketmq.client.lite_pull_consumer import QueuesChanged
from pocketmq.client.pull_member import PullMember
from pocketmq.client.pulling import PullResult
from pocketmq.client.queue_names import QueueNames
from pocketmq.client.settings import settings_of
from pocketmq.client.subscriptions import filter_of
from pocketmq.model.message import StoredMessage
from pocketmq.model.names import wrap
from pocketmq.model.queue import MessageQueue

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
        super().__init__(settings, PullMember(settings, hooks, surroundings or Surroundings()))
        self._names = QueueNames(settings.namespace)
        self._tasks: dict[str, PullTasks] = {}

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

"""The pull consumer for code that does not await: the same words as `AsyncPullConsumer`.

with PullConsumer("127.0.0.1:9876", group="audit") as consumer:
    for queue in consumer.queues("orders"):
        result = consumer.pull(queue, consumer.committed(queue) or 0)
        ...
        consumer.commit({queue: result.next_offset})
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, Unpack

from pocketmq.client.blocking_consumer import BlockingConsumer
from pocketmq.client.consumer_settings import PullOptions, PullSettings
from pocketmq.client.hooks import Hooks
from pocketmq.client.lite_pull_consumer import QueuesChanged
from pocketmq.client.pull_consumer import DEFAULT_PULL, AsyncPullConsumer
from pocketmq.client.pulling import PullResult
from pocketmq.model.message import StoredMessage
from pocketmq.model.queue import MessageQueue

TASK_THREADS: Final = 20
"""Threads that call scheduled tasks, as RocketMQ's scheduler has."""
BlockingPullTask = Callable[[MessageQueue], float | None]


class PullConsumer(BlockingConsumer[AsyncPullConsumer]):
    """A member of a consumer group that pulls by itself. Options are those of `AsyncPullConsumer`."""

    def __init__(
        self,
        name_servers: str | Sequence[str] | None = None,
        *,
        hooks: Iterable[Hooks] = (),
        **options: Unpack[PullOptions],
    ) -> None:
        hooks = tuple(hooks)
        options["own_thread"] = False  # the shared loop is that thread
        super().__init__(lambda: AsyncPullConsumer(name_servers, hooks=hooks, **options))
        self._pool: ThreadPoolExecutor | None = None

    def stop(self) -> None:
        """Leave the group, and call scheduled tasks no more. Harmless when done twice, or without a start."""
        super().stop()
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)  # a task may be the one that stops it

    @property
    def settings(self) -> PullSettings:
        return self._core.settings

    # messages

    def pull(
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
        core = self.core()
        return self.call(core.pull(queue, offset, max_messages, tags=tags, sql=sql, timeout_s=timeout_s))

    def pull_block_if_not_found(
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
        core = self.core()
        work = core.pull_block_if_not_found(queue, offset, max_messages, tags=tags, sql=sql, timeout_s=timeout_s)
        return self.call(work)

    def send_back(self, message: StoredMessage, broker_name: str, *, delay_level: int = 0) -> None:
        """Let a message come again later, through the retry topic of the group; -1 makes it a dead letter."""
        core = self.core()
        self.call(core.send_back(message, broker_name, delay_level=delay_level))

    # queues and offsets

    def queues(self, topic: str) -> list[MessageQueue]:
        """All queues of a topic that can be read; TopicNotFound when it does not exist."""
        core = self.core()
        return self.call(core.queues(topic))

    def min_offset(self, queue: MessageQueue) -> int:
        """The offset of the oldest message that `queue` still has."""
        core = self.core()
        return self.call(core.min_offset(queue))

    def max_offset(self, queue: MessageQueue) -> int:
        """The offset that the next message of `queue` will get."""
        core = self.core()
        return self.call(core.max_offset(queue))

    def offset_at(self, queue: MessageQueue, time_ms: int) -> int:
        """The offset of the first message that was stored at that time or later."""
        core = self.core()
        return self.call(core.offset_at(queue, time_ms))

    def earliest_time_ms(self, queue: MessageQueue) -> int:
        """When the oldest message of `queue` was stored; -1 when it is empty."""
        core = self.core()
        return self.call(core.earliest_time_ms(queue))

    def committed(self, queue: MessageQueue) -> int | None:
        """Where the group is; None when it never was in this queue."""
        core = self.core()
        return self.call(core.committed(queue))

    def commit(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Let the group know how far it is."""
        core = self.core()
        self.call(core.commit(offsets))

    def on_queues_changed(self, topic: str, listener: QueuesChanged) -> None:
        """Call `listener`, on the client's own thread, with this member's share of the queues of `topic`."""
        core = self.core()
        self.call(core.on_queues_changed(topic, listener))

    def schedule(self, topic: str, task: BlockingPullTask) -> None:
        """Call `task` with each queue of this member's share of `topic`, again and again; see `AsyncPullConsumer.schedule`.

        It is called in one of 20 threads, and may block.
        """
        core = self.core()
        with self._lock:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(TASK_THREADS, "pocketmq pull task")
            pool = self._pool

        async def call(queue: MessageQueue) -> float | None:
            return await asyncio.get_running_loop().run_in_executor(pool, task, queue)

        self.call(core.schedule(topic, call))

"""The pull consumer: its user decides what is pulled, and when. `blocking_pull_consumer.PullConsumer` is its blocking face.

    async with AsyncPullConsumer("127.0.0.1:9876", group="audit") as consumer:
        for queue in await consumer.queues("orders"):
            result = await consumer.pull(queue, await consumer.committed(queue) or 0)
            ...
            await consumer.commit({queue: result.next_offset})

Nothing is pulled ahead, nothing is shared out, nothing is committed by itself. A pull that finds nothing is no error: its status says so.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Unpack

from pocketmq.client.async_consumer import AsyncConsumer
from pocketmq.client.consumer_settings import PullOptions, PullSettings
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

DEFAULT_PULL = 32
"""Messages of one pull."""


class AsyncPullConsumer(AsyncConsumer[PullMember, PullSettings]):
    """A member of a consumer group that pulls by itself. Options are those of `PullSettings`; `group` must be given."""

    def __init__(
        self,
        name_servers: str | Sequence[str] | None = None,
        *,
        surroundings: Surroundings | None = None,
        **options: Unpack[PullOptions],
    ) -> None:
        settings = settings_of(PullSettings, name_servers, options)
        super().__init__(settings, PullMember(settings, surroundings or Surroundings()))
        self._names = QueueNames(settings.namespace)

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

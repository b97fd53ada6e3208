"""The lite pull consumer pulls in advance, and its user polls. `LitePullConsumer` is the same for code that does not use asyncio.

    async with AsyncLitePullConsumer("127.0.0.1:9876", group="reports") as consumer:
        await consumer.subscribe("orders", tags="paid")
        async for message in consumer:                  # or: messages = await consumer.poll()
            ...

Messages count as consumed when you request the next ones, and are committed every few seconds. After a crash, the last ones are delivered
again. With `auto_commit=False` only `commit` commits. If an exception leaves the block, only earlier messages are committed.
"""

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from functools import partial
from typing import Never, Unpack

from pocketmq.client.cluster.instance import Dependencies, Instance
from pocketmq.client.consumer.async_consumer import AsyncConsumer
from pocketmq.client.consumer.lite_pull_member import LitePullMember, LiteSelection, PolledMessages
from pocketmq.client.consumer.settings import LitePullOptions, LitePullSettings, refuse_subscribe_arguments
from pocketmq.client.consumer.subscriptions import filter_of
from pocketmq.client.hooks import HookList, Hooks
from pocketmq.client.settings import checked_seconds
from pocketmq.model import MessageQueue, StoredMessage
from pocketmq.model.names import refuse_unknown
from pocketmq.protocol.bodies.clients import ConsumerRunningInfo

QueuesChanged = Callable[[str, Sequence[MessageQueue], Sequence[MessageQueue]], None]
"""Called with a topic, all its queues, and those of this member."""


class AsyncLitePullConsumer(AsyncConsumer[LitePullMember, LitePullSettings]):
    """A member of a consumer group whose user polls. The options are those of `LitePullSettings`; `group` is required.

    `on_queues_changed` is called after each rebalance that changes the queues. `hooks` are called for pulls.
    """

    def __init__(
        self,
        name_servers: str | Sequence[str] | None = None,
        *,
        on_queues_changed: QueuesChanged | None = None,
        hooks: Iterable[Hooks] = (),
        dependencies: Dependencies | None = None,
        **options: Unpack[LitePullOptions],
    ) -> None:
        refuse_subscribe_arguments(options, ("tags", "sql"), "subscribe()")
        arguments = ("hooks", "on_queues_changed")
        super().__init__(LitePullSettings, name_servers, options, dependencies, arguments=arguments, is_stream=True)
        self._hooks = HookList(hooks)
        self._on_queues_changed = on_queues_changed
        self._selection = LiteSelection(self._settings.wire_group, self._dependencies.clock)

    # lifecycle

    def _make_member(self, instance: Instance) -> LitePullMember:
        settings, files = self._settings, self._dependencies.files
        return LitePullMember(settings, instance, files, self._selection, self._hooks, self._queues_changed)

    def _queues_changed(self, topic: str, all_queues: Sequence[MessageQueue], mine: Sequence[MessageQueue]) -> None:
        """Call the user's function on the event loop on which the consumer was started."""
        if self._on_queues_changed is not None and self._user_loop is not None:
            shown = self._names.shown
            name = shown(MessageQueue(topic, "", 0)).topic
            changed = partial(self._on_queues_changed, name, [*map(shown, all_queues)], [*map(shown, mine)])
            self._user_loop.call_soon_threadsafe(changed)

    async def __aexit__(self, kind: object = None, *exc: object) -> None:
        if kind is None and self.is_running:
            await self.finish_polled()
        await self.stop()

    # subscriptions

    async def subscribe(
        self, /, topic: str, *, tags: str | None = None, sql: str | None = None, **unknown: Never
    ) -> None:
        """Read the queues of `topic` that are allocated to this member of the group."""
        refuse_unknown("subscribe", unknown, ("tags", "sql"))
        expression, kind = filter_of(topic, tags, sql)
        name = self._wire_topic(topic)
        if self.is_new:
            self._selection.subscribe(name, expression, kind)
        else:
            await self._run(self._member.subscribe(name, expression, kind))

    async def unsubscribe(self, topic: str) -> None:
        name = self._wire_topic(topic)
        if self.is_new:
            self._selection.subscriptions.unsubscribe(name)
        else:
            await self._run(self._member.unsubscribe(name))

    async def assign(
        self, queues: Iterable[MessageQueue], *, tags: str | None = None, sql: str | None = None, **unknown: Never
    ) -> None:
        """Read these queues, without regard to other members, instead of the ones assigned before."""
        refuse_unknown("assign", unknown, ("tags", "sql"))
        chosen = [self._wire(queue) for queue in queues]
        filters = {queue.topic: filter_of(queue.topic, tags, sql) for queue in chosen}
        if self.is_new:
            self._selection.assign(chosen, self._selection.parsed(filters))
        else:
            await self._run(self._member.assign(chosen, filters))

    async def queues_of(self, topic: str) -> list[MessageQueue]:
        """All readable queues of a topic; TopicNotFound if it does not exist."""
        return [*map(self._names.shown, await self._run(self._member.readable(self._wire_topic(topic))))]

    async def queues(self) -> list[MessageQueue]:
        """The queues that are assigned to this consumer."""
        return [*map(self._names.shown, await self._run(self._member.owned()))]

    # messages

    async def poll(self, timeout_s: float | None = None) -> list[StoredMessage]:
        """The next messages, all of one queue; an empty list after the timeout. The messages of the previous poll count as consumed."""
        polled = await self.poll_messages(timeout_s)
        return [] if polled is None else polled.all_messages()

    async def poll_messages(self, timeout_s: float | None = None) -> PolledMessages | None:
        """As `poll`, for callers that take the messages in another thread, or one by one."""
        seconds = self._settings.poll_timeout_ms / 1000 if timeout_s is None else checked_seconds(timeout_s)
        return await self._run(self._member.poll(seconds))

    async def finish_polled(self) -> None:
        """All messages that the user got are consumed, also the last ones."""
        await self._run(self._member.finish_polled())

    async def __aiter__(self) -> AsyncIterator[StoredMessage]:
        """The messages one by one, until the consumer is stopped. A message counts as consumed when you take the next one."""
        self._require_running()
        while self.is_running:
            polled = await self.poll_messages()
            if polled is None:
                continue
            for message in polled.one_by_one():
                yield message

    async def commit(self) -> None:
        """Commit all messages that you got so far, now."""
        await self._run(self._member.commit())

    # offsets

    async def position(self, queue: MessageQueue) -> int:
        """The offset of the first message that is not consumed. The messages of the last poll are consumed by the next poll."""
        return await self._run(self._member.position(self._wire(queue)))

    async def committed(self, queue: MessageQueue) -> int | None:
        """The committed offset of the group; None without one."""
        return await self._run(self._member.committed(self._wire(queue)))

    async def offset_at(self, queue: MessageQueue, time_ms: int) -> int:
        """The offset of the first message that was stored at that time or later."""
        return await self._run(self._member.offset_at(self._wire(queue), time_ms))

    async def seek(self, queue: MessageQueue, offset: int) -> None:
        """Continue at `offset` in an assigned queue."""
        await self._run(self._member.seek(self._wire(queue), offset))

    async def seek_to_begin(self, queue: MessageQueue) -> None:
        await self._run(self._member.seek_to_begin(self._wire(queue)))

    async def seek_to_end(self, queue: MessageQueue) -> None:
        await self._run(self._member.seek_to_end(self._wire(queue)))

    async def seek_to_time(self, queue: MessageQueue, time_ms: int) -> None:
        """Continue at the first message that was stored at that time or later."""
        await self._run(self._member.seek_to_time(self._wire(queue), time_ms))

    async def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Stop polling these queues until `resume`. They stay assigned."""
        await self._run(self._member.pause([*map(self._wire, queues)]))

    async def resume(self, queues: Iterable[MessageQueue]) -> None:
        await self._run(self._member.resume([*map(self._wire, queues)]))

    async def running_info(self, *, stacks: bool = False) -> ConsumerRunningInfo:
        """The running info that administrators can query."""
        return await self._run(self._member.info(stacks=stacks))

"""The lite pull consumer: its user polls, it pulls ahead. `blocking_lite_pull_consumer.LitePullConsumer` is its blocking face.

    async with AsyncLitePullConsumer("127.0.0.1:9876", group="reports") as consumer:
        await consumer.subscribe("orders", tags="paid")
        async for message in consumer:                  # or: messages = await consumer.poll()
            ...

Messages count as done when the next ones are asked for, and are committed then, every few seconds: after a crash the last ones come
again. With `auto_commit=False` nothing is committed but by `commit`. Leaving the block by an exception commits what was done before.
"""

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from functools import partial
from typing import Never, Unpack

from pocketmq.client.cluster.instance import Instance, Surroundings
from pocketmq.client.cluster.routes import QueueNames
from pocketmq.client.consumer.async_consumer import AsyncConsumer
from pocketmq.client.consumer.group_member import MemberParts
from pocketmq.client.consumer.lite_pull_member import LitePullMember, LiteSelection, PolledMessages
from pocketmq.client.consumer.settings import LitePullOptions, LitePullSettings, filter_of
from pocketmq.client.hooks import HookList, Hooks
from pocketmq.client.settings import settings_of
from pocketmq.model.message import StoredMessage
from pocketmq.model.names import refuse_unknown, wrap
from pocketmq.model.queue import MessageQueue
from pocketmq.protocol.bodies.running_info import ConsumerRunningInfo

QueuesChanged = Callable[[str, Sequence[MessageQueue], Sequence[MessageQueue]], None]
"""Hears of a topic, all its queues, and those of this member."""


class AsyncLitePullConsumer(AsyncConsumer[LitePullMember, LitePullSettings]):
    """A member of a consumer group that is polled. Options are those of `LitePullSettings`; `group` must be given.

    `on_queues_changed` is called whenever queues were shared out anew. `hooks` hear of pulls.
    """

    def __init__(
        self,
        name_servers: str | Sequence[str] | None = None,
        *,
        on_queues_changed: QueuesChanged | None = None,
        hooks: Iterable[Hooks] = (),
        surroundings: Surroundings | None = None,
        **options: Unpack[LitePullOptions],
    ) -> None:
        settings = settings_of(LitePullSettings, name_servers, options, ("hooks", "on_queues_changed"))
        super().__init__(settings, surroundings, is_stream=True)
        self._names = QueueNames(settings.namespace)
        self._hooks = HookList(hooks)
        self._on_queues_changed = on_queues_changed
        self._selection = LiteSelection(settings.wire_group, self._around.clock)

    # its life

    def _make_member(self, instance: Instance) -> LitePullMember:
        selection = self._selection
        parts = MemberParts(self._settings, instance, self._around.files, selection.subscriptions, self._hooks)
        return LitePullMember(parts, self._settings, selection, self._queues_changed)

    def _queues_changed(self, topic: str, all_queues: Sequence[MessageQueue], mine: Sequence[MessageQueue]) -> None:
        """Queues were shared out anew, which the user hears on the loop on which he started the consumer."""
        if self._on_queues_changed is not None and self._user_loop is not None:
            shown = self._names.shown
            name = shown(MessageQueue(topic, "", 0)).topic
            told = partial(self._on_queues_changed, name, [*map(shown, all_queues)], [*map(shown, mine)])
            self._user_loop.call_soon_threadsafe(told)

    async def __aexit__(self, kind: object = None, *exc: object) -> None:
        if kind is None and self.is_running:
            await self.finish_polled()
        await self.stop()

    # what it reads

    async def subscribe(
        self, /, topic: str, *, tags: str | None = None, sql: str | None = None, **unknown: Never
    ) -> None:
        """Read `topic` together with the other members of the group."""
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

    async def assign(self, queues: Iterable[MessageQueue], *, tags: str | None = None, sql: str | None = None) -> None:
        """Read these queues, whoever else reads them, instead of those that were assigned before."""
        chosen = [self._wire(queue) for queue in queues]
        filters = {queue.topic: filter_of(queue.topic, tags, sql) for queue in chosen}
        if self.is_new:
            self._selection.assign(chosen, self._selection.parsed(filters))
        else:
            await self._run(self._member.assign(chosen, filters))

    async def queues_of(self, topic: str) -> list[MessageQueue]:
        """All queues of a topic; TopicNotFound when it does not exist."""
        return [*map(self._names.shown, await self._run(self._member.readable(self._wire_topic(topic))))]

    async def queues(self) -> list[MessageQueue]:
        """The queues that this member reads now."""
        return [*map(self._names.shown, await self._run(self._member.owned()))]

    # messages

    async def poll(self, timeout_s: float | None = None) -> list[StoredMessage]:
        """The next messages, of one queue; none when none come in time. Those of the last poll are done with."""
        polled = await self.poll_messages(timeout_s)
        return [] if polled is None else polled.at_once()

    async def poll_messages(self, timeout_s: float | None = None) -> PolledMessages | None:
        """As `poll`, for whoever takes the messages somewhere else, or one by one."""
        seconds = self._settings.poll_timeout_ms / 1000 if timeout_s is None else timeout_s
        return await self._run(self._member.poll(seconds))

    async def finish_polled(self) -> None:
        """Whatever the user got is done, also what he has not come back from."""
        await self._run(self._member.finish_polled())

    async def __aiter__(self) -> AsyncIterator[StoredMessage]:
        """Messages one by one, until the consumer is stopped. Each is done with when the next one is asked for."""
        self._require_running()
        while self.is_running:
            polled = await self.poll_messages()
            if polled is None:
                continue
            for message in polled.one_by_one():
                yield message

    async def commit(self) -> None:
        """Everything that you got so far is done: let the group know, now."""
        await self._run(self._member.commit())

    # where it is

    async def position(self, queue: MessageQueue) -> int:
        """The offset of the first message that is not done with; those of the last poll are with the next one."""
        return await self._run(self._member.position(self._wire(queue)))

    async def committed(self, queue: MessageQueue) -> int | None:
        """Where the group is; None when it never was in this queue."""
        return await self._run(self._member.committed(self._wire(queue)))

    async def offset_at(self, queue: MessageQueue, time_ms: int) -> int:
        """The offset of the first message that was stored at that time or later."""
        return await self._run(self._member.offset_at(self._wire(queue), time_ms))

    async def seek(self, queue: MessageQueue, offset: int) -> None:
        """Go on at `offset` in one of this member's queues."""
        await self._run(self._member.seek(self._wire(queue), offset))

    async def seek_to_begin(self, queue: MessageQueue) -> None:
        await self._run(self._member.seek_to_begin(self._wire(queue)))

    async def seek_to_end(self, queue: MessageQueue) -> None:
        await self._run(self._member.seek_to_end(self._wire(queue)))

    async def seek_to_time(self, queue: MessageQueue, time_ms: int) -> None:
        """To the first message that was stored at that time or later."""
        await self._run(self._member.seek_to_time(self._wire(queue), time_ms))

    async def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Get nothing of these queues until `resume`. They stay this member's."""
        await self._run(self._member.pause([*map(self._wire, queues)]))

    async def resume(self, queues: Iterable[MessageQueue]) -> None:
        await self._run(self._member.resume([*map(self._wire, queues)]))

    async def running_info(self, *, stacks: bool = False) -> ConsumerRunningInfo:
        """What an administrator would be told about this consumer."""
        return await self._run(self._member.info(stacks=stacks))

    def _wire(self, queue: MessageQueue) -> MessageQueue:
        return self._names.on_the_wire(queue, wrap(self._settings.namespace, queue.topic))

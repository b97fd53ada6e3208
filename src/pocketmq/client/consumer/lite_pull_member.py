"""The group member of a lite pull consumer: its messages wait for the polls of the user.

    process queues ──► poll: next messages of one queue ──► user ── next poll ──► consumed
                                                                                     │ every 5 s, or by `commit`
                                                                                     └──► committed offset

Polled messages count as consumed at the next poll, at a commit, or at a stop without an exception. So after a crash the last messages are
delivered again, and none is lost. Polled messages that do not reach the user, because the poll was cancelled or an iteration was left early,
are requeued. Queues are allocated by rebalance or assigned by the user, but not both.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec.structs import replace

from pocketmq.client.cluster.instance import Instance
from pocketmq.client.cluster.routes import TopicRoute
from pocketmq.client.consumer.allocation import sort_queues
from pocketmq.client.consumer.group_member import AssignedMember, MemberParts, default_allocator
from pocketmq.client.consumer.listener import readable_prefix
from pocketmq.client.consumer.process_queue import ProcessQueue
from pocketmq.client.consumer.pull_loop import PullLoopSettings
from pocketmq.client.consumer.pulling import Pulling
from pocketmq.client.consumer.rebalance import Allocation, OnRebalanced
from pocketmq.client.consumer.settings import LitePullSettings
from pocketmq.client.consumer.subscriptions import SubscriptionTable
from pocketmq.client.hooks import HookList
from pocketmq.clock import Clock
from pocketmq.codes import PullFlag, RequestCode
from pocketmq.errors import UsageError, WrongState
from pocketmq.files import Files
from pocketmq.model import GroupName, MessageQueue, StoredMessage, Subscription, TopicName
from pocketmq.protocol.bodies.clients import ConsumeFromWhere, ConsumerData, ConsumeType


class PolledMessages:
    """Messages of one poll, which the user takes in another thread, all together or one by one.

    No lock is needed: only that thread sets the counters during the iteration, and the event loop sets `done` only after it.
    """

    __slots__ = ("_seen", "delivered", "done", "messages", "owned")

    def __init__(self, owned: ProcessQueue, messages: Sequence[StoredMessage], seen: Sequence[StoredMessage]) -> None:
        self.owned = owned
        self.messages = messages
        self._seen = seen
        self.delivered = 0
        """The number of messages that the user has; they are consumed at the next poll."""
        self.done = 0
        """The number of messages that are consumed in any case."""

    def all_messages(self) -> list[StoredMessage]:
        self.delivered = len(self._seen)
        return list(self._seen)

    def one_by_one(self) -> Iterator[StoredMessage]:
        """A message is consumed when the next one is taken."""
        for at, message in enumerate(self._seen):
            self.delivered, self.done = at + 1, at
            yield message
        self.done = self.delivered


class LiteSelection:
    """The subscriptions of a lite pull consumer, or the queues that its user assigned to it."""

    def __init__(self, group: GroupName, clock: Clock) -> None:
        self._clock = clock
        self.subscriptions = SubscriptionTable(group, clock.now_ms(), with_retries=False)
        self.is_assigned = False
        self.queues: frozenset[MessageQueue] = frozenset()
        """The assigned queues."""
        self._filters: dict[str, Subscription] = {}

    def require_unassigned(self) -> None:
        if self.is_assigned:
            raise WrongState("this consumer uses `assign`; create another one for `subscribe`")

    def subscribe(self, topic: TopicName, expression: str | None, kind: str) -> None:
        """Called before the start."""
        self.require_unassigned()
        self.subscriptions.subscribe(topic, expression, kind, now_ms=self._clock.now_ms())

    def parsed(self, filters: Mapping[str, tuple[str | None, str]]) -> dict[str, Subscription]:
        """The filters of queues to assign, by topic."""
        if len(self.subscriptions):
            raise WrongState("this consumer uses `subscribe`; create another one for `assign`")
        now_ms = self._clock.now_ms()
        return {
            topic: Subscription.parse(topic, expression, kind, sub_version=now_ms)
            for topic, (expression, kind) in filters.items()
        }

    def assign(self, queues: Iterable[MessageQueue], parsed: Mapping[str, Subscription]) -> None:
        self.is_assigned = True
        self._filters |= parsed
        self.queues = frozenset(queues)

    def topics(self) -> Iterable[str]:
        if self.is_assigned:
            return dict.fromkeys(queue.topic for queue in sorted(self.queues))
        return [subscription.topic for subscription in self.subscriptions]

    def filters(self) -> Iterable[Subscription]:
        return self._filters.values() if self.is_assigned else self.subscriptions

    def filter_of(self, topic: str) -> Subscription | None:
        if self.is_assigned:
            return self._filters.get(topic) or Subscription.parse(topic)
        return self.subscriptions.get(topic)


class LitePullMember(AssignedMember):
    """The observer and allocator of its own queues."""

    def __init__(
        self,
        settings: LitePullSettings,
        instance: Instance,
        files: Files,
        selection: LiteSelection,
        hooks: HookList,
        on_rebalanced: OnRebalanced,
    ) -> None:
        parts = MemberParts(settings, instance, files, selection.subscriptions, hooks)
        self._lite = settings
        self._by_rebalance = default_allocator(parts)
        self._selection = selection
        self._ready: OrderedDict[ProcessQueue, None] = OrderedDict()
        """Queues with waiting messages, in the order in which they are polled."""
        self._polled: list[PolledMessages] = []
        self._changed = asyncio.Event()
        self._next_commit = parts.clock.monotonic() + settings.auto_commit_ms / 1000
        pulling = Pulling(
            parts.instance,
            parts.group,
            code=RequestCode.LITE_PULL_MESSAGE,
            flags=PullFlag.SUSPEND | PullFlag.SUBSCRIPTION | PullFlag.LITE_PULL,
            wait_ms=settings.pull_wait_ms,
        )
        pull_settings = PullLoopSettings.of(
            settings, commits_offsets=False, commits_filtered=False, keeps_illegal_local=True
        )
        super().__init__(
            parts,
            self,
            pulling,
            pull_settings,
            ConsumeType.CONSUME_ACTIVELY,
            allocator=self,
            on_rebalanced=on_rebalanced,
            commits_start=False,
        )

    # lifecycle

    async def stop(self, drain_s: float) -> None:
        """Polled messages that are not consumed are delivered again."""
        for polled in self._polled:
            self._finish(polled, polled.done)
        self._polled = []
        if self._lite.auto_commit:
            self._record(self._positions())
        self._is_running = False
        self._changed.set()
        await super().stop(0.0)

    async def finish_polled(self) -> None:
        """The user has finished without an exception: all messages that it got are consumed."""
        for polled in self._polled:
            polled.done = polled.delivered

    # queues

    async def subscribe(self, topic: TopicName, expression: str | None, kind: str) -> None:
        self._selection.require_unassigned()
        await super().subscribe(topic, expression, kind)

    async def assign(self, queues: Iterable[MessageQueue], filters: Mapping[str, tuple[str | None, str]]) -> None:
        """Read only these queues from now on. Filters are by topic."""
        parsed, chosen = self._selection.parsed(filters), frozenset(queues)
        for queue in chosen:
            if queue not in (await self._instance.routes.find(queue.topic)).readable:
                raise UsageError(f"{queue} does not exist or is not readable")
        for subscription in parsed.values():
            await self._check(subscription)
        self._selection.assign(chosen, parsed)
        self._rebalance.soon()

    def topics(self) -> Iterable[str]:
        return self._selection.topics()

    def heartbeat(self) -> ConsumerData:
        """With the value that Java's lite consumers always report: brokers compare it between members."""
        return replace(super().heartbeat(), consume_from_where=ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET)

    def _filters(self) -> Iterable[Subscription]:
        return self._selection.filters()

    def _subscription_of(self, queue: MessageQueue) -> Subscription | None:
        return self._selection.filter_of(queue.topic)

    def positions(self, topic: str) -> Mapping[MessageQueue, int]:
        return {queue: offset for queue, offset in self._positions().items() if queue.topic == topic}

    async def allocate(self, route: TopicRoute) -> Allocation | None:
        """The queues that the user assigned, or those that the rebalance allocates; see `rebalance.Allocator`."""
        if not self._selection.is_assigned:
            return await self._by_rebalance.allocate(route)
        queues = sort_queues(route.readable)
        return Allocation(queues, [queue for queue in queues if queue in self._selection.queues])

    # messages

    async def poll(self, timeout_s: float) -> PolledMessages | None:
        """The next messages; None after the timeout, or when the consumer is stopped.

        Raises UnreadableMessage if the next message of a queue has an unreadable body.
        """
        self._settle()
        if self._lite.auto_commit and self._clock.monotonic() >= self._next_commit:
            self._commit_in_background()
        try:
            async with asyncio.timeout(timeout_s):
                while self._is_running:
                    if (polled := self._poll_ready()) is not None:
                        return polled
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            pass
        return None

    def arrived(self, owned: ProcessQueue) -> None:
        """The pulls of the queue wait for its limits only."""
        self._ready[owned] = None
        self._changed.set()

    def deactivated(self, owned: ProcessQueue) -> None:
        if self._lite.auto_commit and not owned.pulls.reload_offset:
            self._offsets.move(owned.queue, _position(owned))

    def _poll_ready(self) -> PolledMessages | None:
        while self._ready:
            owned, _ = self._ready.popitem(last=False)
            if not owned.is_active or owned.is_paused:
                continue
            messages = owned.take(self._lite.pull_batch, self._clock.monotonic())
            seen, error = readable_prefix(messages, self._settings.namespace)
            if error is not None:
                owned.requeue(messages[len(seen) :])
            if owned.waiting:
                self.arrived(owned)
            if seen:
                polled = PolledMessages(owned, messages[: len(seen)], seen)
                self._polled.append(polled)
                return polled
            if error is not None:
                first = messages[0]
                error.add_note(
                    f"this is message {first.message_id}, offset {first.queue_offset} of {owned.queue}; "
                    f"`seek` to {first.queue_offset + 1} to skip it"
                )
                raise error
        return None

    def _settle(self) -> None:
        """Finish the messages that the user got, and requeue the others."""
        unfinished, self._polled = self._polled, []
        for polled in unfinished:
            self._finish(polled, polled.delivered)
            if rest := polled.messages[polled.delivered :]:
                polled.owned.requeue(rest)
                self.arrived(polled.owned)

    def _finish(self, polled: PolledMessages, count: int) -> None:
        """Finish the first `count` messages; some may be finished already."""
        polled.owned.finish(polled.messages[:count], self._clock.monotonic())
        polled.owned.consumption_changed()

    # offsets

    async def commit(self) -> None:
        """Commit the messages that the user got, now. A running iteration continues. Raises PocketMQError."""
        for polled in self._polled:
            self._finish(polled, polled.delivered)
        self._polled = [polled for polled in self._polled if polled.delivered < len(polled.messages)]
        self._next_commit = self._clock.monotonic() + self._lite.auto_commit_ms / 1000
        await self._offsets.commit(self._positions())

    def _commit_in_background(self) -> None:
        """The same for a poll, which does not wait for brokers, nor raise their errors."""
        self._next_commit = self._clock.monotonic() + self._lite.auto_commit_ms / 1000
        self._record(self._positions())
        self._instance.start(self._assignment.persist())

    def _positions(self) -> dict[MessageQueue, int]:
        return {owned.queue: _position(owned) for owned in self._owned.all() if not owned.pulls.reload_offset}

    def _record(self, positions: Mapping[MessageQueue, int]) -> None:
        for queue, offset in positions.items():
            self._offsets.move(queue, offset)

    async def position(self, queue: MessageQueue) -> int:
        """The offset of the first message that is not consumed."""
        return _position(await self._owned_queue(queue))

    async def seek(self, queue: MessageQueue, offset: int) -> None:
        """Continue at `offset` in an assigned queue. Commits nothing.

        It may be behind a message that the broker has deleted since it was pulled: then continue at the first one that exists.
        """
        calls = self._instance.brokers.offsets
        position = await self.position(queue)
        low, high = await calls.smallest(queue), await calls.largest(queue)
        if not min(low, position) <= offset <= high:
            raise UsageError(f"offset {offset} is out of range; {queue} has offsets {low} to {high}")
        await self._move(queue, max(offset, low))

    async def seek_to_begin(self, queue: MessageQueue) -> None:
        await self._move(queue, await self._instance.brokers.offsets.smallest(queue))

    async def seek_to_end(self, queue: MessageQueue) -> None:
        await self._move(queue, await self._instance.brokers.offsets.largest(queue))

    async def seek_to_time(self, queue: MessageQueue, time_ms: int) -> None:
        """Continue at the first message that was stored then or later."""
        await self._move(queue, await self.offset_at(queue, time_ms))

    async def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Neither pull nor poll these queues until `resume`."""
        for owned in [await self._owned_queue(queue) for queue in queues]:
            owned.is_paused = True

    async def resume(self, queues: Iterable[MessageQueue]) -> None:
        for owned in [await self._owned_queue(queue) for queue in queues]:
            owned.is_paused = False
            if owned.waiting:
                self.arrived(owned)

    async def _move(self, queue: MessageQueue, offset: int) -> None:
        await self._owned_queue(queue)
        self._polled = [polled for polled in self._polled if polled.owned.queue != queue]
        await self._assignment.restart([(queue, offset)], for_group=False)

    async def _owned_queue(self, queue: MessageQueue) -> ProcessQueue:
        """A queue that was just assigned by the user is waited for."""
        owned = self._owned.get(queue)
        if owned is None and self._selection.is_assigned and queue in self._selection.queues:
            await self._rebalance.done()
            owned = self._owned.get(queue)
        if owned is None:
            raise UsageError(f"{queue} is not assigned to this consumer")
        return owned


def _position(owned: ProcessQueue) -> int:
    """The first offset that is not consumed."""
    offset = owned.commit_offset if owned.count else None
    return owned.pulls.next_offset if offset is None else offset

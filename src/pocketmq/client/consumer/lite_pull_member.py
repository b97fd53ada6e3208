"""A member of a group whose messages are polled by its user: what lite pull consumers are made of.

    process queues ──► poll: the next messages of one queue ──► the user ── comes back for more ──► they are done
                                                                              │ every 5 s, or by `commit`
                                                                              └──► the group's offset

What the user got counts as done when he comes back: with the next poll, a commit, or a clean end. So after a crash the last
messages come again, and none is left out. What was handed out and did not reach him, because he gave up waiting for it or left an
iteration before its turn, waits again. Queues are shared out by rebalance, or chosen by the user, but not both.

Messages on their way from a lite pull consumer to its user: which of them he has, and which of those are done.

handed out ──► got: he has it ──► done: he came back for more, or for the next of an iteration
"""

import asyncio
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec.structs import replace

from pocketmq.client.cluster.routes import TopicRoute
from pocketmq.client.consumer.group_member import GroupMember, MemberParts, usual_shares
from pocketmq.client.consumer.listener import as_seen
from pocketmq.client.consumer.process_queue import ProcessQueue
from pocketmq.client.consumer.pull_loop import PullLoopSettings
from pocketmq.client.consumer.pulling import Pulling
from pocketmq.client.consumer.rebalance import Chosen, OnShared, Share, Shares
from pocketmq.client.consumer.settings import LitePullSettings, SubscriptionTable
from pocketmq.clock import Clock
from pocketmq.codes import RequestCode
from pocketmq.errors import PocketMQError, UsageError, WrongState
from pocketmq.model.flags import PullFlag
from pocketmq.model.message import StoredMessage
from pocketmq.model.names import GroupName, TopicName
from pocketmq.model.queue import MessageQueue
from pocketmq.model.subscription import Subscription
from pocketmq.protocol.bodies.clients import ConsumeFromWhere, ConsumerData, ConsumeType


class PolledMessages:
    """Messages that were handed out, on their way to the user, who takes them in his own thread, at once or one by one.

    Needs no lock: each number is set in one step, by that thread; the loop sets `done` only after the user has left.
    """

    __slots__ = ("_seen", "done", "got", "messages", "owned")

    def __init__(self, owned: ProcessQueue, messages: Sequence[StoredMessage], seen: Sequence[StoredMessage]) -> None:
        self.owned = owned
        self.messages = messages
        self._seen = seen
        self.got = 0
        """How many of them he has: done when he comes back."""
        self.done = 0
        """How many of them are done whatever happens to him."""

    def at_once(self) -> list[StoredMessage]:
        self.got = len(self._seen)
        return list(self._seen)

    def one_by_one(self) -> Iterator[StoredMessage]:
        """Each is done when the next one is asked for."""
        for at, message in enumerate(self._seen):
            self.got, self.done = at + 1, at
            yield message
        self.done = self.got


class LiteSelection:
    """What a lite pull consumer reads: topics to which it subscribes, or queues that were assigned to it, but not both."""

    def __init__(self, group: GroupName, clock: Clock) -> None:
        self._clock = clock
        self.subscriptions = SubscriptionTable(group, clock.now_ms(), with_retries=False)
        self.is_assigned = False
        self.chosen = Chosen()
        self._filters: dict[str, Subscription] = {}

    def require_unassigned(self) -> None:
        if self.is_assigned:
            raise WrongState("this consumer was given its queues by `assign`; make another one that subscribes")

    def subscribe(self, topic: TopicName, expression: str | None, kind: str) -> None:
        """Before the start."""
        self.require_unassigned()
        self.subscriptions.subscribe(topic, expression, kind, now_ms=self._clock.now_ms())

    def parsed(self, filters: Mapping[str, tuple[str | None, str]]) -> dict[str, Subscription]:
        """Filters of queues that are to be assigned, by topic."""
        if len(self.subscriptions):
            raise WrongState("this consumer subscribes to topics; make another one whose queues are assigned")
        now_ms = self._clock.now_ms()
        return {
            topic: Subscription.parse(topic, expression, kind, sub_version=now_ms)
            for topic, (expression, kind) in filters.items()
        }

    def assign(self, queues: Iterable[MessageQueue], parsed: Mapping[str, Subscription]) -> None:
        self.is_assigned = True
        self._filters |= parsed
        self.chosen.queues = frozenset(queues)

    def topics(self) -> Iterable[str]:
        if self.is_assigned:
            return dict.fromkeys(queue.topic for queue in sorted(self.chosen.queues))
        return [subscription.topic for subscription in self.subscriptions]

    def filters(self) -> Iterable[Subscription]:
        return self._filters.values() if self.is_assigned else self.subscriptions

    def filter_of(self, topic: str) -> Subscription | None:
        if self.is_assigned:
            return self._filters.get(topic) or Subscription.parse(topic)
        return self.subscriptions.get(topic)


class LitePullMember(GroupMember):
    """Is itself the observer of its queues: what arrives waits for a poll."""

    def __init__(
        self, parts: MemberParts, settings: LitePullSettings, selection: LiteSelection, on_shared: OnShared | None
    ) -> None:
        self._lite = settings
        self._selection = selection
        self._ready: OrderedDict[ProcessQueue, None] = OrderedDict()
        """Queues in which messages wait, in the order of their turns."""
        self._polled: list[PolledMessages] = []
        self._news = asyncio.Event()
        self._next_commit = parts.clock.monotonic() + settings.auto_commit_ms / 1000
        pulling = Pulling(
            parts.instance,
            parts.group,
            code=RequestCode.LITE_PULL_MESSAGE,
            flags=PullFlag.SUSPEND | PullFlag.SUBSCRIPTION | PullFlag.LITE_PULL,
            wait_ms=settings.pull_wait_ms,
        )
        pull_settings = PullLoopSettings.of(
            settings, tells_offsets=False, notes_skipped=False, keeps_illegal_to_itself=True
        )
        super().__init__(
            parts,
            self,
            pulling,
            pull_settings,
            ConsumeType.CONSUME_ACTIVELY,
            shares=_Either(usual_shares(parts), selection),
            on_shared=on_shared,
            notes_first=False,
        )

    # its life

    async def stop(self, drain_s: float) -> None:
        """What was handed out and is not done comes again."""
        for polled in self._polled:
            self._finish(polled, polled.done)
        self._polled = []
        if self._lite.auto_commit:
            self._note(self._positions())
        self._is_running = False
        self._news.set()
        await super().stop(0.0)

    async def finish_polled(self) -> None:
        """The user leaves in peace: whatever he has is done."""
        for polled in self._polled:
            polled.done = polled.got

    # which queues

    async def subscribe(self, topic: TopicName, expression: str | None, kind: str) -> None:
        self._selection.require_unassigned()
        await super().subscribe(topic, expression, kind)

    async def assign(self, queues: Iterable[MessageQueue], filters: Mapping[str, tuple[str | None, str]]) -> None:
        """Read these queues and no others, from now on. Filters are by topic."""
        parsed, chosen = self._selection.parsed(filters), frozenset(queues)
        for queue in chosen:
            if queue not in (await self._instance.routes.find(queue.topic)).readable:
                raise UsageError(f"{queue} cannot be read: its topic has no such queue")
        for subscription in parsed.values():
            await self._check(subscription)
        self._selection.assign(chosen, parsed)
        self._rebalance.soon()

    def topics(self) -> Iterable[str]:
        return self._selection.topics()

    def heartbeat(self) -> ConsumerData:
        """As Java's lite consumers say it, whatever they are set to: brokers do not act on it, but compare members."""
        return replace(super().heartbeat(), consume_from_where=ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET)

    def _filters(self) -> Iterable[Subscription]:
        return self._selection.filters()

    def _subscription_of(self, queue: MessageQueue) -> Subscription | None:
        return self._selection.filter_of(queue.topic)

    async def readable(self, topic: str) -> list[MessageQueue]:
        """All queues of a topic that can be read."""
        return list((await self._instance.routes.find(topic)).readable)

    def positions(self, topic: str) -> Mapping[MessageQueue, int]:
        return {queue: offset for queue, offset in self._positions().items() if queue.topic == topic}

    # messages

    async def poll(self, timeout_s: float) -> PolledMessages | None:
        """The next messages; None when none come in time, or the consumer is stopped.

        A body that cannot be read is an error, whenever its message is the next one of its queue.
        """
        self._settle()
        if self._lite.auto_commit and self._clock.monotonic() >= self._next_commit:
            self._commit_beside()
        try:
            async with asyncio.timeout(timeout_s):
                while self._is_running:
                    if (polled := self._take()) is not None:
                        return polled
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            pass
        return None

    def arrived(self, owned: ProcessQueue) -> None:
        """Messages wait in `owned`, whose pulls are held back by its limits only."""
        self._ready[owned] = None
        self._news.set()

    def left(self, owned: ProcessQueue) -> None:
        if self._lite.auto_commit and not owned.pulls.reread:
            self._offsets.move(owned.queue, _position(owned))

    def _take(self) -> PolledMessages | None:
        while self._ready:
            owned, _ = self._ready.popitem(last=False)
            if not owned.is_active or owned.is_paused:
                continue
            messages = owned.take(self._lite.pull_batch, self._clock.monotonic())
            seen, flaw = self._read(messages)
            if flaw is not None:
                owned.give_back(messages[len(seen) :])
            if owned.waiting:
                self.arrived(owned)
            if seen:
                polled = PolledMessages(owned, messages[: len(seen)], seen)
                self._polled.append(polled)
                return polled
            if flaw is not None:
                first = messages[0]
                place = f"message {first.message_id}, offset {first.queue_offset} of {owned.queue}"
                flaw.add_note(f"this is {place}; `seek` behind it to go on without it")
                raise flaw
        return None

    def _read(self, messages: Sequence[StoredMessage]) -> tuple[list[StoredMessage], PocketMQError | None]:
        """Messages as the user sees them, up to the first whose body cannot be read, and what is wrong with that."""
        seen: list[StoredMessage] = []
        for message in messages:
            try:
                seen.append(as_seen(message, self._settings.namespace))
            except PocketMQError as error:
                return seen, error
        return seen, None

    def _settle(self) -> None:
        """The user is back: what he got is done, and what did not reach him waits again."""
        unfinished, self._polled = self._polled, []
        for polled in unfinished:
            self._finish(polled, polled.got)
            left = polled.messages[polled.got :]
            if left:
                polled.owned.give_back(left)
                self.arrived(polled.owned)

    def _finish(self, polled: PolledMessages, count: int) -> None:
        """The first `count` of them; some may be finished already."""
        polled.owned.finish(polled.messages[:count], self._clock.monotonic())
        polled.owned.note_done()

    # offsets

    async def commit(self) -> None:
        """What the user got is done: let the group know, now. The rest of an iteration goes on. A failure is a PocketMQError."""
        for polled in self._polled:
            self._finish(polled, polled.got)
        self._polled = [polled for polled in self._polled if polled.got < len(polled.messages)]
        self._next_commit = self._clock.monotonic() + self._lite.auto_commit_ms / 1000
        await self._offsets.keep(self._positions())

    def _commit_beside(self) -> None:
        """The same for who comes for messages, and neither waits for brokers that are away nor hears of them."""
        self._next_commit = self._clock.monotonic() + self._lite.auto_commit_ms / 1000
        self._note(self._positions())
        self._instance.start(self._assignment.persist())

    def _positions(self) -> dict[MessageQueue, int]:
        return {owned.queue: _position(owned) for owned in self._owned.all() if not owned.pulls.reread}

    def _note(self, positions: Mapping[MessageQueue, int]) -> None:
        for queue, offset in positions.items():
            self._offsets.move(queue, offset)

    async def position(self, queue: MessageQueue) -> int:
        """The offset of the first message that is not done with."""
        return _position(await self._of(queue))

    async def committed(self, queue: MessageQueue) -> int | None:
        return await self._offsets.load(queue)

    async def seek(self, queue: MessageQueue, offset: int) -> None:
        """Go on at `offset` in an owned queue. Nothing is committed by that."""
        low, high = await self._ends(queue)
        if not low <= offset <= high:
            raise UsageError(f"{queue} has the offsets {low} to {high}; {offset} is none of them")
        await self._move(queue, offset)

    async def seek_to_begin(self, queue: MessageQueue) -> None:
        await self._move(queue, await self._instance.brokers.offsets.smallest(queue))

    async def seek_to_end(self, queue: MessageQueue) -> None:
        await self._move(queue, await self._instance.brokers.offsets.largest(queue))

    async def seek_to_time(self, queue: MessageQueue, time_ms: int) -> None:
        """To the first message that was stored then or later."""
        await self._move(queue, await self.offset_at(queue, time_ms))

    async def offset_at(self, queue: MessageQueue, time_ms: int) -> int:
        return await self._instance.brokers.offsets.at_time(queue, time_ms)

    async def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Pull and hand out nothing of these queues until `resume`."""
        for owned in [await self._of(queue) for queue in queues]:
            owned.is_paused = True

    async def resume(self, queues: Iterable[MessageQueue]) -> None:
        for owned in [await self._of(queue) for queue in queues]:
            owned.is_paused = False
            if owned.waiting:
                self.arrived(owned)

    async def _ends(self, queue: MessageQueue) -> tuple[int, int]:
        calls = self._instance.brokers.offsets
        return await calls.smallest(queue), await calls.largest(queue)

    async def _move(self, queue: MessageQueue, offset: int) -> None:
        await self._of(queue)
        self._polled = [polled for polled in self._polled if polled.owned.queue != queue]
        await self._assignment.restart([(queue, offset)], for_group=False)

    async def _of(self, queue: MessageQueue) -> ProcessQueue:
        """One that was assigned a moment ago is waited for."""
        owned = self._owned.get(queue)
        if owned is None and self._selection.is_assigned and queue in self._selection.chosen.queues:
            await self._rebalance.done()
            owned = self._owned.get(queue)
        if owned is None:
            raise UsageError(f"{queue} is not one of this consumer's queues now")
        return owned


class _Either:
    """Shares by rebalance, or the chosen ones, as it is said when they are asked for."""

    def __init__(self, shared: Shares, selection: LiteSelection) -> None:
        self._shared = shared
        self._selection = selection

    async def of(self, route: TopicRoute) -> Share | None:
        return await (self._selection.chosen if self._selection.is_assigned else self._shared).of(route)


def _position(owned: ProcessQueue) -> int:
    """The first offset that was not done with."""
    offset = owned.commit_offset if owned.count else None
    return owned.pulls.next_offset if offset is None else offset

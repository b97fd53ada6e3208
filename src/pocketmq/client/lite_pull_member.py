"""A member of a group whose messages are polled by its user: what lite pull consumers are made of.

    process queues ──► poll: the next messages of one queue ──► the user ── comes back for more ──► they are done
                                                                              │ every 5 s, or by `commit`
                                                                              └──► the group's offset

What the user got counts as done when he comes back: with the next poll, a commit, or a clean end. So after a crash the last
messages come again, and none is left out. What was handed out and did not reach him, because he gave up waiting for it or left an
iteration before its turn, waits again. Queues are shared out by rebalance, or chosen by the user, but not both.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec.structs import replace

from pocketmq.client.consumer_settings import LitePullSettings
from pocketmq.client.group_member import GroupMember
from pocketmq.client.handed import Handed
from pocketmq.client.hooks import HookList, Hooks
from pocketmq.client.instance import Surroundings
from pocketmq.client.listener import as_seen
from pocketmq.client.owned_queue import OwnedQueue
from pocketmq.client.pull_loop import PullWishes
from pocketmq.client.pulling import Pulling
from pocketmq.client.rebalance import OnShared
from pocketmq.client.routes import TopicRoute
from pocketmq.client.shares import Chosen, Share, Shares
from pocketmq.codes import RequestCode
from pocketmq.errors import PocketMQError, UsageError, WrongState
from pocketmq.model.flags import PullFlag
from pocketmq.model.message import StoredMessage
from pocketmq.model.names import TopicName
from pocketmq.model.queue import MessageQueue
from pocketmq.model.subscription import Subscription
from pocketmq.protocol.bodies.heartbeat import ConsumeFromWhere, ConsumerData, ConsumeType


class LitePullMember(GroupMember):
    """`on_shared` hears when queues are shared out anew."""

    consume_type = ConsumeType.CONSUME_ACTIVELY
    notes_first_offsets = False

    def __init__(self, settings: LitePullSettings, hooks: Iterable[Hooks], around: Surroundings) -> None:
        super().__init__(settings, HookList(hooks), around, with_retries=False, is_stream=True)
        self._lite = settings
        self._chosen = Chosen()
        self._is_assigned = False
        self._chosen_filters: dict[str, Subscription] = {}
        self._ready: deque[OwnedQueue] = deque()
        self._handed: list[Handed] = []
        self._news = asyncio.Event()
        self._next_commit = 0.0
        self.on_shared: OnShared | None = None

    # its life

    async def start(self) -> None:
        self._on_shared = self.on_shared
        self._next_commit = self._clock.monotonic() + self._lite.auto_commit_ms / 1000
        await super().start()

    async def stop(self, drain_s: float) -> None:
        """What was handed out and is not done comes again."""
        for handed in self._handed:
            self._finish(handed, handed.done)
        self._handed = []
        if self._lite.auto_commit:
            self._note(self._positions())
        self._is_running = False
        self._news.set()
        await super().stop(0.0)

    async def finish_handed(self) -> None:
        """The user leaves in peace: whatever he has is done."""
        for handed in self._handed:
            handed.done = handed.got

    def _pulling(self) -> Pulling:
        return Pulling(
            self._instance,
            self._group,
            code=RequestCode.LITE_PULL_MESSAGE,
            flags=PullFlag.SUSPEND | PullFlag.SUBSCRIPTION | PullFlag.LITE_PULL,
            wait_ms=self._lite.pull_wait_ms,
        )

    def _pull_wishes(self) -> PullWishes:
        settings = self._lite
        return PullWishes(
            batch=settings.pull_batch,
            interval_s=None if settings.pull_interval_ms is None else settings.pull_interval_ms / 1000,
            retry_s=settings.pull_retry_ms / 1000,
            timeout_s=settings.pull_timeout_ms / 1000,
            limits=settings.limits,
            tells_offsets=False,
            notes_skipped=False,
            keeps_illegal_to_itself=True,
        )

    def _shares(self) -> Shares:
        return _Either(super()._shares(), self._chosen, lambda: self._is_assigned)

    def _leaving(self, owned: OwnedQueue) -> None:
        if self._lite.auto_commit and not owned.reread:
            self._offsets.move(owned.queue, _position(owned))

    # which queues

    def want(self, topic: TopicName, expression: str | None, kind: str) -> Subscription:
        if self._is_assigned:
            raise WrongState("this consumer was given its queues by `assign`; make another one that subscribes")
        return super().want(topic, expression, kind)

    async def assign(
        self, queues: Iterable[MessageQueue], filters: Mapping[str, tuple[str | None, str]] | None = None
    ) -> None:
        """Read these queues and no others, from now on. Filters are by topic."""
        if len(self._subscriptions):
            raise WrongState("this consumer subscribes to topics; make another one whose queues are assigned")
        chosen, now_ms = frozenset(queues), self._clock.now_ms()
        parsed = {
            topic: Subscription.parse(topic, expression, kind, sub_version=now_ms)
            for topic, (expression, kind) in (filters or {}).items()
        }
        if self._is_running:
            for queue in chosen:
                if queue not in (await self._instance.routes.find(queue.topic)).readable:
                    raise UsageError(f"{queue} cannot be read: its topic has no such queue")
            for subscription in parsed.values():
                await self._check(subscription)
        self._is_assigned = True
        self._chosen_filters |= parsed
        self._chosen.queues = chosen
        if self._is_running:
            self._rebalance.soon()

    def topics(self) -> Iterable[str]:
        if not self._is_assigned:
            return super().topics()
        return dict.fromkeys(queue.topic for queue in sorted(self._chosen.queues))

    def heartbeat(self) -> ConsumerData:
        """As Java's lite consumers say it, whatever they are set to: brokers do not act on it, but compare members."""
        return replace(super().heartbeat(), consume_from_where=ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET)

    def _filters(self) -> Iterable[Subscription]:
        return self._chosen_filters.values() if self._is_assigned else super()._filters()

    def _subscription_of(self, queue: MessageQueue) -> Subscription | None:
        if not self._is_assigned:
            return super()._subscription_of(queue)
        return self._chosen_filters.get(queue.topic) or Subscription.parse(queue.topic)

    async def readable(self, topic: str) -> list[MessageQueue]:
        """All queues of a topic that can be read."""
        return list((await self._instance.routes.find(topic)).readable)

    def positions(self, topic: str) -> Mapping[MessageQueue, int]:
        return {queue: offset for queue, offset in self._positions().items() if queue.topic == topic}

    # messages

    async def poll(self, timeout_s: float) -> Handed | None:
        """The next messages; None when none come in time, or the consumer is stopped.

        A body that cannot be read is an error, whenever its message is the next one of its queue.
        """
        self._settle()
        if self._lite.auto_commit and self._clock.monotonic() >= self._next_commit:
            self._commit_beside()
        try:
            async with asyncio.timeout(timeout_s):
                while self._is_running:
                    if (handed := self._take()) is not None:
                        return handed
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            pass
        return None

    def _arrived(self, owned: OwnedQueue) -> None:
        if not owned.is_listed:
            owned.is_listed = True
            self._ready.append(owned)
        self._news.set()

    def _take(self) -> Handed | None:
        while self._ready:
            owned = self._ready.popleft()
            owned.is_listed = False
            if not owned.is_active or owned.is_paused:
                continue
            messages = owned.flight.take(self._lite.pull_batch, self._clock.monotonic())
            seen, flaw = self._read(messages)
            if flaw is not None:
                owned.flight.give_back(messages[len(seen) :])
            if owned.flight.waiting:
                self._arrived(owned)
            if seen:
                handed = Handed(owned, messages[: len(seen)], seen)
                self._handed.append(handed)
                return handed
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
        handed_out, self._handed = self._handed, []
        for handed in handed_out:
            self._finish(handed, handed.got)
            left = handed.messages[handed.got :]
            if left:
                handed.owned.flight.give_back(left)
                self._arrived(handed.owned)

    def _finish(self, handed: Handed, count: int) -> None:
        """The first `count` of them; some may be finished already."""
        handed.owned.flight.finish(handed.messages[:count], self._clock.monotonic())
        handed.owned.note_done()

    # offsets

    async def commit(self) -> None:
        """What the user got is done: let the group know, now. The rest of an iteration goes on. A failure is a PocketMQError."""
        for handed in self._handed:
            self._finish(handed, handed.got)
        self._handed = [handed for handed in self._handed if handed.got < len(handed.messages)]
        self._next_commit = self._clock.monotonic() + self._lite.auto_commit_ms / 1000
        await self._offsets.keep(self._positions())

    def _commit_beside(self) -> None:
        """The same for who comes for messages, and neither waits for brokers that are away nor hears of them."""
        self._next_commit = self._clock.monotonic() + self._lite.auto_commit_ms / 1000
        self._note(self._positions())
        self._instance.start(self._assignment.persist())

    def _positions(self) -> dict[MessageQueue, int]:
        return {owned.queue: _position(owned) for owned in self._assignment.all() if not owned.reread}

    def _note(self, positions: Mapping[MessageQueue, int]) -> None:
        for queue, offset in positions.items():
            self._offsets.move(queue, offset)

    async def position(self, queue: MessageQueue) -> int:
        """The offset of the first message that is not done with."""
        return _position(await self._owned(queue))

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
        for owned in [await self._owned(queue) for queue in queues]:
            owned.is_paused = True

    async def resume(self, queues: Iterable[MessageQueue]) -> None:
        for owned in [await self._owned(queue) for queue in queues]:
            owned.is_paused = False
            if owned.flight.waiting:
                self._arrived(owned)

    async def _ends(self, queue: MessageQueue) -> tuple[int, int]:
        calls = self._instance.brokers.offsets
        return await calls.smallest(queue), await calls.largest(queue)

    async def _move(self, queue: MessageQueue, offset: int) -> None:
        await self._owned(queue)
        self._handed = [handed for handed in self._handed if handed.owned.queue != queue]
        await self._assignment.restart([(queue, offset)], for_group=False)

    async def _owned(self, queue: MessageQueue) -> OwnedQueue:
        """One that was assigned a moment ago is waited for."""
        owned = self._assignment.get(queue)
        if owned is None and self._is_assigned and queue in self._chosen.queues:
            await self._rebalance.done()
            owned = self._assignment.get(queue)
        if owned is None:
            raise UsageError(f"{queue} is not one of this consumer's queues now")
        return owned


class _Either:
    """Shares by rebalance, or the chosen ones, as it is said when they are asked for."""

    def __init__(self, shared: Shares, chosen: Shares, is_chosen: Callable[[], bool]) -> None:
        self._shared = shared
        self._chosen = chosen
        self._is_chosen = is_chosen

    async def of(self, route: TopicRoute) -> Share | None:
        return await (self._chosen if self._is_chosen() else self._shared).of(route)


def _position(owned: OwnedQueue) -> int:
    """The first offset that was not done with."""
    offset = owned.flight.commit_offset if owned.flight.count else None
    return owned.next_offset if offset is None else offset

"""Assignment: the queues that this member owns, and how it gets and loses them.

    wanted ── not owned ──► (locked) ── first offset ──► owned, pulled
    owned ── not wanted, or its pulls are dead ──► leaving ── idle, or 0.4 s ──► offset kept, dropped, (unlocked)

A queue changes hands in two halves. Its old owner begins nothing new, lets listeners finish for a moment and has its offset kept;
its new owner waits for that moment before it asks where the group is. So what is handled twice is what takes longer than that.
An ordered queue is not given up while a listener works on it, and not taken before it is locked. One whose lock another client had
meanwhile is begun anew where the group is by then.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence

from pocketmq.client.first_offsets import FirstOffsets
from pocketmq.client.offsets import Offsets
from pocketmq.client.owned_queue import OwnedQueue
from pocketmq.client.process_queue import ProcessQueue
from pocketmq.client.queue_locks import QueueLocks
from pocketmq.clock import Clock
from pocketmq.errors import PocketMQError
from pocketmq.model.queue import MessageQueue

log = logging.getLogger("pocketmq.client")

HAND_OVER_S = 1.0
"""How long a new owner waits for the old one, who may hear of the change later."""
DRAIN_S = 0.4
"""How long an old owner waits for its listeners; less, so that its offset is kept when the new one asks."""
ORDERED_DRAIN_S = 0.5


class Assignment:
    """The owned queues of one consumer. `begin` starts pulling one; `leaving` hears of one before its offset is kept."""

    def __init__(
        self,
        clock: Clock,
        offsets: Offsets,
        first: FirstOffsets,
        begin: Callable[[OwnedQueue], None],
        leaving: Callable[[OwnedQueue], None],
        locks: QueueLocks | None = None,
        *,
        notes_first: bool = True,
    ) -> None:
        """`notes_first`: where a queue is begun is kept for the group again and again, also while nothing of it is done."""
        self._clock = clock
        self._offsets = offsets
        self._first = first
        self._begin = begin
        self._leaving = leaving
        self._locks = locks
        self._notes_first = notes_first
        self._owned: dict[MessageQueue, OwnedQueue] = {}
        self._counts: Counter[str] = Counter()
        self._changing = asyncio.Lock()  # one change at a time: rebalance, repairs, resets and seeks all wait for calls

    def __len__(self) -> int:
        return len(self._owned)

    def all(self) -> list[OwnedQueue]:
        return list(self._owned.values())

    def get(self, queue: MessageQueue) -> OwnedQueue | None:
        return self._owned.get(queue)

    def topics(self) -> set[str]:
        return {topic for topic, count in self._counts.items() if count}

    def count(self, topic: str) -> int:
        """How many queues of `topic` are owned."""
        return self._counts[topic]

    async def apply(
        self, topic: str, all_queues: Sequence[MessageQueue], wanted: Sequence[MessageQueue], *, is_shared: bool
    ) -> tuple[bool, bool]:
        """Own the `wanted` queues of `topic` and no others. Whether anything changed, and whether it is all as wanted.

        `is_shared`: the group has other members, from whom queues may come.
        """
        async with self._changing:
            now = self._clock.monotonic()
            keep = frozenset(wanted)
            ending = [
                owned
                for owned in self._of_topic(topic)
                if owned.queue not in keep or owned.flight.is_taken_over or owned.flight.is_pull_dead(now)
            ]
            for owned in self._of_topic(topic):
                if owned not in ending and owned.is_leaving:
                    self._stay(owned)
            given_up = await asyncio.gather(*(self._give_up(owned, now) for owned in ending))
            missing = [queue for queue in wanted if queue not in self._owned]
            taken = await self._take(missing, all_queues, is_shared=is_shared)
            return any(given_up) or taken > 0, all(given_up) and taken == len(missing)

    def leave_topic(self, topic: str) -> None:
        """Begin nothing more of its queues, which the next rebalance takes away; or they stay, if it is wanted again by then."""
        for owned in self._of_topic(topic):
            owned.leave()

    async def drop_topic(self, topic: str) -> None:
        """The topic is not subscribed to any more."""
        async with self._changing:
            now = self._clock.monotonic()
            await asyncio.gather(*(self._give_up(owned, now) for owned in self._of_topic(topic)))
            self._first.forget(topic)

    async def restart(self, offsets: Iterable[tuple[MessageQueue, int]], *, for_group: bool = True) -> None:
        """Go on at other offsets in queues that are owned. What is in work of them ends, but counts for nothing.

        `for_group`: the whole group goes on there, whoever owns the queue next.
        """
        async with self._changing:
            moved = [(owned, offset) for queue, offset in offsets if (owned := self._owned.get(queue))]
            for owned, offset in moved:
                self._drop(owned)
                self._offsets.forget(owned.queue)
                if for_group:
                    self._offsets.move(owned.queue, offset)
            await self._offsets.persist([owned.queue for owned, _ in moved], wait=True)
            for owned, offset in moved:
                self._own(owned.queue, offset, was=owned)

    async def topic_missing(self, queue: MessageQueue) -> None:
        """The topic of an owned queue was deleted. Offsets of its messages mean nothing in a topic that is created under its name."""
        async with self._changing:
            owned = self._owned.get(queue)
            if owned is None:
                return
            self._first.missing(queue.topic)
            self._drop(owned)
            owned.last_pulled = None
            self._offsets.forget(queue)
            if self._offsets.are_local:
                try:
                    await self._offsets.begin(queue, 0)
                except PocketMQError as error:
                    log.warning("%s was deleted, and its old offset is still kept: %s", queue, error)
            self._own(queue, 0, was=owned).awaits_topic = True

    async def clear(self, drain_s: float) -> None:
        """Leave all of them: wait for listeners, if there are any, keep the offsets, unlock."""
        async with self._changing:
            all_owned = self.all()
            for owned in all_owned:
                owned.leave()
            idle = await asyncio.gather(*(owned.wait_idle(drain_s) for owned in all_owned))
            busy = [str(owned.queue) for owned, is_idle in zip(all_owned, idle, strict=True) if not is_idle]
            if busy and drain_s:
                log.warning(
                    "listeners were still at work when their consumer was stopped, their messages come again: %s", busy
                )
            await self._offsets.persist(self._ours(), wait=True)
            for owned in all_owned:
                self._drop(owned)
            if self._locks is not None:
                await self._locks.unlock([owned.queue for owned in all_owned], wait=True)

    async def persist(self) -> None:
        """Keep the offsets of all owned queues."""
        await self._offsets.persist(self._ours())

    def _ours(self) -> list[MessageQueue]:
        """Those of which nobody else can know better how far the group is."""
        return [owned.queue for owned in self._owned.values() if not owned.flight.is_taken_over]

    async def _take(
        self, queues: Sequence[MessageQueue], all_queues: Sequence[MessageQueue], *, is_shared: bool
    ) -> int:
        """How many of `queues` are owned afterwards."""
        asked_at = self._clock.monotonic()
        if self._locks is None or not queues:
            return await self._begin_with(queues, all_queues, is_shared=is_shared)
        mine: Collection[MessageQueue] = queues  # as far as anybody knows until brokers have answered
        try:
            mine = await self._locks.lock(queues)
            for queue in queues:
                if queue not in mine:
                    log.info("%s is still locked by another client, and tried again", queue)
            return await self._begin_with(
                [queue for queue in queues if queue in mine], all_queues, is_shared=is_shared, asked_at=asked_at
            )
        finally:  # also when this member is stopped meanwhile: nobody else would unlock them for a minute
            left = [queue for queue in mine if queue not in self._owned]
            if left:
                await self._locks.unlock(left, wait=False)

    async def _begin_with(
        self,
        queues: Sequence[MessageQueue],
        all_queues: Sequence[MessageQueue],
        *,
        is_shared: bool,
        asked_at: float | None = None,
    ) -> int:
        """How many of `queues` could be begun. `asked_at`: when their locks were asked for, which are ours."""
        taken = 0
        for queue in queues:
            try:
                offset = await self._first.find(queue, all_queues)
            except PocketMQError as error:
                log.warning("%s cannot be begun, and is tried again: %s", queue, error)
                continue
            if self._notes_first:
                self._offsets.move(queue, offset)
            owned = self._own(queue, offset, is_shared=is_shared)
            if asked_at is not None:
                owned.flight.lock(asked_at)
            taken += 1
        return taken

    def _own(
        self, queue: MessageQueue, offset: int, *, is_shared: bool = False, was: OwnedQueue | None = None
    ) -> OwnedQueue:
        is_ordered = self._locks is not None
        flight = ProcessQueue(self._clock.monotonic(), is_orderly=is_ordered)
        owned = OwnedQueue(
            queue,
            flight,
            offset,
            start_after_s=HAND_OVER_S if is_shared else 0.0,
            reread=was is None and (is_shared or is_ordered),
        )
        if was is not None:
            owned.is_paused = was.is_paused
            owned.last_pulled = was.last_pulled
            owned.earlier = was if is_ordered else None
            if was.flight.locked_at is not None:
                flight.lock(was.flight.locked_at)
        self._owned[queue] = owned
        self._counts[queue.topic] += 1
        self._begin(owned)
        return owned

    async def _give_up(self, owned: OwnedQueue, now: float) -> bool:
        """Whether it is not owned any more."""
        owned.leave()
        is_idle = await owned.wait_idle(DRAIN_S if self._locks is None else ORDERED_DRAIN_S)
        if self._locks is not None and not is_idle:
            owned.flight.unlock_attempts += 1
            log.info("%s is given up when its listener is done", owned.queue)
            return False
        if owned.flight.is_pull_dead(now):
            log.warning("%s was not pulled for too long: it is dropped and begun anew", owned.queue)
        if owned.flight.is_taken_over:
            await self._forget_if_behind(owned.queue)
        self._leaving(owned)
        self._drop(owned)
        await self._offsets.persist([owned.queue], wait=True)
        self._offsets.forget(owned.queue)
        if self._locks is not None:
            await self._locks.unlock([owned.queue], wait=False)
        return True

    async def _forget_if_behind(self, queue: MessageQueue) -> None:
        """Whoever had the queue meanwhile may have got further with it."""
        noted = self._offsets.get(queue)
        try:
            stored = await self._offsets.load(queue)
        except PocketMQError:
            self._offsets.forget(queue)
            return
        if noted is not None and stored is not None and noted < stored:
            self._offsets.forget(queue)

    def _stay(self, owned: OwnedQueue) -> None:
        """It was to be given up, and is wanted again."""
        owned.is_leaving = False
        self._begin(owned)

    def _drop(self, owned: OwnedQueue) -> None:
        owned.flight.drop()
        owned.leave()
        if self._owned.pop(owned.queue, None) is not None:
            self._counts[owned.queue.topic] -= 1

    def _of_topic(self, topic: str) -> list[OwnedQueue]:
        return [owned for owned in self._owned.values() if owned.queue.topic == topic]

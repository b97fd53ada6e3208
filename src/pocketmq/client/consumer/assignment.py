"""Assignment: the queues that this member owns, and how it gets and loses them.

    wanted ── not owned ──► (locked) ── first offset ──► owned, pulled
    owned ── not wanted, or its pulls are dead ──► leaving ── idle, or 0.4 s ──► offset kept, dropped, (unlocked)

A queue changes hands in two halves. Its old owner begins nothing new, lets listeners finish for a moment and has its offset kept;
its new owner waits for that moment before it asks where the group is. So what is handled twice is what takes longer than that.
An ordered queue is not given up while a listener works on it, and not taken before it is locked. One whose lock another client had
meanwhile is begun anew where the group is by then.

Locks on queues, which orderly consumption needs: a broker gives each to one client of a group at a time.

    owned queues, by broker ── lock, again every 20 s ──► those that are ours now ── believed in for 30 s
    a queue given up ── unlock

A broker forgets a lock 60 s after it was last asked for, so a client that is gone holds nobody up for longer. It forgets all of them
when it is restarted: so a lock is believed in only as long as the line lasts on which it was given.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple, Protocol

from pocketmq.client.cluster.instance import Instance
from pocketmq.client.consumer.first_offsets import FirstOffsets
from pocketmq.client.consumer.offsets import Offsets
from pocketmq.client.consumer.process_queue import ProcessQueue, QueueObserver
from pocketmq.client.consumer.pull_position import PullPosition
from pocketmq.clock import Clock
from pocketmq.errors import PocketMQError
from pocketmq.model.queue import MessageQueue
from pocketmq.net.peer import Peer

log = logging.getLogger("pocketmq.client")

RENEW_S = 20.0
FIRST_RENEWAL_S = 1.0


class QueueLocks:
    """The locks of one consumer."""

    def __init__(self, instance: Instance, group: str) -> None:
        self._instance = instance
        self._calls = instance.brokers.members
        self._group = group
        self._lines: dict[MessageQueue, Peer] = {}
        """On which line each was given last."""

    def holds(self, owned: ProcessQueue) -> bool:
        """Whether the lock of `owned` is ours, as far as anybody can know without asking."""
        line = self._lines.get(owned.queue)
        return owned.is_locked(self._instance.clock.monotonic()) and line is not None and line.is_open

    async def lock(self, queues: Iterable[MessageQueue]) -> frozenset[MessageQueue]:
        """Those of `queues` that are ours now. A broker that cannot be asked gives none."""
        of_brokers = await asyncio.gather(*(self._lock(*each) for each in by_broker(queues).items()))
        return frozenset(queue for locked, _ in of_brokers for queue in locked)

    async def renew(self, owned: Collection[ProcessQueue]) -> None:
        """Ask for the locks of all owned queues; each is told how it stands."""
        queues = {one.queue: one for one in owned if not one.is_dropped}
        asked_at = self._instance.clock.monotonic()

        async def of_broker(name: str, wanted: list[MessageQueue]) -> None:
            locked, is_answered = await self._lock(name, wanted)
            for queue in wanted:
                if queue in locked:
                    queues[queue].lock(asked_at)
                elif is_answered:
                    log.warning(
                        "the lock of %s is another client's; nothing of it is consumed here until it is ours", queue
                    )
                    queues[queue].unlock()

        await asyncio.gather(*(of_broker(*each) for each in by_broker(queues).items()))

    async def unlock(self, queues: Iterable[MessageQueue], *, wait: bool) -> None:
        """Let go of them; with `wait`, hear that it happened. What fails ends by itself, 60 s later."""
        queues = list(queues)
        for queue in queues:
            self._lines.pop(queue, None)
        for name, of_broker in by_broker(queues).items():
            try:
                await self._calls.unlock(name, self._group, self._instance.client_id, of_broker, wait=wait)
            except PocketMQError as error:
                log.warning("queues of %s could not be unlocked, which ends by itself after 60 s: %s", name, error)

    async def _lock(self, name: str, queues: list[MessageQueue]) -> tuple[frozenset[MessageQueue], bool]:
        """Those that are ours, and whether the broker has answered."""
        try:
            line = await self._instance.brokers.peer(self._instance.brokers.master(name))
            locked = await self._calls.lock(name, self._group, self._instance.client_id, queues)
            self._lines.update(dict.fromkeys(locked, line))
            return locked, True
        except PocketMQError as error:
            log.warning("queues of %s could not be locked, which is tried again: %s", name, error)
            return frozenset(), False


def by_broker(queues: Iterable[MessageQueue]) -> dict[str, list[MessageQueue]]:
    found: dict[str, list[MessageQueue]] = {}
    for queue in queues:
        found.setdefault(queue.broker_name, []).append(queue)
    return found


HAND_OVER_S = 1.0
"""How long a new owner waits for the old one, who may hear of the change later."""
DRAIN_S = 0.4
"""How long an old owner waits for its listeners; less, so that its offset is kept when the new one asks."""
ORDERED_DRAIN_S = 0.5


class OwnedQueues:
    """The queues that a consumer owns now. Its assignment changes them, others look."""

    def __init__(self) -> None:
        self._owned: dict[MessageQueue, ProcessQueue] = {}
        self._counts: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._owned)

    def __contains__(self, queue: MessageQueue) -> bool:
        return queue in self._owned

    def all(self) -> list[ProcessQueue]:
        return list(self._owned.values())

    def get(self, queue: MessageQueue) -> ProcessQueue | None:
        return self._owned.get(queue)

    def topics(self) -> set[str]:
        return {topic for topic, count in self._counts.items() if count}

    def of_topic(self, topic: str) -> list[ProcessQueue]:
        return [owned for owned in self._owned.values() if owned.queue.topic == topic]

    def count(self, topic: str) -> int:
        """How many queues of `topic` are owned."""
        return self._counts[topic]

    def add(self, owned: ProcessQueue) -> None:
        self._owned[owned.queue] = owned
        self._counts[owned.queue.topic] += 1

    def remove(self, owned: ProcessQueue) -> None:
        if self._owned.pop(owned.queue, None) is not None:
            self._counts[owned.queue.topic] -= 1


class Restart(NamedTuple):
    """A queue has to be begun anew, at `offset`. `for_group`: the whole group goes on there."""

    offset: int
    for_group: bool = True
    is_topic_missing: bool = False
    """Its topic was deleted, and it waits for another of the same name."""


class Pulls(Protocol):
    """Who pulls; see `pull_loop.PullLoops`."""

    async def run(self, owned: ProcessQueue) -> Restart | None:
        """Pull a queue until it is left; or until it has to be begun anew, which is then said."""


class Assignment:
    """How one consumer gets and loses queues. `observer` consumes their messages."""

    def __init__(
        self,
        clock: Clock,
        owned: OwnedQueues,
        observer: QueueObserver,
        offsets: Offsets,
        first: FirstOffsets,
        pulls: Pulls,
        locks: QueueLocks | None = None,
        *,
        notes_first: bool = True,
    ) -> None:
        """`notes_first`: where a queue is begun is kept for the group again and again, also while nothing of it is done."""
        self._clock = clock
        self._owned = owned
        self._observer = observer
        self._offsets = offsets
        self._first = first
        self._pulls = pulls
        self._locks = locks
        self._notes_first = notes_first
        self._tasks: dict[ProcessQueue, asyncio.Task[None]] = {}
        """Those that pull."""
        self._changing = asyncio.Lock()  # one change at a time: rebalance, repairs, resets and seeks all wait for calls

    def topics(self) -> set[str]:
        return self._owned.topics()

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
                for owned in self._owned.of_topic(topic)
                if owned.queue not in keep or owned.is_taken_over or owned.is_pull_dead(now)
            ]
            for owned in self._owned.of_topic(topic):
                if owned not in ending and not owned.is_active:
                    owned.stay()
                    self._begin(owned)
            given_up = await asyncio.gather(*(self._give_up(owned, now) for owned in ending))
            missing = [queue for queue in wanted if queue not in self._owned]
            taken = await self._take(missing, all_queues, is_shared=is_shared)
            return any(given_up) or taken > 0, all(given_up) and taken == len(missing)

    def leave_topic(self, topic: str) -> None:
        """Begin nothing more of its queues, which the next rebalance takes away; or they stay, if it is wanted again by then."""
        for owned in self._owned.of_topic(topic):
            self._leave(owned)

    async def drop_topic(self, topic: str) -> None:
        """The topic is not subscribed to any more."""
        async with self._changing:
            now = self._clock.monotonic()
            await asyncio.gather(*(self._give_up(owned, now) for owned in self._owned.of_topic(topic)))
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
            await self._keep([owned for owned, _ in moved], wait=True)
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
            owned.pulls.last_pulled = None
            self._offsets.forget(queue)
            if self._offsets.are_local:
                try:
                    await self._offsets.begin(queue, 0)
                except PocketMQError as error:
                    log.warning("%s was deleted, and its old offset is still kept: %s", queue, error)
            self._own(queue, 0, was=owned).pulls.awaits_topic = True

    async def clear(self, drain_s: float) -> None:
        """Leave all of them: wait for listeners, if there are any, keep the offsets, unlock."""
        async with self._changing:
            all_owned = self._owned.all()
            for owned in all_owned:
                self._leave(owned)
            idle = await asyncio.gather(*(owned.wait_idle(drain_s) for owned in all_owned))
            busy = [str(owned.queue) for owned, is_idle in zip(all_owned, idle, strict=True) if not is_idle]
            if busy and drain_s:
                log.warning(
                    "listeners were still at work when their consumer was stopped, their messages come again: %s", busy
                )
            await self._keep(self._ours(), wait=True)
            for owned in all_owned:
                self._drop(owned)
            if self._locks is not None:
                await self._locks.unlock([owned.queue for owned in all_owned], wait=True)

    async def persist(self) -> None:
        """Keep the offsets of all owned queues."""
        await self._keep(self._ours())

    async def _keep(self, some: Sequence[ProcessQueue], *, wait: bool = False) -> None:
        for owned in some:
            self._offsets.mark(owned.queue, owned.pulls.last_pulled)
        await self._offsets.persist([owned.queue for owned in some], wait=wait)

    def _ours(self) -> list[ProcessQueue]:
        """Those of which nobody else can know better how far the group is."""
        return [owned for owned in self._owned.all() if not owned.is_taken_over]

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
                owned.lock(asked_at)
            taken += 1
        return taken

    def _own(
        self, queue: MessageQueue, offset: int, *, is_shared: bool = False, was: ProcessQueue | None = None
    ) -> ProcessQueue:
        is_ordered = self._locks is not None
        pulls = PullPosition(
            queue,
            offset,
            start_after_s=HAND_OVER_S if is_shared else 0.0,
            reread=was is None and (is_shared or is_ordered),
        )
        owned = ProcessQueue(pulls, self._observer, self._clock.monotonic(), is_orderly=is_ordered)
        if was is None:
            pulls.last_pulled = self._offsets.mark_of(queue)
            pulls.is_in_doubt = pulls.last_pulled is not None
        else:
            owned.is_paused = was.is_paused
            owned.pulls.last_pulled = was.pulls.last_pulled
            owned.earlier = was if is_ordered else None
            if was.locked_at is not None:
                owned.lock(was.locked_at)
        self._owned.add(owned)
        self._begin(owned)
        return owned

    def _begin(self, owned: ProcessQueue) -> None:
        """Pull it from now on."""
        task = asyncio.get_running_loop().create_task(self._pull(owned), name=f"pocketmq pulls of {owned.queue}")
        self._tasks[owned] = task

    async def _pull(self, owned: ProcessQueue) -> None:
        restart = await self._pulls.run(owned)
        if restart is None:
            return
        if restart.is_topic_missing:
            await self.topic_missing(owned.queue)
        else:
            await self.restart([(owned.queue, restart.offset)], for_group=restart.for_group)

    async def _give_up(self, owned: ProcessQueue, now: float) -> bool:
        """Whether it is not owned any more."""
        self._leave(owned)
        is_idle = await owned.wait_idle(DRAIN_S if self._locks is None else ORDERED_DRAIN_S)
        if self._locks is not None and not is_idle:
            owned.unlock_attempts += 1
            log.info("%s is given up when its listener is done", owned.queue)
            return False
        if owned.is_pull_dead(now):
            log.warning("%s was not pulled for too long: it is dropped and begun anew", owned.queue)
        if owned.is_taken_over:
            await self._forget_if_behind(owned.queue)
        self._drop(owned)
        await self._keep([owned], wait=True)
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

    def _leave(self, owned: ProcessQueue) -> None:
        """Nothing more of it is pulled or begun."""
        self._stop_pulls(owned)
        owned.leave()

    def _drop(self, owned: ProcessQueue) -> None:
        self._stop_pulls(owned)
        owned.drop()
        self._owned.remove(owned)

    def _stop_pulls(self, owned: ProcessQueue) -> None:
        """The answer to a pull that is under way is not waited for."""
        task = self._tasks.pop(owned, None)
        if task is not None and task is not asyncio.current_task():
            task.cancel()

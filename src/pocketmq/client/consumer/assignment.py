"""Assignment: the queues that are assigned to this member, and how it acquires and releases them.

    allocated, not assigned ──► (locked) ──► first offset ──► assigned, pulled
    assigned, not allocated, or without pulls ──► deactivated ── idle, or 0.4 s ──► offset committed, dropped, (unlocked)

A queue moves in two steps. Its old owner starts no more calls, lets running listeners finish for a moment and commits the offset. Its new
owner waits for that moment before it loads the offset. So only messages whose listeners take longer are consumed twice. An orderly queue
is not released while a listener works on it, and not acquired before it is locked. If another client had the lock meanwhile, the queue
restarts at the committed offset.

Queue locks, for orderly consumption: a broker gives the lock of a queue to one client of a group at a time.

    assigned queues, by broker ── lock, again every 20 s ──► trusted for 30 s
    released queue ── unlock

A broker releases a lock that was not renewed for 60 s, so a client that crashed blocks others for that time only. A broker forgets all
locks when it restarts. So a lock is trusted only while the connection exists on which it was granted.
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
from pocketmq.client.consumer.rebalance import Allocation
from pocketmq.clock import Clock
from pocketmq.errors import PocketMQError
from pocketmq.model import MessageQueue
from pocketmq.net import Peer

log = logging.getLogger("pocketmq.client")

RENEW_S = 20.0
FIRST_RENEWAL_S = 1.0


class QueueLocks:
    """The locks of one consumer."""

    def __init__(self, instance: Instance, group: str) -> None:
        self._instance = instance
        self._calls = instance.brokers.members
        self._group = group
        self._connections: dict[MessageQueue, Peer] = {}
        """The connection on which each lock was granted last."""

    def holds(self, owned: ProcessQueue) -> bool:
        """Whether this client has the lock of a queue, as far as it knows."""
        connection = self._connections.get(owned.queue)
        return owned.is_locked(self._instance.clock.monotonic()) and connection is not None and connection.is_open

    async def lock(self, queues: Iterable[MessageQueue]) -> frozenset[MessageQueue]:
        """Lock queues. Returns those that are locked now; none of a broker that does not answer."""
        of_brokers = await asyncio.gather(*(self._lock(*each) for each in by_broker(queues).items()))
        return frozenset(queue for locked, _ in of_brokers for queue in locked)

    async def renew(self, owned: Collection[ProcessQueue]) -> None:
        """Renew the locks of assigned queues, and update their process queues."""
        queues = {one.queue: one for one in owned if not one.is_dropped}
        requested_at = self._instance.clock.monotonic()

        async def of_broker(name: str, assigned: list[MessageQueue]) -> None:
            locked, is_answered = await self._lock(name, assigned)
            for queue in assigned:
                if queue in locked:
                    queues[queue].lock(requested_at)
                elif is_answered:
                    log.warning("%s is locked by another client; consumption pauses until the lock is granted", queue)
                    queues[queue].unlock()

        await asyncio.gather(*(of_broker(*each) for each in by_broker(queues).items()))

    async def unlock(self, queues: Iterable[MessageQueue], *, wait: bool) -> None:
        """Unlock queues; with `wait`, wait for the brokers. A lock that cannot be released expires after 60 s."""
        queues = list(queues)
        for queue in queues:
            self._connections.pop(queue, None)
        for name, of_broker in by_broker(queues).items():
            try:
                await self._calls.unlock(name, self._group, self._instance.client_id, of_broker, wait=wait)
            except PocketMQError as error:
                log.warning("queues of %s could not be unlocked: %s; their locks expire after 60 s", name, error)

    async def _lock(self, name: str, queues: list[MessageQueue]) -> tuple[frozenset[MessageQueue], bool]:
        """The locked queues, and whether the broker has answered."""
        try:
            connection = await self._instance.brokers.peer(self._instance.brokers.master(name))
            locked = await self._calls.lock(name, self._group, self._instance.client_id, queues)
            self._connections.update(dict.fromkeys(locked, connection))
            return locked, True
        except PocketMQError as error:
            log.warning("queues of %s could not be locked: %s; retrying", name, error)
            return frozenset(), False


def by_broker(queues: Iterable[MessageQueue]) -> dict[str, list[MessageQueue]]:
    found: dict[str, list[MessageQueue]] = {}
    for queue in queues:
        found.setdefault(queue.broker_name, []).append(queue)
    return found


HANDOVER_S = 1.0
"""How long a new owner waits for the old one, who may learn of the change later."""
DRAIN_S = 0.4
"""How long an old owner waits for its listeners: shorter, so that its offset is committed when the new owner loads it."""
ORDERED_DRAIN_S = 0.5


class OwnedQueues:
    """The queues that are assigned to a consumer. Only its `Assignment` changes them."""

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
        """The number of assigned queues of `topic`."""
        return self._counts[topic]

    def add(self, owned: ProcessQueue) -> None:
        self._owned[owned.queue] = owned
        self._counts[owned.queue.topic] += 1

    def remove(self, owned: ProcessQueue) -> None:
        if self._owned.pop(owned.queue, None) is not None:
            self._counts[owned.queue.topic] -= 1


class Restart(NamedTuple):
    """A queue has to restart at `offset`. `for_group`: commit this offset for the group."""

    offset: int
    for_group: bool = True
    is_topic_missing: bool = False
    """The topic was deleted, and the queue waits for a new topic of the same name."""


class Pulls(Protocol):
    """Pulls queues; see `pull_loop.PullLoops`."""

    async def run(self, owned: ProcessQueue) -> Restart | None:
        """Pull a queue until it is deactivated, or has to restart."""


class Assignment:
    """Acquires and releases the queues of one consumer. `observer` consumes their messages."""

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
        commits_start: bool = True,
    ) -> None:
        """`commits_start`: commit the start offset of a queue repeatedly, also before the first message is consumed."""
        self._clock = clock
        self._owned = owned
        self._observer = observer
        self._offsets = offsets
        self._first = first
        self._pulls = pulls
        self._locks = locks
        self._commits_start = commits_start
        self._tasks: dict[ProcessQueue, asyncio.Task[None]] = {}
        """The pull loops."""
        self._start_errors: dict[MessageQueue, str] = {}
        """Why a queue has no first offset yet."""
        self._changing = asyncio.Lock()  # rebalance, repairs, resets and seeks wait for requests: one change at a time

    def topics(self) -> set[str]:
        return self._owned.topics()

    async def apply(self, topic: str, allocation: Allocation) -> tuple[bool, bool]:
        """Assign exactly the allocated queues of `topic`. Whether anything changed, and whether the assignment is complete."""
        async with self._changing:
            now = self._clock.monotonic()
            keep = frozenset(allocation.mine)
            ending = [
                owned
                for owned in self._owned.of_topic(topic)
                if owned.queue not in keep or owned.was_locked_elsewhere or owned.is_pull_dead(now)
            ]
            for owned in self._owned.of_topic(topic):
                if owned not in ending and not owned.is_active:
                    owned.reactivate()
                    self._start_pulls(owned)
            released = await asyncio.gather(*(self._release(owned, now) for owned in ending))
            missing = [queue for queue in allocation.mine if queue not in self._owned]
            added = await self._add(missing, allocation)
            return any(released) or added > 0, all(released) and added == len(missing)

    def deactivate_topic(self, topic: str) -> None:
        """Stop consuming the topic. The next rebalance releases its queues, or reactivates them if it is subscribed to again."""
        for owned in self._owned.of_topic(topic):
            self._deactivate(owned)

    async def drop_topic(self, topic: str) -> None:
        """Release the queues of a topic that is not subscribed to any more."""
        async with self._changing:
            now = self._clock.monotonic()
            await asyncio.gather(*(self._release(owned, now) for owned in self._owned.of_topic(topic)))
            self._first.forget(topic)

    async def restart(self, offsets: Iterable[tuple[MessageQueue, int]], *, for_group: bool = True) -> None:
        """Continue at other offsets in assigned queues. Running listeners end, but their results are ignored.

        `for_group`: commit the new offsets for the group.
        """
        async with self._changing:
            moved = [(owned, offset) for queue, offset in offsets if (owned := self._owned.get(queue))]
            for owned, offset in moved:
                self._drop(owned)
                self._offsets.forget(owned.queue)
                if for_group:
                    self._offsets.move(owned.queue, offset)
            await self._commit([owned for owned, _ in moved], wait=True)
            for owned, offset in moved:
                self._own(owned.queue, offset, was=owned)

    async def topic_missing(self, queue: MessageQueue) -> None:
        """The topic of an assigned queue was deleted. Its offsets are meaningless in a new topic of the same name."""
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
                    await self._offsets.store.begin(queue, 0)
                except PocketMQError as error:
                    log.warning(
                        "the local offset of %s in a deleted topic could not be reset: %s; continuing at offset 0",
                        queue,
                        error,
                    )
            self._own(queue, 0, was=owned).pulls.awaits_topic = True

    async def release_all(self, drain_s: float) -> None:
        """Release all queues: wait for running listeners, commit the offsets, unlock."""
        async with self._changing:
            all_owned = self._owned.all()
            for owned in all_owned:
                self._deactivate(owned)
            idle = await asyncio.gather(*(owned.wait_idle(drain_s) for owned in all_owned))
            busy = [str(owned.queue) for owned, is_idle in zip(all_owned, idle, strict=True) if not is_idle]
            if busy and drain_s:
                log.warning(
                    "listeners were still running when the consumer stopped; their messages are delivered again: %s",
                    busy,
                )
            await self._commit(self._ours(), wait=True, is_last=True)
            for owned in all_owned:
                self._drop(owned)
            if self._locks is not None:
                await self._locks.unlock([owned.queue for owned in all_owned], wait=True)

    async def persist(self) -> None:
        """Commit the offsets of all assigned queues."""
        await self._commit(self._ours())

    async def _commit(self, queues: Sequence[ProcessQueue], *, wait: bool = False, is_last: bool = False) -> None:
        for owned in queues:
            self._offsets.mark(owned.queue, owned.pulls.last_pulled)
        await self._offsets.persist([owned.queue for owned in queues], wait=wait, is_last=is_last)

    def _ours(self) -> list[ProcessQueue]:
        """The queues whose offset no other member can know better."""
        return [owned for owned in self._owned.all() if not owned.was_locked_elsewhere]

    async def _add(self, queues: Sequence[MessageQueue], allocation: Allocation) -> int:
        """Acquire queues. Returns the number of those that are assigned now."""
        requested_at = self._clock.monotonic()
        if self._locks is None or not queues:
            return await self._start_queues(queues, allocation)
        mine: Collection[MessageQueue] = queues  # until the brokers have answered
        try:
            mine = await self._locks.lock(queues)
            for queue in queues:
                if queue not in mine:
                    log.info("%s is still locked by another client; retrying", queue)
            return await self._start_queues([queue for queue in queues if queue in mine], allocation, requested_at)
        finally:  # also when the member is stopped meanwhile: the locks would remain for a minute
            left = [queue for queue in mine if queue not in self._owned]
            if left:
                await self._locks.unlock(left, wait=False)

    async def _start_queues(
        self, queues: Sequence[MessageQueue], allocation: Allocation, requested_at: float | None = None
    ) -> int:
        """Find the first offsets and start the pulls. Returns the number of started queues. `requested_at` is the time of their locks."""
        added = 0
        for queue in queues:
            try:
                offset = await self._first.find(queue, allocation.all_queues)
            except PocketMQError as error:
                if self._start_errors.get(queue) != str(
                    error
                ):  # log each cause once: the next attempt is a second away
                    log.warning("first offset of %s not found: %s; retrying until it is", queue, error)
                self._start_errors[queue] = str(error)
                continue
            self._start_errors.pop(queue, None)
            if self._commits_start:
                self._offsets.move(queue, offset)
            owned = self._own(queue, offset, has_other_members=allocation.has_other_members)
            if requested_at is not None:
                owned.lock(requested_at)
            added += 1
        return added

    def _own(
        self, queue: MessageQueue, offset: int, *, has_other_members: bool = False, was: ProcessQueue | None = None
    ) -> ProcessQueue:
        is_ordered = self._locks is not None
        pulls = PullPosition(
            queue,
            offset,
            start_after_s=HANDOVER_S if has_other_members else 0.0,
            reload_offset=was is None and (has_other_members or is_ordered),
        )
        owned = ProcessQueue(pulls, self._observer, self._clock.monotonic(), is_orderly=is_ordered)
        if was is None:
            pulls.last_pulled = self._offsets.mark_of(queue)
            pulls.is_in_doubt = pulls.last_pulled is not None
        else:
            owned.is_paused = was.is_paused
            owned.pulls.last_pulled = was.pulls.last_pulled
            owned.predecessor = was if is_ordered else None
            if was.locked_at is not None:
                owned.lock(was.locked_at)
        self._owned.add(owned)
        self._start_pulls(owned)
        return owned

    def _start_pulls(self, owned: ProcessQueue) -> None:
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

    async def _release(self, owned: ProcessQueue, now: float) -> bool:
        """Release a queue; False if it remains assigned because a listener works on it."""
        self._deactivate(owned)
        is_idle = await owned.wait_idle(DRAIN_S if self._locks is None else ORDERED_DRAIN_S)
        if self._locks is not None and not is_idle:
            owned.unlock_attempts += 1
            log.info("rebalance: %s is released when its listener returns", owned.queue)
            return False
        if owned.is_pull_dead(now):
            log.warning("rebalance: %s was not pulled for too long; dropping it and assigning it again", owned.queue)
        if owned.was_locked_elsewhere:
            await self._forget_if_behind(owned.queue)
        self._drop(owned)
        await self._commit([owned], wait=True)
        self._offsets.forget(owned.queue)
        if self._locks is not None:
            await self._locks.unlock([owned.queue], wait=False)
        return True

    async def _forget_if_behind(self, queue: MessageQueue) -> None:
        """Forget the local offset if another owner has committed a larger one."""
        local = self._offsets.get(queue)
        try:
            stored = await self._offsets.store.load(queue)
        except PocketMQError:
            self._offsets.forget(queue)
            return
        if local is not None and stored is not None and local < stored:
            self._offsets.forget(queue)

    def _deactivate(self, owned: ProcessQueue) -> None:
        """Stop the pulls and the consumption of a queue."""
        self._stop_pulls(owned)
        owned.deactivate()

    def _drop(self, owned: ProcessQueue) -> None:
        self._stop_pulls(owned)
        owned.drop()
        self._owned.remove(owned)

    def _stop_pulls(self, owned: ProcessQueue) -> None:
        """Cancel the pull loop without waiting for a response."""
        task = self._tasks.pop(owned, None)
        if task is not None and task is not asyncio.current_task():
            task.cancel()

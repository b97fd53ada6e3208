"""Pops of a push consumer: one loop for each assigned queue, and the leased messages that listeners did not handle yet.

    assigned queue, mostly -1 ──► limit? ── reached: wait for listeners; 1 s if paused ──► check again
                                    │ not reached
                                    ▼
                         pop, held by the broker ─┬─ messages ──► one process queue for each real queue ──► listening
                                                  ├─ none ──► next pop
                                                  └─ failed, or too many wait ──► next pop after `pull_retry_ms`

The limit is what keeps the workers busy, see `flow_limits.lease_limit`. The assigned queues share it, and none leases more than
`max_popped_messages`. A pop is held for a quarter of the invisible time at most, as the end of a lease is computed from the
time before its request. Leases are extended until their messages are handled.

A process queue has the messages of one pop and one real queue, whose offsets grow. It is forgotten when all are handled.

A pop cannot be cancelled at the broker. If the consumer stops meanwhile, its messages are given back.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import Final

from pocketmq.client.cluster.instance import Instance
from pocketmq.client.consumer.assignment import Assignment
from pocketmq.client.consumer.flow_limits import PauseCause, PauseCounts
from pocketmq.client.consumer.leases import LeaseTable
from pocketmq.client.consumer.listening import Listening
from pocketmq.client.consumer.popping import Popping
from pocketmq.client.consumer.process_queue import ProcessQueue, QueueObserver
from pocketmq.client.consumer.pull_position import PullPosition
from pocketmq.client.consumer.pulling import PullEvents
from pocketmq.client.consumer.rebalance import Allocation
from pocketmq.client.consumer.settings import PushSettings
from pocketmq.client.consumer.settling import LeaseSettling
from pocketmq.client.consumer.subscriptions import SubscriptionTable
from pocketmq.clock import Clock
from pocketmq.errors import FlowControl, GroupNotFound, NetworkError, PocketMQError, TopicNotFound
from pocketmq.model import MessageQueue, StoredMessage
from pocketmq.model.names import is_retry
from pocketmq.protocol.bodies.clients import PopProcessQueueInfo

log = logging.getLogger("pocketmq.client")

AFTER_FLOW_CONTROL_S: Final = 0.02
EMPTY_S: Final = 0.05
"""Pause after a broker did not hold a pop without messages."""
CHECK_S: Final = 1.0
"""The longest pause before the limits are checked again."""
HOLD_SHARE: Final = 0.25
"""Of the invisible time: how long a pop may be held."""
USED_UP: Final = "the attempts are used up: it was delivered {} times, and no listener handled it"


class LeasedQueue(ProcessQueue):
    """The leased messages of one pop and one real queue."""

    is_leased = True

    def __init__(
        self,
        messages: Sequence[StoredMessage],
        queue: MessageQueue,
        observer: QueueObserver,
        now: float,
        changed: Callable[[], None],
        *,
        is_ordered: bool,
    ) -> None:
        super().__init__(PullPosition(queue, messages[0].queue_offset), observer, now, is_orderly=is_ordered)
        self._changed = changed

    def consumption_changed(self) -> None:
        super().consumption_changed()
        self._changed()


class LeasedQueues:
    """The leased messages of one consumer that are not handled."""

    def __init__(self, leases: LeaseTable, settling: LeaseSettling) -> None:
        self._leases = leases
        self._settling = settling
        self._queues: dict[LeasedQueue, MessageQueue] = {}
        """With the assigned queue of each."""
        self.changed = asyncio.Event()

    def all(self) -> list[LeasedQueue]:
        return [*self._queues]

    def add(self, owned: LeasedQueue, assigned: MessageQueue) -> None:
        self._queues[owned] = assigned

    def count(self, assigned: MessageQueue | None = None) -> int:
        """Messages that are not handled, of one assigned queue or of all."""
        for owned in [owned for owned in self._queues if not owned.count]:
            del self._queues[owned]
        return sum(one.count for one, source in self._queues.items() if assigned is None or source == assigned)

    def body_bytes(self, assigned: MessageQueue) -> int:
        return sum(one.body_bytes for one, source in self._queues.items() if source == assigned)

    # locks of orderly listening

    def holds(self, owned: ProcessQueue) -> bool:
        """Whether no lease of an ordered queue is over."""
        return not owned.is_dropped and self._settling.may_call(owned.in_flight())

    async def renew(self, owned: Collection[ProcessQueue]) -> None:
        """A lease that is over cannot be renewed: the broker delivers the whole queue again, in order."""
        for one in owned:
            log.warning("the leases of %s are over; the broker delivers its messages again", one.queue)
            one.drop()
            for message in one.in_flight():
                self._leases.forget(message)
            self._queues = {each: source for each, source in self._queues.items() if each is not one}
        self.changed.set()

    def withdraw(self, topic: str, now: float) -> list[StoredMessage]:
        """Remove the messages of a topic that wait for listeners."""
        found: list[StoredMessage] = []
        for owned in [owned for owned in self._queues if owned.queue.topic == topic]:
            owned.deactivate()
            waiting = owned.take(owned.waiting, now)
            owned.finish(waiting, now)
            found += waiting
        self.changed.set()
        return found

    async def release(self, drain_s: float) -> None:
        """Start no more calls, wait for the running ones, and let all other messages return."""
        found = self.all()
        for owned in found:
            owned.deactivate()
        idle = await asyncio.gather(*(owned.wait_idle(drain_s) for owned in found))
        if busy := [str(owned.queue) for owned, is_idle in zip(found, idle, strict=True) if not is_idle]:
            log.warning("listeners were still running when the consumer stopped; their messages return: %s", busy)
        waiting = [message for owned in found for message in owned.untaken()]
        await self._settling.flush(max(drain_s, 1.0))
        await self._settling.give_back_all(waiting)
        for owned in found:
            owned.drop()
        self._queues.clear()
        await self._leases.stop()


class PopLoop:
    """The loop of one assigned queue."""

    def __init__(self, loops: "PopLoops", queue: MessageQueue) -> None:
        self.queue = queue
        self.is_active = True
        self.last_pop_at = 0.0
        self._loops = loops
        self._attempt_id = loops.new_attempt_id()

    async def run(self) -> None:
        last_error = ""
        while self.is_active:
            try:
                wait_s = await self._step()
            except PocketMQError as error:
                wait_s = self._loops.retry_delay(self.queue, error)
                if type(error).__name__ != last_error:
                    last_error = type(error).__name__
                    log.warning("pop of %s failed: %s; next attempt in %g s", self.queue, error, wait_s)
            except Exception:
                wait_s = self._loops.retry_s
                log.exception("unexpected error while popping %s; next attempt in %g s", self.queue, wait_s)
            else:
                if last_error:
                    log.info("pops of %s succeed again", self.queue)
                last_error = ""
            if wait_s:
                await asyncio.sleep(wait_s)

    async def _step(self) -> float:
        """One pop, or none. Returns how long to wait."""
        loops = self._loops
        if (cause := loops.pause_cause(self.queue)) is not None:
            return await loops.pause(self.queue, cause)
        began = self.last_pop_at = loops.now()
        messages = await loops.pop(self.queue, loops.next_size(self.queue), self._attempt_id)
        self._attempt_id = loops.new_attempt_id()
        if messages:
            loops.accept(self.queue, messages)
        elif loops.now() - began < EMPTY_S:
            return EMPTY_S
        return 0.0


class PopLoops:
    """The loops of one consumer, and what they share."""

    def __init__(
        self,
        instance: Instance,
        settings: PushSettings,
        popping: Popping,
        leased: LeasedQueues,
        settling: LeaseSettling,
        listening: Listening,
        events: PullEvents,
    ) -> None:
        self._instance = instance
        self._settings = settings
        self._popping = popping
        self._leased = leased
        self._settling = settling
        self._listening = listening
        self._events = events
        self._invisible_s = settings.pop_invisible_ms / 1000
        self._wait_s = min(settings.pull_wait_ms / 1000, HOLD_SHARE * self._invisible_s)
        self.retry_s = settings.pull_retry_ms / 1000
        self.is_paused = False
        self.pauses = PauseCounts()
        self._loops: dict[PopLoop, asyncio.Task[None]] = {}

    # loops

    def topics(self) -> set[str]:
        return {loop.queue.topic for loop in self._loops}

    def queues(self) -> list[MessageQueue]:
        return [loop.queue for loop in self._loops]

    def keep(self, topic: str, queues: Collection[MessageQueue]) -> bool:
        """End the loops of other queues of the topic. Whether there were any. Their last pop is handled as the others."""
        ending = [loop for loop in self._loops if loop.queue.topic == topic and loop.queue not in queues]
        for loop in ending:
            loop.is_active = False
            del self._loops[loop]
            if self._events.are_watched:
                self._events.left(loop.queue)
        return bool(ending)

    def add(self, queues: Iterable[MessageQueue]) -> bool:
        """Start the missing loops. Whether there were any."""
        known = set(self.queues())
        missing = [queue for queue in queues if queue not in known]
        for queue in missing:
            loop = PopLoop(self, queue)
            task = asyncio.get_running_loop().create_task(loop.run(), name=f"pocketmq pops of {queue}")
            self._loops[loop] = task
            task.add_done_callback(partial(self._ended, loop))
        return bool(missing)

    def _ended(self, loop: PopLoop, _: "asyncio.Task[None]") -> None:
        self._loops.pop(loop, None)

    def drop_topic(self, topic: str) -> None:
        """End the loops of a topic, and let its messages return that no listener got."""
        self.keep(topic, ())
        if waiting := self._leased.withdraw(topic, self.now()):
            self._settling.release(waiting)

    async def stop(self, drain_s: float) -> None:
        """Pop no more, wait for running listeners, acknowledge what they handled, and let all other messages return."""
        tasks = [*self._loops.values()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        self._loops.clear()
        await self._leased.release(drain_s)

    def info(self, now_ms: int) -> dict[MessageQueue, PopProcessQueueInfo]:
        """For the consumer's running info."""
        now = self.now()
        return {
            loop.queue: PopProcessQueueInfo(
                wait_ack_count=self._leased.count(loop.queue),
                last_pop_timestamp=now_ms - round((now - loop.last_pop_at) * 1000) if loop.last_pop_at else 0,
            )
            for loop in self._loops
        }

    # for the loops

    def now(self) -> float:
        return self._instance.clock.monotonic()

    def new_attempt_id(self) -> str | None:
        """Brokers return the messages of an ordered pop again to a pop with the same id: its answer may have been lost."""
        return f"{self._instance.dice.getrandbits(128):032x}" if self._settings.ordered else None

    def pause_cause(self, queue: MessageQueue) -> PauseCause | None:
        """Why the queue may not be popped now."""
        if self.is_paused:
            return PauseCause.PAUSED
        if self._leased.body_bytes(queue) > self._settings.max_queue_bytes:
            return PauseCause.BYTES
        return PauseCause.MESSAGES if self.next_size(queue) <= 0 else None

    def next_size(self, queue: MessageQueue) -> int:
        """How many messages the next pop may return: a part of what the workers need, as other pops are held meanwhile."""
        free = self._listening.lease_limit() - self._leased.count()
        if free <= 0:
            return 0
        own = self._settings.max_popped_messages - self._leased.count(queue)
        return min(self._settings.pop_batch, own, max(1, free // max(1, len(self._loops))))

    async def pause(self, queue: MessageQueue, cause: PauseCause) -> float:
        """Wait until listeners have handled messages. Returns how long to wait after that."""
        wait_s = self.pauses.count(cause) / 1000
        if self._events.are_watched:
            self._events.paused(queue, cause)
        if cause is PauseCause.PAUSED:
            return wait_s
        self._leased.changed.clear()
        with suppress(TimeoutError):  # the limit may grow without it: calls become faster, or there are more workers
            async with asyncio.timeout(CHECK_S):
                await self._leased.changed.wait()
        return 0.0

    async def pop(self, queue: MessageQueue, limit: int, attempt_id: str | None) -> list[StoredMessage]:
        pop = self._popping.pop(queue, limit, self._invisible_s, wait_s=self._wait_s, attempt_id=attempt_id)
        task = asyncio.get_running_loop().create_task(pop)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            self._instance.start(self._return_stray(task))
            raise

    async def _return_stray(self, task: "asyncio.Task[list[StoredMessage]]") -> None:
        """The consumer stops: give back what its last pop brings."""
        try:
            await self._settling.give_back_all(await task)
        except PocketMQError as error:
            log.debug("the last pop of a stopping consumer failed: %s", error)

    def accept(self, assigned: MessageQueue, messages: Sequence[StoredMessage]) -> None:
        """Pass leased messages to the listeners, and those without further attempts to the dead letters."""
        if not self._popping.is_subscribed(assigned.topic):
            self._settling.release(messages)
            return
        usable: list[StoredMessage] = []
        for message in messages:
            if message.reconsume_times > self._settling.max_times:
                reason = USED_UP.format(message.reconsume_times)
                self._instance.start(self._bury(message, reason))
            else:
                usable.append(message)
        by_queue = attrgetter("queue.topic", "queue_id", "queue_offset")
        for (_, queue_id), found in groupby(sorted(usable, key=by_queue), attrgetter("queue.topic", "queue_id")):
            some = list(found)
            owned = LeasedQueue(
                some,
                MessageQueue(assigned.topic, assigned.broker_name, queue_id),
                self._listening,
                self.now(),
                self._leased.changed.set,
                is_ordered=self._settings.ordered,
            )
            self._leased.add(owned, assigned)
            owned.put(some)

    async def _bury(self, message: StoredMessage, reason: str) -> None:
        if not await self._settling.bury(message, reason):
            await self._settling.give_back(message)

    def retry_delay(self, queue: MessageQueue, error: PocketMQError) -> float:
        if isinstance(error, FlowControl):
            return AFTER_FLOW_CONTROL_S
        if isinstance(error, GroupNotFound):
            self._instance.heartbeat_soon()
        if isinstance(error, NetworkError | TopicNotFound):
            self._instance.start(self._refresh_route(queue.topic))
        return self.retry_s

    async def _refresh_route(self, topic: str) -> None:
        try:
            await self._instance.routes.refresh(topic)
        except PocketMQError as error:
            log.debug("the route of %s could not be refreshed: %s", topic, error)


class PopAssignment:
    """The assigned queues of a consumer whose broker says which of them it pulls and which it pops."""

    def __init__(self, pulled: Assignment, loops: PopLoops, subscriptions: SubscriptionTable, clock: Clock) -> None:
        self._pulled = pulled
        self._loops = loops
        self._subscriptions = subscriptions
        self._clock = clock

    def topics(self) -> set[str]:
        return self._pulled.topics() | self._loops.topics()

    async def apply(self, topic: str, allocation: Allocation) -> tuple[bool, bool]:
        """When a topic changes its mode, the old way ends before the new one begins: pulls commit their offset."""
        ended = self._loops.keep(topic, allocation.popped)
        changed, complete = await self._pulled.apply(topic, allocation)
        changed = self._loops.add(allocation.popped) or ended or changed
        if not is_retry(topic) and (allocation.mine or allocation.popped):
            now_ms = self._clock.now_ms()
            complete &= not self._subscriptions.follow_retries(topic, pulls=bool(allocation.mine), now_ms=now_ms)
        return changed, complete and allocation.is_complete

    async def drop_topic(self, topic: str) -> None:
        self._loops.drop_topic(topic)
        await self._pulled.drop_topic(topic)

    async def release_all(self, drain_s: float) -> None:
        await asyncio.gather(self._loops.stop(drain_s), self._pulled.release_all(drain_s))

"""The pull loop: one for each owned queue, with one request under way at most.

begin ── (wait for the old owner, ask again where the group is) ──┐
   ┌───────────────────────────────────────────────────────────────┘
   ▼
may it be pulled now? ── no: 50 ms, 1 s if paused or not locked, and the cause is counted ──► look again
   │ yes
   ▼
pull ── FOUND ──► process queue ──► whoever consumes is told ──► pull again, a moment later when he has enough for now
     ├─ nothing, and nothing in flight ──► the offset moves past what the filter passed over ──► pull again
     ├─ OFFSET_ILLEGAL ──► the queue is begun anew where the broker says, or only goes on there if nothing comes a second time
     └─ failed ──► after 1 s; 20 ms when the broker asks to slow down; a heartbeat first when it does not know us

Mostly a pull follows the one before at once. Such a run of pulls does not wake the loop: each leaves in the turn that brought the
answer before, with the pulls of other queues that were answered in that turn. Whatever else is to be done ends the run.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

import msgspec

from pocketmq.client.assignment import Assignment
from pocketmq.client.consume_stats import ConsumeStats
from pocketmq.client.flow_limits import FlowLimits, PauseCause, PauseCounts, QueueLimits, pause_cause
from pocketmq.client.instance import Instance
from pocketmq.client.offsets import Offsets
from pocketmq.client.owned_queue import OwnedQueue
from pocketmq.client.pull_events import PullEvents
from pocketmq.client.pull_run import PullRun
from pocketmq.client.pulling import Pulling, PullResult, PullStatus
from pocketmq.errors import (
    FlowControl,
    GroupNotFound,
    PocketMQError,
    SubscriptionStale,
    SubscriptionUnknown,
)
from pocketmq.model.queue import MessageQueue
from pocketmq.model.subscription import Subscription
from pocketmq.protocol.command import Command

log = logging.getLogger("pocketmq.client")

AFTER_FAILURE_S: Final = 1.0
AFTER_FLOW_CONTROL_S: Final = 0.02
_NOT_KNOWN = (SubscriptionUnknown, SubscriptionStale, GroupNotFound)
"""A broker that has not heard our last heartbeat."""


class PullWishes(msgspec.Struct, frozen=True, kw_only=True):
    """How a consumer wants to pull."""

    batch: int
    interval_s: float | None
    timeout_s: float
    limits: FlowLimits
    tells_offsets: bool
    """Say on the way where the group is, so that brokers know it sooner."""
    notes_skipped: bool = True
    """What the filter passed over counts as handled."""
    keeps_illegal_to_itself: bool = False
    """Of an offset that does not exist the group is told nothing, and what is here already is kept, unless it comes a second time."""


class PullLoops:
    """The pull loops of one consumer. `arrived` hears of messages that wait in a queue."""

    def __init__(
        self,
        instance: Instance,
        pulling: Pulling,
        offsets: Offsets,
        stats: ConsumeStats,
        wishes: PullWishes,
        subscription: Callable[[MessageQueue], Subscription | None],
        arrived: Callable[[OwnedQueue], None],
        events: PullEvents,
    ) -> None:
        self._instance = instance
        self._clock = instance.clock
        self._pulling = pulling
        self._offsets = offsets
        self._stats = stats
        self._wishes = wishes
        self._subscription = subscription
        self._arrived = arrived
        self._events = events
        self._assignment: Assignment
        self._limits = 0, wishes.limits.of_queue(0)
        """Those of a queue, when so many queues of its topic are owned: mostly as at the last pull."""
        self.pauses = PauseCounts()
        self.is_paused = False

    def serve(self, assignment: Assignment) -> None:
        """Whose queues they are."""
        self._assignment = assignment

    def begin(self, owned: OwnedQueue) -> None:
        """Pull `owned` until it is dropped or leaves."""
        loop = self._run(owned)
        owned.pulling = asyncio.get_running_loop().create_task(loop, name=f"pocketmq pulls of {owned.queue}")

    async def _run(self, owned: OwnedQueue) -> None:
        try:
            await self._pull_on(owned)
        finally:
            self._pulling.forget(owned.queue)
            self._events.left(owned)

    async def _pull_on(self, owned: OwnedQueue) -> None:
        if owned.flight.waiting:
            self._arrived(owned)  # it was to be given up, and is wanted again
        if owned.start_after_s:
            await asyncio.sleep(owned.start_after_s)
            owned.start_after_s = 0.0
        complaint = ""
        while owned.is_active:
            try:
                if owned.reread:
                    await self._reread(owned)
                wait_s = await self._step(owned, alone=bool(complaint))
            except PocketMQError as error:
                if type(error).__name__ != complaint:
                    complaint = type(error).__name__
                    log.warning("a pull of %s failed, and is tried again: %s", owned.queue, error)
                self._pulling.note_failure(owned.queue)
                wait_s = self._after(error)
            except Exception:
                log.exception("a pull of %s failed as nobody foresaw, and is tried again", owned.queue)
                wait_s = AFTER_FAILURE_S
            else:
                if complaint:
                    log.info("%s is pulled again", owned.queue)
                complaint = ""
            if wait_s:
                await asyncio.sleep(wait_s)

    async def _reread(self, owned: OwnedQueue) -> None:
        """Begin where the group is now: its old owner may have got further than when we looked first."""
        stored = await self._offsets.load(owned.queue)
        if stored is not None and stored >= 0:
            owned.next_offset = stored
            self._offsets.move(owned.queue, stored)
        owned.reread = False

    async def _step(self, owned: OwnedQueue, *, alone: bool) -> float:
        """A run of pulls, one, or none; how long to wait before the next."""
        now = self._clock.monotonic()
        cause = self._pause_cause(owned, now)
        if cause is not None:
            self._events.paused(owned, cause)
            return self.pauses.note(cause) / 1000
        subscription = self._subscription(owned.queue)
        if subscription is None:
            return AFTER_FAILURE_S  # just unsubscribed: the next rebalance takes the queue away
        run = PullRun(owned, subscription, self._take_in, self._send_next, self._wishes.timeout_s)
        if not alone and self._wishes.interval_s is None and self._send(run, now):
            illegal = await run.ended
        else:
            result = await self._pulling.pull(
                owned.queue,
                owned.next_offset,
                subscription,
                self._wishes.batch,
                committed=self._committed(owned),
                timeout_s=self._wishes.timeout_s,
            )
            illegal = None if self._took(owned, result, now, self._clock.monotonic()) else result
        if illegal is not None:
            moved = [(owned.queue, illegal.next_offset)]
            await self._assignment.restart(moved, for_group=not self._wishes.keeps_illegal_to_itself)
        return self._wishes.interval_s or 0.0

    def _pause_cause(self, owned: OwnedQueue, now: float) -> PauseCause | None:
        owned.flight.note_pull(now)
        return pause_cause(
            self._limits_of(owned.queue.topic),
            owned.flight,
            now,
            is_paused=self.is_paused or owned.is_paused,
            all_messages=self._held(),
        )

    def _send(self, run: PullRun, now: float) -> bool:
        """The next pull of a run; False when it cannot leave at once."""
        owned, wishes = run.owned, self._wishes
        run.sent_at = now
        return self._pulling.send(
            run,
            owned.queue,
            owned.next_offset,
            run.subscription,
            wishes.batch,
            committed=self._committed(owned),
            deadline=run.loop.time() + wishes.timeout_s,
        )

    def _take_in(self, run: PullRun, answer: Command) -> bool:
        """Take in the answer to a pull of a run; whether the queue goes on as it did."""
        result = self._pulling.hear(answer, run.owned.queue, run.subscription)
        if self._took(run.owned, result, run.sent_at, self._clock.monotonic()):
            return True
        run.illegal = result
        return False

    def _send_next(self, run: PullRun) -> bool:
        """The next pull of a run, if nothing is against it; whether it is under way."""
        owned, now = run.owned, self._clock.monotonic()
        subscription = self._subscription(owned.queue)
        if subscription is None or not owned.is_active or self._pause_cause(owned, now) is not None:
            return False
        run.subscription = subscription
        return self._send(run, now)

    def _committed(self, owned: OwnedQueue) -> int | None:
        return self._offsets.get(owned.queue) if self._wishes.tells_offsets else None

    def _took(self, owned: OwnedQueue, result: PullResult, sent_at: float, now: float) -> bool:
        """Take in what a pull brought; False when the queue has to be begun anew because of it."""
        took_s = now - sent_at
        is_legal = owned.flight.is_dropped or self._is_legal(owned, result)
        self._stats.note_pull(owned.queue.topic, len(result.messages), took_s)
        if is_legal and not owned.flight.is_dropped:
            owned.next_offset = result.next_offset
            if result.messages and owned.flight.put(result.messages):
                self._arrived(owned)
            elif self._wishes.notes_skipped and not owned.flight.count:
                self._offsets.advance(owned.queue, result.next_offset)
        self._events.pulled(owned, result, took_s)
        return is_legal

    def _is_legal(self, owned: OwnedQueue, result: PullResult) -> bool:
        if result.status is not PullStatus.OFFSET_ILLEGAL:
            return True
        log.warning(
            "%s has no offset %d (it has %d to %d): going on at %d",
            owned.queue,
            owned.next_offset,
            result.min_offset,
            result.max_offset,
            result.next_offset,
        )
        if not self._wishes.keeps_illegal_to_itself or owned.flight.is_passed(result.next_offset):
            return False
        self._offsets.forget(owned.queue)  # an administrator may have moved the group, who is not to be overruled
        return True

    def _after(self, error: PocketMQError) -> float:
        if isinstance(error, FlowControl):
            return AFTER_FLOW_CONTROL_S
        if isinstance(error, _NOT_KNOWN):
            self._instance.heartbeat_soon()
        return AFTER_FAILURE_S

    def _limits_of(self, topic: str) -> QueueLimits:
        count = self._assignment.count(topic)
        if count != self._limits[0]:
            self._limits = count, self._wishes.limits.of_queue(count)
        return self._limits[1]

    def _held(self) -> int:
        """Messages in all queues, when there is a limit on them."""
        if self._wishes.limits.all_messages is None:
            return 0
        return sum(owned.flight.count for owned in self._assignment.all())

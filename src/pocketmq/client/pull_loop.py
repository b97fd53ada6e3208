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
     └─ failed ──► after `pull_retry_ms`; 20 ms when the broker asks to slow down; a heartbeat first when it does not know us,
                   and the route again when it cannot be reached

Mostly a pull follows the one before at once. Such a run of pulls does not wake the loop: each leaves in the turn that brought the
answer before, with the pulls of other queues that were answered in that turn. Whatever else is to be done ends the run.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import msgspec

from pocketmq.client.assignment import Assignment
from pocketmq.client.consume_stats import ConsumeStats
from pocketmq.client.flow_limits import (
    LOGGED_EVERY,
    FlowLimits,
    PauseCause,
    PauseCounts,
    QueueLimits,
    flow_control_text,
    pause_cause,
)
from pocketmq.client.instance import Instance
from pocketmq.client.offsets import Offsets
from pocketmq.client.owned_queue import OwnedQueue
from pocketmq.client.pull_events import PullEvents
from pocketmq.client.pull_run import PullRun
from pocketmq.client.pulling import Pulling, PullResult, PullStatus
from pocketmq.errors import (
    FlowControl,
    GroupNotFound,
    NetworkError,
    PocketMQError,
    RemoteError,
    SubscriptionStale,
    SubscriptionUnknown,
    TopicNotFound,
)
from pocketmq.model.queue import MessageQueue
from pocketmq.model.subscription import Subscription
from pocketmq.net.peer import Peer
from pocketmq.protocol.command import Command

log = logging.getLogger("pocketmq.client")

AFTER_FLOW_CONTROL_S: Final = 0.02
_NOT_KNOWN = (SubscriptionUnknown, SubscriptionStale, GroupNotFound)
"""A broker that has not heard our last heartbeat."""


class PullWishes(msgspec.Struct, frozen=True, kw_only=True):
    """How a consumer wants to pull."""

    batch: int
    interval_s: float | None
    """Between a pull that brought messages and the next one."""
    retry_s: float
    """After a pull that failed."""
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
        self._old_answers = 0
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
                if self._is_new_line(owned):
                    owned.is_in_doubt |= owned.line is not None
                    owned.line = self._line(owned)
                if owned.reread or owned.awaits_topic:
                    await self._reread(owned)
                if owned.is_in_doubt and not owned.awaits_topic and not await self._is_same_log(owned):
                    return
                wait_s = await self._step(owned, alone=bool(complaint))
            except PocketMQError as error:
                if type(error).__name__ != complaint:
                    complaint = type(error).__name__
                    log.warning("a pull of %s failed, and is tried again: %s", owned.queue, error)
                wait_s = self._after(error, owned.queue.topic)
                owned.is_in_doubt |= not isinstance(error, FlowControl)
                if (
                    isinstance(error, TopicNotFound)
                    and not owned.awaits_topic
                    and self._pulling.asks_master(owned.queue)
                ):
                    await self._assignment.topic_missing(owned.queue)
                self._pulling.note_failure(owned.queue)
            except Exception:
                log.exception("a pull of %s failed as nobody foresaw, and is tried again", owned.queue)
                wait_s = self._wishes.retry_s
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
            if not owned.awaits_topic:
                self._offsets.move(owned.queue, stored)
        owned.reread = False

    async def _step(self, owned: OwnedQueue, *, alone: bool) -> float:
        """A run of pulls, one, or none; how long to wait before the next."""
        now = self._clock.monotonic()
        cause = self._pause_cause(owned, now)
        if cause is not None:
            self._events.paused(owned, cause)
            wait_ms = self.pauses.note(cause)
            if self.pauses.is_to_be_logged(cause):
                limits = self._limits_of(owned.queue.topic)
                log.warning(
                    "%s", flow_control_text(cause, limits, owned, all_messages=self._held(), times=self.pauses[cause])
                )
            return wait_ms / 1000
        subscription = self._subscription(owned.queue)
        if subscription is None:
            return self._wishes.retry_s  # just unsubscribed: the next rebalance takes the queue away
        has_found = False
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
            if owned.last_pulled is not None and self._is_new_line(owned):
                return 0.0  # the pull itself has connected: first look whether the broker has the same log
            result = self._events.filtered(owned.queue, result)
            illegal = None if self._took(owned, result, now, self._clock.monotonic()) else result
            has_found = bool(result.messages)
        if illegal is not None:
            moved = [(owned.queue, await self._resumed_at(owned, illegal))]
            await self._assignment.restart(moved, for_group=not self._wishes.keeps_illegal_to_itself)
        return self._wishes.interval_s or 0.0 if has_found else 0.0

    async def _resumed_at(self, owned: OwnedQueue, answer: PullResult) -> int:
        """Where a queue goes on whose next offset does not exist."""
        is_shorter = owned.next_offset > answer.max_offset
        return await self._first_new(owned, answer) if is_shorter else answer.next_offset

    async def _first_new(self, owned: OwnedQueue, answer: PullResult) -> int:
        """Where new messages begin in a log that has become shorter: they have offsets that were used before.

        Apache's brokers send a group to the end, past all of these. So the first message is looked for that is as young as the last one
        that was pulled. What is handled counts if it is less, and so does what the broker knows of the group.
        """
        is_told = answer.status is PullStatus.OFFSET_ILLEGAL
        limits = [answer.next_offset] if is_told and not (self._offsets.are_local and owned.last_pulled) else []
        if (handled := self._offsets.get(owned.queue)) is not None:
            limits.append(handled)
        if owned.last_pulled is not None:
            try:
                limits.append(await self._instance.brokers.offsets.at_time(owned.queue, owned.last_pulled[1]))
            except RemoteError as error:  # anything else is tried again, with all that led here
                log.warning("the broker does not say where new messages of %s begin: %s", owned.queue, error)
                limits.append(answer.next_offset if is_told else answer.min_offset)
        owned.last_pulled = None  # it is of the older log
        return max(min(limits, default=answer.next_offset), answer.min_offset)

    async def _is_same_log(self, owned: OwnedQueue) -> bool:
        """Look whether the last message that was pulled is still where it was; begin the queue anew if it is not.

        Offsets alone do not tell: new messages may have passed the old ones already.
        """
        if owned.last_pulled is not None:
            offset, store_ms = owned.last_pulled
            found = await self._pulling.peek(owned.queue, offset, timeout_s=self._wishes.timeout_s)
            match found.status:
                case PullStatus.FOUND:
                    same = (one.store_ms == store_ms for one in found.messages if one.queue_offset == offset)
                    is_same = all(same)
                case PullStatus.OFFSET_ILLEGAL:  # else retention has taken it
                    is_same = offset < found.min_offset == found.next_offset
                case _:
                    is_same = found.max_offset > offset
            if not is_same:
                begin = await self._first_new(owned, found)
                log.warning(
                    "the log of %s became shorter (it has %d to %d): going on at %d",
                    owned.queue,
                    found.min_offset,
                    found.max_offset,
                    begin,
                )
                await self._assignment.restart(
                    [(owned.queue, begin)], for_group=not self._wishes.keeps_illegal_to_itself
                )
                return False
        owned.is_in_doubt = False
        return True

    def _line(self, owned: OwnedQueue) -> Peer | None:
        return self._instance.brokers.master_line(owned.queue.broker_name)

    def _is_new_line(self, owned: OwnedQueue) -> bool:
        """Whether the master was connected again: it may have restarted while no pull was under way that would have failed."""
        return self._line(owned) is not owned.line

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
        result = self._events.filtered(run.owned.queue, result)
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
        owned.awaits_topic = False
        is_legal = owned.flight.is_dropped or self._is_legal(owned, result)
        self._stats.note_pull(owned.queue.topic, len(result.messages), took_s)
        if is_legal and not owned.flight.is_dropped:
            if result.next_offset < owned.next_offset or (
                result.messages and result.messages[0].queue_offset < owned.next_offset
            ):
                self._note_old(owned, result)
            owned.next_offset = result.next_offset
            if result.messages:
                last = result.messages[-1]
                owned.last_pulled = last.queue_offset, last.store_ms
            if result.messages and owned.flight.put(result.messages):
                self._arrived(owned)
            elif self._wishes.notes_skipped and not owned.flight.count:
                self._offsets.advance(owned.queue, result.next_offset)
        self._events.pulled(owned, result, took_s)
        return is_legal

    def _note_old(self, owned: OwnedQueue, result: PullResult) -> None:
        """An answer goes back behind the offset that was asked for: say so once, and again every 1000 times."""
        if result.status is PullStatus.OFFSET_ILLEGAL:
            return  # it is meant to, and was logged
        self._old_answers += 1
        if self._old_answers % LOGGED_EVERY != 1:
            return
        first = result.messages[0].queue_offset if result.messages else -1
        log.warning(
            "[BUG] pull message result maybe data wrong, nextBeginOffset: %d firstMsgOffset: %d prevRequestOffset: %d, "
            "queue: %s, times: %d; messages that were pulled before are dropped, and the next pull begins at %d",
            result.next_offset,
            first,
            owned.next_offset,
            owned.queue,
            self._old_answers,
            result.next_offset,
        )

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

    def _after(self, error: PocketMQError, topic: str) -> float:
        if isinstance(error, FlowControl):
            return AFTER_FLOW_CONTROL_S
        if isinstance(error, _NOT_KNOWN):
            self._instance.heartbeat_soon()
        if isinstance(error, NetworkError):
            self._instance.start(self._look_where(topic))
        return self._wishes.retry_s

    async def _look_where(self, topic: str) -> None:
        """The broker cannot be reached: its name may belong to another address by now, or to a slave alone."""
        with suppress(PocketMQError):
            await self._instance.routes.refresh(topic)

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

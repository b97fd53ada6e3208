"""The pull loop: one for each owned queue, with one request under way at most.

begin ── (wait for the old owner, ask again where the group is) ──┐
   ┌───────────────────────────────────────────────────────────────┘
   ▼
may it be pulled now? ── no: 50 ms, 1 s if paused or not locked, and the cause is counted ──► look again
   │ yes
   ▼
pull ── FOUND ──► process queue ──► pull again, a moment later when listeners have enough for now
     ├─ nothing, and nothing in flight ──► the offset moves past what the filter passed over ──► pull again
     ├─ OFFSET_ILLEGAL ──► the loop ends, and the queue is begun anew where the broker says; or it only goes on there if nothing
     │                     comes a second time
     └─ failed ──► after `pull_retry_ms`; 20 ms when the broker asks to slow down; a heartbeat first when it does not know us,
                   and the route again when it cannot be reached

Mostly a pull follows the one before at once. In such a run of pulls each leaves in the turn that brought the answer to the one
before, with the pulls of other queues that were answered in that turn. A task that waits for each answer would be woken for each,
which costs more than to send the pull: the loop waits for the end of the run. Whatever else is to be done ends it.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Self

import msgspec
from msgspec.structs import replace

from pocketmq.client.cluster.instance import Instance
from pocketmq.client.consumer.assignment import OwnedQueues, Restart
from pocketmq.client.consumer.consume_events import PullEvents
from pocketmq.client.consumer.consume_stats import ConsumeStats
from pocketmq.client.consumer.flow_limits import (
    LOGGED_EVERY,
    FlowLimits,
    PauseCause,
    PauseCounts,
    QueueLimits,
    flow_control_text,
    pause_cause,
)
from pocketmq.client.consumer.offsets import Offsets
from pocketmq.client.consumer.process_queue import ProcessQueue
from pocketmq.client.consumer.pull_position import LogChanges
from pocketmq.client.consumer.pulling import Pulling, PullResult, PullStatus
from pocketmq.client.consumer.settings import RebalanceSettings
from pocketmq.codes import RequestCode
from pocketmq.errors import (
    FlowControl,
    GroupNotFound,
    NetworkError,
    PocketMQError,
    SubscriptionStale,
    SubscriptionUnknown,
    TopicNotFound,
)
from pocketmq.model.queue import MessageQueue
from pocketmq.model.subscription import Subscription
from pocketmq.protocol.command import Command
from pocketmq.protocol.hot_headers import StoredAnswer

log = logging.getLogger("pocketmq.client")

AFTER_FLOW_CONTROL_S: Final = 0.02
_NOT_KNOWN = (SubscriptionUnknown, SubscriptionStale, GroupNotFound)
"""A broker that has not heard our last heartbeat."""


class PullLoopSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How a consumer pulls."""

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

    @classmethod
    def of(cls, settings: RebalanceSettings, **kind: bool) -> Self:
        """As the user wants it; `kind` are the flags in which kinds of consumers differ."""
        interval_ms = settings.pull_interval_ms
        return cls(
            batch=settings.pull_batch,
            interval_s=None if interval_ms is None else interval_ms / 1000,
            retry_s=settings.pull_retry_ms / 1000,
            timeout_s=settings.pull_timeout_ms / 1000,
            limits=settings.limits,
            **kind,
        )


class PullLoops:
    """The pull loops of one consumer, and what they share."""

    def __init__(
        self,
        instance: Instance,
        pulling: Pulling,
        offsets: Offsets,
        stats: ConsumeStats,
        settings: PullLoopSettings,
        subscription: Callable[[MessageQueue], Subscription | None],
        owned: OwnedQueues,
        events: PullEvents,
    ) -> None:
        self.instance = instance
        self.pulling = pulling
        self.offsets = offsets
        self.stats = stats
        self.settings = settings
        self.subscription = subscription
        self.events = events
        self.log_changes = LogChanges(instance.brokers.offsets, pulling, offsets, timeout_s=settings.timeout_s)
        self.pauses = PauseCounts()
        self.is_paused = False
        self.old_answers = 0
        """Answers that went back behind the offset that was asked for."""
        self._owned = owned
        self._limits = 0, settings.limits.of_queue(0)
        """Those of a queue, when so many queues of its topic are owned: mostly as at the last pull."""

    async def run(self, owned: ProcessQueue) -> Restart | None:
        """Pull `owned` until it is left; or until it has to be begun anew, which is then said."""
        try:
            return await PullLoop(self, owned).run()
        finally:
            self.pulling.forget(owned.queue)
            if self.events.are_watched:
                self.events.left(owned)

    def limits_of(self, topic: str) -> QueueLimits:
        count = self._owned.count(topic)
        if count != self._limits[0]:
            self._limits = count, self.settings.limits.of_queue(count)
        return self._limits[1]

    def held(self) -> int:
        """Messages in all queues, when there is a limit on them."""
        return 0 if self.settings.limits.all_messages is None else sum(owned.count for owned in self._owned.all())


class PullLoop:
    """The loop of one queue."""

    def __init__(self, loops: PullLoops, owned: ProcessQueue) -> None:
        self.owned = owned
        self._position = owned.pulls
        self.pulling = loops.pulling
        self.settings = loops.settings
        self.events = loops.events
        self._loops = loops
        self._instance = loops.instance
        self._clock = loops.instance.clock
        self._offsets = loops.offsets

    async def run(self) -> Restart | None:
        owned, position = self.owned, self._position
        if position.start_after_s:
            await asyncio.sleep(position.start_after_s)
            position.start_after_s = 0.0
        complaint = ""
        while owned.is_active:
            try:
                wait_s = await self._step(alone=bool(complaint))
            except PocketMQError as error:
                if type(error).__name__ != complaint:
                    complaint = type(error).__name__
                    log.warning("a pull of %s failed, and is tried again: %s", owned.queue, error)
                wait_s = self._after(error)
                position.is_in_doubt |= not isinstance(error, FlowControl)
                is_missing = isinstance(error, TopicNotFound) and not position.awaits_topic
                if is_missing and self.pulling.asks_master(owned.queue):
                    return Restart(0, is_topic_missing=True)
                self.pulling.note_failure(owned.queue)
            except Exception:
                log.exception("a pull of %s failed as nobody foresaw, and is tried again", owned.queue)
                wait_s = self.settings.retry_s
            else:
                if isinstance(wait_s, Restart):
                    return wait_s
                if complaint:
                    log.info("%s is pulled again", owned.queue)
                complaint = ""
            if wait_s:
                await asyncio.sleep(wait_s)
        return None

    async def _step(self, *, alone: bool) -> float | Restart:
        """A run of pulls, one, or none; how long to wait before the next, or where to begin anew."""
        owned, position = self.owned, self._position
        if self._is_reconnected():
            position.is_in_doubt |= position.connection is not None
            position.connection = self._instance.brokers.master_peer(owned.queue.broker_name)
        if position.reread or position.awaits_topic:
            await self._reread()
        if position.is_in_doubt and not position.awaits_topic:
            begin = await self._loops.log_changes.new_begin(position)
            if begin is not None:
                return self._restart(begin)
        now = self._clock.monotonic()
        cause = self._pause_cause(now)
        if cause is not None:
            return self._pause(cause)
        subscription = self._loops.subscription(owned.queue)
        if subscription is None:
            return self.settings.retry_s  # just unsubscribed: the next rebalance takes the queue away
        if not alone and self.settings.interval_s is None:
            run = PullRun(self, subscription)
            if self._send(run, now):
                illegal = await run.ended
                return 0.0 if illegal is None else await self._resume(illegal)
        return await self._pull_alone(subscription, now)

    async def _pull_alone(self, subscription: Subscription, now: float) -> float | Restart:
        owned, position, settings = self.owned, self._position, self.settings
        result = await self.pulling.pull(
            owned.queue,
            position.next_offset,
            subscription,
            settings.batch,
            committed=self._committed(),
            timeout_s=settings.timeout_s,
        )
        if (position.last_pulled is not None or position.connection is not None) and self._is_reconnected():
            return 0.0  # the pull itself has connected: first look whether the broker has the same log
        if self.events.has_filters:
            result = self.events.filtered(owned.queue, result)
        if not self.take_in(result, now):
            return await self._resume(result)
        return settings.interval_s or 0.0 if result.messages else 0.0

    async def _reread(self) -> None:
        """Begin where the group is now: its old owner may have got further than when we looked first."""
        position, queue = self._position, self.owned.queue
        stored = await self._offsets.load(queue)
        if stored is not None and stored >= 0:
            position.begin_at(stored)
            if not position.awaits_topic:
                self._offsets.move(queue, stored)
        position.reread = False

    def _pause(self, cause: PauseCause) -> float:
        loops = self._loops
        if self.events.are_watched:
            self.events.paused(self.owned, cause)
        wait_ms = loops.pauses.note(cause)
        if loops.pauses.is_to_be_logged(cause):
            limits = loops.limits_of(self.owned.queue.topic)
            times = loops.pauses[cause]
            log.warning("%s", flow_control_text(cause, limits, self.owned, all_messages=loops.held(), times=times))
        return wait_ms / 1000

    async def _resume(self, answer: PullResult) -> Restart:
        return self._restart(await self._loops.log_changes.resumed_at(self._position, answer))

    def _restart(self, offset: int) -> Restart:
        return Restart(offset, for_group=not self.settings.keeps_illegal_to_itself)

    def _is_reconnected(self) -> bool:
        """Whether the master was connected again: it may have restarted while no pull was under way that would have failed."""
        return self._instance.brokers.master_peer(self.owned.queue.broker_name) is not self._position.connection

    def _pause_cause(self, now: float) -> PauseCause | None:
        self.owned.note_pull(now)
        return pause_cause(
            self._loops.limits_of(self.owned.queue.topic),
            self.owned,
            now,
            is_paused=self._loops.is_paused,
            all_messages=self._loops.held(),
        )

    def _committed(self) -> int | None:
        return self._offsets.get(self.owned.queue) if self.settings.tells_offsets else None

    def _send(self, run: "PullRun", now: float) -> bool:
        """The next pull of a run; False when it cannot leave at once."""
        run.sent_at = now
        return self.pulling.send(
            run,
            self.owned.queue,
            self._position.next_offset,
            run.subscription,
            self.settings.batch,
            committed=self._committed(),
            deadline=run.loop.time() + self.settings.timeout_s,
        )

    def send_next(self, run: "PullRun") -> bool:
        """The next pull of a run, if nothing is against it; whether it is under way."""
        now = self._clock.monotonic()
        subscription = self._loops.subscription(self.owned.queue)
        if subscription is None or not self.owned.is_active or self._pause_cause(now) is not None:
            return False
        run.subscription = subscription
        return self._send(run, now)

    def take_in(self, result: PullResult, sent_at: float) -> bool:
        """Take in what a pull brought; False when the queue has to be begun anew because of it."""
        owned, position, now = self.owned, self._position, self._clock.monotonic()
        position.awaits_topic = False
        is_illegal = result.status is PullStatus.OFFSET_ILLEGAL and not owned.is_dropped and not self._may_go_on(result)
        self._loops.stats.note_pull(owned.queue.topic, len(result.messages), now - sent_at)
        if not is_illegal and not owned.is_dropped:
            if result.next_offset < position.next_offset or (
                result.messages and result.messages[0].queue_offset < position.next_offset
            ):
                self._note_old(result)
            position.next_offset = result.next_offset
            if result.messages:
                position.last_pulled = replace(result.messages[-1], body=b"")
            else:
                position.note_passed(now)
            is_new = result.messages and owned.put(result.messages)
            if not is_new and self.settings.notes_skipped and not owned.count:
                self._offsets.advance(owned.queue, result.next_offset)
        if self.events.are_watched:
            self.events.pulled(owned, result, now - sent_at)
        return not is_illegal

    def _note_old(self, result: PullResult) -> None:
        """An answer goes back behind the offset that was asked for: say so once, and again every 1000 times."""
        if result.status is PullStatus.OFFSET_ILLEGAL:
            return  # it is meant to, and was logged
        self._loops.old_answers += 1
        if self._loops.old_answers % LOGGED_EVERY != 1:
            return
        first = result.messages[0].queue_offset if result.messages else -1
        log.warning(
            "[BUG] pull message result maybe data wrong, nextBeginOffset: %d firstMsgOffset: %d prevRequestOffset: %d, "
            "queue: %s, times: %d; messages that were pulled before are dropped, and the next pull begins at %d",
            result.next_offset,
            first,
            self._position.next_offset,
            self.owned.queue,
            self._loops.old_answers,
            result.next_offset,
        )

    def _may_go_on(self, result: PullResult) -> bool:
        """Whether a queue whose offset does not exist goes on elsewhere with what is here already."""
        owned = self.owned
        log.warning(
            "%s has no offset %d (it has %d to %d): going on at %d",
            owned.queue,
            self._position.next_offset,
            result.min_offset,
            result.max_offset,
            result.next_offset,
        )
        if not self.settings.keeps_illegal_to_itself or result.next_offset <= owned.max_offset:
            return False
        self._offsets.forget(owned.queue)  # an administrator may have moved the group, who is not to be overruled
        return True

    def _after(self, error: PocketMQError) -> float:
        if isinstance(error, FlowControl):
            return AFTER_FLOW_CONTROL_S
        if isinstance(error, _NOT_KNOWN):
            self._instance.heartbeat_soon()
        if isinstance(error, NetworkError):
            self._instance.start(self._look_where())
        return self.settings.retry_s

    async def _look_where(self) -> None:
        """The broker cannot be reached: its name may belong to another address by now, or to a slave alone."""
        with suppress(PocketMQError):
            await self._instance.routes.refresh(self.owned.queue.topic)


class PullRun:
    """A run of pulls of one loop: hears the answer to each.

    `ended` comes to None, to the answer that calls for another beginning of the queue, or to what failed.
    """

    __slots__ = ("_pulls", "ended", "loop", "sent_at", "subscription", "timeout_s")

    code: Final = int(RequestCode.PULL_MESSAGE)

    def __init__(self, pulls: PullLoop, subscription: Subscription) -> None:
        self._pulls = pulls
        self.subscription = subscription
        """Of the pull that is under way."""
        self.timeout_s = pulls.settings.timeout_s
        self.sent_at = 0.0
        self.loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[PullResult | None] = self.loop.create_future()

    def answered(self, response: Command) -> None:
        if self.ended.done():
            return  # nobody pulls this queue any more
        pulls, queue = self._pulls, self._pulls.owned.queue
        try:
            result = pulls.pulling.hear(response, queue, self.subscription)
            if pulls.events.has_filters:
                result = pulls.events.filtered(queue, result)
            if not pulls.take_in(result, self.sent_at):
                self.ended.set_result(result)
            elif not pulls.owned.hold_back(self.go_on):
                self.go_on()
        except Exception as error:
            self.failed(error)

    def go_on(self) -> None:
        """Send the next pull, or end."""
        if self.ended.done():
            return  # nobody pulls this queue any more
        try:
            if not self._pulls.send_next(self):
                self.ended.set_result(None)
        except Exception as error:
            self.failed(error)

    def stored(self, answer: StoredAnswer) -> bool:
        return False

    def failed(self, error: Exception) -> None:
        if not self.ended.done():
            self.ended.set_exception(error)

"""The pull loop of an assigned queue. It has one request in flight at most.

start ── (wait for the previous owner, load the committed offset again) ──┐
   ┌───────────────────────────────────────────────────────────────────────┘
   ▼
flow limits ── exceeded: count the cause; wait 50 ms, or 1 s if paused or not locked ──► check again
   │
   ▼
pull ── FOUND ──► process queue ──► next pull, a moment later if listeners have enough messages
     ├─ no message, and none in flight ──► the offset moves past the messages that the filter skipped ──► next pull
     ├─ OFFSET_ILLEGAL ──► the loop ends, and the queue restarts at the offset of the response; or the loop continues there
     │                     if no message would arrive twice
     └─ failed ──► next pull after `pull_retry_ms`, or after 20 ms for flow control. A heartbeat is sent first if the broker does not
                   know the group, and the route is fetched if the broker cannot be reached

Usually a pull follows the previous response at once. In such a run, each pull is sent in the loop iteration that handles the response,
together with those of other queues. Waking a task for each response would cost more than the pull, so the loop waits for the
end of the run.
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
from pocketmq.client.consumer.consume_stats import ConsumeStats
from pocketmq.client.consumer.flow_limits import (
    LOGGED_EVERY,
    PauseCause,
    PauseCounts,
    QueueLimits,
    flow_control_text,
    pause_cause,
)
from pocketmq.client.consumer.offsets import Offsets
from pocketmq.client.consumer.process_queue import ProcessQueue
from pocketmq.client.consumer.pull_position import LogChanges
from pocketmq.client.consumer.pulling import PullEvents, Pulling, PullResult, PullStatus
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
from pocketmq.model import MessageQueue, Subscription
from pocketmq.protocol.command import Command
from pocketmq.protocol.hot_headers import StoredAnswer

log = logging.getLogger("pocketmq.client")

AFTER_FLOW_CONTROL_S: Final = 0.02
_NOT_KNOWN = (SubscriptionUnknown, SubscriptionStale, GroupNotFound)
"""The broker has not handled our last heartbeat."""


class PullLoopSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of the pull loops of a consumer."""

    batch: int
    interval_s: float | None
    """Between a pull that returned messages and the next one."""
    retry_s: float
    """After a failed pull."""
    timeout_s: float
    commits_offsets: bool
    """Pulls commit the offset, so that brokers know it earlier."""
    commits_filtered: bool = True
    """Messages that the filter skips count as consumed."""
    keeps_illegal_local: bool = False
    """An illegal offset does not change the group's offset, and cached messages are kept unless they would arrive twice."""

    @classmethod
    def of(cls, settings: RebalanceSettings, **kind: bool) -> Self:
        """`kind` are the flags in which the kinds of consumers differ."""
        interval_ms = settings.pull_interval_ms
        return cls(
            batch=settings.pull_batch,
            interval_s=None if interval_ms is None else interval_ms / 1000,
            retry_s=settings.pull_retry_ms / 1000,
            timeout_s=settings.pull_timeout_ms / 1000,
            **kind,
        )


class PullLoops:
    """The pull loops of one consumer, and their common state."""

    def __init__(
        self,
        instance: Instance,
        pulling: Pulling,
        offsets: Offsets,
        stats: ConsumeStats,
        settings: PullLoopSettings,
        limits: Callable[[int], QueueLimits],
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
        self.stale_responses = 0
        """Responses with messages before the requested offset."""
        self._owned = owned
        self._limits_of_queue = limits
        self._limits = 0, limits(0)
        """The number of assigned queues of a topic, and the limits of each: mostly as at the last pull."""

    async def run(self, owned: ProcessQueue) -> Restart | None:
        """Pull a queue until it is deactivated, or has to restart."""
        try:
            return await PullLoop(self, owned).run()
        finally:
            self.pulling.forget(owned.queue)
            if self.events.are_watched:
                self.events.left(owned.queue)

    def limits_of(self, topic: str) -> QueueLimits:
        count = self._owned.count(topic)
        if count != self._limits[0]:
            self._limits = count, self._limits_of_queue(count)
        return self._limits[1]

    def cached_messages(self) -> int:
        """Messages in all queues, if they are limited; else 0."""
        return 0 if self._limits[1].all_messages is None else sum(owned.count for owned in self._owned.all())


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
        last_error = ""
        while owned.is_active:
            try:
                wait_s = await self._step(single=bool(last_error))
            except PocketMQError as error:
                wait_s = self._retry_delay(error)
                if type(error).__name__ != last_error:
                    last_error = type(error).__name__
                    log.warning("pull of %s failed: %s; next attempt in %g s", owned.queue, error, wait_s)
                position.is_in_doubt |= not isinstance(error, FlowControl)
                is_missing = isinstance(error, TopicNotFound) and not position.awaits_topic
                if is_missing and self.pulling.pulls_from_master(owned.queue):
                    return Restart(0, is_topic_missing=True)
                self.pulling.pull_failed(owned.queue)
            except Exception:
                wait_s = self.settings.retry_s
                log.exception("unexpected error while pulling %s; next attempt in %g s", owned.queue, wait_s)
            else:
                if isinstance(wait_s, Restart):
                    return wait_s
                if last_error:
                    log.info("pulls of %s succeed again", owned.queue)
                last_error = ""
            if wait_s:
                await asyncio.sleep(wait_s)
        return None

    async def _step(self, *, single: bool) -> float | Restart:
        """Send a run of pulls, one pull, or none. Returns how long to wait, or where to restart."""
        owned, position = self.owned, self._position
        if self._is_reconnected():
            position.is_in_doubt |= position.connection is not None
            position.connection = self._instance.brokers.master_peer(owned.queue.broker_name)
        if position.reload_offset or position.awaits_topic:
            await self._reload_offset()
        if position.is_in_doubt and not position.awaits_topic:
            start = await self._loops.log_changes.restart_offset(position)
            if start is not None:
                return self._restart(start)
        now = self._clock.monotonic()
        cause = self._pause_cause(now)
        if cause is not None:
            return self._pause(cause)
        subscription = self._loops.subscription(owned.queue)
        if subscription is None:
            return self.settings.retry_s  # just unsubscribed: the next rebalance revokes the queue
        if not single and self.settings.interval_s is None:
            run = PullRun(self, subscription)
            if self._send(run, now):
                illegal = await run.ended
                return 0.0 if illegal is None else await self._resume(illegal)
        return await self._pull_once(subscription, now)

    async def _pull_once(self, subscription: Subscription, now: float) -> float | Restart:
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
            return 0.0  # the pull has connected again: first check whether the broker has the same log
        if self.events.has_filters:
            result = self.events.filtered(owned.queue, result)
        if not self.accept(result, now):
            return await self._resume(result)
        return settings.interval_s or 0.0 if result.messages else 0.0

    async def _reload_offset(self) -> None:
        """Start at the offset that is committed now: the previous owner may have consumed more."""
        position, queue = self._position, self.owned.queue
        stored = await self._offsets.store.load(queue)
        if stored is not None and stored >= 0:
            position.start_at_offset(stored)
            if not position.awaits_topic:
                self._offsets.move(queue, stored)
        position.reload_offset = False

    def _pause(self, cause: PauseCause) -> float:
        loops = self._loops
        if self.events.are_watched:
            self.events.paused(self.owned.queue, cause)
        wait_ms = loops.pauses.count(cause)
        if loops.pauses.should_log(cause):
            limits = loops.limits_of(self.owned.queue.topic)
            times = loops.pauses[cause]
            log.warning(
                "%s", flow_control_text(cause, limits, self.owned, all_messages=loops.cached_messages(), times=times)
            )
        return wait_ms / 1000

    async def _resume(self, answer: PullResult) -> Restart:
        return self._restart(await self._loops.log_changes.offset_after_illegal(self._position, answer))

    def _restart(self, offset: int) -> Restart:
        return Restart(offset, for_group=not self.settings.keeps_illegal_local)

    def _is_reconnected(self) -> bool:
        """Whether the master was connected again: it may have restarted while no pull was in flight that would have failed."""
        return self._instance.brokers.master_peer(self.owned.queue.broker_name) is not self._position.connection

    def _pause_cause(self, now: float) -> PauseCause | None:
        self.owned.record_pull(now)
        return pause_cause(
            self._loops.limits_of(self.owned.queue.topic),
            self.owned,
            now,
            is_paused=self._loops.is_paused,
            all_messages=self._loops.cached_messages(),
        )

    def _committed(self) -> int | None:
        return self._offsets.get(self.owned.queue) if self.settings.commits_offsets else None

    def _send(self, run: "PullRun", now: float) -> bool:
        """Send the next pull of a run; False when it cannot be sent at once."""
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
        """Send the next pull of a run unless the loop has to do something else. Returns whether it was sent."""
        now = self._clock.monotonic()
        subscription = self._loops.subscription(self.owned.queue)
        if subscription is None or not self.owned.is_active or self._pause_cause(now) is not None:
            return False
        run.subscription = subscription
        return self._send(run, now)

    def accept(self, result: PullResult, sent_at: float) -> bool:
        """Handle the result of a pull; False when the queue has to restart."""
        owned, position, now = self.owned, self._position, self._clock.monotonic()
        position.awaits_topic = False
        is_illegal = (
            result.status is PullStatus.OFFSET_ILLEGAL and not owned.is_dropped and not self._may_continue(result)
        )
        self._loops.stats.record_pull(owned.queue.topic, len(result.messages), now - sent_at)
        if not is_illegal and not owned.is_dropped:
            if result.next_offset < position.next_offset or (
                result.messages and result.messages[0].queue_offset < position.next_offset
            ):
                self._record_stale(result)
            position.next_offset = result.next_offset
            if result.messages:
                position.last_pulled = replace(result.messages[-1], body=b"")
            else:
                position.record_filtered(now)
            is_new = result.messages and owned.put(result.messages)
            if not is_new and self.settings.commits_filtered and not owned.count:
                self._offsets.advance(owned.queue, result.next_offset)
        if self.events.are_watched:
            self.events.pulled(owned.queue, owned.count, result, now - sent_at)
        return not is_illegal

    def _record_stale(self, result: PullResult) -> None:
        """The response contains offsets before the requested one. Log the first and every 1000th."""
        if result.status is PullStatus.OFFSET_ILLEGAL:
            return  # expected, and logged elsewhere
        self._loops.stale_responses += 1
        if self._loops.stale_responses % LOGGED_EVERY != 1:
            return
        first = result.messages[0].queue_offset if result.messages else -1
        log.warning(
            "[BUG] pull message result maybe data wrong, nextBeginOffset: %d firstMsgOffset: %d prevRequestOffset: %d, "
            "queue: %s, times: %d; messages that were pulled before are dropped, and the next pull starts at %d",
            result.next_offset,
            first,
            self._position.next_offset,
            self.owned.queue,
            self._loops.stale_responses,
            result.next_offset,
        )

    def _may_continue(self, result: PullResult) -> bool:
        """Whether a queue with an illegal offset continues at another offset and keeps its cached messages."""
        owned = self.owned
        log.warning(
            "offset %d of %s is illegal (offsets %d to %d); the next pull starts at %d",
            self._position.next_offset,
            owned.queue,
            result.min_offset,
            result.max_offset,
            result.next_offset,
        )
        if not self.settings.keeps_illegal_local or result.next_offset <= owned.max_offset:
            return False
        self._offsets.forget(owned.queue)  # do not overwrite a reset by an administrator
        return True

    def _retry_delay(self, error: PocketMQError) -> float:
        if isinstance(error, FlowControl):
            return AFTER_FLOW_CONTROL_S
        if isinstance(error, _NOT_KNOWN):
            self._instance.heartbeat_soon()
        if isinstance(error, NetworkError):
            self._instance.start(self._refresh_route())
        return self.settings.retry_s

    async def _refresh_route(self) -> None:
        """The broker cannot be reached: its address may have changed, or only a slave may be left."""
        with suppress(PocketMQError):
            await self._instance.routes.refresh(self.owned.queue.topic)


class PullRun:
    """A run of pulls of one loop; receives the response to each.

    `ended` returns the response after which the queue has to restart, if any.
    """

    __slots__ = ("_pulls", "ended", "loop", "sent_at", "subscription", "timeout_s")

    code: Final = int(RequestCode.PULL_MESSAGE)

    def __init__(self, pulls: PullLoop, subscription: Subscription) -> None:
        self._pulls = pulls
        self.subscription = subscription
        """Of the pull in flight."""
        self.timeout_s = pulls.settings.timeout_s
        self.sent_at = 0.0
        self.loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[PullResult | None] = self.loop.create_future()

    def answered(self, response: Command) -> None:
        if self.ended.done():
            return  # the loop was cancelled
        pulls, queue = self._pulls, self._pulls.owned.queue
        try:
            result = pulls.pulling.parse(response, queue, self.subscription)
            if pulls.events.has_filters:
                result = pulls.events.filtered(queue, result)
            if not pulls.accept(result, self.sent_at):
                self.ended.set_result(result)
            elif not pulls.owned.hold_back(self.continue_run):
                self.continue_run()
        except Exception as error:
            self.failed(error)

    def continue_run(self) -> None:
        """Send the next pull, or end the run."""
        if self.ended.done():
            return  # the loop was cancelled
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

"""Orderly listening: the messages of a queue one after the other, by one worker at a time, while its lock is ours.

    messages wait ──► locked? ── no: asked for again, then every 3 s ──► …
                        │ yes
                        ▼
                  the next messages ──► listener ── done ──► finished, their offset is the group's ──► the next ones
                        ▲                  │
                        │                  ├─ later ──► one attempt more, given back; the queue rests (1 s) ─┐
                        └──────────────────┼────────────────────────────────────────────────────────────────┘
                                           └─ given up, or tried too often ──► a dead letter, and done

Without `auto_commit`, done messages are kept until the listener returns COMMIT, or come again when it returns ROLLBACK.

A turn lasts a minute at most, then other queues come first. A queue that is begun anew waits until the listener of its earlier
time is done: two never work on one queue.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from pocketmq.client.consumer.assignment import QueueLocks
from pocketmq.client.consumer.consume_events import ConsumeEvents
from pocketmq.client.consumer.consume_result import (
    COMMIT,
    ROLLBACK,
    DeadLetter,
    OrderlyVerdict,
    RetryLater,
    Suspend,
    orderly_verdict,
)
from pocketmq.client.consumer.consume_stats import ConsumeStats
from pocketmq.client.consumer.dispatch import Dispatch
from pocketmq.client.consumer.jobs import Call, Collected, Job, calls_per_job, resolving
from pocketmq.client.consumer.listener import ListenerTable
from pocketmq.client.consumer.offsets import Offsets
from pocketmq.client.consumer.process_queue import ProcessQueue
from pocketmq.client.consumer.retry_sender import RetrySender
from pocketmq.clock import Clock
from pocketmq.errors import UsageError
from pocketmq.model.message import StoredMessage
from pocketmq.model.queue import MessageQueue
from pocketmq.model.retries import UNLIMITED

log = logging.getLogger("pocketmq.client")

TURN_S: Final = 60.0
BETWEEN_TURNS_S: Final = 0.01
RELOCK_S: Final = 0.01
UNLOCKED_S: Final = 3.0
_KEPT: Final = 0.8


class OrderlyListening:
    """Gives messages of all owned queues to listeners, in order. `locks` and `retry_sender` None: broadcasting."""

    def __init__(
        self,
        clock: Clock,
        listeners: ListenerTable,
        dispatch: Dispatch,
        offsets: Offsets,
        retry_sender: RetrySender | None,
        locks: QueueLocks | None,
        events: ConsumeEvents,
        stats: ConsumeStats,
        *,
        workers: int,
        suspend_ms: int,
        auto_commit: bool,
    ) -> None:
        self._clock = clock
        self._listeners = listeners
        self._dispatch = dispatch
        self._offsets = offsets
        self._retry_sender = retry_sender
        self._locks = locks
        self._events = events
        self._stats = stats
        self._suspend_ms = suspend_ms
        self._auto_commit = auto_commit
        self._slots = _Slots(workers)
        self._latest: dict[MessageQueue, ProcessQueue] = {}
        self._turns: dict[MessageQueue, asyncio.Task[None]] = {}
        self._mean_s: float | None = None

    # its life

    def start(self) -> None:
        """Nothing comes round here: each queue has a task while messages wait in it."""

    async def stop(self) -> None:
        """Begin nothing more, and wait for nobody."""
        tasks = list(self._turns.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def resize(self, workers: int) -> None:
        """So many queues may have a turn at the same time from now on; turns under way go on."""
        self._slots.resize(workers)

    # turns

    def arrived(self, owned: ProcessQueue) -> None:
        """Messages wait in `owned`, whose pulls are never held back: the head is always next."""
        queue = owned.queue
        self._latest[queue] = owned
        if queue not in self._turns:
            task = asyncio.get_running_loop().create_task(self._serve(queue), name=f"pocketmq turns of {queue}")
            self._turns[queue] = task

    def left(self, owned: ProcessQueue) -> None:
        """Its turn ends with the call that is made: see `_may_go_on`."""

    async def _serve(self, queue: MessageQueue) -> None:
        """As long as messages wait in the queue, of this time or of a later one."""
        try:
            while (owned := self._latest[queue]).is_active and owned.waiting:
                if await self._is_ours(owned):
                    async with self._slots:
                        wait_s = await self._turn_whatever_comes(owned)
                    await asyncio.sleep(wait_s)
        finally:
            # Before anything else can happen, so that whatever arrives from now on gets a new task.
            del self._turns[queue], self._latest[queue]

    async def _is_ours(self, owned: ProcessQueue) -> bool:
        if self._locks is None or self._locks.holds(owned):
            return True
        await asyncio.sleep(RELOCK_S)
        await self._locks.renew([owned])
        if self._locks.holds(owned):
            return True
        await asyncio.sleep(UNLOCKED_S)
        return False

    async def _turn_whatever_comes(self, owned: ProcessQueue) -> float:
        try:
            return await self._turn(owned)
        except Exception:
            log.exception("a turn of %s failed as nobody foresaw, and is tried again", owned.queue)
            return self._suspend_ms / 1000

    async def _turn(self, owned: ProcessQueue) -> float:
        """Messages one after the other, until none is left, one fails, or the time is up; how long to rest then."""
        end = self._clock.monotonic() + TURN_S
        while owned.is_active and owned.waiting:
            if self._clock.monotonic() >= end or not self._may_go_on(owned):
                return BETWEEN_TURNS_S
            wait_ms = await self._step(owned)
            if wait_ms is not None:
                return wait_ms / 1000
        return 0.0

    def _may_go_on(self, owned: ProcessQueue) -> bool:
        """Whether the queue is ours still. Short calls travel together, and one of them may last long all the same.

        A worker's thread asks, too. It changes nothing, and what it reads is one attribute or one entry of a dict at a time.
        """
        return owned.is_active and (self._locks is None or self._locks.holds(owned))

    async def _step(self, owned: ProcessQueue) -> int | None:
        """One job; how long the queue is to rest after it."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        job = self._next_job(owned, done)
        if job is None:
            return self._suspend_ms
        self._dispatch.submit(job)
        await done
        try:
            collected = job.collect(self._clock.monotonic())
            if job.event is not None and collected.calls:
                self._events.after(job.event, collected.result, collected.took_s)
            self._note(owned, collected)
            return await self._conclude(owned, collected)
        finally:
            owned.put_back()  # whatever is not finished, or kept, comes again
            owned.note_done()

    def _next_job(self, owned: ProcessQueue, done: asyncio.Future[None]) -> Job | None:
        now = self._clock.monotonic()
        listener = self._listeners.only.get(owned.queue.topic)
        size = 1
        if listener is not None:
            size = listener.batch_size or 1
            if owned.waiting > size and not self._events.are_watched:
                size *= calls_per_job(owned.waiting // size, 1, self._mean_s)
        messages = owned.take(size, now)
        listener = listener or self._listeners.of(messages[0])
        if listener is None:
            log.error("no listener of this member is for message %s of %s", messages[0].message_id, owned.queue)
            owned.give_back(messages)
            return None
        return Job(
            listener,
            messages,
            now,
            resolving(done),
            stops_at_failure=True,
            may_go_on=partial(self._may_go_on, owned),
            event=self._events.before(owned.queue, messages) if self._events.are_watched else None,
        )

    # what came of it

    async def _conclude(self, owned: ProcessQueue, collected: Collected) -> int | None:
        """Finish what is done, up to the first that is to come again. Only the last call can be another than a plain success."""
        if owned.is_dropped:
            return None
        self._finish(owned, collected.done)
        for call in collected.others:
            if not self._auto_commit and call.result is ROLLBACK:
                log.info("%s is rolled back: %d messages come again", owned.queue, owned.kept + len(call.messages))
                owned.rollback()
                return self._suspend_ms
            verdict = self._verdict(owned, call)
            again = list(verdict.again)
            wait_ms = verdict.wait_ms
            for at, (message, reason) in enumerate(verdict.dead):
                if not await self._bury(owned, message, reason):
                    again = [dead for dead, _ in verdict.dead[at:]] + again
                    wait_ms = self._suspend_ms if wait_ms is None else wait_ms
                    break
            first = again[0].queue_offset if again else None
            self._finish(owned, [one for one in call.messages if first is None or one.queue_offset < first])
            if not self._auto_commit and call.result is COMMIT:
                owned.put_back()
                self._note_offset(owned, owned.commit(self._clock.monotonic()))
            for message in again:
                message.reconsume_times += 1
            if wait_ms is not None:
                return wait_ms
        return None

    def _verdict(self, owned: ProcessQueue, call: Call) -> OrderlyVerdict:
        max_times = UNLIMITED if self._retry_sender is None else self._retry_sender.max_times
        result: Any = call.result
        if isinstance(result, BaseException) and not isinstance(result, RetryLater | DeadLetter | Suspend):
            self._events.failed(self._listeners.of(call.messages[0]), owned.queue, call.messages, result)
        try:
            return orderly_verdict(result, call.messages, max_times, self._suspend_ms)
        except UsageError as error:
            log.error("a listener of %s is wrong, its messages come again: %s", owned.queue.topic, error)
            return orderly_verdict(error, call.messages, max_times, self._suspend_ms)

    async def _bury(self, owned: ProcessQueue, message: StoredMessage, reason: str) -> bool:
        log.warning("message %s of %s is given up: %s", message.message_id, owned.queue, reason)
        return self._retry_sender is None or await self._retry_sender.bury(message, reason)

    def _finish(self, owned: ProcessQueue, messages: Sequence[StoredMessage]) -> None:
        """They are done, or kept for a commit."""
        if self._auto_commit:
            self._note_offset(owned, owned.finish(messages, self._clock.monotonic()))
        else:
            owned.keep(messages)

    def _note_offset(self, owned: ProcessQueue, offset: int | None) -> None:
        if offset is not None:
            self._offsets.move(owned.queue, offset)

    def _note(self, owned: ProcessQueue, collected: Collected) -> None:
        if not collected.calls:
            return
        mean_s = collected.took_s / collected.calls
        self._mean_s = mean_s if self._mean_s is None else _KEPT * self._mean_s + (1 - _KEPT) * mean_s
        done, failed = len(collected.done), 0
        for call in collected.others:
            if call.result is COMMIT:
                done += len(call.messages)
            else:
                failed += len(call.messages)
        self._stats.note_consumed(owned.queue.topic, done, failed, collected.took_s)


class _Slots:
    """A semaphore whose limit may change. Waiting tasks get free slots in the order in which they came."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._taken = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    def resize(self, count: int) -> None:
        self._count = count
        self._call_next()

    async def __aenter__(self) -> None:
        if self._taken < self._count and not self._waiting:
            self._taken += 1
            return
        called = asyncio.get_running_loop().create_future()
        self._waiting.append(called)
        try:
            await called
        except asyncio.CancelledError:
            if called.done() and not called.cancelled():
                await self.__aexit__()  # it had its slot already
            raise

    async def __aexit__(self, *exc: object) -> None:
        self._taken -= 1
        self._call_next()

    def _call_next(self) -> None:
        while self._waiting and self._taken < self._count:
            called = self._waiting.popleft()
            if not called.done():
                self._taken += 1
                called.set_result(None)

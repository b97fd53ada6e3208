"""Orderly listening: the messages of a queue one after the other, by one worker at a time, while the queue is locked.

    messages wait ──► locked? ── no: request the lock, then every 3 s ──► …
                        │ yes
                        ▼
                  next messages ──► listener ── done ──► finished, and their offset is recorded ──► next messages
                        ▲              │
                        │              ├─ later ──► requeued with one attempt more; the queue pauses (1 s) ─┐
                        └──────────────┼───────────────────────────────────────────────────────────────────┘
                                       └─ dead letter, or too many attempts ──► a dead letter, and done

With `auto_commit=False`, handled messages are kept until the listener returns COMMIT, and delivered again when it returns ROLLBACK.

After a minute of continuous consumption other queues come first. A queue that restarts waits until the running listener of its
predecessor returns: two listeners never work on one queue.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import Final, Protocol

from pocketmq.client.consumer.consume_result import COMMIT, ROLLBACK, OrderlyVerdict, is_exception, orderly_verdict
from pocketmq.client.consumer.jobs import Call, CallRefused, Collected, Job, calls_per_job, setting_result
from pocketmq.client.consumer.listening import Listening, ListeningParts
from pocketmq.client.consumer.process_queue import ProcessQueue
from pocketmq.errors import UsageError
from pocketmq.model import MessageQueue, StoredMessage

log = logging.getLogger("pocketmq.client")

MAX_CONTINUOUS_S: Final = 60.0
PAUSE_BETWEEN_S: Final = 0.01
RELOCK_S: Final = 0.01
UNLOCKED_S: Final = 3.0


class Locks(Protocol):
    """Which queues this consumer may work on: those whose lock it has, or whose messages are leased to it."""

    def holds(self, owned: ProcessQueue) -> bool:
        """Called in the threads of listeners, too."""

    async def renew(self, owned: Sequence[ProcessQueue]) -> None:
        """Find out again, or drop the queue."""


class OrderlyListening(Listening):
    """Up to `workers` queues at a time. `locks` None: broadcasting."""

    def __init__(
        self,
        parts: ListeningParts,
        locks: Locks | None,
        *,
        workers: int,
        suspend_ms: int,
        auto_commit: bool,
    ) -> None:
        super().__init__(parts)
        self._locks = locks
        self._suspend_ms = suspend_ms
        self._auto_commit = auto_commit
        self._slots = _Slots(workers)
        self._workers = workers
        self._latest: dict[MessageQueue, ProcessQueue] = {}
        self._tasks: dict[MessageQueue, asyncio.Task[None]] = {}

    def start(self) -> None:
        """There are no periodic checks: each queue has a task while messages wait in it."""

    async def stop(self) -> None:
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def resize(self, workers: int) -> None:
        self._workers = workers
        self._slots.resize(workers)

    def _parallel_calls(self) -> int:
        return self._workers

    # tasks

    def arrived(self, owned: ProcessQueue) -> None:
        """The pulls of the queue never wait for listeners: its head is always consumed next."""
        queue = owned.queue
        self._latest[queue] = owned
        if queue not in self._tasks:
            name = f"pocketmq orderly consumption of {queue}"
            self._tasks[queue] = asyncio.get_running_loop().create_task(self._consume_queue(queue), name=name)

    def deactivated(self, owned: ProcessQueue) -> None:
        """Its consumption ends with the running call: see `_may_continue`."""

    async def _consume_queue(self, queue: MessageQueue) -> None:
        """Consume while messages wait in the queue, or in the one that replaces it."""
        try:
            while (owned := self._latest[queue]).is_active and owned.waiting:
                if await self._is_ours(owned):
                    async with self._slots:
                        wait_s = await self._consume_safely(owned)
                    await asyncio.sleep(wait_s)
        finally:
            # Without an await after the last check, so that messages that arrive from now on get a new task.
            del self._tasks[queue], self._latest[queue]

    async def _is_ours(self, owned: ProcessQueue) -> bool:
        if self._locks is None or self._locks.holds(owned):
            return True
        await asyncio.sleep(RELOCK_S)
        await self._locks.renew([owned])
        if self._locks.holds(owned):
            return True
        if owned.is_active:
            await asyncio.sleep(UNLOCKED_S)
        return False

    async def _consume_safely(self, owned: ProcessQueue) -> float:
        try:
            return await self._consume(owned)
        except Exception:
            wait_s = self._suspend_ms / 1000
            log.exception("unexpected error while consuming %s; next attempt in %g s", owned.queue, wait_s)
            return wait_s

    async def _consume(self, owned: ProcessQueue) -> float:
        """Consume until no message waits, one fails, or a minute is over. Returns the pause of the queue."""
        end = self._clock.monotonic() + MAX_CONTINUOUS_S
        while owned.is_active and owned.waiting:
            if self._clock.monotonic() >= end or not self._may_continue(owned):
                return PAUSE_BETWEEN_S
            wait_ms = await self._step(owned)
            if wait_ms is not None:
                return wait_ms / 1000
        return 0.0

    def _may_continue(self, owned: ProcessQueue) -> bool:
        """Whether the queue is still assigned and locked. Called before each job, and after each call of a job, as calls may last long.

        The worker's thread calls it, too. It changes nothing, and each read is atomic.
        """
        return owned.is_active and (self._locks is None or self._locks.holds(owned))

    async def _step(self, owned: ProcessQueue) -> float | None:
        """Run one job. Returns the pause of the queue in milliseconds, if any."""
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
            self._record(owned, collected)
            return await self._conclude(owned, collected)
        finally:
            owned.requeue_uncommitted()  # all messages that are neither finished nor kept for a commit
            self._release_if_inactive(owned)
            owned.consumption_changed()

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
            log.error(
                "no listener for message %s of %s; next attempt in %d ms",
                messages[0].message_id,
                owned.queue,
                self._suspend_ms,
            )
            owned.requeue(messages)
            return None
        return Job(
            listener,
            messages,
            now,
            setting_result(done),
            stops_at_failure=True,
            may_continue=partial(self._may_continue, owned),
            may_call=self._settling[owned.is_leased].may_call if owned.is_leased else None,
            event=self._events.before(owned.queue, messages) if self._events.are_watched else None,
        )

    # results

    async def _conclude(self, owned: ProcessQueue, collected: Collected) -> float | None:
        """Finish messages up to the first one to retry. Only the last call can have another result than success."""
        if owned.is_dropped:
            return None
        self._finish(owned, collected.done)
        for call in collected.others:
            if isinstance(call.result, CallRefused):
                return PAUSE_BETWEEN_S * 1000  # the queue is dropped, as its lease is over
            if not self._auto_commit and call.result is ROLLBACK:
                log.info(
                    "rollback of %s: delivering %d messages again", owned.queue, owned.uncommitted + len(call.messages)
                )
                owned.rollback()
                return self._suspend_ms
            verdict = self._verdict(owned, call)
            again = list(verdict.again)
            wait_ms = verdict.wait_ms
            for at, (message, reason) in enumerate(verdict.dead):
                if not await self._send_dead_letter(owned, message, reason):
                    again = [dead for dead, _ in verdict.dead[at:]] + again
                    wait_ms = self._suspend_ms if wait_ms is None else wait_ms
                    break
            first = again[0].queue_offset if again else None
            self._finish(owned, [one for one in call.messages if first is None or one.queue_offset < first])
            if not self._auto_commit and call.result is COMMIT:
                owned.requeue_uncommitted()
                self._settling[owned.is_leased].commit(owned, self._clock.monotonic())
            for message in again:
                message.reconsume_times += 1
            if wait_ms is not None:
                return wait_ms
        return None

    def _verdict(self, owned: ProcessQueue, call: Call) -> OrderlyVerdict:
        max_times = self._settling[owned.is_leased].max_times
        if is_exception(call.result):
            self._report_exception(owned, call)
        try:
            return orderly_verdict(call.result, call.messages, max_times, self._suspend_ms)
        except UsageError as error:
            self._report_invalid(owned, error)
            return orderly_verdict(error, call.messages, max_times, self._suspend_ms)

    async def _send_dead_letter(self, owned: ProcessQueue, message: StoredMessage, reason: str) -> bool:
        log.warning("message %s of %s becomes a dead letter: %s", message.message_id, owned.queue, reason)
        return await self._settling[owned.is_leased].send_dead_letter(message, reason)

    def _finish(self, owned: ProcessQueue, messages: Sequence[StoredMessage]) -> None:
        """Finish messages, or keep them for a commit."""
        if self._auto_commit:
            self._settling[owned.is_leased].handled(owned, messages, self._clock.monotonic())
        else:
            owned.defer_commit(messages)

    def _record(self, owned: ProcessQueue, collected: Collected) -> None:
        if not collected.calls:
            return
        mean_s, weight = collected.took_s / collected.calls, self.OLD_WEIGHT
        self._mean_s = mean_s if self._mean_s is None else weight * self._mean_s + (1 - weight) * mean_s
        done, failed = len(collected.done), 0
        for call in collected.others:
            if call.result is COMMIT:
                done += len(call.messages)
            else:
                failed += len(call.messages)
        self._stats.record_consumed(owned.queue.topic, done, failed, collected.took_s)


class _Slots:
    """A fair semaphore whose limit may change."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._used = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    def resize(self, count: int) -> None:
        self._count = count
        self._grant_next()

    async def __aenter__(self) -> None:
        if self._used < self._count and not self._waiting:
            self._used += 1
            return
        granted = asyncio.get_running_loop().create_future()
        self._waiting.append(granted)
        try:
            await granted
        except asyncio.CancelledError:
            if granted.done() and not granted.cancelled():
                await self.__aexit__()  # release the slot
            raise

    async def __aexit__(self, *exc: object) -> None:
        self._used -= 1
        self._grant_next()

    def _grant_next(self) -> None:
        while self._waiting and self._used < self._count:
            granted = self._waiting.popleft()
            if not granted.done():
                self._used += 1
                granted.set_result(None)

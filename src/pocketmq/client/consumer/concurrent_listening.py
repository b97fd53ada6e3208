"""Concurrent listening: listeners get messages as workers become free, in no particular order.

    messages wait in a process queue ──► a worker is free ──► job ──► listener
       ▲                                                                 │
       │        done ──► finished; the smallest offset in flight is committed, or the message is acknowledged ◄─┤
       │      failed ──► sent back; the message arrives again in a retry topic ◄──────────────────────────────────┤
       │      not sent back ──► waits 5 s ─┐                                broadcasting: logged and dropped ◄──┘
       └───────────────────────────────────┘

Queues alternate, so that one with many messages does not delay the others. A message whose listener exceeds the consume timeout is sent
back while the listener is running: it may be handled twice, but does not block the queue. Broadcasting consumers have no retries: they
log such a message and commit it.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Iterable, Sequence
from functools import partial
from typing import Any, Final

from pocketmq.client.consumer.consume_result import DeadLetter, RetryLater, Verdict, verdicts
from pocketmq.client.consumer.jobs import Call, CallRefused, Collected, Job, calls_per_job
from pocketmq.client.consumer.listening import Listening, ListeningParts
from pocketmq.client.consumer.process_queue import ProcessQueue
from pocketmq.client.consumer.retry_sender import LOCAL_RETRY_SECONDS, OVERDUE_LEVEL
from pocketmq.client.hooks import ConsumeEvent
from pocketmq.errors import UsageError
from pocketmq.model import StoredMessage
from pocketmq.net import Repeating

log = logging.getLogger("pocketmq.client")

CHECK_S: Final = 1.0
"""The interval of checks for calls that last long."""
CLEAN_UP_S: Final = 60.0
"""The maximum interval of checks for overdue messages."""


class ConcurrentListening(Listening):
    """Up to `workers` jobs at a time. `ahead` is the number of messages of a queue that may wait for workers without delaying pulls."""

    def __init__(
        self,
        parts: ListeningParts,
        queues: Callable[[], Iterable[ProcessQueue]],
        *,
        workers: int,
        timeout_s: float,
        ahead: int,
    ) -> None:
        """`queues` returns all queues with messages."""
        super().__init__(parts)
        self._queues = queues
        self._workers = workers
        self._timeout_s = timeout_s
        self._ahead = ahead
        self._ready: OrderedDict[ProcessQueue, None] = OrderedDict()
        """Queues with waiting messages, in the order in which they are served."""
        self._jobs: dict[Job, ProcessQueue] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._rounds = (
            Repeating("check for long calls", CHECK_S, self._check_long_calls, log),
            Repeating("clean-up of overdue messages", min(CLEAN_UP_S, timeout_s), self._clean_up, log),
        )

    def start(self) -> None:
        for each in self._rounds:
            each.start()

    async def stop(self) -> None:
        for each in self._rounds:
            await each.stop()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def resize(self, workers: int) -> None:
        self._workers = workers
        self._submit_jobs()

    def _parallel_calls(self) -> int:
        return self._workers

    # jobs

    def arrived(self, owned: ProcessQueue) -> int | None:
        """Returns the number of messages in flight that keeps all workers busy, if all messages of the queue have the same listener."""
        self._ready[owned] = None
        self._submit_jobs()
        listener = self._listeners.only.get(owned.queue.topic)
        return None if listener is None else self._ahead + self._workers * (listener.batch_size or 1)

    def deactivated(self, owned: ProcessQueue) -> None:
        """Withdraw the calls that have not begun."""
        for job in [job for job, queue in self._jobs.items() if queue is owned]:
            if rest := job.withdraw():
                owned.requeue(rest)

    def _submit_jobs(self) -> None:
        while self._ready and len(self._jobs) < self._workers:
            owned, _ = self._ready.popitem(last=False)
            if owned.is_active and owned.waiting:
                self._submit_next(owned)
            if owned.is_active and owned.waiting:
                self._ready[owned] = None

    def _submit_next(self, owned: ProcessQueue) -> None:
        """Submit a job with the next messages of a queue."""
        now = self._clock.monotonic()
        listener = self._listeners.only.get(owned.queue.topic)
        size = 1
        if listener is not None:
            size = listener.batch_size or 1
            if owned.waiting > size and not self._events.are_watched:
                size *= calls_per_job(owned.waiting // size, self._workers, self._mean_s)
        messages = owned.take(size, now)
        if owned.is_leased and not self._settling[owned.is_leased].may_call(messages):
            self._leave(owned, messages, now)
            return
        listener = listener or self._listeners.of(messages[0])
        if listener is None:
            missing = RetryLater("this consumer has no listener for its topic")
            self._apply(owned, Collected([], [Call(messages, missing)], 0, 0.0), None, now)
            return
        calls = -(-len(messages) // (listener.batch_size or 1))
        job = Job(
            listener,
            messages,
            now,
            partial(self._finished, owned),
            may_call=self._settling[owned.is_leased].may_call if owned.is_leased else None,
            expected_s=None if self._mean_s is None else calls * self._mean_s,
            event=self._events.before(owned.queue, messages) if self._events.are_watched else None,
        )
        self._jobs[job] = owned
        self._dispatch.submit(job)

    # results

    def _finished(self, owned: ProcessQueue, job: Job) -> None:
        """A worker has finished a job."""
        self._jobs.pop(job, None)
        now = self._clock.monotonic()
        self._apply(owned, job.collect(now), job.event, now)
        if job.todo and (rest := job.withdraw()):
            self._requeue(owned, rest)
        owned.consumption_changed()
        self._submit_jobs()

    def _apply(self, owned: ProcessQueue, collected: Collected, event: ConsumeEvent | None, now: float) -> None:
        """Finish done messages and send failed ones back."""
        if not collected.done and not collected.others:
            return
        if event is not None:
            self._events.after(event, collected.result, collected.took_s)
        if collected.calls:
            mean_s, weight = collected.took_s / collected.calls, self.OLD_WEIGHT
            self._mean_s = mean_s if self._mean_s is None else weight * self._mean_s + (1 - weight) * mean_s
        done, failed = collected.done, 0
        for call in collected.others:
            if isinstance(call.result, CallRefused):
                self._leave(owned, call.messages, now)
                continue
            for message, verdict in zip(call.messages, self._verdicts(owned, call), strict=True):
                if verdict.is_done:
                    done.append(message)
                else:
                    failed += 1
                    self._fail(owned, message, verdict)
        self._settling[owned.is_leased].handled(owned, done, now)
        self._stats.record_consumed(owned.queue.topic, len(done), failed, collected.took_s)

    def _verdicts(self, owned: ProcessQueue, call: Call) -> list[Verdict]:
        try:
            found = verdicts(call.result, len(call.messages))
        except UsageError as error:
            found = verdicts(error, len(call.messages))
            self._report_invalid(owned, error)
        else:
            if isinstance(call.result, BaseException) and not isinstance(call.result, RetryLater | DeadLetter):
                self._report_exception(owned, call)
        return found

    def _leave(self, owned: ProcessQueue, messages: Sequence[StoredMessage], now: float) -> None:
        """The leases of some of these messages are over: other members get them. The others wait again."""
        held = [message for message in messages if self._settling[owned.is_leased].may_call([message])]
        lost = [message for message in messages if message not in held]
        log.warning(
            "the leases of %d messages of %s ended before a listener was called; the broker delivers them again",
            len(lost),
            owned.queue,
        )
        owned.finish(lost, now)
        if held:
            self._requeue(owned, held)

    def _fail(self, owned: ProcessQueue, message: StoredMessage, verdict: Verdict) -> None:
        if owned.is_dropped or not owned.is_consuming(message):
            return  # it belongs to another member now, or the clean-up has sent it back
        if not self._settling[owned.is_leased].has_retries:
            log.warning("message %s failed and is dropped: a broadcasting consumer has no retries", message.message_id)
            self._settling[owned.is_leased].sent_back(owned, [message], self._clock.monotonic())
            return
        self._start(self._send_back(owned, message, verdict))

    async def _send_back(self, owned: ProcessQueue, message: StoredMessage, verdict: Verdict) -> None:
        settling, is_sent = self._settling[owned.is_leased], False
        try:
            is_sent = await settling.send_back(owned, message, verdict)
        except Exception:
            log.exception(
                "unexpected error while sending back message %s; retrying it here in %g s",
                message.message_id,
                LOCAL_RETRY_SECONDS,
            )
        if is_sent:
            settling.sent_back(owned, [message], self._clock.monotonic())
            owned.consumption_changed()
            return
        message.reconsume_times += 1
        await asyncio.sleep(LOCAL_RETRY_SECONDS)
        self._requeue(owned, [message])

    def _requeue(self, owned: ProcessQueue, messages: Sequence[StoredMessage]) -> None:
        owned.requeue(messages)
        self._release_if_inactive(owned)
        owned.consumption_changed()
        if owned.is_active:
            self.arrived(owned)

    # periodic checks

    async def _check_long_calls(self) -> None:
        """Give the calls that wait behind a long one to other workers."""
        now = self._clock.monotonic()
        for job, owned in [(job, owned) for job, owned in self._jobs.items() if now - job.began > CHECK_S]:
            self._apply(owned, job.collect(now), job.event, now)
            rest = job.withdraw()
            if job.shares_worker and not job.is_running:
                self._jobs.pop(job, None)  # all its calls are withdrawn, and its worker is busy with another job
            if rest:
                self._requeue(owned, rest)
        self._submit_jobs()

    async def _clean_up(self) -> None:
        """Send back messages whose listeners take too long, or drop them if there are no retries."""
        now = self._clock.monotonic()
        for owned in [*self._queues()]:
            for message in owned.overdue(now, self._timeout_s):
                if owned.is_dropped or not owned.is_consuming(message):
                    continue  # its queue was lost, or its listener returned meanwhile
                if await self._give_up(owned, message):
                    self._settling[owned.is_leased].sent_back(owned, [message], self._clock.monotonic())
                    owned.consumption_changed()

    async def _give_up(self, owned: ProcessQueue, message: StoredMessage) -> bool:
        """Whether an overdue message was sent back, or is dropped."""
        reason = f"not handled within {self._timeout_s:g} s"
        settling = self._settling[owned.is_leased]
        if not settling.has_retries:
            log.warning(
                "BROADCASTING, the message was %s, drop it: message %s of %s", reason, message.message_id, owned.queue
            )
            return True
        log.warning("message %s of %s was %s; sending it back", message.message_id, owned.queue, reason)
        return await settling.send_back(owned, message, Verdict(False, OVERDUE_LEVEL, reason))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

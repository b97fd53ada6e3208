"""Concurrent listening: messages are given to listeners as workers get free, in no particular order.

    messages wait in a process queue ──► its turn, and a worker is free ──► job ──► listener
       ▲                                                                               │
       │                             done ──► finished, the smallest offset in flight is the group's ◄─┤
       │                           failed ──► sent back: it comes again through the retry topic ◄──────┤
       │              cannot be sent back ──► waits 5 s ─┐            broadcasting: logged and dropped ◄┘
       └─────────────────────────────────────────────────┘

Queues take turns, so that one with many messages does not make the others wait. A message on which a listener works for longer than
the time-out is sent back although it is still being worked on: it may be handled twice, but it does not hold the queue up for ever.
Broadcasting has no retries: there such a message is logged and counts as done.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Coroutine, Sequence
from functools import partial
from typing import Any, Final

from pocketmq.client.consumer.assignment import OwnedQueues
from pocketmq.client.consumer.consume_events import ConsumeEvents
from pocketmq.client.consumer.consume_result import DeadLetter, RetryLater, Verdict, verdicts
from pocketmq.client.consumer.consume_stats import ConsumeStats
from pocketmq.client.consumer.dispatch import Dispatch
from pocketmq.client.consumer.jobs import Call, Collected, Job, calls_per_job
from pocketmq.client.consumer.listener import ListenerTable
from pocketmq.client.consumer.offsets import Offsets
from pocketmq.client.consumer.process_queue import ProcessQueue
from pocketmq.client.consumer.retry_sender import LOCAL_RETRY_SECONDS, OVERDUE_LEVEL, RetrySender
from pocketmq.client.hooks import ConsumeEvent
from pocketmq.clock import Clock
from pocketmq.errors import UsageError
from pocketmq.model.message import StoredMessage
from pocketmq.net.loops import Repeating

log = logging.getLogger("pocketmq.client")

LOOK_S: Final = 1.0
"""How often it is looked whether calls last so long that others should not wait behind them."""
CLEAN_UP_S: Final = 60.0
"""How often overdue messages are looked for, if the time-out is not shorter."""
_KEPT: Final = 0.8
"""Part of the old mean of call times that a new one keeps."""


class ConcurrentListening:
    """Gives messages of all owned queues to listeners, as the observer of the queues. `retry_sender` None: broadcasting."""

    def __init__(
        self,
        clock: Clock,
        listeners: ListenerTable,
        dispatch: Dispatch,
        offsets: Offsets,
        retry_sender: RetrySender | None,
        events: ConsumeEvents,
        stats: ConsumeStats,
        owned: OwnedQueues,
        *,
        workers: int,
        timeout_s: float,
        ahead: int,
    ) -> None:
        self._clock = clock
        self._listeners = listeners
        self._dispatch = dispatch
        self._offsets = offsets
        self._retry_sender = retry_sender
        self._events = events
        self._stats = stats
        self._owned = owned
        self._workers = workers
        self._timeout_s = timeout_s
        self._ahead = ahead
        """So many messages of a queue may well wait behind those that workers are at."""
        self._ready: OrderedDict[ProcessQueue, None] = OrderedDict()
        """Queues in which messages wait, in the order of their turns."""
        self._jobs: dict[Job, ProcessQueue] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._mean_s: float | None = None
        self._rounds = (
            Repeating("looking after listeners", LOOK_S, self._look, log),
            Repeating("clean-up of overdue messages", min(CLEAN_UP_S, timeout_s), self._clean_up, log),
        )

    # its life

    def start(self) -> None:
        for each in self._rounds:
            each.start()

    async def stop(self) -> None:
        """Begin nothing more, and wait for nobody."""
        for each in self._rounds:
            await each.stop()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def resize(self, workers: int) -> None:
        """So many jobs may be under way from now on; those that are go on."""
        self._workers = workers
        self._feed()

    # giving messages out

    def arrived(self, owned: ProcessQueue) -> int | None:
        """Messages wait in `owned`; how many in flight are enough for a while, if it is known which listener gets them."""
        self._ready[owned] = None
        self._feed()
        listener = self._listeners.only.get(owned.queue.topic)
        return None if listener is None else self._ahead + self._workers * (listener.batch_size or 1)

    def left(self, owned: ProcessQueue) -> None:
        """Of what was given to workers, they make no call that they have not begun."""
        for job in [job for job, queue in self._jobs.items() if queue is owned]:
            if rest := job.take_back():
                owned.give_back(rest)

    def _feed(self) -> None:
        while self._ready and len(self._jobs) < self._workers:
            owned, _ = self._ready.popitem(last=False)
            if owned.is_active and owned.waiting:
                self._begin(owned)
            if owned.is_active and owned.waiting:
                self._ready[owned] = None

    def _begin(self, owned: ProcessQueue) -> None:
        """Give the next messages of a queue to a worker."""
        now = self._clock.monotonic()
        listener = self._listeners.only.get(owned.queue.topic)
        size = 1
        if listener is not None:
            size = listener.batch_size or 1
            if owned.waiting > size and not self._events.are_watched:
                size *= calls_per_job(owned.waiting // size, self._workers, self._mean_s)
        messages = owned.take(size, now)
        listener = listener or self._listeners.of(messages[0])
        if listener is None:
            nobody = RetryLater("no listener of this member is for its topic")
            self._settle(owned, Collected([], [Call(messages, nobody)], 0, 0.0), None, now)
            return
        calls = -(-len(messages) // (listener.batch_size or 1))
        job = Job(
            listener,
            messages,
            now,
            partial(self._finished, owned),
            expected_s=None if self._mean_s is None else calls * self._mean_s,
            event=self._events.before(owned.queue, messages) if self._events.are_watched else None,
        )
        self._jobs[job] = owned
        self._dispatch.submit(job)

    # what came of it

    def _finished(self, owned: ProcessQueue, job: Job) -> None:
        """A worker is done with a job."""
        self._jobs.pop(job, None)
        now = self._clock.monotonic()
        self._settle(owned, job.collect(now), job.event, now)
        if job.todo and (rest := job.take_back()):
            self._give_back(owned, rest)
        owned.note_done()
        self._feed()

    def _settle(self, owned: ProcessQueue, collected: Collected, event: ConsumeEvent | None, now: float) -> None:
        """Done messages are finished, failed ones go their way."""
        if not collected.done and not collected.others:
            return
        if event is not None:
            self._events.after(event, collected.result, collected.took_s)
        if collected.calls:
            mean_s = collected.took_s / collected.calls
            self._mean_s = mean_s if self._mean_s is None else _KEPT * self._mean_s + (1 - _KEPT) * mean_s
        done, failed = collected.done, 0
        for call in collected.others:
            for message, verdict in zip(call.messages, self._verdicts(owned, call), strict=True):
                if verdict.is_done:
                    done.append(message)
                else:
                    failed += 1
                    self._fail(owned, message, verdict)
        self._finish(owned, done, now)
        self._stats.note_consumed(owned.queue.topic, len(done), failed, collected.took_s)

    def _verdicts(self, owned: ProcessQueue, call: Call) -> list[Verdict]:
        try:
            found = verdicts(call.result, len(call.messages))
        except UsageError as error:
            found = verdicts(error, len(call.messages))
            log.error("a listener of %s is wrong, its messages come again: %s", owned.queue.topic, error)
        else:
            if isinstance(call.result, BaseException) and not isinstance(call.result, RetryLater | DeadLetter):
                self._events.failed(self._listeners.of(call.messages[0]), owned.queue, call.messages, call.result)
        return found

    def _finish(self, owned: ProcessQueue, messages: Sequence[StoredMessage], now: float) -> None:
        offset = owned.finish(messages, now)
        if offset is not None:
            self._offsets.advance(owned.queue, offset)

    def _fail(self, owned: ProcessQueue, message: StoredMessage, verdict: Verdict) -> None:
        if owned.is_dropped or not owned.is_consuming(message):
            return  # somebody else's by now, or sent back because it took too long
        if self._retry_sender is None:
            log.warning("message %s failed, and is dropped: broadcasting knows no retries", message.message_id)
            self._finish(owned, [message], self._clock.monotonic())
            return
        self._start(self._send_back(self._retry_sender, owned, message, verdict))

    async def _send_back(
        self, retry_sender: RetrySender, owned: ProcessQueue, message: StoredMessage, verdict: Verdict
    ) -> None:
        is_sent = False
        try:
            is_sent = await retry_sender.send(message, owned.queue.broker_name, verdict)
        except Exception:
            log.exception("message %s could not be sent back, as nobody foresaw", message.message_id)
        if is_sent:
            self._finish(owned, [message], self._clock.monotonic())
            owned.note_done()
            return
        message.reconsume_times += 1
        await asyncio.sleep(LOCAL_RETRY_SECONDS)
        self._give_back(owned, [message])

    def _give_back(self, owned: ProcessQueue, messages: Sequence[StoredMessage]) -> None:
        owned.give_back(messages)
        owned.note_done()
        if owned.is_active:
            self.arrived(owned)

    # looking after it

    async def _look(self) -> None:
        """Calls that last long keep their worker; what waits behind them gets another one."""
        now = self._clock.monotonic()
        for job, owned in [(job, owned) for job, owned in self._jobs.items() if now - job.began > LOOK_S]:
            self._settle(owned, job.collect(now), job.event, now)
            rest = job.take_back()
            if job.shares_worker and not job.is_running:
                self._jobs.pop(job, None)  # nothing of it is left but its turn behind the one that lasts
            if rest:
                self._give_back(owned, rest)
        self._feed()

    async def _clean_up(self) -> None:
        """Send back what listeners have been working on for too long, or drop it where nothing can be sent back."""
        now = self._clock.monotonic()
        for owned in self._owned.all():
            for message in owned.overdue(now, self._timeout_s):
                if owned.is_dropped or not owned.is_consuming(message):
                    continue  # somebody else's, or done, while others were sent back
                if await self._is_given_up(owned, message):
                    self._finish(owned, [message], self._clock.monotonic())
                    owned.note_done()

    async def _is_given_up(self, owned: ProcessQueue, message: StoredMessage) -> bool:
        """Whether an overdue message need not be waited for here any more."""
        reason = f"not handled within {self._timeout_s:g} s"
        if self._retry_sender is None:
            log.warning(
                "BROADCASTING, the message was %s, drop it: message %s of %s", reason, message.message_id, owned.queue
            )
            return True
        log.warning("message %s of %s was %s: it is sent back", message.message_id, owned.queue, reason)
        return await self._retry_sender.send(message, owned.queue.broker_name, Verdict(False, OVERDUE_LEVEL, reason))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

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
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, Final

from pocketmq.client.consume_events import ConsumeEvents
from pocketmq.client.consume_result import DeadLetter, RetryLater, Verdict, verdicts
from pocketmq.client.consume_stats import ConsumeStats
from pocketmq.client.jobs import Call, Collected, Job, calls_per_job
from pocketmq.client.listener import Listener
from pocketmq.client.listeners import Listeners, Submit
from pocketmq.client.offsets import Offsets
from pocketmq.client.owned_queue import OwnedQueue
from pocketmq.client.send_backs import LOCAL_RETRY_SECONDS, OVERDUE_LEVEL
from pocketmq.client.sending_back import SendBacks
from pocketmq.clock import Clock
from pocketmq.errors import UsageError
from pocketmq.model.message import StoredMessage
from pocketmq.net.repeating import Repeating

log = logging.getLogger("pocketmq.client")

LOOK_S: Final = 1.0
"""How often it is looked whether calls last so long that others should not wait behind them."""
CLEAN_UP_S: Final = 60.0
"""How often overdue messages are looked for, if the time-out is not shorter."""
_KEPT: Final = 0.8
"""Part of the old mean of call times that a new one keeps."""


class ConcurrentListening:
    """Gives messages of all owned queues to listeners. `send_backs` None: broadcasting."""

    def __init__(
        self,
        clock: Clock,
        listeners: Listeners,
        submit: Submit,
        offsets: Offsets,
        send_backs: SendBacks | None,
        events: ConsumeEvents,
        stats: ConsumeStats,
        owned: Callable[[], Iterable[OwnedQueue]],
        *,
        workers: int,
        timeout_s: float,
        ahead: int,
    ) -> None:
        self._clock = clock
        self._listeners = listeners
        self._submit = submit
        self._offsets = offsets
        self._send_backs = send_backs
        self._events = events
        self._stats = stats
        self._owned = owned
        self._workers = workers
        self._timeout_s = timeout_s
        self._ahead = ahead
        """So many messages of a queue may well wait behind those that workers are at."""
        self._ready: deque[OwnedQueue] = deque()
        self._jobs: set[Job] = set()
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

    def arrived(self, owned: OwnedQueue) -> None:
        """Messages wait in `owned`."""
        if not owned.is_listed:
            owned.is_listed = True
            self._ready.append(owned)
        self._feed()

    def _feed(self) -> None:
        while self._ready and len(self._jobs) < self._workers:
            owned = self._ready.popleft()
            if owned.is_active and owned.flight.waiting:
                self._begin(owned)
            if owned.is_active and owned.flight.waiting:
                self._ready.append(owned)
            else:
                owned.is_listed = False

    def _begin(self, owned: OwnedQueue) -> None:
        """Give the next messages of a queue to a worker."""
        now = self._clock.monotonic()
        listener = self._listeners.only(owned.queue.topic)
        messages = owned.flight.take(self._take_size(owned, listener), now)
        if listener is None:
            listener = self._listeners.of(messages[0])
        else:
            owned.enough = self._ahead + self._workers * (listener.batch_size or 1)
        owned.leave_heard = self._put_down
        if listener is None:
            nobody = RetryLater("no listener of this member is for its topic")
            self._conclude(owned, Collected([], [Call(messages, nobody)], 1, 0.0), now)
            return
        job = Job(owned, listener, messages, now, stops_at_failure=False)
        if self._mean_s is not None:
            job.expected_s = len(job.todo) * self._mean_s
        if self._events.are_watched:
            job.notes = self._events.before(owned.queue, messages)
        self._jobs.add(job)
        self._submit(job)

    def _take_size(self, owned: OwnedQueue, listener: Listener | None) -> int:
        if listener is None:
            return 1
        size = listener.batch_size or 1
        if self._events.are_watched:
            return size
        return size * calls_per_job(owned.flight.waiting // size, self._workers, self._mean_s)

    # what came of it

    def finished(self, job: Job) -> None:
        """A worker is done with a job."""
        self._jobs.discard(job)
        self._gather(job, self._clock.monotonic())
        if job.todo and (rest := job.take_back()):
            self._give_back(job.owned, rest)
        job.owned.note_done()
        self._feed()

    def _gather(self, job: Job, now: float) -> None:
        collected = job.collect(now)
        if not collected.calls:
            return
        if job.notes is not None:
            self._events.after(job.notes, collected.result, collected.took_s)
        mean_s = collected.took_s / collected.calls
        self._mean_s = mean_s if self._mean_s is None else _KEPT * self._mean_s + (1 - _KEPT) * mean_s
        self._conclude(job.owned, collected, now)

    def _conclude(self, owned: OwnedQueue, collected: Collected, now: float) -> None:
        """Done messages are finished, failed ones go their way."""
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

    def _verdicts(self, owned: OwnedQueue, call: Call) -> list[Verdict]:
        try:
            found = verdicts(call.result, len(call.messages))
        except UsageError as error:
            found = verdicts(error, len(call.messages))
            log.error("a listener of %s is wrong, its messages come again: %s", owned.queue.topic, error)
        else:
            if isinstance(call.result, BaseException) and not isinstance(call.result, RetryLater | DeadLetter):
                self._events.failed(self._listeners.of(call.messages[0]), owned.queue, call.messages, call.result)
        return found

    def _finish(self, owned: OwnedQueue, messages: Sequence[StoredMessage], now: float) -> None:
        offset = owned.flight.finish(messages, now)
        if offset is not None:
            self._offsets.advance(owned.queue, offset)

    def _fail(self, owned: OwnedQueue, message: StoredMessage, verdict: Verdict) -> None:
        if owned.flight.is_dropped or not owned.flight.is_consuming(message):
            return  # somebody else's by now, or sent back because it took too long
        if self._send_backs is None:
            log.warning("message %s failed, and is dropped: broadcasting knows no retries", message.message_id)
            self._finish(owned, [message], self._clock.monotonic())
            return
        self._start(self._send_back(self._send_backs, owned, message, verdict))

    async def _send_back(
        self, send_backs: SendBacks, owned: OwnedQueue, message: StoredMessage, verdict: Verdict
    ) -> None:
        is_sent = False
        try:
            is_sent = await send_backs.send(message, owned.queue.broker_name, verdict)
        except Exception:
            log.exception("message %s could not be sent back, as nobody foresaw", message.message_id)
        if is_sent:
            self._finish(owned, [message], self._clock.monotonic())
            owned.note_done()
            return
        message.reconsume_times += 1
        await asyncio.sleep(LOCAL_RETRY_SECONDS)
        self._give_back(owned, [message])

    def _give_back(self, owned: OwnedQueue, messages: Sequence[StoredMessage]) -> None:
        owned.flight.give_back(messages)
        owned.note_done()
        if owned.is_active:
            self.arrived(owned)

    def _put_down(self, owned: OwnedQueue) -> None:
        """A queue is left: of what was given to workers, they make no call that they have not begun."""
        for job in [job for job in self._jobs if job.owned is owned]:
            if rest := job.take_back():
                owned.flight.give_back(rest)

    # looking after it

    async def _look(self) -> None:
        """Calls that last long keep their worker; what waits behind them gets another one."""
        now = self._clock.monotonic()
        for job in [job for job in self._jobs if now - job.began > LOOK_S]:
            self._gather(job, now)
            rest = job.take_back()
            if job.shares_worker and not job.is_running:
                self._jobs.discard(job)  # nothing of it is left but its place behind the one that lasts
            if rest:
                self._give_back(job.owned, rest)
        self._feed()

    async def _clean_up(self) -> None:
        """Send back what listeners have been working on for too long, or drop it where nothing can be sent back."""
        now = self._clock.monotonic()
        for owned in list(self._owned()):
            for message in owned.flight.overdue(now, self._timeout_s):
                if owned.flight.is_dropped or not owned.flight.is_consuming(message):
                    continue  # somebody else's, or done, while others were sent back
                if await self._is_given_up(owned, message):
                    self._finish(owned, [message], self._clock.monotonic())
                    owned.note_done()

    async def _is_given_up(self, owned: OwnedQueue, message: StoredMessage) -> bool:
        """Whether an overdue message need not be waited for here any more."""
        reason = f"not handled within {self._timeout_s:g} s"
        if self._send_backs is None:
            log.warning(
                "BROADCASTING, the message was %s, drop it: message %s of %s", reason, message.message_id, owned.queue
            )
            return True
        log.warning("message %s of %s was %s: it is sent back", message.message_id, owned.queue, reason)
        return await self._send_backs.send(message, owned.queue.broker_name, Verdict(False, OVERDUE_LEVEL, reason))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

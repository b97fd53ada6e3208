"""Jobs: calls of a listener that one worker makes, one after the other.

    todo ── the worker takes the next call ──► listener ──► done, or others (calls with a result)
      │                                                       │
      └── withdrawn by the event loop if a call lasts long    └── collected by the event loop

Delivering each message to a worker alone costs more than many a listener, so a job contains as many calls as a worker makes in 1 ms, or
in 10 ms if that leaves no other worker idle. Worker and event loop share a job without a lock: both ends of a deque are thread-safe, and
so is the start of a list while a thread appends to it.

The work per call here is done for each message. Most calls return None: only their messages are recorded, and the clock is read once for
all calls of a job.
"""

import asyncio
import inspect
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import msgspec

from pocketmq.client.consumer.consume_result import SUCCESS
from pocketmq.client.consumer.listener import Listener, Unit
from pocketmq.client.hooks import ConsumeEvent
from pocketmq.errors import MissingLibrary, PocketMQError, UnreadableMessage, UsageError
from pocketmq.model import StoredMessage

SHORT_JOB_S: Final = 0.001
"""The duration of all calls of a job."""
JOB_S: Final = 0.01
"""The same while there are enough messages for all workers."""
MAX_CALLS: Final = 32

Messages = Sequence[StoredMessage]


class CallRefused(PocketMQError):
    """The listener was not called: the messages do not belong to this consumer any more."""


class Call(msgspec.Struct, frozen=True):
    """The messages of a call, and what the listener returned or raised."""

    messages: Messages
    result: Any


class Collected(NamedTuple):
    """Results of calls that ended."""

    done: list[StoredMessage]
    """Messages of plain successes."""
    others: list[Call]
    calls: int
    took_s: float
    """The duration of all calls."""

    @property
    def result(self) -> Any:
        """Of a single call."""
        return self.others[0].result if self.others else None


class Job:
    """Calls of one listener. `stops_at_failure`: the first call that is no plain success is the last one."""

    __slots__ = (
        "_call",
        "_done",
        "_ended",
        "_is_batch",
        "_may_continue",
        "_others",
        "_since",
        "began",
        "event",
        "expected_s",
        "finished",
        "is_running",
        "listener",
        "shares_worker",
        "stops_at_failure",
        "todo",
    )

    def __init__(
        self,
        listener: Listener,
        messages: Messages,
        began: float,
        finished: "Callable[[Job], None]",
        *,
        stops_at_failure: bool = False,
        may_continue: Callable[[], bool] | None = None,
        may_call: Callable[[Messages], bool] | None = None,
        expected_s: float | None = None,
        event: ConsumeEvent | None = None,
    ) -> None:
        self.listener = listener
        self.began = began
        self.finished = finished
        """Called on the consumer's event loop when a worker has finished the job."""
        self.stops_at_failure = stops_at_failure
        self._may_continue = may_continue
        """Called after each call, in the worker's thread; False ends the job."""
        self.expected_s = expected_s
        """The estimated duration of all calls."""
        self.event = event
        """The event for the hooks before and after the call."""
        self.is_running = False
        """Whether a thread makes its calls now."""
        self.shares_worker = False
        """Whether its thread got other jobs together with it."""
        self._is_batch = listener.batch_size is not None
        self.todo: deque[Unit] = deque(listener.units(messages) if self._is_batch else messages)
        self._call = listener.caller(messages)
        if may_call is not None:
            self._call = partial(_call_if_allowed, self._call, may_call)
        self._done: list[Unit] = []
        self._others: list[tuple[Unit, Any]] = []
        self._since = began
        """When the calls began that are not collected."""
        self._ended: float | None = None

    def run(self, monotonic: Callable[[], float]) -> None:
        """Make the calls, in the worker's thread."""
        todo, call, done, may_continue = self.todo, self._call, self._done.append, self._may_continue
        self.is_running = True
        self._since = monotonic()
        while todo:
            try:
                unit = todo.popleft()
            except IndexError:
                break  # the event loop has withdrawn it
            try:
                result = call(unit)
            except BaseException as error:  # also SystemExit, which would end a thread that other listeners use
                result = error
            if result is None:
                done(unit)
            elif not self.record(unit, result):
                break
            if may_continue is not None and not may_continue():
                break
        self._ended = monotonic()
        self.is_running = False

    async def run_async(self, monotonic: Callable[[], float]) -> None:
        """The same for an `async def` listener. Cancellation of its task and exceptions that end the program are raised, too."""
        todo, call, done, may_continue = self.todo, self._call, self._done.append, self._may_continue
        self._since = monotonic()
        try:
            while todo:
                try:
                    unit = todo.popleft()
                except IndexError:
                    break  # the event loop has withdrawn it
                try:
                    result: Any = await call(unit)
                except BaseException as error:
                    result = error
                    if _ends_task(error):
                        self.record(unit, error)
                        raise
                if result is None:
                    done(unit)
                elif not self.record(unit, result):
                    break
                if may_continue is not None and not may_continue():
                    break
        finally:
            self._ended = monotonic()

    def record(self, unit: Unit, result: Any) -> bool:
        """Record the result of a call. Returns whether to make the next one."""
        if is_plain_success(result):
            self._done.append(unit)
            return True
        if inspect.iscoroutine(result):
            result.close()
            result = UsageError(f"{self.listener!r} returned a coroutine: make it an `async def` function")
        if isinstance(result, UnreadableMessage | MissingLibrary) and (parts := self.listener.split_unreadable(unit)):
            # The listener was not called: the readable messages of the batch must not fail with the others.
            self.todo.extendleft(reversed(parts))
            return True
        self._others.append((unit, result))
        return not self.stops_at_failure

    def record_time(self, took_s: float) -> None:
        """For calls that another clock measured."""
        self._since, self._ended = 0.0, took_s

    def withdraw(self) -> list[StoredMessage]:
        """The messages of all calls that have not begun."""
        rest: list[Unit] = []
        while self.todo:
            try:
                rest.append(self.todo.pop())
            except IndexError:
                break  # the worker has taken it
        return self._messages(rest)

    def collect(self, now: float) -> Collected:
        """The results of the calls that ended since the last time."""
        calls = len(self._done)  # the worker may append meanwhile
        done, others = self._done[:calls], []
        del self._done[:calls]
        if self._others:
            count = len(self._others)
            others = [Call(self._messages([unit]), result) for unit, result in self._others[:count]]
            del self._others[:count]
            calls += count
        took_s = 0.0
        if calls:
            until = now if self._ended is None else self._ended
            took_s, self._since = until - self._since, until
        messages: list[Any] = self._messages(done) if self._is_batch else done
        return Collected(messages, others, calls, took_s)

    def _messages(self, units: list[Any]) -> list[StoredMessage]:
        return [message for unit in units for message in unit] if self._is_batch else units


def _call_if_allowed(call: Callable[[Any], Any], may_call: Callable[[Messages], bool], unit: Unit) -> Any:
    """In the worker's thread, just before the call: the process may have been stopped for a while."""
    if not may_call([unit] if isinstance(unit, StoredMessage) else unit):
        raise CallRefused
    return call(unit)


def _ends_task(error: BaseException) -> bool:
    """Whether the error is for the task or the program. A CancelledError may come from something that the listener has cancelled."""
    if isinstance(error, asyncio.CancelledError):
        task = asyncio.current_task()
        return task is not None and task.cancelling() > 0
    return isinstance(error, SystemExit | KeyboardInterrupt)


def setting_result(done: asyncio.Future[None]) -> Callable[[Job], None]:
    """A `finished` callback for a coroutine that waits for the job."""

    def finished(_: Job) -> None:
        if not done.done():
            done.set_result(None)

    return finished


def grouped(jobs: list[Job]) -> list[list[Job]]:
    """Group jobs for one worker that probably take up to `SHORT_JOB_S` together."""
    found: list[list[Job]] = []
    left_s = 0.0
    for job in jobs:
        expected_s = JOB_S if job.expected_s is None else job.expected_s
        if found and expected_s <= left_s:
            found[-1].append(job)
            found[-1][0].shares_worker = job.shares_worker = True
        else:
            found.append([job])
            left_s = SHORT_JOB_S
        left_s -= expected_s
    return found


def is_plain_success(result: Any) -> bool:
    """Whether the result needs no evaluation. Other results may be successes, too."""
    return result is None or result is True or result is SUCCESS


def calls_per_job(waiting: int, workers: int, mean_s: float | None) -> int:
    """The number of calls of the next job, when `waiting` calls could be made and a call takes `mean_s` on average."""
    if mean_s is None:
        return 1
    mean_s = max(mean_s, SHORT_JOB_S / MAX_CALLS)
    calls = max(int(SHORT_JOB_S / mean_s), min(int(JOB_S / mean_s), waiting // workers))
    return max(1, min(calls, MAX_CALLS, waiting))

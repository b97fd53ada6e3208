"""Jobs: calls of a listener that one worker makes, one after the other.

    todo ── a worker takes the next call ──► the listener ──► done, or among the others, of which it said something
      │                                                        │
      └── taken back by the loop when a call lasts too long    └── collected by the loop

To hand each message over alone costs more than many a listener. So short calls travel together: as many as a worker does in 1 ms, or in
10 ms if no other worker would have nothing to do then. A worker and the loop share a job without a lock: both ends of a deque are
safe to take from, and the beginning of a list while another adds to its end.

What is done here for each call is paid by every message. So of a call that returned nothing, as most do, only what it was about is
kept, and the clock is read once for all calls of a job.
"""

import asyncio
import inspect
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from pocketmq.client.consumer.consume_result import SUCCESS
from pocketmq.client.consumer.listener import Listener, Unit
from pocketmq.client.hooks import ConsumeEvent
from pocketmq.errors import MissingLibrary, UnreadableMessage, UsageError
from pocketmq.model.message import StoredMessage

SHORT_JOB_S: Final = 0.001
"""How long all calls of a job may take together, in any case."""
JOB_S: Final = 0.01
"""… while there is enough for all workers."""
MAX_CALLS: Final = 32

Messages = Sequence[StoredMessage]


class Call(msgspec.Struct, frozen=True):
    """A call that was made: of which messages, and what the listener returned or raised."""

    messages: Messages
    result: Any


class Collected(NamedTuple):
    """What has come of some calls."""

    done: list[StoredMessage]
    """Those of calls that were plain successes."""
    others: list[Call]
    calls: int
    took_s: float
    """All of them together."""

    @property
    def result(self) -> Any:
        """Of the only call there was."""
        return self.others[0].result if self.others else None


class Job:
    """Calls of one listener. `stops_at_failure`: those that follow one that was no plain success are not made."""

    __slots__ = (
        "_call",
        "_done",
        "_ended",
        "_is_batch",
        "_may_go_on",
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
        may_go_on: Callable[[], bool] | None = None,
        expected_s: float | None = None,
        event: ConsumeEvent | None = None,
    ) -> None:
        self.listener = listener
        self.began = began
        self.finished = finished
        """Called on the consumer's loop when a worker is done with the job."""
        self.stops_at_failure = stops_at_failure
        self._may_go_on = may_go_on
        """Asked after each call, in the worker's thread, when the next one is not to be made in any case."""
        self.expected_s = expected_s
        """How long its calls will take together, as far as others like them tell."""
        self.event = event
        """What hooks were told before the call, and hear again after it."""
        self.is_running = False
        """Whether a thread makes its calls now, as far as that can be seen from here."""
        self.shares_worker = False
        """Whether its thread was given others with it, to do one after the other."""
        self._is_batch = listener.batch_size is not None
        self.todo: deque[Unit] = deque(listener.units(messages) if self._is_batch else messages)
        self._call = listener.caller(messages)
        self._done: list[Unit] = []
        self._others: list[tuple[Unit, Any]] = []
        self._since = began
        """When the calls began that were not collected yet."""
        self._ended: float | None = None

    def run(self, monotonic: Callable[[], float]) -> None:
        """Make the calls, in the worker's thread."""
        todo, call, done, may_go_on = self.todo, self._call, self._done.append, self._may_go_on
        self.is_running = True
        self._since = monotonic()
        while todo:
            try:
                unit = todo.popleft()
            except IndexError:
                break  # the loop was faster, and took it back
            try:
                result = call(unit)
            except BaseException as error:  # also what is meant to end a thread: here it would end a worker of all
                result = error
            if result is None:
                done(unit)
            elif not self.note(unit, result):
                break
            if may_go_on is not None and not may_go_on():
                break
        self._ended = monotonic()
        self.is_running = False

    async def run_async(self, monotonic: Callable[[], float]) -> None:
        """The same for an `async def` listener, on its loop. What is meant for its task, or for the program, is raised as well."""
        todo, call, done, may_go_on = self.todo, self._call, self._done.append, self._may_go_on
        self._since = monotonic()
        try:
            while todo:
                try:
                    unit = todo.popleft()
                except IndexError:
                    break  # the loop was faster, and took it back
                try:
                    result: Any = await call(unit)
                except BaseException as error:
                    result = error
                    if _is_for_others(error):
                        self.note(unit, error)
                        raise
                if result is None:
                    done(unit)
                elif not self.note(unit, result):
                    break
                if may_go_on is not None and not may_go_on():
                    break
        finally:
            self._ended = monotonic()

    def note(self, unit: Unit, result: Any) -> bool:
        """What came of one call; whether the next may be made."""
        if is_plain_success(result):
            self._done.append(unit)
            return True
        if inspect.iscoroutine(result):
            result.close()
            result = UsageError(f"{self.listener!r} returned a coroutine: make it an `async def` function")
        if isinstance(result, UnreadableMessage | MissingLibrary) and (parts := self.listener.apart(unit)):
            self.todo.extendleft(
                reversed(parts)
            )  # the listener was not called: the others of the batch must not fail with it
            return True
        self._others.append((unit, result))
        return not self.stops_at_failure

    def note_time(self, took_s: float) -> None:
        """For calls that were made elsewhere, by another clock."""
        self._since, self._ended = 0.0, took_s

    def take_back(self) -> list[StoredMessage]:
        """The messages of all calls that were not begun."""
        rest: list[Unit] = []
        while self.todo:
            try:
                rest.append(self.todo.pop())
            except IndexError:
                break  # the worker was faster
        return self._messages(rest)

    def collect(self, now: float) -> Collected:
        """What has come of the calls that have ended since the last time."""
        calls = len(self._done)  # the worker adds to the end of it meanwhile
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


def _is_for_others(error: BaseException) -> bool:
    """Whether it is not only the listener that is to end. A cancellation may just be that of something inside it."""
    if isinstance(error, asyncio.CancelledError):
        task = asyncio.current_task()
        return task is not None and task.cancelling() > 0
    return isinstance(error, SystemExit | KeyboardInterrupt)


def resolving(done: asyncio.Future[None]) -> Callable[[Job], None]:
    """For jobs that a coroutine waits for."""

    def finished(_: Job) -> None:
        if not done.done():
            done.set_result(None)

    return finished


def grouped(jobs: list[Job]) -> list[list[Job]]:
    """Which jobs to hand to one worker together: those that it will have done within `SHORT_JOB_S`, as far as that can be told."""
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
    """Whether nothing more is to be said. Other results may turn out to be successes, too."""
    return result is None or result is True or result is SUCCESS


def calls_per_job(waiting: int, workers: int, mean_s: float | None) -> int:
    """How many calls to hand over together when `waiting` could be made and one took `mean_s` on average so far."""
    if mean_s is None:
        return 1
    mean_s = max(mean_s, SHORT_JOB_S / MAX_CALLS)
    together = max(int(SHORT_JOB_S / mean_s), min(int(JOB_S / mean_s), waiting // workers))
    return max(1, min(together, MAX_CALLS, waiting))

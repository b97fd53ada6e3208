"""Jobs: calls of a listener that one worker makes, one after the other.

    todo ── a worker takes the next call ──► the listener ──► done, with what it returned or raised
      │                                                        │
      └── taken back by the loop when a call lasts too long    └── collected by the loop

To hand each message over alone costs more than many a listener. So short calls travel together: as many as a worker does in 1 ms, or in
10 ms if no other worker would have nothing to do then. A worker and the loop share a job without a lock: both ends of a deque are
safe to take from.
"""

import asyncio
import inspect
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from pocketmq.client.consume_result import SUCCESS
from pocketmq.client.listener import Listener
from pocketmq.client.owned_queue import OwnedQueue
from pocketmq.errors import UsageError
from pocketmq.model.message import StoredMessage

SHORT_JOB_S: Final = 0.001
"""How long all calls of a job may take together, in any case."""
JOB_S: Final = 0.01
"""… while there is enough for all workers."""
MAX_CALLS: Final = 32

Messages = Sequence[StoredMessage]


class Call(msgspec.Struct, frozen=True):
    """A call that was made: of which messages, what the listener returned or raised, and how long it took."""

    messages: Messages
    result: Any
    took_s: float


class Collected(NamedTuple):
    """What has come of some calls."""

    done: list[StoredMessage]
    """Those whose listener returned nothing."""
    others: list[Call]
    calls: int
    took_s: float


class Job:
    """Calls for one queue. `stops_at_failure`: those that follow a failed one are not made."""

    __slots__ = ("began", "done", "listener", "notes", "owned", "stops_at_failure", "todo")

    def __init__(
        self, owned: OwnedQueue, listener: Listener, calls: Iterable[Messages], began: float, *, stops_at_failure: bool
    ) -> None:
        self.owned = owned
        self.listener = listener
        self.todo: deque[Messages] = deque(calls)
        self.done: deque[tuple[Messages, Any, float]] = deque()
        """As in `Call`, which costs more to make than many a listener to run."""
        self.began = began
        self.stops_at_failure = stops_at_failure
        self.notes: Any = None
        """What whoever made the job wants to remember of it."""

    def run(self, monotonic: Callable[[], float]) -> None:
        """Make the calls, in the worker's thread."""
        listener, todo, ended, stops_at_failure = self.listener, self.todo, self.done.append, self.stops_at_failure
        began = monotonic()
        while todo:
            try:
                messages = todo.popleft()
            except IndexError:
                return  # the loop was faster, and took it back
            result = call_plainly(listener, messages)
            ended((messages, result, (now := monotonic()) - began))
            began = now
            if stops_at_failure and not is_plain_success(result):
                return

    async def run_async(self, monotonic: Callable[[], float]) -> None:
        """The same for an `async def` listener, on its loop."""
        function, arguments = self.listener.function, self.listener.arguments
        todo, ended, stops_at_failure = self.todo, self.done.append, self.stops_at_failure
        began = monotonic()
        while todo:
            try:
                messages = todo.popleft()
            except IndexError:
                return  # the loop was faster, and took it back
            try:
                result: Any = await function(*arguments(messages))
            except asyncio.CancelledError as error:
                task = asyncio.current_task()
                if task is not None and task.cancelling():
                    raise  # somebody wants the worker to end; else it was something inside the listener that was cancelled
                result = error
            except Exception as error:
                result = error
            ended((messages, result, (now := monotonic()) - began))
            began = now
            if stops_at_failure and not is_plain_success(result):
                return

    def take_back(self) -> list[StoredMessage]:
        """The messages of all calls that were not begun."""
        rest: list[StoredMessage] = []
        while True:
            try:
                rest.extend(self.todo.pop())
            except IndexError:
                return rest

    def collect(self) -> list[Call]:
        """The calls that have ended since the last time."""
        done = self.done
        return [
            Call(*done.popleft()) for _ in range(len(done))
        ]  # nobody else takes from it, so there are at least as many

    def collect_apart(self) -> Collected:
        """The same, with the messages of calls that returned nothing together: that is what most calls do."""
        done: list[StoredMessage] = []
        others: list[Call] = []
        took_s = 0.0
        count = len(self.done)
        for _ in range(count):
            messages, result, one_s = self.done.popleft()
            took_s += one_s
            if result is None:
                done += messages
            else:
                others.append(Call(messages, result, one_s))
        return Collected(done, others, count, took_s)


def is_plain_success(result: Any) -> bool:
    """Whether nothing more is to be said. Other results may turn out to be successes, too."""
    return result is None or result is True or result is SUCCESS


def call_plainly(listener: Listener, messages: Messages) -> Any:
    """What a plain function returns or raises. Also what is meant to end a thread: here it would end a worker of all."""
    try:
        result = listener.function(*listener.arguments(messages))
    except BaseException as error:
        return error
    if inspect.iscoroutine(result):
        result.close()
        return UsageError(f"{listener!r} returned a coroutine: make it an `async def` function")
    return result


def calls_per_job(waiting: int, workers: int, mean_s: float | None) -> int:
    """How many calls to hand over together when `waiting` could be made and one took `mean_s` on average so far."""
    if mean_s is None:
        return 1
    mean_s = max(mean_s, SHORT_JOB_S / MAX_CALLS)
    together = max(int(SHORT_JOB_S / mean_s), min(int(JOB_S / mean_s), waiting // workers))
    return max(1, min(together, MAX_CALLS, waiting))

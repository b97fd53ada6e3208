"""Dispatch: workers run jobs, the calls of listeners, outside the event loop that talks to brokers.

    plain functions    threads, fed by one queue; or processes, for listeners that compute
    `async def`        tasks on the user's event loop, or on a separate one for programs without a loop

A listener that computes, blocks or raises therefore does not delay the network. The callers of `Dispatch` limit the number of running
jobs. Jobs move between threads in queues and deques, which are thread-safe at both ends.
"""

import asyncio
import logging
import queue
import signal
import threading
import traceback
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from functools import partial
from multiprocessing import get_context
from typing import Any

from pocketmq.client.blocking import Mailbox
from pocketmq.client.consumer.consume_result import (
    AckIndex,
    ConsumeResult,
    DeadLetter,
    RetryLater,
    Suspend,
    text_of,
    user_frames,
)
from pocketmq.client.consumer.jobs import Job, grouped, is_plain_success
from pocketmq.client.consumer.listener import Listener, Unit
from pocketmq.clock import Clock, SystemClock
from pocketmq.errors import MissingLibrary, ProgramFailed, UnreadableMessage
from pocketmq.model import StoredMessage
from pocketmq.net import Portal

log = logging.getLogger("pocketmq.client")

CLOSE_S = 1.0
"""How long `close` waits for the event loop of the listeners."""
THREAD_RETRY_S = 1.0
"""The delay of the next attempt when not even one thread could be started."""

IDLE_S = 60.0
"""Threads above the minimum end when they were idle for this time."""


class Workers(ABC):
    """Makes the calls of jobs, and calls `Job.finished` on the event loop on which the workers were made."""

    def __init__(self) -> None:
        self.at_work = 0
        """Jobs that were submitted and are not finished."""

    @abstractmethod
    def submit(self, job: Job) -> None:
        """Start a job, without waiting."""

    @abstractmethod
    async def close(self) -> None:
        """Accept no more jobs, without waiting for the running ones."""

    def _job_done(self, job: Job) -> None:
        self.at_work -= 1
        job.finished(job)


class ThreadWorkers(Workers):
    """From `least` to `most` daemon threads: a listener that never returns does not keep the program running.

    Short jobs of one loop iteration go to one thread together: waking a thread costs more than many a job.
    """

    def __init__(self, least: int, most: int, clock: Clock) -> None:
        super().__init__()
        self._least = least
        self._most = most
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._ready: list[Job] = []
        """Jobs of this loop iteration."""
        self._groups: queue.SimpleQueue[list[Job] | None] = queue.SimpleQueue()
        self._done: Mailbox[list[Job]] = Mailbox(self._loop, self._jobs_done)
        self._busy = 0
        """Groups of jobs that were delivered and are not finished."""
        self._most_busy = 0
        """The maximum of `_busy` since the last check for idle threads."""
        self._threads = 0
        self._idle_timer: asyncio.TimerHandle | None = None

    def resize(self, least: int, most: int) -> None:
        """Surplus threads end after their current jobs."""
        self._least, self._most = least, most
        self._dismiss(self._threads - most)
        self._watch_idle()

    def submit(self, job: Job) -> None:
        self.at_work += 1
        self._ready.append(job)
        if len(self._ready) == 1:
            self._loop.call_soon(self._deliver)

    async def close(self) -> None:
        self._deliver()
        self._least = self._most = 0
        self._dismiss(self._threads)
        if self._idle_timer is not None:
            self._idle_timer.cancel()

    def _deliver(self) -> None:
        ready, self._ready = self._ready, []
        for group in grouped(ready):
            if self._busy >= self._threads < self._most:
                self._grow()
            self._busy += 1
            if self._busy > self._most_busy:
                self._most_busy = self._busy
            self._groups.put(group)

    def _grow(self) -> None:
        """Start a thread. If the system refuses, the running threads do the work; without any, try again later."""
        thread = threading.Thread(target=self._work, name=f"pocketmq listener {self._threads}", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            if not self._threads:
                log.warning("no thread for listeners could be started: %s; next attempt in %g s", error, THREAD_RETRY_S)
                self._loop.call_later(THREAD_RETRY_S, self._grow_if_none)
        else:
            self._threads += 1
            self._watch_idle()

    def _grow_if_none(self) -> None:
        if self._busy and not self._threads and self._most:
            self._grow()

    def _dismiss(self, count: int) -> None:
        """End so many threads, each when it asks for its next jobs."""
        for _ in range(count):
            self._groups.put(None)
            self._threads -= 1

    def _watch_idle(self) -> None:
        if self._idle_timer is None and self._threads > self._least:
            self._idle_timer = self._loop.call_later(IDLE_S, self._dismiss_idle)

    def _dismiss_idle(self) -> None:
        """End the threads that were idle since the last check."""
        self._idle_timer = None
        self._dismiss(self._threads - max(self._least, self._most_busy))
        self._most_busy = self._busy
        self._watch_idle()

    def _work(self) -> None:
        while (group := self._groups.get()) is not None:
            for job in group:
                job.run(self._clock.monotonic)
            try:
                self._done.put(group)
            except RuntimeError:
                return  # the event loop is closed

    def _jobs_done(self, group: list[Job]) -> None:
        self._busy -= 1
        for job in group:
            self.at_work -= 1
            job.finished(job)


class LoopWorkers(Workers):
    """Tasks on an event loop: the current one, that of the user, or with None a separate one in a thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop | None, clock: Clock) -> None:
        super().__init__()
        self._clock = clock
        self._here = asyncio.get_running_loop()
        self._portal: Portal | None = None
        if loop is None:
            self._portal = Portal("pocketmq listeners")
            loop = self._portal.submit(_loop()).result()
        self._loop = loop
        self._submitted: Mailbox[Job] = Mailbox(loop, self._start, source=self._here)
        self._finished: Mailbox[Job] = Mailbox(self._here, self._job_done, source=loop)
        self._waiting: deque[Job] = deque()
        self._is_scheduled = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_closed = False

    def submit(self, job: Job) -> None:
        self.at_work += 1
        if self._loop is self._here:
            self._start(job)
        else:
            self._submitted.put(job)

    async def close(self) -> None:
        self._is_closed = True
        if self._portal is not None:
            # A listener may block the loop, and at the exit of the program no thread can be started to wait for it.
            with suppress(TimeoutError, RuntimeError):
                async with asyncio.timeout(CLOSE_S):
                    await asyncio.to_thread(self._portal.close)
        elif self._loop is self._here:
            self._cancel()
        elif not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._cancel)

    def _start(self, job: Job) -> None:
        self._waiting.append(job)
        self._schedule()

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._start_task)

    def _start_task(self) -> None:
        self._is_scheduled = False
        if self._waiting:
            task = self._loop.create_task(self._work())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _work(self) -> None:
        """Run the waiting jobs. When a listener awaits something, another task runs the jobs that still wait."""
        while self._waiting:
            job = self._waiting.popleft()
            if self._waiting:
                self._schedule()
            try:
                await job.run_async(self._clock.monotonic)
            except (SystemExit, KeyboardInterrupt):
                if self._portal is None:
                    raise  # it is the user's event loop
            finally:
                self._return(job)

    def _return(self, job: Job) -> None:
        if self._is_closed:
            return  # cancelled
        if self._loop is self._here:
            self._job_done(job)
        else:
            self._finished.put(job)

    def _cancel(self) -> None:
        self._waiting.clear()
        for task in self._tasks:
            task.cancel()


class ProcessWorkers(Workers):
    """Processes. Listeners and messages are pickled, so a listener must be a function at the top of a module."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self._count = count
        self._finished: Mailbox[Job] = Mailbox(asyncio.get_running_loop(), self._job_done)
        self._executor = self._new()

    def submit(self, job: Job) -> None:
        self.at_work += 1
        listener = job.listener
        units = [*job.todo]
        job.todo.clear()
        make = partial(_in_process, listener.function, listener.batch_size, listener.namespace, job.stops_at_failure)
        try:
            future = self._executor.submit(make, units)
        except BrokenProcessPool:
            self._executor = self._new()
            future = self._executor.submit(make, units)
        future.add_done_callback(partial(self._made, job, units))

    async def close(self) -> None:
        self._executor.shutdown(wait=False, cancel_futures=True)

    def _new(self) -> ProcessPoolExecutor:
        return ProcessPoolExecutor(self._count, mp_context=get_context("spawn"), initializer=_ignore_first_interrupt)

    def _made(self, job: Job, units: list[Unit], future: Future[tuple[list[tuple[int, Any]], float]]) -> None:
        """Called in a thread of the executor, or in this one."""
        error = None if future.cancelled() else future.exception()
        if future.cancelled():
            job.todo.extend(units)
        elif error is not None:
            if isinstance(error, BrokenProcessPool):
                error = ProgramFailed("the process that called the listener died")
            for unit in units:
                job.record(unit, error)
        else:
            results, took_s = future.result()
            rest = deque(units)
            for count, result in results:
                unit = rest.popleft()
                if not isinstance(unit, StoredMessage) and len(unit) > count:  # the batch was split
                    rest.appendleft(unit[count:])
                    unit = unit[:count]
                job.record(unit, result)
            job.record_time(took_s)
            job.todo.extend(rest)
        try:
            self._finished.put(job)
        except RuntimeError:
            return  # the event loop is closed


class Dispatch:
    """Gives jobs to the workers for their kind of listener. Make it on the event loop of the consumer.

    `lost` is called with the reason when `async def` listeners cannot be called any more.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        threads: tuple[int, int],
        processes: int | None,
        loop: asyncio.AbstractEventLoop | None,
        lost: Callable[[RuntimeError], None],
    ) -> None:
        self._clock = clock
        self._thread_range = threads
        self._process_count = processes
        self._loop = loop
        self._lost = lost
        self._plain: Workers | None = None
        self._async: Workers | None = None

    @property
    def at_work(self) -> int:
        """Jobs that were submitted and are not finished."""
        return sum(workers.at_work for workers in (self._plain, self._async) if workers is not None)

    @property
    def least(self) -> int:
        """The minimum number of threads."""
        return self._thread_range[0]

    def resize(self, least: int, most: int) -> None:
        self._thread_range = least, most
        if isinstance(self._plain, ThreadWorkers):
            self._plain.resize(least, most)

    def submit(self, job: Job) -> bool:
        """Start a job; False when the event loop of its listener is closed."""
        workers = self._async if job.listener.is_async else self._plain
        try:
            (workers or self._made_for(job.listener)).submit(job)
        except RuntimeError as error:
            self._lost(error)
            return False
        return True

    async def close(self) -> None:
        for workers in (self._plain, self._async):
            if workers is not None:
                await workers.close()

    def _made_for(self, listener: Listener) -> Workers:
        if listener.is_async:
            self._async = LoopWorkers(self._loop, self._clock)
            return self._async
        if self._process_count is not None:
            self._plain = ProcessWorkers(self._process_count)
        else:
            self._plain = ThreadWorkers(*self._thread_range, self._clock)
        return self._plain


def _ignore_first_interrupt() -> None:
    """A terminal sends Ctrl-C to all its processes, and the consumer still waits for its listeners then. The second one ends them."""
    signal.signal(signal.SIGINT, lambda *_: signal.signal(signal.SIGINT, signal.SIG_DFL))


def _in_process(
    function: Callable[..., Any],
    batch_size: int | None,
    namespace: str | None,
    stops_at_failure: bool,
    units: Sequence[Unit],
) -> tuple[list[tuple[int, Any]], float]:
    """In the child: the result or exception of each call with its number of messages, and the duration of all calls.

    A batch with unreadable bodies is split into several calls, as in `Job.record`.
    """
    listener = Listener(function, batch_size, namespace)
    clock = SystemClock()
    results: list[tuple[int, Any]] = []
    began = clock.monotonic()
    todo = deque(units)
    while todo:
        unit = todo.popleft()
        try:
            result = listener.call(unit)
        except BaseException as error:
            result = error
        if isinstance(result, UnreadableMessage | MissingLibrary) and (parts := listener.split_unreadable(unit)):
            todo.extendleft(reversed(parts))
            continue
        results.append((1 if isinstance(unit, StoredMessage) else len(unit), _picklable(result)))
        if stops_at_failure and not is_plain_success(result):
            break
    return results, clock.monotonic() - began


def _picklable(result: Any) -> Any:
    """The parent may not be able to unpickle the user's objects, but always their text."""
    match result:
        case None | bool() | ConsumeResult() | AckIndex():
            return result
        case list() | tuple():
            return [_picklable(one) for one in result]
        case RetryLater():
            return RetryLater(result.reason, delay_level=result.delay_level)
        case DeadLetter():
            return DeadLetter(result.reason)
        case Suspend():
            return Suspend(result.reason, wait_ms=result.wait_ms)
        case UnreadableMessage() | MissingLibrary():
            return type(result)(*result.args)
        case BaseException():
            failed = ProgramFailed(f"{type(result).__name__}: {text_of(result)}")
            if lines := traceback.format_tb(user_frames(result.__traceback__)):
                failed.add_note("".join(lines).rstrip())
            return failed
    return text_of(result, repr)  # a text is an invalid result, which the parent reports


async def _loop() -> asyncio.AbstractEventLoop:
    return asyncio.get_running_loop()

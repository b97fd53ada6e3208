"""Dispatch: jobs go to workers, who call listeners away from the loop that talks to brokers.

    plain functions    threads, fed by one queue; or processes, for listeners that compute
    `async def`        tasks on the loop of the user, or on one of their own for programs that have none

Whatever a listener does, computing, blocking, raising, the network goes on: it lives elsewhere. How many jobs are under way is
decided by whoever submits them. Jobs travel between threads in queues and deques, whose ends are safe to use by several threads.
"""

import asyncio
import logging
import queue
import signal
import threading
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from functools import partial
from multiprocessing import get_context
from typing import Any, Protocol

from pocketmq.client.blocking import Mailbox
from pocketmq.client.consumer.consume_events import users_lines
from pocketmq.client.consumer.consume_result import AckIndex, ConsumeResult, DeadLetter, RetryLater, Suspend, words_of
from pocketmq.client.consumer.jobs import Job, grouped, is_plain_success
from pocketmq.client.consumer.listener import Listener, Unit
from pocketmq.clock import Clock, SystemClock
from pocketmq.errors import MissingLibrary, ProgramFailed, UnreadableMessage
from pocketmq.model.message import StoredMessage
from pocketmq.net.portal import Portal

log = logging.getLogger("pocketmq.client")

CLOSE_S = 1.0
"""How long a loop of listeners gets to end."""
THREAD_RETRY_S = 1.0
"""How long after the machine gave no first thread it is asked for one again."""

IDLE_S = 60.0
"""Threads above the least number end when they had nothing to do for so long."""


class Workers(Protocol):
    """Who makes the calls of jobs. Each job is told on the loop that made the workers when it is done: `Job.finished`."""

    at_work: int
    """Jobs that were submitted and are not finished."""

    def submit(self, job: Job) -> None:
        """Let a job be done. Must not wait."""

    async def close(self) -> None:
        """Take no more. What is being done may end, and nobody waits for it."""


class ThreadWorkers:
    """Threads, from `least` to `most`. They are daemons: a listener that never ends does not keep the program from ending.

    Short jobs that come in one turn of the loop travel together, as short calls do: waking a thread costs more than many a job.
    """

    def __init__(self, least: int, most: int, clock: Clock) -> None:
        self.at_work = 0
        self._least = least
        self._most = most
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._ready: list[Job] = []
        """Those that came in this turn of the loop."""
        self._groups: queue.SimpleQueue[list[Job] | None] = queue.SimpleQueue()
        self._done: Mailbox[list[Job]] = Mailbox(self._loop, self._take_back)
        self._busy = 0
        """Groups of jobs that were handed out and are not back."""
        self._most_busy = 0
        """The most of them at the same time, since idle threads were looked for."""
        self._threads = 0
        self._idle_timer: asyncio.TimerHandle | None = None

    def resize(self, least: int, most: int) -> None:
        """From now on. Threads that are too many end when they are done with what they have."""
        self._least, self._most = least, most
        self._dismiss(self._threads - most)
        self._watch_idle()

    def submit(self, job: Job) -> None:
        self.at_work += 1
        self._ready.append(job)
        if len(self._ready) == 1:
            self._loop.call_soon(self._hand_out)

    async def close(self) -> None:
        self._hand_out()
        self._least = self._most = 0
        self._dismiss(self._threads)
        if self._idle_timer is not None:
            self._idle_timer.cancel()

    def _hand_out(self) -> None:
        ready, self._ready = self._ready, []
        for group in grouped(ready):
            if self._busy >= self._threads < self._most:
                self._grow()
            self._busy += 1
            if self._busy > self._most_busy:
                self._most_busy = self._busy
            self._groups.put(group)

    def _grow(self) -> None:
        """One thread more. Where the machine gives none, those that are there do the work; if there are none, one is tried for again."""
        thread = threading.Thread(target=self._work, name=f"pocketmq listener {self._threads}", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            if not self._threads:
                log.warning("listeners wait for a thread, which is tried for every %g s: %s", THREAD_RETRY_S, error)
                self._loop.call_later(THREAD_RETRY_S, self._grow_if_none)
        else:
            self._threads += 1
            self._watch_idle()

    def _grow_if_none(self) -> None:
        if self._busy and not self._threads and self._most:
            self._grow()

    def _dismiss(self, count: int) -> None:
        """So many threads end, each when it comes for its next jobs."""
        for _ in range(count):
            self._groups.put(None)
            self._threads -= 1

    def _watch_idle(self) -> None:
        if self._idle_timer is None and self._threads > self._least:
            self._idle_timer = self._loop.call_later(IDLE_S, self._dismiss_idle)

    def _dismiss_idle(self) -> None:
        """Those that were never needed since the last time."""
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
                return  # the loop is closed: nobody wants to know any more

    def _take_back(self, group: list[Job]) -> None:
        self._busy -= 1
        for job in group:
            self.at_work -= 1
            job.finished(job)


class LoopWorkers:
    """Tasks on a loop: this one, that of the user, or, for None, one in a thread of its own."""

    def __init__(self, loop: asyncio.AbstractEventLoop | None, clock: Clock) -> None:
        self.at_work = 0
        self._clock = clock
        self._here = asyncio.get_running_loop()
        self._portal: Portal | None = None
        if loop is None:
            self._portal = Portal("pocketmq listeners")
            loop = self._portal.submit(_loop()).result()
        self._loop = loop
        self._there: Mailbox[Job] = Mailbox(loop, self._start, source=self._here)
        self._back: Mailbox[Job] = Mailbox(self._here, self._come_back, source=loop)
        self._waiting: deque[Job] = deque()
        self._is_called = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_closed = False

    def submit(self, job: Job) -> None:
        self.at_work += 1
        if self._loop is self._here:
            self._start(job)
        else:
            self._there.put(job)

    async def close(self) -> None:
        self._is_closed = True
        if self._portal is not None:
            # A listener that never lets go of its loop keeps it; and while the program ends no thread can be had to wait for it.
            with suppress(TimeoutError, RuntimeError):
                async with asyncio.timeout(CLOSE_S):
                    await asyncio.to_thread(self._portal.close)
        elif self._loop is self._here:
            self._cancel()
        elif not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._cancel)

    def _start(self, job: Job) -> None:
        self._waiting.append(job)
        self._call()

    def _call(self) -> None:
        if not self._is_called:
            self._is_called = True
            self._loop.call_soon(self._come)

    def _come(self) -> None:
        self._is_called = False
        if self._waiting:
            task = self._loop.create_task(self._work())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _work(self) -> None:
        """Do all jobs that wait. When the listener of one lets others go on, another task comes for those that still wait."""
        while self._waiting:
            job = self._waiting.popleft()
            if self._waiting:
                self._call()
            try:
                await job.run_async(self._clock.monotonic)
            except (SystemExit, KeyboardInterrupt):
                if self._portal is None:
                    raise  # the user's loop, and his program
            finally:
                self._give_back(job)

    def _give_back(self, job: Job) -> None:
        if self._is_closed:
            return  # it was cancelled, and nobody waits for it any more
        if self._loop is self._here:
            self._come_back(job)
        else:
            self._back.put(job)

    def _come_back(self, job: Job) -> None:
        self.at_work -= 1
        job.finished(job)

    def _cancel(self) -> None:
        self._waiting.clear()
        for task in self._tasks:
            task.cancel()


class ProcessWorkers:
    """Processes. Listener and messages are pickled: the listener must be found by its name in its module."""

    def __init__(self, count: int) -> None:
        self.at_work = 0
        self._count = count
        self._back: Mailbox[Job] = Mailbox(asyncio.get_running_loop(), self._come_back)
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

    def _come_back(self, job: Job) -> None:
        self.at_work -= 1
        job.finished(job)

    def _new(self) -> ProcessPoolExecutor:
        return ProcessPoolExecutor(self._count, mp_context=get_context("spawn"), initializer=_outlive_an_interrupt)

    def _made(self, job: Job, units: list[Unit], future: Future[tuple[list[tuple[int, Any]], float]]) -> None:
        """In a thread of the executor, or in this one."""
        error = None if future.cancelled() else future.exception()
        if future.cancelled():
            job.todo.extend(units)
        elif error is not None:
            if isinstance(error, BrokenProcessPool):
                error = ProgramFailed("the process in which the listener was called has died")
            for unit in units:
                job.note(unit, error)
        else:
            results, took_s = future.result()
            rest = deque(units)
            for count, result in results:
                unit = rest.popleft()
                if not isinstance(unit, StoredMessage) and len(unit) > count:  # it came apart
                    rest.appendleft(unit[count:])
                    unit = unit[:count]
                job.note(unit, result)
            job.note_time(took_s)
            job.todo.extend(rest)
        try:
            self._back.put(job)
        except RuntimeError:
            return  # the loop is closed: nobody wants to know any more


class Dispatch:
    """Gives jobs to workers for their kind of listener, which are made when the first of the kind is called.

    To be made on the loop of its consumer. `lost` hears why `async def` listeners cannot be called any more.
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
        """Threads that stay, once they were needed."""
        return self._thread_range[0]

    def resize(self, least: int, most: int) -> None:
        """How many threads there may be from now on."""
        self._thread_range = least, most
        if isinstance(self._plain, ThreadWorkers):
            self._plain.resize(least, most)

    def submit(self, job: Job) -> bool:
        """Whether somebody does it: False when the loop of its listener is gone."""
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


def _outlive_an_interrupt() -> None:
    """In the child: Ctrl-C goes to all processes of a terminal, and the consumer waits for its listeners then. A second one ends them."""
    signal.signal(signal.SIGINT, lambda *_: signal.signal(signal.SIGINT, signal.SIG_DFL))


def _in_process(
    function: Callable[..., Any],
    batch_size: int | None,
    namespace: str | None,
    stops_at_failure: bool,
    units: Sequence[Unit],
) -> tuple[list[tuple[int, Any]], float]:
    """In the child: what each call returned or raised, with its number of messages, and how long all of them took.

    A batch with bodies that cannot be read comes apart into several calls, as in `Job.note`.
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
        if isinstance(result, UnreadableMessage | MissingLibrary) and (parts := listener.apart(unit)):
            todo.extendleft(reversed(parts))
            continue
        results.append((1 if isinstance(unit, StoredMessage) else len(unit), _travelling(result)))
        if stops_at_failure and not is_plain_success(result):
            break
    return results, clock.monotonic() - began


def _travelling(result: Any) -> Any:
    """What the user made may not be pickled, or not be known here; its text always can be."""
    match result:
        case None | bool() | ConsumeResult() | AckIndex():
            return result
        case list() | tuple():
            return [_travelling(one) for one in result]
        case RetryLater():
            return RetryLater(result.reason, delay_level=result.delay_level)
        case DeadLetter():
            return DeadLetter(result.reason)
        case Suspend():
            return Suspend(result.reason, wait_ms=result.wait_ms)
        case UnreadableMessage() | MissingLibrary():
            return type(result)(*result.args)
        case BaseException():
            failed = ProgramFailed(f"{type(result).__name__}: {words_of(result)}")
            if lines := traceback.format_tb(users_lines(result.__traceback__)):
                failed.add_note("".join(lines).rstrip())
            return failed
    return words_of(result, repr)  # a text means nothing either, which is told where it arrives


async def _loop() -> asyncio.AbstractEventLoop:
    return asyncio.get_running_loop()

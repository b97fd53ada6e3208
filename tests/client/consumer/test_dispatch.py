"""Workers: threads, loops and processes that call listeners. Real threads and processes, so conditions with deadlines."""

import asyncio
import os
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from tests.client.messages import run_of, stored

from pocketmq.client.consumer.consume_result import LATER, ROLLBACK, SUCCESS, RetryLater, verdicts
from pocketmq.client.consumer.dispatch import IDLE_S, THREAD_RETRY_S, LoopWorkers, ProcessWorkers, ThreadWorkers
from pocketmq.client.consumer.jobs import Job
from pocketmq.client.consumer.listener import Listener
from pocketmq.clock import SystemClock
from pocketmq.codes import SysFlag
from pocketmq.errors import UsageError
from pocketmq.model.message import StoredMessage
from pocketmq.testing import run

DEADLINE_S = 30


Finished = Callable[[Job], None]


def job(
    finished: Finished,
    function: Any,
    count: int = 1,
    *,
    stops_at_failure: bool = False,
    batch_size: int | None = None,
) -> Job:
    listener = Listener(function, batch_size)
    return Job(listener, run_of(0, count), 0.0, finished, stops_at_failure=stops_at_failure)


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not condition():  # noqa: ASYNC110 there is no event for the condition
            await asyncio.sleep(0.002)


async def until_really(condition: Callable[[], object]) -> None:
    """The same for work in threads, during which no time passes on a virtual loop."""
    await asyncio.to_thread(_look_until, condition)


def _look_until(condition: Callable[[], object]) -> None:
    tick, clock = threading.Event(), SystemClock()
    end = clock.monotonic() + DEADLINE_S
    while not condition():
        assert clock.monotonic() < end
        tick.wait(0.005)


def threads() -> ThreadWorkers:
    return ThreadWorkers(1, 1, SystemClock())


def process_id(message: StoredMessage) -> object:
    return RetryLater(str(os.getpid()), delay_level=4)


def divide(message: StoredMessage) -> float:
    return 1 / message.queue_offset


def die(message: StoredMessage) -> None:
    os._exit(3)


def later_at_one(message: StoredMessage) -> object:
    return LATER if message.queue_offset == 1 else None


def test_threads_are_started_on_demand_and_results_return_to_the_loop() -> None:
    async def main() -> None:
        done: list[tuple[Job, threading.Thread]] = []
        workers = ThreadWorkers(3, 3, SystemClock())
        names: list[str] = []
        gate = threading.Event()

        def handle(message: StoredMessage) -> None:
            names.append(threading.current_thread().name)
            gate.wait(DEADLINE_S)

        jobs = [job(lambda job: done.append((job, threading.current_thread())), handle) for _ in range(5)]
        for one in jobs:
            workers.submit(one)
        await until(lambda: len(names) == 3)
        assert workers.at_work == 5
        gate.set()
        await until(lambda: len(done) == 5)

        assert {one for one, _ in done} == set(jobs)
        assert {thread for _, thread in done} == {threading.current_thread()}
        assert len(set(names)) == 3
        assert workers.at_work == 0
        await workers.close()
        await until(lambda: not any(thread.name.startswith("pocketmq listener") for thread in threading.enumerate()))

    asyncio.run(main())


def listener_threads() -> int:
    return sum(thread.name.startswith("pocketmq listener") for thread in threading.enumerate())


def test_threads_above_the_minimum_end_after_an_idle_minute() -> None:
    async def main() -> None:
        done: list[Job] = []
        workers = ThreadWorkers(1, 4, SystemClock())
        asyncio.get_running_loop().hold_while(lambda: workers.at_work > 0)  # type: ignore[attr-defined]
        gate = threading.Barrier(4)
        for _ in range(4):
            workers.submit(job(done.append, lambda _: None if gate.wait(DEADLINE_S) >= 0 else LATER))
        await until(lambda: len(done) == 4)
        assert listener_threads() == 4

        await asyncio.sleep(2 * IDLE_S + 1)  # they were needed in the first minute, not in the second
        await until_really(lambda: listener_threads() == 1)
        workers.submit(job(done.append, lambda _: None))
        await until(lambda: len(done) == 5)
        await workers.close()
        await until_really(lambda: listener_threads() == 0)

    run(main())


def test_the_number_of_threads_can_change_while_they_work() -> None:
    async def main() -> None:
        done: list[Job] = []
        workers = ThreadWorkers(1, 1, SystemClock())
        first, second = threading.Barrier(3), threading.Event()
        workers.resize(3, 3)
        for _ in range(3):
            workers.submit(job(done.append, lambda _: None if first.wait(DEADLINE_S) >= 0 else LATER))
        await until(lambda: len(done) == 3)
        assert listener_threads() == 3

        workers.resize(1, 1)
        await until_really(lambda: listener_threads() == 1)
        for _ in range(3):
            workers.submit(job(done.append, lambda _: None if second.wait(DEADLINE_S) else LATER))
        assert listener_threads() == 1
        second.set()
        await until(lambda: len(done) == 6)
        await workers.close()

    asyncio.run(main())


def test_short_jobs_of_one_loop_iteration_run_in_one_thread() -> None:
    async def main() -> None:
        done: list[Job] = []
        threads: set[str] = set()

        def handle(message: StoredMessage) -> None:
            threads.add(threading.current_thread().name)

        workers = ThreadWorkers(20, 20, SystemClock())
        short = [job(done.append, handle, 3) for _ in range(8)]
        for one in short:
            one.expected_s = 0.000_01
            workers.submit(one)
        assert workers.at_work == 8
        await until(lambda: len(done) == 8)

        assert (len(threads), done, workers.at_work) == (1, short, 0)
        assert sum(len(one.collect(0.0).done) for one in done) == 24
        await workers.close()

    asyncio.run(main())


@pytest.mark.parametrize("refused", [{0}, {0, 1}, {1, 2}])
def test_a_failure_to_start_a_thread_loses_no_job(
    refused: set[int], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    starts = iter(range(100))
    start = threading.Thread.start

    def start_if_given(thread: threading.Thread) -> None:
        if thread.name.startswith("pocketmq listener") and next(starts) in refused:
            raise RuntimeError("can't start new thread")
        start(thread)

    async def main() -> None:
        done: list[Job] = []
        workers = ThreadWorkers(3, 3, SystemClock())
        jobs = [job(done.append, lambda _: None) for _ in range(3)]
        for one in jobs:
            workers.submit(one)
        await until(lambda: len(done) == 3)

        assert (set(done), workers.at_work) == (set(jobs), 0)
        await workers.close()

    monkeypatch.setattr(threading.Thread, "start", start_if_given)
    monkeypatch.setattr("pocketmq.client.consumer.dispatch.THREAD_RETRY_S", 0.01)
    asyncio.run(main())
    assert ("no thread for listeners could be started" in caplog.text) == (0 in refused)


def test_workers_closed_while_a_thread_is_missing_start_none(monkeypatch: pytest.MonkeyPatch) -> None:
    tries: list[str] = []

    def refuse(thread: threading.Thread) -> None:
        tries.append(thread.name)
        raise RuntimeError("can't start new thread")

    async def main() -> None:
        workers = ThreadWorkers(3, 3, SystemClock())
        workers.submit(job(lambda _: None, lambda _: None))
        await asyncio.sleep(2.5 * THREAD_RETRY_S)
        assert len(tries) == 3
        await workers.close()
        await asyncio.sleep(2.5 * THREAD_RETRY_S)
        assert len(tries) == 3

    monkeypatch.setattr(threading.Thread, "start", refuse)
    run(main())


def test_jobs_submitted_in_the_last_loop_iteration_are_done() -> None:
    async def main() -> None:
        done: list[Job] = []
        workers = ThreadWorkers(2, 2, SystemClock())
        workers.submit(job(done.append, lambda _: None))
        await workers.close()
        await until(lambda: len(done) == 1)

    asyncio.run(main())


def test_async_listeners_run_on_the_given_loop() -> None:
    async def main() -> None:
        done: list[Job] = []
        loops: list[asyncio.AbstractEventLoop] = []

        async def handle(message: StoredMessage) -> None:
            loops.append(asyncio.get_running_loop())

        workers = LoopWorkers(asyncio.get_running_loop(), SystemClock())
        workers.submit(job(done.append, handle, 3))
        await until(lambda: done)

        assert loops == [asyncio.get_running_loop()] * 3
        await workers.close()

    asyncio.run(main())


def test_a_waiting_async_listener_does_not_delay_the_other_jobs() -> None:
    async def main() -> None:
        begun: list[int] = []
        gate = asyncio.Event()
        done: list[Job] = []

        async def wait(message: StoredMessage) -> None:
            begun.append(message.queue_offset)
            await gate.wait()

        async def pass_by(message: StoredMessage) -> None: ...

        workers = LoopWorkers(asyncio.get_running_loop(), SystemClock())
        for _ in range(5):
            workers.submit(job(done.append, wait))
            workers.submit(job(done.append, pass_by, 2))
        await until(lambda: len(begun) == 5 and len(done) == 5)
        gate.set()
        await until(lambda: len(done) == 10)

        assert workers.at_work == 0
        assert sum(len(one.collect(0.0).done) for one in done) == 15
        await workers.close()

    asyncio.run(main())


def test_async_jobs_that_never_wait_share_one_task() -> None:
    async def main() -> None:
        tasks: set[object] = set()
        done: list[Job] = []

        async def handle(message: StoredMessage) -> None:
            tasks.add(asyncio.current_task())

        workers = LoopWorkers(asyncio.get_running_loop(), SystemClock())
        for _ in range(20):
            workers.submit(job(done.append, handle, 2))
        await until(lambda: len(done) == 20)

        assert len(tasks) == 1
        await workers.close()

    asyncio.run(main())


def test_without_a_loop_of_the_user_async_listeners_get_their_own() -> None:
    async def main() -> None:
        done: list[Job] = []
        loops: list[asyncio.AbstractEventLoop] = []

        async def handle(message: StoredMessage) -> None:
            loops.append(asyncio.get_running_loop())
            time.sleep(0.2)  # noqa: ASYNC251 it holds its loop up on purpose

        workers = LoopWorkers(None, SystemClock())
        ticks = 0
        workers.submit(job(done.append, handle))
        async with asyncio.timeout(DEADLINE_S):
            while not done:
                ticks += 1
                await asyncio.sleep(0.01)

        assert loops[0] is not asyncio.get_running_loop()
        assert ticks > 5
        await workers.close()

    asyncio.run(main())


def test_processes_call_computing_listeners_and_return_their_exceptions() -> None:
    async def main() -> None:
        done: list[Job] = []
        workers = ProcessWorkers(1)
        for one in (
            job(done.append, process_id),
            job(done.append, divide),
            job(done.append, later_at_one, 3, stops_at_failure=True),
        ):
            workers.submit(one)
        await until(lambda: len(done) == 3)

        first, second, third = done
        (verdict,) = verdicts(first.collect(0.0).result, 1)
        assert int(verdict.reason) != os.getpid()
        assert verdict.delay_level == 4
        (verdict,) = verdicts(second.collect(0.0).result, 1)
        assert "ZeroDivisionError: division by zero" in verdict.reason
        collected = third.collect(0.0)
        assert ([one.queue_offset for one in collected.done], collected.result) == ([0], LATER)
        assert 0 < collected.took_s < DEADLINE_S
        assert [message.queue_offset for message in third.withdraw()] == [2]

        workers.submit(job(done.append, die))
        await until(lambda: len(done) == 4)
        (verdict,) = verdicts(done[3].collect(0.0).result, 1)
        assert not verdict.is_done
        assert "died" in verdict.reason

        workers.submit(job(done.append, later_at_one))
        await until(lambda: len(done) == 5)
        assert [one.queue_offset for one in done[4].collect(0.0).done] == [0]
        await workers.close()

    asyncio.run(main())


class Particular(Exception):
    """One that no other process can make again."""

    def __init__(self, what: str, where: str) -> None:
        super().__init__(f"{what} at {where}")


def some_fail(messages: list[StoredMessage]) -> object:
    return [Particular("wrong", "home") if message.queue_offset == 1 else SUCCESS for message in messages]


def generates(message: StoredMessage) -> object:
    return (word for word in ["once"]) if message.queue_offset == 1 else None


def test_results_of_processes_for_some_messages_do_not_affect_the_others() -> None:
    async def main() -> None:
        done: list[Job] = []
        workers = ProcessWorkers(1)
        workers.submit(job(done.append, some_fail, 3, batch_size=3))
        workers.submit(job(done.append, generates, 3))
        await until(lambda: len(done) == 2)
        first, second = sorted(done, key=lambda one: one.listener.batch_size is None)

        (call,) = first.collect(0.0).others
        assert [verdict.is_done for verdict in verdicts(call.result, 3)] == [True, False, True]
        assert "Particular: wrong at home" in verdicts(call.result, 3)[1].reason
        collected = second.collect(0.0)
        assert [one.queue_offset for one in collected.done] == [0, 2]
        with pytest.raises(UsageError, match="generator"):
            verdicts(collected.others[0].result, 1)
        await workers.close()

    asyncio.run(main())


def later_at_first(messages: list[StoredMessage]) -> object:
    return LATER if messages[0].queue_offset == 0 else None


def roll_back(messages: list[StoredMessage]) -> object:
    return ROLLBACK


@pytest.mark.parametrize("made", [lambda: ProcessWorkers(1), threads], ids=["processes", "threads"])
@pytest.mark.parametrize(
    ("function", "result"), [(later_at_first, LATER), (roll_back, ROLLBACK)], ids=["later", "rollback"]
)
def test_an_ordered_batch_stops_at_its_first_failed_part(
    made: Callable[[], Any], function: Any, result: object
) -> None:
    async def main() -> None:
        done: list[Job] = []
        workers = made()
        messages = [stored(0), stored(1, b"no zlib", sys_flag=SysFlag.COMPRESSED), stored(2)]
        workers.submit(Job(Listener(function, 3), messages, 0.0, done.append, stops_at_failure=True))
        await until(lambda: done)

        collected = done[0].collect(0.0)
        assert [(call.messages, call.result) for call in collected.others] == [([messages[0]], result)]
        assert not collected.done
        assert sorted(one.queue_offset for one in done[0].withdraw()) == [1, 2]
        await workers.close()

    asyncio.run(main())


class Odd(BaseException):
    """An exception that ends a test, as test frameworks raise it."""


async def end_own_task(message: StoredMessage) -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(1)


async def raise_odd(message: StoredMessage) -> None:
    raise Odd("not an Exception")


@pytest.mark.parametrize("listener", [raise_odd, end_own_task])
def test_a_job_returns_the_exception_of_its_async_listener(listener: Any) -> None:
    async def main() -> None:
        done: list[Job] = []
        workers = LoopWorkers(asyncio.get_running_loop(), SystemClock())
        workers.submit(job(done.append, listener))
        workers.submit(job(done.append, listener))
        await until(lambda: len(done) == 2)

        assert [len(one.collect(0.0).others) for one in done] == [1, 1]
        assert workers.at_work == 0
        await workers.close()

    asyncio.run(main())


async def leave_program(message: StoredMessage) -> None:
    raise SystemExit(3)


def test_a_fatal_exception_of_an_async_listener_ends_only_the_loop_of_the_user() -> None:
    async def main(loop: asyncio.AbstractEventLoop | None) -> None:
        done: list[Job] = []
        workers = LoopWorkers(loop, SystemClock())
        for count in (1, 2):
            workers.submit(job(done.append, leave_program))
            await until(lambda count=count: len(done) == count)  # type: ignore[misc]
        assert [type(one.collect(0.0).result) for one in done] == [SystemExit, SystemExit]
        await workers.close()

    async def on_its_loop() -> None:
        await main(asyncio.get_running_loop())

    asyncio.run(main(None))
    with pytest.raises(SystemExit):
        asyncio.run(on_its_loop())


def test_closing_cancels_async_listeners() -> None:
    async def main() -> None:
        begun: list[StoredMessage] = []
        ended: list[str] = []

        async def handle(message: StoredMessage) -> None:
            begun.append(message)
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                ended.append("cancelled")
                raise

        for count, loop in enumerate((asyncio.get_running_loop(), None), 1):
            workers = LoopWorkers(loop, SystemClock())
            workers.submit(job(lambda _: None, handle))
            await until(lambda count=count: len(begun) == count)  # type: ignore[misc]
            await workers.close()
        await until(lambda: len(ended) == 2)

    asyncio.run(main())


def test_jobs_that_did_not_start_before_the_close_do_not_start() -> None:
    async def main() -> None:
        begun: list[StoredMessage] = []

        async def handle(message: StoredMessage) -> None:
            begun.append(message)

        workers = LoopWorkers(asyncio.get_running_loop(), SystemClock())
        for _ in range(3):
            workers.submit(job(lambda _: None, handle))
        await workers.close()
        for _ in range(10):
            await asyncio.sleep(0)

        assert begun == []

    asyncio.run(main())


@pytest.mark.parametrize("count", [1, 4])
def test_many_jobs_are_all_done(count: int) -> None:
    async def main() -> None:
        done: list[Job] = []
        workers = ThreadWorkers(count, count, SystemClock())
        for _ in range(500):
            workers.submit(job(done.append, lambda message: None, 4))
        await until(lambda: len(done) == 500)

        assert sum(len(one.collect(0.0).done) for one in done) == 2000
        await workers.close()

    asyncio.run(main())

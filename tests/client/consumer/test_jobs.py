"""Jobs: how many calls share one, and their results."""

import asyncio
from typing import Any

import pytest
from tests.client.messages import run_of

from pocketmq.client.consumer.consume_result import LATER, SUCCESS
from pocketmq.client.consumer.jobs import JOB_S, MAX_CALLS, SHORT_JOB_S, Job, calls_per_job, grouped
from pocketmq.client.consumer.listener import Listener
from pocketmq.errors import UsageError
from pocketmq.model.message import StoredMessage
from pocketmq.testing import run


def job(function: Any, count: int, *, batch_size: int | None = None, stops_at_failure: bool = False) -> Job:
    listener = Listener(function, batch_size)
    return Job(listener, run_of(0, count), 0.0, lambda _: None, stops_at_failure=stops_at_failure)


def done(made: Job) -> list[int]:
    """Collected offsets of plain successes."""
    return [message.queue_offset for message in made.collect(0.0).done]


@pytest.mark.parametrize(
    ("waiting", "workers", "mean_s", "calls"),
    [
        (1000, 20, None, 1),
        (1000, 20, 1.0, 1),
        (1000, 20, 0.01, 1),
        (1000, 20, 0.005, 2),
        (1000, 20, 0.0, MAX_CALLS),
        (1000, 20, 0.0003125, 32),
        (1000, 20, 0.00034, 29),
        (40, 20, 0.00034, 2),
        (39, 20, 0.00051, 1),
        (39, 20, 0.0004, 2),
        (39, 20, 0.0, 32),
        (31, 20, 0.0, 31),
        (1, 20, 0.0, 1),
        (0, 20, 0.0, 1),
    ],
)
def test_short_calls_share_a_job_unless_a_worker_is_idle(
    waiting: int, workers: int, mean_s: float | None, calls: int
) -> None:
    assert calls_per_job(waiting, workers, mean_s) == calls


@pytest.mark.parametrize(
    ("expected_s", "sizes"),
    [
        ([], []),
        ([None], [1]),
        ([None, None], [1, 1]),
        ([0.0, 0.0, 0.0], [3]),
        ([0.0, None, 0.0], [1, 1, 1]),
        ([SHORT_JOB_S / 2, SHORT_JOB_S / 2, 0.0, SHORT_JOB_S / 4], [3, 1]),
        ([SHORT_JOB_S, 0.0, SHORT_JOB_S * 1.01, 0.0], [2, 1, 1]),
        ([JOB_S, JOB_S], [1, 1]),
    ],
)
def test_short_jobs_share_a_worker(expected_s: list[float | None], sizes: list[int]) -> None:
    jobs = [job(lambda _: None, 1) for _ in expected_s]
    for one, seconds in zip(jobs, expected_s, strict=True):
        one.expected_s = seconds

    found = grouped(jobs)

    assert [len(group) for group in found] == sizes
    assert [one for group in found for one in group] == jobs
    assert all(one.shares_worker is (len(group) > 1) for group in found for one in group)


def test_calls_run_in_order_and_are_collected_once() -> None:
    results = [False, True, None, SUCCESS, LATER]
    made = job(lambda message: results[message.queue_offset], 5)

    made.run(lambda: 0.0)

    collected = made.collect(0.0)
    assert [message.queue_offset for message in collected.done] == [1, 2, 3]
    assert [(call.messages[0].queue_offset, call.result) for call in collected.others] == [(0, False), (4, LATER)]
    assert collected.calls == 5
    assert made.collect(0.0) == ([], [], 0, 0.0)
    assert made.withdraw() == []


def test_batch_listeners_get_lists_and_their_results_apply_to_messages() -> None:
    seen: list[list[int]] = []

    def handle(messages: list[StoredMessage]) -> object:
        seen.append([message.queue_offset for message in messages])
        messages.clear()
        return LATER if seen[-1] == [2, 3] else None

    made = job(handle, 5, batch_size=2)
    made.run(lambda: 0.0)

    assert seen == [[0, 1], [2, 3], [4]]
    collected = made.collect(0.0)
    assert [message.queue_offset for message in collected.done] == [0, 1, 4]
    assert [[message.queue_offset for message in call.messages] for call in collected.others] == [[2, 3]]
    assert collected.calls == 3


def test_the_time_of_all_calls_is_counted_once() -> None:
    times = iter([10.0, 16.0])
    half: list[tuple[int, float]] = []

    def handle(message: StoredMessage) -> None:
        if message.queue_offset == 2:
            collected = made.collect(13.0)
            half.append((collected.calls, collected.took_s))

    made = job(handle, 4)
    made.run(lambda: next(times))

    rest = made.collect(99.0)
    assert half == [(2, 3.0)]
    assert (rest.calls, rest.took_s) == (2, 3.0)


def test_a_job_that_did_not_start_has_no_results() -> None:
    made = job(lambda message: None, 2)

    assert made.collect(99.0) == ([], [], 0, 0.0)
    assert [message.queue_offset for message in made.withdraw()] == [1, 0]


def test_calls_that_did_not_start_can_be_withdrawn() -> None:
    made: Job

    def handle(message: StoredMessage) -> None:
        if message.queue_offset == 1:
            assert [one.queue_offset for one in made.withdraw()] == [3, 2]

    made = job(handle, 4)
    made.run(lambda: 0.0)

    assert done(made) == [0, 1]


def test_an_ordered_job_ends_with_the_first_result_other_than_success() -> None:
    made = job(lambda message: LATER if message.queue_offset else None, 4, stops_at_failure=True)

    made.run(lambda: 0.0)

    collected = made.collect(0.0)
    assert [message.queue_offset for message in collected.done] == [0]
    assert [call.result for call in collected.others] == [LATER]
    assert [message.queue_offset for message in made.withdraw()] == [3, 2]


@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt, SystemExit])
def test_any_exception_of_a_function_is_its_result(kind: type[BaseException]) -> None:
    def handle(message: StoredMessage) -> None:
        raise kind("x")

    made = job(handle, 2)
    made.run(lambda: 0.0)

    assert [type(call.result) for call in made.collect(0.0).others] == [kind, kind]


def test_a_plain_function_that_returns_a_coroutine_is_an_error() -> None:
    async def meant(message: StoredMessage) -> None: ...

    made = job(lambda message: meant(message), 1)
    made.run(lambda: 0.0)

    (call,) = made.collect(0.0).others
    assert isinstance(call.result, UsageError)
    assert "async def" in str(call.result)


def test_a_cancellation_inside_a_listener_is_a_failure_and_does_not_end_the_worker() -> None:
    async def main() -> None:
        async def handle(message: StoredMessage) -> None:
            inner = asyncio.get_running_loop().create_future()
            inner.cancel()
            await inner

        made = job(handle, 2)
        await made.run_async(lambda: 0.0)
        assert [type(call.result) for call in made.collect(0.0).others] == [asyncio.CancelledError] * 2

        async def wait(message: StoredMessage) -> None:
            await asyncio.sleep(60)

        working = asyncio.create_task(job(wait, 1).run_async(lambda: 0.0))
        await asyncio.sleep(1)
        working.cancel()
        with pytest.raises(asyncio.CancelledError):
            await working

    run(main())

"""Jobs: how many calls travel together, and what becomes of them."""

import asyncio
from typing import Any

import pytest
from tests.client.messages import run_of, stored

from pocketmq.client.consume_result import LATER
from pocketmq.client.jobs import MAX_CALLS, Job, call_plainly, calls_per_job
from pocketmq.client.listener import Listener
from pocketmq.client.owned_queue import OwnedQueue
from pocketmq.client.process_queue import ProcessQueue
from pocketmq.errors import UsageError
from pocketmq.model.message import StoredMessage
from pocketmq.model.queue import MessageQueue
from pocketmq.testing import run


def job(function: Any, count: int, *, stops_at_failure: bool = False) -> Job:
    owned = OwnedQueue(MessageQueue("T", "b", 0), ProcessQueue(0.0), 0)
    calls = [[message] for message in run_of(0, count)]
    return Job(owned, Listener(function), calls, 0.0, stops_at_failure=stops_at_failure)


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
def test_short_calls_travel_together_and_longer_ones_unless_a_worker_would_have_nothing(
    waiting: int, workers: int, mean_s: float | None, calls: int
) -> None:
    assert calls_per_job(waiting, workers, mean_s) == calls


def test_calls_are_made_in_order_and_collected_once() -> None:
    made = job(lambda message: message.queue_offset == 1, 3)

    made.run(lambda: 0.0)

    assert [(call.messages[0].queue_offset, call.result) for call in made.collect()] == [
        (0, False),
        (1, True),
        (2, False),
    ]
    assert made.collect() == []
    assert made.take_back() == []


def test_what_is_not_begun_can_be_taken_back() -> None:
    made: Job

    def handle(message: StoredMessage) -> None:
        if message.queue_offset == 1:
            assert [one.queue_offset for one in made.take_back()] == [3, 2]

    made = job(handle, 4)
    made.run(lambda: 0.0)

    assert [call.result for call in made.collect()] == [None, None]


def test_an_ordered_job_ends_with_the_first_that_is_no_plain_success() -> None:
    made = job(lambda message: LATER if message.queue_offset else None, 4, stops_at_failure=True)

    made.run(lambda: 0.0)

    assert [call.result for call in made.collect()] == [None, LATER]
    assert [message.queue_offset for message in made.take_back()] == [3, 2]


@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt, SystemExit])
def test_whatever_a_function_raises_is_its_result(kind: type[BaseException]) -> None:
    def handle(message: StoredMessage) -> None:
        raise kind("x")

    assert isinstance(call_plainly(Listener(handle), [stored()]), kind)


def test_a_plain_function_that_returns_a_coroutine_is_told_so() -> None:
    async def meant(message: StoredMessage) -> None: ...

    result = call_plainly(Listener(lambda message: meant(message)), [stored()])

    assert isinstance(result, UsageError)
    assert "async def" in str(result)


def test_something_cancelled_inside_a_listener_is_a_failure_and_not_the_end_of_the_worker() -> None:
    async def main() -> None:
        async def handle(message: StoredMessage) -> None:
            inner = asyncio.get_running_loop().create_future()
            inner.cancel()
            await inner

        made = job(handle, 2)
        await made.run_async(lambda: 0.0)
        assert [type(call.result) for call in made.collect()] == [asyncio.CancelledError] * 2

        async def wait(message: StoredMessage) -> None:
            await asyncio.sleep(60)

        working = asyncio.create_task(job(wait, 1).run_async(lambda: 0.0))
        await asyncio.sleep(1)
        working.cancel()
        with pytest.raises(asyncio.CancelledError):
            await working

    run(main())

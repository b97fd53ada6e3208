"""Repeated work: on time, one run at a time, after any result of the last one, and not after the stop."""

import asyncio
import logging

import pytest

from pocketmq.errors import StoreFull
from pocketmq.net.loops import Repeating
from pocketmq.testing import run

BROKER_LOG = "pocketmq.broker"
log = logging.getLogger(BROKER_LOG)


class Work:
    """Records when its runs start and end."""

    def __init__(self, takes_s: float = 0.0) -> None:
        self.takes_s = takes_s
        self.began: list[float] = []
        self.ended: list[float] = []
        self.failures: list[Exception] = []

    async def run(self) -> None:
        now = asyncio.get_running_loop().time
        self.began.append(round(now(), 3))
        await asyncio.sleep(self.takes_s)
        if self.failures:
            raise self.failures.pop(0)
        self.ended.append(round(now(), 3))


def test_the_first_run_follows_an_interval_and_each_next_one_an_interval_after_the_last() -> None:
    async def main() -> None:
        work = Work(takes_s=2)
        repeating = Repeating("working", 5, work.run, log)

        repeating.start()
        await asyncio.sleep(20)
        await repeating.stop()

        assert work.began == [5, 12, 19]
        assert work.ended == [7, 14]

    run(main())


def test_plain_functions_are_repeated_as_well() -> None:
    async def main() -> None:
        times: list[float] = []
        repeating = Repeating("working", 1, lambda: times.append(asyncio.get_running_loop().time()), log)

        repeating.start()
        await asyncio.sleep(3.5)
        await repeating.stop()

        assert times == [1, 2, 3]

    run(main())


def test_a_failed_run_is_logged_once_and_the_next_is_on_time(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        work = Work()
        work.failures = [StoreFull("no space"), StoreFull("no space"), StoreFull("no space at all")]
        repeating = Repeating("saving offsets", 1, work.run, log)

        repeating.start()
        await asyncio.sleep(5.5)
        await repeating.stop()

        assert work.began == [1, 2, 3, 4, 5]

    with caplog.at_level(logging.INFO, BROKER_LOG):
        run(main())

    told = [(record.levelname, record.message) for record in caplog.records if record.name == BROKER_LOG]
    assert told == [
        ("ERROR", "saving offsets failed; next attempt in 1 s"),
        ("ERROR", "saving offsets failed; next attempt in 1 s"),
        ("INFO", "saving offsets succeeded again"),
    ]


def test_a_running_run_is_cancelled_by_the_stop() -> None:
    async def main() -> None:
        work = Work(takes_s=100)
        repeating = Repeating("working", 1, work.run, log)
        repeating.start()
        await asyncio.sleep(10)

        await repeating.stop()
        await asyncio.sleep(200)

        assert (work.began, work.ended) == ([1], [])
        assert asyncio.all_tasks() == {asyncio.current_task()}

    run(main())


def test_stopping_waits_for_the_cleanup_of_a_run() -> None:
    async def main() -> None:
        tidied: list[str] = []

        async def work() -> None:
            try:
                await asyncio.sleep(100)
            finally:
                await asyncio.sleep(1)
                tidied.append("done")

        repeating = Repeating("working", 1, work, log)
        repeating.start()
        await asyncio.sleep(2)

        await repeating.stop()

        assert tidied == ["done"]

    run(main())


def test_stopping_before_the_start_or_twice_is_harmless() -> None:
    async def main() -> None:
        repeating = Repeating("working", 1, lambda: None, log)

        await repeating.stop()
        repeating.start()
        await repeating.stop()
        await repeating.stop()

        assert asyncio.all_tasks() == {asyncio.current_task()}

    run(main())


def test_cancelling_the_wait_for_the_stop_raises_in_the_caller() -> None:
    async def main() -> None:
        async def work() -> None:
            try:
                await asyncio.sleep(100)
            finally:
                await asyncio.sleep(50)

        repeating = Repeating("working", 1, work, log)
        repeating.start()
        await asyncio.sleep(2)

        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5):
                await repeating.stop()

        assert asyncio.get_running_loop().time() == 7
        await repeating.stop()

    run(main())

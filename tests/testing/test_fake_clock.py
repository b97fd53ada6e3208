"""A clock that the test controls."""

import asyncio

import pytest

from pocketmq.clock import Clock
from pocketmq.errors import UsageError, WrongState
from pocketmq.testing import FakeClock, run
from pocketmq.testing.fake_clock import START_MS


def test_a_fake_clock_stops_until_advanced() -> None:
    clock = FakeClock()
    seen: Clock = clock

    assert (seen.now_ms(), seen.monotonic()) == (START_MS, 0.0)

    clock.advance_ms(1500)

    assert (seen.now_ms(), seen.monotonic()) == (START_MS + 1500, 1.5)


def test_a_fake_clock_follows_its_loop() -> None:
    async def main() -> tuple[int, float]:
        clock = FakeClock(asyncio.get_running_loop(), start_ms=1000)
        await asyncio.sleep(90)
        return clock.now_ms(), clock.monotonic()

    assert run(main()) == (91_000, 90.0)


@pytest.mark.parametrize("step_ms", [3_600_000, -3_600_000])
def test_a_step_changes_the_wall_clock_and_not_the_monotonic_clock(step_ms: int) -> None:
    clock = FakeClock(start_ms=5_000_000)
    clock.advance_ms(250)

    clock.step_ms(step_ms)

    assert clock.now_ms() == 5_000_250 + step_ms
    assert clock.monotonic() == 0.25


def test_milliseconds_are_exact_after_many_small_waits() -> None:
    async def main() -> int:
        clock = FakeClock(asyncio.get_running_loop(), start_ms=0)
        for _ in range(1000):
            await asyncio.sleep(0.001)
        return clock.now_ms()

    assert run(main()) == 1000


def test_a_clock_that_follows_a_loop_cannot_be_advanced_by_hand() -> None:
    async def main() -> None:
        FakeClock(asyncio.get_running_loop()).advance_ms(1)

    with pytest.raises(WrongState, match=r"asyncio\.sleep"):
        run(main())


def test_time_cannot_be_advanced_backwards() -> None:
    with pytest.raises(UsageError, match="step_ms"):
        FakeClock().advance_ms(-1)

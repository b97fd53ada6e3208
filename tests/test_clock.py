"""The machine's two clocks."""

import time

import pytest

from pocketmq.clock import Clock, SteadyClock, SystemClock
from pocketmq.testing import FakeClock


def test_wall_time_counts_milliseconds_since_1970() -> None:
    before = time.time_ns() // 1_000_000
    now = SystemClock().now_ms()
    after = time.time_ns() // 1_000_000

    assert before <= now <= after
    assert isinstance(now, int)


def test_monotonic_time_counts_seconds_and_never_falls() -> None:
    clock = SystemClock()

    before = time.monotonic()
    readings = [clock.monotonic() for _ in range(100)]

    assert readings == sorted(readings)
    assert before <= readings[0]
    assert readings[-1] <= time.monotonic()


def test_the_system_clock_is_a_clock() -> None:
    clock: Clock = SystemClock()

    assert clock.now_ms() > 1_700_000_000_000


# the steady clock


def test_uptime_counts_milliseconds_and_never_falls() -> None:
    readings = [SystemClock().uptime_ms() for _ in range(100)]

    assert readings == sorted(readings)


def test_a_steady_clock_follows_a_regular_wall_clock() -> None:
    wall = FakeClock()
    clock = SteadyClock(wall)

    for _ in range(100):
        wall.advance_ms(1000)
        wall.step_ms(2)  # a crystal that is a little fast

        assert clock.now_ms() == wall.now_ms()


@pytest.mark.parametrize("step_ms", [101, 3_600_000, 80 * 3_600_000])
def test_a_forward_step_takes_effect_after_the_confirmation_time(step_ms: int) -> None:
    wall = FakeClock()
    clock = SteadyClock(wall, 300_000)
    wall.step_ms(step_ms)

    for _ in range(299):
        assert clock.now_ms() == wall.now_ms() - step_ms
        wall.advance_ms(1000)
    wall.advance_ms(1000)

    assert clock.now_ms() == wall.now_ms()


def test_a_backward_step_and_its_return_take_effect_at_once() -> None:
    wall = FakeClock()
    clock = SteadyClock(wall)
    wall.step_ms(-3_600_000)
    behind = clock.now_ms() - wall.now_ms()
    wall.advance_ms(10_000)
    wall.step_ms(3_600_000)

    assert (behind, clock.now_ms() - wall.now_ms()) == (0, 0)


def test_relative_times_are_counted_without_a_step_back_until_it_is_confirmed() -> None:
    wall = FakeClock()
    clock = SteadyClock(wall, 300_000)
    wall.step_ms(-3_600_000)
    at_first = clock.steady_ms() - wall.now_ms()
    for _ in range(299):
        wall.advance_ms(1000)
        clock.now_ms()
    still = clock.steady_ms() - wall.now_ms()
    wall.advance_ms(2000)

    assert (at_first, still, clock.steady_ms() - wall.now_ms()) == (3_600_000, 3_600_000, 0)


def test_a_clock_that_runs_too_fast_is_not_followed() -> None:
    wall = FakeClock()
    clock = SteadyClock(wall)
    began = wall.now_ms()

    for _ in range(1000):
        wall.advance_ms(10)
        wall.step_ms(90)
        clock.now_ms()

    assert clock.now_ms() - began <= 11_500


def test_a_clock_that_keeps_stepping_is_not_followed(caplog: pytest.LogCaptureFixture) -> None:
    wall = FakeClock()
    clock = SteadyClock(wall)
    began = wall.now_ms()

    for number in range(1000):
        wall.advance_ms(1000)
        wall.step_ms((-1) ** number * 1_000_000 + 1000)
        clock.now_ms()

    assert clock.now_ms() - began <= 1_000_000
    assert len(caplog.records) < 10


@pytest.mark.parametrize("step_ms", [50, -50, 100])
def test_a_pause_between_two_readings_is_not_logged(step_ms: int, caplog: pytest.LogCaptureFixture) -> None:
    clock = FakeClock()
    steady = SteadyClock(clock)

    clock.step_ms(step_ms)
    steady.now_ms()
    clock.step_ms(-step_ms)
    steady.now_ms()

    assert caplog.records == []


def test_a_growing_step_and_its_end_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    clock = FakeClock()
    steady = SteadyClock(clock)

    for _ in range(4):
        clock.step_ms(90)
        steady.now_ms()
    clock.step_ms(-360)
    steady.now_ms()

    assert [record.message.split(";")[0] for record in caplog.records] == [
        "the wall clock stepped ahead by 0.3 s",
        "the wall clock is correct again after its step",
    ]


def test_a_suspend_of_the_machine_is_not_a_step() -> None:
    wall = FakeClock()
    clock = SteadyClock(wall)

    wall.sleep_ms(8 * 3_600_000)

    assert clock.now_ms() == wall.now_ms()


def test_the_time_is_certain_after_the_clock_has_run_for_a_while() -> None:
    wall = FakeClock()
    clock = SteadyClock(wall, 300_000)
    at_first = clock.settled_ms()
    wall.advance_ms(300_000)

    assert (at_first, clock.settled_ms()) == (0, wall.now_ms())

"""The machine's two clocks."""

import time

from pocketmq.clock import Clock, SystemClock


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

"""A clock that a test controls.

    monotonic   the time of the virtual loop, or the sum of `advance_ms`
    now_ms      start + monotonic + every `step_ms`: the wall clock may step back, without effect on timeouts
    uptime_ms   monotonic + every `sleep_ms`: the machine slept, and the wall clock continued

Coroutines wait on the loop's own timer, not on this clock.
"""

import asyncio

from pocketmq.errors import UsageError, WrongState

START_MS = 1_700_000_000_000
"""The initial wall clock: 14 November 2023, 22:13:20 UTC."""


class FakeClock:
    """A `Clock` that follows `loop`, or that only `advance_ms` advances."""

    def __init__(self, loop: asyncio.AbstractEventLoop | None = None, *, start_ms: int = START_MS) -> None:
        self._loop = loop
        self._advanced_ms = 0
        self._wall_ms = start_ms
        self._slept_ms = 0

    def now_ms(self) -> int:
        # Sums of floats may be slightly below the exact millisecond: round to microseconds first.
        return self._wall_ms + round(self.monotonic() * 1_000_000) // 1000

    def monotonic(self) -> float:
        return self._advanced_ms / 1000 if self._loop is None else self._loop.time()

    def uptime_ms(self) -> int:
        return self._slept_ms + round(self.monotonic() * 1_000_000) // 1000

    def settled_ms(self) -> int:
        return self.now_ms()

    def steady_ms(self) -> int:
        return self.now_ms()

    def advance_ms(self, ms: int) -> None:
        """Advance both clocks. Only for a clock without a loop."""
        if self._loop is not None:
            raise WrongState("this clock follows a loop; use `await asyncio.sleep(...)` to advance it")
        if ms < 0:
            raise UsageError(f"advance_ms({ms}): must not be negative; `step_ms` sets the wall clock back")
        self._advanced_ms += ms

    def step_ms(self, ms: int) -> None:
        """Step the wall clock forward, or back if negative, as NTP may do. `monotonic` does not change."""
        self._wall_ms += ms

    def sleep_ms(self, ms: int) -> None:
        """Simulate a sleep of the machine: the wall clock advances, timeouts do not. A broker follows it at once, unlike a step."""
        if ms < 0:
            raise UsageError(f"sleep_ms({ms}): must not be negative; `step_ms` sets the wall clock back")
        self._wall_ms += ms
        self._slept_ms += ms

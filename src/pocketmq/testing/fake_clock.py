"""A clock that obeys the test.

monotonic   the virtual loop's own time, or what `advance_ms` added by hand
now_ms      start + monotonic + every `step_ms`: the wall may be set back, and nobody's timeouts notice
uptime_ms   monotonic + every `sleep_ms`: the machine slept, and so the wall went on as well

Waiting is not its business: coroutines wait on the loop's own timer.
"""

import asyncio

from pocketmq.errors import UsageError, WrongState

START_MS = 1_700_000_000_000
"""Where the wall clock of a test stands at first: 14 November 2023, 22:13:20 UTC."""


class FakeClock:
    """A `Clock` that follows `loop`, or stands still until it is advanced by hand."""

    def __init__(self, loop: asyncio.AbstractEventLoop | None = None, *, start_ms: int = START_MS) -> None:
        self._loop = loop
        self._by_hand_ms = 0
        self._wall_ms = start_ms
        self._slept_ms = 0

    def now_ms(self) -> int:
        # Sums of floats end a hair below the millisecond they mean: round to microseconds before cutting.
        return self._wall_ms + round(self.monotonic() * 1_000_000) // 1000

    def monotonic(self) -> float:
        return self._by_hand_ms / 1000 if self._loop is None else self._loop.time()

    def uptime_ms(self) -> int:
        return self._slept_ms + round(self.monotonic() * 1_000_000) // 1000

    def settled_ms(self) -> int:
        return self.now_ms()

    def advance_ms(self, ms: int) -> None:
        """Let `ms` pass, on both readings. Only for a clock without a loop."""
        if self._loop is not None:
            raise WrongState("this clock follows a loop: let time pass with `await asyncio.sleep(...)`")
        if ms < 0:
            raise UsageError(f"time cannot advance by {ms} ms; `step_ms` sets the wall clock back")
        self._by_hand_ms += ms

    def step_ms(self, ms: int) -> None:
        """Set the wall clock forward, or back when negative, as an administrator or NTP would; `monotonic` is untouched."""
        self._wall_ms += ms

    def sleep_ms(self, ms: int) -> None:
        """The machine sleeps for so long: the wall clock goes on, timeouts do not. Unlike a step, a broker follows it at once."""
        if ms < 0:
            raise UsageError(f"a machine cannot sleep for {ms} ms; `step_ms` sets the wall clock back")
        self._wall_ms += ms
        self._slept_ms += ms

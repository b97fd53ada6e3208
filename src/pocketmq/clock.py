"""The only door to time. Three readings, never mixed.

    now_ms      wall clock, milliseconds since 1970: timestamps, due times, retention. May step.
    monotonic   seconds that only grow: timeouts, leases, intervals. Says nothing about the date.
    uptime_ms   milliseconds that only grow, also while the machine sleeps: how long ago something was.

Rules are told the number; programs are given a clock. Waiting is an `await` on the loop's own timer.

A wall clock can be wrong for some seconds: a bad answer of a time server, a typing error, a virtual machine that is resumed.
`SteadyClock` is the wall clock for rules that must not follow such a step, because they would deliver too early or delete.
"""

import logging
import sys
import time
from typing import Final, Protocol

log = logging.getLogger("pocketmq.clock")

STEP_CONFIRM_MS: Final = 300_000
"""How long the wall clock has to run evenly before a step of it is followed."""
SLEW: Final = 0.1
"""How much faster or slower than `uptime_ms` the wall clock may run without being taken for one that stepped."""
MAX_SLEW_MS: Final = 100
"""Steps of at most so much are followed, not more often than `SLEW` allows."""
_JITTER_MS: Final = 2
"""Two readings, both cut to milliseconds, differ by so much without a cause."""


class Clock(Protocol):
    def now_ms(self) -> int: ...

    def monotonic(self) -> float: ...

    def uptime_ms(self) -> int: ...

    def settled_ms(self) -> int:
        """The wall time for what cannot be undone; 0 while it is not certain enough."""
        ...


class SystemClock:
    """The machine's clocks, as they are."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    monotonic = staticmethod(time.monotonic)  # as it is: it is read for every pull and every call

    # Linux stops CLOCK_MONOTONIC while it sleeps and has CLOCK_BOOTTIME beside it; elsewhere CLOCK_MONOTONIC goes on.
    if sys.platform == "linux":

        def uptime_ms(self) -> int:
            return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000

    else:

        def uptime_ms(self) -> int:
            return time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1_000_000

    def settled_ms(self) -> int:
        return self.now_ms()


class SteadyClock:
    """A wall clock that follows `clock`, but no step of it until the new time has lasted for `confirm_ms`.

        wall clock   ───────┐        ┌───────        ┌────────────────────────
                            └────────┘       ────────┘
        now_ms       ───────┐        ┌───────────────────────────────┐ ← followed now
                            └────────┘                 runs on        (jumps to the wall clock)

    A step back is followed at once, for nothing becomes due or old by it; but the time before it is remembered just as long, so
    that a clock that returns is followed at once as well. Time that the machine slept counts as passed.
    """

    def __init__(self, clock: Clock, confirm_ms: int = STEP_CONFIRM_MS) -> None:
        self._clock = clock
        self._wall, self._uptime = clock.now_ms, clock.uptime_ms
        self._confirm_ms = confirm_ms
        self.monotonic = clock.monotonic
        self.uptime_ms = clock.uptime_ms
        uptime = clock.uptime_ms()
        self._offset = clock.now_ms() - uptime
        """The wall time that is believed, less the uptime."""
        self._followed_at = uptime
        self._settled_at = uptime + confirm_ms
        self._stepped: tuple[int, int] | None = None
        """What the offset would be by the clock that stepped, and the uptime at which it was first seen to be so."""

    def now_ms(self) -> int:
        wall = self._wall()
        uptime = self._uptime()
        gap = wall - uptime - self._offset
        if -_JITTER_MS <= gap <= _JITTER_MS:
            if self._stepped is not None:
                self._returned()
            return wall
        return self._follow(wall, uptime, gap)

    def settled_ms(self) -> int:
        """0 for a while after the start: nothing tells yet whether the machine came up with the right time."""
        return self.now_ms() if self._uptime() >= self._settled_at else 0

    def _follow(self, wall: int, uptime: int, gap: int) -> int:
        offset = wall - uptime
        if abs(gap) <= min((uptime - self._followed_at) * SLEW, MAX_SLEW_MS):
            self._offset, self._followed_at = offset, uptime
            if self._stepped is not None:
                self._returned()
            return wall
        if self._stepped is None or abs(offset - self._stepped[0]) > MAX_SLEW_MS:
            if self._stepped is None:
                self._tell_step(gap)
            self._stepped = offset, uptime
        elif uptime - self._stepped[1] >= self._confirm_ms:
            self._offset, self._followed_at = offset, uptime
            self._stepped = None
            log.warning(
                "the wall clock kept its step of %+.1f s for %d s: it is followed now", gap / 1000, self._confirm_s
            )
            return wall
        return min(wall, uptime + self._offset)

    @property
    def _confirm_s(self) -> int:
        return self._confirm_ms // 1000

    def _tell_step(self, gap: int) -> None:
        text = (
            "the wall clock stepped ahead by %.1f s: delays, timers, transactions and retention go on by the time before, "
            "and follow it in %d s unless it returns"
            if gap > 0
            else "the wall clock stepped back by %.1f s: due times wait for it; it counts as right when it has kept it for %d s"
        )
        log.warning(text, abs(gap) / 1000, self._confirm_s)

    def _returned(self) -> None:
        self._stepped = None
        log.warning("the wall clock returned from its step: nothing became due by it")

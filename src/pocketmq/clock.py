"""The only access to time. Three readings:

    now_ms      wall clock in milliseconds since 1970, for timestamps, due times and retention. May step.
    monotonic   seconds that never go back, for timeouts, leases and intervals. Not related to the date.
    uptime_ms   milliseconds that never go back and include the time that the machine sleeps, for ages.

Rules receive the number, programs receive a `Clock`. Waiting is an `await` on the loop's own timer.

A wall clock can be wrong for some seconds, after a bad answer of a time server, a typing error, or the resume of a virtual machine.
`SteadyClock` is a wall clock that ignores such a step, for rules that would deliver too early or delete because of it.
"""

import logging
import time
from typing import Final, Protocol

log = logging.getLogger("pocketmq.clock")

STEP_CONFIRM_MS: Final = 300_000
"""How long the wall clock must run evenly after a step before `SteadyClock` adopts it."""
SLEW: Final = 0.1
"""How much faster or slower than `uptime_ms` the wall clock may run without counting as a step."""
MAX_SLEW_MS: Final = 100
"""Steps up to this are adopted at once, within the rate of `SLEW`."""
_JITTER_MS: Final = 2
"""The rounding error between two readings in milliseconds."""


class Clock(Protocol):
    def now_ms(self) -> int: ...

    def monotonic(self) -> float: ...

    def uptime_ms(self) -> int: ...

    def settled_ms(self) -> int:
        """The wall time for irreversible actions; 0 while it is not certain."""
        ...

    def steady_ms(self) -> int:
        """The wall time from which relative times are counted: without a step that may not last, in either direction."""
        ...


class SystemClock:
    """The clocks of the machine."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    monotonic = staticmethod(time.monotonic)  # not a method, because it is read for each pull and call

    # On Linux, the monotonic clock stops during sleep and CLOCK_BOOTTIME does not; elsewhere the monotonic clock does not stop.
    if hasattr(time, "CLOCK_BOOTTIME"):

        def uptime_ms(self) -> int:
            return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000

    else:

        def uptime_ms(self) -> int:
            return time.monotonic_ns() // 1_000_000

    def settled_ms(self) -> int:
        return self.now_ms()

    def steady_ms(self) -> int:
        return self.now_ms()


class SteadyClock:
    """A wall clock that adopts a step forward of `clock` only after it has lasted for `confirm_ms`.

        wall clock   ───────┐        ┌───────        ┌────────────────────────
                            └────────┘       ────────┘
        now_ms       ───────┐        ┌───────────────────────────────┐ ← adopted
                            └────────┘                 runs on        (jumps to the wall clock)

    A step back is adopted at once, because nothing becomes due by it; the time before it is kept for `confirm_ms`, so that a clock
    that returns is adopted at once too. What begins in between is counted from that time, `steady_ms`: it would be due early when the
    clock returns. Time that the machine slept has passed.
    """

    def __init__(self, clock: Clock, confirm_ms: int = STEP_CONFIRM_MS) -> None:
        self._clock = clock
        self._wall, self._uptime = clock.now_ms, clock.uptime_ms
        self._confirm_ms = confirm_ms
        self.monotonic = clock.monotonic
        self.uptime_ms = clock.uptime_ms
        uptime = clock.uptime_ms()
        self._offset = clock.now_ms() - uptime
        """The adopted wall time minus the uptime."""
        self._followed_at = uptime
        self._settled_at = uptime + confirm_ms
        self._stepped: tuple[int, int] | None = None
        """The offset of the stepped clock, and the uptime at which the step was first seen."""
        self._is_logged = False

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
        """0 after the start, until the time of the machine has proved to be stable."""
        return self.now_ms() if self._uptime() >= self._settled_at else 0

    def steady_ms(self) -> int:
        now = self.now_ms()
        return now if self._stepped is None else self._uptime() + self._offset

    def _follow(self, wall: int, uptime: int, gap: int) -> int:
        offset = wall - uptime
        if abs(gap) <= min((uptime - self._followed_at) * SLEW, MAX_SLEW_MS):
            self._offset, self._followed_at = offset, uptime
            if self._stepped is not None:
                self._returned()
            return wall
        if self._stepped is None or abs(offset - self._stepped[0]) > MAX_SLEW_MS:
            if abs(gap) > MAX_SLEW_MS and not self._is_logged:  # less may be a pause between the two readings
                self._log_step(gap)
            self._stepped = offset, uptime
        elif uptime - self._stepped[1] >= self._confirm_ms:
            self._offset, self._followed_at = offset, uptime
            self._stepped = None
            if self._is_logged:
                self._is_logged = False
                log.warning(
                    "the wall clock has kept its step of %+.1f s for %d s; adopting it", gap / 1000, self._confirm_s
                )
            return wall
        return min(wall, uptime + self._offset)

    @property
    def _confirm_s(self) -> int:
        return self._confirm_ms // 1000

    def _log_step(self, gap: int) -> None:
        self._is_logged = True
        text = (
            "the wall clock stepped ahead by %.1f s; delays, timers, transactions and retention use the previous time "
            "and adopt the new one in %d s unless it returns"
            if gap > 0
            else "the wall clock stepped back by %.1f s; timed messages wait until it reaches their times; adopting it in %d s"
        )
        log.warning(text, abs(gap) / 1000, self._confirm_s)

    def _returned(self) -> None:
        self._stepped = None
        if self._is_logged:
            self._is_logged = False
            log.warning("the wall clock is correct again after its step; the step made no message due")

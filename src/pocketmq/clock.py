"""The only door to time. Two readings, never mixed.

    now_ms      wall clock, milliseconds since 1970: timestamps, due times, retention. May step back.
    monotonic   seconds that only grow: timeouts, leases, intervals. Says nothing about the date.

Rules are told the number; programs are given a clock. Waiting is an `await` on the loop's own timer.
"""

import time
from typing import Protocol


class Clock(Protocol):
    def now_ms(self) -> int: ...

    def monotonic(self) -> float: ...


class SystemClock:
    """The machine's clocks."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    monotonic = staticmethod(time.monotonic)  # as it is: it is read for every pull and every call

"""The result of one shot, and its encoding for the parent process."""

import time
from collections.abc import Sequence

import msgspec

SAMPLE_EVERY = 16
"""One of this many messages is timed when many are in flight."""


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """Messages and seconds; `from_ns` and `to_ns` are monotonic times, which all processes share."""

    messages: int
    seconds: float
    client_us: float
    p50_us: float = 0.0
    p99_us: float = 0.0
    from_ns: int = 0
    to_ns: int = 0
    errors: int = 0

    @property
    def rate(self) -> float:
        return self.messages / self.seconds


class Tally:
    """Counts while a shot runs."""

    def __init__(self) -> None:
        self.messages = 0
        self.errors = 0
        self.samples_ns: list[int] = []
        self.begin()

    def begin(self) -> None:
        """Start the clocks, after the warm-up."""
        self.messages = 0
        self._began_ns = time.monotonic_ns()
        self._cpu_s = time.process_time()

    def end(self) -> Measured:
        now_ns = time.monotonic_ns()
        seconds = max((now_ns - self._began_ns) / 1e9, 1e-9)
        cpu_us = (time.process_time() - self._cpu_s) * 1e6
        return Measured(
            messages=self.messages,
            seconds=seconds,
            client_us=cpu_us / max(1, self.messages),
            p50_us=percentile_us(self.samples_ns, 0.5),
            p99_us=percentile_us(self.samples_ns, 0.99),
            from_ns=self._began_ns,
            to_ns=now_ns,
            errors=self.errors,
        )


def percentile_us(samples_ns: Sequence[int], share: float) -> float:
    ordered = sorted(samples_ns)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] / 1000 if ordered else 0.0


def middle(shots: Sequence[Measured]) -> Measured:
    """The shot with the median rate."""
    return sorted(shots, key=lambda shot: shot.rate)[len(shots) // 2]


def encode(measured: Measured) -> str:
    return msgspec.json.encode(measured).decode()


def decode(text: str) -> Measured:
    return msgspec.json.decode(text, type=Measured)

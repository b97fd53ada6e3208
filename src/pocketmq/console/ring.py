"""The last hour in memory: a sample every few seconds, the oldest forgotten. Charts are drawn from it.

    append ──► │ s │ s │ s │ … │ s │ ──► older than an hour: gone

What was unknown at a moment is None there, and a gap in the chart: never 0.
"""

from collections import deque
from collections.abc import Sequence
from typing import Final

import msgspec

SPAN_S: Final = 3_600.0
MAX_SAMPLES: Final = 3_600
"""Whatever the interval is."""


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """The cluster at one moment."""

    at: float
    """By the monotonic clock, in seconds."""
    put_per_s: float | None = None
    got_per_s: float | None = None
    lag: int | None = None
    """Of all groups whose lag is known, in messages."""
    disk_used: float | None = None
    """Of the fullest disk, from 0 to 1."""
    refused_per_s: float | None = None


class Ring:
    """Samples of the last hour, oldest first."""

    def __init__(self) -> None:
        self._samples: deque[Sample] = deque(maxlen=MAX_SAMPLES)

    def __len__(self) -> int:
        return len(self._samples)

    def append(self, sample: Sample) -> None:
        self._samples.append(sample)
        while self._samples[0].at < sample.at - SPAN_S:
            self._samples.popleft()

    def samples(self) -> Sequence[Sample]:
        return tuple(self._samples)

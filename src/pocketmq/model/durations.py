"""Histograms of durations: of the last one to two minutes and of all time, and the maximum."""

from bisect import bisect_right
from typing import Final, NamedTuple

_BOUNDS_MS: Final = (
    *(0.05, 0.1, 0.2, 0.5, 1, 2, 5),
    *(10, 20, 50, 100, 200, 500, 1_000, 2_000, 3_000, 4_000, 5_000, 10_000),
)
"""The upper bounds of the buckets. The last bucket has none."""

_SHOWN: Final = (
    ("[<=0ms]", 1),
    ("[0~10ms]", 10),
    ("[10~50ms]", 50),
    ("[50~100ms]", 100),
    ("[100~200ms]", 200),
    ("[200~500ms]", 500),
    ("[500ms~1s]", 1_000),
    ("[1~2s]", 2_000),
    ("[2~3s]", 3_000),
    ("[3~4s]", 4_000),
    ("[4~5s]", 5_000),
    ("[5~10s]", 10_000),
    ("[10s~]", float("inf")),
)
"""The buckets of RocketMQ's tools, with their upper bounds. RocketMQ counts whole milliseconds, so its first is below 1."""


class Sizes(NamedTuple):
    """Counts for each bucket, one more for values above all bounds, and the sum of all values."""

    bounds: tuple[float, ...]
    counts: list[int]
    sum: float


class Durations:
    """Records durations; `turn_over` begins another minute."""

    def __init__(self) -> None:
        self._now = [0] * (len(_BOUNDS_MS) + 1)
        self._before = list(self._now)
        self._earlier = list(self._now)
        self._sum_ms = 0.0
        self.longest_ms = 0.0

    def record(self, seconds: float, times: int = 1) -> None:
        """Record one duration, `times` times."""
        ms = seconds * 1000
        self._now[bisect_right(_BOUNDS_MS, ms)] += times
        self._sum_ms += ms * times
        if ms > self.longest_ms:
            self.longest_ms = ms

    def turn_over(self) -> None:
        """End the minute. Older values then count in `all_time` only."""
        self._earlier = [earlier + before for earlier, before in zip(self._earlier, self._before, strict=True)]
        self._before, self._now = self._now, [0] * len(self._now)

    def all_time(self) -> Sizes:
        """All recorded durations, in milliseconds."""
        counts = [earlier + recent for earlier, recent in zip(self._earlier, self._counts(), strict=True)]
        return Sizes(_BOUNDS_MS, counts, self._sum_ms)

    def percentile_ms(self, part: float) -> float:
        """The percentile `part`, 0 to 1, in milliseconds, rounded up to a bucket bound."""
        counts = self._counts()
        rest = part * sum(counts)
        if not rest:
            return 0.0
        for count, bound in zip(counts, _BOUNDS_MS, strict=False):
            rest -= count
            if rest <= 0:
                return min(bound, self.longest_ms)
        return self.longest_ms

    def shown(self) -> str:
        """The format of RocketMQ: `[<=0ms]:12 [0~10ms]:3 …`, with a trailing blank."""
        counts = self._counts()
        text, begin = "", 0
        for name, bound in _SHOWN:
            end = bisect_right(_BOUNDS_MS, bound)
            count = sum(counts[begin:end]) if bound <= _BOUNDS_MS[-1] else counts[-1]
            text += f"{name}:{count} "
            begin = end
        return text

    def _counts(self) -> list[int]:
        return [now + before for now, before in zip(self._now, self._before, strict=True)]

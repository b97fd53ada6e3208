"""How long something took: counts by size, of the last minute or two and of all time, and the longest ever."""

from bisect import bisect_right
from typing import Final, NamedTuple

_BOUNDS_MS: Final = (
    *(0.05, 0.1, 0.2, 0.5, 1, 2, 5),
    *(10, 20, 50, 100, 200, 500, 1_000, 2_000, 3_000, 4_000, 5_000, 10_000),
)
"""A class ends below each of these; the last one is open."""

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
"""The classes that RocketMQ's tools show, with their upper ends. It counts whole milliseconds, so its first is below one."""


class Sizes(NamedTuple):
    """Counts by size: how many below each bound, one more count for what is above all of them, and the sum of all sizes."""

    bounds: tuple[float, ...]
    counts: list[int]
    sum: float


class Durations:
    """Notes one duration at a time; `turn_over` begins another minute."""

    def __init__(self) -> None:
        self._now = [0] * (len(_BOUNDS_MS) + 1)
        self._before = list(self._now)
        self._earlier = list(self._now)
        self._sum_ms = 0.0
        self.longest_ms = 0.0

    def note(self, seconds: float, times: int = 1) -> None:
        """Something took so long, or each of so many things that were done together."""
        ms = seconds * 1000
        self._now[bisect_right(_BOUNDS_MS, ms)] += times
        self._sum_ms += ms * times
        if ms > self.longest_ms:
            self.longest_ms = ms

    def turn_over(self) -> None:
        """What is older than the minute that ends now counts in `all_time` only."""
        self._earlier = [earlier + before for earlier, before in zip(self._earlier, self._before, strict=True)]
        self._before, self._now = self._now, [0] * len(self._now)

    def all_time(self) -> Sizes:
        """All that was ever noted, in milliseconds."""
        counts = [earlier + recent for earlier, recent in zip(self._earlier, self._counts(), strict=True)]
        return Sizes(_BOUNDS_MS, counts, self._sum_ms)

    def percentile_ms(self, part: float) -> float:
        """Below how many milliseconds this part of all lies, 0 to 1; rounded up to the end of a class."""
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
        """As RocketMQ shows it: `[<=0ms]:12 [0~10ms]:3 …`, with a blank behind each."""
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

"""Rates and totals of the whole broker: per second over ten seconds, a minute and ten minutes, and day by day."""

from collections import deque
from datetime import date
from typing import Final, NamedTuple

RATE_SAMPLES: Final = (1, 6, 60)
"""Over how many samples a rate is told: ten seconds, a minute, ten minutes."""


class Counts(NamedTuple):
    """What a broker did. A transfer is a message that was pulled; found and missed are pulls."""

    stored: float = 0
    transferred: float = 0
    found: float = 0
    missed: float = 0


class Rates:
    """The counts at the last samples."""

    def __init__(self, now: float) -> None:
        self._samples = deque([(now, Counts())], max(RATE_SAMPLES) + 1)

    def note(self, now: float, counts: Counts) -> None:
        self._samples.append((now, counts))

    def per_second(self) -> tuple[Counts, ...]:
        """Per second over each of `RATE_SAMPLES`, or over as many samples as there are. Zero before the first."""
        return tuple(self._over(samples) for samples in RATE_SAMPLES)

    def _over(self, samples: int) -> Counts:
        now, last = self._samples[-1]
        since, first = self._samples[max(-samples - 1, -len(self._samples))]
        seconds = now - since
        if seconds <= 0:
            return Counts(0.0, 0.0, 0.0, 0.0)
        return Counts(*((new - old) / seconds for new, old in zip(last, first, strict=True)))


class Mornings(NamedTuple):
    """A total as it was at the last two midnights."""

    yesterday: int = 0
    today: int = 0

    def after(self, midnights: int, total: int) -> "Mornings":
        """As it is after so many midnights. When there were several, nobody looked at the earlier ones: all are the same."""
        return Mornings(self.today if midnights == 1 else total, total)


class DailyTotals:
    """What was put and got until the last two local midnights. A wall clock that is set back changes nothing."""

    def __init__(self, now_ms: int) -> None:
        self._day = _day(now_ms)
        self.put = Mornings()
        self.got = Mornings()

    def look(self, now_ms: int, put: int, got: int) -> None:
        """Note the totals if a new day has begun."""
        day = _day(now_ms)
        midnights = (day - self._day).days
        if midnights > 0:
            self._day = day
            self.put, self.got = self.put.after(midnights, put), self.got.after(midnights, got)


def _day(now_ms: int) -> date:
    return date.fromtimestamp(now_ms / 1000)

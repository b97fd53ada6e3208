"""The last minute, hour and day of a tally."""

import pytest

from pocketmq.broker.stats.rows import DAY, HOUR, MINUTE, SPANS, Growth, History, Span, Tally, Timeline

SAMPLE_S = 10.0


class Watched:
    """A tally with its history, sampled as time passes."""

    def __init__(self, began: float = 0.0) -> None:
        self.timeline = Timeline(began)
        self.tally = Tally()
        self.history = History(self.timeline)

    def pass_samples(self, samples: int, each: int = 0) -> None:
        """Let time pass, with `each` messages of 10 bytes before every sample."""
        for _ in range(samples):
            self.tally.count += each
            self.tally.bytes += 10 * each
            self.timeline.advance(self.timeline.at + SAMPLE_S)
            self.history.record(self.tally, self.timeline)

    def growth(self, span: Span) -> Growth:
        return self.history.growth(span, self.timeline)

    def marks(self) -> list[int]:
        return [len(marks) for marks in self.history._marks]


def test_growth_is_zero_before_the_first_sample() -> None:
    assert Watched(began=5.0).growth(DAY) == Growth(0, 0, 0, 0.0, 0.0)


def test_values_before_the_first_sample_count() -> None:
    watched = Watched()

    watched.pass_samples(1, each=5)

    for span in SPANS:
        assert watched.growth(span) == Growth(5, 50, 5, 0.0, 10.0)


def test_a_minute_is_the_last_six_samples() -> None:
    watched = Watched()
    watched.pass_samples(10, each=1)

    watched.pass_samples(2, each=7)

    assert watched.growth(MINUTE) == Growth(4 + 14, 180, 18, 0.0, 60.0)
    assert watched.growth(HOUR).messages == 24


def test_samples_older_than_the_span_are_removed_without_a_new_sample() -> None:
    watched = Watched()
    watched.pass_samples(1, each=100)

    watched.pass_samples(6)
    assert watched.growth(MINUTE) == Growth(0, 0, 0, 0.0, 60.0)
    assert watched.growth(HOUR).messages == 100
    watched.pass_samples(HOUR.samples)
    assert watched.growth(HOUR).messages == 0
    assert watched.growth(DAY).messages == 100
    watched.pass_samples(DAY.samples)

    assert watched.growth(DAY).messages == 0
    assert watched.history.is_idle(watched.timeline)


@pytest.mark.parametrize("samples", [360, 361, 419, 420, 421, 1000])
def test_an_hour_is_never_more_than_an_hour_and_never_less_than_fifty_minutes(samples: int) -> None:
    watched = Watched()

    watched.pass_samples(samples, each=2)

    grown = watched.growth(HOUR)
    assert 3000 <= grown.seconds <= 3600
    assert grown.messages == 2 * grown.seconds / SAMPLE_S


def test_a_row_created_late_is_measured_from_its_creation() -> None:
    watched = Watched()
    watched.pass_samples(100)
    watched.history = History(watched.timeline)

    watched.pass_samples(3, each=4)

    assert watched.growth(HOUR) == Growth(12, 120, 12, 0.0, 30.0)


def test_late_samples_are_measured_by_their_own_time() -> None:
    watched = Watched()
    watched.tally.count = 60
    watched.timeline.advance(120.0)
    watched.history.record(watched.tally, watched.timeline)

    assert watched.growth(MINUTE).seconds == 120.0


def test_a_busy_history_is_bounded_and_an_idle_one_is_small() -> None:
    watched = Watched()

    watched.pass_samples(2 * DAY.samples, each=1)
    busy = watched.marks()
    watched.tally, watched.history = Tally(), History(watched.timeline)
    watched.pass_samples(DAY.samples)

    assert busy[0] <= 7
    assert busy[1] <= 8
    assert busy[2] <= 26
    assert watched.marks() == [1, 1, 1]

"""Charts: an unknown value is a gap, and the numbers are also there as text for screen readers."""

import re
from collections.abc import Sequence

from pocketmq.console.pages.overview import MAX_POINTS, Line, chart
from pocketmq.console.snapshot import Sample
from pocketmq.model.human import short_number

RATE = [Line("in", lambda sample: sample.put_per_s)]


def drawn(values: Sequence[float | None], step_s: float = 2.0) -> str:
    samples = [Sample(at=number * step_s, put_per_s=value) for number, value in enumerate(values)]
    return str(chart("Rate <b>", samples, RATE, short_number))


def test_unknown_is_a_gap_and_not_zero() -> None:
    [path] = re.findall(r' d="([^"]+)"', drawn([1, 2, None, 3, 4]))

    assert path.count("M") == 2


def test_distant_samples_are_not_connected() -> None:
    [path] = re.findall(r' d="([^"]+)"', drawn([1, 2, 3], step_s=100))

    assert path.count("M") == 3


def test_many_samples_are_thinned_to_the_largest() -> None:
    picture = drawn([0.0] * 1_700 + [70.0] + [0.0] * 99)

    [path] = re.findall(r' d="([^"]+)"', picture)
    assert path.count("L") <= MAX_POINTS
    assert "at most 70" in picture


def test_a_chart_without_samples_shows_a_text() -> None:
    assert "no data yet" in drawn([])
    assert "in unknown" in drawn([None])


def test_the_scale_ends_at_a_round_number() -> None:
    for largest, told in ((0, "1"), (7, "10"), (11, "20"), (320, "500"), (5_000, "5 k")):
        assert f'<span class="scale">{told}</span>' in drawn([largest])


def test_texts_in_a_chart_are_escaped() -> None:
    assert "<b>" not in drawn([1])


def test_a_chart_that_has_just_begun_shows_minutes() -> None:
    assert "5 min ago" in drawn([1, 2, 3])
    assert "1 h ago" in drawn([1.0] * 1_000)

"""Words for pages."""

import pytest

from pocketmq.console import words
from pocketmq.errors import UsageError


def test_what_nobody_knows_is_called_unknown() -> None:
    for told in (words.number, words.short_number, words.span, words.moment, words.share, words.size):
        assert told(None) == "unknown"


@pytest.mark.parametrize(
    ("value", "told"), [(0, "0"), (999, "999"), (1_000, "1 k"), (12_345, "12.3 k"), (3e6, "3 M"), (0.25, "0.2")]
)
def test_large_numbers_are_short(value: float, told: str) -> None:
    assert words.short_number(value) == told


@pytest.mark.parametrize(
    ("ms", "told"),
    [(0, "0 s"), (5, "5 ms"), (65_000, "1 min 5 s"), (86_400_000 * 2, "2 d"), (3_600_000 * 5 + 60_000, "5 h 1 min")],
)
def test_spans_have_their_two_largest_units(ms: int, told: str) -> None:
    assert words.span(ms) == told


@pytest.mark.parametrize("text", ["", "-1", "1.5", "٣", "11", "9" * 40])
def test_what_is_no_whole_number_is_told(text: str) -> None:
    with pytest.raises(UsageError, match="queues"):
        words.whole(text, "queues", least=1, most=10)


def test_sizes_have_units() -> None:
    assert words.size(12) == "12 B"
    assert words.size(1536) == "1.5 KiB"

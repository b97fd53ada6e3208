from datetime import UTC, datetime, timedelta

import click
import pytest

from pocketmq.cli.words import (
    clock_time,
    moment_ms,
    moment_word,
    number,
    offset,
    pair_word,
    perm_text,
    perm_word,
    place_word,
    queue_word,
    share,
    span,
    span_word,
)


@pytest.mark.parametrize(
    ("ms", "words"),
    [
        (None, "unknown"),
        (0, "0 s"),
        (850, "850 ms"),
        (1_999, "1 s"),
        (60_000, "1 min"),
        (185_000, "3 min 5 s"),
        (3_605_000, "1 h"),
        (86_400_000 * 2 + 3_600_000 * 4, "2 d 4 h"),
    ],
)
def test_spans_are_told_in_their_two_largest_units(ms: int | None, words: str) -> None:
    assert span(ms) == words


def test_what_nobody_knows_is_called_unknown() -> None:
    assert (number(None), share(None), clock_time(None), offset(None)) == ("unknown",) * 3 + ("never there",)
    assert (number(0), number(12_000), number(0.25), share(0.42), offset(0)) == ("0", "12,000", "0.2", "42 %", "0")


def test_perms_are_words() -> None:
    assert [perm_text(perm) for perm in (6, 4, 2, 0)] == ["rw", "r", "w", "none"]
    assert [perm_word(text) for text in ("rw", "r", "w")] == [6, 4, 2]


def test_spans_and_moments_are_read() -> None:
    noon = datetime(2026, 3, 1, 12, tzinfo=UTC)

    assert [span_word(text) for text in ("5ms", "5s", "5m", "5 min", "5h", "5d")] == [
        *(5, 5_000, 300_000, 300_000, 18_000_000, 432_000_000)
    ]
    assert (moment_word("2h"), moment_word("2026-03-01T12:00+00:00")) == (timedelta(hours=2), noon)
    assert (place_word("earliest"), place_word("latest"), place_word("1s")) == (
        *("earliest", "latest"),
        timedelta(seconds=1),
    )
    assert (moment_ms(timedelta(seconds=1), 5_000), moment_ms(noon, 0)) == (4_000, 1_772_366_400_000)


def test_queues_and_pairs_are_read() -> None:
    assert (queue_word("broker-a:3"), queue_word("a:b:0")) == (("broker-a", 3), ("a:b", 0))
    assert (pair_word("a=b"), pair_word("a=b=c"), pair_word("a=")) == (("a", "b"), ("a", "b=c"), ("a", ""))


@pytest.mark.parametrize("text", ["", "x", "=", ":", "-1h", "1", "broker:x"])
def test_what_is_none_of_them_is_refused(text: str) -> None:
    for read in (perm_word, span_word, moment_word, place_word, queue_word, pair_word):
        with pytest.raises(click.BadParameter):
            read(text)


@pytest.mark.parametrize("text", ["0001-01-01", "99999999999999999999d", "1000000000d", "2026-13-45"])
def test_a_moment_that_no_clock_shows_is_refused(text: str) -> None:
    for read in (moment_word, place_word):
        with pytest.raises(click.BadParameter, match="is no moment"):
            read(text)

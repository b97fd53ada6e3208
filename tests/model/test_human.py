"""Numbers, durations, times, sizes, permissions and queues, as people read and write them."""

from datetime import UTC, datetime, timedelta

import pytest

from pocketmq.errors import UsageError
from pocketmq.model import human


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (None, "unknown"),
        (0, "0 s"),
        (5, "5 ms"),
        (850, "850 ms"),
        (1_999, "1 s"),
        (60_000, "1 min"),
        (185_000, "3 min 5 s"),
        (3_605_000, "1 h"),
        (3_600_000 * 5 + 60_000, "5 h 1 min"),
        (86_400_000 * 2, "2 d"),
        (86_400_000 * 2 + 3_600_000 * 4, "2 d 4 h"),
    ],
)
def test_a_duration_has_its_two_largest_units(ms: int | None, text: str) -> None:
    assert human.duration(ms) == text


def test_unknown_values_are_shown_as_unknown() -> None:
    for text in (human.number, human.short_number, human.percent, human.size, human.local_time, human.short_local_time):
        assert text(None) == "unknown"
    assert human.offset(None) == "none"


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (999, "999"), (1_000, "1 k"), (12_345, "12.3 k"), (3e6, "3 M"), (0.25, "0.2"), (7.0, "7")],
)
def test_large_numbers_are_short(value: float, text: str) -> None:
    assert human.short_number(value) == text


def test_numbers_have_separators_and_sizes_have_units() -> None:
    assert [human.number(value) for value in (0, 12_000, 0.25, 2.0)] == ["0", "12,000", "0.2", "2"]
    assert (human.percent(0.42), human.offset(0), human.offset(12_000)) == ("42 %", "0", "12,000")
    assert (human.size(12), human.size(1536), human.size(5 * 2**50)) == ("12 B", "1.5 KiB", "5,120 TiB")
    assert (human.count(1, "queue"), human.count(2_000, "queue")) == ("1 queue", "2,000 queues")


def test_times_are_local_and_one_that_no_calendar_has_is_a_number() -> None:
    noon_ms = int(datetime(2026, 3, 1, 12).timestamp() * 1000)

    assert human.local_time(noon_ms + 7).startswith("2026-03-01T12:00:00.007")
    assert human.short_local_time(noon_ms + 7) == "2026-03-01 12:00:00"
    assert human.local_time(10**18) == f"{10**18} ms"


def test_permissions_are_written_and_read() -> None:
    assert [human.perm_text(perm) for perm in (6, 4, 2, 0)] == ["rw", "r", "w", "none"]
    assert [human.parse_perm(text) for text in ("rw", "r", "w")] == [6, 4, 2]


def test_durations_and_times_are_read() -> None:
    noon = datetime(2026, 3, 1, 12, tzinfo=UTC)

    assert [human.parse_duration_ms(text) for text in ("5ms", "5s", "5m", "5 min", "5h", "5d")] == [
        *(5, 5_000, 300_000, 300_000, 18_000_000, 432_000_000)
    ]
    assert (human.parse_time("2h"), human.parse_time("2026-03-01T12:00+00:00")) == (timedelta(hours=2), noon)
    assert [human.parse_start(text) for text in ("earliest", "latest", "1s")] == [
        *("earliest", "latest", timedelta(seconds=1))
    ]
    assert (human.time_ms(timedelta(seconds=1), 5_000), human.time_ms(noon, 0)) == (4_000, 1_772_366_400_000)


def test_queues_and_pairs_are_read() -> None:
    assert (human.parse_queue("broker-a:3"), human.parse_queue("a:b:0")) == (("broker-a", 3), ("a:b", 0))
    assert [human.parse_pair(text) for text in ("a=b", "a=b=c", "a=")] == [("a", "b"), ("a", "b=c"), ("a", "")]


@pytest.mark.parametrize("text", ["", "x", "=", ":", "-1h", "broker:x"])
def test_text_of_another_form_is_refused(text: str) -> None:
    for parse in (
        human.parse_perm,
        human.parse_duration_ms,
        human.parse_size,
        human.parse_time,
        human.parse_start,
        human.parse_queue,
        human.parse_pair,
        human.parse_whole,
    ):
        with pytest.raises(UsageError, match="is not"):
            parse(text)


def test_a_duration_needs_its_unit() -> None:
    for parse in (human.parse_duration_ms, human.parse_time, human.parse_start):
        with pytest.raises(UsageError, match="is not"):
            parse("1")


@pytest.mark.parametrize("text", ["-1", "1.5", "٣", "11", "0", "9" * 40])
def test_a_whole_number_has_limits(text: str) -> None:
    with pytest.raises(UsageError, match="is not a whole number from 1 to 10"):
        human.parse_whole(text, least=1, most=10)


@pytest.mark.parametrize("text", ["0001-01-01", "99999999999999999999d", "1000000000d", "2026-13-45"])
def test_a_time_that_no_calendar_has_is_refused(text: str) -> None:
    for parse in (human.parse_time, human.parse_start):
        with pytest.raises(UsageError, match="is not a time"):
            parse(text)

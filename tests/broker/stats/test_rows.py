"""Rows of statistics: how many there may be, and when they are forgotten."""

import logging

import pytest

from pocketmq.broker.stats.rows import DAY, HOUR, MINUTE, Rows, Timeline
from pocketmq.errors import InvalidSetting


@pytest.fixture
def timeline() -> Timeline:
    return Timeline(0.0)


def pass_samples(timeline: Timeline, rows: Rows, samples: int) -> None:
    for _ in range(samples):
        timeline.advance(timeline.at + 10)
        rows.sample()


def test_the_same_key_has_the_same_tally(timeline: Timeline) -> None:
    rows = Rows("topics", 10, timeline)

    rows.get("T").count += 1
    rows.get("T").count += 1
    rows.get("U").count += 5

    pass_samples(timeline, rows, 1)
    grown = rows.growth(("T",), MINUTE)
    assert grown is not None
    assert grown.messages == 2
    assert rows.growth(("V",), MINUTE) is None
    assert rows.total().messages == 7


def test_beyond_the_limit_a_row_counts_in_the_total_only(timeline: Timeline, caplog: pytest.LogCaptureFixture) -> None:
    rows = Rows("topics", 2, timeline)
    with caplog.at_level(logging.WARNING, "pocketmq.broker"):
        for topic in "TUVW":
            rows.get(topic).count += 1

    assert len(rows) == 2
    assert ("V",) not in rows
    assert rows.total().messages == 4
    assert caplog.text.count("further rows only count in the totals") == 1


def test_a_table_with_a_limit_of_zero_is_refused(timeline: Timeline) -> None:
    with pytest.raises(InvalidSetting, match="at least 1"):
        Rows("topics", 0, timeline)


def test_a_row_without_messages_for_a_day_is_removed_but_stays_in_the_total(timeline: Timeline) -> None:
    rows = Rows("topics", 10, timeline)
    rows.get("T").count += 3
    pass_samples(timeline, rows, 1)

    pass_samples(timeline, rows, DAY.samples - 1)
    assert len(rows) == 1
    pass_samples(timeline, rows, HOUR.step)

    assert len(rows) == 0
    assert rows.total().messages == 3


def test_a_row_whose_tally_is_in_use_is_kept(timeline: Timeline) -> None:
    rows = Rows("topics", 10, timeline)
    tally = rows.get("T")
    tally.count += 3

    pass_samples(timeline, rows, 2 * DAY.samples)
    tally.count += 4
    pass_samples(timeline, rows, 1)

    assert rows.get("T") is tally
    grown = rows.growth(("T",), MINUTE)
    assert grown is not None
    assert grown.messages == 4
    assert rows.total().messages == 7


def test_a_deleted_row_is_removed_at_once_and_stays_in_the_total(timeline: Timeline) -> None:
    rows = Rows("groups in topics", 10, timeline)
    for topic, group in (("T", "g"), ("T", "h"), ("U", "g")):
        rows.get(topic, group).count += 1

    rows.forget(0, "T")
    assert ("T", "g") not in rows
    assert ("U", "g") in rows
    rows.forget(1, "g")

    assert len(rows) == 0
    assert rows.total().messages == 3

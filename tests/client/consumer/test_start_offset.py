"""Start offsets: every case of the table."""

import os
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from pocketmq.client.consumer.first_offsets import (
    Start,
    StartPosition,
    has_begun,
    parse_timestamp,
    start_of,
    start_time_ms,
)
from pocketmq.errors import InvalidSetting
from pocketmq.protocol.bodies.clients import ConsumeFromWhere

FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
LAST = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
TIMESTAMP = ConsumeFromWhere.CONSUME_FROM_TIMESTAMP
OLD_WORDS = [
    ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST,
    ConsumeFromWhere.CONSUME_FROM_MIN_OFFSET,
    ConsumeFromWhere.CONSUME_FROM_MAX_OFFSET,
]


@pytest.mark.parametrize("from_where", list(ConsumeFromWhere))
@pytest.mark.parametrize("offset", [0, 1, 12345])
@pytest.mark.parametrize(("is_retry", "is_later"), [(False, False), (True, False), (False, True), (True, True)])
def test_a_stored_offset_is_always_used(
    from_where: ConsumeFromWhere, offset: int, is_retry: bool, is_later: bool
) -> None:
    start = start_of(offset, from_where, is_retry=is_retry, is_later=is_later)

    assert start == Start(StartPosition.STORED, "the group has a committed offset", offset)


@pytest.mark.parametrize(
    ("from_where", "position"),
    [(FIRST, StartPosition.MIN), (LAST, StartPosition.MAX), (TIMESTAMP, StartPosition.BY_TIME)]
    + [(from_where, StartPosition.MAX) for from_where in OLD_WORDS],
)
@pytest.mark.parametrize("stored", [None, -1])
def test_a_new_group_starts_at_its_start_position(
    from_where: ConsumeFromWhere, position: StartPosition, stored: int | None
) -> None:
    start = start_of(stored, from_where, is_retry=False, is_later=False)

    assert (start.position, start.offset) == (position, None)


@pytest.mark.parametrize("from_where", list(ConsumeFromWhere))
def test_a_queue_that_appears_after_the_group_is_read_from_its_minimum(from_where: ConsumeFromWhere) -> None:
    start = start_of(None, from_where, is_retry=False, is_later=True)

    assert start.position is StartPosition.MIN
    assert "younger than the group" in start.reason


@pytest.mark.parametrize("from_where", list(ConsumeFromWhere))
@pytest.mark.parametrize("is_later", [False, True])
def test_retries_are_never_skipped(from_where: ConsumeFromWhere, is_later: bool) -> None:
    start = start_of(None, from_where, is_retry=True, is_later=is_later)

    assert start.position is StartPosition.MIN
    assert "retries" in start.reason


@pytest.mark.parametrize(
    ("stored", "expected"),
    [([], False), ([None, None], False), ([None, 0], False), ([-1, None], False), ([None, 1], True), ([7, 9], True)],
)
def test_a_group_with_an_offset_above_0_has_started_reading_its_topic(stored: list[int | None], expected: bool) -> None:
    assert has_begun(stored) is expected


@pytest.fixture
def in_shanghai(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(os.environ, "TZ", "Asia/Shanghai")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("in_shanghai")
def test_a_timestamp_is_local_time_as_java_reads_it() -> None:
    assert parse_timestamp("20240131235959") == int(datetime(2024, 1, 31, 15, 59, 59, tzinfo=UTC).timestamp() * 1000)


@pytest.mark.parametrize(
    "text", ["", "2024", "20241331235959", "2024013123595", "202401312359590", "2024-01-31T23:59", "²0240131235959"]
)
def test_a_timestamp_of_another_form_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(InvalidSetting, match="20240131235959"):
        parse_timestamp(text)


def test_a_consume_timestamp_has_five_forms() -> None:
    now_ms = 1_700_000_000_000
    moment = datetime(2023, 11, 14, 22, 0, tzinfo=UTC)

    assert start_time_ms(None, now_ms) == now_ms - 30 * 60 * 1000
    assert start_time_ms(1_600_000_000_000, now_ms) == 1_600_000_000_000
    assert start_time_ms(timedelta(hours=1), now_ms) == now_ms - 3_600_000
    assert start_time_ms(moment, now_ms) == 1_699_999_200_000
    assert start_time_ms("20231114220000", now_ms) == parse_timestamp("20231114220000")


def test_an_impossible_time_is_refused() -> None:
    with pytest.raises(InvalidSetting, match="0001-01-01"):
        start_time_ms(datetime(1, 1, 1), 0)

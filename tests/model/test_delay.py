"""The level table."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.errors import InvalidSetting
from pocketmq.model.delay import DELAY_LEVELS, DelayLevels, queue_of_level

SECONDS = [1, 5, 10, 30, *(60 * minutes for minutes in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 30)), 3600, 7200]


def test_the_18_levels_of_rocketmq() -> None:
    assert len(DELAY_LEVELS) == 18
    assert [DELAY_LEVELS.ms(level) // 1000 for level in range(1, 19)] == SECONDS


@pytest.mark.parametrize(("level", "clamped"), [(18, 18), (19, 18), (1000, 18), (1, 1), (0, 0), (-1, -1)])
def test_a_level_beyond_the_table_means_the_longest(level: int, clamped: int) -> None:
    assert DELAY_LEVELS.clamp(level) == clamped


@pytest.mark.parametrize("level", [0, -1])
def test_a_level_that_is_not_positive_means_no_delay(level: int) -> None:
    assert DELAY_LEVELS.ms(level) == 0
    assert DELAY_LEVELS.due_ms(level, 1000) == 1000


@given(st.integers(1, 100), st.integers(0, 2**41))
def test_a_delayed_message_is_due_after_the_time_of_its_level(level: int, store_ms: int) -> None:
    assert DELAY_LEVELS.due_ms(level, store_ms) == store_ms + SECONDS[min(level, 18) - 1] * 1000


def test_a_table_may_use_every_unit() -> None:
    levels = DelayLevels("2s 3m  1h\t1d")

    assert [levels.ms(level) for level in range(1, 5)] == [2_000, 180_000, 3_600_000, 86_400_000]


@pytest.mark.parametrize("word", ["1", "s", "1x", "-1s", "1.5s", "1S", "1ss"])
def test_an_invalid_level_is_refused_by_name(word: str) -> None:
    with pytest.raises(InvalidSetting, match=repr(word)):
        DelayLevels(f"1s {word}")


@pytest.mark.parametrize("text", ["", "   "])
def test_an_empty_table_is_refused(text: str) -> None:
    with pytest.raises(InvalidSetting, match="empty"):
        DelayLevels(text)


def test_each_level_waits_in_its_own_queue() -> None:
    assert [queue_of_level(level) for level in (1, 3, 18)] == [0, 2, 17]

"""When a failed message is tried again, and when it is dead: at the limit, below it and above it."""

import pytest

from pocketmq.model.delay import DELAY_LEVELS
from pocketmq.model.retries import (
    DEAD_LETTER_LEVEL,
    FIRST_RETRY_LEVEL,
    MAX_RECONSUME_TIMES,
    UNLIMITED,
    max_attempts,
    resent_is_dead,
    retry_level,
    sent_back_is_dead,
)


def test_the_first_retry_waits_10_seconds_and_the_last_two_hours() -> None:
    waits_ms = [DELAY_LEVELS.ms(retry_level(0, times)) for times in range(MAX_RECONSUME_TIMES)]

    assert FIRST_RETRY_LEVEL == 3
    assert waits_ms[0] == 10_000
    assert waits_ms[-1] == 7_200_000
    assert waits_ms == sorted(waits_ms)


@pytest.mark.parametrize(
    ("delay_level", "times", "expected"), [(0, 0, 3), (0, 1, 4), (0, 15, 18), (5, 0, 5), (5, 9, 5), (1, 2, 1)]
)
def test_a_level_chosen_by_the_client_is_used(delay_level: int, times: int, expected: int) -> None:
    assert retry_level(delay_level, times) == expected


@pytest.mark.parametrize(("times", "is_dead"), [(0, False), (15, False), (16, True), (17, True)])
def test_a_message_sent_back_is_a_dead_letter_when_its_stored_count_reached_the_limit(
    times: int, *, is_dead: bool
) -> None:
    assert sent_back_is_dead(0, times, MAX_RECONSUME_TIMES) is is_dead


@pytest.mark.parametrize("times", [0, 3, 16])
def test_a_listener_that_gives_up_makes_a_dead_letter_at_once(times: int) -> None:
    assert sent_back_is_dead(DEAD_LETTER_LEVEL, times, MAX_RECONSUME_TIMES)


@pytest.mark.parametrize(("times", "is_dead"), [(1, False), (15, False), (16, False), (17, True)])
def test_a_message_resent_by_its_client_becomes_a_dead_letter_above_the_limit(times: int, *, is_dead: bool) -> None:
    assert resent_is_dead(times, MAX_RECONSUME_TIMES, group_holds_locks=False) is is_dead


def test_both_ways_of_retrying_allow_the_same_number_of_attempts() -> None:
    for stored in range(20):
        resent = resent_is_dead(stored + 1, MAX_RECONSUME_TIMES, group_holds_locks=False)

        assert sent_back_is_dead(0, stored, MAX_RECONSUME_TIMES) is resent


def test_a_group_that_holds_order_locks_resends_only_to_give_up() -> None:
    assert resent_is_dead(0, UNLIMITED, group_holds_locks=True)


@pytest.mark.parametrize(
    ("client_max", "counts", "expected"),
    [(None, True, 16), (None, False, 16), (3, True, 3), (3, False, 16), (0, True, 0)],
)
def test_the_limit_sent_by_the_client_applies(client_max: int | None, counts: bool, expected: int) -> None:
    assert max_attempts(client_max, MAX_RECONSUME_TIMES, client_max_counts=counts) == expected


def test_a_limit_of_0_makes_the_first_failure_final() -> None:
    assert sent_back_is_dead(0, 0, 0)
    assert resent_is_dead(1, 0, group_holds_locks=False)


def test_an_orderly_consumer_without_a_limit_never_gives_up() -> None:
    assert not sent_back_is_dead(0, UNLIMITED - 1, UNLIMITED)

"""The first message of a time is found for any answers of a broker, and at once if they are correct."""

from bisect import bisect_left
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.model.queue import MessageQueue
from pocketmq.spark.broker_facts import Bounds
from pocketmq.spark.read.metadata import first_at
from pocketmq.spark.read.offsets import QueueOffsets

Q, R = (MessageQueue("orders", "broker-a", number) for number in range(2))
times = st.lists(st.integers(0, 9), max_size=40).map(sorted)


class Held:
    """Queues that begin at `low`, with the times of their messages. Counts its queries."""

    def __init__(self, low: int, **stored: list[int]) -> None:
        self._low = low
        self._stored = {queue: stored[name] for queue, name in ((Q, "q"), (R, "r")) if name in stored}
        self.bounds = {queue: Bounds(low, low + len(ms)) for queue, ms in self._stored.items()}
        self.looks = 0

    def stored(self, places: QueueOffsets) -> Mapping[MessageQueue, int]:
        self.looks += 1
        return {queue: self._stored[queue][place - self._low] for queue, place in places.items()}

    def first(self, queue: MessageQueue, ms: int) -> int:
        return self._low + bisect_left(self._stored[queue], ms)


@given(st.integers(0, 100), times, times, st.integers(-1, 11), st.integers(-1, 11), st.integers(-5, 150))
def test_any_first_guess_finds_the_first_message_of_a_time(
    low: int, first: list[int], second: list[int], ms: int, other_ms: int, guess: int
) -> None:
    held = Held(low, q=first, r=second)

    found = first_at({Q: ms, R: other_ms}, {Q: guess, R: low}, held.bounds, held.stored)

    assert found == {Q: held.first(Q, ms), R: held.first(R, other_ms)}


@given(st.integers(0, 100), times, st.integers(-1, 11))
def test_a_correct_guess_needs_at_most_two_checks(low: int, stored: list[int], ms: int) -> None:
    held = Held(low, q=stored)

    first_at({Q: ms}, {Q: held.first(Q, ms)}, held.bounds, held.stored)

    assert held.looks <= 2


@pytest.mark.parametrize(("ms", "guess", "first"), [(5, 6, 4), (3, 3, 4), (1, 3, 0), (9, 7, 8)])
def test_inexact_searches_by_time_of_rocketmq_4_9_are_corrected(ms: int, guess: int, first: int) -> None:
    held = Held(0, q=[1, 1, 1, 1, 5, 5, 5, 5])

    assert first_at({Q: ms}, {Q: guess}, held.bounds, held.stored) == {Q: first}


def test_messages_deleted_during_the_search_are_not_the_first() -> None:
    held = Held(0, q=[1, 1, 5, 5, 5, 5])

    def without_the_oldest(places: QueueOffsets) -> Mapping[MessageQueue, int]:
        return {queue: ms for queue, ms in held.stored(places).items() if places[queue] >= 4}

    assert first_at({Q: 5}, {Q: 5}, held.bounds, without_the_oldest) == {Q: 4}

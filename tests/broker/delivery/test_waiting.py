"""Waiting messages: their order, and the position of the oldest."""

import sys

from hypothesis import given
from hypothesis import strategies as st

from pocketmq.broker.delivery.timer_progress import RANGE_BITS, WaitingTimers

STRETCH = 1 << RANGE_BITS


def waiting_with(*messages: tuple[int, int]) -> WaitingTimers:
    waiting = WaitingTimers()
    for message in messages:
        waiting.add(*message)
    return waiting


def test_messages_are_ordered_by_time_and_then_by_position() -> None:
    waiting = waiting_with((2000, 1), (1000, 2), (2000, 3), (1000, 4))

    taken = []
    while len(waiting):
        taken.append((waiting.next_ms, list(waiting.next_offsets(2))))
        waiting.remove(1)

    assert taken == [(1000, [2, 4]), (1000, [4]), (2000, [1, 3]), (2000, [3])]
    assert waiting.next_ms is None
    assert list(waiting.next_offsets(9)) == []


def test_a_partly_taken_time_accepts_more_and_waits_for_an_earlier_one() -> None:
    waiting = waiting_with((2000, 1), (2000, 2))
    waiting.remove(1)

    waiting.add(2000, 3)
    waiting.add(1000, 4)

    assert list(waiting.next_offsets(9)) == [4]
    waiting.remove(1)
    assert list(waiting.next_offsets(9)) == [2, 3]


def test_the_oldest_is_known_within_a_range() -> None:
    waiting = waiting_with((9000, 5), (1000, STRETCH + 5), (8000, 3 * STRETCH + 7))
    assert waiting.oldest == 0

    waiting.remove(1)
    assert waiting.oldest == 0
    waiting.remove(1)
    assert waiting.oldest == 0
    waiting.remove(1)
    assert waiting.oldest is None


def test_a_rolled_message_is_found_by_its_offset_and_counted_once() -> None:
    waiting = waiting_with((1000, 5), (2000, 10), (3000, 20))

    waiting.roll(5)
    waiting.roll(10)
    assert waiting.forget_before(15) == 0

    assert (len(waiting), waiting.oldest) == (1, 15)
    assert [waiting.is_rolled(at) for at in (5, 10, 20)] == [True, True, False]
    waiting.remove(1)
    waiting.remove(1)
    assert len(waiting) == 1
    waiting.remove(1)
    assert (len(waiting), waiting.oldest) == (0, None)


def test_forgetting_returns_the_number_of_lost_messages() -> None:
    waiting = waiting_with((1000, 5), (2000, 10), (3000, STRETCH + 20))

    waiting.roll(5)

    assert waiting.forget_before(STRETCH) == 1
    assert len(waiting) == 1


def test_a_waiting_message_takes_about_ten_bytes() -> None:
    waiting = WaitingTimers()
    for number in range(100_000):
        waiting.add(1000 * (number % 100), number)

    arrays = sum(sys.getsizeof(offsets) for offsets in waiting._by_time.values())
    assert arrays < 100_000 * 10


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, STRETCH)), max_size=50), st.data())
def test_the_waiting_messages_are_a_sorted_list(messages: list[tuple[int, int]], data: st.DataObject) -> None:
    waiting, model, at = WaitingTimers(), [], 0
    for out_ms, gap in messages:
        at += gap
        waiting.add(out_ms, at)
        model.append((out_ms, at))
        if data.draw(st.booleans()):
            model.sort()
            count = data.draw(st.integers(1, 3))
            same = [entry for entry in model if entry[0] == model[0][0]][:count]
            assert list(waiting.next_offsets(count)) == [offset for _, offset in same]
            waiting.remove(len(same))
            model = model[len(same) :]
        assert len(waiting) == len(model)
        oldest = min((offset for _, offset in model), default=None)
        assert (waiting.oldest is None) == (oldest is None)
        if oldest is not None:
            assert waiting.oldest is not None
            assert oldest - STRETCH < waiting.oldest <= oldest

"""Tallies: what is counted, and that it is cheap."""

from pocketmq.broker.stats import Tally


def test_calls_are_told_from_messages_that_came_along() -> None:
    tally = Tally()

    tally.count += 1
    tally.count += 5
    tally.joined += 4

    assert (tally.count, tally.calls) == (6, 2)


def test_what_another_one_counted_can_be_added() -> None:
    tally, other = Tally(), Tally()
    tally.count, tally.bytes = 1, 10
    other.count, other.bytes, other.joined, other.ms = 3, 30, 2, 1.5

    tally.add(other)

    assert (tally.count, tally.bytes, tally.calls, tally.ms) == (4, 40, 2, 1.5)


def test_a_tally_has_no_room_for_anything_else() -> None:
    assert not hasattr(Tally(), "__dict__")

"""Tallies: what they count, and that counting is cheap."""

from pocketmq.broker.stats import Tally


def test_calls_and_their_messages_are_counted_separately() -> None:
    tally = Tally()

    tally.count += 1
    tally.count += 5
    tally.joined += 4

    assert (tally.count, tally.calls) == (6, 2)


def test_tallies_can_be_added() -> None:
    tally, other = Tally(), Tally()
    tally.count, tally.bytes = 1, 10
    other.count, other.bytes, other.joined, other.ms = 3, 30, 2, 1.5

    tally.add(other)

    assert (tally.count, tally.bytes, tally.calls, tally.ms) == (4, 40, 2, 1.5)


def test_a_tally_accepts_no_other_attributes() -> None:
    assert not hasattr(Tally(), "__dict__")

"""Subscriptions that pulls carried are remembered for a while."""

import pytest

from pocketmq.broker.reads.filters import EXPIRY_SECONDS, RequestSubscriptions
from pocketmq.model.subscription import Subscription

ALL = Subscription("T")
SOME = Subscription.parse("T", "a || b")


def test_the_last_one_that_was_carried_is_found() -> None:
    carried = RequestSubscriptions()

    carried.note("g", ALL, 0)
    carried.note("g", SOME, 1)

    assert carried.find("g", "T") == SOME
    assert carried.find("g", "U") is None
    assert carried.find("h", "T") is None
    assert len(carried) == 1


@pytest.mark.parametrize(("passed", "found"), [(599.999, SOME), (600.0, SOME), (600.001, None)])
def test_what_nobody_carries_any_more_is_forgotten(passed: float, found: Subscription | None) -> None:
    carried = RequestSubscriptions()
    carried.note("g", ALL, 0)
    carried.note("h", ALL, 1)
    carried.note("g", SOME, 10)

    carried.expire(10 + passed)

    assert carried.find("g", "T") == found
    assert carried.find("h", "T") is (ALL if passed < EXPIRY_SECONDS - 9 else None)


def test_of_too_many_the_oldest_is_forgotten() -> None:
    carried = RequestSubscriptions(max_carried=2)

    for group in ("a", "b", "a", "c"):
        carried.note(group, ALL, 0)

    assert [group for group in "abc" if carried.find(group, "T")] == ["a", "c"]
    assert len(carried) == 2

"""Subscriptions that pulls carried are remembered for a while."""

import pytest

from pocketmq.broker.reads.filters import EXPIRY_SECONDS, RequestSubscriptions
from pocketmq.model.subscription import Subscription

ALL = Subscription("T")
SOME = Subscription.parse("T", "a || b")


def test_the_last_subscription_of_pulls_is_found() -> None:
    subscriptions = RequestSubscriptions()

    subscriptions.record("g", ALL, 0)
    subscriptions.record("g", SOME, 1)

    assert subscriptions.find("g", "T") == SOME
    assert subscriptions.find("g", "U") is None
    assert subscriptions.find("h", "T") is None
    assert len(subscriptions) == 1


@pytest.mark.parametrize(("passed", "found"), [(599.999, SOME), (600.0, SOME), (600.001, None)])
def test_a_subscription_that_pulls_no_longer_contain_is_removed(passed: float, found: Subscription | None) -> None:
    subscriptions = RequestSubscriptions()
    subscriptions.record("g", ALL, 0)
    subscriptions.record("h", ALL, 1)
    subscriptions.record("g", SOME, 10)

    subscriptions.expire(10 + passed)

    assert subscriptions.find("g", "T") == found
    assert subscriptions.find("h", "T") is (ALL if passed < EXPIRY_SECONDS - 9 else None)


def test_above_the_limit_the_oldest_is_removed() -> None:
    subscriptions = RequestSubscriptions(max_subscriptions=2)

    for group in ("a", "b", "a", "c"):
        subscriptions.record(group, ALL, 0)

    assert [group for group in "abc" if subscriptions.find(group, "T")] == ["a", "c"]
    assert len(subscriptions) == 2

"""Rates: how many a second."""

from pocketmq.broker.delivery.timers import Rate


def test_a_rate_is_over_the_last_ten_seconds() -> None:
    rate = Rate()
    assert rate.per_second(100.0) == 0.0

    for second in range(1, 21):
        rate.count += 5
        rate.tick(100.0 + second)
    assert rate.per_second(120.0) == 5.0

    for second in range(21, 32):
        rate.tick(100.0 + second)
    assert rate.per_second(131.0) == 0.0


def test_frequent_queries_keep_few_samples() -> None:
    rate = Rate()

    for look in range(10_000):
        rate.tick(look / 100)

    assert len(rate._marks) <= 12

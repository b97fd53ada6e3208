"""Statistics of consumption: rates of the last minute, failures of the last hour."""

from pocketmq.client.consumer.consume_stats import SAMPLE_S, ConsumeStats
from pocketmq.protocol.bodies.clients import ConsumeStatus


def test_rates_are_those_of_the_last_minute() -> None:
    stats = ConsumeStats(now=0.0)
    for tick in range(1, 13):
        stats.record_pull("T", 30, 0.003)
        stats.record_consumed("T", 20, 10, 0.6)
        stats.sample(tick * SAMPLE_S)

    status = stats.status("T", 120.0)

    assert (status.pull_rt, status.pull_tps) == (3.0, 3.0)
    assert round(status.consume_rt, 6) == 20.0
    assert (status.consume_ok_tps, status.consume_failed_tps, status.consume_failed_msgs) == (2.0, 1.0, 120)


def test_before_the_first_sample_everything_counts_since_the_start() -> None:
    stats = ConsumeStats(now=100.0)
    stats.record_consumed("T", 5, 1, 0.3)

    status = stats.status("T", 105.0)

    assert (status.consume_ok_tps, status.consume_failed_msgs, round(status.consume_rt)) == (1.0, 1, 50)
    assert stats.status("T", 105.0) == status, "to be asked changes nothing"


def test_empty_pulls_do_not_count_as_slow() -> None:
    stats = ConsumeStats(now=0.0)
    stats.record_pull("T", 0, 15.0)
    stats.record_pull("T", 10, 0.002)

    assert stats.status("T", 10.0).pull_rt == 2.0


def test_failures_older_than_an_hour_are_removed() -> None:
    stats = ConsumeStats(now=0.0)
    stats.record_consumed("T", 0, 9, 0.1)
    for tick in range(1, 400):
        stats.sample(tick * SAMPLE_S)

    assert stats.status("T", 4000.0).consume_failed_msgs == 0


def test_a_topic_without_pulls_has_no_numbers() -> None:
    stats = ConsumeStats(now=0.0)
    stats.record_consumed("T", 1, 0, 0.1)
    stats.forget("T")

    assert stats.status("T", 1.0) == ConsumeStatus()

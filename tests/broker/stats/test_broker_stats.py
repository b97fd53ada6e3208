"""All statistics of a broker, by the names that RocketMQ's tools use."""

import json

import pytest
from tests.golden import captured, needs_golden

from pocketmq.broker.stats import BrokerStats, Tally
from pocketmq.codes import RequestCode
from pocketmq.protocol.bodies.topics import BrokerStatsData, BrokerStatsItem
from pocketmq.testing.fake_clock import START_MS

CLUSTER = "DefaultCluster"


class Sampled(BrokerStats):
    """Statistics that are sampled every ten seconds of a time that passes by hand."""

    def __init__(self, max_rows: int = 100) -> None:
        super().__init__(CLUSTER, 0.0, START_MS, max_rows=max_rows)
        self.now = 0.0

    def pass_samples(self, samples: int = 1, stored: int = 0) -> None:
        for _ in range(samples):
            self.now += 10
            self.sample(self.now, START_MS + int(self.now * 1000), stored)

    def minute(self, name: str, key: str) -> BrokerStatsItem:
        found = self.view(name, key)
        assert found is not None
        return found.stats_minute


@pytest.fixture
def stats() -> Sampled:
    return Sampled()


def count(tally: Tally, messages: int, size: int = 100) -> None:
    """One call with this number of messages of this size."""
    tally.count += messages
    tally.bytes += messages * size
    tally.joined += messages - 1


def test_messages_sent_to_a_topic_appear_after_the_next_sample(stats: Sampled) -> None:
    for _ in range(5):
        count(stats.sent("T"), 1)
    assert stats.minute("TOPIC_PUT_NUMS", "T") == BrokerStatsItem()

    stats.pass_samples(2)

    assert stats.minute("TOPIC_PUT_NUMS", "T") == BrokerStatsItem(5, 0.25, 1.0)
    assert stats.minute("TOPIC_PUT_SIZE", "T") == BrokerStatsItem(500, 25.0, 100.0)
    assert stats.put_tps("T") == 0.25
    assert stats.put_tps("no message was sent to it") == 0.0


def test_messages_pulled_by_a_group_are_found_by_topic_and_group(stats: Sampled) -> None:
    tally = stats.pulled("g", "T")
    count(tally, 4)
    count(tally, 4)
    tally.ms += 3.0

    stats.pass_samples()

    assert stats.minute("GROUP_GET_NUMS", "T@g") == BrokerStatsItem(8, 0.8, 4.0)
    assert stats.minute("GROUP_GET_SIZE", "T@g") == BrokerStatsItem(800, 80.0, 400.0)
    assert stats.minute("GROUP_GET_LATENCY", "0@T@g") == BrokerStatsItem(3, 0.3, 1.5)
    assert stats.get_tps("g", "T") == 0.8


def test_messages_sent_back_are_counted_separately(stats: Sampled) -> None:
    count(stats.sent_back("g", "T"), 1)

    stats.pass_samples()

    assert stats.minute("SNDBCK_PUT_NUMS", "T@g").sum == 1
    assert stats.view("GROUP_GET_NUMS", "T@g") is None


def test_the_broker_has_sums_with_and_without_system_topics_and_groups(stats: Sampled) -> None:
    for topic, messages in (("T", 3), ("U", 4), ("RMQ_SYS_TRACE_TOPIC", 100)):
        count(stats.sent(topic), messages)
    for group, topic, messages in (("g", "T", 2), ("TOOLS_CONSUMER", "T", 50), ("g", "SCHEDULE_TOPIC_XXXX", 60)):
        count(stats.pulled(group, topic), messages)

    stats.pass_samples()

    assert stats.minute("BROKER_PUT_NUMS", CLUSTER).sum == 107
    assert stats.minute("BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC", CLUSTER).sum == 7
    assert stats.minute("BROKER_GET_NUMS", CLUSTER).sum == 112
    assert stats.minute("BROKER_GET_NUMS_WITHOUT_SYSTEM_TOPIC", CLUSTER).sum == 2
    assert (stats.put_total, stats.get_total) == (7, 2)
    assert stats.view("BROKER_PUT_NUMS", "another") is None


def test_rates_cover_everything_that_was_stored_and_pulled(stats: Sampled) -> None:
    count(stats.pulled("g", "T"), 30)
    count(stats.pulled("g", "SCHEDULE_TOPIC_XXXX"), 10)
    stats.missed += 5

    stats.pass_samples(stored=500)

    assert stats.rates()[0] == (50.0, 4.0, 0.2, 0.5)


@pytest.mark.parametrize(
    ("name", "key"),
    [("TOPIC_PUT_NUMS", "nobody"), ("NO_SUCH_STATS", "T"), ("GROUP_GET_NUMS", "T"), ("GROUP_GET_NUMS", ""), ("", "")],
)
def test_a_statistic_without_samples_does_not_exist(stats: Sampled, name: str, key: str) -> None:
    stats.sent("T")

    assert stats.view(name, key) is None


def test_a_deleted_topic_is_removed_and_remains_in_the_total(stats: Sampled) -> None:
    count(stats.sent("T"), 3)
    count(stats.pulled("g", "T"), 2)
    stats.pass_samples()

    stats.forget_topic("T")

    assert stats.view("TOPIC_PUT_NUMS", "T") is None
    assert stats.view("GROUP_GET_NUMS", "T@g") is None
    assert (stats.put_total, stats.get_total) == (3, 2)
    count(stats.sent("T"), 1)
    stats.pass_samples()
    assert stats.minute("TOPIC_PUT_NUMS", "T").sum == 1


def test_a_deleted_group_is_removed(stats: Sampled) -> None:
    count(stats.pulled("g", "T"), 2)
    count(stats.pulled("h", "T"), 2)
    count(stats.sent_back("g", "T"), 1)

    stats.forget_group("g")

    assert stats.view("GROUP_GET_NUMS", "T@g") is None
    assert stats.view("SNDBCK_PUT_NUMS", "T@g") is None
    assert stats.view("GROUP_GET_NUMS", "T@h") is not None


def test_the_number_of_rows_is_limited() -> None:
    stats = Sampled(max_rows=2)

    for topic in "TUV":
        count(stats.sent(topic), 1)
    stats.pass_samples()

    assert stats.view("TOPIC_PUT_NUMS", "V") is None
    assert stats.put_total == 3
    assert stats.minute("BROKER_PUT_NUMS", CLUSTER).sum == 3


def test_times_are_removed_after_two_minutes(stats: Sampled) -> None:
    stats.put_times.record(0.02)

    stats.pass_samples(6)
    assert "[10~50ms]:1" in stats.put_times.shown()
    stats.pass_samples(6)

    assert "[10~50ms]:0" in stats.put_times.shown()


@needs_golden
def test_an_answer_has_the_form_of_apache(stats: Sampled) -> None:
    answers = [frame.command for frame in captured("**/*.jsonl") if frame.answers == RequestCode.VIEW_BROKER_STATS_DATA]
    real = next(answer.body for answer in answers if answer.body)
    stats.sent("T")
    ours = stats.view("TOPIC_PUT_NUMS", "T")
    assert ours is not None

    assert json.loads(ours.encode()).keys() == json.loads(real).keys()
    assert BrokerStatsData.decode(real).encode() == real

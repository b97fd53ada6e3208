"""Fault strategy: queues in turn, and avoided brokers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.client.producer.fault_strategy import PROBE_SECONDS, BrokerHealth, QueueChooser, avoid_ms
from pocketmq.model.queue import MessageQueue

NOW = 1000.0


def queues_of(**brokers: int) -> list[MessageQueue]:
    return [MessageQueue("T", name, number) for name, count in brokers.items() for number in range(count)]


@pytest.mark.parametrize(
    ("latency_ms", "expected_ms"),
    [
        (0, 0),
        (49, 0),
        (50, 0),
        (100, 0),
        (549, 0),
        (550, 2_000),
        (1_799, 2_000),
        (1_800, 5_000),
        (2_999, 5_000),
        (3_000, 6_000),
        (4_999, 6_000),
        (5_000, 10_000),
        (14_999, 10_000),
        (15_000, 30_000),
        (99_999, 30_000),
    ],
)
def test_a_slow_broker_is_avoided_as_long_as_rocketmq_avoids_it(latency_ms: int, expected_ms: int) -> None:
    assert avoid_ms(latency_ms) == expected_ms


@pytest.mark.parametrize(("passed", "is_available"), [(1.999, False), (2.0, True), (2.001, True)])
def test_an_avoided_broker_is_available_again_when_its_time_is_over(passed: float, is_available: bool) -> None:
    health = BrokerHealth()

    health.record_success("a", 600, NOW)

    assert health.is_available("a", NOW + passed) is is_available
    assert health.is_reachable("a")


def test_a_failure_counts_as_a_send_of_ten_seconds() -> None:
    health = BrokerHealth()

    health.record_failure("a", NOW)

    assert not health.is_available("a", NOW + 9.999)
    assert health.is_available("a", NOW + 10)


def test_a_quick_send_does_not_end_an_avoidance_and_a_shorter_one_does_not_shorten_it() -> None:
    health = BrokerHealth()
    health.record_success("a", 20_000, NOW)

    health.record_success("a", 1, NOW + 1)
    health.record_success("a", 600, NOW + 2)

    assert not health.is_available("a", NOW + 29)
    assert health.is_available("a", NOW + 30)


def test_an_unknown_broker_is_available() -> None:
    health = BrokerHealth()
    health.record_success("a", 5, NOW)
    health.record_reachable("b")

    assert health.is_available("a", NOW)
    assert health.is_reachable("b")
    assert health.due_probes(NOW) == []


def test_an_unreachable_broker_is_probed_until_it_answers() -> None:
    health = BrokerHealth()
    health.record_failure("a", NOW, is_reachable=False)
    health.record_failure("b", NOW)

    assert health.due_probes(NOW) == ["a"]
    assert health.due_probes(NOW + PROBE_SECONDS - 0.001) == []
    assert health.due_probes(NOW + PROBE_SECONDS) == ["a"]

    health.record_reachable("a")
    assert health.is_reachable("a")
    assert health.due_probes(NOW + 60) == []


def test_a_send_that_succeeds_makes_a_broker_reachable() -> None:
    health = BrokerHealth()
    health.record_failure("a", NOW, is_reachable=False)

    health.record_success("a", 3, NOW + 1)

    assert health.is_reachable("a")


def test_brokers_without_a_route_are_removed() -> None:
    health = BrokerHealth()
    health.record_failure("a", NOW)
    health.record_failure("b", NOW)

    health.keep_only({"b", "c"})

    assert health.is_available("a", NOW)
    assert not health.is_available("b", NOW)


def test_every_topic_has_its_own_rotation() -> None:
    starts = iter([7, 1])
    chooser = QueueChooser(lambda: next(starts))
    queues = queues_of(a=2, b=1)

    first = [str(chooser.choose("T", queues, NOW)) for _ in range(4)]
    other = chooser.choose("U", queues, NOW)

    assert first == ["T@a:1", "T@b:0", "T@a:0", "T@a:1"]
    assert other == queues[1]


def test_a_removed_topic_restarts_its_rotation() -> None:
    starts = iter([0, 2])
    chooser = QueueChooser(lambda: next(starts))
    chooser.choose("T", queues_of(a=3), NOW)

    chooser.forget("T")
    chooser.forget("never there")

    assert chooser.choose("T", queues_of(a=3), NOW).queue_id == 2


def test_a_retry_uses_another_broker() -> None:
    chooser = QueueChooser(lambda: 0)
    queues = queues_of(a=4, b=1)

    assert [chooser.choose("T", queues, NOW, last_broker="a").broker_name for _ in range(3)] == ["b"] * 3
    assert chooser.choose("T", queues, NOW, last_broker="b").broker_name == "a"


def test_without_another_broker_a_retry_uses_the_next_queue() -> None:
    chooser = QueueChooser(lambda: 0)
    queues = queues_of(a=3)

    assert [chooser.choose("T", queues, NOW, last_broker="a").queue_id for _ in range(4)] == [0, 1, 2, 0]


@pytest.mark.parametrize(
    ("unavailable", "unreachable", "last_broker", "expected"),
    [
        ("", "", None, "a"),
        ("a", "", None, "b"),
        ("a", "", "b", "c"),
        ("ab", "", "c", "a"),
        ("abc", "", None, "a"),
        ("abc", "a", None, "b"),
        ("abc", "a", "b", "c"),
        ("abc", "abc", None, "a"),
        ("abc", "abc", "a", "a"),
        ("abc", "bc", "a", "a"),
    ],
)
def test_available_brokers_are_preferred_then_reachable_ones(
    unavailable: str, unreachable: str, last_broker: str | None, expected: str
) -> None:
    health = BrokerHealth()
    for broker in unavailable:
        health.record_failure(broker, NOW, is_reachable=broker not in unreachable)
    chooser = QueueChooser(lambda: 0, health)

    assert chooser.choose("T", queues_of(a=1, b=1, c=1), NOW + 1, last_broker).broker_name == expected


def test_the_rotation_continues_after_the_chosen_queue() -> None:
    health = BrokerHealth()
    health.record_failure("a", NOW)
    chooser = QueueChooser(lambda: 0, health)
    queues = queues_of(a=2, b=2)

    chosen = [str(chooser.choose("T", queues, NOW)) for _ in range(3)]

    assert chosen == ["T@b:0", "T@b:1", "T@b:0"]


@given(st.integers(1, 6), st.integers(0, 10**9), st.integers(1, 4))
def test_a_full_rotation_uses_every_queue_equally(count: int, start: int, rounds: int) -> None:
    chooser = QueueChooser(lambda: start, BrokerHealth())
    queues = queues_of(a=count, b=2)

    chosen = [chooser.choose("T", queues, NOW) for _ in range(rounds * len(queues))]

    assert all(chosen.count(queue) == rounds for queue in queues)

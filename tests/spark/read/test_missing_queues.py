"""Missing queues are reported once, with their unread messages, and again if they disappear another time."""

from pocketmq.model.queue import MessageQueue
from pocketmq.spark.read.data_loss import MissingQueues

Q0, Q1 = (MessageQueue("orders", "broker-a", number) for number in range(2))


def test_a_missing_queue_is_reported_once_with_its_unread_range() -> None:
    missing = MissingQueues()

    (sentence,) = missing.record([Q1], {Q0: 5, Q1: 7}, {Q0: 9, Q1: 9})

    assert sentence == (
        "orders@broker-a:1 does not exist any more; messages from 7 to 9 are unread. "
        "If it returns, the query continues at 7"
    )
    assert missing.record([Q1], {Q0: 9, Q1: 7}, {Q0: 9}) == []
    assert missing.to_json() == [{"topic": "orders", "brokerName": "broker-a", "queueId": 1, "start": 7, "end": 9}]


def test_a_missing_queue_that_was_read_completely_loses_nothing() -> None:
    (sentence,) = MissingQueues().record([Q0], {Q0: 5}, {})

    assert "all known messages were read" in sentence


def test_a_queue_that_returns_and_disappears_is_reported_again() -> None:
    missing = MissingQueues()
    missing.record([Q0], {Q0: 5}, {Q0: 6})

    assert missing.record([], {Q0: 6}, {Q0: 6}) == []
    assert missing.to_json() == []
    assert len(missing.record([Q0], {Q0: 6}, {Q0: 6})) == 1

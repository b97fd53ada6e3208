"""A queue counts as recreated only if a newer message has the offset of an older one."""

import pytest

from pocketmq.model.queue import MessageQueue
from pocketmq.spark.broker_facts import Bounds
from pocketmq.spark.read.data_loss import OldestMessages

Q = MessageQueue("orders", "broker-a", 0)


class Broker:
    """Has one queue; `begins_later` is its start after the first query of its oldest message."""

    def __init__(self) -> None:
        self.held = Bounds(0, 0)
        self.oldest_ms = -1
        self.begins_later: int | None = None
        self.asked = 0

    def holds(self, low: int, high: int, oldest_ms: int) -> None:
        self.held, self.oldest_ms = Bounds(low, high), oldest_ms

    def bounds(self, queues: list[MessageQueue]) -> dict[MessageQueue, Bounds]:
        return dict.fromkeys(queues, self.held)

    def earliest_store_ms(self, queues: list[MessageQueue]) -> dict[MessageQueue, int]:
        self.asked += len(queues)
        if self.begins_later is not None:
            self.held = Bounds(self.begins_later, self.held.max)
        return dict.fromkeys(queues, self.oldest_ms)

    def is_another(self, oldest: OldestMessages, place: int) -> bool | None:
        return oldest.check(self.bounds([Q]), {Q: place}, self)[Q].is_another


@pytest.mark.parametrize(
    ("low", "oldest_ms", "is_another"),
    [(5, 1000, False), (5, 1001, True), (0, 1001, True), (0, 900, None), (6, 1001, None), (5, -1, None)],
)
def test_the_oldest_message_shows_whether_a_queue_was_recreated(
    low: int, oldest_ms: int, is_another: bool | None
) -> None:
    broker, oldest = Broker(), OldestMessages()
    broker.holds(5, 20, 1000)
    first = broker.is_another(oldest, 20)
    broker.holds(low, 30, oldest_ms)

    assert first is None
    assert broker.is_another(oldest, 20) is is_another
    assert not broker.is_another(oldest, 20)


def test_retention_between_two_queries_does_not_count_as_a_recreation() -> None:
    broker, oldest = Broker(), OldestMessages()
    broker.holds(5, 20, 1000)
    broker.is_another(oldest, 20)
    broker.holds(5, 30, 1500)
    broker.begins_later = 9

    found = oldest.check({Q: Bounds(5, 30)}, {Q: 20}, broker)

    assert found[Q].is_another is None
    assert found[Q].bounds == Bounds(9, 30)


def test_brokers_are_queried_first_and_when_the_query_lags() -> None:
    broker, oldest = Broker(), OldestMessages()
    for _ in range(3):
        broker.is_another(oldest, 0)
    of_an_empty_one = broker.asked
    broker.holds(0, 9, 1000)
    for place in (9, 9, 5, 9):
        broker.is_another(oldest, place)

    assert of_an_empty_one == 0
    assert broker.asked == 2

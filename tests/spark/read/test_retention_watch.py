"""A query gets a warning before retention reaches it: by the retention time of its broker, and by earlier deletions."""

from collections.abc import Mapping

from pocketmq.model.queue import MessageQueue
from pocketmq.spark.broker_facts import Bounds
from pocketmq.spark.read.data_loss import QueueFacts
from pocketmq.spark.read.offsets import QueueOffsets
from pocketmq.spark.read.stream_health import MAX_INTERVAL_MS, Danger, RetentionWatch

Q = MessageQueue("orders", "broker-a", 0)
WARNING_MS = 10_000


class Brokers:
    """Message n was stored at 1000 * n. Counts its queries."""

    def __init__(self, retention_ms: int | None = None) -> None:
        self._kept_ms = retention_ms
        self.asked = 0

    def retention_ms(self, brokers: frozenset[str]) -> dict[str, int]:
        return {} if self._kept_ms is None else dict.fromkeys(brokers, self._kept_ms)

    def offsets_at(self, times_ms: Mapping[MessageQueue, int]) -> dict[MessageQueue, int]:
        self.asked += 1
        return {queue: max(0, -(-ms // 1000)) for queue, ms in times_ms.items()}

    def stored_ms(self, group: str, places: QueueOffsets) -> dict[MessageQueue, int]:
        return {queue: place * 1000 for queue, place in places.items()}


def looked(
    watch: RetentionWatch, brokers: Brokers, place: int, low: int, high: int = 100, now_ms: int = 100_000
) -> list[Danger]:
    facts = {Q: QueueFacts(Bounds(low, high), low * 1000)}
    return watch.check({Q: place}, facts, brokers, now_ms)


def test_messages_that_expire_within_the_warning_time_are_reported_with_the_time() -> None:
    watch, brokers = RetentionWatch(WARNING_MS, "pulls"), Brokers(retention_ms=60_000)

    assert looked(watch, brokers, place=51, low=45) == []  # deleted at 111 s, and it is 100 s

    (danger,) = looked(watch, brokers, place=49, low=45, now_ms=101_000)
    assert danger == Danger(Q, 49, 45, deleted_at_ms=109_000, left_ms=8_000)
    assert str(danger) == (
        "orders@broker-a:0: message 49, the next to read, will be deleted in about 8 s, at 1970-01-01 00:01:49 UTC; "
        "the queue now begins at 45. Read faster, or raise the broker's fileReservedTime"
    )


def test_expired_messages_may_be_deleted_at_any_moment() -> None:
    (danger,) = looked(RetentionWatch(WARNING_MS, "pulls"), Brokers(retention_ms=60_000), place=10, low=5)

    assert (danger.left_ms, danger.deleted_at_ms) == (0, 100_000)
    assert "will be deleted at any moment; the queue now begins at 5" in str(danger)


def test_a_moving_retention_continues_at_the_speed_of_time() -> None:
    watch, brokers = RetentionWatch(WARNING_MS, "pulls"), Brokers()

    assert looked(watch, brokers, place=20, low=5) == []  # nothing was deleted yet
    assert looked(watch, brokers, place=20, low=10, now_ms=101_000) == []  # 10 s ahead
    (danger,) = looked(watch, brokers, place=20, low=11, now_ms=102_000)
    assert danger.left_ms == 9_000


def test_a_warning_is_logged_once_until_the_query_has_caught_up() -> None:
    watch, brokers = RetentionWatch(WARNING_MS, "pulls"), Brokers(retention_ms=60_000)
    first = looked(watch, brokers, place=45, low=40)

    assert looked(watch, brokers, place=46, low=40, now_ms=101_000) == []
    assert watch.dangers == first
    assert looked(watch, brokers, place=90, low=40, now_ms=102_000) == watch.dangers == []
    assert len(looked(watch, brokers, place=90, low=40, now_ms=145_000)) == 1


def test_a_query_at_the_end_and_a_young_topic_need_no_warning_and_no_queries() -> None:
    brokers = Brokers(retention_ms=60_000)

    assert looked(RetentionWatch(WARNING_MS, "pulls"), brokers, place=100, low=5) == []
    assert looked(RetentionWatch(WARNING_MS, "pulls"), brokers, place=60, low=60) == []
    assert brokers.asked == 0


def test_queries_are_not_more_frequent_than_needed() -> None:
    watch, brokers = RetentionWatch(3_600_000, "pulls"), Brokers(retention_ms=60_000)
    looked(watch, brokers, place=20, low=5)

    for later_ms in (0, MAX_INTERVAL_MS - 1, MAX_INTERVAL_MS):
        looked(watch, brokers, place=20, low=5, now_ms=100_000 + later_ms)

    assert brokers.asked == 2


def test_a_warning_time_of_zero_never_warns() -> None:
    brokers = Brokers(retention_ms=60_000)

    assert looked(RetentionWatch(0, "pulls"), brokers, place=20, low=5) == []
    assert brokers.asked == 0


def test_queues_without_facts_are_not_queried() -> None:
    brokers = Brokers(retention_ms=1)

    assert RetentionWatch(WARNING_MS, "pulls").check({Q: 5}, {}, brokers, 0) == []
    assert brokers.asked == 0


def test_the_progress_of_the_query_has_the_retention_warning() -> None:
    assert Danger(Q, 20, 5, 110_000, 0).to_json() == {
        "topic": "orders",
        "brokerName": "broker-a",
        "queueId": 0,
        "offset": 20,
        "minOffset": 5,
        "deletedAtMs": 110_000,
    }

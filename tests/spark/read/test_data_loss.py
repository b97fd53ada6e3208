"""Lost messages: which, why, and how each policy continues."""

from bisect import bisect_left
from collections.abc import Mapping

import pytest

from pocketmq.errors import DataLost
from pocketmq.model.queue import MessageQueue, QueueRange
from pocketmq.spark.broker_facts import Bounds
from pocketmq.spark.read.data_loss import CLOCK_SKEW_MS, LastMessages, QueueFacts, find_losses, loss_text, settle
from pocketmq.spark.read.offsets import Cause, Lost

Q = MessageQueue("orders", "broker-a", 0)
R = MessageQueue("orders", "broker-a", 1)
SEEN_MS = 1_000_000_000
OLD_MS = SEEN_MS - 1
NEW_MS = SEEN_MS + CLOCK_SKEW_MS + 1


@pytest.mark.parametrize(
    ("place", "low", "high", "earliest_ms", "lost"),
    [
        (10, 0, 20, OLD_MS, None),
        (10, 10, 20, OLD_MS, None),
        (10, 0, 10, OLD_MS, None),
        (0, 0, 0, -1, None),
        (10, 11, 20, OLD_MS, (10, 11, Cause.RETENTION)),
        (10, 15, 15, -1, (10, 15, Cause.RETENTION)),
        (10, 0, 9, OLD_MS, (9, 10, Cause.TRUNCATION)),
        (10, 0, 0, -1, (10, 10, Cause.RECREATION)),
        (10, 0, 5, NEW_MS, (10, 10, Cause.RECREATION)),
        (10, 0, 20, NEW_MS, (10, 20, Cause.RECREATION)),
        (10, 0, 20, NEW_MS - 1, None),
        (10, 10, 20, NEW_MS, None),
    ],
)
def test_each_kind_of_loss_is_found_with_its_range(
    place: int, low: int, high: int, earliest_ms: int, lost: tuple[int, int, Cause] | None
) -> None:
    facts = {Q: QueueFacts(Bounds(low, high), earliest_ms)}

    found = find_losses({Q: place}, facts, SEEN_MS)

    assert found == ([] if lost is None else [Lost(QueueRange(Q, lost[0], lost[1]), lost[2])])


def test_queues_without_facts_are_not_checked() -> None:
    assert find_losses({Q: 5}, {R: QueueFacts(Bounds(9, 9))}, SEEN_MS) == []


def test_without_a_time_to_compare_no_topic_counts_as_recreated() -> None:
    assert find_losses({Q: 5}, {Q: QueueFacts(Bounds(0, 9), NEW_MS)}, 0) == []


@pytest.mark.parametrize(
    ("place", "lost"),
    [
        (10, [Lost(QueueRange(Q, 10, 20), Cause.RECREATION)]),
        (25, [Lost(QueueRange(Q, 25, 25), Cause.RECREATION)]),
        (0, []),
    ],
)
def test_another_queue_under_the_same_name_counts_as_recreated(place: int, lost: list[Lost]) -> None:
    assert find_losses({Q: place}, {Q: QueueFacts(Bounds(0, 20), OLD_MS, is_another=True)}, SEEN_MS) == lost


def test_a_queue_known_to_be_the_same_is_not_recreated_although_clocks_differ() -> None:
    assert find_losses({Q: 10}, {Q: QueueFacts(Bounds(0, 20), NEW_MS, is_another=False)}, SEEN_MS) == []


@pytest.mark.parametrize(
    ("cause", "skip", "earliest"),
    [(Cause.RETENTION, 3, 3), (Cause.TRUNCATION, 8, 3), (Cause.RECREATION, 3, 3)],
)
def test_the_policy_decides_where_to_continue(cause: Cause, skip: int, earliest: int) -> None:
    losses = [Lost(QueueRange(Q, 8, 9), cause)]
    facts = {Q: QueueFacts(Bounds(3, 8))}

    assert settle(losses, facts, "skip") == {Q: skip}
    assert settle(losses, facts, "earliest") == {Q: earliest}
    with pytest.raises(DataLost, match=r"orders@broker-a:0 from 8 to 9 .*Set onDataLoss = skip"):
        settle(losses, facts, "fail")


def test_without_losses_no_policy_applies() -> None:
    assert settle([], {}, "fail") == {}


def test_a_long_list_of_losses_is_shortened() -> None:
    losses = [Lost(QueueRange(MessageQueue("t", "b", n), 0, 1), Cause.RETENTION) for n in range(25)]

    assert "t@b:19 from 0 to 1 (retention); and 5 more queues" in loss_text(losses)


class Log:
    """A queue: the store times of its messages."""

    def __init__(self, stored: list[int]) -> None:
        self.stored = stored
        self.low = 0
        self.asked = 0

    @property
    def bounds(self) -> dict[MessageQueue, Bounds]:
        return {Q: Bounds(self.low, len(self.stored))}

    def stored_ms(self, group: str, offsets: Mapping[MessageQueue, int]) -> dict[MessageQueue, int]:
        self.asked += len(offsets)
        return {queue: self.stored[at] for queue, at in offsets.items() if self.low <= at < len(self.stored)}

    def offsets_at(self, times_ms: Mapping[MessageQueue, int]) -> dict[MessageQueue, int]:
        return {queue: bisect_left(self.stored, ms, self.low) for queue, ms in times_ms.items()}


@pytest.mark.parametrize(
    ("now", "first_new"),
    [
        ([10, 11, 12, 13, 14], None),
        ([10, 11, 12, 13, 50, 51, 52], None),
        ([10, 11, 50, 51, 52], 2),
        ([50, 51, 52, 53, 54], 0),
        ([10, 11, 12, 50, 51], 3),
        ([10, 11, 50, 51], None),
        ([10, 11, 50], 2),
        ([10], 1),
    ],
)
def test_a_shorter_log_that_is_long_again_is_recognized_by_the_last_message(
    now: list[int], first_new: int | None
) -> None:
    log, last = Log([10, 11, 12, 13]), LastMessages("g")
    last.record({Q: 4}, log)
    log.stored = now

    found = last.first_new(log.bounds, {Q: 4}, log)

    assert found == ({} if first_new is None else {Q: first_new})
    if first_new is not None:
        losses = find_losses({Q: 4}, {Q: QueueFacts(log.bounds[Q], first_new=first_new)}, SEEN_MS)
        assert losses == [Lost(QueueRange(Q, first_new, 4), Cause.TRUNCATION)]
        assert settle(losses, {Q: QueueFacts(log.bounds[Q])}, "skip") == {Q: first_new}


def test_a_last_message_that_retention_deleted_says_nothing() -> None:
    log, last = Log([10, 11, 12, 13]), LastMessages("g")
    last.record({Q: 2}, log)
    log.low = 2

    assert last.first_new(log.bounds, {Q: 2}, log) == {}
    for _ in range(3):
        last.record({Q: 2}, log)
    assert log.asked == 1


def test_brokers_are_asked_once_for_each_end_and_where_there_is_more_to_read() -> None:
    log, last = Log([10, 11, 12, 13]), LastMessages("g")
    for _ in range(3):
        last.record({Q: 4}, log)
        assert last.first_new(log.bounds, {Q: 4}, log) == {}

    assert log.asked == 1

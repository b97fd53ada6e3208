"""Lost messages: which, why, and how each policy continues."""

import pytest

from pocketmq.errors import DataLost
from pocketmq.model.queue import MessageQueue, QueueRange
from pocketmq.spark.broker_facts import Bounds
from pocketmq.spark.read.data_loss import CLOCK_SKEW_MS, QueueFacts, find_losses, loss_text, settle
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
    losses = [Lost(QueueRange(Q, 1, 2), cause)]
    facts = {Q: QueueFacts(Bounds(3, 8))}

    assert settle(losses, facts, "skip") == {Q: skip}
    assert settle(losses, facts, "earliest") == {Q: earliest}
    with pytest.raises(DataLost, match=r"orders@broker-a:0 from 1 to 2 .*Set onDataLoss = skip"):
        settle(losses, facts, "fail")


def test_without_losses_no_policy_applies() -> None:
    assert settle([], {}, "fail") == {}


def test_a_long_list_of_losses_is_shortened() -> None:
    losses = [Lost(QueueRange(MessageQueue("t", "b", n), 0, 1), Cause.RETENTION) for n in range(25)]

    assert "t@b:19 from 0 to 1 (retention); and 5 more queues" in loss_text(losses)

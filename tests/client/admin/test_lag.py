"""Lag from offsets and store times."""

import pytest

from pocketmq.client.admin.lag import GroupLag, QueueLag, next_offset, queue_lag, unknown, with_time
from pocketmq.model.queue import MessageQueue

Q = MessageQueue("T", "broker-a", 0)


@pytest.mark.parametrize(
    ("begin", "end", "committed", "messages", "lost", "following"),
    [
        (0, 10, 10, 0, 0, None),
        (0, 10, 9, 1, 0, 9),
        (0, 10, 0, 10, 0, 0),
        (0, 0, 0, 0, 0, None),
        (5, 10, 4, 5, 1, 5),
        (5, 10, 5, 5, 0, 5),
        (10, 10, 3, 0, 7, None),
        (None, 10, 4, 6, 0, 4),
        (0, 10, None, None, 0, None),
        (0, 10, 11, None, 0, None),
    ],
)
def test_lag_is_counted_in_messages(
    begin: int | None, end: int, committed: int | None, messages: int | None, lost: int, following: int | None
) -> None:
    lag = queue_lag(Q, begin, end, committed)

    assert (lag.messages, lag.lost, next_offset(lag)) == (messages, lost, following)
    assert bool(lag.problem) == (messages is None)


def test_a_group_that_has_consumed_all_has_no_lag_in_time() -> None:
    assert queue_lag(Q, 0, 10, 10).time_ms == 0


@pytest.mark.parametrize(("store_ms", "time_ms"), [(400, 600), (1000, 0), (1001, 0), (None, None)])
def test_lag_in_time_is_the_age_of_the_oldest_unread_message(store_ms: int | None, time_ms: int | None) -> None:
    lag = with_time(queue_lag(Q, 0, 10, 3), store_ms, now_ms=1000)

    assert lag.time_ms == time_ms
    assert lag.messages == 7


def test_the_lag_of_a_group_is_the_sum_in_messages_and_the_maximum_in_time() -> None:
    queues = (with_time(queue_lag(Q, 0, 10, 3), 400, 1000), queue_lag(Q, 0, 5, 5))

    lag = GroupLag(group="G", at_ms=1000, queues=queues)

    assert (lag.messages, lag.time_ms, lag.is_known) == (7, 600, True)


@pytest.mark.parametrize("queues", [(), (queue_lag(Q, 0, 5, 5), unknown(Q, "gone")), (queue_lag(Q, 0, 5, None),)])
def test_an_unknown_lag_of_a_queue_makes_that_of_the_group_unknown(queues: tuple[QueueLag, ...]) -> None:
    lag = GroupLag(group="G", at_ms=0, queues=queues)

    assert (lag.messages, lag.time_ms, lag.is_known) == (None, None, False)


def test_the_lag_of_one_topic_can_be_selected() -> None:
    other = MessageQueue("U", "broker-a", 0)
    lag = GroupLag(group="G", at_ms=0, queues=(queue_lag(Q, 0, 5, 3), unknown(other, "gone")))

    assert lag.of_topic("T").messages == 2
    assert lag.of_topic("U").messages is None

"""How groups without members move on."""

from pocketmq.client.administration.lag import GroupLag, QueueLag
from pocketmq.console.strides import FORGOTTEN_S, Strides
from pocketmq.model.queue import MessageQueue


def standing_at(place: int) -> dict[str, GroupLag]:
    queue = QueueLag(queue=MessageQueue("orders", "broker-a", 0), committed=place)
    return {"spark": GroupLag(group="spark", at_ms=0, queues=(queue,))}


def test_a_group_that_stands_still_is_no_pipeline() -> None:
    strides = Strides()

    strides.note(standing_at(5), 0, 0)
    strides.note(standing_at(5), 10, 10_000)

    assert strides.all() == {}


def test_rate_and_batch_time_are_those_of_the_moves_that_were_seen() -> None:
    strides = Strides()

    for now, place in ((0, 0), (5, 100), (7, 100), (10, 200), (15, 300)):
        strides.note(standing_at(place), now, now * 1000)

    stride = strides.all()["spark"]
    assert stride.per_s == 20
    assert stride.batch_s == 5
    assert stride.last_move_ms == 15_000


def test_one_move_tells_no_rate() -> None:
    strides = Strides()

    strides.note(standing_at(0), 0, 0)
    strides.note(standing_at(9), 5, 5_000)

    assert strides.all()["spark"].per_s is None
    assert strides.all()["spark"].batch_s is None


def test_a_group_that_is_gone_or_still_for_long_is_forgotten() -> None:
    strides = Strides()
    for now, place in ((0, 0), (5, 100)):
        strides.note(standing_at(place), now, 0)

    strides.note(standing_at(100), FORGOTTEN_S + 10, 0)
    assert strides.all() == {}

    strides.note({}, FORGOTTEN_S + 20, 0)
    assert strides.all() == {}

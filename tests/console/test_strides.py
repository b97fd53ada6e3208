"""How groups without members move on."""

from pocketmq.client.admin.lag import GroupLag, QueueLag
from pocketmq.console.strides import FORGOTTEN_S, Motion, Stride, Strides
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


def test_batches_that_come_faster_than_somebody_looks_take_that_long_at_most() -> None:
    strides = Strides()

    for look in range(5):
        strides.note(standing_at(look * 100), look * 5, 0)
    assert (strides.all()["spark"].batch_s, strides.all()["spark"].is_at_most) == (5, True)
    for look in range(1, 31):  # now closely: a batch every 1.5 s
        strides.note_some(standing_at(400 + look // 3 * 30), 20 + look * 0.5, 0)

    stride = strides.all()["spark"]
    assert (stride.batch_s, stride.is_at_most) == (1.5, False)


def test_an_older_picture_that_comes_late_is_no_step_back() -> None:
    strides = Strides()
    strides.note(standing_at(100), 0, 0)
    strides.note(standing_at(200), 5, 0)
    strides.note_some(standing_at(300), 10.2, 0)

    strides.note(standing_at(200), 10, 0)

    assert strides.all()["spark"].moves == 2


def test_a_broker_that_does_not_answer_and_retries_are_no_moves() -> None:
    strides = Strides()
    strides.note(standing_at(100), 0, 0)
    silent = QueueLag(queue=MessageQueue("orders", "broker-a", 0), problem="nobody is there")
    retries = QueueLag(queue=MessageQueue("%RETRY%spark", "broker-a", 0), committed=7)

    strides.note({"spark": GroupLag(group="spark", at_ms=0, queues=(silent,))}, 5, 0)
    strides.note(
        {"spark": GroupLag(group="spark", at_ms=0, queues=(*standing_at(100)["spark"].queues, retries))}, 10, 0
    )

    assert strides.all() == {}


def test_one_move_makes_no_pipeline_and_neither_does_a_reset() -> None:
    strides = Strides()

    strides.note(standing_at(0), 0, 0)
    strides.note(standing_at(9), 5, 5_000)
    assert strides.all() == {}
    strides.note(standing_at(3), 10, 10_000)
    strides.note(standing_at(9), 15, 15_000)
    assert strides.all() == {}
    strides.note(standing_at(15), 20, 20_000)

    assert strides.all()["spark"].moves == 2


def test_a_group_that_is_gone_or_still_for_long_is_forgotten() -> None:
    strides = Strides()
    for now, place in ((0, 0), (5, 100), (10, 200)):
        strides.note(standing_at(place), now, 0)
    assert strides.all() != {}

    strides.note(standing_at(200), FORGOTTEN_S + 20, 0)
    assert strides.all() == {}

    strides.note({}, FORGOTTEN_S + 30, 0)
    assert strides.all() == {}


def test_a_group_that_is_behind_and_does_not_move_has_stopped() -> None:
    stride = Stride(moves=5, last_move_ms=1_000_000, per_s=10.0, batch_s=2.0)

    assert stride.motion(1_029_000, 50) is Motion.RUNNING
    assert stride.motion(1_031_000, 50) is Motion.STOPPED
    assert stride.motion(1_031_000, None) is Motion.STOPPED
    assert stride.motion(1_031_000, 0) is Motion.WAITING


def test_a_group_with_long_batches_is_given_five_of_them() -> None:
    stride = Stride(moves=5, last_move_ms=1_000_000, per_s=10.0, batch_s=60.0)

    assert stride.motion(1_299_000, 50) is Motion.RUNNING
    assert stride.motion(1_301_000, 50) is Motion.STOPPED

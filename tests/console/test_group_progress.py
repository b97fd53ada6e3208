"""How groups without members move on."""

from pocketmq.client.admin.lag import GroupLag, QueueLag
from pocketmq.console.group_progress import FORGOTTEN_S, Activity, GroupProgress, ProgressTracker
from pocketmq.console.pages.cluster import pipeline_rows
from pocketmq.console.snapshot import Snapshot
from pocketmq.model.queue import MessageQueue


def standing_at(place: int) -> dict[str, GroupLag]:
    queue = QueueLag(queue=MessageQueue("orders", "broker-a", 0), committed=place)
    return {"spark": GroupLag(group="spark", at_ms=0, queues=(queue,))}


def test_a_group_without_progress_is_not_a_pipeline() -> None:
    group_progress = ProgressTracker()

    group_progress.record(standing_at(5), 0, 0)
    group_progress.record(standing_at(5), 10, 10_000)

    assert group_progress.all() == {}


def test_rate_and_batch_time_are_those_of_the_observed_commits() -> None:
    group_progress = ProgressTracker()

    for now, place in ((0, 0), (5, 100), (7, 100), (10, 200), (15, 300)):
        group_progress.record(standing_at(place), now, now * 1000)

    progress = group_progress.all()["spark"]
    assert progress.per_s == 20
    assert progress.batch_s == 5
    assert progress.last_move_ms == 15_000


def test_batches_shorter_than_the_sampling_interval_are_shown_as_at_most_that_long() -> None:
    group_progress = ProgressTracker()

    for look in range(5):
        group_progress.record(standing_at(look * 100), look * 5, 0)
    assert (group_progress.all()["spark"].batch_s, group_progress.all()["spark"].is_at_most) == (5, True)
    for look in range(1, 31):  # now closely: a batch every 1.5 s
        group_progress.record_some(standing_at(400 + look // 3 * 30), 20 + look * 0.5, 0)

    progress = group_progress.all()["spark"]
    assert (progress.batch_s, progress.is_at_most) == (1.5, False)


def test_a_late_older_sample_does_not_lower_the_progress() -> None:
    group_progress = ProgressTracker()
    group_progress.record(standing_at(100), 0, 0)
    group_progress.record(standing_at(200), 5, 0)
    group_progress.record_some(standing_at(300), 10.2, 0)

    group_progress.record(standing_at(200), 10, 0)

    assert group_progress.all()["spark"].moves == 2


def test_missing_answers_and_retries_are_not_commits() -> None:
    group_progress = ProgressTracker()
    group_progress.record(standing_at(100), 0, 0)
    silent = QueueLag(queue=MessageQueue("orders", "broker-a", 0), problem="no answer")
    retries = QueueLag(queue=MessageQueue("%RETRY%spark", "broker-a", 0), committed=7)

    group_progress.record({"spark": GroupLag(group="spark", at_ms=0, queues=(silent,))}, 5, 0)
    group_progress.record(
        {"spark": GroupLag(group="spark", at_ms=0, queues=(*standing_at(100)["spark"].queues, retries))}, 10, 0
    )

    assert group_progress.all() == {}


def test_a_single_commit_or_a_reset_does_not_make_a_pipeline() -> None:
    group_progress = ProgressTracker()

    group_progress.record(standing_at(0), 0, 0)
    group_progress.record(standing_at(9), 5, 5_000)
    assert group_progress.all() == {}
    group_progress.record(standing_at(3), 10, 10_000)
    group_progress.record(standing_at(9), 15, 15_000)
    assert group_progress.all() == {}
    group_progress.record(standing_at(15), 20, 20_000)

    assert group_progress.all()["spark"].moves == 2


def test_a_deleted_or_long_idle_group_is_removed() -> None:
    group_progress = ProgressTracker()
    for now, place in ((0, 0), (5, 100), (10, 200)):
        group_progress.record(standing_at(place), now, 0)
    assert group_progress.all() != {}

    group_progress.record(standing_at(200), FORGOTTEN_S + 20, 0)
    assert group_progress.all() == {}

    group_progress.record({}, FORGOTTEN_S + 30, 0)
    assert group_progress.all() == {}


def test_a_group_with_a_lag_and_no_commits_has_stopped() -> None:
    progress = GroupProgress(moves=5, last_move_ms=1_000_000, per_s=10.0, batch_s=2.0)

    assert progress.activity(1_029_000, 50) is Activity.RUNNING
    assert progress.activity(1_031_000, 50) is Activity.STOPPED
    assert progress.activity(1_031_000, None) is Activity.STOPPED
    assert progress.activity(1_031_000, 0) is Activity.WAITING


def test_a_group_with_long_batches_may_take_five_of_them() -> None:
    progress = GroupProgress(moves=5, last_move_ms=1_000_000, per_s=10.0, batch_s=60.0)

    assert progress.activity(1_299_000, 50) is Activity.RUNNING
    assert progress.activity(1_301_000, 50) is Activity.STOPPED


def test_a_stopped_consumer_is_not_a_pipeline() -> None:
    progress = GroupProgress(moves=2, last_move_ms=0, per_s=1, batch_s=1)
    orders = QueueLag(queue=MessageQueue("orders", "broker-a", 0), committed=5, messages=3)
    retries = QueueLag(queue=MessageQueue("%RETRY%billing", "broker-a", 0), committed=0, messages=0)
    snapshot = Snapshot(
        lags={
            "spark": GroupLag(group="spark", at_ms=0, queues=(orders,)),
            "billing": GroupLag(group="billing", at_ms=0, queues=(orders, retries)),
        },
        group_progress={"spark": progress, "billing": progress},
    )

    running, stopped = pipeline_rows(snapshot, 10_000), pipeline_rows(snapshot, 60_000)

    assert [(group, activity) for group, _, activity, *_ in running] == [("billing", "running"), ("spark", "running")]
    assert [(group, activity) for group, _, activity, *_ in stopped] == [("spark", "stopped")]

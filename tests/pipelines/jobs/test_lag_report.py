"""The pipeline `lag-report`: samples of lag by queue, and their summary by group."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

from tests.spark.broker_kit import Broker, fill, new_topic

from pocketmq import Admin
from pocketmq.errors import CallTimedOut, GroupNotFound, PocketMQError
from pocketmq.pipelines.core.progress import Progress
from pocketmq.pipelines.core.running import Run
from pocketmq.pipelines.core.settings import Duration
from pocketmq.pipelines.jobs import lag_report
from pocketmq.pipelines.jobs.lag_report import LAG_REPORT, MAX_SAMPLES, SAMPLES, LagSettings, lag_summary, watched

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T0 = datetime(2026, 3, 1, 12, tzinfo=UTC)


def test_samples_become_a_row_for_each_group_and_topic(spark: "SparkSession") -> None:
    def row(after_s: int, queue: int, messages: int | None, time_ms: int | None) -> tuple[Any, ...]:
        return T0 + timedelta(seconds=after_s), "g", "t", "b", queue, 0, 9, messages, time_ms, 0, None

    rows = [row(0, 0, 10, 500), row(0, 1, 5, 900), row(10, 0, 40, 700), row(10, 1, 5, 1900), row(5, 0, None, None)]

    [found] = lag_summary(spark.createDataFrame(rows, SAMPLES)).collect()

    assert found.asDict() == {
        "group": "g",
        "topic": "t",
        "looks": 3,
        "messages": 45,
        "timeMs": 1900,
        "least": 15,
        "most": 45,
        "mostMs": 1900,
        "trend": 3.0,
        "lost": 0,
    }


def test_the_lag_of_groups_is_sampled_and_written(spark: "SparkSession", broker: Broker, tmp_path: Path) -> None:
    topic = new_topic(broker, queues=1)
    fill(broker, topic, ["a", "b", "c"])
    group = f"{topic}-group"
    with Admin(broker.name_server) as admin:
        admin.groups.create(group)
        admin.offsets.reset(group, topic, "earliest")
    told = LagSettings(
        namesrv=broker.name_server,
        groups=(group,),
        window=Duration(40),
        every=Duration(20),
        output=str(tmp_path),
        format="csv",
    )
    rows: list[Progress] = []

    summary = LAG_REPORT.run(spark, told, Run(report=rows.append))

    [row] = summary.tables["lag by group"]
    assert (row["group"], row["topic"], row["messages"], row["looks"]) == (group, topic, 3, 3)
    assert [progress.behind for progress in rows] == [3, 3, 3]
    samples = spark.read.option("header", "true").csv(f"{summary.facts['output']}/samples")
    assert samples.count() == 3
    assert samples.columns == [part.split()[0].strip("`") for part in SAMPLES.split(", ")]


def test_a_failed_sample_keeps_the_other_samples(
    spark: "SparkSession", broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = new_topic(broker, queues=1)
    fill(broker, topic, ["a"])
    group = f"{topic}-group"
    with Admin(broker.name_server) as admin:
        admin.groups.create(group)
        admin.offsets.reset(group, topic, "earliest")
    told = LagSettings(namesrv=broker.name_server, groups=(group,), window=Duration(40), every=Duration(20))
    outcomes: list[PocketMQError | None] = [None, CallTimedOut("the broker starts again"), None]
    real = lag_report._lag

    def at_times(admin: Admin, group: str) -> object:
        if (error := outcomes.pop(0)) is not None:
            raise error
        return real(admin, group)

    monkeypatch.setattr(lag_report, "_lag", at_times)

    summary = LAG_REPORT.run(spark, told, Run())

    [row] = summary.tables["lag by group"]
    assert (row["messages"], row["looks"], summary.facts["looks"]) == (1, 2, 3)
    assert summary.facts["looks_failed"] == "1, last error: the broker starts again"

    outcomes[:] = [CallTimedOut("no member")]
    with pytest.raises(CallTimedOut):
        LAG_REPORT.run(spark, told, Run())


def test_a_missing_group_is_reported(broker: Broker) -> None:
    with pytest.raises(GroupNotFound, match="group 'none' does not exist"):
        LAG_REPORT.plan(LagSettings(namesrv=broker.name_server, groups=("none",)))


def test_groups_of_sinks_are_omitted_unless_they_are_named() -> None:
    note = "spark-rocketmq-sink-0a1b2c3d4e5f-odd"
    known = [note, note.replace("odd", "even"), "shop-odd", "shop"]

    assert watched(known, ()) == ["shop", "shop-odd"]
    assert watched(known, (note,)) == [note]


def test_a_plan_has_the_number_of_samples(broker: Broker) -> None:
    plan = LAG_REPORT.plan(LagSettings(namesrv=broker.name_server))

    assert plan.options["looks"] == "13"


@pytest.mark.parametrize(
    ("window", "every", "step_ms", "looks"),
    [
        (60_000, 5_000, 5_000, 13),
        (0, 5_000, 5_000, 1),
        (1_000, 0, 1, 1_001),
        (604_800_000, 1_000, 6_049, 99_984),
    ],
)
def test_a_long_window_is_sampled_less_often_to_its_end(window: int, every: int, step_ms: int, looks: int) -> None:
    told = LagSettings(window=Duration(window), every=Duration(every))

    assert (told.step_ms, told.looks) == (step_ms, looks)
    assert looks <= MAX_SAMPLES

"""Topics that are deleted, re-created or shortened around a batch, and older ranges that are added to a lake later."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

from tests.pipelines.sent_kit import bodies
from tests.spark.broker_kit import Broker, fill, new_topic

from pocketmq import Admin
from pocketmq.errors import PipelineFailed
from pocketmq.model import QueueRange
from pocketmq.pipelines.archive import lake as lake_module
from pocketmq.pipelines.archive import sinks as sinks_module
from pocketmq.pipelines.archive.job import run_archive
from pocketmq.pipelines.archive.manifest import read_manifest
from pocketmq.pipelines.archive.settings import ArchiveSettings
from pocketmq.pipelines.archive.staging import StagingFolder, stage_ranges, stage_rows
from pocketmq.pipelines.core.running import Run, Summary
from pocketmq.pipelines.jobs.backfill import BackfillSettings, run_backfill

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BY_BOTH = pytest.mark.parametrize("engine", ["spark", "direct"])


def settings(broker: Broker, lake: Path, topic: str, **given: object) -> ArchiveSettings:
    told: dict[str, Any] = {"topics": [topic], "lake": str(lake), "compact": False, **given}
    return ArchiveSettings(namesrv=broker.name_server, **told)


def archive(spark: "SparkSession", told: ArchiveSettings) -> Summary:
    return run_archive(spark, told, Run())


def backfill(spark: "SparkSession", broker: Broker, lake: Path, topic: str, name: str, **given: Any) -> Summary:
    checkpoint = str(lake.with_name(name))
    told = BackfillSettings(
        namesrv=broker.name_server, topics=[topic], lake=str(lake), checkpoint=checkpoint, max_messages=4, **given
    )
    return run_backfill(spark, told, Run())


def values(spark: "SparkSession", lake: Path) -> Counter[str]:
    if not list(lake.glob("topic=*")):
        return Counter()
    return Counter(row[0] for row in spark.read.parquet(str(lake)).selectExpr("CAST(value AS string)").collect())


@BY_BOTH
def test_older_messages_are_added_to_a_lake_once(
    spark: "SparkSession", broker: Broker, tmp_path: Path, engine: str
) -> None:
    topic, lake = new_topic(broker, queues=1), tmp_path / "lake"
    fill(broker, topic, bodies(0, 5))
    later = settings(broker, lake, topic, starting="latest", engine=engine)
    archive(spark, later)
    fill(broker, topic, bodies(5, 9))
    archive(spark, later)
    part = f'{{"{topic}":{{"{broker.name}":{{"0":%d}}}}}}'

    middle = backfill(
        spark, broker, lake, topic, "one", starting_offsets=part % 2, ending_offsets=part % 3, engine=engine
    )
    older = backfill(spark, broker, lake, topic, "two", engine=engine)
    fill(broker, topic, bodies(9, 11))
    archive(spark, later)
    lost_checkpoint = archive(spark, settings(broker, lake, topic, checkpoint=str(tmp_path / "new"), engine=engine))

    assert (middle.facts["rows_written"], older.facts["rows_written"], lost_checkpoint.messages) == (1, 4, 0)
    assert values(spark, lake) == Counter(bodies(0, 11))
    manifest = read_manifest(lake)
    assert [(one.start, one.end) for one in manifest.ranges] == [(0, 11)]
    assert (manifest.rows, manifest.lost) == (11, [])


@BY_BOTH
def test_a_gap_inside_of_a_file_is_a_lost_range(
    spark: "SparkSession", broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str
) -> None:
    topic, lake = new_topic(broker, queues=1), tmp_path / "lake"
    fill(broker, topic, bodies(0, 8))

    def with_gaps(rows: "DataFrame", place: StagingFolder) -> object:  # as if a broker had lost a file of its log
        return stage_rows(rows.where("queueOffset NOT IN (2, 3, 6)").coalesce(1), place)

    def in_one_task(spark: "SparkSession", options: Any, ranges: Any, place: StagingFolder) -> object:
        kept = [QueueRange(ranges[0].queue, start, end) for start, end in ((0, 2), (4, 6), (7, 8))]
        return stage_ranges(spark, replace(options, max_partitions=1), kept, place)

    monkeypatch.setattr(lake_module, "stage_rows", with_gaps)
    monkeypatch.setattr(sinks_module, "stage_ranges", in_one_task)
    summary = archive(spark, settings(broker, lake, topic, engine=engine))

    assert [(row["start"], row["end"]) for row in summary.lost] == [(2, 4), (6, 7)]
    manifest = read_manifest(lake)
    assert [[(span.range.start, span.rows) for span in file.spans] for file in manifest.files.values()] == [
        [(0, 2), (4, 2), (7, 1)]
    ]
    assert [(one.start, one.end) for one in manifest.ranges] == [(0, 8)]


def changed_meanwhile(
    monkeypatch: pytest.MonkeyPatch, engine: str, change: Callable[[], None], *, before: bool
) -> pytest.MonkeyPatch:
    """While a batch is written, its topic changes."""
    module, write = (sinks_module, stage_ranges) if engine == "direct" else (lake_module, stage_rows)

    def staged(*given: Any) -> object:
        if before:
            change()
        done = write(*given)
        if not before:
            change()
        return done

    monkeypatch.setattr(module, write.__name__, staged)
    return monkeypatch


@pytest.mark.parametrize(
    ("engine", "messages", "before"), [("spark", 9, False), ("direct", 9, True), ("spark", None, True)]
)
def test_a_topic_that_is_recreated_while_a_batch_is_written_fails_it_and_then_continues(
    spark: "SparkSession",
    broker: Broker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    engine: str,
    messages: int | None,  # of the new topic; None if it is created later
    before: bool,
) -> None:
    topic, lake = new_topic(broker, queues=1), tmp_path / "lake"
    fill(broker, topic, bodies(0, 6))
    told = settings(broker, lake, topic, engine=engine)

    def change() -> None:
        with Admin(broker.name_server) as admin:
            admin.topics.delete(topic)
            if messages is not None:
                admin.topics.create(topic, queues=1)
        if messages:
            fill(broker, topic, [f"new {number}" for number in range(messages)])

    with monkeypatch.context() as patch:
        changed_meanwhile(patch, engine, change, before=before)
        with pytest.raises(PipelineFailed, match=r"deleted or re-created while .* nothing of the batch was written"):
            archive(spark, told)
    assert (values(spark, lake), read_manifest(lake).ranges) == (Counter(), [])
    if messages is None:
        with Admin(broker.name_server) as admin:
            admin.topics.create(topic, queues=1)
    archive(spark, told)
    fill(broker, topic, [f"later {number}" for number in range(9)])
    archive(spark, told)

    expected = [f"later {number}" for number in range(9)] + [f"new {number}" for number in range(messages or 0)]
    assert values(spark, lake) == Counter(expected)

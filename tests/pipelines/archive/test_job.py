"""Topics to a lake on a real Spark: all of it once, whatever happens in between."""

import errno
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.spark.broker_kit import Broker, fill, new_topic

from pocketmq.errors import InvalidSetting, PipelineFailed, WrongState
from pocketmq.files import DiskFiles
from pocketmq.model.queue import QueueRange
from pocketmq.pipelines.archive import job as job_module
from pocketmq.pipelines.archive import lake as lake_module
from pocketmq.pipelines.archive.job import ArchiveSettings, plan_archive, run_archive
from pocketmq.pipelines.archive.lake import is_full
from pocketmq.pipelines.archive.manifest import ManifestLog, read_manifest
from pocketmq.pipelines.archive.reading import ReadLake, file_rows, lost_ranges
from pocketmq.pipelines.archive.staging import stage_ranges
from pocketmq.pipelines.core.running import Run, Summary

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def settings(broker: Broker, folder: Path, topic: str, **given: object) -> ArchiveSettings:
    told = {"max_messages": 4, "compact": False, **given}
    return ArchiveSettings(namesrv=broker.name_server, topics=[topic], lake=str(folder), **told)  # type: ignore[arg-type]


def archive(spark: "SparkSession", told: ArchiveSettings) -> Summary:
    return run_archive(spark, told, Run())


def values(spark: "SparkSession", folder: Path) -> Counter[str]:
    """What a plain reader of the folder finds."""
    return Counter(row[0] for row in spark.read.parquet(str(folder)).selectExpr("CAST(value AS string)").collect())


def bodies(start: int, end: int) -> list[str]:
    return [f"{number}" for number in range(start, end)]


def test_every_message_is_in_the_lake_once_and_the_manifest_says_where(
    spark: "SparkSession", broker: Broker, tmp_path: Path
) -> None:
    topic, folder = new_topic(broker), tmp_path / "lake"
    fill(broker, topic, bodies(0, 6))
    fill(broker, topic, bodies(6, 9), number=1)
    told = settings(broker, folder, topic)

    planned = plan_archive(told)
    first = archive(spark, told)
    fill(broker, topic, bodies(9, 11))
    second = archive(spark, told)

    assert (planned.messages, planned.begins) == (9, "earliest: the checkpoint is new")
    assert (first.messages, second.messages) == (9, 2)
    assert values(spark, folder) == Counter(bodies(0, 11))
    lake = ReadLake(folder)
    assert lake.manifest.rows == 11
    (file,) = lake.manifest.at_offset(topic, 7, queue_id=0)
    (row,) = file_rows([file])
    assert row["start"] <= 7 < row["end"]
    wanted = [one for one in lake.ranges_of() if one.queue.queue_id == 1]
    assert sorted(row.value.decode() for row in lake.rows(spark, wanted).collect()) == bodies(6, 9)
    assert [row.properties["said"] for row in lake.rows(spark, wanted).where("value = X'37'").collect()] == ["7"]


def test_a_run_that_breaks_off_anywhere_is_made_good_by_the_next(
    spark: "SparkSession", broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, folder = new_topic(broker), tmp_path / "lake"
    fill(broker, topic, bodies(0, 10))
    told = settings(broker, folder, topic)

    def broken(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, "the machine is gone")

    def broken_after_writing(*given: object) -> None:
        stage_ranges(*given)  # type: ignore[arg-type]
        broken()

    steps = (
        (job_module, "stage_ranges", broken_after_writing),
        (ManifestLog, "commit", broken),
        (lake_module, "publish", broken),
    )
    for module, step, broken_step in steps:
        with monkeypatch.context() as patch:
            patch.setattr(module, step, broken_step)
            with pytest.raises(PipelineFailed, match="the machine is gone"):
                archive(spark, told)
    archive(spark, told)

    assert values(spark, folder) == Counter(bodies(0, 10))
    assert read_manifest(folder).rows == 10
    assert DiskFiles().list(folder / "_staging") == []


def test_a_lost_checkpoint_costs_nothing(spark: "SparkSession", broker: Broker, tmp_path: Path) -> None:
    topic, folder = new_topic(broker), tmp_path / "lake"
    fill(broker, topic, bodies(0, 5))
    archive(spark, settings(broker, folder, topic, checkpoint=str(tmp_path / "first")))
    fill(broker, topic, bodies(5, 7))

    again = archive(spark, settings(broker, folder, topic, checkpoint=str(tmp_path / "second")))

    assert again.messages == 2
    assert values(spark, folder) == Counter(bodies(0, 7))


def test_small_files_become_one(spark: "SparkSession", broker: Broker, tmp_path: Path) -> None:
    topic, folder = new_topic(broker, queues=1), tmp_path / "lake"
    fill(broker, topic, bodies(0, 9))

    summary = archive(
        spark, settings(broker, folder, topic, max_messages=3, compact=True, compact_files=2, slot="hour")
    )

    assert summary.facts["files_compacted"] == summary.facts["files_written"] > 1
    (file,) = read_manifest(folder).files.values()
    assert [(span.range.start, span.range.end, span.rows) for span in file.spans] == [(0, 9, 9)]
    assert values(spark, folder) == Counter(bodies(0, 9))


def test_lost_ranges_are_rows(
    spark: "SparkSession", broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, folder = new_topic(broker, queues=1), tmp_path / "lake"
    fill(broker, topic, bodies(0, 4))
    told = settings(broker, folder, topic)

    def without_the_first(spark: object, options: object, ranges: list[QueueRange], place: object) -> object:
        late = [QueueRange(one.queue, one.start + 2, one.end) for one in ranges]
        return stage_ranges(spark, options, late, place)  # type: ignore[arg-type]

    monkeypatch.setattr(job_module, "stage_ranges", without_the_first)  # as if retention had been faster
    summary = archive(spark, told)

    assert [(row["start"], row["end"], row["cause"]) for row in summary.lost] == [(0, 2, "retention")]
    assert [(row.start, row.end) for row in lost_ranges(spark, str(folder)).collect()] == [(0, 2)]


def test_a_full_disk_is_told_and_the_next_run_goes_on(
    spark: "SparkSession", broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, folder = new_topic(broker), tmp_path / "lake"
    fill(broker, topic, bodies(0, 4))
    told = settings(broker, folder, topic)

    def full(*_: object) -> None:
        raise RuntimeError("java.io.IOException: No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(job_module, "stage_ranges", full)
        with pytest.raises(PipelineFailed, match=r"is full .* free some space and run the pipeline again"):
            archive(spark, told)
    archive(spark, told)

    assert values(spark, folder) == Counter(bodies(0, 4))
    assert is_full(OSError(errno.ENOSPC, "no"))
    assert not is_full(OSError(errno.EIO, "no"))


def test_mistakes_are_told_before_anything_is_written(spark: "SparkSession", broker: Broker, tmp_path: Path) -> None:
    topic, folder = new_topic(broker), tmp_path / "lake"
    fill(broker, topic, bodies(0, 2))
    archive(spark, settings(broker, folder, topic))

    with pytest.raises(PipelineFailed, match="no-such-topic"):
        archive(spark, settings(broker, tmp_path / "other", "no-such-topic"))
    with pytest.raises(InvalidSetting, match="has parquet files by day, not parquet by hour"):
        archive(spark, settings(broker, folder, topic, slot="hour"))
    with pytest.raises(WrongState, match="belongs to archive of"):
        archive(spark, settings(broker, tmp_path / "other", topic, checkpoint=str(folder / "_checkpoint")))
    with pytest.raises(InvalidSetting, match="must be a local or mounted path"):
        archive(spark, settings(broker, Path("s3:/bucket/lake"), topic))

    assert values(spark, folder) == Counter(bodies(0, 2))


def test_other_formats_of_files_and_of_tables_are_spark_s(
    spark: "SparkSession", broker: Broker, tmp_path: Path
) -> None:
    topic = new_topic(broker)
    fill(broker, topic, bodies(0, 3))

    archive(spark, settings(broker, tmp_path / "lake", topic, format="orc", properties=False))
    table = archive(
        spark, settings(broker, tmp_path / "table", topic, format="noop", checkpoint=str(tmp_path / "notes"))
    )

    assert read_manifest(tmp_path / "lake").rows == 3
    assert table.messages == 3

"""Topics to a lake on a real Spark: every message once, with interruptions at every step."""

import errno
from collections import Counter
from pathlib import Path
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

from pyspark.sql.streaming.listener import StreamingQueryListener
from tests.spark.broker_kit import Broker, fill, new_topic

from pocketmq.errors import InvalidSetting, PipelineFailed, WrongState
from pocketmq.files import DiskFiles
from pocketmq.pipelines.archive import lake as lake_module
from pocketmq.pipelines.archive import sinks as sinks_module
from pocketmq.pipelines.archive.job import plan_archive, run_archive
from pocketmq.pipelines.archive.lake import is_full
from pocketmq.pipelines.archive.manifest import ManifestLog, read_manifest
from pocketmq.pipelines.archive.reading import ReadLake, file_rows, lost_ranges
from pocketmq.pipelines.archive.settings import ArchiveSettings, check_archive
from pocketmq.pipelines.archive.staging import StagingFolder, stage_ranges, stage_rows
from pocketmq.pipelines.core.running import Run, Summary
from pocketmq.spark.schema import COLUMNS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.listener import QueryProgressEvent


BY_BOTH = pytest.mark.parametrize("engine", ["spark", "direct"])


def settings(broker: Broker, folder: Path, topic: str, **given: object) -> ArchiveSettings:
    told: dict[str, Any] = {"topics": [topic], "lake": str(folder), "max_messages": 4, "compact": False, **given}
    return ArchiveSettings(namesrv=broker.name_server, **told)


def archive(spark: "SparkSession", told: ArchiveSettings) -> Summary:
    return run_archive(spark, told, Run())


def values(spark: "SparkSession", folder: Path) -> Counter[str]:
    """What a plain reader of the folder finds."""
    return Counter(row[0] for row in spark.read.parquet(str(folder)).selectExpr("CAST(value AS string)").collect())


def bodies(start: int, end: int) -> list[str]:
    return [f"{number}" for number in range(start, end)]


@BY_BOTH
def test_every_message_is_in_the_lake_once_and_in_the_manifest(
    spark: "SparkSession", broker: Broker, tmp_path: Path, engine: str
) -> None:
    topic, folder = new_topic(broker), tmp_path / "lake"
    fill(broker, topic, bodies(0, 6))
    fill(broker, topic, bodies(6, 9), number=1)
    told = settings(broker, folder, topic, engine=engine)

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


@BY_BOTH
def test_a_run_interrupted_at_any_point_is_completed_by_the_next(
    spark: "SparkSession", broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str
) -> None:
    topic, folder = new_topic(broker), tmp_path / "lake"
    fill(broker, topic, bodies(0, 10))
    told = settings(broker, folder, topic, engine=engine)

    def broken(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, "the machine is gone")

    writer, write = (sinks_module, stage_ranges) if engine == "direct" else (lake_module, stage_rows)

    def broken_after_writing(*given: Any) -> None:
        write(*given)
        broken()

    steps: tuple[tuple[Any, str, Any], ...] = (
        (writer, write.__name__, broken_after_writing),
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


def test_a_lost_checkpoint_loses_nothing(spark: "SparkSession", broker: Broker, tmp_path: Path) -> None:
    topic, folder = new_topic(broker), tmp_path / "lake"
    fill(broker, topic, bodies(0, 5))
    archive(spark, settings(broker, folder, topic, checkpoint=str(tmp_path / "first")))
    fill(broker, topic, bodies(5, 7))

    again = archive(spark, settings(broker, folder, topic, checkpoint=str(tmp_path / "second")))

    assert again.messages == 2
    assert values(spark, folder) == Counter(bodies(0, 7))


@BY_BOTH
def test_small_files_become_one(spark: "SparkSession", broker: Broker, tmp_path: Path, engine: str) -> None:
    topic, folder = new_topic(broker, queues=1), tmp_path / "lake"
    fill(broker, topic, bodies(0, 9))

    told = {"max_messages": 3, "compact": True, "compact_files": 2, "slot": "hour", "engine": engine}
    summary = archive(spark, settings(broker, folder, topic, **told))

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

    def without_the_first(rows: "DataFrame", place: StagingFolder) -> object:
        return stage_rows(rows.where("queueOffset >= 2"), place)

    monkeypatch.setattr(lake_module, "stage_rows", without_the_first)  # as if retention had been faster
    summary = archive(spark, told)

    assert [(row["start"], row["end"], row["cause"]) for row in summary.lost] == [(0, 2, "retention")]
    assert [(row.start, row.end) for row in lost_ranges(spark, str(folder)).collect()] == [(0, 2)]


def test_a_full_disk_is_reported_and_the_next_run_continues(
    spark: "SparkSession", broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, folder = new_topic(broker), tmp_path / "lake"
    fill(broker, topic, bodies(0, 4))
    told = settings(broker, folder, topic)

    def full(*_: object) -> None:
        raise RuntimeError("java.io.IOException: No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(lake_module, "stage_rows", full)
        with pytest.raises(PipelineFailed, match=r"is full .* free some space and run the pipeline again"):
            archive(spark, told)
    archive(spark, told)

    assert values(spark, folder) == Counter(bodies(0, 4))
    assert is_full(OSError(errno.ENOSPC, "no"))
    assert not is_full(OSError(errno.EIO, "no"))


def test_mistakes_are_reported_before_anything_is_written(
    spark: "SparkSession", broker: Broker, tmp_path: Path
) -> None:
    topic, folder = new_topic(broker), tmp_path / "lake"
    fill(broker, topic, bodies(0, 2))
    archive(spark, settings(broker, folder, topic))

    with pytest.raises(PipelineFailed, match="no-such-topic"):
        archive(spark, settings(broker, tmp_path / "other", "no-such-topic"))
    with pytest.raises(InvalidSetting, match="has parquet files by day, not parquet by hour"):
        archive(spark, settings(broker, folder, topic, slot="hour"))
    with pytest.raises(WrongState, match="belongs to archive of"):
        archive(spark, settings(broker, tmp_path / "other", topic, checkpoint=str(folder / "_checkpoint")))
    with pytest.raises(InvalidSetting, match="must be a path, or a URI with a path"):
        archive(spark, settings(broker, Path("s3:/bucket/lake"), topic))

    assert values(spark, folder) == Counter(bodies(0, 2))


def test_other_file_formats_and_tables_are_written_by_spark(
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


def test_both_engines_write_the_same_rows_and_spark_counts_those_of_its_own(
    spark: "SparkSession", broker: Broker, tmp_path: Path
) -> None:
    topic = new_topic(broker)
    fill(broker, topic, bodies(0, 7), tags="paid")
    fill(broker, topic, bodies(7, 9), number=1)
    counted: list[int] = []

    class Listener(StreamingQueryListener):
        def onQueryStarted(self, event: object) -> None: ...

        def onQueryTerminated(self, event: object) -> None: ...

        def onQueryProgress(self, event: "QueryProgressEvent") -> None:
            counted.append(event.progress.numInputRows)

    spark.streams.addListener(listener := Listener())
    try:
        archive(spark, settings(broker, tmp_path / "spark", topic, max_messages=5))
        deadline = monotonic() + 30
        while sum(counted) < 9 and monotonic() < deadline:
            sleep(0.05)
    finally:
        spark.streams.removeListener(listener)
    archive(spark, settings(broker, tmp_path / "direct", topic, engine="direct"))

    by_spark, direct = (spark.read.parquet(str(tmp_path / engine)) for engine in ("spark", "direct"))
    assert sum(counted) == 9
    assert set(by_spark.columns) == {*(column.name for column in COLUMNS), "day"}
    assert sorted(by_spark.columns) == sorted(direct.columns)
    assert dict(by_spark.dtypes) == dict(direct.dtypes)
    flat = [name if name != "properties" else "to_json(properties) AS properties" for name in by_spark.columns]
    assert by_spark.selectExpr(*flat).exceptAll(direct.selectExpr(*flat)).isEmpty()
    assert by_spark.where("length(msgId) > 0 AND reconsumeTimes = 0 AND properties['said'] = keys").count() == 9
    spans = [ReadLake(tmp_path / engine).ranges_of() for engine in ("spark", "direct")]
    assert spans[0] == spans[1]


def test_a_checkpoint_of_the_other_engine_is_refused_and_a_new_one_continues(
    spark: "SparkSession", broker: Broker, tmp_path: Path
) -> None:
    topic, folder = new_topic(broker), tmp_path / "lake"
    fill(broker, topic, bodies(0, 3))
    archive(spark, settings(broker, folder, topic, engine="direct"))
    fill(broker, topic, bodies(3, 5))

    with pytest.raises(WrongState, match=r"belongs to archive of .* by --engine direct, not to .*another --checkpoint"):
        archive(spark, settings(broker, folder, topic))
    again = archive(spark, settings(broker, folder, topic, checkpoint=str(tmp_path / "second")))

    assert again.messages == 2
    assert values(spark, folder) == Counter(bodies(0, 5))


def test_the_direct_engine_writes_no_other_format(broker: Broker, tmp_path: Path) -> None:
    for other in ({"format": "orc"}, {"format": "delta"}, {"file_options": {"parquet.page.size": "4096"}}):
        with pytest.raises(InvalidSetting, match=r"--engine direct writes parquet.*use --engine spark"):
            check_archive(settings(broker, tmp_path / "lake", "orders", engine="direct", **other))


def test_the_plan_names_the_engine_and_its_limits(broker: Broker, tmp_path: Path) -> None:
    topic = new_topic(broker)

    by_spark, direct = (plan_archive(settings(broker, tmp_path, topic, engine=one)) for one in ("spark", "direct"))

    assert by_spark.sink.endswith("with --engine spark")
    assert direct.sink.endswith("with --engine direct")
    assert any("Spark's metrics do not count" in remark for remark in direct.remarks)


def test_a_folder_without_permission_is_refused(broker: Broker, tmp_path: Path) -> None:
    topic = new_topic(broker)

    for told in ({"lake": "/proc/lake"}, {"lake": "/proc/table", "format": "delta", "spark": {"spark.jars": "x.jar"}}):
        with pytest.raises(
            InvalidSetting, match=r"/proc/\w+ is not writable; use a folder in which this user may create"
        ):
            check_archive(settings(broker, tmp_path, topic, checkpoint=str(tmp_path / "notes"), **told))

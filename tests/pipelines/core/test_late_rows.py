"""Late rows are rows: split off by the watermark, also when a batch is run again."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

from pyspark.sql import functions

from pocketmq.errors import InvalidSetting, WrongState
from pocketmq.pipelines.core.rows import LateRows, span_ms
from pocketmq.pipelines.core.running import Run

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BATCHES = (["12:00:00", "12:05:00"], ["12:04:59", "11:49:59", "12:20:00"], ["12:09:59", "12:10:00", "12:10:01"])


def batch(spark: "SparkSession", times: list[str]) -> "DataFrame":
    rows = spark.createDataFrame([(f"2026-03-01 {time}",) for time in times], "at string")
    return rows.selectExpr("CAST(at AS timestamp) AS at")


def clock(rows: "DataFrame", column: str = "at") -> list[str]:
    return sorted(f"{row[0]:%H:%M:%S}" for row in rows.select(column).collect())


def test_rows_older_than_the_watermark_of_earlier_batches_are_late(spark: "SparkSession", tmp_path: Path) -> None:
    rows = LateRows(spark, str(tmp_path / "late"), event_time="at", delay="10 minutes")

    splits = [rows.split(batch(spark, times), number) for number, times in enumerate(BATCHES)]

    assert [clock(split.late) for split in splits] == [[], ["11:49:59"], ["12:09:59", "12:10:00"]]
    assert clock(splits[2].late, "watermark") == ["12:10:00", "12:10:00"]
    assert clock(splits[2].on_time) == ["12:10:01"]


def test_a_batch_repeated_after_a_restart_is_split_in_the_same_way(spark: "SparkSession", tmp_path: Path) -> None:
    def rows() -> LateRows:
        return LateRows(spark, str(tmp_path / "late"), event_time="at", delay="10 minutes")

    rows().split(batch(spark, BATCHES[0]), 0)
    first = rows().split(batch(spark, BATCHES[1]), 1)
    again = rows().split(batch(spark, BATCHES[1]), 1)

    assert clock(first.late) == clock(again.late) == ["11:49:59"]


def test_a_batch_without_rows_or_times_does_not_move_the_watermark(spark: "SparkSession", tmp_path: Path) -> None:
    rows = LateRows(spark, str(tmp_path / "late"), event_time="at")
    nothing = batch(spark, []).unionAll(spark.sql("SELECT CAST(NULL AS timestamp)"))

    rows.split(nothing, 0)
    rows.split(batch(spark, ["12:00:00"]), 1)
    split = rows.split(nothing, 2)

    assert (split.late.count(), split.on_time.count()) == (0, 1)


def test_with_a_window_exactly_the_rows_that_spark_would_drop_are_late(spark: "SparkSession", tmp_path: Path) -> None:
    batches = (*BATCHES, ["11:52:00"])
    rows = LateRows(spark, str(tmp_path / "late"), event_time="at", delay="10 minutes", window="5 minutes")
    late = []
    for number, times in enumerate(batches):
        batch(spark, times).coalesce(1).write.json(str(tmp_path / "in" / str(number)))
        late += clock(rows.split(batch(spark, times), number).late)
    stream = spark.readStream.schema("at timestamp").option("maxFilesPerTrigger", 1).json(f"{tmp_path}/in/*")

    grouped = stream.withWatermark("at", "10 minutes").groupBy(functions.window("at", "5 minutes")).count()
    query = (
        grouped.writeStream.format("memory")
        .queryName("windows")
        .outputMode("update")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    Run().follow(query)

    kept = spark.sql("SELECT sum(rows) FROM (SELECT window, max(count) AS rows FROM windows GROUP BY window)").collect()
    assert late == ["11:49:59", "12:09:59", "11:52:00"]
    assert kept[0][0] == sum(map(len, batches)) - 1  # Spark goes by the watermark of one batch before


def test_a_folder_of_another_checkpoint_is_refused(spark: "SparkSession", tmp_path: Path) -> None:
    with pytest.raises(WrongState, match="the latest event time of batch 6 is not saved"):
        LateRows(spark, str(tmp_path), event_time="at").split(batch(spark, []), 7)


@pytest.mark.parametrize(
    ("text", "ms"), [("30 seconds", 30_000), ("1 minute", 60_000), ("2 hours", 7_200_000), ("5 milliseconds", 5)]
)
def test_time_spans_have_the_form_of_spark(text: str, ms: int) -> None:
    assert span_ms(text, "delay") == ms


def test_an_invalid_time_span_is_refused() -> None:
    with pytest.raises(InvalidSetting, match="delay = 'soon' is not a time span"):
        span_ms("soon", "delay")

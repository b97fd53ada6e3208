"""Duplicate rows are dropped, rows without a key are all kept."""

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

from tests.pipelines.rows_kit import messages

from pocketmq.errors import InvalidSetting
from pocketmq.pipelines.core.rows import deduplicate, parse_json
from pocketmq.pipelines.core.running import Run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_in_a_batch_the_first_row_of_each_key_and_all_rows_without_a_key_are_kept(spark: "SparkSession") -> None:
    rows = parse_json(messages(spark, [{"id": n} for n in range(5)], ["a", "b", "a", None, None]), "id int").good

    found = deduplicate(rows)

    assert Counter(row["keys"] for row in found.select("message.keys").collect()) == Counter(["a", "b", None, None])
    assert found.columns == rows.columns


def test_in_a_stream_keys_are_known_across_batches_and_dropped_rows_are_counted(
    spark: "SparkSession", tmp_path: Path
) -> None:
    schema = "id string, at timestamp"
    source, sink = tmp_path / "in", tmp_path / "out"
    batches: list[list[str | None]] = [["a", "b"], ["b", "c", None, None]]
    for number, ids in enumerate(batches):
        rows = [(one, "2026-03-01 12:00:00") for one in ids]
        spark.createDataFrame(rows, "id string, at string").coalesce(1).write.json(str(source / str(number)))
    stream = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).json(f"{source}/*")

    query = (
        deduplicate(stream, "id", watermark="1 hour", event_time="at")
        .writeStream.format("parquet")
        .options(path=str(sink), checkpointLocation=str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    summary = Run().follow(query)

    found = spark.read.parquet(str(sink))
    assert Counter(row["id"] for row in found.collect()) == Counter(["a", "b", "c", None, None])
    assert found.columns == ["id", "at"]
    assert summary.duplicates == 1


def test_a_missing_column_is_named(spark: "SparkSession") -> None:
    with pytest.raises(InvalidSetting, match="the rows have no column 'order_id'"):
        deduplicate(spark.range(1), "order_id")
    with pytest.raises(InvalidSetting, match="needs keys"):
        deduplicate(spark.range(1), [])

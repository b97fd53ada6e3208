"""Where a commit is staged, and the general way to do it: Spark writes the files of a batch, and says which offsets came to lie in which.

For Parquet there is a quicker one: see `tasks`.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from pocketmq.files import Files
from pocketmq.model.queue import MessageQueue, QueueRange
from pocketmq.pipelines.archive.form import Form
from pocketmq.pipelines.archive.layout import final_path, partition_values
from pocketmq.pipelines.archive.manifest import DataFile, Span
from pocketmq.pipelines.archive.parquet_files import MAX_OPEN_FILES, Target
from pocketmq.pipelines.archive.publishing import staged_files, sync_staged
from pocketmq.pipelines.libraries import DataFrame, SparkSession, functions

OPEN_FILES: Final = "spark.sql.maxConcurrentOutputFileWriters"
"""With it Spark writes rows as they come, instead of sorting each task by folder first."""


class Place(NamedTuple):
    """Where the files of commit `number` are written before it is made."""

    folder: Path
    number: int
    form: Form
    files: Files

    def target(self, part: int = 0) -> Target:
        return Target(str(self.folder), self.number, self.form.slot, self.form.codec, part)


Stage = Callable[[Sequence[QueueRange], Place], tuple[DataFile, ...]]
"""Writes ranges below a place; the files as the manifest knows them, each safe on disk."""


def stage_rows(rows: DataFrame, place: Place) -> tuple[DataFile, ...]:
    """Write rows, which have the columns of the folders, by Spark."""
    spark, form = rows.sparkSession, place.form
    spark.conf.set(OPEN_FILES, str(MAX_OPEN_FILES))
    writer = rows.write.format(form.format).options(**form.writing).partitionBy(*form.slot.columns)
    writer.mode("overwrite").save(str(place.folder))
    names = staged_files(place.folder, place.files)
    if not names:
        return ()
    sync_staged(place.folder, names, place.files)
    found = _spans(spark, place.folder, form)
    return tuple(_data_file(place, name, found[_key(name, form)]) for name in names)


def read_files(spark: SparkSession, lake: Path, paths: Sequence[str], form: Form) -> DataFrame:
    """The rows of some files of a lake."""
    reader = spark.read.format(form.format).schema(form.schema).options(**form.options, basePath=str(lake))
    return reader.load([str(lake / path) for path in paths])


def _spans(spark: SparkSession, folder: Path, form: Form) -> dict[tuple[str, ...], list[Any]]:
    rows = spark.read.format(form.format).schema(form.schema).options(**form.options).load(str(folder))
    keys = [*form.slot.columns, "file"]
    millis = functions.unix_millis("storeTimestamp")
    grouped = (
        rows.withColumn("file", functions.col("_metadata.file_name"))
        .groupBy(*keys, "brokerName", "queueId")
        .agg(
            functions.min("queueOffset").alias("first"),
            functions.max("queueOffset").alias("last"),
            functions.count("*").alias("rows"),
            functions.min(millis).alias("firstMs"),
            functions.max(millis).alias("lastMs"),
        )
    )
    found: dict[tuple[str, ...], list[Any]] = {}
    for row in grouped.collect():
        found.setdefault(tuple(row[key] for key in keys), []).append(row)
    return found


def _key(path: str, form: Form) -> tuple[str, ...]:
    values = partition_values(path)
    return (*(values[name] for name in form.slot.columns), path.rpartition("/")[2])


def _data_file(place: Place, name: str, rows: Sequence[Any]) -> DataFile:
    topic = partition_values(name)["topic"]
    status = place.files.status(place.folder / name)
    assert status is not None, "it was listed a moment ago"
    spans = [
        Span(QueueRange(MessageQueue(topic, row.brokerName, row.queueId), row.first, row.last + 1), row.rows)
        for row in rows
    ]
    return DataFile(
        path=final_path(name, place.number),
        topic=topic,
        spans=tuple(sorted(spans)),
        bytes=status.size,
        first_store_ms=min(row.firstMs for row in rows),
        last_store_ms=max(row.lastMs for row in rows),
    )

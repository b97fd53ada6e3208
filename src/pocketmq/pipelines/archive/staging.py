"""Where a commit is staged, and the general way to do it: Spark writes the files of a batch, and says which offsets came to lie in which.

For Parquet there is a quicker one: see `stage_ranges`.

The last step of a commit, and what a run that was killed left behind.

    staging of a number that the manifest knows       not all has been moved: move it
    staging of a number that it does not know         a batch that was never finished: remove it

Everything here may be done again any number of times. Files that are replaced are removed before those that replace them appear:
who reads the folder in that moment misses messages for a moment, and never sees them twice.

The quick way of a commit: tasks pull ranges of queues, or read small files, and write Parquet themselves.

    driver    ranges ── plan_partitions ──► tasks                        ──► files of the commit
    task               pull ── decode ── parquet_files ── sync ──► what is in which file

One job of Spark for each commit, without a shuffle, and only descriptions of files come back. Whatever else Spark can write goes
through its own writers: see `stage_rows`.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from pocketmq.files import Files, files_below
from pocketmq.model.queue import MessageQueue, QueueRange
from pocketmq.pipelines.archive.form import (
    STAGING,
    Form,
    columns_of,
    final_path,
    is_data,
    padded,
    partition_values,
    staged_path,
    staging_of,
)
from pocketmq.pipelines.archive.manifest import Commit, DataFile, Span
from pocketmq.pipelines.archive.parquet_files import MAX_OPEN_FILES, Target, write_files
from pocketmq.pipelines.core.libraries import DataFrame, SparkSession, functions, parquet
from pocketmq.spark.arrow import arrow_schema, pa
from pocketmq.spark.options.read_options import ReadOptions
from pocketmq.spark.read.planning import ReadPartition, plan_partitions
from pocketmq.spark.read.range_reading import read_partition
from pocketmq.spark.schema import Name


def publish(lake: Path, commit: Commit, files: Files) -> None:
    """Let readers see what a commit says."""
    changed: set[Path] = set()
    for path in commit.removed:
        if files.status(lake / path) is not None:
            files.unlink(lake / path)
            changed.add((lake / path).parent)
    for file in commit.added:
        staged, final = lake / staged_path(file.path, commit.number), lake / file.path
        if files.status(staged) is not None:
            files.make_dir(final.parent)
            files.replace(staged, final)
            changed.add(final.parent)
    for folder in sorted(changed):
        files.sync_dir(folder)
    clear(lake / staging_of(commit.number), files)


def clear_unfinished(lake: Path, number: int, files: Files) -> list[str]:
    """Remove what was staged for commits after `number`, the last one that there is; its names."""
    unfinished = [name for name in files.list(lake / STAGING) if name > padded(number)]
    for name in unfinished:
        clear(lake / STAGING / name, files)
    return unfinished


def staged_files(folder: Path, files: Files) -> list[str]:
    """The data files below a staging folder, relative to it."""
    return [path.relative_to(folder).as_posix() for path in files_below(files, folder) if is_data(path.name)]


def sync_staged(folder: Path, names: list[str], files: Files) -> None:
    """Spark does not wait for the disk; who counts on a file has to."""
    for name in names:
        with files.open(folder / name, write=False) as file:
            file.sync()
    for parent in sorted({(folder / name).parent for name in names}):
        files.sync_dir(parent)


def clear(folder: Path, files: Files) -> None:
    """Remove a folder with all that is in it."""
    for name in files.list(folder):
        path = folder / name
        status = files.status(path)
        if status is not None and status.is_dir:
            clear(path, files)
        else:
            files.unlink(path)
    if files.status(folder) is not None:
        files.remove_dir(folder)


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


READ_ROWS: Final = 16_384
"""Rows that are read at once of a file that is made one with others."""

T = TypeVar("T")


class Pulling(NamedTuple):
    """A task: a part of a batch."""

    partition: ReadPartition
    target: Target


class Merging(NamedTuple):
    """A task: files of one folder that become one."""

    lake: str
    paths: tuple[str, ...]
    columns: tuple[Name, ...]
    target: Target


def stage_ranges(
    spark: SparkSession, options: ReadOptions, ranges: Sequence[QueueRange], place: Place
) -> tuple[DataFile, ...]:
    """Pull ranges and write them below the folder of a commit."""
    columns = columns_of(properties=options.include_properties)
    planned = plan_partitions(ranges, columns, options, cores=spark.sparkContext.defaultParallelism)
    return _run(spark, pull, [Pulling(partition, place.target(at)) for at, partition in enumerate(planned)])


def stage_merged(spark: SparkSession, lake: Path, paths: Sequence[str], place: Place) -> tuple[DataFile, ...]:
    """Write the rows of some files of a lake as one file of each folder."""
    columns = columns_of(properties=place.form.properties)
    return _run(spark, merge, [Merging(str(lake), tuple(paths), columns, place.target())])


def pull(task: Pulling) -> list[DataFile]:
    return write_files(read_partition(task.partition), task.target)


def merge(task: Merging) -> list[DataFile]:
    return write_files(_batches(task), task.target)


def _run(spark: SparkSession, do: Callable[[T], list[DataFile]], tasks: Sequence[T]) -> tuple[DataFile, ...]:
    return tuple(spark.sparkContext.parallelize(tasks, len(tasks)).flatMap(do).collect())


def _batches(task: Merging) -> Iterator[Any]:
    """The rows of files, with the columns of today whoever wrote them: Spark's times are of an older kind."""
    schema = arrow_schema(task.columns)
    for path in task.paths:
        topic = partition_values(path)["topic"]
        with parquet.ParquetFile(str(Path(task.lake, path)), coerce_int96_timestamp_unit="us") as file:
            for batch in file.iter_batches(READ_ROWS):
                yield pa.record_batch([_column(batch, field, topic) for field in schema], schema=schema)


def _column(batch: Any, field: Any, topic: str) -> Any:
    if field.name == Name.TOPIC:
        return pa.repeat(topic, batch.num_rows)
    if field.name not in batch.schema.names:  # a lake that kept no properties at first
        return pa.nulls(batch.num_rows, field.type)
    return batch.column(field.name).cast(field.type)

"""Stages and publishes commits.

    --engine spark     DataFrame of the batch ── Spark's writer ──► files ── a query over them ──► the offsets in each file
    --engine direct    ranges ── plan_partitions ── tasks: pull ── decode ── parquet_files ─────► the same

On the direct path tasks pull ranges, or read small files, and write Parquet themselves, in one Spark job without a shuffle. Only
descriptions of files return to the driver. Spark's metrics do not count these rows.

After a killed run:

    staging of a number that the manifest has        some files were not moved yet: move them
    staging of another number                        an unfinished batch: remove it

Every step can be repeated. When files are replaced, the old ones are removed before the new ones appear: a reader of the folder may
miss messages for a moment, but never sees them twice.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar
from urllib.parse import unquote

from pocketmq.files import NamedFiles, files_below
from pocketmq.model import MessageQueue, QueueRange
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
from pocketmq.pipelines.archive.hadoop import DISK, Location
from pocketmq.pipelines.archive.manifest import Commit, DataFile, Span
from pocketmq.pipelines.archive.parquet_files import MAX_OPEN_FILES, Target, write_files
from pocketmq.pipelines.core.libraries import DataFrame, SparkSession, Window, functions, parquet
from pocketmq.spark.arrow import arrow_schema, pa
from pocketmq.spark.options.read_options import ReadOptions
from pocketmq.spark.read.planning import ReadPartition, plan_partitions
from pocketmq.spark.read.range_reading import read_partition
from pocketmq.spark.schema import Name


def publish(lake: Path, commit: Commit, files: NamedFiles) -> None:
    """Make a commit visible to readers of the folder."""
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


def clear_unfinished(lake: Path, number: int, files: NamedFiles) -> list[str]:
    """Remove the staging folders of commits after `number`, the last commit; returns their names."""
    unfinished = [name for name in files.list(lake / STAGING) if name > padded(number)]
    for name in unfinished:
        clear(lake / STAGING / name, files)
    return unfinished


def staged_files(folder: Path, files: NamedFiles) -> list[str]:
    """The data files below a staging folder, relative to it."""
    return [path.relative_to(folder).as_posix() for path in files_below(files, folder) if is_data(path.name)]


def sync_staged(folder: Path, names: list[str], files: NamedFiles) -> None:
    """Sync staged files, as Spark does not."""
    for name in names:
        with files.open(folder / name, write=False) as file:
            file.sync()
    for parent in sorted({(folder / name).parent for name in names}):
        files.sync_dir(parent)


def clear(folder: Path, files: NamedFiles) -> None:
    """Remove a folder with its contents."""
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
"""With this setting Spark writes rows as they come, instead of sorting each task by folder first."""
TIMESTAMPS: Final = "spark.sql.parquet.outputTimestampType"
"""Spark's default is an old type, which has no statistics."""


class StagingFolder(NamedTuple):
    """The staging folder of commit `number`."""

    folder: Path
    number: int
    form: Form
    files: NamedFiles
    root: str = DISK
    """The file system, as a URI begins with it."""
    is_filtered: bool = True
    """Whether offsets may be missing between those of a file. Otherwise each gap is a loss, and ends a span."""

    @property
    def uri(self) -> str:
        return Location(self.folder, self.root, self.files).uri(self.folder)

    def target(self, part: int = 0) -> Target:
        return Target(str(self.folder), self.number, self.form.slot, self.form.codec, part, self.is_filtered)


_FILE: Final = "__file"
_RUN: Final = "__run"
"""The same for rows without a gap between their offsets."""

Stage = Callable[[Sequence[QueueRange], StagingFolder], tuple[DataFile, ...]]
"""Writes ranges below a staging folder; returns the entries for the manifest. Each file is synced."""


def stage_rows(rows: DataFrame, staging: StagingFolder) -> tuple[DataFile, ...]:
    """Write rows, which include the columns of the folders, with Spark."""
    spark, form = rows.sparkSession, staging.form
    spark.conf.set(OPEN_FILES, str(MAX_OPEN_FILES))
    spark.conf.set(TIMESTAMPS, "TIMESTAMP_MICROS")
    writer = rows.write.format(form.format).options(**form.writing).partitionBy(*form.folders)
    writer.mode("overwrite").save(staging.uri)
    names = staged_files(staging.folder, staging.files)
    if not names:
        return ()
    sync_staged(staging.folder, names, staging.files)
    found = _spans(spark, staging)
    return tuple(_data_file(staging, name, found[name]) for name in names)


def read_files(spark: SparkSession, lake: Location, paths: Sequence[str], form: Form) -> DataFrame:
    """The rows of some files of a lake."""
    reader = spark.read.format(form.format).schema(form.schema).options(**form.options, basePath=lake.uri(lake.folder))
    return reader.load([lake.uri(lake.folder / path) for path in paths])


def _spans(spark: SparkSession, staging: StagingFolder) -> dict[str, list[Any]]:
    """The offsets in each staged file, by its path below the staging folder."""
    form = staging.form
    rows = spark.read.format(form.format).schema(form.schema).options(**form.options).load(staging.uri)
    path = functions.col("_metadata.file_path").alias(_FILE)
    known = rows.select(path, "brokerName", "queueId", "queueOffset", "storeTimestamp")
    found = _extents(known)
    if not staging.is_filtered and any(row["rows"] <= row["last"] - row["first"] for row in found):
        order = Window.partitionBy(_FILE, "brokerName", "queueId").orderBy("queueOffset")
        found = _extents(
            known.withColumn(_RUN, functions.col("queueOffset") - functions.row_number().over(order)), _RUN
        )
    by_name: dict[str, list[Any]] = {}
    for row in found:
        name = unquote(row[_FILE]).rpartition(f"/{staging_of(staging.number)}/")[2]  # Spark shows it as a URI
        by_name.setdefault(name, []).append(row)
    return by_name


def _extents(rows: DataFrame, *more: str) -> list[Any]:
    grouped = rows.groupBy(_FILE, "brokerName", "queueId", *more).agg(
        functions.min("queueOffset").alias("first"),
        functions.max("queueOffset").alias("last"),
        functions.count("*").alias("rows"),
        functions.unix_millis(functions.min("storeTimestamp")).alias("firstMs"),
        functions.unix_millis(functions.max("storeTimestamp")).alias("lastMs"),
    )
    return list(grouped.collect())


def _data_file(staging: StagingFolder, name: str, rows: Sequence[Any]) -> DataFile:
    topic = partition_values(name)["topic"]
    status = staging.files.status(staging.folder / name)
    assert status is not None, "the file was listed a moment ago"
    spans = [
        Span(QueueRange(MessageQueue(topic, row.brokerName, row.queueId), row.first, row.last + 1), row.rows)
        for row in rows
    ]
    return DataFile(
        path=final_path(name, staging.number),
        topic=topic,
        spans=tuple(sorted(spans)),
        bytes=status.size,
        first_store_ms=min(row.firstMs for row in rows),
        last_store_ms=max(row.lastMs for row in rows),
    )


READ_ROWS: Final = 16_384
"""Rows that are read at once when files are merged."""

T = TypeVar("T")


class Pulling(NamedTuple):
    """A task that pulls a part of a batch."""

    partition: ReadPartition
    target: Target


class Merging(NamedTuple):
    """A task that merges files of one folder."""

    lake: str
    paths: tuple[str, ...]
    columns: tuple[Name, ...]
    target: Target


def stage_ranges(
    spark: SparkSession, options: ReadOptions, ranges: Sequence[QueueRange], staging: StagingFolder
) -> tuple[DataFile, ...]:
    """Pull ranges and write them to the staging folder of a commit."""
    columns = columns_of(properties=options.include_properties)
    planned = plan_partitions(ranges, columns, options, cores=spark.sparkContext.defaultParallelism)
    return _run(spark, pull, [Pulling(partition, staging.target(at)) for at, partition in enumerate(planned)])


def stage_merged(spark: SparkSession, lake: Path, paths: Sequence[str], staging: StagingFolder) -> tuple[DataFile, ...]:
    """Write the rows of some files of a lake as one file for each folder."""
    columns = columns_of(properties=staging.form.properties)
    return _run(spark, merge, [Merging(str(lake), tuple(paths), columns, staging.target())])


def pull(task: Pulling) -> list[DataFile]:
    return write_files(read_partition(task.partition), task.target)


def merge(task: Merging) -> list[DataFile]:
    return write_files(_batches(task), task.target)


def _run(spark: SparkSession, do: Callable[[T], list[DataFile]], tasks: Sequence[T]) -> tuple[DataFile, ...]:
    return tuple(spark.sparkContext.parallelize(tasks, len(tasks)).flatMap(do).collect())


def _batches(task: Merging) -> Iterator[Any]:
    """The rows of files, with the current columns. Spark writes an older timestamp type."""
    schema = arrow_schema(task.columns)
    for path in task.paths:
        topic = partition_values(path)["topic"]
        with parquet.ParquetFile(str(Path(task.lake, path)), coerce_int96_timestamp_unit="us") as file:
            for batch in file.iter_batches(READ_ROWS):
                yield pa.record_batch([_column(batch, field, topic) for field in schema], schema=schema)


def _column(batch: Any, field: Any, topic: str) -> Any:
    if field.name == Name.TOPIC:
        return pa.repeat(topic, batch.num_rows)
    if field.name not in batch.schema.names:  # written without properties
        return pa.nulls(batch.num_rows, field.type)
    return batch.column(field.name).cast(field.type)

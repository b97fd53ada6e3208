"""The quick way of a commit: tasks pull ranges of queues, or read small files, and write Parquet themselves.

    driver    ranges ── plan_partitions ──► tasks                        ──► files of the commit
    task               pull ── decode ── parquet_files ── sync ──► what is in which file

One job of Spark for each commit, without a shuffle, and only descriptions of files come back. Whatever else Spark can write goes
through its own writers: see `staging`.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from pocketmq.model.queue import QueueRange
from pocketmq.pipelines.archive.layout import partition_values
from pocketmq.pipelines.archive.manifest import DataFile
from pocketmq.pipelines.archive.parquet_files import Target, write_files
from pocketmq.pipelines.archive.rows import columns_of
from pocketmq.pipelines.archive.staging import Place
from pocketmq.pipelines.libraries import SparkSession, parquet
from pocketmq.spark.arrow_types import arrow_schema
from pocketmq.spark.libraries import pa
from pocketmq.spark.planning import ReadPartition, plan_partitions
from pocketmq.spark.range_reading import read_partition
from pocketmq.spark.read_options import ReadOptions
from pocketmq.spark.schema import Name

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

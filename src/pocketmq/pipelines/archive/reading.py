"""Reads a lake or a table: its messages, its files and their offsets, and what is missing.

lake      its manifest knows each file and its offsets; only a search for a key reads files
table     the records in its commits know the offsets of each commit; files are found by a query, for which Spark skips other files
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from pocketmq.errors import InvalidSetting, NotFound
from pocketmq.files import DiskFiles, NamedFiles
from pocketmq.model import MessageQueue, QueueRange
from pocketmq.pipelines.archive.contents import Missing, Record, explained, without
from pocketmq.pipelines.archive.form import Form, read_form
from pocketmq.pipelines.archive.formats import AsOf, Commit, TableFormat, state_as_of
from pocketmq.pipelines.archive.hadoop import located
from pocketmq.pipelines.archive.lake import within
from pocketmq.pipelines.archive.manifest import DataFile, Manifest, Span, read_manifest
from pocketmq.pipelines.archive.sinks import SinkSettings
from pocketmq.pipelines.archive.staging import read_files
from pocketmq.pipelines.archive.table import ONCE, Target
from pocketmq.pipelines.core.checkpoint import is_local, local_path
from pocketmq.pipelines.core.libraries import Column, DataFrame, SparkSession, Window, functions
from pocketmq.pipelines.core.running import Row, lost_row
from pocketmq.spark.schema import Name

_FILE: Final = "__file"
_QUEUE: Final = (Name.TOPIC, Name.BROKER_NAME, Name.QUEUE_ID)


class ReadLake:
    """The current state of a lake; NotFound if there is none. A lake on a file system of Hadoop needs `spark`."""

    def __init__(self, folder: Path | str, spark: SparkSession | None = None) -> None:
        self._location = located(str(folder), spark)
        files = self._location.files
        form = read_form(self._location.folder, files)
        if form is None:
            raise NotFound(f"{folder} is not a lake; `pocketmq pipeline archive --lake {folder}` creates one")
        self.form: Form = form
        self.manifest: Manifest = read_manifest(self._location.folder, files)

    def rows(self, spark: SparkSession, ranges: Sequence[QueueRange]) -> DataFrame:
        """The messages of these ranges, from the files that have them now."""
        wanted = [file.path for file in self.manifest.files.values() if _overlaps(file, ranges)]
        if not wanted:
            return spark.createDataFrame([], self.form.schema)
        return read_files(spark, self._location, wanted, self.form).where(within(ranges))

    @property
    def columns(self) -> list[str]:
        """The chosen columns of the rows; empty for all columns of the connector."""
        return list(self.form.columns)

    @property
    def topics(self) -> list[str]:
        return self.manifest.topics

    def ranges_between(self, topics: Iterable[str], start_ms: int, end_ms: int) -> list[QueueRange]:
        """One range for each queue, around the messages of these store times, by files."""
        files = (file for topic in topics for file in self.manifest.at_time(topic, start_ms, end_ms))
        return _around(span.range for file in files for span in file.spans)

    def with_key(self, spark: SparkSession, key: str, topics: Iterable[str]) -> list[Row]:
        """The files with messages of a key. It reads the keys of all messages of these topics."""
        rows = self.rows(spark, self.ranges_of(topics)).withColumn(_FILE, functions.col("_metadata.file_path"))
        return _files_of(rows.where(_has_key(rows, key)))

    def has_gaps(self, wanted: Sequence[QueueRange]) -> bool:
        """Whether files with some of these ranges have gaps between their offsets, as a filter left messages out."""
        return bool(self._with_gaps(wanted))

    def missing(self, wanted: Sequence[QueueRange], spark: SparkSession | None = None) -> list[Missing]:
        """The parts of ranges that are in no file, and why. The offsets of files with gaps are read, which needs `spark`."""
        gappy = self._with_gaps(wanted)
        whole = [span.range for file in self.manifest.files.values() for span in file.spans if span not in gappy]
        if not gappy:
            return explained(wanted, whole, self.manifest.ranges, self.manifest.lost, is_filtered=True)
        if spark is None:
            raise InvalidSetting("files of these ranges have gaps between their offsets, which only Spark can read")
        read = unbroken_ranges(self.rows(spark, [span.range for span in gappy]))
        return explained(wanted, [*whole, *read], self.manifest.ranges, self.manifest.lost, is_filtered=True)

    def _with_gaps(self, wanted: Sequence[QueueRange]) -> set[Span]:
        files = (file for file in self.manifest.files.values() if _overlaps(file, wanted))
        return {span for file in files for span in file.spans if span.rows < len(span.range)}

    def ranges_of(self, topics: Iterable[str] | None = None) -> list[QueueRange]:
        """The ranges in the lake, by queue. Those of a topic that was re-created since are one with the new ones."""
        chosen = None if topics is None else set(topics)
        joined: list[QueueRange] = []
        for one in sorted(self.manifest.ranges):
            if chosen is not None and one.queue.topic not in chosen:
                continue
            last = joined[-1] if joined else None
            if last is not None and last.queue == one.queue and one.start <= last.end:
                joined[-1] = QueueRange(one.queue, last.start, max(last.end, one.end))
            else:
                joined.append(one)
        return joined


def file_rows(files: Iterable[DataFile]) -> list[Row]:
    """Files as rows: one for each queue in each file."""
    return [
        {
            "file": file.path,
            "topic": file.topic,
            "broker": span.range.queue.broker_name,
            "queue": span.range.queue.queue_id,
            "start": span.range.start,
            "end": span.range.end,
            "messages": span.rows,
            "first_store_ms": file.first_store_ms,
            "last_store_ms": file.last_store_ms,
        }
        for file in files
        for span in file.spans
    ]


def lost_rows(manifest: Manifest | Record) -> list[Row]:
    """The ranges that were lost before they could be archived."""
    return [lost_row(lost) for lost in manifest.lost]


def lost_ranges(spark: SparkSession, folder: str) -> DataFrame:
    """The lost ranges of a lake as a DataFrame: topic, broker, queue, start, end, cause."""
    rows: list[Any] = [tuple(row.values()) for row in lost_rows(ReadLake(folder, spark).manifest)]
    return spark.createDataFrame(rows, "topic string, broker string, queue int, start bigint, end bigint, cause string")


def _overlaps(file: DataFile, ranges: Sequence[QueueRange]) -> bool:
    return any(
        span.range.queue == one.queue and span.range.start < one.end and one.start < span.range.end
        for span in file.spans
        for one in ranges
    )


class NamedLake(NamedTuple):
    """A lake or a table, by the name that a user gives. A lake of files has no `target`."""

    name: str
    settings: SinkSettings
    target: Target | None

    def session(self, spark: Mapping[str, str]) -> dict[str, str]:
        """The settings of Spark with which it can be read."""
        return self.settings.session(spark, is_remote=False) if self.target is not None else dict(spark)


def named_lake(name: str, kind: str = "", files: NamedFiles | None = None) -> NamedLake:
    """A lake or a table by its folder or its name. The files in a local folder say which format it has."""
    files, name = files or DiskFiles(), local_path(name)
    is_folder = "/" in name or (is_local(name) and files.status(Path(name)) is not None)
    kind = kind.lower() or (_format_in(Path(name), files) if is_folder and is_local(name) else "")
    if kind and kind not in ONCE:
        raise InvalidSetting(f"--format {kind}: only tables of {' and '.join(ONCE)} have records of offsets")
    if not kind:
        if not is_folder and "." in name:
            raise InvalidSetting(f"{name} may be a table: set --format to {' or '.join(ONCE)}")
        return NamedLake(name, SinkSettings(lake=name, format="parquet"), None)
    settings = SinkSettings(lake=name if is_folder else "", table="" if is_folder else name, format=kind)
    return NamedLake(name, settings, settings.target(()))


def _format_in(folder: Path, files: NamedFiles) -> str:
    names = set(files.list(folder)) if files.status(folder) is not None else set()
    return "delta" if "_delta_log" in names else "iceberg" if "metadata" in names else ""


class ReadTable:
    """A table of Delta or Iceberg, now or as of an earlier time; NotFound if there is none."""

    def __init__(self, spark: SparkSession, target: Target, as_of: AsOf | None = None) -> None:
        table = target.opened(spark)
        if table is None:
            raise InvalidSetting(f"{target} has no records of offsets: only tables of {' and '.join(ONCE)} have them")
        if not table.exists:
            raise NotFound(f"{target} does not exist; `pocketmq pipeline archive` creates one")
        self._spark = spark
        self._target = target
        self._as_of = as_of or AsOf()
        self.table: TableFormat = table
        self.record, self.at = table.state() if as_of is None else state_as_of(table, as_of)

    @property
    def columns(self) -> list[str]:
        return [name for name in self._all().columns if name != _FILE]

    @property
    def topics(self) -> list[str]:
        return self.record.topics

    def ranges_between(self, topics: Iterable[str], start_ms: int, end_ms: int) -> list[QueueRange]:
        """One range for each queue, around the messages of these store times."""
        rows = self._all(*_QUEUE, Name.QUEUE_OFFSET, Name.STORE_TIMESTAMP)
        stored, offset = functions.unix_millis(Name.STORE_TIMESTAMP), functions.col(Name.QUEUE_OFFSET)
        chosen = rows.where(functions.col(Name.TOPIC).isin(list(topics)) & (stored >= start_ms) & (stored < end_ms))
        ends = chosen.groupBy(*_QUEUE).agg(functions.min(offset).alias("first"), functions.max(offset).alias("last"))
        return sorted(
            QueueRange(MessageQueue(row.topic, row.brokerName, row.queueId), row.first, row.last + 1)
            for row in ends.collect()
        )

    def rows(self, ranges: Sequence[QueueRange]) -> DataFrame:
        """The rows of these ranges."""
        return self._all(*_QUEUE, Name.QUEUE_OFFSET).drop(_FILE).where(within(ranges))

    def ranges_of(self, topics: Iterable[str] | None = None) -> list[QueueRange]:
        """The ranges in the table, by queue."""
        chosen = None if topics is None else set(topics)
        return [one for one in self.record.ranges if chosen is None or one.queue.topic in chosen]

    def commits(self) -> list[Commit]:
        """The commits with a record, the newest first."""
        return [one for one in self.table.commits() if one.record is not None]

    def at_offset(
        self, topic: str | None, offset: int, *, broker: str | None = None, queue_id: int | None = None
    ) -> list[Row]:
        """The files that have the message at an offset, and the commits that added it."""
        rows = self._rows_of(topic)
        condition = functions.col(Name.QUEUE_OFFSET) == offset
        if broker is not None:
            condition &= (functions.col(Name.BROKER_NAME) == broker) & (functions.col(Name.QUEUE_ID) == queue_id)
        return self._with_commits(_files_of(rows.where(condition)))

    def with_key(self, topic: str | None, key: str) -> list[Row]:
        """The files with messages of a key. It reads the keys of all messages of the topic."""
        rows = self._rows_of(topic)
        return self._with_commits(_files_of(rows.where(_has_key(rows, key))))

    def at_time(self, topic: str | None, moment_ms: int) -> list[Row]:
        """The files with messages around a store time."""
        around = _files_of(self._rows_of(topic))
        return self._with_commits([row for row in around if row["first_store_ms"] <= moment_ms <= row["last_store_ms"]])

    def missing(self, wanted: Sequence[QueueRange]) -> list[Missing]:
        """The parts of ranges that have no row, and why. It reads the offsets of these ranges."""
        present, record = unbroken_ranges(self.rows(wanted)), self.record
        return explained(wanted, present, record.ranges, record.lost, is_filtered=record.is_filtered)

    def _rows_of(self, topic: str | None) -> DataFrame:
        rows = self._all(*_QUEUE, Name.QUEUE_OFFSET, Name.STORE_TIMESTAMP)
        return rows if topic is None else rows.where(functions.col(Name.TOPIC) == topic)

    def _all(self, *needed: str) -> DataFrame:
        name = self._target.sql_name
        self._spark.sql(f"REFRESH TABLE {name}")
        rows = self._spark.sql(f"SELECT *, {self.table.file} AS {_FILE} FROM {name}{self._as_of.sql}")  # noqa: S608 a table has no parameters
        _check_columns(rows, needed)
        return rows

    def _with_commits(self, rows: list[Row]) -> list[Row]:
        """Files with the commits that added their messages, which a compaction may have moved."""
        added = [(one.id, one.record.added_ranges) for one in self.commits() if one.record is not None]

        def commits(row: Row) -> str:
            part = QueueRange(MessageQueue(row["topic"], row["broker"], row["queue"]), row["start"], row["end"])
            return ", ".join(str(number) for number, ranges in added if without([part], ranges) != [part])

        return [{**row, "commit": commits(row)} for row in rows]


def unbroken_ranges(rows: DataFrame) -> list[QueueRange]:
    """The ranges of offsets without a gap that rows have, found by Spark."""
    offset = functions.col(Name.QUEUE_OFFSET)
    by_queue = Window.partitionBy(*_QUEUE).orderBy(Name.QUEUE_OFFSET)
    numbered = rows.select(*_QUEUE, Name.QUEUE_OFFSET).distinct()
    numbered = numbered.withColumn("block", offset - functions.row_number().over(by_queue))
    grouped = numbered.groupBy(*_QUEUE, "block").agg(
        functions.min(offset).alias("first"), functions.max(offset).alias("last")
    )
    return sorted(
        QueueRange(MessageQueue(row.topic, row.brokerName, row.queueId), row.first, row.last + 1)
        for row in grouped.collect()
    )


def _around(ranges: Iterable[QueueRange]) -> list[QueueRange]:
    """One range for each queue, around all of its ranges."""
    found: dict[MessageQueue, tuple[int, int]] = {}
    for one in ranges:
        low, high = found.get(one.queue, (one.start, one.end))
        found[one.queue] = (min(low, one.start), max(high, one.end))
    return [QueueRange(queue, *ends) for queue, ends in sorted(found.items())]


def _files_of(rows: DataFrame) -> list[Row]:
    """Files as `file_rows` returns them, of the rows that were found."""
    offset, millis = functions.col(Name.QUEUE_OFFSET), functions.unix_millis(Name.STORE_TIMESTAMP)
    grouped = rows.groupBy(_FILE, *_QUEUE).agg(
        functions.min(offset).alias("first"),
        functions.max(offset).alias("last"),
        functions.count("*").alias("messages"),
        functions.min(millis).alias("firstMs"),
        functions.max(millis).alias("lastMs"),
    )
    found: list[Row] = [
        {
            "file": row[_FILE],
            "topic": row.topic,
            "broker": row.brokerName,
            "queue": row.queueId,
            "start": row.first,
            "end": row.last + 1,
            "messages": row.messages,
            "first_store_ms": row.firstMs,
            "last_store_ms": row.lastMs,
        }
        for row in grouped.collect()
    ]
    return sorted(found, key=lambda row: (row["topic"], row["broker"], row["queue"], row["start"], row["file"]))


def _has_key(rows: DataFrame, key: str) -> Column:
    _check_columns(rows, [Name.KEYS])
    return functions.array_contains(functions.split(Name.KEYS, " "), key)


def _check_columns(rows: DataFrame, needed: Iterable[str]) -> None:
    if lacking := [name for name in needed if name not in rows.columns]:
        raise InvalidSetting(
            f"the rows have no column {lacking[0]}, as they were archived with other columns; only messages with it can be found"
        )

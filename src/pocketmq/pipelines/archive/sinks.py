"""Where messages are written: a lake of files with a manifest, or a table. `archive` and `backfill` share this.

    messages ── Shape: typed bodies, where, select ──► rows ──┬─► Lake.add     plain files, a manifest
                                  └─ bad ─► dead letters      └─► append       a table, or a format with commits of its own

All checks that a run makes can be made before it: those of `check_sink` without Spark, those of `examine_sink` with a session.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple, Protocol

import msgspec

from pocketmq.errors import InvalidSetting, NotFound, TopicNotFound, WrongState
from pocketmq.files import DiskFiles, may_write_in
from pocketmq.model import MessageQueue, QueueRange
from pocketmq.pipelines.archive.bodies import bodies_of
from pocketmq.pipelines.archive.form import (
    OFFSET_COLUMNS,
    Form,
    Slot,
    check_columns,
    check_form,
    check_format,
    joined_form,
    read_form,
)
from pocketmq.pipelines.archive.hadoop import check_folder, check_scheme, located
from pocketmq.pipelines.archive.lake import Batch, Lake, frame_stage, within
from pocketmq.pipelines.archive.manifest import Commit, DataFile
from pocketmq.pipelines.archive.shape import POSITION, Shape, ddl_columns
from pocketmq.pipelines.archive.staging import Stage, StagingFolder, stage_ranges
from pocketmq.pipelines.archive.table import ONCE, Target, add_batch, catalog_of, examined, prepare_table, table_in
from pocketmq.pipelines.core.checkpoint import is_classic, is_local
from pocketmq.pipelines.core.libraries import (
    SPARK_ERRORS,
    DataFrame,
    SparkSession,
    error_text,
    functions,
    pyspark_folder,
    pyspark_version,
)
from pocketmq.pipelines.core.plan import beginnings, ensure_topics
from pocketmq.pipelines.core.rows import write_dead_letters
from pocketmq.pipelines.core.sessions import with_library
from pocketmq.spark.options.read_options import ReadOptions

FILE_FORMATS: Final = ("parquet", "orc", "json", "avro")
"""Formats that Spark writes as plain files."""
AUTHORIZATION: Final = "SCHEMA_REGISTRY_AUTH"
"""The environment variable with `user:password` of a schema registry."""
NEEDS_DRIVER: Final = (
    "an archive keeps its manifest by Spark's driver, which --remote cannot reach; use --master, or --table, or a --format whose "
    "tables have commits of their own"
)


class SinkSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a sink, by the names of their flags."""

    lake: str = ""
    table: str = ""
    format: str = ""
    slot: Slot = Slot.DAY
    is_direct: bool = False
    options: dict[str, str] = {}
    properties: bool = True
    where: str | None = None
    select: Sequence[str] = ()
    partition_by: Sequence[str] = ()
    schema: str = ""
    dead_letters: str = ""
    topics: Sequence[str] = ()
    connection: Mapping[str, str] = {}
    """Connector options of the connection."""
    writing: Mapping[str, str] = {}
    """Connector options for dead letters."""

    @property
    def has_manifest(self) -> bool:
        return not self.table and self.format in FILE_FORMATS

    @property
    def is_shaped(self) -> bool:
        return bool(self.where or self.select or self.partition_by or self.schema)

    @property
    def form(self) -> Form:
        """The form of a lake, without chosen columns: only Spark knows their types."""
        return Form(
            format=self.format,
            slot=self.slot,
            properties=self.properties,
            options=self.options,
            partitions=tuple(self.partition_by),
        )

    @property
    def needs_spark(self) -> bool:
        """Whether a dry run needs Spark to find all mistakes."""
        return self.is_shaped or bool(self.table) or not is_local(self.lake) or self.format not in FILE_FORMATS[:3]

    def shape(self) -> Shape:
        kept = (*POSITION, *self.slot.columns[1:]) if self.has_manifest else ()
        return Shape(
            self.slot,
            properties=self.properties,
            where=self.where,
            select=self.select,
            partitions=self.partition_by,
            bodies=bodies_of(self.schema, DiskFiles(), os.environ.get(AUTHORIZATION)) if self.schema else None,
            kept=kept,
        )

    def target(self, names: Sequence[str]) -> Target:
        """The table. `names` are the columns of the rows."""
        has_default = bool(self.table) or self.format.lower() in ONCE  # other formats may not have partitions
        partitions = self.partition_by or [name for name in self.slot.columns if has_default and name in names]
        if self.is_iceberg_folder:
            return Target("iceberg", table_in(self.lake), "", partitions, self.options)
        return Target(self.format, self.table, self.lake if not self.table else "", partitions, self.options)

    @property
    def is_iceberg_folder(self) -> bool:
        """Whether the lake is an Iceberg table in a folder."""
        return not self.table and self.format.lower() == "iceberg"

    def session(self, spark: Mapping[str, str], *, is_remote: bool) -> dict[str, str]:
        """Settings of Spark with those that the format needs; InvalidSetting if this Spark cannot have the format."""
        if is_remote or self.is_direct:
            return dict(spark)
        settings = with_library(self.format, spark, pyspark_version(), DiskFiles().list(pyspark_folder() / "jars"))
        return {**catalog_of(self.lake), **settings} if self.is_iceberg_folder else settings

    def __str__(self) -> str:
        if self.table:
            return f"the table {self.table}"
        by = (
            ", ".join((self.slot, *self.partition_by))
            if self.has_manifest
            else ", ".join(self.partition_by) or self.slot
        )
        return f"{self.format} files in {self.lake}, by topic and {by}"


def check_sink(sink: SinkSettings, spark: Mapping[str, str], *, is_remote: bool) -> None:
    """InvalidSetting for mistakes that can be found without Spark."""
    if bool(sink.table) == bool(sink.lake):
        raise InvalidSetting("set either --lake FOLDER or --table CATALOG.DB.NAME")
    if bool(sink.schema) != bool(sink.dead_letters):
        raise InvalidSetting(
            "--schema needs --dead-letters TOPIC, for messages whose bodies do not fit"
            if sink.schema
            else "--dead-letters has no effect without --schema, which defines valid bodies"
        )
    if sink.dead_letters in sink.topics:
        raise InvalidSetting(
            f"topic {sink.dead_letters!r} is both read and written; use another topic for --dead-letters"
        )
    if sink.is_direct:
        _check_direct(sink)
    if sink.table:
        return
    if sink.is_iceberg_folder:
        check_scheme(sink.lake)
    if not sink.is_shaped:
        check_columns(sink.format, properties=sink.properties)
    if sink.has_manifest:
        if is_remote:
            raise InvalidSetting(NEEDS_DRIVER)
        if twice := [name for name in sink.partition_by if sink.form.folders.count(name) > 1]:
            raise InvalidSetting(
                f"--partition-by {twice[0]}: the folders of the lake have this column already: {', '.join(sink.slot.columns)}"
            )
        check_scheme(sink.lake)
        if is_local(sink.lake):
            check_form(sink.lake, sink.form, DiskFiles())
    elif is_local(sink.lake) and not is_remote and not may_write_in(Path(sink.lake)):
        raise InvalidSetting(f"--lake {sink.lake} is not writable; use a folder in which this user may create files")
    if not is_remote:
        check_format(sink.format, spark)


def examine_sink(spark: SparkSession, sink: SinkSettings, checkpoint: str) -> tuple[str, ...]:
    """Find the mistakes that only Spark can find, without changing anything. Returns what else a plan should say."""
    if sink.has_manifest and not is_classic(spark):
        raise InvalidSetting(NEEDS_DRIVER)
    schema = sink.shape().schema(spark)
    if not sink.table and not sink.is_iceberg_folder:
        _check_known(spark, sink)
    check_folder(spark, "--checkpoint", checkpoint)
    if sink.has_manifest:
        location = located(sink.lake, spark)
        joined_form(location.folder, _full_form(sink, spark), location.files)
        return ()
    found = examined(spark, sink.target(schema.names), schema)
    remarks = [f"{found.target}: {found.target.guarantee}"] if found.target.format else []
    if found.target.name and found.known is None:
        remarks.append(f"{found.target} does not exist, and will be created with {', '.join(schema.names)}")
    elif found.missing:
        added = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in found.missing)
        remarks.append(f"{found.target} gets new columns: {added}")
    return tuple(remarks)


class Sink(Protocol):
    """Takes batches of messages."""

    def add(self, messages: DataFrame, batch: Batch) -> Sequence[Commit]:
        """Write a batch, unless it was written before. Returns the commits of a lake."""


class LakeSink(NamedTuple):
    """Writes batches to a lake."""

    lake: Lake
    settings: SinkSettings
    shape: Shape
    writer: str
    reading: ReadOptions | None = None
    """How tasks read, with --engine direct."""

    def add(self, messages: DataFrame, batch: Batch) -> Sequence[Commit]:
        if self.reading is not None:
            stage: Stage = partial(stage_ranges, messages.sparkSession, self.reading)
            return self.lake.add(batch, self._checked(stage))
        with shaped(messages, self.shape, self.settings, self.writer, batch.number) as rows:
            whole = batch._replace(is_filtered=batch.is_filtered or self.shape.may_omit)
            return self.lake.add(whole, self._checked(frame_stage(rows, batch.ranges)))

    def _checked(self, stage: Stage) -> Stage:
        """Stages without queues that are shorter than planned, as they were re-created; WrongState if one is re-created meanwhile.

        Its new messages may have been read in place of the planned ones, and the next batch reads them again.
        """
        connection = self.settings.connection

        def checked(wanted: Sequence[QueueRange], staging: StagingFolder) -> tuple[DataFile, ...]:
            before = beginnings(connection, wanted)
            kept = [one for one in wanted if before[one.queue].end >= one.end]
            files = _staged(stage, kept, staging) if kept else ()
            after = beginnings(connection, kept)
            if changed := [one for one in kept if after[one.queue].is_another_than(before[one.queue], one.end)]:
                raise WrongState(
                    f"the topic of {changed[0].queue} was deleted or re-created while the batch was read: nothing of the batch was "
                    "written; run the pipeline again"
                )
            return files

        return checked


class TableSink(NamedTuple):
    """Appends batches to a table. It is sent to the server with Spark Connect, so it has values only."""

    target: Target
    settings: SinkSettings
    shape: Shape
    writer: str

    def add(self, messages: DataFrame, batch: Batch) -> Sequence[Commit]:
        is_filtered = batch.is_filtered or self.shape.may_omit
        known = batch._replace(query=batch.query or self.writer, is_filtered=is_filtered)
        if not batch.ranges and not batch.lost and self.target.format.lower() in ONCE:
            known = known._replace(ranges=ranges_in(messages, self.shape.offset_columns))

        @contextmanager
        def made(wanted: Sequence[QueueRange]) -> Iterator[DataFrame]:
            whole = list(wanted) == list(known.ranges)
            chosen = messages if whole else messages.where(within(wanted, self.shape.offset_columns))
            own = chosen.drop(*self.shape.added_columns)
            with shaped(own, self.shape, self.settings, self.writer, batch.number) as rows:
                yield rows

        add_batch(messages.sparkSession, self.target, known, made)
        return ()


def ranges_in(messages: DataFrame, offset_columns: Sequence[str] = OFFSET_COLUMNS) -> tuple[QueueRange, ...]:
    """The ranges of a batch that was planned behind Spark Connect, which reads it once more."""
    *queue, offset = map(functions.col, offset_columns)
    rows = messages.groupBy(*queue).agg(functions.min(offset), functions.max(offset)).collect()
    return tuple(
        QueueRange(MessageQueue(topic, broker, queue_id), first, last + 1)
        for topic, broker, queue_id, first, last in rows
    )


def open_lake(spark: SparkSession, sink: SinkSettings, **more: object) -> Lake:
    """The lake of a sink, for writing."""
    form = _full_form(sink, spark) if sink.is_shaped else sink.form
    return Lake(located(sink.lake, spark), form, is_direct=sink.is_direct, **more)  # type: ignore[arg-type]


def compact_lake(spark: SparkSession, folder: str, *, aim_bytes: int, at_least: int) -> dict[str, int]:
    """Merge small files of a lake; what was done, by name. NotFound if there is no lake."""
    location = located(folder, spark)
    form = read_form(location.folder, location.files)
    if form is None:
        raise NotFound(f"{folder} is not a lake; `pocketmq pipeline archive --lake {folder}` creates one")
    with Lake(location, form) as lake:
        done = lake.compact(spark, aim_bytes=aim_bytes, at_least=at_least)
    removed, added = (
        sum(len(part) for part in parts) for parts in ([one.removed for one in done], [one.added for one in done])
    )
    return {"files_removed": removed, "files_written": added}


def table_sink(spark: SparkSession, sink: SinkSettings, writer: str) -> TableSink:
    """The table of a sink, which exists then, with all columns of the rows."""
    shape = sink.shape()
    schema = shape.schema(spark)
    target = prepare_table(spark, sink.target(schema.names), schema)
    return TableSink(target, sink, shape._replace(has_offsets=target.format.lower() in ONCE), writer)


@contextmanager
def shaped(messages: DataFrame, shape: Shape, sink: SinkSettings, writer: str, number: int) -> Iterator[DataFrame]:
    """The rows of what `Shape.prepared` returned. With a schema, bad messages are dead letters before; messages are kept until then."""
    if not sink.schema:
        yield messages
        return
    typed = shape.typed(messages).persist()
    try:
        rows, bad = shape.split(typed)
        if bad is not None and bad.count():
            write_dead_letters(bad, sink.dead_letters, options=sink.writing, write_id=f"{writer}-dead", batch=number)
        yield rows
    finally:
        typed.unpersist()


def ensure_dead_letters(sink: SinkSettings) -> None:
    if sink.dead_letters:
        ensure_topics(sink.connection, [sink.dead_letters])


def _check_direct(sink: SinkSettings) -> None:
    if sink.table or not is_local(sink.lake):
        raise InvalidSetting("--engine direct writes to a local or mounted --lake; use --engine spark")
    if sink.is_shaped:
        raise InvalidSetting(
            "--engine direct writes messages unchanged, without --select, --where, --schema and --partition-by; use --engine spark"
        )
    sink.form.check_tasks()


def _check_known(spark: SparkSession, sink: SinkSettings) -> None:
    """InvalidSetting for a path that this user may not write to, and for a format that Spark cannot load."""
    check_folder(spark, "--lake", sink.lake)
    try:
        spark.read.format(sink.format).schema("a int").load(sink.lake)
    except SPARK_ERRORS as error:
        if any(word in str(error) for word in ("DATA_SOURCE_NOT_FOUND", "Failed to find", "ClassNotFoundException")):
            raise InvalidSetting(
                f"--format {sink.format}: Spark does not find it: {error_text(error)}. Its library is set by "
                "--spark spark.jars.packages=…"
            ) from None


def _full_form(sink: SinkSettings, spark: SparkSession) -> Form:
    shape = sink.shape()
    if shape.is_plain:
        return sink.form
    return msgspec.structs.replace(sink.form, columns=ddl_columns(shape.schema(spark)))


def _staged(stage: Stage, wanted: Sequence[QueueRange], staging: StagingFolder) -> tuple[DataFile, ...]:
    try:
        return stage(wanted, staging)
    except SPARK_ERRORS as error:
        if "TOPIC_NOT_EXIST" in str(error):
            raise TopicNotFound(
                f"a topic of the batch was deleted, or its brokers are away: {error_text(error)}. If it was deleted, create it again, or "
                "continue without it with a new --checkpoint, which begins where the lake ends"
            ) from None
        raise

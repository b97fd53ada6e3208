"""`pocketmq pipeline cdc`: the changes of a database table, from a topic into a table of Delta or Iceberg.

    topic ── readStream ── batch ── Envelope.changes ── typed ──┬─ good ─► delete markers, MERGE with the offsets of the batch
                                                                └─ bad ──► dead letters; without --dead-letters the run fails

The first batch creates the table, with the columns of its changes; later ones add columns. A property of the table has the keys, the
kind and the database, so that a run with others is refused.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from pocketmq.errors import InvalidSetting, PipelineFailed
from pocketmq.files import DiskFiles
from pocketmq.model import QueueRange
from pocketmq.pipelines.archive.bodies import AvroFactory, AvroOfRegistry, DecodedBodies, JsonBodies, bodies_of
from pocketmq.pipelines.archive.contents import Record
from pocketmq.pipelines.archive.form import OFFSET_COLUMNS
from pocketmq.pipelines.archive.formats import TableFormat, properties, set_property
from pocketmq.pipelines.archive.hadoop import check_folder
from pocketmq.pipelines.archive.job import offsets_file, planned_batch, reading_from
from pocketmq.pipelines.archive.lake import Batch, within
from pocketmq.pipelines.archive.sinks import AUTHORIZATION, SinkSettings, check_sink
from pocketmq.pipelines.archive.table import ONCE, Target, add_batch, examined, found_table, made_table
from pocketmq.pipelines.cdc.changes import (
    CONNECTOR,
    DELETE,
    MESSAGE,
    OP,
    OWN,
    REASON,
    SNAPSHOT,
    SNAPSHOT_AT,
    Counts,
    Envelope,
    counted,
    with_positions,
)
from pocketmq.pipelines.cdc.columns import Layout, check_names, layouts_of, of_avro, typed_by
from pocketmq.pipelines.cdc.merging import Deletions, Kind, Merge, added_fields
from pocketmq.pipelines.core.checkpoint import Owner, check_owner, local_path, owned
from pocketmq.pipelines.core.libraries import DataFrame, SparkSession, types
from pocketmq.pipelines.core.libraries import functions as f
from pocketmq.pipelines.core.plan import Plan, ensure_topics, require_topics, stream_queues
from pocketmq.pipelines.core.rows import REASON as DEAD_REASON
from pocketmq.pipelines.core.rows import write_dead_letters
from pocketmq.pipelines.core.running import Run, Summary, lost_row
from pocketmq.pipelines.core.settings import Duration, Job, StreamSettings, check_used, of_writes
from pocketmq.spark.schema import Name
from pocketmq.spark.source import spark_schema

NAME: Final = "cdc"
MESSAGES_PER_S: Final = 10_000
SNAPSHOT_PROPERTY: Final = "pocketmq.cdc.snapshot"
"""The property of a table with the position of the last snapshot in the log of the database."""


class CdcSettings(StreamSettings, frozen=True, kw_only=True, rename="kebab"):
    """The settings of `cdc`."""

    keys: Annotated[
        list[str],
        Meta(min_length=1, description="A column that identifies a row, as in the database; may be repeated."),
    ]
    table: Annotated[str, Meta(description="A table of a catalog of Spark, for example catalog.db.orders.")] = ""
    lake: Annotated[
        str,
        Meta(description="The folder of the table, instead of --table. --path is the same.", extra={"more": ["path"]}),
    ] = ""
    format: Annotated[
        str,
        Meta(description="delta or iceberg, whose libraries are added.  [default: for --table that of its catalog]"),
    ] = ""
    scd: Annotated[
        int,
        Meta(
            ge=1, le=2, description="1: each row as in the database. 2: each version of a row, and when it was valid."
        ),
    ] = 1
    schema: Annotated[
        str,
        Meta(
            description="The types of some columns, as 'amount decimal(20,4)'; or, for bodies in Avro, the subject of a schema registry "
            "as http://host:8081/subjects/shop-orders-value."
        ),
    ] = ""
    partition_by: Annotated[
        list[str], Meta(description="A column for the partitions of a new table; may be repeated.")
    ] = msgspec.field(default_factory=list)
    dead_letters: Annotated[
        str, Meta(description="The topic for messages that are no change.  [default: such a message fails the run]")
    ] = ""
    keep_deletes: Annotated[
        Duration, Meta(description="How long keys of deleted rows are kept, for changes that arrive late.")
    ] = Duration(7 * 24 * 3_600_000)
    max_messages: Annotated[int, Meta(ge=1, description="Maximum number of messages in a batch.")] = 250_000

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "lake", local_path(self.lake))
        msgspec.structs.force_setattr(self, "checkpoint", local_path(self.checkpoint))

    @property
    def sink(self) -> SinkSettings:
        return SinkSettings(lake=self.lake, table=self.table, format=self.format, partition_by=self.partition_by)

    @property
    def target(self) -> Target:
        return self.sink.target(())

    @property
    def session(self) -> dict[str, str]:
        return self.sink.session(self.spark, is_remote=self.remote is not None)

    @property
    def owner(self) -> Owner:
        return Owner(pipeline=NAME, topics=tuple(self.topics), sink=str(self.target))

    @property
    def writing(self) -> dict[str, str]:
        return of_writes(self.options, self.address) if self.dead_letters else {}

    @property
    def columns(self) -> tuple[Name, ...]:
        """The columns to read. Dead letters need all."""
        return tuple(Name) if self.dead_letters else (*OFFSET_COLUMNS, Name.KEYS, Name.VALUE)

    @property
    def is_avro(self) -> bool:
        return self.schema.startswith(("http://", "https://")) or self.schema.endswith(".avsc")

    @property
    def types(self) -> dict[str, str]:
        """The types that the user chose, by columns in small letters."""
        if not self.schema or self.is_avro:
            return {}
        bodies = bodies_of(self.schema, DiskFiles())
        if not isinstance(bodies, JsonBodies):
            raise InvalidSetting(f"--schema {self.schema}: expected types of columns, or a subject or file of Avro")
        return {field.name.lower(): field.dataType.simpleString() for field in bodies.schema.fields}


def check_cdc(settings: CdcSettings) -> None:
    """Find the mistakes that can be found without Spark."""
    _ = settings.read_options
    check_used(settings.options, settings.reading, settings.writing)
    if settings.remote is not None:
        raise InvalidSetting("cdc runs with --master, not with --remote")
    if len(settings.topics) != 1:
        raise InvalidSetting("a table has the rows of one topic: start a pipeline for each topic")
    if not settings.table and settings.format.lower() not in ONCE:
        raise InvalidSetting("--lake needs --format delta or iceberg: other formats have no MERGE")
    if settings.format and settings.format.lower() not in ONCE:
        raise InvalidSetting(f"--format {settings.format} has no MERGE: use delta or iceberg")
    if settings.dead_letters in settings.topics:
        raise InvalidSetting(
            f"topic {settings.dead_letters!r} is both read and written; use another topic for --dead-letters"
        )
    check_sink(settings.sink, settings.session, is_remote=False)
    check_owner(settings.checkpoint, settings.owner)
    _ = settings.types
    require_topics(settings.connection, settings.topics)


def examine_cdc(spark: SparkSession, settings: CdcSettings) -> tuple[str, ...]:
    """Find the mistakes that only Spark can find, without changing anything. Returns what else a plan should say."""
    if settings.lake:
        check_folder(spark, "--lake", settings.lake)
    check_folder(spark, "--checkpoint", settings.checkpoint)
    target, known, _ = found_table(spark, settings.target)
    if settings.is_avro:
        _ = _avro(settings)
    if known is None and not target.format:
        raise InvalidSetting(
            f"{target} does not exist: choose its --format, delta or iceberg, so that it can be created"
        )
    if known is None:
        return (f"{target} does not exist: the first batch creates it, with the columns of its changes",)
    if target.format.lower() not in ONCE:
        raise InvalidSetting(
            f"{target} has the format {target.format}, which has no MERGE: use a table of delta or iceberg"
        )
    names = {name.lower() for name in known.names}
    if lacking := [key for key in settings.keys if key.lower() not in names]:
        raise InvalidSetting(
            f"{target} has no column {lacking[0]}, which --keys names; it has {', '.join(known.names)}"
        )
    Kind(tuple(settings.keys), settings.scd).check(spark, target)
    return ()


def plan_cdc(settings: CdcSettings) -> Plan:
    """The plan of a run."""
    queues, begins = stream_queues(settings.reading, settings.checkpoint, DiskFiles())
    bad = f"go to the topic {settings.dead_letters}" if settings.dead_letters else "fail the run"
    return Plan(
        pipeline=NAME,
        source=f"the topic {settings.topics[0]} at {settings.namesrv}",
        sink=f"{settings.target}, {Kind(tuple(settings.keys), settings.scd)}",
        queues=queues,
        begins=f"{begins}; with a new checkpoint, behind the offsets that the table has",
        options={**settings.reading, "checkpointLocation": settings.checkpoint},
        remarks=(f"messages that are no change of Debezium {bad}",),
        messages_per_s=MESSAGES_PER_S,
    )


def run_cdc(spark: SparkSession, settings: CdcSettings, run: Run) -> Summary:
    """Merge all available changes, or continue until stopped."""
    check_cdc(settings)
    examine_cdc(spark, settings)
    if settings.dead_letters:
        ensure_topics(settings.connection, [settings.dead_letters])
    with owned(spark, settings.checkpoint, settings.owner) as writer, offsets_file(spark, settings) as offsets:
        sink = ChangeSink(settings, writer)
        Deletions.beside(settings.target, settings.keys).forget(spark, run.clock.now_ms() - settings.keep_deletes)
        before = _record(spark, settings)
        more = {} if offsets is None else {"batchFile": str(offsets)}
        options = {**reading_from(settings, before.starts()), **more}
        reader = spark.readStream.format("rocketmq").schema(spark_schema(settings.columns))
        stream = reader.options(**options).load()
        assert offsets is not None, "Spark's driver is in this process"

        def add(messages: DataFrame, number: int) -> None:
            sink.add(messages, planned_batch(messages, number, offsets, settings.is_filtered))

        writing = stream.writeStream.foreachBatch(add).queryName(NAME)
        started = writing.option("checkpointLocation", settings.checkpoint).trigger(**run.trigger).start()
        summary = run.follow(started)
        after = _record(spark, settings)
        return msgspec.structs.replace(
            summary, lost=tuple(map(lost_row, after.lost[len(before.lost) :])), facts=sink.facts()
        )


def _record(spark: SparkSession, settings: CdcSettings) -> Record:
    target = found_table(spark, settings.target).target
    table = target.opened(spark)
    return Record() if table is None or not table.exists else table.state().record


def _avro(settings: CdcSettings) -> tuple[DecodedBodies, str]:
    """The bodies, and their newest schema in a registry."""
    found = bodies_of(settings.schema, DiskFiles(), os.environ.get(AUTHORIZATION))
    if not isinstance(found, DecodedBodies) or not isinstance(found.decoder, AvroFactory | AvroOfRegistry):
        raise InvalidSetting(f"--schema {settings.schema}: changes can be read as JSON and as Avro")
    return found, found.decoder.text


class ChangeSink:
    """Merges batches of messages into a table."""

    def __init__(self, settings: CdcSettings, writer: str) -> None:
        self._settings = settings
        self._writer = writer
        self._counted: dict[str, int] = {}

    def facts(self) -> dict[str, Any]:
        """What was merged, for the summary."""
        return {**self._counted, "written_to": str(self._settings.target)}

    def add(self, messages: DataFrame, batch: Batch) -> None:
        """Merge a batch, unless the table has it already."""
        spark = messages.sparkSession

        @contextmanager
        def made(wanted: Sequence[QueueRange]) -> Iterator[DataFrame]:
            yield messages if list(wanted) == list(batch.ranges) else messages.where(within(wanted))

        def write(table: TableFormat, chosen: DataFrame, record: Record, at: int | None) -> bool:
            return self._merged(table, chosen, record, batch.number)

        target = found_table(spark, self._settings.target).target
        add_batch(spark, target, batch, made, write)

    def _merged(self, table: TableFormat, messages: DataFrame, record: Record, number: int) -> bool:
        decoded = messages
        envelope = Envelope(self._settings.keys)
        if self._settings.is_avro:
            bodies, schema = _avro(self._settings)
            decoded, envelope = bodies.typed(messages), envelope._replace(schema=of_avro(schema))
        whole = envelope.changes(decoded)
        changes = whole.drop(MESSAGE).persist()
        try:
            return self._merged_changes(table, whole, changes, record, number)
        finally:
            changes.unpersist()

    def _merged_changes(
        self, table: TableFormat, whole: DataFrame, changes: DataFrame, record: Record, number: int
    ) -> bool:
        """`changes` are those of `whole`, without their messages, kept in memory."""
        spark, settings = changes.sparkSession, self._settings
        found, known = counted(changes), found_table(spark, settings.target).known
        snapshot_at = found.snapshot_at
        if known is not None:
            snapshot_at = max(snapshot_at, properties(spark, settings.target.sql_name).get(SNAPSHOT_PROPERTY, ""))
        layouts = layouts_of(changes, found, known, settings.types, str(settings.target))
        if not layouts:
            if found.bad:
                self._sort_out(whole, [], number)
            return known is None or table.append(spark.table(settings.target.sql_name).limit(0), record, None)
        for layout in layouts:
            check_names(layout.fields, settings.keys, [field.name for field in added_fields(settings.scd)])
        rows = typed_by(with_positions(changes, snapshot_at), layouts, settings.keys).persist()
        try:
            by_operation = dict(map(tuple, rows.groupBy(f.when(f.col(REASON).isNull(), f.col(OP))).count().collect()))
            if found.bad or by_operation.pop(None, 0):
                self._sort_out(whole, layouts, number)
            good = rows.where(f.col(REASON).isNull()).drop(REASON, CONNECTOR, SNAPSHOT_AT)
            target = self._prepared(good, found)
            has = {"has_unchanged": found.has_unchanged, "has_deletions": DELETE in by_operation}
            if not Merge(target, settings.keys, settings.scd).run(table, good, record, **has):
                return False
        finally:
            rows.unpersist()
        for operation, many in by_operation.items():
            name = WORDS[operation]
            self._counted[name] = self._counted.get(name, 0) + many
        return True

    def _prepared(self, rows: DataFrame, found: Counts) -> Target:
        """The table, which exists then, with all columns of the rows."""
        spark, settings = rows.sparkSession, self._settings
        if len(found.connectors) > 1:
            raise PipelineFailed(
                f"the topic has changes of {' and '.join(found.connectors)}, whose positions cannot be compared; use a topic for each"
            )
        own = [field for field in rows.schema.fields if field.name not in OWN]
        schema = types.StructType([*own, *added_fields(settings.scd)])
        if lacking := [name for name in settings.partition_by if name not in schema.names]:
            raise InvalidSetting(f"--partition-by {lacking[0]}: the changes have no such column")
        kind = Kind(tuple(settings.keys), settings.scd, *found.connectors)
        examination = examined(spark, settings.target, schema)
        is_known = examination.known is not None and kind.check(spark, examination.target)
        target = made_table(spark, examination, schema)
        if not is_known:
            kind.keep(spark, target)
        if found.snapshot_at > properties(spark, target.sql_name).get(SNAPSHOT_PROPERTY, ""):
            set_property(spark, target.sql_name, SNAPSHOT_PROPERTY, found.snapshot_at)
        return target

    def _sort_out(self, whole: DataFrame, layouts: Sequence[Layout], number: int) -> None:
        """Send messages that are no change to the dead letters; without such a topic PipelineFailed for the first one."""
        bad = whole.where(f.col(REASON).isNotNull()).select(f"{MESSAGE}.*", f.col(REASON).alias(DEAD_REASON))
        if layouts:
            rows = typed_by(whole, layouts, self._settings.keys).where(f.col(REASON).isNotNull())
            bad = bad.unionByName(rows.select(f"{MESSAGE}.*", f.col(REASON).alias(DEAD_REASON)))
        if not self._settings.dead_letters:
            one = bad.orderBy(Name.BROKER_NAME, Name.QUEUE_ID, Name.QUEUE_OFFSET).limit(1).collect()[0]
            raise PipelineFailed(
                f"the message at offset {one.queueOffset} of queue {one.queueId} of {one.topic} at {one.brokerName} cannot be merged: "
                f"{one.reason}. Nothing of the batch was written; --dead-letters TOPIC sends such messages to a topic instead"
            )
        write_dead_letters(
            bad,
            self._settings.dead_letters,
            options=self._settings.writing,
            write_id=f"{self._writer}-dead",
            batch=number,
        )


WORDS: Final = {SNAPSHOT: "rows_of_snapshots", "c": "rows_created", "u": "rows_updated", DELETE: "rows_deleted"}

CDC: Final = Job(
    name=NAME,
    summary="Merge the changes of a database table, as Debezium sends them, into a table.",
    settings=CdcSettings,
    plan=plan_cdc,
    run=run_cdc,
    description=(
        "The table is the same as in the database after each batch, in any order of messages: a row keeps the position of its last "
        "change. Each run continues where the last one ended, by the offsets in the table."
    ),
    check=check_cdc,
    examine=lambda settings: lambda spark: examine_cdc(spark, settings),
)

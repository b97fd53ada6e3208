"""`pocketmq pipeline backfill`: copies a range of topics to a topic or to a lake.

topics, since … until or offsets ── pieces ──┬─► a topic, each message once
                                             └─► a lake or a table, as `archive` writes them
"""

import os
from contextlib import ExitStack
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from pocketmq.errors import InvalidSetting
from pocketmq.pipelines.archive.form import Slot
from pocketmq.pipelines.archive.lake import Batch
from pocketmq.pipelines.archive.settings import (
    DEAD_LETTERS,
    FORMAT,
    LAKE,
    PARTITION_BY,
    SCHEMA,
    TABLE,
    Engine,
    Slots,
    known_format,
)
from pocketmq.pipelines.archive.sinks import (
    LakeSink,
    SinkSettings,
    TableSink,
    check_sink,
    ensure_dead_letters,
    examine_sink,
    open_lake,
    table_sink,
)
from pocketmq.pipelines.core.checkpoint import Owner, check_owner, is_local, local_path, owned, state_files
from pocketmq.pipelines.core.libraries import SparkSession
from pocketmq.pipelines.core.plan import Plan, batch_queues, ranges_of, require_topics
from pocketmq.pipelines.core.running import Run, Summary
from pocketmq.pipelines.core.settings import Examination, Job, check_used, of_reads, of_writes
from pocketmq.pipelines.jobs.resending import (
    Do,
    Piece,
    SendingSettings,
    check_reading,
    check_target,
    read_piece,
    run_pieces,
    send_piece,
)
from pocketmq.spark.options.read_options import ReadOptions, parse_read_options


class BackfillSettings(SendingSettings, frozen=True, kw_only=True, rename="kebab"):
    """The settings of a backfill."""

    topics: Annotated[
        list[str], Meta(min_length=1, description="A topic to read; may be repeated.", extra={"flag": "topic"})
    ]
    starting_offsets: Annotated[
        str | None,
        Meta(description='Start at offsets, as JSON: {"orders":{"broker-a":{"0":100}}}; -2 is the earliest.'),
    ] = None
    ending_offsets: Annotated[str | None, Meta(description="End before offsets, as JSON; -1 is the latest.")] = None
    lake: Annotated[str, LAKE] = ""
    table: Annotated[str, TABLE] = ""
    slot: Annotated[Slots, Meta(description="With --lake: one folder for each day, or each hour.")] = "day"
    format: Annotated[str, FORMAT] = ""
    engine: Annotated[Engine, Meta(description="With --lake: as for `archive`.")] = "spark"
    partition_by: Annotated[list[str], PARTITION_BY] = msgspec.field(default_factory=list)
    schema: Annotated[str, SCHEMA] = ""
    dead_letters: Annotated[str, DEAD_LETTERS] = ""

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "format", known_format(self.format, self.table))
        msgspec.structs.force_setattr(self, "lake", local_path(self.lake))
        msgspec.structs.force_setattr(self, "checkpoint", local_path(self.checkpoint))

    @property
    def reading(self) -> dict[str, str]:
        """Options for a read of the whole range."""
        offsets = {"startingOffsets": self.starting_offsets, "endingOffsets": self.ending_offsets}
        own = {
            "subscribe": ",".join(self.topics),
            "onDataLoss": self.on_data_loss,
            **self.times,
            **{name: text for name, text in offsets.items() if text is not None},
            **self.address,
        }
        return of_reads(self.options, own)

    @property
    def sink(self) -> SinkSettings:
        """The lake or the table."""
        return SinkSettings(
            lake=self.lake,
            table=self.table,
            format=self.format,
            slot=Slot(self.slot),
            is_direct=self.engine == "direct",
            where=self.where,
            select=self.select,
            partition_by=self.partition_by,
            schema=self.schema,
            dead_letters=self.dead_letters,
            topics=self.topics,
            connection=self.connection,
            writing=of_writes(self.options, self.address) if self.dead_letters else {},
        )

    @property
    def session(self) -> dict[str, str]:
        return self.spark if self.to else self.sink.session(self.spark, is_remote=self.remote is not None)

    @property
    def target(self) -> str:
        return f"the topic {self.to}" if self.to else str(self.sink)

    @property
    def owner(self) -> Owner:
        return Owner(pipeline="backfill", topics=tuple(self.topics), sink=self.target)


def check_backfill(settings: BackfillSettings) -> None:
    _check(settings)
    if settings.remote is None:
        check_owner(settings.checkpoint, settings.owner)
    require_topics(settings.connection, settings.topics)
    check_reading(settings.reading, settings)
    check_target(settings)
    check_used(settings.options, settings.reading, settings.writing("", 0) if settings.to or settings.schema else {})


def run_backfill(spark: SparkSession, settings: BackfillSettings, run: Run) -> Summary:
    """Write the range, or the rest of it."""
    _check(settings)
    check_target(settings)
    if not settings.to:
        examine_sink(spark, settings.sink, settings.checkpoint)
        ensure_dead_letters(settings.sink)
    with owned(spark, settings.checkpoint, settings.owner) as name, ExitStack() as leave:
        do = _to_topic(spark, settings, name) if settings.to else _to_sink(spark, settings, name, leave)
        state = state_files(spark, settings.checkpoint)
        return run_pieces(
            "backfill", state, lambda: settings.pieces(ranges_of(settings.reading)), do, run, settings.rate
        )


def examination(settings: BackfillSettings) -> Examination | None:
    """The part of a dry run that needs Spark, if any."""
    sink, checkpoint = settings.sink, settings.checkpoint
    needs_spark = not settings.to and (sink.needs_spark or not is_local(checkpoint))
    return (lambda spark: examine_sink(spark, sink, checkpoint)) if needs_spark else None


def plan_backfill(settings: BackfillSettings) -> Plan:
    """The plan of a new backfill."""
    _check(settings)
    return Plan(
        pipeline="backfill",
        source=f"topics {', '.join(settings.topics)} at {settings.namesrv}",
        sink=settings.target,
        queues=batch_queues(settings.reading),
        begins="with the first message of the range, unless the checkpoint has finished pieces",
        options=settings.reading,
        remarks=settings.plan_remarks if settings.to else (),
        messages_per_s=settings.messages_per_s,
    )


def _check(settings: BackfillSettings) -> None:
    settings.check_times()
    if sum(map(bool, (settings.to, settings.lake, settings.table))) != 1:
        raise InvalidSetting("set one target: --to TOPIC, --lake FOLDER or --table CATALOG.DB.NAME")
    if settings.to in settings.topics:
        raise InvalidSetting(f"topic {settings.to!r} cannot be both source and target; use another --to")
    if not settings.to:
        check_sink(settings.sink, settings.session, is_remote=settings.remote is not None)
    elif settings.schema or settings.partition_by or settings.dead_letters:
        raise InvalidSetting("--schema, --dead-letters and --partition-by only apply to --lake and --table")


def _to_topic(spark: SparkSession, settings: BackfillSettings, name: str) -> Do:
    def do(piece: Piece) -> int:
        return send_piece(read_piece(spark, settings, piece), settings, name, piece.number)

    return do


def _to_sink(spark: SparkSession, settings: BackfillSettings, name: str, leave: ExitStack) -> Do:
    chosen = settings.sink
    if not chosen.has_manifest:
        sink: LakeSink | TableSink = table_sink(spark, chosen, name)
    else:
        lake = leave.enter_context(open_lake(spark, chosen))
        sink = LakeSink(lake, chosen, chosen.shape(), name)

    columns = sink.shape.columns(spark)

    def do(piece: Piece) -> int:
        batch = Batch(name, piece.number, tuple(piece.ranges), is_filtered=settings.is_filtered)
        written = (
            sink
            if not chosen.is_direct or not isinstance(sink, LakeSink)
            else sink._replace(reading=_reading(settings, piece))
        )
        commits = written.add(sink.shape.prepared(read_piece(spark, settings, piece, columns)), batch)
        if not chosen.has_manifest:
            return sum(map(len, piece.ranges))
        return sum(file.rows for commit in commits for file in commit.added)

    return do


def _reading(settings: BackfillSettings, piece: Piece) -> ReadOptions:
    return parse_read_options(
        settings.reading_ranges(piece.ranges, piece.partitions), streaming=False, environ=os.environ
    )


BACKFILL: Final = Job(
    name="backfill",
    summary="Copy a range of topics, by time or offsets, to a topic, a lake or a table.",
    settings=BackfillSettings,
    plan=plan_backfill,
    run=run_backfill,
    description=(
        "The range is fixed at the start. To continue a stopped or killed run, use the same --checkpoint: every message is "
        "written once."
    ),
    check=check_backfill,
    examine=examination,
)

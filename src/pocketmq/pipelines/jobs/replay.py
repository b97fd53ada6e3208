"""`pocketmq pipeline replay`: sends messages of a lake, a topic or dead letters again.

    lake or table ──────┐
    %DLQ%group ─────────┼── where ── select ── at a limited rate ──► the topic of --to, or the original topic of each message
    dead-letter topic ──┘

A lake is read by offsets and not by files, so a compaction between two runs has no effect. Only Spark reads one on a file system of
Hadoop, and a table, which can also be read as it was before.
"""

from typing import Annotated, Final

import msgspec
from msgspec import Meta

from pocketmq.clock import SystemClock
from pocketmq.errors import InvalidSetting
from pocketmq.model import DLQ_PREFIX, QueueRange
from pocketmq.model.human import parse_time, time_ms
from pocketmq.pipelines.archive.form import OFFSET_COLUMNS
from pocketmq.pipelines.archive.formats import AsOf
from pocketmq.pipelines.archive.hadoop import check_scheme
from pocketmq.pipelines.archive.reading import NamedLake, ReadLake, ReadTable, named_lake
from pocketmq.pipelines.core.checkpoint import Owner, StateFiles, check_owner, is_local, local_path, owned, state_files
from pocketmq.pipelines.core.libraries import DataFrame, SparkSession, functions
from pocketmq.pipelines.core.plan import Plan, QueuePlan, batch_queues, ranges_of, require_topics
from pocketmq.pipelines.core.running import Run, Summary
from pocketmq.pipelines.core.settings import Examination, Job, check_used, of_reads
from pocketmq.pipelines.jobs.resending import (
    Piece,
    SendingSettings,
    check_reading,
    check_target,
    read_piece,
    run_pieces,
    send_piece,
)
from pocketmq.spark.schema import Name

_LATEST: Final = 2**62
_AS_OF: Final = "as-of"
"""The state with the commit that --as-of meant."""


class ReplaySettings(SendingSettings, frozen=True, kw_only=True, rename="kebab"):
    """The settings of a replay."""

    lake: Annotated[
        str | None,
        Meta(
            description="Replay from a lake that archive wrote, or from a table of Delta or Iceberg by its folder or name. --table "
            "is the same.",
            extra={"more": ["table"]},
        ),
    ] = None
    format: Annotated[str, Meta(description="delta or iceberg, for a table by its name.")] = ""
    as_of: Annotated[
        str,
        Meta(
            description="Read a table as it was: a version of Delta, a snapshot of Iceberg, or a time: 2026-03-01T12:00, or 2h for 2 "
            "hours ago.",
            extra={"word": "WHEN"},
        ),
    ] = ""
    dlq: Annotated[str | None, Meta(description="Replay the dead letters of this consumer group.")] = None
    topics: Annotated[
        list[str],
        Meta(
            description="A topic of the lake, or a dead-letter topic of a pipeline; may be repeated.",
            extra={"flag": "topic"},
        ),
    ] = msgspec.field(default_factory=list)

    def __post_init__(self) -> None:
        for name in ("lake", "checkpoint"):
            if getattr(self, name):
                msgspec.structs.force_setattr(self, name, local_path(getattr(self, name)))

    @property
    def is_far(self) -> bool:
        """Whether only Spark can read the lake: it is on a file system of Hadoop."""
        return bool(self.lake) and not self.is_table and not is_local(self.lake or "")

    @property
    def sources(self) -> list[str]:
        """The topics to read, unless the source is a lake."""
        return [f"{DLQ_PREFIX}{self.dlq}"] if self.dlq else self.topics

    @property
    def reading(self) -> dict[str, str]:
        own = {"subscribe": ",".join(self.sources), "onDataLoss": self.on_data_loss, **self.times, **self.address}
        return of_reads(self.options, own)

    @property
    def named(self) -> NamedLake:
        return named_lake(self.lake or "", self.format)

    @property
    def moment(self) -> AsOf | None:
        """The commit or the time of --as-of."""
        if not self.as_of:
            return None
        if self.as_of.isdecimal():
            return AsOf(commit=int(self.as_of))
        return AsOf(ms=time_ms(parse_time(self.as_of), SystemClock().now_ms()))

    @property
    def session(self) -> dict[str, str]:
        return self.named.session(self.spark) if self.lake and self.remote is None else self.spark

    @property
    def is_table(self) -> bool:
        return bool(self.lake) and self.named.target is not None

    @property
    def needs_spark(self) -> bool:
        """Whether only Spark knows what there is to send."""
        return self.is_far or self.is_table

    @property
    def source(self) -> str:
        if self.lake:
            as_of = f" as of {self.as_of}" if self.as_of else ""
            return f"the lake {self.lake}{as_of}" + (f", topics {', '.join(self.topics)}" if self.topics else "")
        return f"dead letters of the group {self.dlq}" if self.dlq else f"topics {', '.join(self.topics)}"

    @property
    def sink(self) -> str:
        return f"the topic {self.to}" if self.to else "the topic of each message"

    @property
    def owner(self) -> Owner:
        return Owner(pipeline="replay", topics=(self.source,), sink=self.sink)


def check_replay(settings: ReplaySettings) -> None:
    _check(settings)
    if settings.remote is None:
        check_owner(settings.checkpoint, settings.owner)
    if settings.is_table:
        _ = settings.session
    elif settings.is_far:
        check_scheme(settings.lake or "")
    elif settings.lake:
        lake_ranges(settings, opened(settings, None))
    else:
        require_topics(settings.connection, settings.sources)
        check_reading(settings.reading, settings)
    check_target(settings)
    check_used(settings.options, settings.writing("", 0), {} if settings.lake else settings.reading)


def run_replay(spark: SparkSession, settings: ReplaySettings, run: Run) -> Summary:
    """Send the messages, or the rest of them."""
    _check(settings)
    check_target(settings)

    with owned(spark, settings.checkpoint, settings.owner) as name:
        state = state_files(spark, settings.checkpoint)
        # A table once: others may write to it. A lake for each piece: a compaction may replace its files.
        table = opened(_with_commit(spark, settings, state), spark) if settings.is_table else None

        def do(piece: Piece) -> int:
            if not settings.lake:
                return send_piece(read_piece(spark, settings, piece), settings, name, piece.number)
            rows = _messages(spark, settings, piece, table or opened(settings, spark))
            return send_piece(rows, settings, name, piece.number)

        return run_pieces(
            "replay",
            state,
            lambda: settings.pieces(
                lake_ranges(settings, table or opened(settings, spark))
                if settings.lake
                else ranges_of(settings.reading)
            ),
            do,
            run,
            settings.rate,
        )


def _with_commit(spark: SparkSession, settings: ReplaySettings, state: StateFiles) -> ReplaySettings:
    """The settings with the commit that --as-of meant when the first run started: a time may be counted from now."""
    if not settings.as_of:
        return settings
    commit = state.read(_AS_OF)
    if commit is None:
        table = opened(settings, spark)
        assert isinstance(table, ReadTable), "--as-of is for tables"
        commit = str(table.at)
        state.write(_AS_OF, commit)
    return msgspec.structs.replace(settings, as_of=commit)


def plan_replay(settings: ReplaySettings) -> Plan:
    """The plan of a new replay."""
    _check(settings)
    filters = {"where": settings.where or "", "select": ", ".join(settings.select), "rate": str(settings.rate or "")}
    return Plan(
        pipeline="replay",
        source=f"{settings.source} at {settings.namesrv}",
        sink=settings.sink,
        queues=_queues(settings),
        begins="with the oldest message, unless the checkpoint has finished pieces",
        options={**settings.connection, **{name: text for name, text in filters.items() if text}},
        remarks=settings.plan_remarks,
        messages_per_s=settings.messages_per_s,
    )


def _check(settings: ReplaySettings) -> None:
    settings.check_times()
    if settings.lake and settings.dlq:
        raise InvalidSetting("--lake and --dlq exclude one another; run one replay for each")
    if settings.dlq and settings.topics:
        raise InvalidSetting("--dlq already names the topic to read; remove --topic, and use --to for another target")
    if not (settings.lake or settings.dlq or settings.topics):
        raise InvalidSetting("no source is set: use --lake FOLDER, --dlq GROUP or --topic NAME")
    if (settings.format or settings.as_of) and not settings.lake:
        raise InvalidSetting("--format and --as-of are for tables; set --lake or --table")
    if settings.as_of and not settings.is_table:
        raise InvalidSetting(f"--as-of needs a table of Delta or Iceberg; {settings.lake} is a lake of files")
    _ = settings.moment
    if not settings.lake and settings.to in settings.sources:
        raise InvalidSetting(f"topic {settings.to!r} cannot be both source and target; use another --to")


def examination(settings: ReplaySettings) -> Examination | None:
    """The part of a dry run that needs Spark, if any."""

    def examine(spark: SparkSession) -> tuple[str, ...]:
        count = sum(map(len, lake_ranges(settings, opened(settings, spark))))
        return (f"the {'table' if settings.is_table else 'lake'} has {count:,} messages to send",)

    return examine if settings.needs_spark else None


def opened(settings: ReplaySettings, spark: SparkSession | None) -> ReadLake | ReadTable:
    """The lake or the table. A table, and a lake on a file system of Hadoop, need Spark."""
    named = settings.named
    if named.target is None:
        return ReadLake(named.name, spark)
    assert spark is not None, "a table is opened when the pipeline runs"
    return ReadTable(spark, named.target, settings.moment)


def lake_ranges(settings: ReplaySettings, lake: ReadLake | ReadTable) -> list[QueueRange]:
    """The ranges in the lake, by topics and times."""
    if lake.columns and Name.VALUE not in lake.columns and not settings.select:
        raise InvalidSetting(
            f"the lake has no column value, as it was archived with other columns: {', '.join(lake.columns)}; make the body by "
            "--select '… AS value'"
        )
    if unknown := sorted(set(settings.topics) - set(lake.topics)):
        raise InvalidSetting(f"the lake has no topic {unknown[0]!r}; its topics are {', '.join(lake.topics)}")
    topics = settings.topics or lake.topics
    if settings.since is None and settings.until is None:
        return lake.ranges_of(topics)
    return lake.ranges_between(topics, settings.since or 0, settings.until or _LATEST)


def _messages(spark: SparkSession, settings: ReplaySettings, piece: Piece, lake: ReadLake | ReadTable) -> DataFrame:
    rows = lake.rows(spark, piece.ranges) if isinstance(lake, ReadLake) else lake.rows(piece.ranges)
    stored = functions.unix_millis("storeTimestamp")
    if settings.since is not None:
        rows = rows.where(stored >= settings.since)
    if settings.until is not None:
        rows = rows.where(stored < settings.until)
    # By queue, whatever the files: a piece that is run again must have the same rows in each partition.
    queue, order = (
        OFFSET_COLUMNS[:3],
        [name for name in (*OFFSET_COLUMNS, Name.STORE_TIMESTAMP) if name in rows.columns],
    )
    return rows.repartition(piece.partitions, *queue).sortWithinPartitions(*order)


def _queues(settings: ReplaySettings) -> tuple[QueuePlan, ...]:
    """What is to be sent. Only Spark knows what a table has, and a lake on a file system of Hadoop."""
    if settings.needs_spark:
        return ()
    if not settings.lake:
        return batch_queues(settings.reading)
    return tuple(
        QueuePlan(
            topic=one.queue.topic, broker=one.queue.broker_name, queue=one.queue.queue_id, start=one.start, end=one.end
        )
        for one in lake_ranges(settings, opened(settings, None))
    )


REPLAY: Final = Job(
    name="replay",
    summary="Send messages of a lake, or dead letters, to topics again.",
    settings=ReplaySettings,
    plan=plan_replay,
    run=run_replay,
    description=(
        "The messages are fixed at the start. To continue a stopped or killed run, use the same --checkpoint: every message is "
        "sent once."
    ),
    check=check_replay,
    examine=examination,
)

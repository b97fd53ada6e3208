"""`pocketmq pipeline replay`: sends messages of a lake, a topic or dead letters again.

    lake ───────────────┐
    %DLQ%group ─────────┼── where ── select ── at a limited rate ──► the topic of --to, or the original topic of each message
    dead-letter topic ──┘

A lake is read by offsets and not by files, so a compaction between two runs has no effect. Only Spark reads one on
a file system of Hadoop.
"""

from collections.abc import Sequence
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from pocketmq.errors import InvalidSetting
from pocketmq.model import DLQ_PREFIX, MessageQueue, QueueRange
from pocketmq.pipelines.archive.hadoop import check_scheme
from pocketmq.pipelines.archive.manifest import DataFile
from pocketmq.pipelines.archive.reading import ReadLake
from pocketmq.pipelines.core.checkpoint import Owner, check_owner, is_local, local_path, owned, state_files
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


class ReplaySettings(SendingSettings, frozen=True, kw_only=True, rename="kebab"):
    """The settings of a replay."""

    lake: Annotated[str | None, Meta(description="Replay from a lake that archive wrote.")] = None
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
        """Whether only Spark can read the lake."""
        return bool(self.lake) and not is_local(self.lake or "")

    @property
    def sources(self) -> list[str]:
        """The topics to read, unless the source is a lake."""
        return [f"{DLQ_PREFIX}{self.dlq}"] if self.dlq else self.topics

    @property
    def reading(self) -> dict[str, str]:
        own = {"subscribe": ",".join(self.sources), "onDataLoss": self.on_data_loss, **self.times, **self.address}
        return of_reads(self.options, own)

    @property
    def source(self) -> str:
        if self.lake:
            return f"the lake {self.lake}" + (f", topics {', '.join(self.topics)}" if self.topics else "")
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
    if settings.is_far:
        check_scheme(settings.lake or "")
    elif settings.lake:
        lake_ranges(settings)
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

        def do(piece: Piece) -> int:
            return send_piece(_messages(spark, settings, piece), settings, name, piece.number)

        return run_pieces(
            "replay",
            state_files(spark, settings.checkpoint),
            lambda: settings.pieces(lake_ranges(settings, spark) if settings.lake else ranges_of(settings.reading)),
            do,
            run,
            settings.rate,
        )


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
    if not settings.lake and settings.to in settings.sources:
        raise InvalidSetting(f"topic {settings.to!r} cannot be both source and target; use another --to")


def examination(settings: ReplaySettings) -> Examination | None:
    """The part of a dry run that needs Spark, if any."""

    def examine(spark: SparkSession) -> tuple[str, ...]:
        count = sum(map(len, lake_ranges(settings, spark)))
        return (f"the lake has {count:,} messages to send",)

    return examine if settings.is_far else None


def lake_ranges(settings: ReplaySettings, spark: SparkSession | None = None) -> list[QueueRange]:
    """The ranges in the lake, by topics and times."""
    lake = ReadLake(settings.lake or "", spark)
    if lake.form.columns and Name.VALUE not in lake.form.columns and not settings.select:
        raise InvalidSetting(
            f"the lake has no column value, as it was archived with other columns: {', '.join(lake.form.columns)}; make the body by "
            "--select '… AS value'"
        )
    if unknown := sorted(set(settings.topics) - set(lake.manifest.topics)):
        raise InvalidSetting(f"the lake has no topic {unknown[0]!r}; its topics are {', '.join(lake.manifest.topics)}")
    topics = settings.topics or lake.manifest.topics
    if settings.since is None and settings.until is None:
        return lake.ranges_of(topics)
    start, end = settings.since or 0, settings.until or _LATEST
    return _ranges_of([file for topic in topics for file in lake.manifest.at_time(topic, start, end)])


def _ranges_of(files: Sequence[DataFile]) -> list[QueueRange]:
    """One range for each queue, around all ranges in these files."""
    found: dict[MessageQueue, tuple[int, int]] = {}
    for span in (span for file in files for span in file.spans):
        low, high = found.get(span.range.queue, (span.range.start, span.range.end))
        found[span.range.queue] = (min(low, span.range.start), max(high, span.range.end))
    return [QueueRange(queue, *ends) for queue, ends in sorted(found.items())]


def _messages(spark: SparkSession, settings: ReplaySettings, piece: Piece) -> DataFrame:
    if not settings.lake:
        return read_piece(spark, settings, piece)
    rows = ReadLake(settings.lake, spark).rows(spark, piece.ranges)
    stored = functions.unix_millis("storeTimestamp")
    if settings.since is not None:
        rows = rows.where(stored >= settings.since)
    if settings.until is not None:
        rows = rows.where(stored < settings.until)
    # By queue, whatever the files: a piece that is run again must have the same rows in each partition.
    queue = ["topic", "brokerName", "queueId"]
    return rows.repartition(piece.partitions, *queue).sortWithinPartitions(*queue, "queueOffset", "storeTimestamp")


def _queues(settings: ReplaySettings) -> tuple[QueuePlan, ...]:
    """What is to be sent. Only Spark knows what a lake on a file system of Hadoop has."""
    if not settings.lake:
        return batch_queues(settings.reading)
    return tuple(
        QueuePlan(
            topic=one.queue.topic, broker=one.queue.broker_name, queue=one.queue.queue_id, start=one.start, end=one.end
        )
        for one in ([] if settings.is_far else lake_ranges(settings))
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

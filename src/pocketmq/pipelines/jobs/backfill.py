"""`pocketmq pipeline backfill`: copies a range of topics to a topic or to a lake.

topics, since … until or offsets ── pieces ──┬─► a topic, each message once
                                             └─► a lake as `archive` writes them, with its manifest
"""

import os
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Annotated, Final, Literal

from msgspec import Meta

from pocketmq.errors import InvalidSetting
from pocketmq.files import DiskFiles
from pocketmq.pipelines.archive.form import Form, Slot, check_form, check_format
from pocketmq.pipelines.archive.lake import Batch, Lake, frame_stage
from pocketmq.pipelines.archive.staging import Stage, stage_ranges
from pocketmq.pipelines.core.checkpoint import Owner, check_owner, owned, state_files
from pocketmq.pipelines.core.libraries import SparkSession
from pocketmq.pipelines.core.plan import Plan, batch_queues, ranges_of, require_topics
from pocketmq.pipelines.core.running import Run, Summary
from pocketmq.pipelines.core.settings import Job, check_used, of_reads
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
from pocketmq.spark.options.read_options import parse_read_options


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
    lake: Annotated[str | None, Meta(description="A lake to write to, instead of a topic.")] = None
    slot: Annotated[Literal["day", "hour"], Meta(description="With --lake: one folder for each day, or each hour.")] = (
        "day"
    )
    format: Annotated[
        Literal["parquet", "orc", "json", "avro"], Meta(description="With --lake: the format of its files.")
    ] = "parquet"
    engine: Annotated[Literal["spark", "direct"], Meta(description="With --lake: as for `archive`.")] = "spark"

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
    def sink(self) -> str:
        return f"the topic {self.to}" if self.to else f"{self.format} files in {self.lake}, by topic and {self.slot}"

    @property
    def owner(self) -> Owner:
        return Owner(pipeline="backfill", topics=tuple(self.topics), sink=self.sink)

    @property
    def form(self) -> Form:
        return Form(format=self.format, slot=Slot(self.slot), properties=True)


def check_backfill(settings: BackfillSettings) -> None:
    _check(settings)
    if settings.remote is None:
        check_format(settings.format, settings.spark)
        check_owner(settings.checkpoint, settings.owner)
    require_topics(settings.connection, settings.topics)
    check_reading(settings.reading, settings)
    check_target(settings)
    check_used(settings.options, settings.reading, settings.writing("", 0) if settings.to else {})


def run_backfill(spark: SparkSession, settings: BackfillSettings, run: Run) -> Summary:
    """Write the range, or the rest of it."""
    _check(settings)
    check_target(settings)
    with owned(spark, settings.checkpoint, settings.owner) as name, ExitStack() as leave:
        do = _to_topic(spark, settings, name) if settings.to else _to_lake(spark, settings, name, leave)
        state = state_files(spark, settings.checkpoint)
        return run_pieces(
            "backfill", state, lambda: settings.pieces(ranges_of(settings.reading)), do, run, settings.rate
        )


def plan_backfill(settings: BackfillSettings) -> Plan:
    """The plan of a new backfill."""
    _check(settings)
    return Plan(
        pipeline="backfill",
        source=f"topics {', '.join(settings.topics)} at {settings.namesrv}",
        sink=settings.sink,
        queues=batch_queues(settings.reading),
        begins="with the first message of the range, unless the checkpoint has finished pieces",
        options=settings.reading,
        remarks=settings.plan_remarks,
        messages_per_s=settings.messages_per_s,
    )


def _check(settings: BackfillSettings) -> None:
    settings.check_times()
    if (settings.to is None) == (settings.lake is None):
        raise InvalidSetting("no target is set: use either --to TOPIC or --lake FOLDER")
    if settings.lake is not None and (settings.where or settings.select):
        raise InvalidSetting("--where and --select only apply to a topic; a lake keeps messages unchanged")
    if settings.lake is not None:
        check_form(settings.lake, settings.form, DiskFiles())
    if settings.engine == "direct":
        settings.form.check_tasks()
    if settings.to in settings.topics:
        raise InvalidSetting(f"topic {settings.to!r} cannot be both source and target; use another --to")


def _to_topic(spark: SparkSession, settings: BackfillSettings, name: str) -> Do:
    def do(piece: Piece) -> int:
        return send_piece(read_piece(spark, settings, piece), settings, name, piece.number)

    return do


def _to_lake(spark: SparkSession, settings: BackfillSettings, name: str, leave: ExitStack) -> Do:
    form = settings.form
    lake = leave.enter_context(Lake(Path(settings.lake or ""), form, is_direct=settings.engine == "direct"))

    def do(piece: Piece) -> int:
        batch = Batch(name, piece.number, tuple(piece.ranges), is_filtered=settings.is_filtered)
        commit = lake.add(batch, _staging(spark, settings, piece))
        return 0 if commit is None else sum(file.rows for file in commit.added)

    return do


def _staging(spark: SparkSession, settings: BackfillSettings, piece: Piece) -> Stage:
    if settings.engine == "spark":
        return frame_stage(read_piece(spark, settings, piece), piece.ranges)
    options = settings.reading_ranges(piece.ranges, piece.partitions)
    return partial(stage_ranges, spark, parse_read_options(options, streaming=False, environ=os.environ))


BACKFILL: Final = Job(
    name="backfill",
    summary="Copy a range of topics, by time or offsets, to a topic or a lake.",
    settings=BackfillSettings,
    plan=plan_backfill,
    run=run_backfill,
    description=(
        "The range is fixed at the start. To continue a stopped or killed run, use the same --checkpoint: every message is "
        "written once."
    ),
    check=check_backfill,
)

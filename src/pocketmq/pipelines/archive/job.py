"""`pocketmq pipeline archive`: the stream from topics to a lake.

    topics ── readStream ── batch ── Lake.add ──► files and manifest        at the end, or now and then, Lake.compact

Spark's stream defines the batches and keeps the checkpoint. Tasks pull and write the messages of a batch, or Spark's own writers do
for formats other than Parquet.

File formats go through the lake, with manifest and compaction. Other formats have tables with commits of their own (Delta,
Iceberg …): Spark's sink of that name writes them, without a manifest.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from pocketmq.errors import InvalidSetting
from pocketmq.files import DiskFiles, Files
from pocketmq.pipelines.archive.form import (
    CHECKPOINT,
    Form,
    Slot,
    archive_rows,
    check_columns,
    check_form,
    check_format,
    schema_of,
)
from pocketmq.pipelines.archive.lake import Batch, Lake, frame_stage
from pocketmq.pipelines.archive.manifest import Commit, Manifest, read_manifest
from pocketmq.pipelines.archive.staging import Stage, stage_ranges
from pocketmq.pipelines.core.checkpoint import Owner, check_owner, is_classic, is_local, last_offset, offset_of, owned
from pocketmq.pipelines.core.libraries import DataFrame, SparkSession
from pocketmq.pipelines.core.plan import Plan, known_queues, require_topics, stream_queues
from pocketmq.pipelines.core.running import Run, Summary, lost_row
from pocketmq.pipelines.core.settings import Job, Size, StreamSettings
from pocketmq.spark.read.offsets import ranges_between

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

FILE_FORMATS: Final = ("parquet", "orc", "json", "avro")
"""Formats that Spark writes as plain files."""
MESSAGES_PER_S: Final = 100_000
"""Measured with millions of messages of 200 bytes on two cores; `python -m bench.pipelines` measures yours."""
_EARLIEST: Final = -2
_NEEDS_DRIVER: Final = (
    "an archive keeps its manifest on the disk of Spark's driver, which --remote cannot reach; use --master, or a --format whose "
    "tables have commits of their own"
)


class ArchiveSettings(StreamSettings, frozen=True, kw_only=True, rename="kebab"):
    """The settings of an archive."""

    lake: Annotated[str, Meta(min_length=1, description="The folder of the lake.")]
    checkpoint: Annotated[
        str, Meta(description="The folder of the checkpoint.  [default: _checkpoint in the lake]")
    ] = ""
    slot: Annotated[
        Literal["day", "hour"], Meta(description="One folder for each day, or each hour, by store time in UTC.")
    ] = "day"
    format: Annotated[
        str,
        Meta(min_length=1, description="parquet, orc, json or avro; or another Spark format, without a manifest."),
    ] = "parquet"
    file_options: Annotated[
        dict[str, str],
        Meta(description="An option of the format, for example compression=zstd.", extra={"flag": "file-option"}),
    ] = msgspec.field(default_factory=dict)
    properties: Annotated[
        bool,
        Meta(description="Keep the map of properties, which takes a sixth of the time. Tags and keys are always kept."),
    ] = True
    max_messages: Annotated[
        int, Meta(ge=1, description="Maximum number of messages in a batch, and so in its files.")
    ] = 1_000_000
    on_data_loss: Annotated[
        Literal["fail", "skip", "earliest"],
        Meta(description="If messages were deleted before they were read: skip them and record the ranges, or fail."),
    ] = "skip"
    compact: Annotated[bool, Meta(description="Merge many small files of a folder into one.")] = True
    compact_size: Annotated[Size, Meta(description="The approximate size of a merged file.")] = Size(128 * 1024 * 1024)
    compact_files: Annotated[int, Meta(ge=2, description="Merge at least this many small files.")] = 8

    def __post_init__(self) -> None:
        if (known := self.format.lower()) in FILE_FORMATS:  # Spark ignores case
            msgspec.structs.force_setattr(self, "format", known)

    @property
    def own_reading(self) -> dict[str, str]:
        return {**super().own_reading, "includeProperties": str(self.properties).lower()}

    @property
    def checkpoint_folder(self) -> str:
        return self.checkpoint or f"{self.lake.rstrip('/')}/{CHECKPOINT}"

    @property
    def form(self) -> Form:
        slot = Slot(self.slot)
        return Form(format=self.format, slot=slot, properties=self.properties, options=self.file_options)

    @property
    def owner(self) -> Owner:
        return Owner(pipeline="archive", topics=tuple(self.topics), sink=f"{self.format} in {self.lake}")

    @property
    def has_manifest(self) -> bool:
        return self.format in FILE_FORMATS


def check_archive(settings: ArchiveSettings) -> None:
    settings.check_reading()
    check_columns(settings.format, properties=settings.properties)
    if settings.has_manifest:
        if settings.remote is not None:
            raise InvalidSetting(_NEEDS_DRIVER)
        check_form(settings.lake, settings.form, DiskFiles())
        if not is_local(settings.checkpoint_folder):
            raise InvalidSetting(f"--checkpoint {settings.checkpoint_folder}: it must be a local path, like the lake")
    if settings.remote is None:
        check_format(settings.format, settings.spark)
        check_owner(settings.checkpoint_folder, settings.owner)
    require_topics(settings.connection, settings.topics)


def run_archive(spark: SparkSession, settings: ArchiveSettings, run: Run) -> Summary:
    """Archive all available messages, or continue until stopped."""
    if not settings.has_manifest:
        with owned(spark, settings.checkpoint_folder, settings.owner):
            return run.follow(_start_table(spark, settings, run))
    folder = _lake_folder(spark, settings)
    with owned(spark, settings.checkpoint_folder, settings.owner), Lake(folder, settings.form, clock=run.clock) as lake:
        done: list[Commit] = []
        merged: list[Commit] = []
        add = _adding(lake, settings, done, merged if settings.compact and not run.once else None)
        summary = run.follow(_start(spark, settings, run, lake.manifest, add))
        if settings.compact and not run.stopping.is_set():
            merged += _compact(lake, spark, settings)
        return msgspec.structs.replace(
            summary,
            lost=tuple(lost_row(lost) for commit in done for lost in commit.lost),
            facts=_facts(folder, lake.manifest, done, merged),
        )


def plan_archive(settings: ArchiveSettings) -> Plan:
    """The plan of an archive."""
    files = DiskFiles()
    manifest = read_manifest(Path(settings.lake), files) if _is_here(settings) else Manifest()
    options = _reading(settings, manifest, files)
    queues, begins = stream_queues(options, settings.checkpoint_folder, files)
    return Plan(
        pipeline="archive",
        source=f"topics {', '.join(settings.topics)} at {settings.namesrv}",
        sink=f"{settings.format} files in {settings.lake}, by topic and {settings.slot}",
        queues=queues,
        begins=begins,
        options={**options, **settings.form.writing, "checkpointLocation": settings.checkpoint_folder},
        remarks=_remarks(settings, manifest, files),
        messages_per_s=MESSAGES_PER_S,
    )


def _start(
    spark: SparkSession, settings: ArchiveSettings, run: Run, manifest: Manifest, add: Callable[[DataFrame, int], None]
) -> "StreamingQuery":
    stream = spark.readStream.format("rocketmq").schema(schema_of(properties=settings.properties))
    writer = stream.options(**_reading(settings, manifest, DiskFiles())).load().writeStream.foreachBatch(add)
    return (
        writer.queryName("archive")
        .option("checkpointLocation", settings.checkpoint_folder)
        .trigger(**run.trigger)
        .start()
    )


def _start_table(spark: SparkSession, settings: ArchiveSettings, run: Run) -> "StreamingQuery":
    slot = Slot(settings.slot)
    stream = spark.readStream.format("rocketmq").schema(schema_of(properties=settings.properties))
    rows = archive_rows(stream.options(**settings.reading).load(), slot)
    writer = rows.writeStream.format(settings.format).options(**settings.file_options, path=settings.lake)
    return (
        writer.queryName("archive")
        .partitionBy(*slot.columns)
        .option("checkpointLocation", settings.checkpoint_folder)
        .trigger(**run.trigger)
        .start()
    )


def _adding(
    lake: Lake, settings: ArchiveSettings, done: list[Commit], merged: list[Commit] | None
) -> Callable[[DataFrame, int], None]:
    """Adds a batch to the lake. With `merged`, it also merges small files."""
    checkpoint, files = Path(settings.checkpoint_folder), DiskFiles()

    def add(messages: DataFrame, number: int) -> None:
        batch = planned_batch(checkpoint, number, settings, files)
        commit = lake.add(batch, _staging(messages, batch, settings))
        if commit is not None:
            done.append(commit)
        if merged is not None:
            merged.extend(_compact(lake, messages.sparkSession, settings))

    return add


def _staging(messages: DataFrame, batch: Batch, settings: ArchiveSettings) -> Stage:
    """Tasks pull and write by themselves where possible; the DataFrame of the batch is unused then."""
    if not settings.form.is_quick:
        return frame_stage(messages, batch.ranges)
    return partial(stage_ranges, messages.sparkSession, settings.read_options)


def planned_batch(checkpoint: Path, number: int, settings: ArchiveSettings, files: Files) -> Batch:
    """The ranges and losses of a batch, which Spark records before it starts the batch."""
    end = offset_of(checkpoint, number, files)
    assert end is not None, "Spark records the end of a batch before it runs"
    start = offset_of(checkpoint, number - 1, files) if number else None
    query = msgspec.json.decode(files.read(checkpoint / "metadata"))["id"]
    if start == end:  # ranges and losses are those of the batch before
        return Batch(query, number, ())
    return Batch(query, number, tuple(ranges_between(start, end)), end.lost, settings.is_filtered)


def _compact(lake: Lake, spark: SparkSession, settings: ArchiveSettings) -> list[Commit]:
    return lake.compact(spark, aim_bytes=settings.compact_size, at_least=settings.compact_files)


def _reading(settings: ArchiveSettings, manifest: Manifest, files: Files) -> dict[str, str]:
    """The options of the stream. With a new checkpoint, it starts at the end of the lake."""
    ends = manifest.ends()
    if (
        not ends
        or not is_local(settings.checkpoint_folder)
        or last_offset(Path(settings.checkpoint_folder), files) is not None
    ):
        return settings.reading
    starting: dict[str, Any] = {}
    for queue in known_queues(settings.connection, settings.topics):
        offset = ends.get(queue, _EARLIEST)
        starting.setdefault(queue.topic, {}).setdefault(queue.broker_name, {})[str(queue.queue_id)] = offset
    return {**settings.reading, "startingOffsets": msgspec.json.encode(starting).decode()}


def _lake_folder(spark: SparkSession, settings: ArchiveSettings) -> Path:
    if not is_classic(spark):
        raise InvalidSetting(_NEEDS_DRIVER)
    check_form(settings.lake, settings.form, DiskFiles())
    return Path(settings.lake)


def _is_here(settings: ArchiveSettings) -> bool:
    return settings.has_manifest and is_local(settings.lake)


def _remarks(settings: ArchiveSettings, manifest: Manifest, files: Files) -> tuple[str, ...]:
    if not settings.has_manifest:
        return (f"{settings.format} tables have commits of their own: there is no manifest and no compaction",)
    remarks = [f"the lake has {manifest.rows:,} messages in {len(manifest.files):,} files, {manifest.bytes:,} bytes"]
    parents = (Path(settings.lake), *Path(settings.lake).parents)
    if (existing := next((path for path in parents if files.status(path)), None)) is not None:
        remarks.append(f"its disk has {files.usage(existing).free:,} bytes free")
    if not settings.properties:
        remarks.append("properties other than tags and keys are not kept, so a replay cannot restore them")
    return tuple(remarks)


def _facts(folder: Path, manifest: Manifest, done: list[Commit], merged: list[Commit]) -> dict[str, Any]:
    return {
        "files_written": sum(len(commit.added) for commit in done),
        "files_compacted": sum(len(commit.removed) for commit in merged),
        "lake": f"{manifest.rows:,} messages in {len(manifest.files):,} files, {manifest.bytes:,} bytes, in {folder}",
    }


ARCHIVE: Final = Job(
    name="archive",
    summary="Archive topics as files, by topic and day, with a manifest of the offsets in each file.",
    settings=ArchiveSettings,
    plan=plan_archive,
    run=run_archive,
    description=(
        "Run it as often as you like: each run continues where the last one ended. Every message is in the lake once, even if "
        "a run was killed. `pocketmq pipeline lake` shows the files and their offsets."
    ),
    check=check_archive,
)

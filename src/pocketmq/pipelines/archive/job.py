"""`pocketmq pipeline archive`: the stream from topics to a lake.

    topics ── readStream ── batch ── Lake.add ──► files and manifest        at the end, or now and then, Lake.compact

Spark's stream defines the batches and keeps the checkpoint. Spark's own writer writes the DataFrame of a batch into a staging folder,
and the lake publishes it. With --engine direct, tasks pull and write by themselves, and the DataFrame of the batch is not used.

File formats go through the lake, with manifest and compaction. Other formats have tables with commits of their own (Delta,
Iceberg …): Spark's sink of that name writes them, without a manifest.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from pocketmq.errors import InvalidSetting
from pocketmq.files import DiskFiles, Files
from pocketmq.pipelines.archive.form import Slot, archive_rows, check_form
from pocketmq.pipelines.archive.lake import Batch, Lake, frame_stage
from pocketmq.pipelines.archive.manifest import Commit, Manifest, read_manifest
from pocketmq.pipelines.archive.settings import NEEDS_DRIVER, ArchiveSettings, check_archive
from pocketmq.pipelines.archive.staging import Stage, stage_ranges
from pocketmq.pipelines.core.checkpoint import batch_file, is_classic, is_local, owned
from pocketmq.pipelines.core.libraries import DataFrame, SparkSession
from pocketmq.pipelines.core.plan import Plan, known_queues, stream_queues
from pocketmq.pipelines.core.running import Run, Summary, lost_row
from pocketmq.pipelines.core.settings import Job
from pocketmq.spark.read.offsets import read_batch

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

MESSAGES_PER_S: Final = 60_000
DIRECT_MESSAGES_PER_S: Final = 100_000
"""Measured with millions of messages of 200 bytes on two cores; `python -m bench.pipelines` measures yours."""
_EARLIEST: Final = -2
_QUERY_ID: Final = "sql.streaming.queryId"
"""The property of Spark's thread with the id of the query, which its checkpoint keeps."""


def run_archive(spark: SparkSession, settings: ArchiveSettings, run: Run) -> Summary:
    """Archive all available messages, or continue until stopped."""
    if not settings.has_manifest:
        with owned(spark, settings.checkpoint_folder, settings.owner):
            return run.follow(_start_table(spark, settings, run))
    folder = _lake_folder(spark, settings)
    with owned(spark, settings.checkpoint_folder, settings.owner), _lake(folder, settings, run) as lake:
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
    options = _reading(settings, manifest)
    queues, begins = stream_queues(options, settings.checkpoint_folder, files)
    return Plan(
        pipeline="archive",
        source=f"topics {', '.join(settings.topics)} at {settings.namesrv}",
        sink=f"{settings.format} files in {settings.lake}, by topic and {settings.slot}, with --engine {settings.engine}",
        queues=queues,
        begins=begins,
        options={
            **options,
            **(settings.file_options if settings.is_direct else settings.form.writing),
            "checkpointLocation": settings.checkpoint_folder,
        },
        remarks=_remarks(settings, manifest, files),
        messages_per_s=DIRECT_MESSAGES_PER_S if settings.is_direct else MESSAGES_PER_S,
    )


def _start(
    spark: SparkSession, settings: ArchiveSettings, run: Run, manifest: Manifest, add: Callable[[DataFrame, int], None]
) -> "StreamingQuery":
    stream = spark.readStream.format("rocketmq").options(**_reading(settings, manifest)).load()
    writer = stream.writeStream.foreachBatch(add)
    return (
        writer.queryName("archive")
        .option("checkpointLocation", settings.checkpoint_folder)
        .trigger(**run.trigger)
        .start()
    )


def _start_table(spark: SparkSession, settings: ArchiveSettings, run: Run) -> "StreamingQuery":
    slot = Slot(settings.slot)
    stream = spark.readStream.format("rocketmq").options(**settings.reading).load()
    rows = archive_rows(stream, slot)
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

    def add(messages: DataFrame, number: int) -> None:
        batch = planned_batch(messages.sparkSession, number, settings)
        commit = lake.add(batch, _staging(messages, batch, settings))
        if commit is not None:
            done.append(commit)
        if merged is not None:
            merged.extend(_compact(lake, messages.sparkSession, settings))

    return add


def _staging(messages: DataFrame, batch: Batch, settings: ArchiveSettings) -> Stage:
    if not settings.is_direct:
        return frame_stage(messages, batch.ranges)
    return partial(stage_ranges, messages.sparkSession, settings.read_options)


def planned_batch(spark: SparkSession, number: int, settings: ArchiveSettings) -> Batch:
    """The ranges and losses of the batch that runs now, as the connector planned it."""
    planned = read_batch(batch_file(settings.checkpoint_folder))
    query = str(spark.sparkContext.getLocalProperty(_QUERY_ID))
    return Batch(query, number, tuple(planned.ranges), planned.lost, settings.is_filtered)


def _compact(lake: Lake, spark: SparkSession, settings: ArchiveSettings) -> list[Commit]:
    return lake.compact(spark, aim_bytes=settings.compact_size, at_least=settings.compact_files)


def _reading(settings: ArchiveSettings, manifest: Manifest) -> dict[str, str]:
    """The options of the stream. With a new checkpoint, it starts at the end of the lake; with another, Spark ignores the start."""
    ends = manifest.ends()
    if not ends:
        return settings.reading
    starting: dict[str, Any] = {}
    for queue in known_queues(settings.connection, settings.topics):
        offset = ends.get(queue, _EARLIEST)
        starting.setdefault(queue.topic, {}).setdefault(queue.broker_name, {})[str(queue.queue_id)] = offset
    return {**settings.reading, "startingOffsets": msgspec.json.encode(starting).decode()}


def _lake(folder: Path, settings: ArchiveSettings, run: Run) -> Lake:
    return Lake(folder, settings.form, is_direct=settings.is_direct, clock=run.clock)


def _lake_folder(spark: SparkSession, settings: ArchiveSettings) -> Path:
    if not is_classic(spark):
        raise InvalidSetting(NEEDS_DRIVER)
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
    if settings.is_direct:
        remarks.append(
            "with --engine direct tasks pull and write by themselves: Parquet with the option compression, and Spark's metrics do "
            "not count these rows"
        )
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

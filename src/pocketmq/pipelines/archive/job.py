"""`pocketmq pipeline archive`: the stream from topics to a lake or a table.

    topics ── readStream ── batch ── rows ──┬─► Lake.add ──► files and manifest     at the end, or now and then, Lake.compact
                                            └─► append to a table

Spark's stream defines the batches and keeps the checkpoint. Spark's own writer writes the DataFrame of a batch into a staging folder,
and the lake publishes it. With --engine direct, tasks pull and write by themselves, and the DataFrame of the batch is not used.

Files go through the lake, with manifest and compaction. Commits of Delta and Iceberg have a record of the offsets in the table.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from pocketmq.files import DiskFiles, NamedFiles, temporary_folder
from pocketmq.model import MessageQueue
from pocketmq.pipelines.archive.contents import Record
from pocketmq.pipelines.archive.lake import Batch, Lake
from pocketmq.pipelines.archive.manifest import Commit, Manifest, read_manifest
from pocketmq.pipelines.archive.settings import ArchiveSettings, check_archive
from pocketmq.pipelines.archive.shape import Shape
from pocketmq.pipelines.archive.sinks import (
    LakeSink,
    Sink,
    check_sink,
    ensure_dead_letters,
    examine_sink,
    open_lake,
    table_sink,
)
from pocketmq.pipelines.archive.table import ONCE
from pocketmq.pipelines.core.checkpoint import BATCH_FILE, batch_file, is_classic, is_local, owned
from pocketmq.pipelines.core.libraries import DataFrame, SparkSession
from pocketmq.pipelines.core.plan import Plan, known_queues, stream_queues
from pocketmq.pipelines.core.running import Run, Summary, lost_row
from pocketmq.pipelines.core.settings import Examination, Job, StreamSettings
from pocketmq.spark.read.offsets import read_batch
from pocketmq.spark.source import spark_schema

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
    check_sink(settings.sink, settings.session, is_remote=not is_classic(spark))
    examine_sink(spark, settings.sink, settings.checkpoint_folder)
    ensure_dead_letters(settings.sink)
    with owned(spark, settings.checkpoint_folder, settings.owner) as writer, offsets_file(spark, settings) as offsets:
        if settings.has_manifest:
            return _into_lake(spark, settings, run, writer, offsets)
        return _into_table(spark, settings, run, writer, offsets)


def plan_archive(settings: ArchiveSettings) -> Plan:
    """The plan of an archive."""
    files = DiskFiles()
    manifest = read_manifest(Path(settings.lake), files) if _is_here(settings) else Manifest()
    options = reading_from(settings, manifest.ends())
    queues, begins = stream_queues(options, settings.checkpoint_folder, files)
    return Plan(
        pipeline="archive",
        source=f"topics {', '.join(settings.topics)} at {settings.namesrv}",
        sink=f"{settings.sink}, with --engine {settings.engine}",
        queues=queues,
        begins=begins,
        options={
            **options,
            **(settings.form.writing if settings.has_manifest and not settings.is_direct else settings.file_options),
            **_chosen(settings),
            "checkpointLocation": settings.checkpoint_folder,
        },
        remarks=_remarks(settings, manifest, files),
        messages_per_s=DIRECT_MESSAGES_PER_S if settings.is_direct else MESSAGES_PER_S,
    )


def examination(settings: ArchiveSettings) -> Examination | None:
    """The part of a dry run that needs Spark, if any."""
    sink, checkpoint = settings.sink, settings.checkpoint_folder
    needs_spark = sink.needs_spark or not is_local(checkpoint)
    return (lambda spark: examine_sink(spark, sink, checkpoint)) if needs_spark else None


def _into_lake(spark: SparkSession, settings: ArchiveSettings, run: Run, writer: str, offsets: Path | None) -> Summary:
    done: list[Commit] = []
    merged: list[Commit] = []
    with open_lake(spark, settings.sink, clock=run.clock) as lake:
        reading = settings.read_options if settings.is_direct else None
        sink = LakeSink(lake, settings.sink, settings.sink.shape(), writer, reading)
        write = _adding(sink, settings, offsets, done)

        def add(messages: DataFrame, number: int) -> None:
            write(messages, number)
            if settings.compact and not run.once:
                merged.extend(_compact(lake, messages.sparkSession, settings))

        stream = _stream(spark, reading_from(settings, lake.manifest.ends()), sink.shape, offsets)
        summary = run.follow(_start(stream, settings, run, add))
        if settings.compact and not run.stopping.is_set():
            merged += _compact(lake, spark, settings)
        return msgspec.structs.replace(
            summary,
            lost=tuple(lost_row(lost) for commit in done for lost in commit.lost),
            facts=_facts(settings.lake, lake.manifest, done, merged),
        )


def _into_table(spark: SparkSession, settings: ArchiveSettings, run: Run, writer: str, offsets: Path | None) -> Summary:
    sink = table_sink(spark, settings.sink, writer)
    table = sink.target.opened(spark)
    before = Record() if table is None else table.state().record
    stream = _stream(spark, reading_from(settings, before.starts()), sink.shape, offsets)
    summary = run.follow(_start(stream, settings, run, _adding(sink, settings, offsets)))
    after = before if table is None else table.state().record
    return msgspec.structs.replace(
        summary,
        lost=tuple(map(lost_row, after.lost[len(before.lost) :])),
        facts={"written_to": f"{sink.target}, {sink.target.guarantee}"},
    )


def _stream(spark: SparkSession, options: dict[str, str], shape: Shape, offsets: Path | None) -> DataFrame:
    """The rows, of messages with the columns that they need."""
    more = {} if offsets is None else {"batchFile": str(offsets)}
    reader = spark.readStream.format("rocketmq").schema(spark_schema(shape.columns(spark)))
    return shape.prepared(reader.options(**{**options, **more}).load())


def _start(
    stream: DataFrame, settings: ArchiveSettings, run: Run, add: Callable[[DataFrame, int], None]
) -> "StreamingQuery":
    writer = stream.writeStream.foreachBatch(add).queryName("archive")
    return writer.option("checkpointLocation", settings.checkpoint_folder).trigger(**run.trigger).start()


def _adding(
    sink: Sink, settings: ArchiveSettings, offsets: Path | None, done: list[Commit] | None = None
) -> Callable[[DataFrame, int], None]:
    """Writes a batch; with `done`, it records the commits."""
    is_filtered = settings.is_filtered

    def add(messages: DataFrame, number: int) -> None:
        batch = (
            Batch("", number, (), (), is_filtered)
            if offsets is None
            else planned_batch(messages, number, offsets, is_filtered)
        )
        commits = sink.add(messages, batch)
        if done is not None:
            done.extend(commits)

    return add


def planned_batch(messages: DataFrame, number: int, offsets: Path, is_filtered: bool) -> Batch:
    """The ranges and losses of the batch that runs now, as the connector planned it."""
    planned = read_batch(offsets)
    query = str(messages.sparkSession.sparkContext.getLocalProperty(_QUERY_ID))
    return Batch(query, number, tuple(planned.ranges), planned.lost, is_filtered)


@contextmanager
def offsets_file(spark: SparkSession, settings: StreamSettings) -> Iterator[Path | None]:
    """The file in which the connector keeps the offsets of a batch; None with Spark Connect, whose driver is elsewhere."""
    if not is_classic(spark):
        yield None
    elif is_local(settings.checkpoint_folder):
        yield batch_file(settings.checkpoint_folder)
    else:
        with temporary_folder("pocketmq-") as folder:
            yield folder / BATCH_FILE


def _compact(lake: Lake, spark: SparkSession, settings: ArchiveSettings) -> list[Commit]:
    return lake.compact(spark, aim_bytes=settings.compact_size, at_least=settings.compact_files)


def reading_from(settings: StreamSettings, ends: Mapping[MessageQueue, int]) -> dict[str, str]:
    """The options of the stream. With a new checkpoint, it starts at the end of the lake; with another, Spark ignores the start."""
    if not ends:
        return settings.reading
    starting: dict[str, Any] = {}
    for queue in known_queues(settings.connection, settings.topics):
        offset = ends.get(queue, _EARLIEST)
        starting.setdefault(queue.topic, {}).setdefault(queue.broker_name, {})[str(queue.queue_id)] = offset
    return {**settings.reading, "startingOffsets": msgspec.json.encode(starting).decode()}


def _is_here(settings: ArchiveSettings) -> bool:
    return settings.has_manifest and is_local(settings.lake)


def _remarks(settings: ArchiveSettings, manifest: Manifest, files: NamedFiles) -> tuple[str, ...]:
    if not settings.has_manifest:
        return _table_remarks(settings)
    if not is_local(settings.lake):
        return ("the lake is on a file system of Hadoop: one archive may write to it at a time",)
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


def _table_remarks(settings: ArchiveSettings) -> tuple[str, ...]:
    if settings.table:
        return (
            "the commits of a table of Delta or Iceberg have the offsets that it contains; other tables have no record of them",
        )
    if settings.format.lower() in ONCE:
        return (f"the commits of {settings.format} have the offsets that the table contains",)
    return (f"{settings.format} files have no manifest, and no record of lost ranges",)


def _chosen(settings: ArchiveSettings) -> dict[str, str]:
    """The settings of the rows, for a plan."""
    chosen = {
        "schema": settings.schema,
        "deadLetters": settings.dead_letters,
        "where": settings.where or "",
        "select": ", ".join(settings.select),
        "partitionBy": ", ".join(settings.partition_by),
    }
    return {name: text for name, text in chosen.items() if text}


def _facts(lake: str, manifest: Manifest, done: list[Commit], merged: list[Commit]) -> dict[str, Any]:
    return {
        "files_written": sum(len(commit.added) for commit in done),
        "files_compacted": sum(len(commit.removed) for commit in merged),
        "lake": f"{manifest.rows:,} messages in {len(manifest.files):,} files, {manifest.bytes:,} bytes, in {lake}",
    }


ARCHIVE: Final = Job(
    name="archive",
    summary="Archive topics as files with a manifest of their offsets, or in a table.",
    settings=ArchiveSettings,
    plan=plan_archive,
    run=run_archive,
    description=(
        "Run it as often as you like: each run continues where the last one ended. Every message is in the lake once, even if "
        "a run was killed. `pocketmq pipeline lake` shows the files and their offsets."
    ),
    check=check_archive,
    examine=examination,
)

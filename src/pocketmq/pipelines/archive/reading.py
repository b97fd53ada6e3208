"""Reads a lake: its messages by the manifest, and the files and their offsets as tables."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from pocketmq.errors import NotFound
from pocketmq.model import QueueRange
from pocketmq.pipelines.archive.form import Form, read_form
from pocketmq.pipelines.archive.hadoop import located
from pocketmq.pipelines.archive.lake import within
from pocketmq.pipelines.archive.manifest import DataFile, Manifest, read_manifest
from pocketmq.pipelines.archive.staging import read_files
from pocketmq.pipelines.core.libraries import DataFrame, SparkSession
from pocketmq.pipelines.core.running import Row, lost_row


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


def lost_rows(manifest: Manifest) -> list[Row]:
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

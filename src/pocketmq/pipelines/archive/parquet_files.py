"""Writes Arrow batches to Parquet files in the process of a task, without a detour through Java.

    batches ── by folder ──► gathered ── a row group ──► file          returned: path, offsets by queue, times
               topic, day    limited for  written and
                             all files    synced

Spark would copy each row three times on its way from a Python source to a Parquet file, at ten times the cost.
"""

from collections.abc import Iterable, Iterator
from functools import reduce
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import quote
from uuid import uuid4

from pocketmq.files import DiskFiles, Files
from pocketmq.model import MessageQueue, QueueRange
from pocketmq.pipelines.archive.form import Slot, final_path
from pocketmq.pipelines.archive.manifest import DataFile, Span
from pocketmq.pipelines.core.libraries import parquet
from pocketmq.spark.arrow import np, pa, pc
from pocketmq.spark.schema import Name

GATHERED_BYTES: Final = 32 * 1024 * 1024
"""Limit for rows that wait to become row groups, for all open files of a task together."""
MAX_OPEN_FILES: Final = 16
FEW_VALUES: Final = (Name.BROKER_NAME, Name.QUEUE_ID, Name.TAGS, f"{Name.PROPERTIES}.key_value.key")
"""Columns that get a dictionary; trying one for the other columns costs as much as writing them."""
_HOUR_US: Final = 3_600_000_000
_UNITS: Final = {Slot.DAY: ("D", 24 * _HOUR_US), Slot.HOUR: ("h", _HOUR_US)}


class Target(NamedTuple):
    """The staging folder of a commit, and its file format."""

    folder: str
    number: int
    slot: Slot
    compression: str
    part: int = 0
    """The number of the task, so that file names sort like their messages."""
    is_filtered: bool = True
    """Whether offsets may be missing between those of a file. Otherwise each gap is a loss, and ends a span."""


class _Extent(NamedTuple):
    """Messages of one queue: first and last offset and time, and their number."""

    first: int
    last: int
    rows: int
    first_us: int
    last_us: int

    @property
    def is_whole(self) -> bool:
        """Whether it has all offsets between the first and the last."""
        return self.rows > self.last - self.first

    def joined(self, other: "_Extent") -> "_Extent":
        return _Extent(
            min(self.first, other.first),
            max(self.last, other.last),
            self.rows + other.rows,
            min(self.first_us, other.first_us),
            max(self.last_us, other.last_us),
        )


def write_files(batches: Iterable[Any], target: Target, files: Files | None = None) -> list[DataFile]:
    """Write batches with the columns of an archive; returns the entries for the manifest. Each file is synced."""
    writing = _Writing(target, files or DiskFiles())
    try:
        for batch in batches:
            for (topic, folder), part in by_folder(batch, target.slot):
                writing.add(topic, folder, part)
        return writing.finish()
    finally:
        writing.close()


def by_folder(batch: Any, slot: Slot) -> Iterator[tuple[tuple[str, str], Any]]:
    """The rows of a batch by topic and folder, in order. Usually there is one folder."""
    if not batch.num_rows:
        return
    unit, unit_us = _UNITS[slot]
    topics = batch.column(Name.TOPIC).dictionary_encode()
    topic_of = topics.indices.to_numpy()
    slot_of = batch.column(Name.STORE_TIMESTAMP).cast(pa.int64()).to_numpy() // unit_us
    rest = batch.drop_columns([Name.TOPIC.value])
    if topic_of.max() == 0 and slot_of.min() == slot_of.max():
        keys = [(0, slot_of[0])]
    else:
        keys = [tuple(pair) for pair in np.unique(np.stack((topic_of, slot_of), axis=1), axis=0)]
    for topic_at, slot_at in keys:
        topic = topics.dictionary[int(topic_at)].as_py()
        part = rest if len(keys) == 1 else rest.filter(pa.array((topic_of == topic_at) & (slot_of == slot_at)))
        yield (topic, _folder(topic, str(slot_at.astype(f"datetime64[{unit}]")))), part


def _folder(topic: str, moment: str) -> str:
    """The folders for a message stored at `moment`, such as 2026-11-15 or 2026-11-15T08; names as Spark writes them."""
    day, _, hour = moment.partition("T")
    return f"topic={quote(topic, safe='|')}/day={day}" + (f"/hour={hour}" if hour else "")


class _Writing:
    """All files of one task."""

    def __init__(self, target: Target, files: Files) -> None:
        self._target = target
        self._files = files
        self._open: dict[str, _OpenFile] = {}
        self._done: list[DataFile] = []

    def add(self, topic: str, folder: str, rows: Any) -> None:
        if folder not in self._open:
            if len(self._open) == MAX_OPEN_FILES:
                self._finish(next(iter(self._open)))
            self._open[folder] = _OpenFile(topic, folder, rows.schema, self._target, self._files)
        self._open[folder].gather(rows)
        if sum(one.gathered_bytes for one in self._open.values()) >= GATHERED_BYTES:
            max(self._open.values(), key=lambda one: one.gathered_bytes).write_gathered()

    def finish(self) -> list[DataFile]:
        for folder in list(self._open):
            self._finish(folder)
        return self._done

    def close(self) -> None:
        """Leave unfinished files as they are: the manifest does not list them."""
        for one in self._open.values():
            one.close()

    def _finish(self, folder: str) -> None:
        self._done.append(self._open[folder].finish())
        del self._open[folder]


class _OpenFile:
    """One file while it grows."""

    def __init__(self, topic: str, folder: str, schema: Any, target: Target, files: Files) -> None:
        self._topic = topic
        self._files = files
        self._number = target.number
        # Another attempt of the task writes files beside these: only files that a task returns count.
        self._name = f"{folder}/part-{target.part:05}-{uuid4()}.parquet"
        self._path = Path(target.folder, self._name)
        self._gathered: list[Any] = []
        self._is_filtered = target.is_filtered
        self._extents: dict[tuple[str, int], list[_Extent]] = {}
        self.gathered_bytes = 0
        files.make_dir(self._path.parent)
        self._writer = parquet.ParquetWriter(
            str(self._path), schema, compression=target.compression, use_dictionary=list(FEW_VALUES)
        )

    def gather(self, rows: Any) -> None:
        self._gathered.append(rows)
        self.gathered_bytes += rows.nbytes

    def write_gathered(self) -> None:
        """Write the gathered rows as one row group."""
        if not self._gathered:
            return
        table = pa.Table.from_batches(self._gathered)
        self._gathered, self.gathered_bytes = [], 0
        self._writer.write_table(table, row_group_size=table.num_rows)
        for queue, extent in _extents(table):
            known = self._extents.setdefault(queue, [])
            for run in [extent] if self._is_filtered or extent.is_whole else _runs(table, queue, extent):
                if known and (self._is_filtered or known[-1].last + 1 == run.first):
                    run = run.joined(known.pop())
                known.append(run)

    def finish(self) -> DataFile:
        self.write_gathered()
        self.close()
        with self._files.open(self._path, write=False) as file:
            file.sync()
            size = file.size()
        self._files.sync_dir(self._path.parent)
        spans = [
            Span(QueueRange(MessageQueue(self._topic, *queue), extent.first, extent.last + 1), extent.rows)
            for queue, extents in self._extents.items()
            for extent in extents
        ]
        whole = reduce(_Extent.joined, (extent for extents in self._extents.values() for extent in extents))
        return DataFile(
            path=final_path(self._name, self._number),
            topic=self._topic,
            spans=tuple(sorted(spans)),
            bytes=size,
            first_store_ms=whole.first_us // 1000,
            last_store_ms=whole.last_us // 1000,
        )

    def close(self) -> None:
        self._writer.close()


def _extents(table: Any) -> Iterator[tuple[tuple[str, int], _Extent]]:
    keys = [Name.BROKER_NAME.value, Name.QUEUE_ID.value]
    times = table.column(Name.STORE_TIMESTAMP).cast(pa.int64())
    narrow = pa.table({**{key: table.column(key) for key in keys}, "at": table.column(Name.QUEUE_OFFSET), "us": times})
    grouped = narrow.group_by(keys).aggregate([("at", "min_max"), ("at", "count"), ("us", "min_max")])
    for row in grouped.to_pylist():
        offsets, moments = row["at_min_max"], row["us_min_max"]
        extent = _Extent(offsets["min"], offsets["max"], row["at_count"], moments["min"], moments["max"])
        yield (row[keys[0]], row[keys[1]]), extent


def _runs(table: Any, queue: tuple[str, int], whole: _Extent) -> list[_Extent]:
    """The runs of offsets of a queue without a gap. Their times are those of all."""
    broker, number = queue
    own = pc.and_(pc.equal(table.column(Name.BROKER_NAME), broker), pc.equal(table.column(Name.QUEUE_ID), number))
    offsets = np.sort(table.column(Name.QUEUE_OFFSET).filter(own).to_numpy())
    parts = np.split(offsets, np.flatnonzero(np.diff(offsets) > 1) + 1)
    return [whole._replace(first=int(part[0]), last=int(part[-1]), rows=len(part)) for part in parts]

"""Batches become files by topic and time, in bounded memory, and each file is described by what is in it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pocketmq.model.queue import MessageQueue
from pocketmq.pipelines.archive import parquet_files
from pocketmq.pipelines.archive.form import Slot, columns_of, staged_path
from pocketmq.pipelines.archive.manifest import DataFile
from pocketmq.pipelines.archive.parquet_files import Target, write_files
from pocketmq.spark.arrow import arrow_schema

DAY_MS: Final = 86_400_000
Row = tuple[str, int, int, int]
"""Topic, queue, offset, time in milliseconds."""


def batch(*rows: Row) -> Any:
    made = [
        {
            "topic": topic,
            "brokerName": "broker-a",
            "queueId": queue_id,
            "queueOffset": offset,
            "storeTimestamp": at_ms * 1000,
            "keys": None,
            "tags": "paid",
            "value": str(offset).encode(),
            "bornTimestamp": at_ms * 1000,
            "properties": [("said", str(offset))],
        }
        for topic, queue_id, offset, at_ms in rows
    ]
    return pa.RecordBatch.from_pylist(made, schema=arrow_schema(columns_of(properties=True)))


def target(folder: Path, slot: Slot = Slot.DAY) -> Target:
    return Target(str(folder / "_staging/0000000007"), 7, slot, "snappy")


def read(folder: Path, file: DataFile) -> Any:
    return pq.ParquetFile(folder / staged_path(file.path, 7))


def spans(file: DataFile) -> Sequence[tuple[MessageQueue, int, int, int]]:
    return [(span.range.queue, span.range.start, span.range.end, span.rows) for span in file.spans]


def test_rows_are_grouped_by_topic_and_day_and_each_file_has_its_offsets_and_times(tmp_path: Path) -> None:
    rows = batch(("a", 0, 5, 10), ("b", 0, 1, 20), ("a", 0, 6, DAY_MS - 1), ("a", 1, 9, 30), ("a", 0, 7, DAY_MS))

    first, second, other = sorted(write_files([rows], target(tmp_path)), key=lambda file: file.path)

    assert [one.folder for one in (first, second, other)] == [
        "topic=a/day=1970-01-01",
        "topic=a/day=1970-01-02",
        "topic=b/day=1970-01-01",
    ]
    assert spans(first) == [(MessageQueue("a", "broker-a", 0), 5, 7, 2), (MessageQueue("a", "broker-a", 1), 9, 10, 1)]
    assert (first.first_store_ms, first.last_store_ms) == (10, DAY_MS - 1)
    assert (second.topic, second.rows, other.topic, other.rows) == ("a", 1, "b", 1)
    found = read(tmp_path, first).read()
    assert "topic" not in found.column_names
    assert found.column("value").to_pylist() == [b"5", b"6", b"9"]
    assert found.column("properties").to_pylist()[0] == [("said", "5")]


def test_folders_for_hours_and_special_topic_names_are_those_of_spark(tmp_path: Path) -> None:
    rows = batch(("%RETRY%g|x", 0, 0, 7_200_000), ("%RETRY%g|x", 0, 1, 7_200_001))

    (file,) = write_files([rows], target(tmp_path, Slot.HOUR))

    assert file.folder == "topic=%25RETRY%25g|x/day=1970-01-01/hour=02"
    assert file.topic == "%RETRY%g|x"


def test_buffered_rows_are_limited_and_become_row_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    batches = [batch(*(("a", 0, offset, offset) for offset in range(start, start + 10))) for start in (0, 10, 20, 30)]
    monkeypatch.setattr(parquet_files, "GATHERED_BYTES", batches[0].nbytes + 1)

    (file,) = write_files(batches, target(tmp_path))

    written = read(tmp_path, file)
    assert written.num_row_groups == 2
    assert written.read().column("queueOffset").to_pylist() == list(range(40))
    assert spans(file) == [(MessageQueue("a", "broker-a", 0), 0, 40, 40)]


def test_open_files_are_limited_and_a_folder_may_get_several(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_files, "MAX_OPEN_FILES", 1)

    made = write_files([batch(("a", 0, 0, 1)), batch(("b", 0, 0, 1)), batch(("a", 0, 1, 1))], target(tmp_path))

    assert [file.topic for file in made] == ["a", "b", "a"]
    assert len({file.path for file in made}) == 3


def test_no_rows_make_no_file_and_a_failure_reports_none(tmp_path: Path) -> None:
    def cut() -> Any:
        yield batch(("a", 0, 0, 1))
        raise OSError("the line was cut")

    assert write_files([], target(tmp_path)) == []
    assert write_files([batch()], target(tmp_path)) == []
    with pytest.raises(OSError, match="the line was cut"):
        write_files(cut(), target(tmp_path))

"""Tasks: the files of one folder are merged into one, whichever run wrote them."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pocketmq.pipelines.archive.form import Slot, columns_of, staged_path
from pocketmq.pipelines.archive.parquet_files import Target
from pocketmq.pipelines.archive.staging import Merging, merge
from pocketmq.spark.arrow import ARROW_TYPES, arrow_schema

FOLDER = "topic=orders/day=2026-11-15"
STORED_US = 1_794_700_800_000_000


def rows(offset: int) -> Any:
    times = pa.array([STORED_US], ARROW_TYPES["timestamp"])
    return pa.table(
        {
            "brokerName": ["broker-a"],
            "queueId": pa.array([0], pa.int32()),
            "queueOffset": [offset],
            "storeTimestamp": times,
            "keys": ["k"],
            "tags": ["t"],
            "value": [b"body"],
            "bornTimestamp": times,
        }
    )


def test_files_of_spark_with_its_older_times_and_files_without_properties_become_one(tmp_path: Path) -> None:
    properties = pa.array([[("said", "1")]], ARROW_TYPES["map<string,string>"])
    paths = (f"{FOLDER}/ours.parquet", f"{FOLDER}/spark.parquet")
    (tmp_path / FOLDER).mkdir(parents=True)
    pq.write_table(rows(0).append_column("properties", properties), tmp_path / paths[0])
    pq.write_table(rows(1), tmp_path / paths[1], use_deprecated_int96_timestamps=True)
    target = Target(str(tmp_path / "_staging/0000000003"), 3, Slot.DAY, "zstd")

    (file,) = merge(Merging(str(tmp_path), paths, columns_of(properties=True), target))

    (span,) = file.spans
    assert (file.folder, span.range.start, span.range.end, span.rows) == (FOLDER, 0, 2, 2)
    made = pq.read_table(tmp_path / staged_path(file.path, 3), partitioning=None)
    assert made.schema.equals(arrow_schema(columns_of(properties=True)[1:]))
    assert made.column("storeTimestamp").cast(pa.int64()).to_pylist() == [STORED_US, STORED_US]
    assert made.column("properties").to_pylist() == [[("said", "1")], None]

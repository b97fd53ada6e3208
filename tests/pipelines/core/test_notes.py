"""Small notes beside a checkpoint, as files, and where only Spark can reach them."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

from pocketmq.files import DiskFiles
from pocketmq.pipelines.core.checkpoint import FileNotes, Notes, SparkNotes, notes_in

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def check(notes: Notes) -> None:
    assert notes.read("a") is None
    assert not notes.has("a", "b")
    notes.write("a", '{"x": 1}')
    notes.write("a", '{"x": 2}')
    assert notes.read("a") == '{"x": 2}'
    assert notes.has("b", "a")


def test_notes_as_files(tmp_path: Path) -> None:
    check(FileNotes(tmp_path / "new" / "folder", DiskFiles()))


def test_notes_that_spark_writes(spark: "SparkSession", tmp_path: Path) -> None:
    check(SparkNotes(spark, f"file://{tmp_path}/new/folder/"))


def test_who_writes_them_follows_from_where_they_are(spark: "SparkSession") -> None:
    assert isinstance(notes_in(spark, "/data/notes"), FileNotes)
    assert isinstance(notes_in(spark, "s3a://bucket/notes"), SparkNotes)

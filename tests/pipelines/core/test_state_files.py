"""Small state beside a checkpoint, as files, and where only Spark can reach them."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

from pocketmq.files import DiskFiles
from pocketmq.pipelines.core.checkpoint import LocalStateFiles, SparkStateFiles, StateFiles, state_files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def check(state: StateFiles) -> None:
    assert state.read("a") is None
    assert not state.has("a", "b")
    state.write("a", '{"x": 1}')
    state.write("a", '{"x": 2}')
    assert state.read("a") == '{"x": 2}'
    assert state.has("b", "a")


def test_notes_as_files(tmp_path: Path) -> None:
    check(LocalStateFiles(tmp_path / "new" / "folder", DiskFiles()))


def test_notes_that_spark_writes(spark: "SparkSession", tmp_path: Path) -> None:
    check(SparkStateFiles(spark, f"file://{tmp_path}/new/folder/"))


def test_who_writes_them_follows_from_where_they_are(spark: "SparkSession") -> None:
    assert isinstance(state_files(spark, "/data/state"), LocalStateFiles)
    assert isinstance(state_files(spark, "s3a://bucket/state"), SparkStateFiles)

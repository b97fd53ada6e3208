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


def test_state_is_stored_in_local_files(tmp_path: Path) -> None:
    check(LocalStateFiles(tmp_path / "new" / "folder", DiskFiles()))


def test_state_is_stored_by_spark(spark: "SparkSession", tmp_path: Path) -> None:
    check(SparkStateFiles(spark, f"file://{tmp_path}/new/folder/"))


def test_the_location_decides_how_state_is_stored(spark: "SparkSession") -> None:
    assert isinstance(state_files(spark, "/data/state"), LocalStateFiles)
    assert isinstance(state_files(spark, "s3a://bucket/state"), SparkStateFiles)

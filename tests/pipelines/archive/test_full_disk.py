"""A lake on a really full disk: the error is one sentence, and a run after files were deleted completes the work."""

import os
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pytest
from tests.spark.broker_kit import Broker, fill, new_topic

from pocketmq.errors import PipelineFailed
from pocketmq.files import DiskFiles
from pocketmq.pipelines.archive.job import run_archive
from pocketmq.pipelines.archive.manifest import read_manifest
from pocketmq.pipelines.archive.settings import ArchiveSettings
from pocketmq.pipelines.core.running import Run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SMALL, LARGE = "1m", "64m"
MESSAGES, BODY_BYTES = 1_500, 1_024


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    if os.geteuid() != 0 or _mount("-t", "tmpfs", "-o", f"size={SMALL}", "tmpfs", str(disk)):
        pytest.skip("a small disk cannot be mounted on this machine")
    try:
        yield disk
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)


def _mount(*arguments: str) -> int:
    return subprocess.run(["mount", *arguments], capture_output=True, check=False).returncode


@pytest.mark.parametrize("engine", ["spark", "direct"])
def test_a_batch_that_fails_on_a_full_disk_is_repeated_when_there_is_space(
    spark: "SparkSession", broker: Broker, small_disk: Path, engine: Literal["spark", "direct"]
) -> None:
    topic, lake = new_topic(broker), small_disk / "lake"
    bodies = [os.urandom(BODY_BYTES // 2).hex() for _ in range(MESSAGES)]
    fill(broker, topic, bodies)
    told = ArchiveSettings(
        namesrv=broker.name_server,
        topics=[topic],
        lake=str(lake),
        max_messages=1_000,
        engine=engine,
    )

    with pytest.raises(
        PipelineFailed, match=r"the disk of the lake .* is full .* free some space and run the pipeline again"
    ):
        run_archive(spark, told, Run())
    kept = read_manifest(lake)
    assert _mount("-o", f"remount,size={LARGE}", str(small_disk)) == 0
    run_archive(spark, told, Run())

    assert kept.rows < MESSAGES
    assert Counter(
        bytes(row[0]).decode() for row in spark.read.parquet(str(lake)).select("value").collect()
    ) == Counter(bodies)
    assert read_manifest(lake).rows == MESSAGES
    assert DiskFiles().list(lake / "_staging") == []

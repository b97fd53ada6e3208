"""Drivers that were killed for real at each step, with Java and all workers: the next run has every message once."""

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

from tests.pipelines.archive.killed_run import MESSAGES, STEPS, settings
from tests.spark.broker_kit import Broker, fill, new_topic

from pocketmq.files import DiskFiles
from pocketmq.pipelines.archive.job import run_archive
from pocketmq.pipelines.archive.manifest import read_manifest
from pocketmq.pipelines.core.running import Run
from pocketmq.spark.java import find_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PATIENCE_S = 150.0
KILLS = [*((step, "spark") for step in STEPS), ("staged", "direct"), ("removing", "direct")]
if "POCKETMQ_ALL_KILLS" not in os.environ:  # each takes up to a minute on a busy machine; `make spark-kills` has all
    KILLS = [("renaming", "spark"), ("publishing", "spark"), ("replaced", "spark"), ("removing", "direct")]


@pytest.mark.parametrize(("step", "engine"), KILLS)
def test_a_driver_that_was_killed_is_continued_by_the_next(
    spark: "SparkSession", broker: Broker, tmp_path: Path, step: str, engine: str
) -> None:
    topic, lake = new_topic(broker), tmp_path / "lake"
    bodies = [f"{number}" for number in range(MESSAGES)]
    fill(broker, topic, bodies[::2])
    fill(broker, topic, bodies[1::2], number=1)
    told = (broker.name_server, topic, str(lake), engine)

    killed = subprocess.run(
        [sys.executable, "-m", "tests.pipelines.archive.killed_run", step, *told],
        cwd=Path(__file__).parents[3],
        env={**os.environ, "JAVA_HOME": str(find_java())},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        start_new_session=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()[-2000:]
    found = Counter(_values(spark, lake))
    assert all(count == 1 for count in found.values())

    run_archive(spark, settings(*told), Run())

    assert Counter(_values(spark, lake)) == Counter(bodies)
    manifest = read_manifest(lake)
    assert (manifest.rows, manifest.lost) == (MESSAGES, [])
    assert DiskFiles().list(lake / "_staging") == []


def _values(spark: "SparkSession", lake: Path) -> list[str]:
    """What a plain reader of the folder finds."""
    if not list(lake.glob("topic=*")):
        return []
    return [row[0] for row in spark.read.parquet(str(lake)).selectExpr("CAST(value AS string)").collect()]

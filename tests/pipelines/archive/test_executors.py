"""An archive whose executors have no PocketMQ ends with one sentence, and continues when they have it.

Tasks of --engine direct import it by themselves; tests/spark/test_executors.py has those of the connector.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

from tests.spark.broker_kit import Broker, fill, new_topic
from tests.spark.test_executors import WITHOUT_POCKETMQ, bare_python
from tests.spark_fixtures import use_java

from pocketmq.pipelines.archive.manifest import read_manifest

PATIENCE_S = 300.0


@pytest.mark.timeout(2 * PATIENCE_S)
def test_executors_without_pocketmq_end_an_archive_with_one_sentence(broker: Broker, tmp_path: Path) -> None:
    use_java()
    topic, lake = new_topic(broker), tmp_path / "lake"
    fill(broker, topic, ["a", "b"])
    bare = str(bare_python(tmp_path, WITHOUT_POCKETMQ, with_pocketmq=False))

    failed = archive(broker, topic, lake, bare)

    assert failed.returncode == 3, failed.stderr
    (sentence,) = [line for line in failed.stderr.splitlines() if line.startswith("pocketmq: ")]
    assert "an executor does not have the module pocketmq" in sentence
    assert "pip install 'pocketmq[spark]'" in sentence
    assert "Traceback" not in failed.stderr
    assert read_manifest(lake).rows == 0
    done = archive(broker, topic, lake, sys.executable)
    assert done.returncode == 0, done.stderr
    assert read_manifest(lake).rows == 2


def archive(broker: Broker, topic: str, lake: Path, python: str) -> "subprocess.CompletedProcess[str]":
    """The command, with this Python on executors."""
    options = ["--namesrv", broker.name_server, "--topic", topic, "--lake", str(lake), "--engine", "direct"]
    return subprocess.run(
        [sys.executable, "-m", "pocketmq", "pipeline", "archive", *options, "--master", "local[1]"],
        env={**os.environ, "PYSPARK_PYTHON": python},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )

"""A dry run uses the checkpoint, as the stream would."""

from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

from tests.spark.broker_kit import Broker, fill, new_topic, options, queue

from pocketmq.files import DiskFiles
from pocketmq.pipelines.core.plan import stream_queues
from pocketmq.spark.read.offsets import UNRESOLVED, QueryOffset, write_batch


def test_a_topic_deleted_since_the_last_run_is_omitted_from_the_plan(broker: Broker, tmp_path: Path) -> None:
    topic = new_topic(broker, queues=1)
    fill(broker, topic, ["a", "b", "c"])
    read = QueryOffset({queue(broker, topic, 0): 2, queue(broker, f"{topic}-deleted", 0): 5})
    write_batch(tmp_path / "batch.json", dict(UNRESOLVED), read.to_json())
    given = options(broker, subscribe=f"{topic},{topic}-deleted")

    planned, begins = stream_queues(given, str(tmp_path), DiskFiles())

    assert [(one.topic, one.start, one.end) for one in planned] == [(topic, 2, 3)]
    assert begins == "where the last run ended, by the checkpoint"

"""A table accepts batches in another process, too: with Spark Connect, foreachBatch runs on the server."""

import pickle
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

from pyspark import cloudpickle

from pocketmq.pipelines.archive import job
from pocketmq.pipelines.archive.settings import ArchiveSettings
from pocketmq.pipelines.archive.sinks import TableSink
from pocketmq.pipelines.archive.table import Target


class Messages:
    """Rows that nothing is done with."""


def test_the_batch_function_can_be_pickled_for_a_connect_server(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    schema = tmp_path / "a.avsc"
    schema.write_text('{"type": "record", "name": "A", "fields": [{"name": "id", "type": "int"}]}', "utf-8")
    settings = ArchiveSettings(
        topics=["orders"], table="lake.db.orders", checkpoint="/c", schema=str(schema), dead_letters="dead"
    )
    sink = TableSink(Target("iceberg", "lake.db.orders"), settings.sink, settings.sink.shape(), "writer")
    seen: list[tuple[Any, int]] = []

    add = pickle.loads(cloudpickle.dumps(job._adding(sink, settings, None)))  # type: ignore[no-untyped-call]
    monkeypatch.setattr(
        TableSink, "add", lambda self, messages, batch: seen.append((self.settings.table, batch.number))
    )
    add(Messages(), 7)

    assert seen == [("lake.db.orders", 7)]

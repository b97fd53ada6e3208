"""A run: it waits until the queries end, stops them on request, and reports a failure in one sentence."""

import signal
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

from tests.spark.broker_kit import Broker, fill, new_topic, options

from pocketmq.errors import PipelineFailed
from pocketmq.pipelines.core.progress import Progress, ProgressTable
from pocketmq.pipelines.core.running import Run, run_until_caught_up, stopped_by_signals
from pocketmq.pipelines.core.settings import Duration

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


class FakeQuery:
    """A query that was stopped, or ended, or failed."""

    def __init__(self, error: Exception | None = None) -> None:
        self.id, self.name = "1", "fake"
        self.isActive = True
        self.recentProgress: list[Any] = []
        self.lastProgress = None
        self._error = error

    def awaitTermination(self, timeout: float) -> bool:
        if self._error is not None:
            self.isActive = False
            raise self._error
        return False

    def exception(self) -> Exception | None:
        return self._error

    def stop(self) -> None:
        self.isActive = False


def start(spark: "SparkSession", broker: Broker, topic: str, folder: Path, **trigger: Any) -> "StreamingQuery":
    stream = spark.readStream.format("rocketmq").options(
        **options(broker, subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=4)
    )
    return (
        stream.schema("value binary")
        .load()
        .writeStream.queryName(topic)
        .format("parquet")
        .options(path=str(folder / "out"), checkpointLocation=str(folder / "checkpoint"))
        .trigger(**trigger)
        .start()
    )


def test_a_query_is_followed_to_its_end_and_its_result_reported(
    spark: "SparkSession", broker: Broker, tmp_path: Path
) -> None:
    topic = new_topic(broker)
    fill(broker, topic, [f"row {number}" for number in range(6)])
    rows: list[Progress] = []
    run = Run(report=rows.append)

    query = start(spark, broker, topic, tmp_path, **run.trigger)
    summary = run.follow(query, facts={"a": 1})

    assert (summary.ended, summary.messages, summary.batches, summary.facts) == ("caught up", 6, 2, {"a": 1})
    assert [row.messages for row in rows][-1] == 6
    assert rows[-1].query == topic
    assert summary.per_s > 0
    assert [len(table.columns) for table in [ProgressTable(query).render()]] == [7]


def test_a_query_without_an_end_is_stopped_when_it_has_caught_up(
    spark: "SparkSession", broker: Broker, tmp_path: Path
) -> None:
    topic = new_topic(broker)
    fill(broker, topic, ["a", "b", "c"])

    query = start(spark, broker, topic, tmp_path, processingTime="100 milliseconds")
    summary = run_until_caught_up(query, timeout_s=120)

    assert not query.isActive
    assert (summary.ended, summary.messages) == ("caught up", 3)
    assert spark.read.parquet(str(tmp_path / "out")).count() == 3


def test_a_failure_is_one_sentence_and_all_queries_end() -> None:
    failed: Any = FakeQuery(RuntimeError("long\npocketmq.errors.DataLost: messages 3 to 9 are gone\n\tat java"))
    other: Any = FakeQuery()

    with pytest.raises(PipelineFailed, match=r"^messages 3 to 9 are gone$"):
        Run().follow(failed, other)

    assert not other.isActive


def test_a_run_that_is_stopped_ends_its_queries() -> None:
    query: Any = FakeQuery()
    run = Run(once=False, every_ms=Duration(250))
    run.stop()

    assert run.follow(query).ended == "stopped"
    assert not query.isActive
    assert run.trigger == {"processingTime": "250 milliseconds"}


def test_queries_that_do_not_catch_up_in_time_are_stopped() -> None:
    query: Any = FakeQuery()
    query.status = {"isDataAvailable": True, "isTriggerActive": True}

    with pytest.raises(PipelineFailed, match=r"had not caught up after 0\.3 s"):
        run_until_caught_up(query, timeout_s=0.3)

    assert not query.isActive


def test_the_first_signal_ends_a_run_cleanly_and_the_second_at_once() -> None:
    run = Run()
    before = signal.getsignal(signal.SIGTERM)

    with stopped_by_signals(run):
        signal.raise_signal(signal.SIGTERM)
        assert run.stopping.is_set()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)

    assert signal.getsignal(signal.SIGTERM) is before


def test_signals_are_handled_in_the_main_thread_only() -> None:
    before = signal.getsignal(signal.SIGTERM)
    seen = []

    def look() -> None:
        with stopped_by_signals(Run()):
            seen.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()

    assert seen == [before]

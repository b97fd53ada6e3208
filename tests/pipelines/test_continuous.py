"""Pipelines that run until they are stopped: new messages are processed, and the next run continues after them."""

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from tests.pipelines.sent_kit import bodies, values_in
from tests.spark.broker_kit import Broker, fill, new_topic

from pocketmq import Server
from pocketmq.pipelines import JOBS
from pocketmq.pipelines.core.progress import Progress
from pocketmq.pipelines.core.running import Run, Summary
from pocketmq.pipelines.core.settings import Duration

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PATIENCE_S: Final = 120.0
EVERY: Final = Duration(50)


@pytest.fixture
def other(tmp_path: Path) -> Iterator[Broker]:
    with Server(data=tmp_path / "other", settings={"brokerName": "broker-b"}) as server:
        yield Broker.of(server)


def stopped_after(
    spark: "SparkSession", pipeline: str, told: dict[str, Any], total: int, meanwhile: Callable[[], None]
) -> Summary:
    """A run that is stopped after `total` messages; after the first ones `meanwhile` is called."""
    did_meanwhile = False

    def hear(progress: Progress) -> None:
        nonlocal did_meanwhile
        if progress.messages and not did_meanwhile:
            did_meanwhile = True
            meanwhile()
        if progress.messages >= total:
            run.stop()

    run = Run(once=False, every_ms=EVERY, report=hear)
    over = threading.Timer(PATIENCE_S, run.stop)
    over.start()
    try:
        return JOBS[pipeline].run(spark, JOBS[pipeline].settings(**told), run)
    finally:
        over.cancel()


@pytest.mark.parametrize("pipeline", ["archive", "quality", "mirror"])
def test_a_continuous_run_ends_when_stopped_and_the_next_run_continues(
    spark: "SparkSession", broker: Broker, other: Broker, tmp_path: Path, pipeline: str
) -> None:
    topic, notes, lake = new_topic(broker), str(tmp_path / "notes"), str(tmp_path / "lake")
    own: dict[str, dict[str, Any]] = {
        "archive": {"lake": lake},
        "quality": {"checkpoint": notes, "schema": "id int", "dead_letters": f"{topic}-dead", "good": f"{topic}-good"},
        "mirror": {"checkpoint": notes, "target": other.name_server},
    }
    told = {"namesrv": broker.name_server, "topics": [topic], **own[pipeline]}

    def written() -> Counter[str]:
        if pipeline == "archive":
            rows = spark.read.parquet(lake).selectExpr("CAST(value AS string)").collect()
            return Counter(row[0] for row in rows)
        if pipeline == "mirror":
            return values_in(other, topic)
        return values_in(broker, f"{topic}-dead") + values_in(broker, f"{topic}-good")

    fill(broker, topic, bodies(0, 5))
    first = stopped_after(spark, pipeline, told, 8, lambda: fill(broker, topic, bodies(5, 8), number=1))
    fill(broker, topic, bodies(8, 10))
    second = JOBS[pipeline].run(spark, JOBS[pipeline].settings(**told), Run())

    assert (first.ended, first.messages) == ("stopped", 8)
    assert (second.ended, second.messages) == ("caught up", 2)
    assert written() == Counter(bodies(0, 10))

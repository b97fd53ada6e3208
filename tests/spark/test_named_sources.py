"""Named sources: a query continues although its sources are in another order, and one was added."""

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

from tests.spark.broker_kit import Broker, fill, new_topic, options
from tests.spark.stream_kit import ran

from pocketmq.spark.pyspark_versions import NAMED_SOURCES, has

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EVOLUTION = "spark.sql.streaming.queryEvolution.enableSourceEvolution"


@pytest.mark.skipif(not has(NAMED_SOURCES), reason="PySpark 4.0 and 4.1 have no named sources")
def test_named_sources_keep_their_offsets_in_another_order(
    spark: "SparkSession", broker: Broker, tmp_path: Path
) -> None:
    topics = {name: new_topic(broker) for name in ("orders", "payments", "refunds")}
    target = new_topic(broker)

    def named(name: str) -> "DataFrame":
        given = options(broker, subscribe=topics[name], startingOffsets="earliest")
        return spark.readStream.format("rocketmq").schema("value binary").options(**given).name(name).load()

    def run(*names: str) -> None:
        frame = named(names[0])
        for name in names[1:]:
            frame = frame.union(named(name))
        writer = frame.writeStream.format("rocketmq").options(**options(broker, topic=target))
        ran(writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start)

    spark.conf.set(EVOLUTION, "true")
    try:
        fill(broker, topics["orders"], ["order 1", "order 2"])
        fill(broker, topics["payments"], ["payment 1"])
        run("orders", "payments")
        for name in topics:
            fill(broker, topics[name], [f"{name}, later"])
        run("refunds", "payments", "orders")
    finally:
        spark.conf.unset(EVOLUTION)

    rows = spark.read.format("rocketmq").schema("value binary").options(**options(broker, subscribe=target)).load()
    later = [f"{name}, later" for name in topics]
    assert Counter(row[0].decode() for row in rows.collect()) == Counter(["order 1", "order 2", "payment 1", *later])

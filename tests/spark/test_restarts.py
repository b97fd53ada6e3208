"""A worker that is killed in the middle of a batch, on the session of the tests: once where rows are read, once where they are written.

Every other moment, and drivers that are killed, take a driver of their own: `python -m tests.spark.restarts`.
"""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

from pyspark import cloudpickle
from pyspark.errors import PySparkException
from tests.spark import killing_source
from tests.spark.broker_kit import Broker, fill, new_topic, options
from tests.spark.driver_kills import rows_in
from tests.spark.killing_source import KillingSource, Moment, Victim
from tests.spark.stream_kit import ran

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


@pytest.fixture
def killing(spark: "SparkSession") -> Iterator["SparkSession"]:
    """The session knows `format("killing")`; workers cannot import the tests, so it is pickled by value."""
    cloudpickle.register_pickle_by_value(killing_source)  # type: ignore[no-untyped-call]
    spark.dataSource.register(KillingSource)
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "10")
    yield spark
    spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    cloudpickle.unregister_pickle_by_value(killing_source)  # type: ignore[no-untyped-call]


@pytest.mark.parametrize("moment", [Moment.ROWS_READ, Moment.ROWS_WRITTEN])
def test_after_a_kill_of_a_worker_each_row_exists_once(
    killing: "SparkSession", broker: Broker, tmp_path: Path, moment: Moment
) -> None:
    source, target = new_topic(broker), new_topic(broker)
    sent = [f"row {number}" for number in range(200)]
    for number in range(2):
        fill(broker, source, sent[number::2], number=number)
    kill = {"kill.moment": moment, "kill.victim": Victim.WORKER, "kill.once": str(tmp_path / "killed")}

    def start() -> "StreamingQuery":
        read = options(broker, subscribe=source, startingOffsets="earliest", maxOffsetsPerTrigger=100)
        frame = killing.readStream.format("killing").schema("value binary").options(**read, **kill).load()
        write = options(broker, topic=target, sendBatchBytes=1024)
        writer = frame.writeStream.format("killing").options(**write, **kill)
        return writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()

    with pytest.raises(PySparkException) as failure:  # a session with a master of `local[2]` gives a task one attempt
        ran(start)
    assert (tmp_path / "killed").exists(), failure.value
    ran(start)

    assert rows_in(broker, target) == Counter(sent)

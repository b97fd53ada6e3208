"""What a task that writes finds at a real broker before it writes."""

from contextlib import ExitStack

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

from tests.spark.broker_kit import Broker, fill, new_topic, options, queue

from pocketmq.model.queue import QueueRange
from pocketmq.spark.options.write_options import parse_write_options
from pocketmq.spark.schema import Name
from pocketmq.spark.write.sink_offsets import borrow_metadata, search


def test_the_search_reads_the_ranges_of_metadata_with_the_needed_columns(broker: Broker) -> None:
    topic = new_topic(broker, queues=1)
    fill(broker, topic, ["a", "b", "c"])
    place = queue(broker, topic, 0)
    connection = parse_write_options(options(broker, topic=topic), streaming=False, environ={}).connection

    with ExitStack() as lease:
        low, high = borrow_metadata(connection, lease).bounds([place])[place]
        found = list(
            search(connection, "searchers", [QueueRange(place, low + 1, high)], (Name.QUEUE_OFFSET, Name.VALUE))
        )

    assert [name for batch in found for name in batch.schema.names] == ["queueOffset", "value"] * len(found)
    assert [value for batch in found for value in batch.column(1).to_pylist()] == [b"b", b"c"]

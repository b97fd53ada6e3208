"""What a batch reads: ranges by its options, without deleted messages, and narrowed by filters; and pickling."""

import pickle
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")
pytest.importorskip("pyspark.sql.worker.data_source_pushdown_filters", reason="PySpark 4.0 has no filters")

from pyspark.sql.datasource import EqualTo, GreaterThan, InputPartition, StringContains
from tests.spark.metadata_kit import FakeMetadata

from pocketmq.errors import DataLost
from pocketmq.model.queue import MessageQueue, QueueRange
from pocketmq.spark.options.read_options import ReadOptions, parse_read_options
from pocketmq.spark.read.batch_plan import sizes_of_topics
from pocketmq.spark.read.batch_reader import FilteringTopicReader, TopicReader
from pocketmq.spark.read.bounds import batch_ranges
from pocketmq.spark.read.pushdown import Pushed, narrowed
from pocketmq.spark.schema import Name

Q0, Q1 = (MessageQueue("orders", "broker-a", number) for number in range(2))


def options(**given: str) -> ReadOptions:
    address = {"rocketmq.namesrv.addr": "127.0.0.1:9876", "subscribe": "orders"}
    return parse_read_options({**address, **given}, streaming=False, environ={})


def test_all_messages_of_queues_are_read_and_empty_queues_omitted() -> None:
    assert batch_ranges(options(), FakeMetadata({Q0: (3, 8), Q1: (5, 5)})) == [QueueRange(Q0, 3, 8)]


def test_deleted_messages_fail_the_batch_or_are_skipped() -> None:
    held = FakeMetadata({Q0: (3, 8)})
    start = '{"orders":{"broker-a":{"0":1}}}'

    with pytest.raises(DataLost, match=r"orders@broker-a:0 from 1 to 3 \(retention\)"):
        batch_ranges(options(startingOffsets=start), held)
    assert batch_ranges(options(startingOffsets=start, onDataLoss="skip"), held) == [QueueRange(Q0, 3, 8)]


def test_filters_on_offsets_and_times_shorten_ranges() -> None:
    held = FakeMetadata({Q0: (0, 10), Q1: (0, 4)})
    whole = [QueueRange(Q0, 0, 10), QueueRange(Q1, 0, 4)]

    assert narrowed(whole, Pushed(from_offset=3), held) == [QueueRange(Q0, 3, 10), QueueRange(Q1, 3, 4)]
    assert narrowed(whole, Pushed(from_ms=5_000, to_ms=7_000), held) == [QueueRange(Q0, 5, 7)]
    assert narrowed(whole, Pushed(queue_ids=frozenset({9}), from_ms=1), held) == []


def test_message_sizes_are_sampled_if_topics_may_differ() -> None:
    asked: Any = SimpleNamespace(bytes_per_message=lambda _, places: dict.fromkeys(places, 100))
    other = MessageQueue("payments", "broker-a", 0)

    assert sizes_of_topics([QueueRange(Q0, 3, 8), QueueRange(Q1, 0, 2)], options(), asked) == {}
    assert sizes_of_topics([QueueRange(Q0, 3, 8), QueueRange(other, 0, 2)], options(), asked) == {Q0: 100, other: 100}


def test_filters_that_a_reader_cannot_apply_are_left_to_spark() -> None:
    reader = FilteringTopicReader(options(), (Name.VALUE,))
    left = StringContains(("keys",), "x")

    assert list(reader.pushFilters([EqualTo(("queueId",), 1), GreaterThan(("queueOffset",), 4), left])) == [left]


def test_readers_can_be_pickled() -> None:
    reader = TopicReader(options(), (Name.VALUE,))

    again = pickle.loads(pickle.dumps(reader))

    assert vars(again) == vars(reader)
    assert list(again.read(InputPartition(None))) == []

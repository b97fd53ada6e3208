"""Where a repeated batch searches for its rows: stored at a real broker, by two groups in turn."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

from tests.spark.broker_kit import Broker, fill, new_topic, options, queue

from pocketmq import Admin, Message, Producer
from pocketmq.errors import TopicNotFound
from pocketmq.model.names import is_internal_group
from pocketmq.model.queue import QueueRange
from pocketmq.spark.options.write_options import parse_write_options
from pocketmq.spark.shared_clients import READING
from pocketmq.spark.write.sink_batches import ROW_ID
from pocketmq.spark.write.sink_offsets import SinkMetadata, SinkOffsets

_queries = count()


@contextmanager
def progress_of_a_query(broker: Broker) -> Iterator[SinkOffsets]:
    given = parse_write_options(options(broker, topic="any"), streaming=True, environ={})
    with READING.borrow(given.connection, 60_000) as client:
        metadata = SinkMetadata(client, retries=0, retry_interval_ms=0, ttl_ms=0)
        yield SinkOffsets(given, f"query {next(_queries)} of {broker}", metadata)


def test_two_groups_of_a_query_are_used_alternately(broker: Broker) -> None:
    with progress_of_a_query(broker) as progress:
        assert progress.group(0) == progress.group(2) != progress.group(1) == progress.group(3)
        assert progress.group(0).startswith("spark-rocketmq-sink-")
        assert is_internal_group(progress.group(0))
        assert is_internal_group(progress.group(1))


def test_the_first_batch_of_a_query_searches_from_its_start(broker: Broker) -> None:
    topic = new_topic(broker, queues=1)
    fill(broker, topic, ["from others", "from others"])
    place = queue(broker, topic, 0)

    with progress_of_a_query(broker) as progress:
        assert progress.ranges(topic, 0) == []
        fill(broker, topic, ["a", "b"])
        assert progress.ranges(topic, 0) == [QueueRange(place, 2, 4)]


def test_a_queue_added_during_the_first_batch_is_searched_by_all_its_replays(
    broker: Broker,
) -> None:
    topic = new_topic(broker, queues=1)

    with progress_of_a_query(broker) as progress, Admin(broker.name_server) as admin:
        progress.ranges(topic, 0)
        admin.topics.alter(topic, queues=2)
        fill(broker, topic, ["of the first attempt"], number=1)
        found = [progress.ranges(topic, 0) for _ in range(2)]

        assert found == [[QueueRange(queue(broker, topic, 1), 0, 1)]] * 2


def test_a_batch_searches_from_the_end_of_the_last_one_although_its_own_end_is_recorded(broker: Broker) -> None:
    topic = new_topic(broker, queues=1)
    place = queue(broker, topic, 0)

    with progress_of_a_query(broker) as progress:
        progress.ranges(topic, 0)
        fill(broker, topic, ["batch 0"])
        progress.finish({topic}, 0)
        fill(broker, topic, ["batch 1"])
        progress.finish({topic}, 1)

        assert progress.ranges(topic, 1) == [QueueRange(place, 1, 2)]
        assert progress.ranges(topic, 2) == []


def test_a_lost_offset_means_a_search_of_the_complete_queue(broker: Broker) -> None:
    topic = new_topic(broker, queues=1)
    fill(broker, topic, ["a"])

    with progress_of_a_query(broker) as progress:
        assert progress.ranges(topic, 5) == [QueueRange(queue(broker, topic, 0), 0, 1)]


def test_ids_of_the_partition_are_found_among_all_messages(broker: Broker) -> None:
    topic = new_topic(broker, queues=1)
    place = queue(broker, topic, 0)
    with Producer(broker.name_server) as producer:
        for row_id in ("q-0-1-x", "q-0-10-x", "q-0-1-y"):
            producer.send(Message(topic, b"row", properties={ROW_ID: row_id}), queue=place)
    fill(broker, topic, ["without an id"])

    with progress_of_a_query(broker) as progress:
        found = progress.row_ids([QueueRange(place, 0, 4)], "q-0-1-")

        assert sorted(found) == ["q-0-1-x", "q-0-1-y"]
        assert list(progress.row_ids([], "q")) == []


def test_the_topic_must_exist(broker: Broker) -> None:
    with (
        progress_of_a_query(broker) as progress,
        pytest.raises(TopicNotFound, match=r"must exist to write effectively once"),
    ):
        progress.ranges("nobody-made-it", 0)

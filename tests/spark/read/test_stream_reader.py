"""A streaming read against a real broker, called as Spark calls it, without Spark: offsets, limits, changes and
losses.
"""

from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

from tests.spark.broker_kit import Broker, fill, new_topic, options, queue

from pocketmq import Admin
from pocketmq.errors import DataLost
from pocketmq.model.queue import QueueRange
from pocketmq.spark.options.connection_options import Connection
from pocketmq.spark.options.read_options import parse_read_options
from pocketmq.spark.pyspark_versions import ReadAllAvailable, ReadLimit, ReadMaxBytes, ReadMaxRows
from pocketmq.spark.read.offsets import UNRESOLVED, parse_offset, read_batch
from pocketmq.spark.read.stream_reader import TopicStreamReader
from pocketmq.spark.schema import Name
from pocketmq.spark.shared_clients import READING, ReadingCore

Offset = dict[str, Any]
Open = Callable[..., TopicStreamReader]


@pytest.fixture
def open_reader(broker: Broker) -> Iterator[Open]:
    opened: list[TopicStreamReader] = []

    def make(**given: str | int) -> TopicStreamReader:
        quick: dict[str, str | int] = {
            "latestOffset_minIntervalMs": 0,
            "partition_metadata_cache_ttl_ms": 0,
            "startingOffsets": "earliest",
        }
        read = parse_read_options(options(broker, **{**quick, **given}), streaming=True, environ={})
        opened.append(TopicStreamReader(read, (Name.VALUE,)))
        return opened[-1]

    yield make
    for reader in opened:
        reader.stop()


def ask(reader: TopicStreamReader, start: Offset, limit: ReadLimit | None = None) -> Offset:
    return reader.latestOffset(start, limit or reader.getDefaultReadLimit())


def rows(reader: TopicStreamReader, start: Offset, end: Offset) -> list[str]:
    found = [batch for part in reader.partitions(start, end) for batch in reader.read(part)]
    return sorted(value.decode() for batch in found for value in batch.column(0).to_pylist())


def test_the_initial_offset_is_constant(broker: Broker, open_reader: Open) -> None:
    reader = open_reader(subscribe=new_topic(broker))

    assert reader.initialOffset() == reader.initialOffset() == dict(UNRESOLVED)


def test_a_repeated_batch_reads_the_same_although_the_end_has_moved(broker: Broker, open_reader: Open) -> None:
    topic = new_topic(broker)
    fill(broker, topic, ["old"])
    reader = open_reader(subscribe=topic, startingOffsets="latest")
    first = ask(reader, reader.initialOffset())
    fill(broker, topic, ["new"])
    second = ask(reader, first)
    fill(broker, topic, ["newest"])
    again = open_reader(subscribe=topic, startingOffsets="latest")

    assert rows(again, again.initialOffset(), first) == []
    assert rows(again, first, second) == ["new"]


def test_without_new_messages_the_offset_is_identical(broker: Broker, open_reader: Open) -> None:
    topic = new_topic(broker)
    fill(broker, topic, ["a"])
    reader = open_reader(subscribe=topic)
    end = ask(reader, reader.initialOffset())

    assert ask(reader, end) is end
    assert reader.partitions(end, end) == []


def test_limits_of_rows_split_the_backlog_into_batches(broker: Broker, open_reader: Open) -> None:
    topic = new_topic(broker)
    fill(broker, topic, [f"{number}" for number in range(7)])
    reader = open_reader(subscribe=topic, maxOffsetsPerTrigger=3)
    ends = [reader.initialOffset()]
    while len(ends) < 2 or ends[-1] is not ends[-2]:
        ends.append(ask(reader, ends[-1]))

    sizes = [len(rows(reader, start, end)) for start, end in pairwise(ends)]

    assert reader.getDefaultReadLimit() == ReadMaxRows(3)
    assert sizes == [3, 3, 1, 0]


def test_limits_of_bytes_use_the_average_message_size(broker: Broker, open_reader: Open) -> None:
    topic = new_topic(broker, queues=1)
    fill(broker, topic, [f"{number}" * 1000 for number in range(10)])
    reader = open_reader(subscribe=topic, maxBytesPerTrigger=5000)

    end = ask(reader, reader.initialOffset())

    assert reader.getDefaultReadLimit() == ReadMaxBytes(5000)
    assert 1 <= len(rows(reader, reader.initialOffset(), end)) < 5


def test_available_now_without_limits_reads_everything_in_one_batch(broker: Broker, open_reader: Open) -> None:
    topic = new_topic(broker)
    fill(broker, topic, ["a", "b", "c"])
    reader = open_reader(subscribe=topic, maxOffsetsPerTrigger=1)

    end = ask(reader, reader.initialOffset(), ReadAllAvailable())

    assert rows(reader, reader.initialOffset(), end) == ["a", "b", "c"]


def test_available_now_does_not_wait_for_a_minimum(broker: Broker, open_reader: Open) -> None:
    topic = new_topic(broker)
    fill(broker, topic, ["a"])
    reader = open_reader(subscribe=topic, minOffsetsPerTrigger=3)

    end = ask(reader, reader.initialOffset(), ReadAllAvailable())

    assert rows(reader, reader.initialOffset(), end) == ["a"]


def test_a_repeated_batch_has_the_same_partitions_with_other_options(broker: Broker, open_reader: Open) -> None:
    topic = new_topic(broker)
    fill(broker, topic, [f"{number}" for number in range(9)])
    reader = open_reader(subscribe=topic, maxPartitions=3)
    start = reader.initialOffset()
    end = ask(reader, start)
    again = open_reader(subscribe=topic, maxPartitions=5, maxRecordsPerPartition=1)

    planned = [part.value.slices for part in again.partitions(start, end)]

    assert planned == [part.value.slices for part in reader.partitions(start, end)]
    assert len(planned) == 3


def test_too_few_messages_wait_for_the_minimum(broker: Broker, open_reader: Open) -> None:
    topic = new_topic(broker)
    reader = open_reader(subscribe=topic, minOffsetsPerTrigger=3)
    start = ask(reader, reader.initialOffset())
    fill(broker, topic, ["a", "b"])

    assert ask(reader, start) is start

    fill(broker, topic, ["c"])

    assert rows(reader, start, ask(reader, start)) == ["a", "b", "c"]


def test_available_now_ends_where_queues_ended_when_it_began(broker: Broker, open_reader: Open) -> None:
    topic = new_topic(broker)
    fill(broker, topic, ["a", "b"])
    reader = open_reader(subscribe=topic, minOffsetsPerTrigger=100)
    reader.prepareForTriggerAvailableNow()
    fill(broker, topic, ["later"])

    end = ask(reader, reader.initialOffset())

    assert rows(reader, reader.initialOffset(), end) == ["a", "b"]
    assert ask(reader, end) is end


def test_queues_that_are_added_are_read_from_their_beginning(broker: Broker, open_reader: Open) -> None:
    topic = new_topic(broker, queues=1)
    reader = open_reader(subscribe=topic, startingOffsets="latest")
    start = ask(reader, reader.initialOffset())
    with Admin(broker.name_server) as admin:
        admin.topics.alter(topic, queues=2)
    fill(broker, topic, ["from a new queue"], number=1)

    end = ask(reader, start)

    assert rows(reader, start, end) == ["from a new queue"]


def test_topics_that_match_later_are_found(broker: Broker, open_reader: Open) -> None:
    first = new_topic(broker)
    reader = open_reader(subscribePattern=f"{first}(-more)?", startingOffsets="latest")
    start = ask(reader, reader.initialOffset())
    with Admin(broker.name_server) as admin:
        admin.topics.create(f"{first}-more", queues=1)
    fill(broker, f"{first}-more", ["found"])

    assert rows(reader, start, ask(reader, start)) == ["found"]


@pytest.mark.parametrize("policy", ["fail", "skip", "earliest"])
def test_a_recreated_topic_is_reported_or_read_from_its_start(broker: Broker, open_reader: Open, policy: str) -> None:
    topic = new_topic(broker, queues=1)
    fill(broker, topic, ["a", "b", "c"])
    reader = open_reader(subscribe=topic, onDataLoss=policy)
    start = ask(reader, reader.initialOffset())
    with Admin(broker.name_server) as admin:
        admin.topics.delete(topic)
        admin.topics.create(topic, queues=1)

    if policy == "fail":
        with pytest.raises(DataLost, match=r"re-created topic"):
            ask(reader, start)
        return
    moved = ask(reader, start)
    fill(broker, topic, ["new"])

    told = parse_offset(moved)
    assert told is not None
    assert [lost.range.queue for lost in told.lost] == [queue(broker, topic, 0)]
    assert rows(reader, moved, ask(reader, moved)) == ["new"]


def test_a_just_recreated_topic_is_detected_although_it_is_longer_than_the_old_one(
    broker: Broker, open_reader: Open
) -> None:
    topic = new_topic(broker, queues=1)
    fill(broker, topic, ["a", "b"])
    failing = open_reader(subscribe=topic, startingOffsets="latest")
    patient = open_reader(subscribe=topic, onDataLoss="skip")
    starts = [ask(reader, reader.initialOffset()) for reader in (failing, patient)]
    with Admin(broker.name_server) as admin:
        admin.topics.delete(topic)
        admin.topics.create(topic, queues=1)
    fill(broker, topic, ["c", "d", "e"])

    with pytest.raises(DataLost, match=r"from 2 to 3 \(re-created topic\)"):
        ask(failing, starts[0])
    assert rows(patient, starts[1], ask(patient, starts[1])) == ["c", "d", "e"]


@pytest.mark.parametrize("policy", ["fail", "skip"])
def test_a_repeated_batch_reads_nothing_of_a_recreated_topic(broker: Broker, open_reader: Open, policy: str) -> None:
    topic = new_topic(broker, queues=1)
    fill(broker, topic, ["a", "b"])
    reader = open_reader(subscribe=topic)
    start = reader.initialOffset()
    end = ask(reader, start)
    with Admin(broker.name_server) as admin:
        admin.topics.delete(topic)
        admin.topics.create(topic, queues=1)
    fill(broker, topic, ["c", "d", "e"])
    # As if the batch had been planned ten minutes ago, by a driver that was killed then.
    logged = {**end, "seenMs": end["seenMs"] - 600_000}
    again = open_reader(subscribe=topic, onDataLoss=policy)

    if policy == "fail":
        with pytest.raises(DataLost, match=r"from 0 to 2 \(re-created topic\)"):
            again.partitions(start, logged)
        return
    assert rows(again, start, logged) == []
    assert rows(again, logged, ask(again, logged)) == ["c", "d", "e"]


@pytest.mark.parametrize("at_once", [False, True])
def test_a_deleted_topic_does_not_block_others_or_the_progress(
    broker: Broker, open_reader: Open, at_once: bool
) -> None:
    kept, deleted = new_topic(broker, queues=1), new_topic(broker, queues=1)
    fill(broker, kept, ["a"])
    fill(broker, deleted, ["b"])
    start = ask(reader := open_reader(subscribe=f"{kept},{deleted}"), reader.initialOffset())
    with Admin(broker.name_server) as admin:
        admin.topics.delete(deleted)
    fill(broker, kept, ["c"])
    # As after a restart: a new client, which does not know the topic.
    group = f"kept-{kept}"
    again = open_reader(subscribe=f"{kept},{deleted}", groupId=group, rocketmq_instanceName=group)
    if at_once:
        again.prepareForTriggerAvailableNow()

    end = ask(again, start)

    assert rows(again, start, end) == ["c"]
    missing = (again.reportLatestOffset() or {})["missing"]
    assert [(one["topic"], one["start"]) for one in missing] == [(deleted, 1)]
    with Admin(broker.name_server) as admin:
        assert admin.offsets.committed(group, kept) == {queue(broker, kept, 0): 1}


@pytest.mark.parametrize("policy", ["fail", "skip"])
def test_a_topic_deleted_after_its_last_message_was_read_loses_nothing(
    broker: Broker, open_reader: Open, policy: str
) -> None:
    topic = new_topic(broker, queues=1)
    fill(broker, topic, ["a", "b", "c", "d", "e"])
    reader = open_reader(subscribe=topic, partition_metadata_cache_ttl_ms=600_000, onDataLoss=policy)
    end = ask(reader, reader.initialOffset())
    with Admin(broker.name_server) as admin:
        admin.topics.delete(topic)

    assert ask(reader, end) is end
    missing = (reader.reportLatestOffset() or {})["missing"]
    assert [(one["start"], one["end"]) for one in missing] == [(5, 5)]

    with Admin(broker.name_server) as admin:
        admin.topics.create(topic, queues=1)
    if policy == "fail":
        with pytest.raises(DataLost, match=r"from 5, if any, \(re-created topic\)"):
            ask(reader, end)
        return
    moved = ask(reader, end)
    fill(broker, topic, ["new"])
    assert rows(reader, moved, ask(reader, moved)) == ["new"]


@pytest.mark.parametrize("restarts", [False, True], ids=["in its first run", "in a later run"])
def test_a_topic_deleted_during_its_batch_is_handled_by_the_policy(
    broker: Broker, open_reader: Open, restarts: bool
) -> None:
    topic = new_topic(broker, queues=1)
    fill(broker, topic, ["a"])
    reader = open_reader(subscribe=topic)
    start, end = reader.initialOffset(), ask(reader, reader.initialOffset())
    parts = reader.partitions(start, end)
    with Admin(broker.name_server) as admin:
        admin.topics.delete(topic)
    if restarts:
        reader.stop()
        READING.close_idle()  # another process knows no route of the topic

    with pytest.raises(
        DataLost, match=rf"{topic}@{broker.name}:0 from 0 to 1 \(deleted topic\).*Set onDataLoss = skip"
    ):
        _ = [list(reader.read(part)) for part in parts]

    again = open_reader(subscribe=topic, onDataLoss="skip")
    assert rows(again, start, end) == []
    assert ask(again, end) is end


def test_a_run_with_available_now_on_a_deleted_topic_ends_at_once(broker: Broker, open_reader: Open) -> None:
    topic = new_topic(broker, queues=1)
    fill(broker, topic, ["a"])
    reader = open_reader(subscribe=topic)
    end = ask(reader, reader.initialOffset())
    with Admin(broker.name_server) as admin:
        admin.topics.delete(topic)

    again = open_reader(subscribe=topic)
    again.prepareForTriggerAvailableNow()

    assert ask(again, end) is end


def test_a_topic_deleted_only_by_its_broker_so_far_loses_nothing(broker: Broker, open_reader: Open) -> None:
    topic = new_topic(broker, queues=1)
    fill(broker, topic, ["a"])
    reader = open_reader(subscribe=topic)
    end = ask(reader, reader.initialOffset())

    async def delete_at_broker(core: ReadingCore) -> None:
        master = await core.targets.master(broker.name)
        await core.targets.brokers.topics.delete(master.address, core.targets.topic(topic))

    with READING.borrow(Connection(broker.name_server), 0) as client:
        client.call(delete_at_broker(client.core()))

    assert ask(reader, end) is end


def test_a_removed_assigned_queue_does_not_block_others(broker: Broker, open_reader: Open) -> None:
    topic = new_topic(broker, queues=2)
    reader = open_reader(assign=f'{{"{topic}":{{"{broker.name}":[0,1]}}}}')
    start = ask(reader, reader.initialOffset())
    with Admin(broker.name_server) as admin:
        admin.topics.alter(topic, queues=1)
    fill(broker, topic, ["a"])

    assert rows(reader, start, ask(reader, start)) == ["a"]


def test_progress_is_published_as_soon_as_a_batch_is_done(broker: Broker, open_reader: Open) -> None:
    topic = new_topic(broker, queues=1)
    fill(broker, topic, ["a", "b", "c"])
    reader = open_reader(subscribe=topic, groupId="watched", maxOffsetsPerTrigger=2)
    first = ask(reader, reader.initialOffset())
    second = ask(reader, first)

    with Admin(broker.name_server) as admin:
        assert admin.offsets.committed("watched", topic)[queue(broker, topic, 0)] == 2

        ask(reader, second)

        assert admin.offsets.committed("watched", topic)[queue(broker, topic, 0)] == 3
        assert admin.offsets.lag("watched", topic).messages == 0


def test_new_topics_and_queues_are_logged(broker: Broker, open_reader: Open) -> None:
    topic = new_topic(broker, queues=1)
    reader = open_reader(subscribe=topic)
    assert reader.reportLatestOffset() is None
    fill(broker, topic, ["a"])

    ask(reader, reader.initialOffset())

    latest = reader.reportLatestOffset()
    assert latest is not None
    assert list(latest["queues"][topic].values()) == [{"0": 1}]


def test_the_offsets_of_a_batch_are_in_its_file_before_it_runs(
    broker: Broker, open_reader: Open, tmp_path: Path
) -> None:
    topic, path = new_topic(broker), tmp_path / "new" / "batch.json"
    fill(broker, topic, ["a", "b"])
    reader = open_reader(subscribe=topic, batchFile=str(path))

    first = ask(reader, reader.initialOffset())
    reader.partitions(reader.initialOffset(), first)
    planned = read_batch(path)
    reader.partitions(first, first)  # another source of the query has new messages

    assert (planned.start, planned.lost) == (None, ())
    assert planned.ranges == [QueueRange(queue(broker, topic, 0), 0, 2)]
    assert read_batch(path).ranges == []

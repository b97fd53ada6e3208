"""What a task of a write does, against a real broker and without Spark: every phase in which it may be killed."""

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from time import monotonic, sleep
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

from tests.spark.broker_kit import Broker, new_topic, options

from pocketmq import Admin
from pocketmq.errors import InvalidMessage, TopicNotFound, UsageError, WrongState
from pocketmq.spark.arrow import pa
from pocketmq.spark.options.read_options import parse_read_options
from pocketmq.spark.options.write_options import WriteOptions, parse_write_options
from pocketmq.spark.read.batch_reader import TopicReader
from pocketmq.spark.schema import Name
from pocketmq.spark.write import sink_task, writer
from pocketmq.spark.write.sink_offsets import IN_FLIGHT_S
from pocketmq.spark.write.writer import RowsWritten, TopicStreamWriter, TopicWriter

QUERY = "7c1f7f5e-query"
ATTEMPT = int("SPARK_TEST_BROKER" in os.environ)
"""Brokers of Apache let a message be read a moment after they took it: a later attempt waits for that."""


class Killed(Exception):
    """Something outside ended the task."""


@pytest.fixture(autouse=True)
def a_task(monkeypatch: pytest.MonkeyPatch) -> None:
    told = SimpleNamespace(partitionId=lambda: 0, attemptNumber=lambda: ATTEMPT, stageId=lambda: 7)
    monkeypatch.setattr(writer, "_task", lambda: told)


def sink(broker: Broker, *, streaming: bool = True, **given: str | int) -> WriteOptions:
    return parse_write_options(options(broker, **given), streaming=streaming, environ={})


def batches(values: Sequence[str], size: int = 2) -> Iterator[Any]:
    for start in range(0, len(values), size):
        yield pa.record_batch({"value": list(values[start : start + size])})


def write_rows(
    rows: Iterator[Any], given: WriteOptions, query_id: str, batch_id: int, attempt: int = ATTEMPT
) -> RowsWritten:
    """As the first task of a batch."""
    return RowsWritten(query_id, sink_task.write_rows(rows, given, query_id, batch_id, 0, attempt))


def killed_after(values: Sequence[str]) -> Iterator[Any]:
    yield from batches(values)
    raise Killed


def in_topic(broker: Broker, topic: str, rows: int) -> Counter[str]:
    """The readable messages, when there are this many: Apache's brokers show a message a moment after they stored
    it.
    """
    given = parse_read_options(options(broker, subscribe=topic), streaming=False, environ={})
    deadline = monotonic() + 10
    while True:
        reader = TopicReader(given, (Name.VALUE,))
        found = [batch for part in reader.partitions() for batch in reader.read(part)]
        if sum(map(len, found)) >= rows or monotonic() > deadline:
            return Counter(value.decode() for batch in found for value in batch.column(0).to_pylist())
        sleep(0.02)


def test_rows_are_in_the_topic_when_the_task_is_done(broker: Broker) -> None:
    topic = new_topic(broker)

    written = write_rows(batches(["a", "b", "c"]), sink(broker, topic=topic), QUERY, 0)

    assert written.topics == (topic,)
    assert in_topic(broker, topic, 3) == Counter("abc")


def test_a_task_restarted_after_a_kill_writes_the_rest(broker: Broker) -> None:
    topic = new_topic(broker)
    once = sink(broker, topic=topic, sendBatchBytes=1024)
    rows = [letter * 700 for letter in "abcdefgh"]
    with pytest.raises(Killed):
        write_rows(killed_after(rows[:6]), once, QUERY, 0)

    write_rows(batches(list(reversed(rows))), once, QUERY, 0, attempt=1)

    assert in_topic(broker, topic, len(rows)) == Counter(rows)


def test_a_later_attempt_waits_for_requests_of_the_previous_one(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = new_topic(broker)
    waits: list[float] = []
    monkeypatch.setattr(sink_task, "sleep", waits.append)

    for guarantee, attempt in (("effectively-once", 0), ("at-least-once", 1), ("effectively-once", 1)):
        write_rows(batches(["a"]), sink(broker, topic=topic, deliveryGuarantee=guarantee), QUERY, 0, attempt)

    assert waits == [IN_FLIGHT_S]


def test_streams_and_single_writes_have_their_launch_times(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    launches: list[str] = []
    told = {writer.QUERY_ID_PROPERTY: QUERY, writer.BATCH_ID_PROPERTY: "3", writer.RUN_ID_PROPERTY: "run 1"}
    task = SimpleNamespace(
        partitionId=lambda: 0, attemptNumber=lambda: 0, stageId=lambda: 7, getLocalProperty=lambda name: told.get(name)
    )
    monkeypatch.setattr(writer, "_task", lambda: task)

    def noted(*given: Any) -> tuple[str, ...]:
        launches.append(given[-1])
        return ()

    monkeypatch.setattr(sink_task, "write_rows", noted)

    TopicStreamWriter(sink(broker, topic="any")).write(batches(["a"]))
    TopicWriter(sink(broker, streaming=False, topic="any", writeId="w"), overwrite=False).write(batches(["a"]))
    del told[writer.RUN_ID_PROPERTY]
    TopicStreamWriter(sink(broker, topic="any")).write(batches(["a"]))

    assert launches == ["run 1", "stage 7", "stage 7"]


def test_a_batch_that_was_written_but_not_committed_is_not_written_again(broker: Broker) -> None:
    topic = new_topic(broker)
    once = sink(broker, topic=topic)
    write_rows(batches(["a", "a", "b"]), once, QUERY, 0)
    assert in_topic(broker, topic, 3) == Counter("aab")

    write_rows(batches(["a", "a", "b"]), once, QUERY, 0)

    assert in_topic(broker, topic, 3) == Counter("aab")


@pytest.mark.parametrize("batch_id", [0, 1, 2, 3])
def test_a_batch_that_the_sink_committed_and_spark_did_not_is_not_written_again(broker: Broker, batch_id: int) -> None:
    topic = new_topic(broker)
    once = sink(broker, topic=topic)
    for number in range(batch_id + 1):
        written = write_rows(batches([f"row {number}"]), once, QUERY, number)
        TopicStreamWriter(once).commit([written, None], number)

    written = write_rows(batches([f"row {batch_id}"]), once, QUERY, batch_id)
    TopicStreamWriter(once).commit([written], batch_id)
    write_rows(batches(["next"]), once, QUERY, batch_id + 1)

    assert in_topic(broker, topic, batch_id + 2) == Counter(
        [*(f"row {number}" for number in range(batch_id + 1)), "next"]
    )


def test_equal_rows_in_another_batch_or_query_are_other_rows(broker: Broker) -> None:
    topic = new_topic(broker)
    once = sink(broker, topic=topic)

    for query_id, batch_id in ((QUERY, 0), (QUERY, 1), ("other", 0)):
        write_rows(batches(["a"]), once, query_id, batch_id)

    assert in_topic(broker, topic, 3) == Counter("aaa")


def test_rows_that_changed_since_the_last_attempt_fail_the_task(broker: Broker) -> None:
    topic = new_topic(broker)
    once = sink(broker, topic=topic)
    write_rows(batches(["a", "b"]), once, QUERY, 0)

    with pytest.raises(WrongState, match=r"wrote 1 rows that this batch"):
        write_rows(batches(["a", "c"]), once, QUERY, 0)


def test_at_least_once_writes_a_replay_again(broker: Broker) -> None:
    topic = new_topic(broker)
    twice = sink(broker, topic=topic, deliveryGuarantee="at-least-once")

    for _ in range(2):
        write_rows(batches(["a"]), twice, QUERY, 0)
    TopicStreamWriter(twice).commit([None], 0)

    assert in_topic(broker, topic, 2) == Counter("aa")


def test_a_batch_write_with_a_name_is_written_once(broker: Broker) -> None:
    topic = new_topic(broker)
    named = TopicWriter(sink(broker, streaming=False, topic=topic, writeId="of today"), overwrite=False)

    for _ in range(2):
        named.commit([named.write(batches(["a", "b"]))])

    assert in_topic(broker, topic, 2) == Counter("ab")


def test_numbered_writes_of_one_name_are_written_once_and_search_after_the_previous_one(broker: Broker) -> None:
    topic = new_topic(broker)

    def write(number: int, *rows: str) -> None:
        given = sink(broker, streaming=False, topic=topic, writeId="each", writeBatch=number, groupId="numbered")
        writer = TopicWriter(given, overwrite=False)
        writer.commit([writer.write(batches(list(rows)))])

    write(0, "a", "b")
    write(1, "a")
    write(1, "a")
    write(2, "c")

    assert in_topic(broker, topic, 4) == Counter("aabc")
    with Admin(broker.name_server) as admin:
        names = [name for name in admin.groups.names(everything=True) if name.startswith("numbered-")]
    kinds = {name.rpartition("-")[2] for name in names}
    if (
        "SPARK_TEST_BROKER" in os.environ
    ):  # RocketMQ 4.9 keeps the offsets of a group that only commits, and does not list it
        assert kinds
        assert kinds <= {"even", "odd"}
    else:
        assert kinds == {"even", "odd"}
    assert len(names) == len(kinds)


def test_rows_go_to_the_topics_of_their_column_and_sharded_ones_keep_their_order(broker: Broker) -> None:
    first, second = new_topic(broker, queues=4), new_topic(broker)
    rows = pa.record_batch(
        {
            "value": [f"{number:02} ".ljust(300, "x") for number in range(20)] + ["elsewhere"],
            "topic": [first] * 20 + [second],
            "shardingKey": ["one customer"] * 20 + [None],
        }
    )

    write_rows(iter([rows]), sink(broker, sendBatchBytes=1024), QUERY, 0)

    assert in_topic(broker, first, 20).total() == 20
    read = parse_read_options(options(broker, subscribe=first), streaming=False, environ={})
    reader = TopicReader(read, (Name.QUEUE_ID, Name.VALUE))
    found = [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]
    assert len({row["queueId"] for row in found}) == 1
    assert [int(row["value"][:2]) for row in found] == list(range(20))
    assert in_topic(broker, second, 1) == Counter(["elsewhere"])


def test_sharded_rows_use_the_queues_of_producers_not_read_only_ones(broker: Broker) -> None:
    topic = new_topic(broker, queues=4)
    with Admin(broker.name_server) as admin:
        admin.topics.alter(topic, write_queues=1)
    rows = pa.record_batch({"value": list("abcdefgh"), "shardingKey": list("abcdefgh")})

    write_rows(iter([rows]), sink(broker, topic=topic), QUERY, 0)

    assert in_topic(broker, topic, 8) == Counter("abcdefgh")
    with Admin(broker.name_server) as admin:
        assert admin.topics.describe(topic).queues[0].max_offset == 8


def test_delayed_rows_need_at_least_once(broker: Broker) -> None:
    topic = new_topic(broker)
    rows = pa.record_batch({"value": ["a"], "delayLevel": [1]})

    with pytest.raises(InvalidMessage, match=r"at-least-once"):
        write_rows(iter([rows]), sink(broker, topic=topic), QUERY, 0)


def test_a_missing_topic_cannot_be_searched(broker: Broker) -> None:
    with pytest.raises(TopicNotFound, match=r"create it, or set deliveryGuarantee"):
        write_rows(batches(["a"]), sink(broker, topic="nobody-made-it"), QUERY, 0)


def test_mode_overwrite_is_refused(broker: Broker) -> None:
    with pytest.raises(UsageError, match=r"mode append"):
        TopicWriter(sink(broker, streaming=False, topic="any"), overwrite=True)

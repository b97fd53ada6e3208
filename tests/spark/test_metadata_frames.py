"""`option("metadata", …)` on a real Spark: topics, queues, groups, losses and dead letters as DataFrames."""

import json
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

from pyspark.errors import PySparkException
from tests.spark.broker_kit import Broker, delete_old_messages, fill, new_topic, old_broker_settings, options, queue
from tests.spark.stream_kit import ran

from pocketmq import Admin, DeadLetter, Message, Producer, PushConsumer, Server
from pocketmq.errors import InvalidSetting
from pocketmq.spark.options.metadata_options import KINDS, parse_metadata_options
from pocketmq.spark.read.metadata_tables import TABLES
from pocketmq.spark.source import RocketMQSource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession
    from pyspark.sql.streaming.listener import StreamingQueryProgress
    from pyspark.sql.streaming.query import StreamingQuery


def about(spark: "SparkSession", broker: Broker, kind: str, **given: str) -> "DataFrame":
    return spark.read.format("rocketmq").options(**options(broker, metadata=kind, **given)).load()


def rows(frame: "DataFrame") -> list[dict[str, Any]]:
    found: list[Row] = frame.collect()
    return [row.asDict() for row in found]


def is_recent(moment: datetime) -> bool:
    return abs(datetime.now(UTC) - moment.replace(tzinfo=UTC)) < timedelta(minutes=5)


def test_every_kind_has_a_schema_of_its_own(broker: Broker) -> None:
    for kind in KINDS:
        schema = RocketMQSource(options(broker, metadata=kind)).schema()
        assert schema.fieldNames() == [field.name for field in TABLES[kind]]
        assert [field.nullable for field in schema.fields] == [field.may_be_null for field in TABLES[kind]]


def test_topics_and_queues_have_offsets_and_times(spark: "SparkSession", broker: Broker) -> None:
    topic, other = new_topic(broker), new_topic(broker)
    fill(broker, topic, ["a", "b"], number=1)

    (by_topic,) = rows(about(spark, broker, "topics", subscribe=topic))
    by_queue = rows(about(spark, broker, "queues", subscribePattern=f"{topic}|{other}").orderBy("topic", "queueId"))

    assert is_recent(by_topic.pop("lastStoreTimestamp"))
    assert by_topic == {
        "topic": topic,
        "brokerName": broker.name,
        "readQueues": 2,
        "writeQueues": 2,
        "permission": "RW",
        "messages": 2,
    }
    assert [(row["topic"], row["queueId"], row["minOffset"], row["maxOffset"], row["messages"]) for row in by_queue] == [
        (topic, 0, 0, 0, 0),
        (topic, 1, 0, 2, 2),
        (other, 0, 0, 0, 0),
        (other, 1, 0, 0, 0),
    ]  # fmt: skip
    assert by_queue[0]["firstStoreTimestamp"] is by_queue[0]["lastStoreTimestamp"] is None
    assert is_recent(by_queue[1]["firstStoreTimestamp"])
    assert by_queue[1]["firstStoreTimestamp"] <= by_queue[1]["lastStoreTimestamp"]


def test_all_topics_are_read_unless_some_are_named_and_columns_are_chosen(
    spark: "SparkSession", broker: Broker
) -> None:
    topic = new_topic(broker)

    all_topics = about(spark, broker, "topics").select("topic").collect()
    chosen = spark.read.format("rocketmq").schema("queueId int, topic string")
    two = chosen.options(**options(broker, metadata="queues", subscribe=topic)).load().orderBy("queueId").collect()

    assert (topic,) in [tuple(row) for row in all_topics]
    assert [tuple(row) for row in two] == [(0, topic), (1, topic)]


def test_groups_have_lag_in_messages_and_time(spark: "SparkSession", broker: Broker) -> None:
    topic = new_topic(broker)
    fill(broker, topic, ["a", "b", "c"])
    group = f"reads-{topic}"
    with Admin(broker.name_server) as admin:
        admin.groups.create(group)
        admin.offsets.reset(group, topic, {queue(broker, topic, 0): 1, queue(broker, topic, 1): 0})

    one = rows(about(spark, broker, "groups", groupId=group).orderBy("queueId"))
    names = {row["group"] for row in rows(about(spark, broker, "groups", subscribe=topic))}

    assert [(row["topic"], row["queueId"], row["committedOffset"], row["maxOffset"], row["lag"]) for row in one] == [
        (topic, 0, 1, 3, 2),
        (topic, 1, 0, 0, 0),
    ]
    assert 0 <= one[0]["lagMs"] < 300_000
    assert (one[1]["lagMs"], one[0]["lost"], one[0]["problem"]) == (0, 0, None)
    assert group in names


def test_dead_letters_are_rows_with_origin_and_reason(spark: "SparkSession", broker: Broker) -> None:
    topic = new_topic(broker)
    group = f"fails-{topic}"

    def refuse(message: object) -> None:
        raise DeadLetter("no such account")

    consumer = PushConsumer(broker.name_server, group=group)
    consumer.subscribe(topic, refuse)
    with consumer, Producer(broker.name_server, group="sends") as producer, Admin(broker.name_server) as admin:
        sent = producer.send(Message(topic, b"5 euro", keys="k", tags="t"))
        deadline = time.monotonic() + 60
        while not admin.dead_letters.counts().get(group):
            assert time.monotonic() < deadline, "the message does not become a dead letter"

    (letter,) = rows(about(spark, broker, "dead-letters", groupId=group))
    none = about(spark, broker, "dead-letters", groupId="has-none").collect()

    assert is_recent(letter.pop("deadTimestamp"))
    assert letter.pop("brokerName") == broker.name
    assert letter == {
        "group": group,
        "queueId": 0,
        "queueOffset": 0,
        "topic": topic,
        "msgId": sent.message_id,
        "reason": "no such account",
        "attempts": letter["attempts"],
        "keys": "k",
        "tags": "t",
        "value": b"5 euro",
    }
    assert none == []


def test_losses_of_a_query_are_exact_with_their_cause(spark: "SparkSession", tmp_path: Path) -> None:
    with Server(data=tmp_path / "store", flush="sync", settings=old_broker_settings()) as server:
        broker = Broker.of(server)
        topic, gone = new_topic(broker, queues=1), new_topic(broker, queues=1)
        fill(broker, topic, ["a", "b"])
        fill(broker, gone, ["a"])
        given = options(broker, subscribe=f"{topic},{gone}", startingOffsets="earliest", onDataLoss="skip")
        stream = spark.readStream.format("rocketmq").options(**given, batchFile=str(tmp_path / "batch.json")).load()
        writer = stream.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "c"))
        before = progress_of(ran(writer.trigger(availableNow=True).start)).sources[0].endOffset
        fill(broker, topic, ["x" * 3000] * 100)
        low = delete_old_messages(broker, topic)
        with Admin(broker.name_server) as admin:
            admin.topics.delete(gone)

        lost = {"topic": topic, "brokerName": broker.name, "queueId": 0, "startOffset": 2, "endOffset": low}
        lost |= {"messages": low - 2, "cause": "retention"}
        by_file = rows(about(spark, broker, "losses", batchFile=str(tmp_path / "batch.json")))
        now = rows(about(spark, broker, "losses", offset=text(before)))
        after = progress_of(ran(writer.trigger(availableNow=True).start)).sources[0].endOffset
        later = rows(about(spark, broker, "losses", offset=f"[{text(before)}, {text(after)}]"))

    missing = {"topic": gone, "brokerName": broker.name, "queueId": 0, "startOffset": 1, "endOffset": None}
    missing |= {"messages": None, "cause": "missing queue", "found": "now"}
    assert now == by_file == [{**lost, "found": "now"}, missing]
    assert later == [{**lost, "found": "recorded"}, missing]


def progress_of(query: "StreamingQuery") -> "StreamingQueryProgress":
    assert query.lastProgress is not None
    return query.lastProgress


def text(offset: Any) -> str:
    return offset if isinstance(offset, str) else json.dumps(offset)


def test_an_offset_may_be_written_as_pyspark_4_0_shows_it() -> None:
    end = {"version": 1, "queues": {"orders": {"broker-a": {"0": 2}}}, "seenMs": 5}
    given = {"rocketmq.namesrv.addr": "a:1", "metadata": "losses"}

    shown = [parse_metadata_options({**given, "offset": one(end)}, {}).offsets for one in (json.dumps, str)]

    assert shown == [(end,), (end,)]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"metadata": "topic"}, "the option metadata = 'topic' is not one of topics, queues, groups, losses, dead-letters"),
        ({"metadata": "losses"}, "metadata = losses needs the option offset or batchFile"),
        ({"metadata": "losses", "offset": "{}", "batchFile": "f"}, "the options offset and batchFile exclude one another"),
        ({"metadata": "losses", "offset": "5"}, "is not the JSON of an offset of a query, or a list of them"),
        ({"metadata": "losses", "offset": "[]"}, "is not the JSON of an offset of a query, or a list of them"),
        ({"metadata": "queues", "groupId": "g"}, "the option groupId is for metadata = groups and dead-letters, not for queues"),
        ({"metadata": "dead-letters", "subscribe": "t"}, "the option subscribe is for metadata = topics and queues and groups"),
        ({"metadata": "topics", "subscribe": "a", "subscribePattern": "b"}, "exclude one another"),
        ({"metadata": "topics", "startingOffsets": "earliest"}, "there is no option 'startingOffsets'"),
    ],
)  # fmt: skip
def test_wrong_options_are_refused(given: dict[str, str], told: str) -> None:
    with pytest.raises(InvalidSetting) as caught:
        parse_metadata_options({"rocketmq.namesrv.addr": "a:1", **given}, {})
    assert told in str(caught.value)


def test_mistakes_are_reported_by_spark(spark: "SparkSession", broker: Broker) -> None:
    def message_of(frame: Any) -> str:
        with pytest.raises(PySparkException) as caught:
            frame().collect()
        return str(caught.value)

    def streamed() -> Any:
        stream = spark.readStream.format("rocketmq").options(**options(broker, metadata="queues")).load()
        query = stream.writeStream.format("noop").start()
        query.awaitTermination(60)

    def with_schema() -> "DataFrame":
        return spark.read.format("rocketmq").schema("lag int").options(**options(broker, metadata="queues")).load()

    assert "is not one of topics, queues, groups, losses, dead-letters" in message_of(
        lambda: about(spark, broker, "queue")
    )
    assert "topic 'no-such' does not exist" in message_of(lambda: about(spark, broker, "queues", subscribe="no-such"))
    assert "metadata = queues has no column lag int; its columns are topic string" in message_of(with_schema)
    assert "the option metadata is for a batch read, not for a streaming read" in message_of(streamed)
    foreign = '{"orders": {"0": 5}}'
    assert "belongs to a query that reads another source" in message_of(
        lambda: about(spark, broker, "losses", offset=foreign)
    )
    none = about(spark, broker, "losses", batchFile="/no/such/file")
    assert "the option batchFile: cannot read /no/such/file" in message_of(lambda: none)

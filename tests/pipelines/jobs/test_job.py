"""The pipeline `trace`: traces of our own clients become timelines and latencies, and a restart adds to them."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

from tests.spark.broker_kit import Broker, new_topic

from pocketmq import Message, Producer
from pocketmq.errors import TopicNotFound
from pocketmq.pipelines.core.running import Run
from pocketmq.pipelines.jobs.trace import TRACE, TraceSettings
from pocketmq.protocol.trace_text import Outcome, SubAfter, SubBefore, encode_trace

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_messages_have_timelines_and_latencies(spark: "SparkSession", broker: Broker, tmp_path: Path) -> None:
    topic, traces = new_topic(broker), new_topic(broker)
    with Producer(broker.name_server, group="tracing", trace=True, trace_topic=traces) as producer:
        sent = [producer.send(Message(topic, b"a", keys=f"key-{number}")) for number in range(3)]
    told = TraceSettings(namesrv=broker.name_server, topics=[traces], lake=str(tmp_path / "lake"))

    first = TRACE.run(spark, told, Run())
    sent_at = spark.read.parquet(f"{told.lake}/timelines").selectExpr("unix_millis(min(sentAt))").collect()[0][0]
    message_id = sent[0].message_id
    body = encode_trace(
        [
            SubBefore(sent_at + 40, "r", "billing", "q1", message_id, 0, "key-0"),
            SubAfter("q1", message_id, 5, False, "key-0", Outcome.RAISED, sent_at + 45, "billing"),
            SubBefore(sent_at + 90, "r", "billing", "q2", message_id, 1, "key-0"),
            SubAfter("q2", message_id, 7, True, "key-0", Outcome.SUCCESS, sent_at + 97, "billing"),
        ]
    )
    with Producer(broker.name_server, group="filling") as producer:
        producer.send(Message(traces, body))
        producer.send(Message(traces, b"\xff"))
    second = TRACE.run(spark, told, Run())

    assert (first.facts["events"], first.facts["messages traced"]) == (3, 3)
    assert (second.facts["events"], second.facts["unreadable"]) == (8, 1)
    lines = {
        row["messageId"]: row for row in spark.read.parquet(f"{told.lake}/timelines").collect() if row["messageId"]
    }
    assert len(lines) == 3
    line = lines[message_id]
    assert (line["topic"], line["keys"], line["sent"], line["consumed"], line["producer"]) == (
        topic,
        "key-0",
        True,
        True,
        "tracing",
    )
    assert [(one["retryTimes"], one["handleMs"], one["outcome"]) for one in line["attempts"]] == [
        (0, 5, "raised"),
        (1, 7, "success"),
    ]
    rows = {(row["what"], row["group"]): dict(row) for row in second.tables["latencies in ms"]}
    assert rows["send", "tracing"]["times"] == 3
    assert rows["handle", "billing"] | {"times": 2, "failed": 1, "max": 7} == rows["handle", "billing"]
    assert rows["deliver", "billing"]["times"] == 1


def test_a_missing_trace_topic_is_reported(spark: "SparkSession", broker: Broker, tmp_path: Path) -> None:
    with pytest.raises(TopicNotFound, match="topic 'no-traces' does not exist"):
        TRACE.run(spark, TraceSettings(namesrv=broker.name_server, topics=["no-traces"], lake=str(tmp_path)), Run())


def test_the_default_is_the_topic_that_clients_trace_to(broker: Broker, tmp_path: Path) -> None:
    with Producer(broker.name_server, group="tracing", trace=True) as producer:
        producer.send(Message(new_topic(broker), b"a"))

    told = TraceSettings(namesrv=broker.name_server, lake=str(tmp_path / "lake"))

    assert TRACE.plan(told).messages >= 1
    assert told.checkpoint_folder == f"{tmp_path}/lake/checkpoint"

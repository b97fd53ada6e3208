"""`read_arrow`: the columns, options and rows of the connector, without Spark."""

import gc
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="pyarrow is not installed")

from tests.spark.broker_kit import Broker, fill, new_topic, options, queue

import pocketmq
from pocketmq import Admin, Message, Producer, Server, read_arrow
from pocketmq.errors import InvalidSetting, MissingLibrary, RemoteError, TopicNotFound
from pocketmq.spark import arrow_read
from pocketmq.spark.arrow import arrow_schema
from pocketmq.spark.schema import COLUMNS, Name, NeverNull
from pocketmq.spark.shared_clients import READING

SAID = "properties['said'] IN ('a', 'b') AND properties['said'] <> 'a'"


def test_all_columns_have_the_types_of_spark(broker: Broker) -> None:
    topic = new_topic(broker)
    fill(broker, topic, ["a", "b"], tags="x")
    fill(broker, topic, ["c"], number=1)

    reader = read_arrow(topic, options=options(broker))
    table = reader.read_all()

    never_null = NeverNull(frozenset(one.name for one in COLUMNS if not one.may_be_null), values=True)
    assert reader.schema == arrow_schema(tuple(Name), never_null)
    rows = [
        (row["queueId"], row["queueOffset"], row["value"], row["tags"], dict(row["properties"])["said"])
        for row in table.to_pylist()
    ]
    assert rows == [(0, 0, b"a", "x", "a"), (0, 1, b"b", "x", "b"), (1, 0, b"c", None, "c")]


def test_columns_options_and_conditions_can_be_passed(broker: Broker) -> None:
    topic = new_topic(broker)
    fill(broker, topic, ["a", "b", "c"])
    ending = {"endingOffsets": f'{{"{topic}": {{"{queue(broker, topic, 0).broker_name}": {{"0": 2, "1": 0}}}}}}'}

    chosen = read_arrow(
        topic, columns=["value"], where="properties['said'] >= 'b'", options={**options(broker), **ending}
    )
    every = read_arrow(topic, where="properties['said'] >= 'b' AND NOT keys = 'c'", options=options(broker))
    bodies = read_arrow(columns=["value"], options={**options(broker, subscribe=topic), "maxPartitions": 3})
    without = read_arrow(topic, options={**options(broker), "includeProperties": False})

    assert chosen.read_all().to_pylist() == [{"value": b"b"}]
    assert [(row["value"], dict(row["properties"])["said"]) for row in every.read_all().to_pylist()] == [(b"b", "b")]
    assert [row["value"] for batch in bodies for row in batch.to_pylist()] == [b"a", b"b", b"c"]
    assert "properties" not in without.schema.names


def test_a_reader_that_is_not_exhausted_returns_its_client(broker: Broker) -> None:
    topic = new_topic(broker)
    fill(broker, topic, ["a"])

    reader = read_arrow(topic, columns=["value"], options={**options(broker), "rocketmq.instanceName": "leaves-early"})
    clients = len(READING)
    batch = next(iter(reader))

    assert batch.to_pylist() == [{"value": b"a"}]
    assert len(READING) == clients + 1
    del batch, reader
    gc.collect()
    assert len(READING) == clients


@pytest.mark.parametrize("columns", [["value"], ["value", "tags", "properties"]])
@pytest.mark.parametrize("where", [SAID, f"{SAID} AND tags = 'x'", f"{SAID} AND queueOffset < 7"])
def test_a_broker_that_switches_sql92_off_loses_no_row(where: str, columns: list[str], tmp_path: Path) -> None:
    bodies = ["a", "b", "c"] * 4
    with Server(data=tmp_path, settings={"enablePropertyFilter": True}) as server, Admin(server.name_server) as admin:
        broker = Broker.of(server)
        topic = new_topic(broker, queues=1)
        fill(broker, topic, bodies, tags="x")
        fill(broker, topic, bodies, tags="y")
        small = {"rocketmqConsumer.pollTimeoutMs": 5_000, "pullBatchSize": 2}

        expected = read_arrow(topic, columns=columns, where=where, options=options(broker)).read_all()
        planned = read_arrow(topic, columns=columns, where=where, options={**options(broker), **small})
        by_option = read_arrow(topic, options={**options(broker), **small, "filterSql": "said = 'b'"})
        admin.cluster.change_settings(broker.name, {"enablePropertyFilter": False})

        assert 0 < expected.num_rows < 2 * len(bodies)
        assert planned.read_all() == expected
        with pytest.raises(RemoteError, match="does not support consumer to filter message by SQL92"):
            by_option.read_all()


def test_delayed_messages_are_filtered_by_tags_too(broker: Broker) -> None:
    """The broker has a time in the entries of delayed messages, where others have the hash of their tag."""
    topic = new_topic(broker)
    with Producer(broker.name_server, group="delays") as producer:
        sent = [
            producer.send(Message(topic, b"late", tags=tag, delay_level=18)).message_id
            for tag in ("paid", "open", None)
        ]
    waiting = {**options(broker), "subscribe": "SCHEDULE_TOPIC_XXXX"}

    by_filter = read_arrow(where="tags = 'paid'", columns=["msgId"], options=waiting).read_all().column(0).to_pylist()
    by_option = (
        read_arrow(columns=["msgId"], options={**waiting, "filterTags": "paid"}).read_all().column(0).to_pylist()
    )

    assert sent[0] in by_filter
    assert not {*sent[1:]} & {*by_filter}
    assert by_option == by_filter


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"columns": ["valve"]}, "a topic has no column 'valve'; did you mean value?"),
        ({"where": "tags > 5"}, "the option filter = 'tags > 5' is not a condition: character 8: expected a text such as 'Oslo'"),
        ({"where": "tags = 'a'", "options": {"filterTags": "a"}}, "the options filterTags and filter exclude one another"),
        ({"where": "tags = 'a'", "options": {"filterSql": "a = 'a'"}}, "the options filterSql and filter exclude one another"),
        ({"columns": ["properties"], "options": {"includeProperties": False}}, "which includeProperties = false omits"),
        ({"options": {"startingOfsets": "earliest"}}, "did you mean startingOffsets?"),
        ({"options": {"maxOffsetsPerTrigger": 5}}, "the option maxOffsetsPerTrigger is for a streaming read, not for a batch read"),
    ],
)  # fmt: skip
def test_wrong_arguments_are_refused_before_a_request_to_brokers(arguments: dict[str, Any], told: str) -> None:
    given = {"rocketmq.namesrv.addr": "127.0.0.1:1", **arguments.pop("options", {})}

    with pytest.raises(InvalidSetting, match=re.escape(told)):
        read_arrow("orders", **arguments, options=given)


def test_a_topic_that_does_not_exist_is_named(broker: Broker) -> None:
    with pytest.raises(TopicNotFound, match="topic 'no-such-topic' does not exist"):
        read_arrow("no-such-topic", options=options(broker))


def test_a_missing_library_is_named_with_the_command_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow_read, "NEEDED", ("pocketmq_has_no_such_library",))

    with pytest.raises(MissingLibrary, match="run pip install pyarrow numpy"):
        read_arrow("orders")


def test_spark_is_not_needed(broker: Broker) -> None:
    topic = new_topic(broker)
    fill(broker, topic, ["a", "b"], tags="x")
    program = f"""
import sys
sys.modules["pyspark"] = None
import pocketmq
table = pocketmq.read_arrow({topic!r}, columns=["value", "tags"], where="tags = 'x'", options={options(broker)!r}).read_all()
print(table.num_rows)
"""

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)

    assert (done.stdout, done.stderr) == ("2\n", "")


def test_the_function_is_public() -> None:
    assert "read_arrow" in pocketmq.__all__
    assert "read_arrow" in dir(pocketmq)

"""Changes of a database merged into tables of Delta and Iceberg: the rows of the database, whatever order they arrive in.

LAKE_FORMAT=delta python -m pytest conformance/lake/change_checks.py

The changes are made by the tests, as Debezium sends them; `conformance.cdc` has a real database and a real Debezium.
"""

import io
import json
import random
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import fastavro
import pytest
from pyspark.sql import SparkSession
from tests.pipelines.archive.fake_registry import registry
from tests.pipelines.cdc.debezium_kit import ORDERS, body, change, payload, source
from tests.pipelines.sent_kit import FailsOnce, rows_in
from tests.spark.broker_kit import Broker, new_topic, queue

from conformance.lake.table_checks import FORMAT, PATIENT, SMALL
from pocketmq import Message, Producer, Server
from pocketmq.errors import InvalidSetting, PipelineFailed, PocketMQError, WrongState
from pocketmq.pipelines.archive.reading import ReadTable
from pocketmq.pipelines.archive.table import add_batch
from pocketmq.pipelines.cdc.changes import UNCHANGED
from pocketmq.pipelines.cdc.job import CdcSettings, run_cdc
from pocketmq.pipelines.cdc.merging import Deletions
from pocketmq.pipelines.core.running import Run, Summary
from pocketmq.pipelines.core.sessions import session

NOTE = {"type": "string", "optional": True, "field": "note"}
Row = dict[str, Any]


@pytest.fixture(scope="module")
def lakes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of all tables: a session has one catalog."""
    return tmp_path_factory.mktemp("lakes")


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Server() as server:
        yield Broker.of(server)


@pytest.fixture(scope="module")
def spark(lakes: Path) -> Iterator[SparkSession]:
    told = CdcSettings(topics=["any"], keys=["id"], lake=str(lakes / "any"), format=FORMAT, checkpoint="any")
    with session("checks", "local[2]", settings={**told.session, **PATIENT, **SMALL}, is_quiet=True) as spark:
        yield spark


@pytest.fixture
def told(broker: Broker, lakes: Path) -> CdcSettings:
    """A pipeline from a new topic of two queues into a new table."""
    return settings(broker, lakes, new_topic(broker))


def settings(broker: Broker, lakes: Path, topic: str, name: str = "", **more: Any) -> CdcSettings:
    lake = str(lakes / (name or topic.replace("-", "_")))
    given = {"checkpoint": f"{lake}_checkpoint", "keys": ["id"], **more}
    return CdcSettings(namesrv=broker.name_server, topics=[topic], lake=lake, format=FORMAT, **given)


def send(broker: Broker, topic: str, bodies: Sequence[str], number: int = 0, keys: str = '{"id":1}') -> None:
    """Messages with a key in a queue, one after the other."""
    with Producer(broker.name_server, group="debezium") as producer:
        found = [Message(topic, text.encode(), keys=keys) for text in bodies]
        producer.send_many(found, queue=queue(broker, topic, number))


def rows_of(spark: SparkSession, told: CdcSettings, *columns: str) -> list[Row]:
    name = told.target.sql_name
    spark.sql(f"REFRESH TABLE {name}")
    chosen = spark.table(name).select(*columns) if columns else spark.table(name).drop("_position")
    return sorted(
        (row.asDict() for row in chosen.collect()), key=lambda row: str(row.get("id")) + str(row.get("_position"))
    )


def merged(spark: SparkSession, told: CdcSettings) -> Summary:
    return run_cdc(spark, told, Run())


def place(number: int, city: str, **more: Any) -> Row:
    return {"id": number, "city": city, **more}


def test_rows_are_those_of_the_database_after_each_run(spark: SparkSession, broker: Broker, told: CdcSettings) -> None:
    (topic,) = told.topics
    send(broker, topic, [change("r", 100, place(1, "Rome")), change("r", 100, place(2, "Oslo"))])
    first = merged(spark, told)
    assert rows_of(spark, told) == [place(1, "Rome"), place(2, "Oslo")]
    send(broker, topic, [change("u", 110, place(1, "Bari")), "null", change("c", 120, place(3, "Bern"))])
    send(broker, topic, [change("d", 130, place(2, "Oslo"))], number=1)

    second = merged(spark, told)

    assert rows_of(spark, told) == [place(1, "Bari"), place(3, "Bern")]
    assert (first.facts["rows_of_snapshots"], second.facts["rows_deleted"], second.messages) == (2, 1, 4)


def test_a_deleted_checkpoint_does_no_work_twice(spark: SparkSession, broker: Broker, told: CdcSettings) -> None:
    (topic,) = told.topics
    send(broker, topic, [change("c", 1, place(1, "Rome")), change("c", 2, place(2, "Oslo"))])
    merged(spark, told)
    send(broker, topic, [change("u", 3, place(2, "Bern"))])
    shutil.rmtree(told.checkpoint)

    summary = merged(spark, told)

    assert summary.messages == 1
    assert rows_of(spark, told) == [place(1, "Rome"), place(2, "Bern")]
    table = told.target.opened(spark)
    assert table is not None
    assert sum(map(len, table.state().record.ranges)) == 3


@pytest.mark.parametrize("scd", [1, 2])
def test_changes_may_come_in_any_order_and_twice(spark: SparkSession, broker: Broker, lakes: Path, scd: int) -> None:
    given = [
        ("r", 100, place(1, "a")),
        ("u", 110, place(1, "b")),
        ("d", 120, place(1, "b")),
        ("c", 130, place(1, "c")),
        ("r", 100, place(2, "x")),
        ("d", 140, place(2, "x")),
        ("c", 150, place(3, "z")),
    ]
    mixed = random.Random(3).sample(given, len(given)) + random.Random(4).sample(given, 3)
    topic = new_topic(broker)
    told = settings(broker, lakes, topic, scd=scd)

    for start in range(0, len(mixed), 3):
        send(broker, topic, [change(*one) for one in mixed[start : start + 3]], number=start % 2)
        merged(spark, told)

    if scd == 1:
        assert rows_of(spark, told) == [place(1, "c"), place(3, "z")]
        return
    found = rows_of(spark, told, "id", "city", "_position", "_end_position", "_valid_to")
    short = [
        (
            row["id"],
            row["city"],
            *(int((row[name] or "/0")[-4:].lstrip("/")) for name in ("_position", "_end_position")),
        )
        for row in found
    ]
    assert short == [(1, "a", 0, 110), (1, "b", 110, 120), (1, "c", 130, 0), (2, "x", 0, 140), (3, "z", 150, 0)]
    assert [row["_valid_to"] is None for row in found] == [False, False, True, False, True]


def test_a_key_that_changed_is_another_row(spark: SparkSession, broker: Broker, told: CdcSettings) -> None:
    (topic,) = told.topics
    send(broker, topic, [change("c", 1, place(1, "Rome"))])
    merged(spark, told)
    send(broker, topic, [change("c", 3, place(9, "Rome"))], number=0)
    send(broker, topic, [change("d", 2, place(1, "Rome"))], number=1)

    merged(spark, told)

    assert rows_of(spark, told) == [place(9, "Rome")]


def test_a_column_that_was_added_is_in_the_table(spark: SparkSession, broker: Broker, told: CdcSettings) -> None:
    (topic,) = told.topics
    send(broker, topic, [change("c", 1, place(1, "Rome")), change("c", 2, place(2, "Oslo"))])
    merged(spark, told)
    send(
        broker, topic, [change("u", 3, place(1, "Rome", note="new"), [*ORDERS, NOTE]), change("u", 2, place(2, "Bari"))]
    )

    merged(spark, told)

    assert rows_of(spark, told) == [place(1, "Rome", note="new"), place(2, "Oslo", note=None)]


def test_changes_without_a_schema_are_merged(spark: SparkSession, broker: Broker, lakes: Path) -> None:
    topic = new_topic(broker)
    told = settings(broker, lakes, topic, schema="id int")
    send(
        broker,
        topic,
        [change("c", 1, place(1, "Rome", price=None), ()), change("c", 2, place(2, "Oslo", price=2.5), ())],
    )
    merged(spark, told)
    send(broker, topic, [change("u", 3, place(1, "Rome", price=7), ()), change("d", 4, {"id": 2}, ())])

    merged(spark, told)

    assert rows_of(spark, told) == [place(1, "Rome", price=7.0)]


def test_changes_in_avro_are_merged(spark: SparkSession, broker: Broker, lakes: Path) -> None:
    value = {
        "type": "record",
        "name": "Value",
        "fields": [{"name": "id", "type": "int"}, {"name": "city", "type": ["null", "string"]}],
    }
    log = [
        {"name": name, "type": kind}
        for name, kind in (("connector", "string"), ("lsn", ["null", "long"]), ("ts_ms", "long"))
    ]
    fields = [
        {"name": "before", "type": ["null", value], "default": None},
        {"name": "after", "type": ["null", "Value"], "default": None},
        {"name": "source", "type": {"type": "record", "name": "Source", "fields": log}},
        {"name": "op", "type": "string"},
    ]
    schema = {"type": "record", "name": "Envelope", "fields": fields}

    def written(one: Row) -> bytes:
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), one)
        return b"\0\0\0\0\7" + stream.getvalue()

    topic = new_topic(broker)
    answer = {"schema": json.dumps(schema), "id": 7}
    with registry({"/subjects/orders-value/versions/latest": answer, "/schemas/ids/7": answer}) as schemas:
        told = settings(broker, lakes, topic, schema=f"{schemas.address}/subjects/orders-value")
        with Producer(broker.name_server, group="debezium") as producer:
            for op, lsn, row in (("c", 1, place(1, "Rome")), ("c", 2, place(2, "Oslo")), ("d", 3, place(1, "Rome"))):
                producer.send(Message(topic, written(payload(op, lsn, row)), keys='{"id":1}'))
        merged(spark, told)

    assert rows_of(spark, told) == [place(2, "Oslo")]


def test_a_value_that_was_not_logged_stays(spark: SparkSession, broker: Broker, told: CdcSettings) -> None:
    (topic,) = told.topics
    send(broker, topic, [change("c", 1, place(1, "a very large text"))])
    merged(spark, told)
    send(broker, topic, [change("u", 2, place(1, UNCHANGED))])

    merged(spark, told)

    assert rows_of(spark, told) == [place(1, "a very large text")]


def test_a_batch_that_failed_behind_its_merge_is_not_merged_again(
    spark: SparkSession, broker: Broker, told: CdcSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    (topic,) = told.topics
    send(
        broker,
        topic,
        [change("c", 1, place(1, "Rome")), change("d", 2, place(1, "Rome")), change("c", 3, place(2, "Oslo"))],
    )
    monkeypatch.setattr("pocketmq.pipelines.cdc.job.add_batch", FailsOnce(add_batch, 1))
    with pytest.raises(PocketMQError, match="the machine is gone"):
        merged(spark, told)
    table = told.target.opened(spark)
    assert table is not None
    before = table.commits()

    merged(spark, told)

    assert rows_of(spark, told) == [place(2, "Oslo")]
    assert table.commits() == before


def test_a_batch_that_failed_before_its_merge_is_merged(
    spark: SparkSession, broker: Broker, told: CdcSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    (topic,) = told.topics
    send(broker, topic, [change("c", 1, place(1, "Rome"))])
    merged(spark, told)
    send(broker, topic, [change("d", 2, place(1, "Rome"))])
    fails = FailsOnce(Deletions.add, 1)
    monkeypatch.setattr(Deletions, "add", lambda self, changes: fails(self, changes))
    with pytest.raises(PocketMQError, match="the machine is gone"):
        merged(spark, told)
    assert rows_of(spark, told) == [place(1, "Rome")]

    merged(spark, told)

    assert rows_of(spark, told) == []


BAD = {
    "unknown envelope": ('{"id": 1, "city": "flat"}', "ExtractNewRecordState"),
    "no JSON": ("not JSON", "is not a change of Debezium"),
    "a value of another type": (
        change("u", 5, place(1, "Rome", many="a lot"), [*ORDERS, {"type": "int32", "field": "many"}]),
        "many = a lot is not int",
    ),
}


@pytest.mark.parametrize("name", [*BAD, "no key"])
def test_a_bad_message_fails_the_run_or_is_a_dead_letter(
    spark: SparkSession, broker: Broker, told: CdcSettings, name: str
) -> None:
    (topic,) = told.topics
    text, reason = BAD.get(name, (change("u", 5, place(1, "Rome")), "the message has no key"))
    send(broker, topic, [change("c", 1, place(1, "Oslo"))])
    send(broker, topic, [text], number=1, keys="" if name == "no key" else '{"id":1}')

    with pytest.raises(
        PipelineFailed, match=f"offset 0 of queue 1 of {topic}.*{reason}.*Nothing of the batch was written"
    ):
        merged(spark, told)
    assert told.target.opened(spark).state().at is None  # type: ignore[union-attr]
    dead = f"{topic}-dead"
    again = settings(broker, Path(told.lake).parent, topic, dead_letters=dead)
    merged(spark, again)
    merged(spark, again)

    assert [(row["id"], row["city"]) for row in rows_of(spark, told)] == [(1, "Oslo")]
    (letter,) = rows_in(broker, dead)
    assert letter["value"] == text.encode()
    assert reason in dict(letter["properties"])["DEAD_LETTER_REASON"]


def test_a_table_with_other_columns_is_refused_and_nothing_is_written(
    spark: SparkSession, broker: Broker, told: CdcSettings
) -> None:
    (topic,) = told.topics
    send(broker, topic, [change("c", 1, place(1, "Rome"))])
    merged(spark, told)
    wide = [ORDERS[0], {"type": "int64", "field": "city"}]
    send(broker, topic, [change("u", 2, {"id": 1, "city": 7}, wide)])
    merged(spark, told)
    assert rows_of(spark, told) == [place(1, "7")], "each number is a text, too"
    narrow = [{"type": "int64", "field": "id"}, ORDERS[1]]
    send(broker, topic, [change("u", 3, place(1, "Bern"), narrow)])

    with pytest.raises(PipelineFailed, match="has the column id as int, and the changes have bigint"):
        merged(spark, told)

    assert rows_of(spark, told) == [place(1, "7")]


def test_a_table_that_was_merged_otherwise_is_refused(spark: SparkSession, broker: Broker, told: CdcSettings) -> None:
    (topic,) = told.topics
    lakes, name = Path(told.lake).parent, Path(told.lake).name
    send(broker, topic, [change("c", 1, place(1, "Rome"))])
    merged(spark, told)
    other: dict[str, Any] = {"checkpoint": f"{told.lake}_other"}

    with pytest.raises(WrongState, match="has rows by id, and this run would merge versions of rows by id"):
        merged(spark, settings(broker, lakes, topic, name, scd=2, **other))
    with pytest.raises(InvalidSetting, match="has no column number, which --keys names; it has id, city, _position"):
        merged(spark, settings(broker, lakes, topic, name, keys=["number"], **other))
    mysql = {
        **payload("c", 2, place(2, "Oslo")),
        "source": {"connector": "mysql", "file": "bin.1", "pos": 4, "ts_ms": 1},
    }
    send(broker, topic, [body(mysql, ORDERS)])
    with pytest.raises(
        PipelineFailed, match="has rows by id of postgresql, and this run would merge rows by id of mysql"
    ):
        merged(spark, told)

    assert rows_of(spark, told) == [place(1, "Rome")]


def test_keys_of_deleted_rows_are_forgotten_later(spark: SparkSession, broker: Broker, lakes: Path) -> None:
    topic = new_topic(broker)
    told = settings(broker, lakes, topic, keep_deletes=0)
    send(broker, topic, [change("d", 5, place(1, "Rome"))])
    merged(spark, told)
    send(broker, topic, [change("c", 1, place(1, "Rome"))])

    merged(spark, told)

    assert rows_of(spark, told) == [place(1, "Rome")], "the deletion was forgotten when the run started"
    assert ReadTable(spark, told.target).record.batches


def test_changes_of_transactions_that_were_open_come_behind_the_snapshot(
    spark: SparkSession, broker: Broker, told: CdcSettings
) -> None:
    (topic,) = told.topics
    send(broker, topic, [change("r", 100, place(1, "old"))])
    merged(spark, told)
    send(broker, topic, [body({**payload("u", 90, place(1, "new")), "source": source(90)}, ORDERS)])
    merged(spark, told)
    send(broker, topic, [change("r", 100, place(1, "old"))])

    merged(spark, told)

    assert rows_of(spark, told) == [place(1, "new")]

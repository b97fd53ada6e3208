"""Chosen and derived columns in lakes and tables: written as selected, created and evolved, and refused before anything is written."""

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

from tests.pipelines.archive.fake_registry import registry
from tests.pipelines.sent_kit import rows_in
from tests.spark.broker_kit import Broker, fill, new_topic

from pocketmq import Message, Producer
from pocketmq.errors import InvalidSetting, PipelineFailed, WrongState
from pocketmq.model import QueueRange
from pocketmq.pipelines.archive.contents import LEFT_OUT, Missing
from pocketmq.pipelines.archive.job import examination, plan_archive, run_archive
from pocketmq.pipelines.archive.manifest import read_manifest
from pocketmq.pipelines.archive.reading import ReadLake
from pocketmq.pipelines.archive.settings import ArchiveSettings, check_archive
from pocketmq.pipelines.core.running import Run, Summary

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def settings(broker: Broker, topic: str, **given: object) -> ArchiveSettings:
    told: dict[str, Any] = {"max_messages": 4, "compact": False, **given}
    return ArchiveSettings(namesrv=broker.name_server, topics=[topic], **told)


def archive(spark: "SparkSession", told: ArchiveSettings) -> Summary:
    return run_archive(spark, told, Run())


def examined(spark: "SparkSession", told: ArchiveSettings) -> tuple[str, ...]:
    check_archive(told)
    examine = examination(told)
    assert examine is not None
    return examine(spark)


def orders(broker: Broker, topic: str, start: int, end: int) -> None:
    fill(
        broker,
        topic,
        [f'{{"id": {number}, "city": "{"Oslo" if number % 2 else "Rome"}"}}' for number in range(start, end)],
    )


def test_a_lake_has_the_selected_columns_and_those_of_its_manifest(
    spark: "SparkSession", broker: Broker, tmp_path: Path
) -> None:
    topic, lake = new_topic(broker, queues=1), str(tmp_path / "lake")
    fill(broker, topic, [f"{number}" for number in range(9)])
    chosen: dict[str, Any] = {
        "select": ["string(value) AS text", "int(string(value)) % 2 AS odd"],
        "where": "value <> '3'",
        "partition_by": ["odd"],
    }
    chosen["select"].append("struct(array(map('a', struct(1 AS `b-c`))) AS `d e`) AS nested")

    archive(spark, settings(broker, topic, lake=lake, compact=True, compact_files=2, **chosen))
    rows = spark.read.parquet(lake)

    assert Counter(row.text for row in rows.collect()) == Counter("01245678")
    assert set(rows.columns) == {
        *("brokerName", "queueId", "queueOffset", "storeTimestamp", "text", "nested", "topic", "day", "odd")
    }
    assert rows.where("odd = 1").inputFiles()[0].split("/")[-2] == "odd=1"
    manifest = read_manifest(Path(lake))
    assert (manifest.rows, manifest.lost, [len(one) for one in manifest.ranges]) == (8, [], [9])
    (whole,) = manifest.ranges
    assert ReadLake(lake).missing([whole], spark) == [Missing(QueueRange(whole.queue, 3, 4), LEFT_OUT)]
    with pytest.raises(InvalidSetting, match="have gaps between their offsets, which only Spark can read"):
        ReadLake(lake).missing([whole])


def test_a_lake_accepts_new_columns_and_refuses_other_types(
    spark: "SparkSession", broker: Broker, tmp_path: Path
) -> None:
    topic, lake = new_topic(broker, queues=1), str(tmp_path / "lake")
    fill(broker, topic, ["1"])
    archive(spark, settings(broker, topic, lake=lake, select=["string(value) AS text"]))
    fill(broker, topic, ["2"])

    archive(spark, settings(broker, topic, lake=lake, select=["string(value) AS text", "int(string(value)) AS number"]))
    with pytest.raises(InvalidSetting, match="has the column number as int, not string; cast it"):
        archive(spark, settings(broker, topic, lake=lake, select=["string(value) AS number"]))

    rows = spark.read.option("mergeSchema", "true").parquet(lake)
    assert {(row.text, row.number) for row in rows.collect()} == {("1", None), ("2", 2)}


def test_typed_columns_are_read_from_json_and_bad_bodies_become_dead_letters(
    spark: "SparkSession", broker: Broker, tmp_path: Path
) -> None:
    topic, dead, lake = new_topic(broker), new_topic(broker), str(tmp_path / "lake")
    orders(broker, topic, 0, 5)
    fill(broker, topic, ["no json"], number=1)
    told = settings(broker, topic, lake=lake, schema="id int NOT NULL, city string", dead_letters=dead)

    archive(spark, told)
    archive(
        spark,
        settings(broker, topic, lake=lake, checkpoint=str(tmp_path / "other"), schema=told.schema, dead_letters=dead),
    )

    rows = spark.read.parquet(lake)
    assert {(row.id, row.city) for row in rows.collect()} == {
        *((0, "Rome"), (1, "Oslo"), (2, "Rome"), (3, "Oslo"), (4, "Rome"))
    }
    assert "value" not in rows.columns
    (letter,) = rows_in(broker, dead)
    assert bytes(letter["value"]) == b"no json"
    assert dict(letter["properties"])["DEAD_LETTER_REASON"] == "the body is not a JSON object"


def test_avro_with_ids_of_a_registry_becomes_columns_in_tasks(
    spark: "SparkSession", broker: Broker, tmp_path: Path
) -> None:
    fastavro = pytest.importorskip("fastavro", reason="the extra `schemas` is not installed")
    assert fastavro
    topic, dead, lake = new_topic(broker), new_topic(broker), str(tmp_path / "lake")
    old = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}]}
    added = {"name": "counts", "type": {"type": "map", "values": "int"}, "default": {}}
    new = {**old, "fields": [*old["fields"], added]}
    answers = {
        "/subjects/orders-value/versions/latest": {"id": 2, "schema": json.dumps(new)},
        "/schemas/ids/1": {"schema": json.dumps(old)},
        "/schemas/ids/2": {"schema": json.dumps(new)},
    }
    bodies = [b"\0\0\0\0\1\x0e", b"\0\0\0\0\2\x10\2\2x\6\0", b"odd", b"\0\0\0\0\3\x0e"]
    with Producer(broker.name_server, group="filling") as producer:
        for body in bodies:
            producer.send(Message(topic, body))

    with registry(answers) as schemas:
        schema = f"{schemas.address}/subjects/orders-value"
        archive(spark, settings(broker, topic, lake=lake, schema=schema, dead_letters=dead))

    rows = spark.read.parquet(lake)
    assert {(row.id, tuple(row.counts.items())) for row in rows.collect()} == {(7, ()), (8, (("x", 3),))}
    reasons = {dict(row["properties"])["DEAD_LETTER_REASON"] for row in rows_in(broker, dead)}
    assert reasons == {
        "the body does not begin with the id of a schema, as a registry's serializers write it",
        "the registry has no schema with the id 3",
    }


def test_an_unavailable_registry_fails_the_batch_and_makes_no_dead_letters(
    spark: "SparkSession", broker: Broker, tmp_path: Path
) -> None:
    pytest.importorskip("fastavro", reason="the extra `schemas` is not installed")
    topic, dead, lake = new_topic(broker), new_topic(broker), str(tmp_path / "lake")
    order = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}]}
    answers: dict[str, Any] = {"/subjects/orders/versions/latest": {"id": 2, "schema": json.dumps(order)}}
    with Producer(broker.name_server, group="filling") as producer:
        producer.send(Message(topic, b"\0\0\0\0\2\x0e"))

    with registry({**answers, "/schemas/ids/2": "broken"}) as schemas:
        told = settings(broker, topic, lake=lake, schema=f"{schemas.address}/subjects/orders", dead_letters=dead)
        with pytest.raises(PipelineFailed, match=r"schema registry .* is not a schema"):
            archive(spark, told)
    with registry({**answers, "/schemas/ids/2": {"schema": json.dumps(order)}}) as schemas:
        again = {"schema": f"{schemas.address}/subjects/orders", "dead_letters": dead}
        archive(spark, settings(broker, topic, lake=lake, **again))

    assert [row.id for row in spark.read.parquet(lake).collect()] == [7]
    assert rows_in(broker, dead) == []


def test_a_table_of_the_session_catalog_is_created_and_evolves(
    spark: "SparkSession", broker: Broker, tmp_path: Path
) -> None:
    topic = new_topic(broker)
    table = f"archive_{topic.replace('-', '_')}"
    told: dict[str, Any] = {"table": table, "checkpoint": str(tmp_path / "notes")}
    fill(broker, topic, [f"{number}" for number in range(6)])

    planned = examined(
        spark, settings(broker, topic, **told, format="parquet", select=["string(value) AS text", "topic"])
    )
    first = archive(spark, settings(broker, topic, **told, format="parquet", select=["string(value) AS text", "topic"]))
    fill(broker, topic, ["6"])
    chosen = ["int(string(value)) AS number", "topic", "string(value) AS text"]
    evolved = examined(spark, settings(broker, topic, **told, select=chosen))
    archive(spark, settings(broker, topic, **told, select=chosen))
    with pytest.raises(InvalidSetting, match=f"the table {table} has the column text as string, and the rows have int"):
        examined(spark, settings(broker, topic, **told, select=["int(string(value)) AS text"]))

    rows = spark.table(table)
    assert Counter(row.text for row in rows.collect()) == Counter("0123456")
    assert {row.number for row in rows.collect()} == {None, 6}
    assert any("does not exist, and will be created with text, topic" in remark for remark in planned)
    assert any("gets new columns: number int" in remark for remark in evolved)
    assert any("at least once" in remark for remark in evolved)
    assert "at least once" in first.facts["written_to"]


def test_mistakes_in_columns_and_tables_are_found_by_a_dry_run(
    spark: "SparkSession", broker: Broker, tmp_path: Path
) -> None:
    topic, lake = new_topic(broker), str(tmp_path / "lake")

    def message_of(**given: Any) -> str:
        with pytest.raises(InvalidSetting) as caught:
            examined(spark, settings(broker, topic, **{"checkpoint": str(tmp_path / "notes"), **given}))
        return str(caught.value)

    assert "colour" in message_of(lake=lake, select=["colour"])
    assert "colour" in message_of(lake=lake, where="colour = 'red'")
    assert "--partition-by city: there is no such column" in message_of(lake=lake, partition_by=["city"])
    assert "two columns keys" in message_of(lake=lake, select=["*", "tags AS keys"])
    assert "replaces the column topic" in message_of(lake=lake, select=["upper(topic) AS topic"])
    assert "have this column already: topic, day" in message_of(lake=lake, partition_by=["day"])
    assert "the column none without a type" in message_of(lake=lake, select=["NULL AS none"])
    assert "over several messages" in message_of(lake=lake, select=["row_number() OVER (ORDER BY keys) AS number"])
    assert "either --lake FOLDER or --table" in message_of(lake=lake, table="t")
    assert "either --lake FOLDER or --table" in message_of()
    assert "the catalog nowhere is not configured" in message_of(table="nowhere.db.orders")
    assert "nodb does not exist; CREATE NAMESPACE nodb" in message_of(table="nodb.orders")
    assert "needs --dead-letters" in message_of(lake=lake, schema="id int")
    assert "no effect without --schema" in message_of(lake=lake, dead_letters="dead")
    assert "both read and written" in message_of(lake=lake, schema="id int", dead_letters=topic)
    assert "invalid schema" in message_of(lake=lake, schema="id int number", dead_letters="dead")
    assert "has a column Keys, and messages have one of this name" in message_of(
        lake=lake, schema="Keys string", dead_letters="dead"
    )
    assert "--table needs --checkpoint" in message_of(table="orders", checkpoint="")
    assert "--engine direct writes messages unchanged" in message_of(lake=lake, engine="direct", where="true")
    assert "--engine direct writes to a local" in message_of(table="orders", engine="direct")
    assert "is not atomic" in message_of(lake="s3a://bucket/lake")
    assert "--table catalog.db.name, for example of Iceberg, or --format delta" in message_of(lake="gs://bucket/lake")
    assert "a rename on s3a: is not atomic" in message_of(
        lake="s3a://bucket/lake", format="iceberg", spark={"spark.jars": "iceberg-spark-runtime.jar"}
    )
    assert "Spark does not have this format" in message_of(lake=lake, format="xyz")
    assert not Path(lake).exists()


def test_the_checkpoint_of_another_sink_is_refused(spark: "SparkSession", broker: Broker, tmp_path: Path) -> None:
    topic, notes = new_topic(broker), str(tmp_path / "notes")
    fill(broker, topic, ["1"])
    archive(spark, settings(broker, topic, lake=f"file://{tmp_path}/lake", checkpoint=notes))

    with pytest.raises(WrongState, match=r"belongs to archive of .* not to archive of .* into the table orders"):
        check_archive(settings(broker, topic, table="orders", checkpoint=notes))

    assert read_manifest(tmp_path / "lake").rows == 1
    assert plan_archive(settings(broker, topic, lake=f"{tmp_path}/lake", checkpoint=notes)).messages == 0


def test_a_read_has_the_columns_that_the_rows_need(spark: "SparkSession", broker: Broker, tmp_path: Path) -> None:
    topic = new_topic(broker)

    def read(**given: Any) -> str:
        shape = settings(broker, topic, lake=str(tmp_path / "lake"), **given).sink.shape()
        left = [name for name in shape.columns(spark) if name not in shape.kept]
        return " ".join(left)

    assert read(select=["value"]) == "value"
    assert read(select=["transform(split(keys, ' '), x -> concat(x, tags)) AS words"]) == "keys tags"
    assert read(select=["properties['city'] AS city"], where="reconsumeTimes > 0 AND day > '2026'") == (
        "properties reconsumeTimes"
    )
    assert (
        read(select=["*", "upper(tags) AS tag"])
        == read()
        == ("msgId keys tags value properties bornTimestamp reconsumeTimes")
    )
    assert read(properties=False) == "msgId keys tags value bornTimestamp reconsumeTimes"
    table = settings(broker, topic, table="t", select=["value"]).sink.shape()
    assert table.columns(spark) == ("value", "storeTimestamp")
    assert "value" in read(select=["body.id AS id"], schema="id int", dead_letters="dead")

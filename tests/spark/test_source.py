"""`format("rocketmq")` on a real Spark: it is found, reads and writes, as a batch and as a stream, and continues after a restart."""

import json
import re
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

from pyspark.errors import PySparkException
from pyspark.sql import functions
from pyspark.sql.types import MapType, StringType, StructField, StructType
from tests.spark.broker_kit import Broker, fill, new_topic, options, queue
from tests.spark.stream_kit import ran

from pocketmq import Admin
from pocketmq.errors import InvalidSetting
from pocketmq.spark import read_topic
from pocketmq.spark.pyspark_versions import LIMITS, PUSHDOWN, has
from pocketmq.spark.python_processes import PUSHDOWN_PLANNER
from pocketmq.spark.read.batch_reader import FilteringTopicReader
from pocketmq.spark.schema import Name
from pocketmq.spark.source import RocketMQSource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

VALUE = "value binary"
PUSHDOWN_CONF = "spark.sql.python.filterPushdown.enabled"


def read(spark: "SparkSession", broker: Broker, schema: str | None = VALUE, **given: str | int) -> "DataFrame":
    reader = spark.read.format("rocketmq").options(**options(broker, **given))
    return (reader if schema is None else reader.schema(schema)).load()


def stream(spark: "SparkSession", broker: Broker, **given: str | int) -> "DataFrame":
    return spark.readStream.format("rocketmq").schema(VALUE).options(**options(broker, **given)).load()


def values(frame: "DataFrame") -> list[str]:
    return sorted(row[0].decode() for row in frame.select("value").collect())


def run_to_the_end(frame: "DataFrame", broker: Broker, checkpoint: Path, **given: str | int) -> "StreamingQuery":
    writer = frame.writeStream.format("rocketmq").options(**options(broker, **given))
    return ran(writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start)


def sizes(query: "StreamingQuery") -> list[int]:
    return [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]]


def message_of(call: Callable[[], object]) -> str:
    with pytest.raises(PySparkException) as caught:
        call()
    return str(caught.value)


# without a session


def test_the_schema_has_all_columns_unless_properties_are_omitted() -> None:
    assert RocketMQSource({}).schema().fieldNames() == list(Name)
    assert "properties" not in RocketMQSource({"includeheaders": "False"}).schema().fieldNames()


def test_only_a_process_that_spark_offers_filters_has_a_filtering_reader(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not has(PUSHDOWN):
        pytest.skip("PySpark 4.0 has no filters")
    from pyspark.sql.datasource import EqualTo

    topic = new_topic(broker)
    fill(broker, topic, ["a"], tags="wanted")
    fill(broker, topic, ["b"], tags="other")
    given = options(broker, subscribe=topic)
    schema = StructType([StructField("tags", StringType())])

    monkeypatch.delitem(sys.modules, PUSHDOWN_PLANNER, raising=False)  # another test may have imported it
    assert not isinstance(RocketMQSource(given).reader(schema), FilteringTopicReader)

    monkeypatch.setitem(sys.modules, PUSHDOWN_PLANNER, ModuleType(PUSHDOWN_PLANNER))
    assert not isinstance(RocketMQSource({**given, "pushFilters": "false"}).reader(schema), FilteringTopicReader)
    reader = RocketMQSource(given).reader(schema)
    assert isinstance(reader, FilteringTopicReader)
    assert list(reader.pushFilters([EqualTo((Name.TAGS.value,), "wanted")])) == []
    read_rows = [batch.to_pylist() for part in reader.partitions() for batch in reader.read(part)]
    assert read_rows == [[{"tags": "wanted"}]]


def test_an_option_that_does_not_exist_is_refused_with_the_nearest_one(broker: Broker) -> None:
    source = RocketMQSource(options(broker, subscribe="any", startingOfsets="earliest"))
    schema: Any = None

    with pytest.raises(InvalidSetting, match=r"did you mean startingOffsets\?"):
        source.reader(schema)


def test_an_omitted_column_cannot_be_selected(broker: Broker) -> None:
    source = RocketMQSource(options(broker, subscribe="any", includeProperties="false"))
    schema = StructType([StructField("properties", MapType(StringType(), StringType()))])

    for reader in (source.reader, source.streamReader):
        with pytest.raises(InvalidSetting, match=r"which includeProperties = false omits"):
            reader(schema)


# batch reads


def test_a_batch_reads_all_columns(spark: "SparkSession", broker: Broker) -> None:
    topic = new_topic(broker)
    fill(broker, topic, ["a", "b"], number=1, tags="t")

    rows = read(spark, broker, None, subscribe=topic).orderBy("queueOffset").collect()

    place = queue(broker, topic, 1)
    assert [(row.topic, row.brokerName, row.queueId, row.queueOffset) for row in rows] == [
        (topic, place.broker_name, 1, 0),
        (topic, place.broker_name, 1, 1),
    ]
    assert [(bytes(row.value), row["keys"], row.tags, row.properties["said"]) for row in rows] == [
        (b"a", "a", "t", "a"),
        (b"b", "b", "t", "b"),
    ]
    assert all(row.storeTimestamp >= row.bornTimestamp and row.reconsumeTimes == 0 and row.msgId for row in rows)


def test_spark_knows_which_columns_are_never_null(spark: "SparkSession", broker: Broker) -> None:
    topic = new_topic(broker)
    fill(broker, topic, ["a"], tags="t")
    frame = read(spark, broker, None, subscribe=topic)

    assert [field.name for field in frame.schema.fields if field.nullable] == ["keys", "tags"]
    (again,) = (
        spark.read.format("rocketmq").schema(frame.schema).options(**options(broker, subscribe=topic)).load().collect()
    )
    assert (again,) == tuple(frame.collect())


@pytest.mark.parametrize(
    "schema", ["topic string NOT NULL, tags string, value binary", "properties map<string,string> NOT NULL"]
)
def test_a_schema_may_declare_columns_as_not_null(spark: "SparkSession", broker: Broker, schema: str) -> None:
    topic = new_topic(broker)
    fill(broker, topic, ["a"], tags="t")

    (row,) = read(spark, broker, schema, subscribe=topic).collect()
    (whole,) = read(spark, broker, None, subscribe=topic).collect()

    assert row.asDict() == {name: whole[name] for name in row.asDict()}


def test_keys_and_tags_cannot_be_not_null(spark: "SparkSession", broker: Broker) -> None:
    topic = new_topic(broker)
    fill(broker, topic, ["a"])
    frame = read(spark, broker, "value binary, tags string NOT NULL", subscribe=topic)

    assert "tags cannot be NOT NULL: not every message has a value" in message_of(frame.collect)


def test_a_batch_starts_and_ends_at_its_options(spark: "SparkSession", broker: Broker) -> None:
    topic = new_topic(broker, queues=1)
    fill(broker, topic, ["a", "b", "c", "d"])
    broker_name = queue(broker, topic, 0).broker_name
    stored = read(spark, broker, "value binary, storeTimestamp timestamp", subscribe=topic)
    times = [int(row[0].timestamp() * 1000) for row in stored.selectExpr("max(storeTimestamp)").collect()]
    group = f"stands-at-3-in-{topic}"
    with Admin(broker.name_server) as admin:
        admin.groups.create(group)
        admin.offsets.reset(group, topic, {queue(broker, topic, 0): 3})

    def at(place: int) -> str:
        return json.dumps({topic: {broker_name: {"0": place}}})

    cases: dict[str, dict[str, str | int]] = {
        "abcd": {"startingOffsets": "earliest", "endingOffsets": "latest"},
        "bc": {"startingOffsets": at(1), "endingOffsets": at(3)},
        "d": {"startingOffsets": "committed", "groupId": group},
        "": {"startingOffsetsByTimestamp": at(times[0] + 60_000), "startingOffsetsByTimestampStrategy": "latest"},
    }
    frames = {wanted: read(spark, broker, VALUE, subscribe=topic, **given) for wanted, given in cases.items()}
    whole = read(spark, broker, subscribe=topic, startingTimestamp=1, endingTimestamp=times[0] + 1)
    tagged = [frame.withColumn("case", functions.lit(case)) for case, frame in [*frames.items(), ("whole", whole)]]
    union = tagged[0]
    for frame in tagged[1:]:
        union = union.union(frame)
    found: dict[str, list[str]] = {case: [] for case in [*cases, "whole"]}
    for row in union.collect():
        found[row.case].append(bytes(row.value).decode())

    assert {case: "".join(sorted(rows)) for case, rows in found.items()} == {
        **{case: case for case in cases},
        "whole": "abcd",
    }


def test_only_assigned_queues_are_read_and_brokers_filter(spark: "SparkSession", broker: Broker) -> None:
    topic = new_topic(broker)
    fill(broker, topic, ["a", "b"], tags="x")
    fill(broker, topic, ["c"], number=1, tags="y")
    assigned = json.dumps({topic: {queue(broker, topic, 0).broker_name: [1]}})

    tags = read(spark, broker, subscribe=topic, filterTags="y || z")
    sql = read(spark, broker, subscribe=topic, filterSql="said = 'b'")
    alone = read(spark, broker, assign=assigned)

    assert values(tags.union(sql).union(alone)) == ["b", "c", "c"]


@pytest.mark.parametrize("offered", ["true", "false"])
@pytest.mark.parametrize("accepted", [{}, {"pushFilters": "true"}, {"pushFilters": "false"}])
def test_a_missing_setting_of_spark_fails_no_read(
    spark: "SparkSession", broker: Broker, offered: str, accepted: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    if not has(PUSHDOWN):
        pytest.skip("PySpark 4.0 has no filters")
    topic = new_topic(broker)
    fill(broker, topic, ["a", "b", "c"])
    spark.conf.set(PUSHDOWN_CONF, offered)
    try:
        whole = read(spark, broker, "value binary, queueOffset bigint", subscribe=topic, **accepted)
        frame = whole.where("queueOffset >= 1")

        assert (values(whole), values(frame)) == (["a", "b", "c"], ["b", "c"])
        frame.explain("formatted")
    finally:
        spark.conf.unset(PUSHDOWN_CONF)
    is_pushed = "PushedFilters: [IsNotNull(queueOffset), GreaterThanOrEqual(queueOffset,1)]" in capsys.readouterr().out
    assert is_pushed == (offered == "true" and accepted.get("pushFilters") != "false")


def test_a_filtered_stream_reads_the_selected_rows_without_a_loss(
    spark: "SparkSession", broker: Broker, tmp_path: Path
) -> None:
    source, target = new_topic(broker), new_topic(broker)
    fill(broker, source, ["a", "b", "c"], tags="x")
    fill(broker, source, ["d", "e"], number=1, tags="y")
    given = {"filter": "properties['said'] <> 'b' AND queueId = 0 AND tags = 'x'", "startingOffsets": "earliest"}
    frame = stream(spark, broker, subscribe=source, maxOffsetsPerTrigger=3, **given)

    query = run_to_the_end(frame, broker, tmp_path, topic=target)
    fill(broker, source, ["f", "b"], tags="x")
    run_to_the_end(frame, broker, tmp_path, topic=target)

    assert values(read(spark, broker, subscribe=target)) == ["a", "c", "f"]
    assert sum(sizes(query)) == 2
    assert not any("lost" in progress["sources"][0]["endOffset"] for progress in query.recentProgress)


def test_fewer_columns_are_read_by_their_names(spark: "SparkSession", broker: Broker, tmp_path: Path) -> None:
    topic, target = new_topic(broker), new_topic(broker)
    fill(broker, topic, ["a", "b"], tags="x")
    address = options(broker)

    frame = read_topic(
        spark, topic, columns=["value", "queueOffset"], where="properties['said'] = 'b'", options=address
    )
    every = read_topic(spark, topic, options=address)
    streamed = read_topic(
        spark, topic, columns=["value"], stream=True, options={**address, "startingOffsets": "earliest"}
    )
    run_to_the_end(streamed, broker, tmp_path, topic=target)

    assert [(bytes(row.value), row.queueOffset) for row in frame.collect()] == [(b"b", 1)]
    assert [field.nullable for field in frame.schema.fields] == [False, False]
    assert every.columns == list(Name)
    assert streamed.columns == ["value"]
    assert values(read(spark, broker, subscribe=target)) == ["a", "b"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"columns": ["valve"]}, "a topic has no column 'valve'; did you mean value?"),
        ({"columns": []}, "columns names no column; choose from topic"),
        ({"columns": "value"}, "columns is a list of names: columns=['value']"),
        ({"columns": ["tags", "tags"]}, "columns has 'tags' twice"),
        ({"where": "tag = 'x'"}, "is not a condition: character 1: a topic has no column 'tag'; did you mean tags?"),
        ({"options": {"subscribe": "b"}}, "the argument topic is the option subscribe; give one of them"),
        (
            {"where": "tags = 'x'", "options": {"Filter": "b"}},
            "the argument where is the option filter; give one of them",
        ),
    ],
)
def test_wrong_arguments_are_refused_before_spark_reads(spark: "SparkSession", arguments: Any, told: str) -> None:
    with pytest.raises(InvalidSetting, match=re.escape(told)):
        read_topic(spark, "orders", **arguments)


def test_wrong_filters_are_refused_by_spark_as_well(spark: "SparkSession", broker: Broker) -> None:
    wrong = read(spark, broker, subscribe="any", filter="properties['n'] > 5")
    both = read(spark, broker, subscribe="any", filter="tags = 'a'", filterTags="a")

    assert "expected a text such as 'Oslo' to compare with properties['n'], found '5'" in message_of(wrong.count)
    assert "the options filterTags and filter exclude one another" in message_of(both.count)


def test_mistakes_are_reported_in_one_sentence(spark: "SparkSession", broker: Broker) -> None:
    topic = new_topic(broker)

    unknown = message_of(lambda: read(spark, broker, subscribe=topic, subscribeTo=topic).count())
    column = message_of(lambda: read(spark, broker, "valve binary", subscribe=topic).count())

    assert "there is no option 'subscribeto' for a batch read" in unknown
    assert "did you mean subscribe?" in unknown
    assert "did you mean value?" in column


def test_sql_views_find_the_source(spark: "SparkSession", broker: Broker) -> None:
    topic = new_topic(broker)
    fill(broker, topic, ["a", "b"])
    given = ", ".join(f"`{name}` '{text}'" for name, text in options(broker, subscribe=topic).items())

    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW messages USING rocketmq OPTIONS ({given})")

    assert spark.sql("SELECT count(*) FROM messages").collect()[0][0] == 2


# streams and writes


def test_a_batch_write_accepts_all_columns(spark: "SparkSession", broker: Broker) -> None:
    topic = new_topic(broker)
    rows = spark.createDataFrame([("a", topic, "k1 k2", "t", {"colour": "red"}, "shard", 0)]).toDF(
        "value", "topic", "keys", "tags", "properties", "shardingKey", "delayLevel"
    )

    rows.withColumn("deliverAt", functions.lit(None).cast("timestamp")).write.format("rocketmq").options(
        **options(broker)
    ).mode("append").save()

    row = read(spark, broker, None, subscribe=topic).collect()[0]
    assert (bytes(row.value), row["keys"], row.tags, row.properties["colour"]) == (b"a", "k1 k2", "t", "red")


def test_a_stream_is_copied_in_limited_batches_and_continues_after_a_restart(
    spark: "SparkSession", broker: Broker, tmp_path: Path
) -> None:
    source, target = new_topic(broker), new_topic(broker)
    fill(broker, source, [f"{number}" for number in range(5)])
    fill(broker, source, [f"{number}" for number in range(5, 8)], number=1)
    frame = stream(
        spark, broker, subscribe=source, startingOffsets="earliest", maxOffsetsPerTrigger=3, groupId="query-of-test"
    )

    first = run_to_the_end(frame, broker, tmp_path / "checkpoint", topic=target)
    fill(broker, source, ["8", "9"])
    second = run_to_the_end(frame, broker, tmp_path / "checkpoint", topic=target)

    assert (sizes(first), sizes(second)) == ([3, 3, 2] if has(LIMITS) else [8], [2])
    assert values(read(spark, broker, subscribe=target)) == [f"{number}" for number in range(10)]
    with Admin(broker.name_server) as admin:
        committed = admin.offsets.committed("query-of-test", source)
        # Older versions do not report the end of the only batch of a run, so the next run publishes it.
        assert committed == {queue(broker, source, 0): 7 if has(LIMITS) else 5, queue(broker, source, 1): 3}
        assert admin.offsets.lag("query-of-test", source).messages == (0 if has(LIMITS) else 2)


def test_a_repeated_batch_is_in_the_topic_once(spark: "SparkSession", broker: Broker, tmp_path: Path) -> None:
    source, target = new_topic(broker), new_topic(broker)
    fill(broker, source, ["a", "b", "b", "c"])
    frame = stream(spark, broker, subscribe=source, startingOffsets="earliest")
    checkpoint = tmp_path / "checkpoint"
    run_to_the_end(frame, broker, checkpoint, topic=target)

    for note in (checkpoint / "commits").iterdir():  # as if the driver had been killed before it noted the end
        note.unlink()
    again = run_to_the_end(frame, broker, checkpoint, topic=target)

    assert sizes(again) == [4]
    assert Counter(values(read(spark, broker, subscribe=target))) == Counter("abbc")

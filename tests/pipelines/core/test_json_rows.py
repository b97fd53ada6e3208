"""Messages as rows: what fits the schema, what does not, and why."""

from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

from tests.pipelines.rows_kit import messages
from tests.spark.broker_kit import Broker, fill, new_topic, options

from pocketmq.errors import InvalidSetting
from pocketmq.pipelines.core.rows import parse_json, parse_schema, read_json

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = "id string NOT NULL, amount double, at timestamp"


def test_good_rows_have_the_columns_of_the_schema_and_the_message_and_bad_ones_the_reason(
    spark: "SparkSession",
) -> None:
    bodies = [
        {"id": "a", "amount": 1.5, "at": "2026-03-01T12:00:00Z", "more": 1},
        {"id": "b"},
        {"id": "c", "amount": None},
        {"id": "d", "amount": "a lot"},
        {"amount": 1},
        b'{"id": "f", "amo',
        b"no json",
        b"[1, 2]",
        b"\xff\xfe{}",
        {"id": "j", "amount": 1, "at": "yesterday"},
    ]

    found = parse_json(messages(spark, bodies), SCHEMA)

    good = found.good.select("id", "amount", "message.queueOffset").collect()
    assert sorted(map(tuple, good)) == [("a", 1.5, 0), ("b", None, 1), ("c", None, 2)]
    bad = {row["queueOffset"]: row["reason"] for row in found.bad.collect()}
    assert bad == {
        3: "amount = a lot is not double",
        4: "id is missing",
        5: "the body is a JSON object that does not fit the schema",
        6: "the body is not a JSON object",
        7: "the body is not a JSON object",
        8: "the body is not UTF-8",
        9: "at = yesterday is not timestamp",
    }
    assert found.bad.columns[:3] == ["topic", "brokerName", "queueId"]
    assert found.rows.count() == len(bodies)


def test_a_topic_is_read_by_its_schema(spark: "SparkSession", broker: Broker) -> None:
    topic = new_topic(broker)
    fill(broker, topic, ['{"id": "a"}', "oh"])

    found = read_json(spark, topic, "id string", options=options(broker), streaming=False)

    assert [row["id"] for row in found.good.collect()] == ["a"]
    assert [bytes(row["value"]) for row in found.bad.collect()] == [b"oh"]


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        ("id strng", "invalid schema 'id strng'; expected for example"),
        ("", "has no columns"),
        ("reason string", "a column 'reason', which is reserved for the reason why a message is bad"),
        ("message string", "set another message_column"),
    ],
)
def test_an_impossible_schema_is_refused(spark: "SparkSession", schema: str, told: str) -> None:
    with pytest.raises(InvalidSetting) as caught:
        parse_json(messages(spark, []), parse_schema(schema))

    assert told in str(caught.value)

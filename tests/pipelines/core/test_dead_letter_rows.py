"""Dead letters: the unchanged message, with the reason and its origin as properties."""

from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

from tests.pipelines.rows_kit import messages
from tests.spark.broker_kit import Broker, new_topic, options

from pocketmq.errors import InvalidSetting
from pocketmq.pipelines.core.rows import dead_letters, parse_json, write_dead_letters

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_dead_letter_has_its_message_its_reason_and_its_origin(spark: "SparkSession") -> None:
    bad = parse_json(messages(spark, [b"oh"]), "id string").bad

    [row] = dead_letters(bad).collect()

    assert (bytes(row["value"]), row["keys"], row["tags"]) == (b"oh", "key-0", "tag")
    assert row["properties"] == {
        "said": "so",
        "DEAD_LETTER_REASON": "the body is not a JSON object",
        "deadTopic": "orders",
        "deadQueue": "0",
        "deadOffset": "0",
        "deadMsgId": "id-0",
    }


def test_a_reason_is_shortened_to_fit_into_a_property(spark: "SparkSession") -> None:
    rows = [(b"a", "two\nlines\x01\x02"), (b"b", ""), (b"c", None), (b"d", "x" * 2000)]

    found = dead_letters(spark.createDataFrame(rows, "value binary, reason string")).collect()

    reasons = [row["properties"]["DEAD_LETTER_REASON"] for row in found]
    assert reasons == ["two lines", "unknown", "unknown", "x" * 500]


def test_rows_without_body_or_reason_are_refused(spark: "SparkSession") -> None:
    with pytest.raises(InvalidSetting, match="need a column 'value'"):
        dead_letters(spark.range(1))
    with pytest.raises(InvalidSetting, match="need a column 'why'"):
        dead_letters(spark.createDataFrame([(b"a", "b")], "value binary, reason string"), reason="why")


def test_a_repeated_batch_writes_its_dead_letters_once(spark: "SparkSession", broker: Broker) -> None:
    topic = new_topic(broker)
    bad = parse_json(messages(spark, [b"oh", b"no"]), "id string").bad

    for _ in range(2):
        write_dead_letters(bad, topic, options=options(broker), write_id="again", batch=3)

    found = spark.read.format("rocketmq").options(**options(broker, subscribe=topic)).load()
    assert sorted(bytes(row["value"]) for row in found.collect()) == [b"no", b"oh"]

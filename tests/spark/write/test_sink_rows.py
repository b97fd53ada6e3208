"""Rows become messages, or an error that names row and column."""

from datetime import UTC, datetime
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="the extra `spark` is not installed")

from pocketmq.errors import InvalidMessage
from pocketmq.model.message import Message
from pocketmq.model.names import parse_topic
from pocketmq.spark.arrow import pa
from pocketmq.spark.write.sink_batches import PlainRows
from pocketmq.spark.write.sink_rows import SinkRows

MAP = pa.map_(pa.string(), pa.string())
MOMENT = pa.timestamp("us", tz="UTC")
TYPES = {
    "value": pa.binary(),
    "topic": pa.string(),
    "keys": pa.string(),
    "tags": pa.string(),
    "properties": MAP,
    "shardingKey": pa.string(),
    "delayLevel": pa.int32(),
    "deliverAt": MOMENT,
}


def batch(**columns: list[Any]) -> Any:
    return pa.RecordBatch.from_pydict(columns, schema=pa.schema([(name, TYPES[name]) for name in columns]))


def messages(option: str | None = "orders", **columns: list[Any]) -> list[Message]:
    made = batch(**columns)
    return SinkRows(made.schema, topic=option).messages(made)


def test_a_value_and_a_topic_are_sufficient() -> None:
    (made,) = messages(value=[b"hello"])

    assert (made.topic, made.body, made.properties) == ("orders", b"hello", {})


def test_every_column_sets_its_part_of_the_message() -> None:
    first, second = messages(
        None,
        value=[b"hello", b"world"],
        topic=["orders", "payments"],
        keys=["k1 k2", None],
        tags=["paid", None],
        properties=[[("a", "1"), ("b", "2")], None],
        shardingKey=["s", None],
        delayLevel=[3, 0],
        deliverAt=[None, datetime(2026, 1, 1, tzinfo=UTC)],
    )

    assert first.topic == "orders"
    assert first.properties == {"a": "1", "b": "2", "TAGS": "paid", "KEYS": "k1 k2", "__SHARDINGKEY": "s", "DELAY": "3"}
    assert second.topic == "payments"
    assert second.properties == {"TIMER_DELIVER_MS": "1767225600000"}


def test_texts_are_sent_as_utf8_and_lists_of_keys_are_joined() -> None:
    schema = pa.schema([("value", pa.string()), ("keys", pa.list_(pa.string()))])
    made = pa.RecordBatch.from_pydict({"value": ["grün", "x"], "keys": [["a", "b"], None]}, schema=schema)

    first, second = SinkRows(schema, topic="t").messages(made)

    assert (first.body, first.keys) == ("grün".encode(), ["a", "b"])
    assert second.keys == []


def test_a_null_among_keys_is_refused_with_its_row() -> None:
    schema = pa.schema([("value", pa.string()), ("keys", pa.list_(pa.string()))])
    made = pa.RecordBatch.from_pydict({"value": ["x", "y"], "keys": [None, ["a", None]]}, schema=schema)

    with pytest.raises(InvalidMessage, match="row 1, column keys: it contains a null"):
        SinkRows(schema, topic="t").messages(made)


def test_the_option_overrides_the_column() -> None:
    (made,) = messages("orders", value=[b"x"], topic=[None])

    assert made.topic == "orders"


def test_a_slice_of_a_batch_is_accepted() -> None:
    whole = batch(value=[b"a", b"b", b"c"], properties=[[("n", "1")], [("n", "2")], [("n", "3")]])

    made = SinkRows(whole.schema, topic="t").messages(whole.slice(1, 2))

    assert [(one.body, one.properties) for one in made] == [(b"b", {"n": "2"}), (b"c", {"n": "3"})]


def test_no_rows_give_no_messages() -> None:
    assert messages(value=[], properties=[], tags=[], deliverAt=[], topic=[]) == []


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        ({"value": [b"x", None]}, "row 1, column value: it is null"),
        ({"value": [b"x", b"y", b""]}, "row 2, column value: it is empty"),
        ({"value": [b"x"], "topic": [None]}, "row 0, column topic: it is null"),
        ({"value": [b"x", b"x"], "topic": ["t", "a b"]}, "row 1, column topic: topic name 'a b' contains ' '"),
        ({"value": [b"x"], "topic": ["SCHEDULE_TOPIC_XXXX"]}, "row 0, column topic: only brokers may write"),
        ({"value": [b"x", b"x"], "topic": ["t", "t"], "tags": ["a", "a||b"]}, "row 1, column tags: tag 'a||b'"),
        ({"value": [b"x"], "topic": ["t"], "tags": [""]}, "row 0, column tags: tag ''"),
        ({"value": [b"x"], "topic": ["t"], "keys": ["a\x02b"]}, "row 0, column keys: it contains 0x01 or 0x02"),
        ({"value": [b"x"], "topic": ["t"], "shardingKey": [""]}, "row 0, column shardingKey: it is empty"),
        ({"value": [b"x"], "topic": ["t"], "delayLevel": [-1]}, "row 0, column delayLevel: it is below 0"),
        (
            {"value": [b"x"], "topic": ["t"], "deliverAt": [datetime(1960, 1, 1, tzinfo=UTC)]},
            "row 0, column deliverAt: it is not after 1970",
        ),
        (
            {"value": [b"x"], "topic": ["t"], "delayLevel": [1], "deliverAt": [datetime(2026, 1, 1, tzinfo=UTC)]},
            "row 0, column deliverAt: it and delayLevel are both set",
        ),
        (
            {"value": [b"x"], "topic": ["t"], "properties": [[("TAGS", "x")]]},
            "row 0, column properties: the property 'TAGS' is reserved",
        ),
        (
            {"value": [b"x"], "topic": ["t"], "properties": [[("sparkRowId", "x")]]},
            "the property 'sparkRowId' is reserved",
        ),
        (
            {"value": [b"x", b"y"], "topic": ["t", "t"], "properties": [[("a", "1")], [("b", None)]]},
            "row 1, column properties: the property 'b' has no value",
        ),
        ({"value": [b"x"], "topic": ["t"], "properties": [[("b", "")]]}, "the property 'b' has an empty name or value"),
        ({"value": [b"x"], "topic": ["t"], "properties": [[("", "1")]]}, "the property '' has an empty name or value"),
        ({"value": [b"x"], "topic": ["t"], "properties": [[("a", "\x01")]]}, "the property 'a' contains 0x01 or 0x02"),
    ],
)
def test_an_impossible_row_is_reported_with_its_column(columns: dict[str, list[Any]], told: str) -> None:
    with pytest.raises(InvalidMessage) as caught:
        messages(None if "topic" in columns else "orders", **columns)

    assert told in str(caught.value)


def test_rows_are_counted_over_all_batches_of_a_partition() -> None:
    good, bad = batch(value=[b"a", b"b"]), batch(value=[b"c", None])
    rows = SinkRows(good.schema, topic="t")
    rows.messages(good)

    with pytest.raises(InvalidMessage, match="row 3, column value"):
        rows.messages(bad)


def test_reserved_properties_can_be_dropped_for_rows_of_a_topic() -> None:
    made = batch(value=[b"x"], properties=[[("UNIQ_KEY", "7F"), ("mine", "1"), ("WAIT", "true"), ("sparkRowId", "x")]])

    (found,) = SinkRows(made.schema, topic="t", drop_reserved=True).messages(made)

    assert found.properties == {"mine": "1"}


@pytest.mark.parametrize(
    ("fields", "topic", "told"),
    [
        ([("topic", pa.string())], None, "the column value is missing"),
        ([("value", pa.binary())], None, "no topic is set"),
        ([("value", pa.binary()), ("tag", pa.string())], "t", "the column 'tag' cannot be written; did you mean tags?"),
        ([("value", pa.binary()), ("zzzz", pa.string())], "t", "cannot be written; the columns are value, topic"),
        ([("value", pa.int64())], "t", "the column value is int64, but must be binary or string"),
        ([("value", pa.binary()), ("keys", pa.list_(pa.int32()))], "t", "must be string or array<string>"),
        ([("value", pa.binary()), ("properties", pa.map_(pa.string(), pa.int32()))], "t", "must be map<string,string>"),
        ([("value", pa.binary()), ("delayLevel", pa.string())], "t", "must be int or bigint"),
        ([("value", pa.binary()), ("deliverAt", pa.timestamp("us"))], "t", "must be timestamp"),
    ],
)
def test_impossible_columns_are_refused_before_the_first_row(
    fields: list[tuple[str, Any]], topic: str | None, told: str
) -> None:
    with pytest.raises(InvalidMessage) as caught:
        SinkRows(pa.schema(fields), topic=topic)

    assert told in str(caught.value)


def plain(option: str | None = "orders", **columns: list[Any]) -> PlainRows | None:
    made = batch(**columns)
    return SinkRows(made.schema, topic=option).plain(made, 4096)


def test_rows_of_one_topic_can_be_sent_in_batches() -> None:
    found = plain(value=[b"a", b"b"], tags=["t", None], keys=[None, "k"], properties=[[("own", "1")], None])

    assert found == PlainRows(parse_topic("orders"), [b"a", b"b"], [{"own": "1", "TAGS": "t"}, {"KEYS": "k"}])
    assert plain(value=[b"a", b"b"]) == PlainRows(parse_topic("orders"), [b"a", b"b"])


@pytest.mark.parametrize(
    ("option", "columns"),
    [
        (None, {"value": [b"a", b"b"], "topic": ["x", "y"]}),
        ("orders", {"value": [b"a"]}),
        ("orders", {"value": [b"a", b"b" * 4096]}),
        ("orders", {"value": [b"a", b"b"], "shardingKey": ["s", None]}),
        ("orders", {"value": [b"a", b"b"], "delayLevel": [0, 1]}),
        ("%RETRY%orders", {"value": [b"a", b"b"]}),
    ],
)
def test_irregular_rows_become_messages_one_by_one(option: str | None, columns: dict[str, list[Any]]) -> None:
    assert plain(option, **columns) is None


def test_plain_rows_are_refused_like_messages() -> None:
    with pytest.raises(InvalidMessage, match="row 1, column value: it is empty"):
        plain(value=[b"a", b""])
    with pytest.raises(InvalidMessage, match="row 1, column keys: it contains 0x01"):
        plain(value=[b"a", b"b"], keys=["k", "\x01"])

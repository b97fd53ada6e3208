"""Rows get their columns from the schemas of Debezium, from `--schema`, or from their values."""

import base64
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

from tests.pipelines.cdc.debezium_kit import ORDERS, change, messages

from pocketmq.errors import InvalidSetting, PipelineFailed
from pocketmq.pipelines.cdc.changes import POSITION, REASON, Envelope, counted
from pocketmq.pipelines.cdc.columns import as_in_table, check_names, fields_of, layouts_of, of_avro, typed_by
from pocketmq.pipelines.core.rows import parse_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

TIME_US = 1_767_225_600_123_456
TIME = datetime.fromtimestamp(TIME_US / 1e6, UTC)


def number(value: int) -> str:
    """A whole number as Debezium sends it in JSON."""
    length = max(1, (value.bit_length() + 8) // 8)
    return base64.b64encode(value.to_bytes(length, "big", signed=True)).decode()


def column(name: str, kind: str, meaning: str = "", **parameters: str) -> dict[str, Any]:
    more = {"name": meaning} if meaning else {}
    return {"field": name, "type": kind, "optional": True, **more, **({"parameters": parameters} if parameters else {})}


DECIMAL = "org.apache.kafka.connect.data.Decimal"
ROWS: Sequence[tuple[dict[str, Any], Any, Any]] = (
    (column("id", "int64"), 1, 1),
    (column("small", "int16"), 7, 7),
    (
        column("price", "bytes", DECIMAL, **{"scale": "2", "connect.decimal.precision": "10"}),
        number(-5),
        Decimal("-0.05"),
    ),
    (
        column("huge", "bytes", DECIMAL, **{"scale": "3", "connect.decimal.precision": "38"}),
        number(-(10**38) + 1),
        Decimal("-99999999999999999999999999999999999.999"),
    ),
    (column("whole", "bytes", DECIMAL, scale="0"), number(2**64), Decimal(2**64)),
    (
        {**column("free", "struct", "io.debezium.data.VariableScaleDecimal"), "fields": []},
        {"scale": 1, "value": number(12345)},
        "1234.5",
    ),
    (
        {**column("round", "struct", "io.debezium.data.VariableScaleDecimal"), "fields": []},
        {"scale": -2, "value": number(-7)},
        "-700",
    ),
    (column("day", "int32", "io.debezium.time.Date"), 20454, date(2026, 1, 1)),
    (column("ms", "int64", "io.debezium.time.Timestamp"), TIME_US // 1000, TIME.replace(microsecond=123000)),
    (column("us", "int64", "io.debezium.time.MicroTimestamp"), TIME_US, TIME),
    (column("ns", "int64", "io.debezium.time.NanoTimestamp"), TIME_US * 1000 + 7, TIME),
    (column("zoned", "string", "io.debezium.time.ZonedTimestamp"), "2026-01-01T02:00:00.123456+02:00", TIME),
    (column("at", "int64", "io.debezium.time.MicroTime"), 45_296_000_001, "12:34:56.000001"),
    (column("blob", "bytes"), base64.b64encode(b"\x00\xff").decode(), b"\x00\xff"),
    (column("flag", "boolean"), True, True),
    (column("text", "string"), 'a "quoted" line\n', 'a "quoted" line\n'),
    (
        {**column("list", "array"), "items": {"type": "int64", "name": "io.debezium.time.MicroTimestamp"}},
        [TIME_US, None],
        [TIME, None],
    ),
    (
        {**column("point", "struct"), "fields": [column("x", "double"), column("wkb", "bytes")]},
        {"x": 1.5, "wkb": None},
        (1.5, None),
    ),
    (column("reason", "string"), None, None),
    (column("message", "string"), "hello", "hello"),
)


def typed(
    spark: "SparkSession",
    bodies: Sequence[str],
    table: "StructType | None" = None,
    chosen: Mapping[str, str] | None = None,
) -> "DataFrame":
    changes = Envelope(["id"]).changes(messages(spark, bodies))
    layouts = layouts_of(changes, counted(changes), table, chosen or {}, "the table t")
    return typed_by(changes, layouts, ["id"])


def plain(value: Any) -> Any:
    """A value as Spark returns it, with times in UTC."""
    if isinstance(value, datetime):
        return value.astimezone(UTC)
    if isinstance(value, list):
        return [plain(one) for one in value]
    return bytes(value) if isinstance(value, bytearray) else tuple(value) if isinstance(value, tuple) else value


def test_values_have_the_types_of_their_schema(spark: "SparkSession") -> None:
    row = {one["field"]: sent for one, sent, _ in ROWS}
    nothing = dict.fromkeys(row) | {"id": 2}
    columns = [one for one, _, _ in ROWS]

    full, empty = typed(spark, [change("c", 1, row, columns), change("c", 2, nothing, columns)]).orderBy("id").collect()

    assert full[REASON] is None
    assert {name: plain(full[name]) for name in row} == {one["field"]: expected for one, _, expected in ROWS}
    assert {name: empty[name] for name in row} == nothing
    assert empty[REASON] is None


def test_a_value_that_does_not_fit_makes_a_reason(spark: "SparkSession") -> None:
    zoned = [ORDERS[0], column("zoned", "string", "io.debezium.time.ZonedTimestamp"), column("many", "int32")]
    bodies = [
        change("c", 1, {"id": 1, "zoned": "yesterday", "many": None}, zoned),
        change("c", 2, {"id": 2, "zoned": None, "many": "a lot"}, zoned),
        change("c", 3, {"id": None, "zoned": None, "many": 1}, zoned),
    ]

    rows = typed(spark, bodies).orderBy(POSITION).collect()

    assert [row[REASON] for row in rows] == [
        "zoned = yesterday is not timestamp",
        "many = a lot is not int",
        "id is missing, and it is a key",
    ]


def test_without_a_schema_columns_have_the_types_of_their_values(spark: "SparkSession") -> None:
    row = {
        "id": 1,
        "price": 2.5,
        "city": "Rome",
        "paid": True,
        "place": {"x": 1},
        "none": None,
        "at": "2026-01-01T00:00:00Z",
    }

    [found] = typed(spark, [change("c", 1, row, ())], chosen={"at": "timestamp", "id": "int"}).collect()

    own = {name: found[name] for name in found.asDict() if not name.startswith("_")}
    assert own == {"id": 1, "price": 2.5, "city": "Rome", "paid": True, "place": '{"x":1}', "at": own["at"]}
    assert plain(own["at"]) == datetime(2026, 1, 1, tzinfo=UTC)


def test_without_a_schema_columns_of_the_table_keep_their_types(spark: "SparkSession") -> None:
    table = parse_schema("id int, price decimal(10,2)")
    bodies = [change("c", 1, {"id": 1, "price": 2}, ()), change("c", 2, {"id": 2, "price": "much"}, ())]

    rows = typed(spark, bodies, table).orderBy("id").collect()

    assert rows[0]["price"] == Decimal("2.00")
    assert [row[REASON] for row in rows] == [None, "price = much is not decimal(10,2)"]


def test_columns_that_are_added_are_null_in_older_changes(spark: "SparkSession") -> None:
    more = [*ORDERS, column("note", "string")]
    bodies = [change("c", 1, {"id": 1, "city": "Rome"}), change("c", 2, {"id": 2, "city": "Oslo", "note": "new"}, more)]

    rows = typed(spark, bodies).orderBy("id").collect()

    assert [(row["id"], row["city"], row["note"]) for row in rows] == [(1, "Rome", None), (2, "Oslo", "new")]


@pytest.mark.parametrize(
    ("kind", "of_table", "fits"),
    [
        ("int32", "bigint", True),
        ("int64", "int", False),
        ("int32", "decimal(12,2)", True),
        ("int64", "decimal(12,2)", False),
        ("double", "float", False),
        ("float", "double", True),
        ("int32", "string", True),
        ("string", "int", False),
        ("bytes", "string", False),
    ],
)
def test_a_table_may_have_wider_types_only(kind: str, of_table: str, fits: bool) -> None:
    fields = fields_of(json.dumps({"fields": [{"field": "after", "fields": [column("many", kind)]}]}))
    table = parse_schema(f"many {of_table}")

    if fits:
        assert [field.type for field in as_in_table(fields, table, "the table t")] == [of_table]
    else:
        with pytest.raises(InvalidSetting, match="nothing of the batch was written"):
            as_in_table(fields, table, "the table t")


def test_a_type_that_a_user_chose_is_used(spark: "SparkSession") -> None:
    [row] = typed(spark, [change("c", 1, {"id": 1, "city": "12.5"})], chosen={"city": "decimal(5,2)"}).collect()

    assert row["city"] == Decimal("12.50")


def test_keys_and_names_are_checked() -> None:
    fields = fields_of(json.dumps({"fields": [{"field": "after", "fields": list(ORDERS)}]}))

    with pytest.raises(InvalidSetting, match="--keys number: the changes have no such column; they have id, city"):
        check_names(fields, ["number"], ())
    with pytest.raises(InvalidSetting, match="the changes have a column city, and this pipeline needs the name"):
        check_names(fields, ["id"], ["city"])


def test_another_schema_is_reported() -> None:
    with pytest.raises(PipelineFailed, match="a message has a schema that is not Debezium's"):
        fields_of('{"type": "struct", "fields": [{"field": "id", "type": "int32"}]}')


def test_schemas_in_avro_have_the_same_columns() -> None:
    value = {
        "type": "record",
        "name": "Value",
        "fields": [
            {"name": "id", "type": "int"},
            {"name": "at", "type": ["null", {"type": "long", "connect.name": "io.debezium.time.MicroTimestamp"}]},
            {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 8, "scale": 2}},
            {"name": "tags", "type": {"type": "array", "items": ["null", "string"]}},
        ],
    }
    schema = {
        "type": "record",
        "name": "Envelope",
        "namespace": "shop.public.orders",
        "fields": [{"name": "before", "type": ["null", value]}, {"name": "after", "type": ["null", "Value"]}],
    }

    fields = fields_of(of_avro(json.dumps(schema)))

    assert [(field.name, field.type) for field in fields] == [
        ("id", "int"),
        ("at", "timestamp"),
        ("price", "decimal(8,2)"),
        ("tags", "array<string>"),
    ]

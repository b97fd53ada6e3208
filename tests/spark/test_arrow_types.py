"""Arrow's types are the ones that Spark itself would choose."""

from inspect import signature
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="the extra `spark` is not installed")
pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

from pyspark.sql import types
from pyspark.sql.pandas.types import to_arrow_schema

from pocketmq.spark.arrow import ARROW_TYPES, arrow_schema, maps_without_nulls, np, number_array, pa, same_texts
from pocketmq.spark.schema import COLUMNS, Name, names_of, never_null_of
from pocketmq.spark.source import SPARK_TYPES, spark_schema

MAP = "map<string,string>"
MAP_WITH_NULLS = types.MapType(types.StringType(), types.StringType())
STRICT = spark_schema()
LOOSE = types.StructType(
    [
        types.StructField(column.name.value, MAP_WITH_NULLS if column.type == MAP else SPARK_TYPES[column.type])
        for column in COLUMNS
    ]
)
MIXED = types.StructType(
    [
        LOOSE["value"],
        types.StructField("properties", MAP_WITH_NULLS, False),
        STRICT["topic"],
        types.StructField("keys", types.StringType()),
    ]
)


def of_spark(schema: types.StructType) -> Any:
    takes_a_zone = "timezone" in signature(to_arrow_schema).parameters  # older versions always use UTC
    return to_arrow_schema(schema, timezone="UTC") if takes_a_zone else to_arrow_schema(schema)


@pytest.mark.parametrize("schema", [STRICT, LOOSE, MIXED], ids=["strict", "loose", "mixed"])
def test_the_schema_equals_that_of_spark(schema: types.StructType) -> None:
    made = arrow_schema(names_of(schema.fields), never_null_of(schema.fields))

    assert made.equals(of_spark(schema))


def test_fields_without_a_nullability_may_be_null() -> None:
    assert arrow_schema(tuple(Name)).equals(of_spark(LOOSE))


def test_fields_of_sparks_arrow_schema_are_understood() -> None:
    assert names_of(STRICT) == names_of(LOOSE) == tuple(Name)
    assert names_of(STRICT.fields[3:5]) == (Name.QUEUE_OFFSET, Name.MSG_ID)


@pytest.mark.parametrize("rows", [[], [[]], [[("a", "1"), ("b", "")], [], [("c", "2")]]])
def test_maps_with_equal_types_are_equal(rows: list[list[tuple[str, str]]]) -> None:
    maps = maps_without_nulls(pa.array(rows, ARROW_TYPES[MAP]))

    maps.validate(full=True)
    assert maps.to_pylist() == rows
    assert not maps.type.item_field.nullable


@pytest.mark.parametrize("kind", [np.int32, np.int64])
@pytest.mark.parametrize("count", [0, 1, 5])
def test_numbers_are_those_of_numpy(kind: type[Any], count: int) -> None:
    numbers: Any = np.array(range(-2, count - 2), kind)

    assert number_array(numbers).equals(pa.array(numbers))


def test_numbers_may_be_read_as_times() -> None:
    assert number_array(np.array([1, 2]), ARROW_TYPES["timestamp"]).equals(pa.array([1, 2], ARROW_TYPES["timestamp"]))


@pytest.mark.parametrize("text", ["broker-a", "größe", ""])
@pytest.mark.parametrize("count", [0, 1, 5])
def test_a_constant_text_is_in_each_row(text: str, count: int) -> None:
    column = same_texts(text, count)

    column.validate(full=True)
    assert column.equals(pa.array([text] * count, pa.string()))

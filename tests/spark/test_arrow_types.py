"""Arrow's types are the ones that Spark itself would choose."""

from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="the extra `spark` is not installed")
pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

from pyspark.sql import types
from pyspark.sql.pandas.types import to_arrow_schema

from pocketmq.spark.arrow_types import ARROW_TYPES, arrow_schema, number_array, same_texts
from pocketmq.spark.libraries import np, pa
from pocketmq.spark.schema import COLUMNS, Name, names_of

SPARKS = {
    "string": types.StringType(),
    "binary": types.BinaryType(),
    "int": types.IntegerType(),
    "bigint": types.LongType(),
    "timestamp": types.TimestampType(),
    "map<string,string>": types.MapType(types.StringType(), types.StringType()),
}
SCHEMA = types.StructType([types.StructField(column.name.value, SPARKS[column.type]) for column in COLUMNS])


def test_the_schema_is_sparks_to_the_letter() -> None:
    assert arrow_schema(tuple(Name)).equals(to_arrow_schema(SCHEMA, timezone="UTC"))


def test_sparks_own_fields_are_understood() -> None:
    assert names_of(SCHEMA) == tuple(Name)
    assert names_of(SCHEMA.fields[3:5]) == (Name.QUEUE_OFFSET, Name.MSG_ID)


@pytest.mark.parametrize("kind", [np.int32, np.int64])
@pytest.mark.parametrize("count", [0, 1, 5])
def test_numbers_are_those_of_numpy(kind: type[Any], count: int) -> None:
    numbers: Any = np.array(range(-2, count - 2), kind)

    assert number_array(numbers).equals(pa.array(numbers))


def test_numbers_may_be_times() -> None:
    assert number_array(np.array([1, 2]), ARROW_TYPES["timestamp"]).equals(pa.array([1, 2], ARROW_TYPES["timestamp"]))


@pytest.mark.parametrize("text", ["broker-a", "größe", ""])
@pytest.mark.parametrize("count", [0, 1, 5])
def test_a_text_stands_in_each_row(text: str, count: int) -> None:
    column = same_texts(text, count)

    column.validate(full=True)
    assert column.equals(pa.array([text] * count, pa.string()))

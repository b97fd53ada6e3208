"""Arrow's types are the ones that Spark itself would choose."""

import pytest

pytest.importorskip("pyarrow", reason="the extra `spark` is not installed")
pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

from pyspark.sql import types
from pyspark.sql.pandas.types import to_arrow_schema

from pocketmq.spark.arrow_types import arrow_schema
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

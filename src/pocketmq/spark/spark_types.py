"""The columns in Spark's own types: the schema of a read for which the user named none."""

from typing import Final

from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from pocketmq.spark.schema import COLUMNS, Name

SPARK_TYPES: Final[dict[str, DataType]] = {
    "string": StringType(),
    "binary": BinaryType(),
    "int": IntegerType(),
    "bigint": LongType(),
    "timestamp": TimestampType(),
    "map<string,string>": MapType(StringType(), StringType(), valueContainsNull=False),
}


def spark_schema(*, with_properties: bool = True) -> StructType:
    """All columns. The map of properties takes half of Java's time for a row."""
    wanted = [column for column in COLUMNS if with_properties or column.name is not Name.PROPERTIES]
    return StructType([StructField(one.name.value, SPARK_TYPES[one.type], one.may_be_null) for one in wanted])

"""The schema of a read without a schema of the user."""

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

from pyspark.sql.types import MapType

from pocketmq.spark.schema import COLUMNS, Name, names_of
from pocketmq.spark.source import spark_schema


def test_all_columns_exist_with_their_types_in_order() -> None:
    schema = spark_schema()

    assert names_of(schema.fields) == tuple(Name)
    assert [field.dataType.simpleString() for field in schema.fields] == [column.type for column in COLUMNS]


def test_only_keys_and_tags_may_be_null() -> None:
    schema = spark_schema()

    assert [field.name for field in schema.fields if field.nullable] == ["keys", "tags"]
    properties = schema["properties"].dataType
    assert isinstance(properties, MapType)
    assert not properties.valueContainsNull


def test_the_map_can_be_omitted() -> None:
    assert names_of(spark_schema(name for name in Name if name is not Name.PROPERTIES).fields) == tuple(
        name for name in Name if name is not Name.PROPERTIES
    )

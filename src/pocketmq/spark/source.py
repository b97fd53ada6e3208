"""`format("rocketmq")`: what Spark asks first, and which part answers.

    spark.read        ── reader ──────► `batch_reader`
    spark.readStream  ── streamReader ► `stream_reader`
    df.write          ── writer ──────► `writer`
    df.writeStream    ── streamWriter ► `writer`

Options are checked here, so that a mistake is told when a DataFrame is made and not by the first task. The part that answers is imported
when it is asked: each process that Spark starts needs one of them.

The columns in Spark's own types: the schema of a read for which the user named none.
"""

import os
from typing import Final

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
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

from pocketmq.errors import InvalidSetting, PocketMQError
from pocketmq.spark import schema as columns
from pocketmq.spark.options.read_options import ReadOptions, parse_read_options
from pocketmq.spark.options.write_options import parse_write_options
from pocketmq.spark.python_processes import is_streaming_read, short_errors
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


class RocketMQSource(DataSource):
    """Topics of RocketMQ."""

    @classmethod
    def name(cls) -> str:
        return "rocketmq"

    def schema(self) -> StructType:
        """All columns; whether the map of properties is one of them is an option of batch and streaming reads alike."""
        shown = {key.lower(): text for key, text in self.options.items()}
        leaves_out = [key for key in ("includeproperties", "includeheaders") if shown.get(key, "").lower() == "false"]
        return spark_schema(with_properties=not leaves_out)

    @short_errors()
    def reader(self, schema: StructType) -> DataSourceReader:
        from pocketmq.spark.read.batch_reader import FilteringTopicReader, TopicReader

        options = parse_read_options(self.options, streaming=False, environ=os.environ)
        kind = FilteringTopicReader if options.push_filters else TopicReader
        return kind(options, _columns(schema, options), columns.never_null_of(schema.fields))

    @short_errors()
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        from pocketmq.spark.read.stream_reader import RefusedStreamReader, TopicStreamReader

        try:
            options = parse_read_options(self.options, streaming=True, environ=os.environ)
            return TopicStreamReader(options, _columns(schema, options), columns.never_null_of(schema.fields))
        except PocketMQError as error:
            if not is_streaming_read():
                raise
            return RefusedStreamReader(error)

    @short_errors()
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from pocketmq.spark.write.writer import TopicWriter

        options = parse_write_options(self.options, streaming=False, environ=os.environ)
        return TopicWriter(options, overwrite=overwrite)

    @short_errors()
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        from pocketmq.spark.write.writer import TopicStreamWriter

        options = parse_write_options(self.options, streaming=True, environ=os.environ)
        return TopicStreamWriter(options)


def _columns(schema: StructType, options: ReadOptions) -> tuple[columns.Name, ...]:
    """Those that are read; InvalidSetting where the schema names what an option leaves out."""
    names = columns.names_of(schema.fields)
    if columns.Name.PROPERTIES in names and not options.include_properties:
        raise InvalidSetting("the schema names the column properties, which includeProperties = false leaves out")
    return names

"""`format("rocketmq")`: what Spark asks first, and which part answers.

    spark.read        ── reader ──────► `batch_reader`
    spark.readStream  ── streamReader ► `stream_reader`
    df.write          ── writer ──────► `writer`
    df.writeStream    ── streamWriter ► `writer`

Options are checked here, so that a mistake is told when a DataFrame is made and not by the first task. The part that answers is imported
when it is asked: each process that Spark starts needs one of them.
"""

import os

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from pocketmq import spark
from pocketmq.errors import InvalidSetting, PocketMQError
from pocketmq.spark import schema as columns
from pocketmq.spark.read_options import ReadOptions, parse_read_options
from pocketmq.spark.short_errors import is_streaming_read, short_errors
from pocketmq.spark.spark_types import spark_schema
from pocketmq.spark.write_options import parse_write_options


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
    def reader(self, schema: StructType) -> "spark.TopicReader":
        options = parse_read_options(self.options, streaming=False, environ=os.environ)
        kind = spark.FilteringTopicReader if options.push_filters else spark.TopicReader
        return kind(options, _columns(schema, options), columns.never_null_of(schema.fields))

    @short_errors()
    def streamReader(self, schema: StructType) -> "spark.TopicStreamReader | spark.RefusedStreamReader":  # noqa: N802
        try:
            options = parse_read_options(self.options, streaming=True, environ=os.environ)
            return spark.TopicStreamReader(options, _columns(schema, options), columns.never_null_of(schema.fields))
        except PocketMQError as error:
            if not is_streaming_read():
                raise
            return spark.RefusedStreamReader(error)

    @short_errors()
    def writer(self, schema: StructType, overwrite: bool) -> "spark.TopicWriter":
        options = parse_write_options(self.options, streaming=False, environ=os.environ)
        return spark.TopicWriter(options, overwrite=overwrite)

    @short_errors()
    def streamWriter(self, schema: StructType, overwrite: bool) -> "spark.TopicStreamWriter":  # noqa: N802
        options = parse_write_options(self.options, streaming=True, environ=os.environ)
        return spark.TopicStreamWriter(options)


def _columns(schema: StructType, options: ReadOptions) -> tuple[columns.Name, ...]:
    """Those that are read; InvalidSetting where the schema names what an option leaves out."""
    names = columns.names_of(schema.fields)
    if columns.Name.PROPERTIES in names and not options.include_properties:
        raise InvalidSetting("the schema names the column properties, which includeProperties = false leaves out")
    return names

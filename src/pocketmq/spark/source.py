"""`format("rocketmq")`: the entry points that Spark calls, and the module behind each.

    spark.read        ── reader ──────► `batch_reader`
    spark.readStream  ── streamReader ► `stream_reader`
    df.write          ── writer ──────► `writer`
    df.writeStream    ── streamWriter ► `writer`

Options are checked here, so that a mistake fails when you create the DataFrame, not in the first task. Each module is imported
on first use: a process that Spark starts needs only one of them.

Spark 4.3 does not pass the columns of a query to a Python source: `select("value")` decodes all of them. The schema of a read
decides, and `read_topic` writes it.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

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
from pocketmq.spark.executors import SentToExecutors
from pocketmq.spark.filters.parsing import has_doubled_quotes
from pocketmq.spark.options.metadata_options import OPTION, asks_for_metadata, metadata_kind, parse_metadata_options
from pocketmq.spark.options.read_options import ReadOptions, options_with, parse_read_options
from pocketmq.spark.options.write_options import parse_write_options
from pocketmq.spark.pyspark_versions import DOUBLED_QUOTES, has
from pocketmq.spark.python_processes import is_streaming_read, short_errors, takes_filters
from pocketmq.spark.schema import COLUMNS, Name, parse_columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


SPARK_TYPES: Final[dict[str, DataType]] = {
    "string": StringType(),
    "binary": BinaryType(),
    "int": IntegerType(),
    "bigint": LongType(),
    "timestamp": TimestampType(),
    "map<string,string>": MapType(StringType(), StringType(), valueContainsNull=False),
}


def spark_schema(names: Iterable[Name] = tuple(Name)) -> StructType:
    """These columns, in this order. Without the map of properties, Java needs half the time for a row."""
    found = {column.name: column for column in COLUMNS}
    return StructType(
        [StructField(name.value, SPARK_TYPES[found[name].type], found[name].may_be_null) for name in names]
    )


class RocketMQSource(SentToExecutors, DataSource):
    """Topics of RocketMQ."""

    @classmethod
    def name(cls) -> str:
        return "rocketmq"

    def schema(self) -> StructType:
        """All columns; `includeProperties` decides about the map of properties, for batch and streaming reads. The option
        `metadata` has columns of its own.
        """
        if asks_for_metadata(self.options):
            return metadata_schema(self.options)
        shown = {key.lower(): text for key, text in self.options.items()}
        leaves_out = [key for key in ("includeproperties", "includeheaders") if shown.get(key, "").lower() == "false"]
        return spark_schema(name for name in Name if name is not Name.PROPERTIES or not leaves_out)

    @short_errors()
    def reader(self, schema: StructType) -> DataSourceReader:
        if asks_for_metadata(self.options):
            return _metadata_reader(self.options, schema)
        from pocketmq.spark.read.batch_reader import FilteringTopicReader, TopicReader

        options = _read_options(self.options, streaming=False)
        kind = FilteringTopicReader if options.push_filters and takes_filters() else TopicReader
        return kind(options, _columns(schema, options), columns.never_null_of(schema.fields))

    @short_errors()
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        from pocketmq.spark.read.stream_reader import FailingStreamReader, TopicStreamReader

        try:
            if asks_for_metadata(self.options):
                raise InvalidSetting(f"the option {OPTION} is for a batch read, not for a streaming read")
            options = _read_options(self.options, streaming=True)
            return TopicStreamReader(options, _columns(schema, options), columns.never_null_of(schema.fields))
        except PocketMQError as error:
            if not is_streaming_read():
                raise
            return FailingStreamReader(error)

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


@short_errors()
def metadata_schema(options: Mapping[str, str]) -> StructType:
    """The columns of the kind of metadata that the options ask for."""
    from pocketmq.spark.read.metadata_tables import TABLES

    fields = TABLES[metadata_kind(options)]
    return StructType([StructField(field.name, SPARK_TYPES[field.type], field.may_be_null) for field in fields])


def _metadata_reader(options: Mapping[str, str], schema: StructType) -> DataSourceReader:
    from pocketmq.spark.read.metadata_tables import MetadataReader

    parsed = parse_metadata_options(options, os.environ)
    own = {field.name: field.dataType.simpleString() for field in metadata_schema(options).fields}
    for field in schema.fields:
        if own.get(field.name) != field.dataType.simpleString():
            known = ", ".join(f"{name} {kind}" for name, kind in own.items())
            raise InvalidSetting(
                f"metadata = {parsed.metadata} has no column {field.name} {field.dataType.simpleString()}; its columns are {known}"
            )
    return MetadataReader(parsed, schema.fieldNames())


def _read_options(given: Mapping[str, str], *, streaming: bool) -> ReadOptions:
    options = parse_read_options(given, streaming=streaming, environ=os.environ)
    filters = [text for key, text in given.items() if key.lower() == "filter"]
    if not has(DOUBLED_QUOTES) and any(map(has_doubled_quotes, filters)):
        raise InvalidSetting("the option filter: PySpark 4.0 reads 'it''s' as its; write \"it's\"")
    return options


def _columns(schema: StructType, options: ReadOptions) -> tuple[columns.Name, ...]:
    """The columns to read; InvalidSetting if the schema names one that an option excludes."""
    names = columns.names_of(schema.fields)
    if columns.Name.PROPERTIES in names and not options.include_properties:
        raise InvalidSetting("the schema names the column properties, which includeProperties = false omits")
    return names


NO_OPTIONS: Final[Mapping[str, Any]] = {}


def read_topic(
    spark: "SparkSession",
    topic: str | None = None,
    *,
    columns: Sequence[str] | None = None,
    where: str | None = None,
    stream: bool = False,
    options: Mapping[str, Any] = NO_OPTIONS,
) -> "DataFrame":
    """A batch, or with `stream` a stream, of these columns, or of all.

    `topic` is the option `subscribe`, and `where` the option `filter`: it may use columns that are not read. InvalidSetting for a
    column or a condition that does not exist; Spark reports other wrong options on the first use.
    """
    reader: Any = (spark.readStream if stream else spark.read).format("rocketmq")
    given = options_with(options, topic, where)
    if columns is not None:
        reader = reader.schema(spark_schema(parse_columns(columns)))
    frame: DataFrame = reader.options(**given).load()
    return frame

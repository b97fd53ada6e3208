"""Tables that rows are appended to: of any catalog of Spark, or at a path, in a format with commits of its own.

    --table catalog.db.orders              created with the columns of the rows, evolved when columns are added
    --lake s3a://… --format delta          created by the first batch; the format decides about new columns

    format      a batch that runs again                                                            rows
    delta       Delta ignores a transaction of the same writer and number (txnAppId, txnVersion)   once
    iceberg     the snapshots name the last batch of each writer, and a known one is not written   once
    others      is written again                                                                   at least once

Each commit of Delta and Iceberg also has the offsets at which the batch ends, as JSON by topic, broker and queue.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from pocketmq.errors import InvalidSetting, PipelineFailed
from pocketmq.pipelines.core.libraries import SPARK_ERRORS, DataFrame, SparkSession, error_text, functions, types

ONCE: Final = ("delta", "iceberg")
"""Formats whose commits say which batches they have."""
_WRITER: Final = "pocketmq.writer"
_BATCH: Final = "pocketmq.batch"
_OFFSETS: Final = "pocketmq.offsets"
_NO_CATALOG: Final = (
    "CATALOG_NOT_FOUND",
    "CANNOT_LOAD_CATALOG",
    "Cannot find catalog plugin",
    "REQUIRES_SINGLE_PART_NAMESPACE",  # Spark takes an unknown catalog for a part of the namespace
    "NESTED_DATABASE_UNSUPPORTED",
)
_NO_SCHEMA: Final = ("SCHEMA_NOT_FOUND", "NoSuchNamespaceException")


class Append(NamedTuple):
    """The identity of a batch: its writer, its number, and the offsets at which it ends."""

    writer: str
    number: int
    offsets: str = ""


class Target(NamedTuple):
    """A table, by its name or its path."""

    format: str
    """Empty for the default of the catalog."""
    name: str = ""
    path: str = ""
    partitions: Sequence[str] = ()
    options: Mapping[str, str] = {}

    def __str__(self) -> str:
        return f"the table {self.name}" if self.name else f"a {self.format} table at {self.path}"

    @property
    def guarantee(self) -> str:
        """How often a row is in the table after a batch was run again, as text."""
        if self.format.lower() in ONCE:
            return f"each row once, by the commits of {self.format}"
        return "each row at least once: a batch that was interrupted is written again, because the format has no commits that name it"


def prepare_table(spark: SparkSession, target: Target, schema: types.StructType) -> Target:
    """Create the table, or add missing columns. Returns the target with its format."""
    found = examined(spark, target, schema)
    if not target.name:
        return found.target
    try:
        if found.known is None:
            _create(spark, target, schema)
        elif found.missing:
            columns = ", ".join(f"`{field.name}` {field.dataType.simpleString()}" for field in found.missing)
            spark.sql(f"ALTER TABLE {target.name} ADD COLUMNS ({columns})")
    except SPARK_ERRORS as error:
        raise PipelineFailed(f"the table {target.name} cannot be changed: {error_text(error)}") from None
    return target._replace(format=_format(spark, target.name))


class Examined(NamedTuple):
    """What a run would find: the target with its format, the table's columns, and those that it lacks."""

    target: Target
    known: types.StructType | None
    missing: Sequence[types.StructField] = ()


def examined(spark: SparkSession, target: Target, schema: types.StructType) -> Examined:
    """Examine the table without changing it; InvalidSetting if rows with this schema cannot be written to it."""
    if not target.name:
        return Examined(target, None)
    try:
        known = spark.table(target.name).schema if spark.catalog.tableExists(target.name) else None
    except SPARK_ERRORS as error:
        raise _unknown(spark, target.name, error) from None
    if known is None:
        _check_namespace(spark, target.name)
        return Examined(target, None)
    columns = {field.name.lower(): field for field in known.fields}
    for field in schema.fields:
        column = columns.get(field.name.lower())
        if column is not None and _plain(column.dataType) != _plain(field.dataType):
            raise InvalidSetting(
                f"the table {target.name} has the column {column.name} as {column.dataType.simpleString()}, and the rows have "
                f"{field.dataType.simpleString()}: cast it by --select, or use another table"
            )
    own = {field.name.lower() for field in schema.fields}
    if needed := [field.name for field in known.fields if not field.nullable and field.name.lower() not in own]:
        raise InvalidSetting(
            f"the table {target.name} needs the column {needed[0]}, which the rows do not have: add it by --select, or use another table"
        )
    missing = [field for field in schema.fields if field.name.lower() not in columns]
    return Examined(target._replace(format=_format(spark, target.name)), known, missing)


def append(rows: DataFrame, target: Target, batch: Append) -> None:
    """Append the rows of a batch, unless the table says that it has them."""
    kind = target.format.lower()
    if kind == "iceberg":
        _append_to_iceberg(rows, target, batch)
        return
    options = dict(target.options)
    if kind == "delta":
        options |= {"txnAppId": batch.writer, "txnVersion": str(batch.number), "userMetadata": batch.offsets}
    writer = rows.write.format(target.format).mode("append").options(**options)
    if target.path:
        writer.partitionBy(*target.partitions).save(target.path)
    elif kind == "delta":
        writer.saveAsTable(target.name)
    else:
        _in_order(rows, target.name).write.options(**options).insertInto(target.name)


def _append_to_iceberg(rows: DataFrame, target: Target, batch: Append) -> None:
    if _last_of_iceberg(rows.sparkSession, target.name, batch.writer) >= batch.number:
        return
    values = {_WRITER: batch.writer, _BATCH: str(batch.number), _OFFSETS: batch.offsets}
    properties = {f"snapshot-property.{name}": value for name, value in values.items()}
    _in_order(rows, target.name).writeTo(target.name).options(**target.options, **properties).append()


def _last_of_iceberg(spark: SparkSession, table: str, writer: str) -> int:
    """The last batch of a writer in the snapshots of a table; -1 if there is none."""
    summary = functions.col("summary")
    known = spark.table(f"{table}.snapshots").where(summary.getItem(_WRITER) == writer)
    last = known.agg(functions.max(summary.getItem(_BATCH).cast("bigint"))).collect()[0][0]
    return -1 if last is None else int(last)


def _in_order(rows: DataFrame, table: str) -> DataFrame:
    """The rows with all columns of a table, in its order."""
    own = {name.lower() for name in rows.columns}
    return rows.select(
        *(
            functions.col(f"`{field.name}`")
            if field.name.lower() in own
            else functions.lit(None).cast(field.dataType).alias(field.name)
            for field in rows.sparkSession.table(table).schema.fields
        )
    )


def _create(spark: SparkSession, target: Target, schema: types.StructType) -> None:
    fields = [types.StructField(field.name, field.dataType) for field in schema.fields]  # later rows may have nulls
    writer = spark.createDataFrame([], types.StructType(fields)).writeTo(target.name)
    if target.format:
        writer = writer.using(target.format)
    for name, value in target.options.items():
        writer = writer.option(name, value)
    if target.partitions:
        writer = writer.partitionedBy(*(functions.col(f"`{name}`") for name in target.partitions))
    writer.create()


def _format(spark: SparkSession, table: str) -> str:
    """The format of a table, as its catalog names it."""
    rows = spark.sql(f"DESCRIBE TABLE EXTENDED {table}").collect()
    return next((str(row.data_type).lower() for row in rows if row.col_name == "Provider"), "")


def _check_namespace(spark: SparkSession, table: str) -> None:
    namespace = table.rpartition(".")[0]
    if not namespace:
        return
    try:
        spark.sql(f"SHOW TABLES IN {namespace}").collect()
    except SPARK_ERRORS as error:
        raise _unknown(spark, table, error) from None


def _unknown(spark: SparkSession, table: str, error: Exception) -> InvalidSetting:
    text, catalog = str(error), table.partition(".")[0] if table.count(".") > 1 else "spark_catalog"
    if any(word in text for word in _NO_CATALOG):
        return InvalidSetting(
            f"--table {table}: the catalog {catalog} is not configured, or its library is missing: set it by "
            f"--spark spark.sql.catalog.{catalog}=CLASS, and the library by --spark spark.jars.packages=…: {error_text(error)}"
        )
    if any(word in text for word in _NO_SCHEMA):
        namespace = table.rpartition(".")[0]
        return InvalidSetting(f"--table {table}: {namespace} does not exist; CREATE NAMESPACE {namespace} creates it")
    return InvalidSetting(f"--table {table}: {error_text(error)}")


def _plain(kind: types.DataType) -> Any:
    """A type as text, without whether its parts may be null."""
    return kind.simpleString().lower()

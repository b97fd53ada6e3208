"""Tables that rows are appended to: of any catalog of Spark, or at a path, in a format with commits of its own.

    --table catalog.db.orders              created with the columns of the rows, evolved when columns are added
    --lake s3a://… --format delta          created by the first batch; the format decides about new columns

    delta, iceberg      each commit has a record of the offsets in the table; only what it lacks is written, see `contents`     once
    others              a batch that runs again is written again                                                      at least once

A commit on top of an older record than the newest is refused by the format, and tried again on top of the newest one.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final, NamedTuple
from uuid import uuid4

from pocketmq.errors import InvalidSetting, NotFound, PipelineFailed
from pocketmq.model import QueueRange
from pocketmq.pipelines.archive.contents import Record
from pocketmq.pipelines.archive.formats import DeltaTable, IcebergTable, State, TableFormat
from pocketmq.pipelines.archive.lake import Batch
from pocketmq.pipelines.core.checkpoint import is_local
from pocketmq.pipelines.core.libraries import SPARK_ERRORS, DataFrame, SparkSession, error_text, functions, types

ONCE: Final = ("delta", "iceberg")
"""Formats whose commits say which batches they have."""
ATTEMPTS: Final = 20
"""Attempts to commit a batch while other writers commit to the same table."""
CATALOG: Final = "pocketmq"
"""The catalog of Iceberg tables that are named by a folder."""
_NO_CATALOG: Final = (
    "CATALOG_NOT_FOUND",
    "CANNOT_LOAD_CATALOG",
    "Cannot find catalog plugin",
    "REQUIRES_SINGLE_PART_NAMESPACE",  # Spark takes an unknown catalog for a part of the namespace
    "NESTED_DATABASE_UNSUPPORTED",
)
_NO_SCHEMA: Final = ("SCHEMA_NOT_FOUND", "NoSuchNamespaceException")


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
    def sql_name(self) -> str:
        """The name of the table in SQL."""
        return self.name or f"{self.format}.`{self.path}`"

    def beside(self, ending: str) -> "Target":
        """Another table with its name or path, an underscore and `ending`, without partitions."""
        quoted = self.name.endswith("`")
        name = f"{self.name.rstrip('`')}_{ending}{'`' * quoted}" if self.name else ""
        return Target(self.format, name, f"{self.path.rstrip('/')}_{ending}" if self.path else "")

    def opened(self, spark: SparkSession) -> TableFormat | None:
        """The table, if its format has records of offsets."""
        kind = self.format.lower()
        if kind == "delta":
            return DeltaTable(spark, self.sql_name, self.path, self.partitions, self.options)
        return IcebergTable(spark, self.name, self.options) if kind == "iceberg" else None

    @property
    def guarantee(self) -> str:
        """How often a row is in the table after a batch was run again, as text."""
        if self.format.lower() in ONCE:
            return f"each row once, by the commits of {self.format}"
        return "each row at least once: a batch that was interrupted is written again, because the format has no commits that name it"


def prepare_table(spark: SparkSession, target: Target, schema: types.StructType) -> Target:
    """Create the table, or add missing columns. Returns the target with its format."""
    found = examined(spark, target, schema)
    return made_table(spark, found, schema) if target.name else found.target


def made_table(spark: SparkSession, found: "Examined", schema: types.StructType) -> Target:
    """Create the table that was examined, also one at a path, or add missing columns. Returns the target with its format."""
    target = found.target
    try:
        if found.known is None:
            _create(spark, target, schema)
        elif found.missing:
            columns = ", ".join(f"`{field.name}` {field.dataType.simpleString()}" for field in found.missing)
            spark.sql(f"ALTER TABLE {target.sql_name} ADD COLUMNS ({columns})")
    except SPARK_ERRORS as error:
        raise PipelineFailed(f"{target} cannot be changed: {error_text(error)}") from None
    return target._replace(format=_format(spark, target.name)) if target.name else target


class Examined(NamedTuple):
    """What a run would find: the target with its format, the table's columns, and those that it lacks."""

    target: Target
    known: types.StructType | None
    missing: Sequence[types.StructField] = ()


def found_table(spark: SparkSession, target: Target) -> Examined:
    """The target with its format, and the columns of the table, if it exists; InvalidSetting for an unknown catalog or namespace."""
    known = _known(spark, target)
    if known is None:
        if target.name:
            _check_namespace(spark, target.name)
        return Examined(target, None)
    return Examined(target._replace(format=_format(spark, target.name)) if target.name else target, known)


def examined(spark: SparkSession, target: Target, schema: types.StructType) -> Examined:
    """Examine the table without changing it; InvalidSetting if rows with this schema cannot be written to it."""
    found, known, _ = found_table(spark, target)
    if known is None:
        return Examined(found, None)
    columns = {field.name.lower(): field for field in known.fields}
    for field in schema.fields:
        column = columns.get(field.name.lower())
        if column is not None and _plain(column.dataType) != _plain(field.dataType):
            raise InvalidSetting(
                f"{target} has the column {column.name} as {column.dataType.simpleString()}, and the rows have "
                f"{field.dataType.simpleString()}: cast it by --select, or use another table"
            )
    own = {field.name.lower() for field in schema.fields}
    if needed := [field.name for field in known.fields if not field.nullable and field.name.lower() not in own]:
        raise InvalidSetting(
            f"{target} needs the column {needed[0]}, which the rows do not have: add it by --select, or use another table"
        )
    missing = [field for field in schema.fields if field.name.lower() not in columns]
    return Examined(found, known, missing)


def _known(spark: SparkSession, target: Target) -> types.StructType | None:
    """The columns of the table; None if it does not exist, or is of files whose format decides about columns."""
    if not target.name:
        table = target.opened(spark)
        return spark.table(target.sql_name).schema if table is not None and table.exists else None
    try:
        return spark.table(target.name).schema if spark.catalog.tableExists(target.name) else None
    except SPARK_ERRORS as error:
        raise _unknown(spark, target.name, error) from None


Made = Callable[[Sequence[QueueRange]], AbstractContextManager[DataFrame]]
"""The rows of some ranges of a batch, while they are written."""
Write = Callable[[TableFormat, DataFrame, Record, int | None], bool]
"""Writes rows with a record on top of a commit; False if another writer was first."""


def _appending(target: Target) -> Write:
    """Appends rows with all columns of a table, in its order."""

    def append(table: TableFormat, rows: DataFrame, record: Record, at: int | None) -> bool:
        return table.append(_in_order(rows, target.name) if target.name else rows, record, at)

    return append


def add_batch(
    spark: SparkSession, target: Target, batch: Batch, made: Made, write: Write | None = None
) -> list[QueueRange]:
    """Write the part of a batch that the table does not have; returns its ranges. PipelineFailed if other writers are always first."""
    table = target.opened(spark)
    if table is None:
        with made(batch.ranges) as rows:
            append_rows(rows, target)
        return list(batch.ranges)
    for _ in range(ATTEMPTS):
        state = table.state()
        lost = state.record.new_losses(batch.query, batch.number, batch.lost)
        wanted = state.record.missing(batch.ranges, lost)
        if not wanted and not lost:
            return []
        if _is_added(table, target, batch, state, wanted, made, write or _appending(target)):
            return wanted
    raise PipelineFailed(
        f"{target}: other writers committed first {ATTEMPTS} times; nothing of the batch was written, run the pipeline again"
    )


def _is_added(
    table: TableFormat,
    target: Target,
    batch: Batch,
    state: State,
    wanted: Sequence[QueueRange],
    made: Made,
    write: Write,
) -> bool:
    lost = state.record.new_losses(batch.query, batch.number, batch.lost)
    record = state.record.next(uuid4().hex, batch.query, batch.number, wanted, lost, is_filtered=batch.is_filtered)
    with made(wanted) as rows:
        return write(table, rows, record, state.at)


def append_rows(rows: DataFrame, target: Target) -> None:
    writer = rows.write.format(target.format).mode("append").options(**target.options)
    if target.path:
        writer.partitionBy(*target.partitions).save(target.path)
    else:
        _in_order(rows, target.name).write.options(**target.options).insertInto(target.name)


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
    empty = spark.createDataFrame([], types.StructType(fields))
    if target.path:
        empty.write.format(target.format).options(**target.options).partitionBy(*target.partitions).save(target.path)
        return
    writer = empty.writeTo(target.name)
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
    if namespace in ("", CATALOG):  # the catalog of one folder has no namespaces
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


def compact_table(spark: SparkSession, target: Target) -> dict[str, int]:
    """Merge small files by the format's own command; what was done, by name."""
    return _existing(spark, target).compact()


def expire_table(spark: SparkSession, target: Target, older_than_ms: int, now_ms: int) -> dict[str, int]:
    """Remove old commits and files by the format's own command. The record of offsets is kept in a property of the table before."""
    table = _existing(spark, target)
    record = table.state().record
    if record.number:
        table.keep(record)
    try:
        return table.expire(older_than_ms, now_ms)
    except SPARK_ERRORS as error:
        raise PipelineFailed(f"{target} cannot be expired: {error_text(error)}") from None


def _existing(spark: SparkSession, target: Target) -> TableFormat:
    table = target.opened(spark)
    if table is None or not table.exists:
        raise NotFound(f"{target} does not exist; `pocketmq pipeline archive` creates one")
    return table


def table_in(folder: str) -> str:
    """The name in SQL of an Iceberg table in a folder."""
    return f"{CATALOG}.`{folder.rstrip('/').rpartition('/')[2]}`"


def catalog_of(folder: str) -> dict[str, str]:
    """Settings of Spark for the catalog of an Iceberg table in a folder: it has all tables beside this one."""
    found = f"file://{Path(folder).absolute()}" if is_local(folder) else folder.rstrip("/")
    name = f"spark.sql.catalog.{CATALOG}"
    return {
        name: "org.apache.iceberg.spark.SparkCatalog",
        f"{name}.type": "hadoop",
        f"{name}.warehouse": found.rpartition("/")[0],
    }

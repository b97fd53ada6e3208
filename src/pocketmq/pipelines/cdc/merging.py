"""Merges changes into a table of Delta or Iceberg.

    --scd 1    one row for each key, as in the database: its newest change, with `_position`
    --scd 2    one row for each version of a row: `_valid_from`, `_valid_to` (null: it is valid now), `_position`, `_end_position`

    beside it, NAME_deletes: keys and positions of deleted rows. They keep a change that arrives late from bringing a row back.

Deletions are recorded before the merge. A merge that fails behind that is repeated, and a deletion that is recorded twice has no effect.

A version of `--scd 2` ends where the next change of its key begins. So a change that arrives late splits the version in which it falls:

    known       10 ────────────── 30 ─────►
    arrives           20 (late)
    merged      10 ── 20 ──────── 30 ─────►
"""

from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from pocketmq.errors import WrongState
from pocketmq.pipelines.archive.contents import Record
from pocketmq.pipelines.archive.formats import TableFormat, properties, set_property
from pocketmq.pipelines.archive.table import Target, append_rows, examined, found_table, made_table
from pocketmq.pipelines.cdc.changes import AT, DELETE, OFFSET, OP, POSITION, UNCHANGED
from pocketmq.pipelines.core.libraries import Column, DataFrame, SparkSession, Window, types
from pocketmq.pipelines.core.libraries import functions as f

if TYPE_CHECKING:
    from pyspark.sql.merge import MergeIntoWriter

VALID_FROM: Final = "_valid_from"
VALID_TO: Final = "_valid_to"
END: Final = "_end_position"
HISTORY: Final = (POSITION, VALID_FROM, VALID_TO, END)
"""The columns that a table with versions has besides those of its rows."""
PROPERTY: Final = "pocketmq.cdc"
WRITTEN_AT: Final = "_written_at"
_NEW: Final = "new_"
_IS_KNOWN: Final = "__is_known"
_OLD_END: Final = "__old_end"
_BEHIND: Final = "deletes"
_ORDERED: Final = (types.IntegralType, types.DateType, types.TimestampType, types.StringType, types.DecimalType)


def quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


def added_fields(scd: int) -> list[types.StructField]:
    """The columns that a table has besides those of its rows."""
    kinds = {VALID_FROM: types.TimestampType(), VALID_TO: types.TimestampType()}
    names = (POSITION,) if scd == 1 else HISTORY
    return [types.StructField(name, kinds.get(name, types.StringType())) for name in names]


class Deletions(NamedTuple):
    """The keys and positions of deleted rows, in a table beside the table."""

    target: Target
    keys: Sequence[str]

    @classmethod
    def beside(cls, target: Target, keys: Sequence[str]) -> "Deletions":
        """Those of the rows of a table."""
        return cls(target.beside(_BEHIND), keys)

    def rows(self, spark: SparkSession) -> DataFrame | None:
        """None if nothing was deleted yet."""
        return None if found_table(spark, self.target).known is None else spark.table(self.target.sql_name)

    def add(self, changes: DataFrame) -> None:
        """Record the deletions among changes."""
        deleted = changes.where(f.col(OP) == DELETE).select(*map(quoted, self.keys), POSITION, AT)
        rows, spark = deleted.withColumn(WRITTEN_AT, f.current_timestamp()), changes.sparkSession
        append_rows(rows, made_table(spark, examined(spark, self.target, rows.schema), rows.schema))

    def without_late(self, changes: DataFrame) -> DataFrame:
        """Changes without those of rows that were deleted later."""
        spark = changes.sparkSession
        if (known := self.rows(spark)) is None:
            return changes
        later = known.select(
            *(f.col(quoted(key)).alias(f"__{key}") for key in self.keys), f.col(POSITION).alias("__deleted")
        )
        same = [f.col(quoted(key)) == f.col(quoted(f"__{key}")) for key in self.keys]
        return changes.join(later, _all([*same, f.col("__deleted") > f.col(POSITION)]), "left_anti")

    def forget(self, spark: SparkSession, before_ms: int) -> None:
        """Remove deletions that were recorded before this time."""
        if self.rows(spark) is not None:
            old = f"{WRITTEN_AT} < timestamp_millis({before_ms})"
            spark.sql(f"DELETE FROM {self.target.sql_name} WHERE {old}").collect()  # noqa: S608 a name of the user's own table


def newest(changes: DataFrame, keys: Sequence[str], *, has_unchanged: bool) -> DataFrame:
    """The newest change of each key. A value that an update did not change is taken from the change before, if there is one."""
    order = f.struct(POSITION, OFFSET)
    others = [name for name in changes.columns if name not in keys]
    picked = [f.max_by(f.struct(*map(quoted, others)), order).alias("__newest")]
    texts = unchangeable(changes) if has_unchanged else []
    known = [
        f.max_by(
            f.when(~_is_unchanged(changes, name), f.struct(quoted(name))), f.when(~_is_unchanged(changes, name), order)
        ).alias(f"__known_{name}")
        for name in texts
    ]
    rows = changes.groupBy(*map(quoted, keys)).agg(*picked, *known)
    columns = []
    for name in others:
        value = f.col(f"__newest.{quoted(name)}")
        if name in texts:
            before = f.col(quoted(f"__known_{name}"))
            is_filled = (value == _unchanged(changes, name)) & before.isNotNull()
            value = f.when(is_filled, before.getField(name)).otherwise(value)
        columns.append(value.alias(name))
    return rows.select(*map(quoted, keys), *columns)


def unchangeable(rows: DataFrame) -> list[str]:
    """The columns whose values PostgreSQL may not log with an update."""
    return [
        field.name
        for field in rows.schema.fields
        if isinstance(field.dataType, types.StringType | types.BinaryType) and not field.name.startswith("_")
    ]


def _unchanged(rows: DataFrame, name: str) -> Column:
    text = f.lit(UNCHANGED)
    return text.cast("binary") if isinstance(rows.schema[name].dataType, types.BinaryType) else text


def _is_unchanged(rows: DataFrame, name: str) -> Column:
    return f.col(quoted(name)).eqNullSafe(_unchanged(rows, name))


class Into(NamedTuple):
    """The table of a MERGE: its name in SQL, its columns, the keys, and a condition that limits which files are read.

    Columns of the source begin with `new_`, so that none is called like one of the table. A view for SQL would not do: Spark 4.1 cannot
    plan a MERGE whose source is a view of a table.
    """

    name: str
    columns: Sequence[str]
    keys: Sequence[str]
    limit: Column

    def source(self, rows: DataFrame, *more: Column) -> "MergeIntoWriter":
        """A MERGE of rows, by the keys and more conditions."""
        same = [f.col(quoted(key)) == _new(key) for key in self.keys]
        named = rows.select(*(f.col(quoted(name)).alias(f"{_NEW}{name}") for name in rows.columns))
        return named.mergeInto(self.name, _all([*same, *more, self.limit]))

    def insertion(self, given: Sequence[str]) -> dict[str, Column]:
        """All columns of the table: those that are given, and null for others."""
        by_name = {name.lower(): name for name in given}
        return {
            quoted(name): _new(by_name[name.lower()]) if name.lower() in by_name else f.lit(None)
            for name in self.columns
        }


def _new(name: str) -> Column:
    return f.col(quoted(f"{_NEW}{name}"))


def merge_newest(into: Into, rows: DataFrame, *, has_unchanged: bool) -> "MergeIntoWriter":
    """MERGE of the newest changes."""
    columns = [name for name in rows.columns if name not in (OP, AT, OFFSET)]
    is_newer, is_deleted = f.col(POSITION).isNull() | (_new(POSITION) > f.col(POSITION)), _new(OP) == DELETE
    changed = {quoted(name): _new(name) for name in columns if name not in into.keys}
    for name in unchangeable(rows) if has_unchanged else []:
        if name not in into.keys:
            is_kept = _new(name) == _unchanged(rows, name)
            changed[quoted(name)] = f.when(is_kept, f.col(quoted(name))).otherwise(_new(name))
    return (
        into.source(rows)
        .whenMatched(is_newer & is_deleted)
        .delete()
        .whenMatched(is_newer)
        .update(changed)
        .whenNotMatched(~is_deleted)
        .insert(into.insertion(columns))
    )


def versions(changes: DataFrame, table: str, deleted: DataFrame | None, keys: Sequence[str]) -> DataFrame:
    """New versions of rows, and known versions that end at another change now."""
    names = list(map(quoted, keys))
    spark = changes.sparkSession
    rows = changes.where(f.col(OP) != DELETE).withColumnRenamed(AT, VALID_FROM).drop(OP, OFFSET)
    new = rows.withColumn(_IS_KNOWN, f.lit(False))
    first = changes.groupBy(*names).agg(f.min(POSITION).alias("__first"))
    overlaps = f.col(END).isNull() | (f.col(END) > f.col("__first"))
    known = spark.table(table).join(f.broadcast(first), list(keys)).where(overlaps)
    old = known.select(*names, POSITION, VALID_FROM, f.col(END).alias(_OLD_END), f.lit(True).alias(_IS_KNOWN))
    ends = [
        changes.where(f.col(OP) == DELETE).select(*names, POSITION, f.col(AT).alias(VALID_FROM)),
        known.where(f.col(END).isNotNull()).select(
            *names, f.col(END).alias(POSITION), f.col(VALID_TO).alias(VALID_FROM)
        ),
    ]
    if deleted is not None:
        later = deleted.join(f.broadcast(first), list(keys)).where(f.col(POSITION) > f.col("__first"))
        ends.append(later.select(*names, POSITION, f.col(AT).alias(VALID_FROM)))
    bounds = reduce(DataFrame.unionByName, ends).withColumn("__is_end", f.lit(True))
    every = new.unionByName(old, allowMissingColumns=True).unionByName(bounds, allowMissingColumns=True)
    # A known version comes before the same change again, and a change before the end of another version at its position.
    rank = f.row_number().over(
        Window.partitionBy(*names, POSITION).orderBy(
            f.col(_IS_KNOWN).desc_nulls_last(), f.col(VALID_FROM).desc_nulls_last()
        )
    )
    once = every.withColumn("__rank", rank).where("__rank = 1")
    order = Window.partitionBy(*names).orderBy(POSITION)
    ended = once.withColumns({END: f.lead(POSITION).over(order), VALID_TO: f.lead(VALID_FROM).over(order)})
    is_changed = ~f.coalesce(f.col(_IS_KNOWN), f.lit(False)) | ~f.col(END).eqNullSafe(f.col(_OLD_END))
    return ended.where(f.col("__is_end").isNull() & is_changed).drop("__is_end", "__rank", _OLD_END, _IS_KNOWN)


def merge_versions(into: Into, rows: DataFrame) -> "MergeIntoWriter":
    """MERGE of versions."""
    ends = {name: _new(name) for name in (VALID_TO, END)}
    merge = into.source(rows, f.col(POSITION) == _new(POSITION)).whenMatched().update(ends)
    return merge.whenNotMatched().insert(into.insertion(rows.columns))


def limit_of(rows: DataFrame, keys: Sequence[str]) -> Column:
    """A condition that all keys fulfil: the format skips files without such keys."""
    found = [key for key in keys if isinstance(rows.schema[key].dataType, _ORDERED)]
    ends = [part for key in found for part in (f.min(quoted(key)), f.max(quoted(key)))]
    if not ends:
        return f.lit(True)
    [values] = rows.agg(*(end.cast("string") for end in ends)).collect()
    parts = [f.lit(True)]
    for key, low, high in zip(found, values[::2], values[1::2], strict=True):
        if low is not None:
            kind = rows.schema[key].dataType
            parts.append(f.col(quoted(key)).between(f.lit(low).cast(kind), f.lit(high).cast(kind)))
    return _all(parts)


def _all(conditions: Sequence[Column]) -> Column:
    return reduce(lambda left, right: left & right, conditions)


class Kind(msgspec.Struct, frozen=True):
    """How the rows of a table were merged. A property of the table has it."""

    keys: tuple[str, ...]
    scd: int
    connector: str = ""

    def check(self, spark: SparkSession, target: Target) -> bool:
        """Whether the table has a kind, which must be this one; WrongState if it is another."""
        text = properties(spark, target.sql_name).get(PROPERTY)
        if text is None:
            return False
        known = msgspec.json.decode(text, type=Kind)
        if not self.connector:
            known = msgspec.structs.replace(known, connector="")
        if self != known:
            raise WrongState(f"{target} has {known}, and this run would merge {self}: use another table")
        return True

    def keep(self, spark: SparkSession, target: Target) -> None:
        set_property(spark, target.sql_name, PROPERTY, msgspec.json.encode(self).decode())

    def __str__(self) -> str:
        what = "rows" if self.scd == 1 else "versions of rows"
        return f"{what} by {', '.join(self.keys)}" + (f" of {self.connector}" if self.connector else "")


class Merge(NamedTuple):
    """Merges typed changes into a table that exists."""

    target: Target
    keys: Sequence[str]
    scd: int

    def run(
        self, table: TableFormat, changes: DataFrame, record: Record, *, has_unchanged: bool, has_deletions: bool
    ) -> bool:
        """False if another writer was first."""
        spark = changes.sparkSession
        deletions = Deletions.beside(self.target, self.keys)
        name = self.target.sql_name
        into = Into(name, spark.table(name).columns, self.keys, limit_of(changes, self.keys))
        if has_deletions:
            deletions.add(changes)
        if self.scd == 1:
            rows = newest(deletions.without_late(changes), self.keys, has_unchanged=has_unchanged)
            return table.merge(merge_newest(into, rows, has_unchanged=has_unchanged).merge, record)
        rows = versions(changes, name, deletions.rows(spark), self.keys)
        return table.merge(merge_versions(into, rows).merge, record)

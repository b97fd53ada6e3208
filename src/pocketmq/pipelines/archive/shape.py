"""The rows of a lake or a table: typed bodies, a filter, chosen and derived columns.

    messages ─ topic folders: day ─ --schema: body.* ─┬─ --where ─ --select ──► rows
                                                      └─ bodies that do not fit ──► dead letters, with the reason

Spark checks the columns before the first batch, with an empty DataFrame of the same columns: nothing is read.

A lake with a manifest keeps some columns of each row, whatever is selected: the manifest records the offsets in each file. Rows for a
table that records its offsets keep topic, broker, queue and offset until they are written, as the table may have a part of a batch.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from pocketmq.errors import InvalidSetting
from pocketmq.pipelines.archive.bodies import BODY, Bodies
from pocketmq.pipelines.archive.form import OFFSET_COLUMNS, Slot, archive_rows, columns_of, schema_of, stored_day
from pocketmq.pipelines.core.checkpoint import is_classic
from pocketmq.pipelines.core.libraries import SPARK_ERRORS, DataFrame, SparkSession, error_text, functions, types
from pocketmq.pipelines.core.rows import REASON
from pocketmq.spark.schema import Name

POSITION: Final = (*OFFSET_COLUMNS, Name.STORE_TIMESTAMP)
"""The columns that a manifest needs."""
_GENERATOR: Final = re.compile(r"(?i)\b(pos)?explode|\binline|\bstack|\bjson_tuple|\bvariant_explode")
"""Functions that make several rows of one, or none."""
_OVER: Final = re.compile(r"(?i)\bover\s*\(")
"""Functions over a window of rows."""


class Split(NamedTuple):
    """The rows of a batch, and the messages whose bodies do not fit the schema, with `reason`."""

    rows: DataFrame
    bad: DataFrame | None = None


class Shape(NamedTuple):
    """How messages become rows. `kept` are columns that rows have in any case; `has_offsets`: they keep topic, broker, queue and offset."""

    slot: Slot
    properties: bool = True
    where: str | None = None
    select: Sequence[str] = ()
    partitions: Sequence[str] = ()
    bodies: Bodies | None = None
    kept: Sequence[str] = ()
    has_offsets: bool = False

    def typed(self, messages: DataFrame) -> DataFrame:
        """Messages with the columns of their folders and, with a schema, `body` and `reason`."""
        rows = archive_rows(messages, self.slot)
        return rows if self.bodies is None else self.bodies.typed(rows)

    def split(self, typed: DataFrame) -> Split:
        """The rows and the bad messages of what `typed` returned. InvalidSetting for a wrong column or expression."""
        if self.bodies is None:
            return Split(self._selected(self._filtered(typed)))
        good = typed.where(functions.col(REASON).isNull()).drop(REASON)
        bad = typed.where(functions.col(REASON).isNotNull()).drop(BODY)
        return Split(self._selected(self._filtered(good)), bad)

    def prepared(self, messages: DataFrame) -> DataFrame:
        """The rows of messages, a stream or a batch; with a schema the messages, which are split batch by batch.

        Spark copies a row for each step that a batch adds to its stream, so the stream has all of them. A lake gets days as dates, which
        Spark writes as text for each folder, not for each row.
        """
        if self.bodies is not None:
            return messages
        rows = self.split(self.typed(messages)).rows
        return rows.withColumn("day", stored_day()) if self.kept else rows

    def schema(self, spark: SparkSession) -> types.StructType:
        """The columns of the rows; InvalidSetting for a wrong column or expression."""
        messages = spark.createDataFrame([], schema_of(properties=self.properties))
        rows = self._replace(has_offsets=False).split(self.typed(messages)).rows
        schema = rows.schema
        if missing := [name for name in self.partitions if name not in schema.names]:
            raise InvalidSetting(
                f"--partition-by {missing[0]}: there is no such column; the columns are {', '.join(schema.names)}"
            )
        if typeless := [field.name for field in schema.fields if "void" in _ddl(field.dataType)]:
            raise InvalidSetting(
                f"--select has the column {typeless[0]} without a type; name it, for example: CAST(NULL AS string) AS {typeless[0]}"
            )
        return schema

    def columns(self, spark: SparkSession) -> tuple[Name, ...]:
        """The columns to read from a topic: those that Spark's plan for empty rows uses. Spark prunes none of a Python source.

        Dead letters need all columns of a message. Spark Connect does not show its plans, so that it reads all columns.
        """
        known = columns_of(properties=self.properties)
        if not self.select or self.bodies is not None or not is_classic(spark):
            return known
        rows = self._selected(
            self._filtered(self.typed(spark.createDataFrame([], schema_of(properties=self.properties))))
        )
        plan: Any = rows._jdf.queryExecution().optimizedPlan()
        used = {Name.STORE_TIMESTAMP.value, *_names(plan.outputSet()), *_references(plan)}  # the day is made of it
        return tuple(name for name in known if name in used)

    @property
    def may_omit(self) -> bool:
        """Whether a message may have no row."""
        return bool(self.where or self.bodies) or any(_GENERATOR.search(text) for text in self.select)

    @property
    def offset_columns(self) -> tuple[str, ...]:
        """The columns with topic, broker, queue and offset in what `prepared` returns: those that are unchanged, and added ones."""
        unchanged = {text.strip("`") for text in self.select}
        is_all = not self.select or "*" in unchanged or self.bodies is not None
        return tuple(name.value if is_all or name in unchanged else f"_source_{name}" for name in OFFSET_COLUMNS)

    @property
    def added_columns(self) -> tuple[str, ...]:
        """Those of them that are not written."""
        return tuple(name for name in self.offset_columns if self.has_offsets and name not in tuple(OFFSET_COLUMNS))

    @property
    def is_plain(self) -> bool:
        """Whether rows have the columns of the connector."""
        return not (self.select or self.bodies)

    def _filtered(self, rows: DataFrame) -> DataFrame:
        if self.where is None:
            return rows
        try:
            return rows.where(self.where)
        except SPARK_ERRORS as error:
            raise InvalidSetting(f"--where {self.where!r}: {error_text(error)}") from None

    def _selected(self, rows: DataFrame) -> DataFrame:
        if over := [text for text in self.select if _OVER.search(text)]:
            raise InvalidSetting(f"--select {over[0]}: a function over several messages is not possible")
        chosen = list(self.select) or (["*"] if self.bodies is None else self._with_body(rows))
        try:
            names = rows.selectExpr(*chosen).columns
            _check_names(names, chosen, self.kept)
            kept = [name for name in self.kept if name not in names]
            named = zip(OFFSET_COLUMNS, self.offset_columns, strict=True)
            added = [f"{name} AS {other}" for name, other in named if other in self.added_columns]
            return rows.selectExpr(*kept, *chosen, *added)
        except SPARK_ERRORS as error:
            raise InvalidSetting(f"--select {', '.join(chosen)}: {error_text(error)}") from None

    def _with_body(self, rows: DataFrame) -> list[str]:
        typed = rows.select(f"{BODY}.*").columns
        kept = [name for name in rows.columns if name not in (BODY, Name.VALUE)]
        lower = {name.lower() for name in kept}
        if clash := [name for name in typed if name.lower() in lower]:
            raise InvalidSetting(
                f"--schema has a column {clash[0]}, and messages have one of this name: choose the columns, for example "
                f"--select queueOffset --select '{BODY}.{clash[0]} AS body_{clash[0]}'"
            )
        return [*kept, f"{BODY}.*"]


def _references(plan: Any) -> Iterator[str]:
    """The columns that a plan of Spark uses, without those that its sources have and nothing uses."""
    children = plan.children()
    if children.isEmpty():
        return
    yield from _names(plan.references())
    for number in range(children.size()):
        yield from _references(children.apply(number))


def _names(attributes: Any) -> Iterator[str]:
    found = attributes.iterator()
    while found.hasNext():
        yield found.next().name()


def _check_names(names: Sequence[str], chosen: Sequence[str], kept: Sequence[str]) -> None:
    """InvalidSetting for two columns of one name, and for a column that replaces one of `kept`."""
    lower = [name.lower() for name in names]
    if twice := [name for name in names if lower.count(name.lower()) > 1]:
        raise InvalidSetting(f"--select has two columns {twice[0]}; rename one of them by `… AS other`")
    unchanged = {text.strip("`") for text in chosen}
    if changed := [name for name in kept if name in names and not unchanged & {name, "*"}]:
        raise InvalidSetting(
            f"--select replaces the column {changed[0]}, and the manifest of the lake needs the original: rename it by `… AS other`"
        )


def ddl_columns(schema: types.StructType) -> dict[str, str]:
    """Names and types of columns, as Spark reads them."""
    return {field.name: _ddl(field.dataType) for field in schema.fields}


def _ddl(kind: types.DataType) -> str:
    if isinstance(kind, types.ArrayType):
        return f"array<{_ddl(kind.elementType)}>"
    if isinstance(kind, types.MapType):
        return f"map<{_ddl(kind.keyType)},{_ddl(kind.valueType)}>"
    if isinstance(kind, types.StructType):
        return f"struct<{','.join(f'{_quoted(field.name)}:{_ddl(field.dataType)}' for field in kind.fields)}>"
    return kind.simpleString()


def _quoted(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z]\w*", name) else f"`{name.replace('`', '``')}`"

"""Messages with JSON in them, as rows with columns. What does not fit is split off, with the reason, and never lost.

    messages ── parse_json ──► rows    all: the columns of the schema, `message` with what was read, and `reason`
                               ├─ good    those without a reason
                               └─ bad     the messages themselves, as they were read, and why

Nothing here asks Spark about the rows, so all of it may stand in the query functions of Declarative Pipelines.

A message is bad when its body is not UTF-8, is no JSON object, has a value that is not of its column's type, or lacks a column that the
schema says is never null. Columns that the schema does not name are left alone.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from pocketmq.errors import InvalidSetting
from pocketmq.pipelines.failures import told
from pocketmq.pipelines.libraries import Column, DataFrame, SparkSession, types
from pocketmq.pipelines.libraries import functions as f

MESSAGE: Final = "message"
REASON: Final = "reason"
SHOWN_CHARS: Final = 60
_PARSED: Final = "__parsed"
_TEXT: Final = "__text"
_CORRUPT: Final = "__corrupt"


class JsonRows(NamedTuple):
    """Messages that were read as JSON. Three views of the same rows: a stream that uses two of them reads its topic twice."""

    rows: DataFrame
    """The columns of the schema, `message` and `reason`. The one to use in a `foreachBatch`, and to split there."""
    good: DataFrame
    """The columns of the schema, and `message`."""
    bad: DataFrame
    """The columns of the message, and `reason`: what `dead_letters` takes."""


def read_json(
    spark: SparkSession,
    topic: str,
    schema: str | types.StructType,
    *,
    options: Mapping[str, str] | None = None,
    streaming: bool = True,
    message_column: str = MESSAGE,
) -> JsonRows:
    """The messages of a topic by this schema. `options` are those of the connector, such as `rocketmq.namesrv.addr`."""
    reader = (spark.readStream if streaming else spark.read).format("rocketmq")
    messages = reader.options(**{**(options or {}), "subscribe": topic}).load()
    return parse_json(messages, schema, message_column=message_column)


def parse_json(messages: DataFrame, schema: str | types.StructType, *, message_column: str = MESSAGE) -> JsonRows:
    """The JSON in the column `value` by this schema; all other columns are kept in a struct called `message_column`."""
    wanted = parse_schema(schema)
    for name in (message_column, REASON):
        if name in wanted.names:
            raise InvalidSetting(
                f"the schema has a column {name!r}, which is needed for {_USE.get(name, 'the message')}: "
                "rename it, or give another message_column"
            )
    kept = f.struct("*").alias(message_column)
    text = f.col("value").cast("string")
    inner = types.StructType([*wanted.fields, types.StructField(_CORRUPT, types.StringType())])
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    parsed = messages.select(kept, text.alias(_TEXT)).withColumn(_PARSED, f.from_json(_TEXT, inner, options))
    columns = [f.col(f"{_PARSED}.`{name}`").alias(name) for name in wanted.names]
    rows = parsed.select(*columns, message_column, _reason(wanted).alias(REASON))
    return JsonRows(
        rows,
        rows.where(f.col(REASON).isNull()).drop(REASON),
        rows.where(f.col(REASON).isNotNull()).select(f"{message_column}.*", REASON),
    )


_USE: Final = {REASON: "why a message is bad"}


def parse_schema(schema: str | types.StructType) -> types.StructType:
    """A schema as Spark writes it: `id string NOT NULL, amount double`. InvalidSetting when it is none."""
    if isinstance(schema, types.StructType):
        return schema
    try:
        read = types.StructType.fromDDL(schema)
    except Exception as error:  # Spark's parser has an error class of its own for each kind of session
        raise InvalidSetting(
            f"the schema {schema!r} is none, such as 'id string NOT NULL, amount double': {told(error)}"
        ) from None
    if not isinstance(read, types.StructType) or not read.fields:
        raise InvalidSetting(f"the schema {schema!r} has no columns: write it as 'id string NOT NULL, amount double'")
    return read


def _reason(schema: types.StructType) -> Column:
    """Why a row is bad, in words; null for a good one. The column that does not fit is named where one is found."""
    misfits = [_misfit(field) for field in schema.fields]
    missing = [_missing(field) for field in schema.fields if not field.nullable]
    is_object = f.ltrim(_TEXT).startswith("{")
    corrupt = f.col(f"{_PARSED}.{_CORRUPT}").isNotNull()
    odd = f.concat_ws("; ", *misfits)
    return (
        f.when(f.expr(f"NOT is_valid_utf8({_TEXT})"), f.lit("the body is not UTF-8"))
        .when(~is_object | f.col(_PARSED).isNull(), f.lit("the body is no JSON object"))
        .when(corrupt & (odd != ""), odd)
        .when(corrupt, f.lit("the body is no JSON object that the schema fits"))
        .when(f.concat_ws("; ", *missing) != "", f.concat_ws("; ", *missing))
    )


def _misfit(field: types.StructField) -> Column:
    found = f.get_json_object(_TEXT, f"$['{field.name}']")
    is_odd = f.col(f"{_PARSED}.`{field.name}`").isNull() & found.isNotNull()
    shown = f.substring(found, 1, SHOWN_CHARS)
    words = f.concat(f.lit(f"{field.name} = "), shown, f.lit(f" is no {field.dataType.simpleString()}"))
    return f.when(is_odd, words)


def _missing(field: types.StructField) -> Column:
    return f.when(f.col(f"{_PARSED}.`{field.name}`").isNull(), f.lit(f"{field.name} is missing"))

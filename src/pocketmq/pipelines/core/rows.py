"""Functions for the messages of a topic as rows: JSON, dead letters, duplicates, late rows.

JSON: messages that do not fit the schema are split off with the reason, and never lost.

    messages ── parse_json ──► rows    all: the columns of the schema, `message` with the original columns, and `reason`
                               ├─ good    rows without a reason
                               └─ bad     the original messages, and the reason

This requests nothing from Spark about the rows, so it works in the query functions of Declarative Pipelines. A message is bad if its body
is not UTF-8, is not a JSON object, has a value that is not of its column's type, or lacks a column that the schema declares NOT NULL.
Fields that are not in the schema are ignored.

Dead letters: bad rows become messages of a dead-letter topic, with the reason as a property.

    bad row ── dead_letters ──► value, keys, tags   unchanged
                                properties          the sender's, and DEAD_LETTER_REASON, deadTopic, deadQueue, deadOffset, deadMsgId

`pocketmq msg` shows them, consumers read them, and `pocketmq pipeline replay` sends them again.

Duplicates: a producer that receives no response sends again, and the broker stores the message twice. Spark keeps the keys until the
watermark passes them, and drops rows with a known key. The progress counts them as `duplicates`. Later duplicates are not recognised.

Late rows: split off with the watermark that they missed, instead of dropped silently.

    batch          0              1              2
    seen until     ── 10:05 ──►   ── 10:20 ──►   ── 10:31 ──►     the latest event time of all earlier batches
    watermark      none           09:55          10:10            that time, less the delay (here 10 minutes)
    late           none           until 09:55    until 10:10

As in Spark's `withWatermark`, a batch only moves the watermark of the next batch. But Spark does not report which rows it drops, and no
filter can query the watermark. So the latest event time of each batch is saved beside the checkpoint. A batch that is run again
uses the same watermark, and splits in the same way.

With `window`, a row is late if its whole window is over, as in `groupBy(window(…))`. Since 3.5 Spark drops by the watermark of one
batch before. So every row that Spark drops is late by this rule, but Spark accepts some rows that are late by it.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from pocketmq.client.received import DEAD_LETTER_REASON, MAX_REASON_CHARS
from pocketmq.errors import InvalidSetting, WrongState
from pocketmq.files import Files
from pocketmq.model.properties import RESERVED
from pocketmq.pipelines.core.checkpoint import state_files
from pocketmq.pipelines.core.libraries import SPARK_ERRORS, Column, DataFrame, SparkSession, error_text, types
from pocketmq.pipelines.core.libraries import functions as f
from pocketmq.spark.schema import COLUMNS
from pocketmq.spark.write.sink_batches import ROW_ID

MESSAGE: Final = "message"
REASON: Final = "reason"
SHOWN_CHARS: Final = 60
_PARSED: Final = "__parsed"
_TEXT: Final = "__text"
_CORRUPT: Final = "__corrupt"


class JsonRows(NamedTuple):
    """Messages that were read as JSON, in three views of the same rows: a stream that uses two of them reads its topic twice."""

    rows: DataFrame
    """The columns of the schema, `message` and `reason`. Use it in `foreachBatch`, and split it there."""
    good: DataFrame
    """The columns of the schema, and `message`."""
    bad: DataFrame
    """The columns of the message, and `reason`: the input of `dead_letters`."""


def read_json(
    spark: SparkSession,
    topic: str,
    schema: str | types.StructType,
    *,
    options: Mapping[str, str] | None = None,
    streaming: bool = True,
    message_column: str = MESSAGE,
) -> JsonRows:
    """The messages of a topic by this schema. `options` are connector options such as `rocketmq.namesrv.addr`."""
    reader = (spark.readStream if streaming else spark.read).format("rocketmq")
    messages = reader.options(**{**(options or {}), "subscribe": topic}).load()
    return parse_json(messages, schema, message_column=message_column)


def parse_json(messages: DataFrame, schema: str | types.StructType, *, message_column: str = MESSAGE) -> JsonRows:
    """The JSON in the column `value` by this schema; all other columns are kept in a struct named `message_column`."""
    wanted = parse_schema(schema)
    for name in (message_column, REASON):
        if name in wanted.names:
            raise InvalidSetting(
                f"the schema has a column {name!r}, which is reserved for {_USE.get(name, 'the message')}; "
                "rename it, or set another message_column"
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


_USE: Final = {REASON: "the reason why a message is bad"}


def parse_schema(schema: str | types.StructType) -> types.StructType:
    """A schema as Spark writes it: `id string NOT NULL, amount double`. InvalidSetting for an invalid one."""
    if isinstance(schema, types.StructType):
        return schema
    try:
        read = types.StructType.fromDDL(schema)
    except SPARK_ERRORS as error:
        raise InvalidSetting(
            f"invalid schema {schema!r}; expected for example 'id string NOT NULL, amount double': {error_text(error)}"
        ) from None
    if not isinstance(read, types.StructType) or not read.fields:
        raise InvalidSetting(
            f"the schema {schema!r} has no columns; expected for example 'id string NOT NULL, amount double'"
        )
    return read


def _reason(schema: types.StructType) -> Column:
    """Why a row is bad, as text; null for a good row. It names the column that does not fit, if there is one."""
    misfits = [_misfit(field) for field in schema.fields]
    missing = [_missing(field) for field in schema.fields if not field.nullable]
    is_object = f.ltrim(_TEXT).startswith("{")
    corrupt = f.col(f"{_PARSED}.{_CORRUPT}").isNotNull()
    misfit = f.concat_ws("; ", *misfits)
    return (
        f.when(f.expr(f"NOT is_valid_utf8({_TEXT})"), f.lit("the body is not UTF-8"))
        .when(~is_object | f.col(_PARSED).isNull(), f.lit("the body is not a JSON object"))
        .when(corrupt & (misfit != ""), misfit)
        .when(corrupt, f.lit("the body is a JSON object that does not fit the schema"))
        .when(f.concat_ws("; ", *missing) != "", f.concat_ws("; ", *missing))
    )


def _misfit(field: types.StructField) -> Column:
    found = f.get_json_object(_TEXT, f"$['{field.name}']")
    is_misfit = f.col(f"{_PARSED}.`{field.name}`").isNull() & found.isNotNull()
    shown = f.substring(found, 1, SHOWN_CHARS)
    text = f.concat(f.lit(f"{field.name} = "), shown, f.lit(f" is not {field.dataType.simpleString()}"))
    return f.when(is_misfit, text)


def _missing(field: types.StructField) -> Column:
    return f.when(f.col(f"{_PARSED}.`{field.name}`").isNull(), f.lit(f"{field.name} is missing"))


MESSAGE_COLUMNS: Final = tuple(column.name.value for column in COLUMNS)
"""The columns of a read, for callers that must pass them."""
PAST: Final = {"topic": "deadTopic", "queueId": "deadQueue", "queueOffset": "deadOffset", "msgId": "deadMsgId"}
"""The origin of a dead letter: its properties, by the columns of a read."""


def dead_letters(bad: DataFrame, *, reason: str = REASON, columns: Sequence[str] | None = None) -> DataFrame:
    """Rows for `format("rocketmq")`. `bad` has the columns of messages, or a struct `message` of them, and the column `reason`.

    `columns` are the columns of `bad`. Without them Spark is queried, which Declarative Pipelines do not allow.
    """
    known = list(columns or bad.columns)
    if MESSAGE in known and "value" not in known:
        bad = bad.select(f"{MESSAGE}.*", reason)
        known = bad.columns
    missing = [name for name in ("value", reason) if name not in known]
    if missing:
        raise InvalidSetting(
            f"rows for a dead-letter topic need a column {missing[0]!r}; the columns are {', '.join(known)}"
        )
    plain = [name for name in ("keys", "tags") if name in known]
    return bad.select("value", *plain, _properties(known, reason).alias("properties"))


def write_dead_letters(
    bad: DataFrame,
    topic: str,
    *,
    options: Mapping[str, str],
    write_id: str,
    batch: int,
    reason: str = REASON,
) -> None:
    """Write the bad rows of a micro-batch, in `foreachBatch`: effectively once, if `write_id` is the same in every run.

    One task writes them, so that a batch that is run again has the same rows in each partition, on any number of cores.
    """
    writing = dead_letters(bad, reason=reason).coalesce(1).write.format("rocketmq").options(**options)
    writing.options(topic=topic, writeId=write_id, writeBatch=str(batch), reservedProperties="drop").mode(
        "append"
    ).save()


def _properties(known: Sequence[str], reason: str) -> Column:
    words = f.substring(f.regexp_replace(f.col(reason).cast("string"), r"[\p{Cntrl}\s]+", " "), 1, MAX_REASON_CHARS)
    own = {DEAD_LETTER_REASON: f.coalesce(f.nullif(f.trim(words), f.lit("")), f.lit("unknown"))}
    own |= {name: f.col(column).cast("string") for column, name in PAST.items() if column in known}
    added = f.map_from_entries(
        f.filter(
            f.array(*(f.struct(f.lit(name).alias("key"), value.alias("value")) for name, value in own.items())),
            lambda pair: pair["value"] != "",
        )
    )
    if "properties" not in known:
        return added
    # RocketMQ adds its own properties again, and a dead letter that fails again gets its new origin.
    dropped = f.lit([*sorted(RESERVED), ROW_ID, *own])
    return f.map_concat(f.map_filter("properties", lambda name, _: ~f.array_contains(dropped, name)), added)


DEFAULT_WATERMARK: Final = "10 minutes"
_KEY: Final = "__key_{}"
_TIME: Final = "__time"
_POSITION: Final = ("topic", "brokerName", "queueId", "queueOffset")


def deduplicate(
    rows: DataFrame,
    keys: str | Sequence[str] = f"{MESSAGE}.keys",
    *,
    watermark: str = DEFAULT_WATERMARK,
    event_time: str = f"{MESSAGE}.storeTimestamp",
) -> DataFrame:
    """One row for each key, the first that Spark sees. `keys` and `event_time` are columns, also inside structs.

    A stream recognises a key for the duration `watermark` after it was seen, by `event_time`. If the rows already have a watermark on
    that column, the later one counts. A batch keeps one row for each key. Rows without a key are all kept.
    """
    wanted = [keys] if isinstance(keys, str) else list(keys)
    if not wanted:
        raise InvalidSetting("deduplicate needs keys, the columns that identify equal rows")
    _check_columns(rows, [*wanted, event_time] if rows.isStreaming else wanted)
    names = [_KEY.format(number) for number in range(len(wanted))]
    is_keyless = f.lit(True)
    for key in wanted:
        is_keyless = is_keyless & f.col(key).isNull()
    own = _unique(rows)
    marked = rows.select("*", *(f.col(key).cast("string").alias(name) for key, name in zip(wanted, names, strict=True)))
    marked = marked.withColumn(names[0], f.when(is_keyless, f.concat(f.lit("\0"), own)).otherwise(f.col(names[0])))
    if not rows.isStreaming:
        return marked.dropDuplicates(names).drop(*names)
    timed = marked.withColumn(_TIME, f.col(event_time))
    return timed.withWatermark(_TIME, watermark).dropDuplicatesWithinWatermark(names).drop(*names, _TIME)


def _unique(rows: DataFrame) -> Column:
    """A unique text for each row: its offset in its topic, or a random one if the columns are missing."""
    if MESSAGE in rows.columns:
        inside = rows.select(f"{MESSAGE}.*").columns
        if set(_POSITION) <= set(inside):
            return f.concat_ws(" ", *(f.col(f"{MESSAGE}.{name}") for name in _POSITION))
    if set(_POSITION) <= set(rows.columns):
        return f.concat_ws(" ", *(f.col(name) for name in _POSITION))
    return f.expr("uuid()")


def _check_columns(rows: DataFrame, names: Sequence[str]) -> None:
    for name in names:
        try:
            rows.select(name).columns  # noqa: B018 checked here, so that the error names the argument
        except SPARK_ERRORS as error:
            raise InvalidSetting(f"deduplicate: the rows have no column {name!r}: {error_text(error)}") from None


WATERMARK: Final = "watermark"
"""The column of late rows with the watermark that they missed."""
KEPT_BATCHES: Final = 100
"""Only the last batch can be run again; Spark keeps as many of its own files."""
_SPAN: Final = re.compile(r"(\d+) (milli|second|minute|hour|day)s?(?:econds?)?")
_UNIT_MS: Final = {"milli": 1, "second": 1_000, "minute": 60_000, "hour": 3_600_000, "day": 86_400_000}


class Split(NamedTuple):
    """A batch, split by its watermark."""

    on_time: DataFrame
    late: DataFrame
    """With the column `watermark`, the time that they missed."""


class LateRows:
    """Splits late rows off, batch by batch, in a `foreachBatch`. `folder` is a separate folder, beside the checkpoint."""

    def __init__(
        self,
        spark: SparkSession,
        folder: str,
        *,
        event_time: str,
        delay: str = "10 minutes",
        window: str | None = None,
        files: Files | None = None,
    ) -> None:
        self._state = state_files(spark, folder, files)
        self._event_time = event_time
        self._delay_ms = span_ms(delay, "delay")
        self._window_ms = None if window is None else span_ms(window, "window")

    def split(self, batch: DataFrame, batch_id: int) -> Split:
        """Split a batch. It is read twice, first for its latest event time, so `persist()` it before."""
        seen_us = self._seen_before(batch_id)
        latest = batch.agg(f.unix_micros(f.max(self._event_time))).first()
        latest_us = None if latest is None else latest[0]
        known = [each for each in (seen_us, latest_us) if each is not None]
        seen = {"batch": batch_id, "seenUs": max(known, default=None)}
        self._state.write(_file_of(batch_id), msgspec.json.encode(seen).decode())
        if seen_us is None:
            return Split(batch, batch.where(f.lit(False)).withColumn(WATERMARK, f.lit(None).cast("timestamp")))
        # As in Spark: whole milliseconds, and a row that ends at the watermark is late.
        watermark_us = (seen_us // 1000 - self._delay_ms) * 1000
        is_late = f.coalesce(self._ends_us() <= f.lit(watermark_us), f.lit(False))
        late = batch.where(is_late).withColumn(WATERMARK, f.timestamp_micros(f.lit(watermark_us)))
        return Split(batch.where(~is_late), late)

    def _ends_us(self) -> Column:
        """The end of a row: its event time, or the end of its window."""
        at_us = f.unix_micros(self._event_time)
        if self._window_ms is None:
            return at_us
        size = self._window_ms * 1000
        return at_us - f.pmod(at_us, f.lit(size)) + f.lit(size)

    def _seen_before(self, batch_id: int) -> int | None:
        """The latest event time of all earlier batches, in microseconds; None for the first batch."""
        if batch_id == 0:
            return None
        text = self._state.read(_file_of(batch_id - 1))
        seen: Mapping[str, int | None] = {} if text is None else msgspec.json.decode(text)
        if seen.get("batch") != batch_id - 1:
            raise WrongState(
                f"the latest event time of batch {batch_id - 1} is not saved, so late rows cannot be recognised; "
                "use the folder that belongs to this checkpoint, or start again with a new folder and checkpoint"
            )
        return seen["seenUs"]


def _file_of(batch_id: int) -> str:
    # A few files in rotation: only the last batch can be run again, and reads the file of the one before.
    return f"seen-{batch_id % KEPT_BATCHES}"


def span_ms(text: str, name: str) -> int:
    """A time span as Spark writes it, `10 minutes`, in milliseconds."""
    match = _SPAN.fullmatch(text.strip().lower())
    if not match:
        raise InvalidSetting(f"{name} = {text!r} is not a time span such as '30 seconds', '10 minutes' or '1 hour'")
    return int(match[1]) * _UNIT_MS[match[2]]

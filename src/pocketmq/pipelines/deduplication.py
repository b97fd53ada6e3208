"""Rows that came twice, left out: a producer that had no answer sends again, and the broker stores it again.

Spark keeps the keys of the last while, as long as the watermark says, and leaves out rows whose key it has seen. How many were left out is
`duplicates` in the progress. What comes again later than that is not recognised.
"""

from collections.abc import Sequence
from typing import Final

from pocketmq.errors import InvalidSetting
from pocketmq.pipelines.failures import told
from pocketmq.pipelines.json_rows import MESSAGE
from pocketmq.pipelines.libraries import Column, DataFrame
from pocketmq.pipelines.libraries import functions as f

DEFAULT_WATERMARK: Final = "10 minutes"
_KEY: Final = "__key_{}"
_TIME: Final = "__time"
_PLACE: Final = ("topic", "brokerName", "queueId", "queueOffset")


def deduplicate(
    rows: DataFrame,
    keys: str | Sequence[str] = f"{MESSAGE}.keys",
    *,
    watermark: str = DEFAULT_WATERMARK,
    event_time: str = f"{MESSAGE}.storeTimestamp",
) -> DataFrame:
    """One row of each key, the first that Spark sees. `keys` and `event_time` are columns, also inside of structs.

    In a stream the same key is recognised for as long as `watermark` after it was seen, by `event_time`; if the rows have a watermark
    on that column already, the later one of both holds. In a batch all rows with the same key are one. Rows without a key are all kept.
    """
    wanted = [keys] if isinstance(keys, str) else list(keys)
    if not wanted:
        raise InvalidSetting("deduplicate needs the columns that make two rows the same: keys")
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
    """Something that no other row has: its place in its topic, or a number of chance where rows do not tell theirs."""
    if MESSAGE in rows.columns:
        inside = rows.select(f"{MESSAGE}.*").columns
        if set(_PLACE) <= set(inside):
            return f.concat_ws(" ", *(f.col(f"{MESSAGE}.{name}") for name in _PLACE))
    if set(_PLACE) <= set(rows.columns):
        return f.concat_ws(" ", *(f.col(name) for name in _PLACE))
    return f.expr("uuid()")


def _check_columns(rows: DataFrame, names: Sequence[str]) -> None:
    for name in names:
        try:
            rows.select(name).columns  # noqa: B018 looked up here, so that the error names the argument
        except Exception as error:
            raise InvalidSetting(f"deduplicate: there is no column {name!r}: {told(error)}") from None

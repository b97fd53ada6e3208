"""Rows that nothing can be done with, as messages of a dead-letter topic: the body as it was, and the reason as a property.

bad row ── dead_letters ──► value, keys, tags   as they were
                            properties          those of its sender, and DEAD_LETTER_REASON, deadTopic, deadQueue, deadOffset, deadMsgId

`pocketmq msg` shows them, consumers read them, and `pocketmq pipeline replay` sends them again.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from pocketmq.client.send_backs import MAX_REASON_CHARS
from pocketmq.client.send_backs import REASON as REASON_PROPERTY
from pocketmq.errors import InvalidSetting
from pocketmq.model.properties import RESERVED
from pocketmq.pipelines.json_rows import MESSAGE, REASON
from pocketmq.pipelines.libraries import Column, DataFrame
from pocketmq.pipelines.libraries import functions as f
from pocketmq.spark.schema import COLUMNS
from pocketmq.spark.sink_ids import ROW_ID

MESSAGE_COLUMNS: Final = tuple(column.name.value for column in COLUMNS)
"""The columns of a read, for whoever must tell them."""
PAST: Final = {"topic": "deadTopic", "queueId": "deadQueue", "queueOffset": "deadOffset", "msgId": "deadMsgId"}
"""Where a dead letter comes from, by the columns of a read."""


def dead_letters(bad: DataFrame, *, reason: str = REASON, columns: Sequence[str] | None = None) -> DataFrame:
    """Rows for `format("rocketmq")`. `bad` has columns of messages, or a struct `message` of them, and the column `reason`.

    `columns` are those of `bad`. Spark is asked for them unless they are told, which Declarative Pipelines do not allow.
    """
    known = list(columns or bad.columns)
    if MESSAGE in known and "value" not in known:
        bad = bad.select(f"{MESSAGE}.*", reason)
        known = bad.columns
    missing = [name for name in ("value", reason) if name not in known]
    if missing:
        raise InvalidSetting(
            f"rows for a dead-letter topic need a column {missing[0]!r}; there are: {', '.join(known)}"
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

    One task writes them, so that a batch that is run again has the same rows in it, on however many cores.
    """
    writing = dead_letters(bad, reason=reason).coalesce(1).write.format("rocketmq").options(**options)
    writing.options(topic=topic, writeId=write_id, writeBatch=str(batch), reservedProperties="drop").mode(
        "append"
    ).save()


def _properties(known: Sequence[str], reason: str) -> Column:
    words = f.substring(f.regexp_replace(f.col(reason).cast("string"), r"[\p{Cntrl}\s]+", " "), 1, MAX_REASON_CHARS)
    own = {REASON_PROPERTY: f.coalesce(f.nullif(f.trim(words), f.lit("")), f.lit("not told"))}
    own |= {name: f.col(column).cast("string") for column, name in PAST.items() if column in known}
    added = f.map_from_entries(
        f.filter(
            f.array(*(f.struct(f.lit(name).alias("key"), value.alias("value")) for name, value in own.items())),
            lambda pair: pair["value"] != "",
        )
    )
    if "properties" not in known:
        return added
    # What RocketMQ adds to each message is added anew, and a letter that died before has its new past.
    dropped = f.lit([*sorted(RESERVED), ROW_ID, *own])
    return f.map_concat(f.map_filter("properties", lambda name, _: ~f.array_contains(dropped, name)), added)

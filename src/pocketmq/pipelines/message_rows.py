"""Rows that were read from topics, as rows that can be sent again: filtered and changed as the user says.

topic or lake ── where ── select, or the message as it was ──► value, topic, keys, tags, properties, shardingKey
"""

from collections.abc import Sequence
from difflib import get_close_matches
from typing import Final

from pocketmq.errors import InvalidSetting
from pocketmq.model import properties as names
from pocketmq.model.names import DLQ_PREFIX
from pocketmq.pipelines.dead_letter_rows import PAST
from pocketmq.pipelines.libraries import Column, DataFrame, functions
from pocketmq.spark.sink_rows import Written

_AS_IT_WAS: Final = (Written.VALUE, Written.KEYS, Written.TAGS)


def message_rows(
    messages: DataFrame, *, where: str | None = None, select: Sequence[str] = (), to: str | None = None
) -> DataFrame:
    """What is to be sent. Without `to` each message goes to the topic that it was sent to at first, a dead letter as well."""
    chosen = messages if where is None else messages.where(where)
    if select:
        shaped = chosen.selectExpr(*select)
    else:
        columns = [*map(functions.col, _AS_IT_WAS), *_of_properties(chosen)]
        shaped = chosen.select(*columns, *([] if to else [_first_topic(chosen).alias(Written.TOPIC)]))
    _check(shaped, to)
    return shaped


def _of_properties(messages: DataFrame) -> list[Column]:
    if "properties" not in messages.columns:
        return []
    properties = functions.col("properties")
    return [
        properties.alias(Written.PROPERTIES),
        properties.getItem(names.SHARDING_KEY).alias(Written.SHARDING_KEY),
    ]


def _first_topic(messages: DataFrame) -> Column:
    topic = functions.col("topic")
    if "properties" not in messages.columns:
        return topic
    properties = functions.col("properties")
    died = functions.coalesce(properties.getItem(names.RETRY_TOPIC), properties.getItem(names.REAL_TOPIC), topic)
    refused = functions.coalesce(properties.getItem(PAST["topic"]), topic)  # by a pipeline, to a dead-letter topic
    return functions.when(topic.startswith(DLQ_PREFIX), died).otherwise(refused)


def _check(rows: DataFrame, to: str | None) -> None:
    """InvalidSetting for columns that cannot be sent, before anything is."""
    for column in rows.columns:
        if column not in list(Written):
            near = get_close_matches(column, list(Written), 1, 0.5)
            hint = f"did you mean {near[0]}?" if near else f"there are: {', '.join(Written)}"
            raise InvalidSetting(
                f"--select gives a column {column!r}, which cannot be sent; {hint} Name it by `… AS {near[0] if near else 'value'}`"
            )
    if Written.VALUE not in rows.columns:
        raise InvalidSetting("--select gives no column value, which becomes the body: `… AS value`")
    if to is None and Written.TOPIC not in rows.columns:
        raise InvalidSetting("--select gives no column topic: name the topic by --to, or by `… AS topic`")

"""Trace messages as rows: one for each thing that a client wrote down about a message.

body of a trace message: Pub ␁ … ␂ SubBefore ␁ … ␂ …  ── trace_events ──►  a row each

sent       a producer sent it, and how long that took
consuming  a consumer began with it       ┐ the same request id
consumed   … and was done, with what end  ┘
decided    a producer decided a transaction
recalled   a producer took it back
unreadable a body, or a kind of record, that cannot be read: `problem` says why
"""

from typing import Any, Final

from pocketmq.errors import ProtocolError
from pocketmq.pipelines.libraries import DataFrame
from pocketmq.pipelines.libraries import functions as f
from pocketmq.protocol.trace_text import (
    EndTransaction,
    OtherTrace,
    Pub,
    Recall,
    SubAfter,
    SubBefore,
    Trace,
    decode_trace,
)

_FIELDS: Final = (
    "event string, {at}, topic string, messageId string, keys string, tags string, `group` string, requestId string, "
    "costMs bigint, ok boolean, outcome string, retryTimes int, bodyBytes bigint, messageType string, storeHost string, "
    "problem string"
)
EVENTS: Final = f"{_FIELDS.format(at='at timestamp')}, traceQueue int, traceOffset bigint"
"""The columns of events, as Spark writes them."""

_LATEST_MS: Final = 253_402_300_799_999  # the end of the year 9999, which is the last that Python's dates can hold


def trace_events(messages: DataFrame) -> DataFrame:
    """The events in messages of a trace topic. They need the columns value, queueId and queueOffset."""
    # A plain function of Python: those that work on Arrow need pandas, which nothing else here does.
    decode = f.udf(event_rows, f"array<struct<{_struct(_FIELDS.format(at='atMs bigint'))}>>", useArrow=False)
    found = messages.select(f.explode(decode("value")).alias("event"), "queueId", "queueOffset")
    flat = found.select("event.*", f.col("queueId").alias("traceQueue"), f.col("queueOffset").alias("traceOffset"))
    return flat.withColumn("at", f.timestamp_millis("atMs")).select(*(part.split()[0] for part in EVENTS.split(", ")))


def _struct(fields: str) -> str:
    return ", ".join(":".join(field.split(" ", 1)) for field in fields.split(", "))


def event_rows(body: bytes) -> list[dict[str, Any]]:
    """The events in one body. One that cannot be read is an event, too."""
    try:
        return [_row(record) for record in decode_trace(body)]
    except ProtocolError as error:
        return [{"event": "unreadable", "problem": str(error)}]


def _row(record: Trace) -> dict[str, Any]:
    match record:
        case OtherTrace():
            return {"event": "unreadable", "problem": f"records of the kind {record.kind!r} are not known"}
        case Pub():
            own = {
                "event": "sent",
                "topic": record.topic,
                "tags": record.tags,
                "keys": record.keys,
                "costMs": record.cost_ms,
                "ok": record.success,
                "bodyBytes": record.body_bytes,
                "messageType": record.message_type.name.lower(),
                "storeHost": record.store_host,
            }
        case SubBefore():
            own = {
                "event": "consuming",
                "keys": record.keys,
                "requestId": record.request_id,
                "retryTimes": record.retry_times,
            }
        case SubAfter():
            own = {
                "event": "consumed",
                "keys": record.keys,
                "requestId": record.request_id,
                "costMs": record.cost_ms,
                "ok": record.success,
                "outcome": record.outcome.name.lower(),
            }
        case EndTransaction():
            own = {
                "event": "decided",
                "topic": record.topic,
                "tags": record.tags,
                "keys": record.keys,
                "outcome": record.decision.name.lower(),
                "ok": True,
                "storeHost": record.store_host,
            }
        case Recall():
            own = {"event": "recalled", "topic": record.topic, "ok": record.success}
    return {**own, "messageId": record.message_id, "group": record.group or None, "atMs": _at_ms(record.time_ms)}


def _at_ms(time_ms: int) -> int | None:
    """Some clients leave the time of an end out, and a broken clock may say anything."""
    return time_ms if 0 < time_ms <= _LATEST_MS else None

"""The pipeline `trace`: the trace topic as events, timelines and latencies.

    RMQ_SYS_TRACE_TOPIC ── events ──► LAKE/events      Parquet by day, appended, each event once
                                      LAKE/timelines   ┐ written again at the end of each run,
                                      LAKE/latencies   ┘ from the events of the window

Each record of a trace message is an event, one row:

    body of a trace message: Pub ␁ … ␂ SubBefore ␁ … ␂ …  ── trace_events ──►  a row each

    sent       a producer sent the message, and the duration
    consuming  a consumer started to process it   ┐ the same request id
    consumed   … and finished, with the outcome   ┘
    decided    a producer committed or rolled back a transaction
    recalled   a producer recalled it
    unreadable a body, or a kind of record, that cannot be read: `problem` has the reason

Timelines show the events of each message; latencies are percentiles by topic and group:

    sent ──── sendMs ────► stored      consuming ── handleMs ──► consumed
      └───────────── deliverMs ─────────────┘            from the start of the send to the start of the first attempt

Times are those of the clients. Between two machines, `deliverMs` includes the difference of their clocks: it is negative if the
consumer's clock is behind. If parts of a trace are missing, their columns are null.
"""

from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from pocketmq.errors import ProtocolError, TopicNotFound
from pocketmq.files import DiskFiles
from pocketmq.model.names import TRACE_TOPIC
from pocketmq.pipelines.core.checkpoint import Owner, check_owner, owned
from pocketmq.pipelines.core.libraries import Column, DataFrame, SparkSession
from pocketmq.pipelines.core.libraries import functions as f
from pocketmq.pipelines.core.plan import Plan, require_topics, stream_queues
from pocketmq.pipelines.core.running import Run, Summary
from pocketmq.pipelines.core.settings import Duration, Job, StreamSettings
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
"""The columns of events, as a Spark schema."""

_LATEST_MS: Final = 253_402_300_799_999  # the end of the year 9999, the last one of Python's dates


def trace_events(messages: DataFrame) -> DataFrame:
    """The events in messages of a trace topic, which have the columns value, queueId and queueOffset."""
    # A plain Python function: functions on Arrow need pandas, an otherwise unnecessary library.
    decode = f.udf(event_rows, f"array<struct<{_struct(_FIELDS.format(at='atMs bigint'))}>>", useArrow=False)
    found = messages.select(f.explode(decode("value")).alias("event"), "queueId", "queueOffset")
    flat = found.select("event.*", f.col("queueId").alias("traceQueue"), f.col("queueOffset").alias("traceOffset"))
    return flat.withColumn("at", f.timestamp_millis("atMs")).select(*(part.split()[0] for part in EVENTS.split(", ")))


def _struct(fields: str) -> str:
    return ", ".join(":".join(field.split(" ", 1)) for field in fields.split(", "))


def event_rows(body: bytes) -> list[dict[str, Any]]:
    """The events in one body. An unreadable body is an event, too."""
    try:
        return [_row(record) for record in decode_trace(body)]
    except ProtocolError as error:
        return [{"event": "unreadable", "problem": str(error)}]


def _row(record: Trace) -> dict[str, Any]:
    match record:
        case OtherTrace():
            return {"event": "unreadable", "problem": f"unknown kind of record {record.kind!r}"}
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
    """Some clients omit the time of an end, and a wrong clock may give any time."""
    return time_ms if 0 < time_ms <= _LATEST_MS else None


PERCENTILES: Final = (0.5, 0.95, 0.99)
ACCURACY: Final = 10_000


def timelines(events: DataFrame) -> DataFrame:
    """One row for each message: how it was sent, and every attempt to consume it, by time."""
    sends = (
        events.where("event = 'sent'")
        .groupBy("messageId")
        .agg(
            f.min_by("topic", "at").alias("topic"),
            f.min_by("keys", "at").alias("keys"),
            f.min_by("tags", "at").alias("tags"),
            f.min_by("group", "at").alias("producer"),
            f.min("at").alias("sentAt"),
            f.min_by("costMs", "at").alias("sendMs"),
            f.bool_or("ok").alias("sent"),
            f.count("*").alias("sends"),
        )
    )
    tried = (
        attempts(events)
        .groupBy("messageId")
        .agg(
            f.sort_array(
                f.collect_list(f.struct("startedAt", "group", "retryTimes", "handleMs", "outcome", "requestId"))
            ).alias("attempts"),
            f.min("startedAt").alias("firstStartedAt"),
            f.bool_or("ok").alias("consumed"),
        )
    )
    ends = (
        events.where("event IN ('decided', 'recalled')")
        .groupBy("messageId")
        .agg(f.max_by("event", "at").alias("ended"), f.max_by("outcome", "at").alias("decision"))
    )
    joined = sends.join(tried, "messageId", "full_outer").join(ends, "messageId", "full_outer")
    return joined.withColumn("deliverMs", _between_ms("sentAt", "firstStartedAt"))


def attempts(events: DataFrame) -> DataFrame:
    """One row for each attempt to consume a message: its start and end, joined by the request id."""
    begun = (
        events.where("event = 'consuming'")
        .groupBy("messageId", "requestId")
        .agg(
            f.min("at").alias("startedAt"), f.first("group").alias("_began"), f.first("retryTimes").alias("retryTimes")
        )
    )
    done = (
        events.where("event = 'consumed'")
        .groupBy("messageId", "requestId")
        .agg(
            f.first("costMs").alias("handleMs"),
            f.first("outcome").alias("outcome"),
            f.first("ok").alias("ok"),
            f.first("group").alias("_ended"),
        )
    )
    joined = begun.join(done, ["messageId", "requestId"], "full_outer")
    return joined.withColumn("group", f.coalesce("_began", "_ended")).drop("_began", "_ended")


def latencies(events: DataFrame) -> DataFrame:
    """Percentiles by topic and group, in milliseconds, of sending, delivery and processing."""
    sends = events.where("event = 'sent'").select(
        "topic", "group", f.lit("send").alias("what"), f.col("costMs").alias("ms"), (~f.col("ok")).alias("failed")
    )
    sent = (
        events.where("event = 'sent'")
        .groupBy("messageId")
        .agg(f.min("at").alias("sentAt"), f.min_by("topic", "at").alias("topic"))
    )
    tried = attempts(events).join(sent, "messageId", "left")
    first = tried.where("coalesce(retryTimes, 0) = 0 AND startedAt IS NOT NULL AND sentAt IS NOT NULL")
    delivered = first.select(
        "topic", "group", f.lit("deliver").alias("what"), _between_ms("sentAt", "startedAt").alias("ms"), f.lit(False)
    )
    handled = tried.where("handleMs IS NOT NULL").select(
        "topic", "group", f.lit("handle").alias("what"), f.col("handleMs").alias("ms"), (~f.col("ok")).alias("failed")
    )
    measured = sends.unionAll(delivered).unionAll(handled)
    shares = [
        f.approx_percentile("ms", f.lit(share), f.lit(ACCURACY)).alias(f"p{share * 100:g}") for share in PERCENTILES
    ]
    return (
        measured.groupBy("topic", "group", "what")
        .agg(f.count("*").alias("times"), f.count_if("failed").alias("failed"), *shares, f.max("ms").alias("max"))
        .orderBy("topic", "what", "group")
    )


def _between_ms(start: str, end: str) -> Column:
    return f.unix_millis(end) - f.unix_millis(start)


NAME: Final = "trace"
SHOWN_ROWS: Final = 50
HOW: Final = "pocketmq.Producer(…, trace=True), or enableMsgTrace in Java"


class TraceSettings(StreamSettings, frozen=True, kw_only=True, rename="kebab"):
    """The settings of `trace`."""

    lake: Annotated[str, Meta(min_length=1, description="The folder for events, timelines and latencies, as Parquet.")]
    window: Annotated[
        Duration, Meta(description="The time span of timelines and latencies, which ends at the newest event.")
    ] = Duration(86_400_000)
    topics: Annotated[
        list[str], Meta(min_length=1, description="A topic with traces; may be repeated.", extra={"flag": "topic"})
    ] = msgspec.field(default_factory=lambda: [TRACE_TOPIC])
    checkpoint: Annotated[str, Meta(description="The folder of the checkpoint.  [default: checkpoint in the lake]")] = (
        ""
    )

    @property
    def own_reading(self) -> dict[str, str]:
        return {**super().own_reading, "includeProperties": "false"}

    @property
    def owner(self) -> Owner:
        return Owner(pipeline=NAME, topics=tuple(sorted(self.topics)), sink=f"the lake {self.lake}")

    @property
    def checkpoint_folder(self) -> str:
        return self.checkpoint or f"{self.lake}/checkpoint"


def check(settings: TraceSettings) -> None:
    settings.check_reading()
    if settings.remote is None:
        check_owner(settings.checkpoint_folder, settings.owner)
    try:
        require_topics(settings.connection, settings.topics)
    except TopicNotFound as error:
        raise TopicNotFound(f"{error.remark}; the first trace of a client creates the trace topic: {HOW}") from None


def plan(settings: TraceSettings) -> Plan:
    queues, begins = stream_queues(settings.reading, settings.checkpoint_folder, DiskFiles())
    return Plan(
        pipeline=NAME,
        source=f"the topics {', '.join(settings.topics)}",
        sink=f"Parquet below {settings.lake}: events, timelines, latencies",
        queues=queues,
        begins=begins,
        options={**settings.reading, "checkpoint": settings.checkpoint_folder, "window": settings.window.text},
        remarks=("one trace message describes several messages",),
        messages_per_s=20_000,
    )


def run(spark: SparkSession, settings: TraceSettings, run: Run) -> Summary:
    check(settings)
    with owned(spark, settings.checkpoint_folder, settings.owner):
        messages = spark.readStream.format("rocketmq").options(**settings.reading).load()
        query = (
            trace_events(messages)
            .withColumn("day", f.to_date("at"))
            .writeStream.queryName(NAME)
            .format("parquet")
            .partitionBy("day")
            .options(path=f"{settings.lake}/events", checkpointLocation=settings.checkpoint_folder)
            .trigger(**run.trigger)
            .start()
        )
        summary = run.follow(query)
        tables, facts = _derive(spark, settings)
    return msgspec.structs.replace(summary, tables=tables, facts=facts)


def _derive(
    spark: SparkSession, settings: TraceSettings
) -> tuple[dict[str, list[dict[str, object]]], dict[str, object]]:
    """Write timelines and latencies of the window; returns tables and facts to show."""
    events = _recent(
        spark.read.schema(f"{EVENTS}, day date").parquet(f"{settings.lake}/events"), settings.window
    ).persist()
    try:
        timelines(events).write.mode("overwrite").parquet(f"{settings.lake}/timelines")
        found = latencies(events).coalesce(1)
        found.write.mode("overwrite").parquet(f"{settings.lake}/latencies")
        rows = [row.asDict() for row in spark.read.parquet(f"{settings.lake}/latencies").limit(SHOWN_ROWS).collect()]
        [counts] = events.agg(
            f.count("*"), f.countDistinct("messageId"), f.count_if(f.col("event") == "unreadable")
        ).collect()
    finally:
        events.unpersist()
    facts = {"events": counts[0], "messages traced": counts[1], "lake": settings.lake}
    return {"latencies in ms": rows}, {**facts, **({"unreadable": counts[2]} if counts[2] else {})}


def _recent(events: DataFrame, window: Duration) -> DataFrame:
    newest = events.agg(f.max("at").alias("newest"))
    since = f.col("newest") - f.expr(f"INTERVAL {window} MILLISECOND")
    return (
        events.crossJoin(f.broadcast(newest)).where((f.col("at") >= since) | f.col("at").isNull()).drop("newest", "day")
    )


TRACE: Final = Job(
    NAME,
    "Timelines of messages and percentiles of latency, from the trace topic.",
    TraceSettings,
    plan,
    run,
    f"Enable traces in your clients: {HOW}.",
    check,
)

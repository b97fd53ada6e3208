"""The pipeline `trace`, ready to run.

RMQ_SYS_TRACE_TOPIC ── events ──► LAKE/events      Parquet by day, appended, each event once
                                  LAKE/timelines   ┐ made anew at the end of each run, out of the events
                                  LAKE/latencies   ┘ of the last while
"""

import os
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from pocketmq.errors import TopicNotFound
from pocketmq.files import DiskFiles
from pocketmq.model.names import TRACE_TOPIC
from pocketmq.pipelines.checkpoint import Owner, check_owner, owned
from pocketmq.pipelines.connector_options import check_used
from pocketmq.pipelines.job import Job
from pocketmq.pipelines.libraries import DataFrame, SparkSession
from pocketmq.pipelines.libraries import functions as f
from pocketmq.pipelines.plan import Plan, stream_queues
from pocketmq.pipelines.running import Run, Summary
from pocketmq.pipelines.setting_kinds import Span
from pocketmq.pipelines.settings import StreamSettings
from pocketmq.pipelines.topics import require_topics
from pocketmq.pipelines.trace.events import EVENTS, trace_events
from pocketmq.pipelines.trace.timelines import latencies, timelines
from pocketmq.spark.read_options import parse_read_options

NAME: Final = "trace"
SHOWN_ROWS: Final = 50
HOW: Final = "pocketmq.Producer(…, trace=True), or enableMsgTrace in Java"


class TraceSettings(StreamSettings, frozen=True, kw_only=True, rename="kebab"):
    """What `trace` is told."""

    lake: Annotated[str, Meta(min_length=1, description="The folder for events, timelines and latencies, as Parquet.")]
    window: Annotated[
        Span, Meta(description="Timelines and latencies are of events this old at most, by the newest.")
    ] = Span(86_400_000)
    topics: Annotated[
        list[str], Meta(min_length=1, description="A topic that traces are written to.", extra={"flag": "topic"})
    ] = msgspec.field(default_factory=lambda: [TRACE_TOPIC])
    checkpoint: Annotated[
        str, Meta(description="The folder that says how far it is.  [default: checkpoint in the lake]")
    ] = ""

    @property
    def own_reading(self) -> dict[str, str]:
        return {**super().own_reading, "includeProperties": "false"}

    @property
    def owner(self) -> Owner:
        return Owner(pipeline=NAME, topics=tuple(sorted(self.topics)), sink=f"the lake {self.lake}")

    @property
    def place(self) -> str:
        """Of the checkpoint."""
        return self.checkpoint or f"{self.lake}/checkpoint"


def check(settings: TraceSettings) -> None:
    parse_read_options(settings.reading, streaming=True, environ=os.environ)
    check_used(settings.options, settings.reading)
    if settings.remote is None:
        check_owner(settings.place, settings.owner)
    try:
        require_topics(settings.connection, settings.topics)
    except TopicNotFound as error:
        raise TopicNotFound(f"{error.remark}; the first trace of a client makes the one of traces: {HOW}") from None


def plan(settings: TraceSettings) -> Plan:
    queues, begins = stream_queues(settings.reading, settings.place, DiskFiles())
    return Plan(
        pipeline=NAME,
        source=f"the topics {', '.join(settings.topics)}",
        sink=f"Parquet below {settings.lake}: events, timelines, latencies",
        queues=queues,
        begins=begins,
        options={**settings.reading, "checkpoint": settings.place, "window": settings.window.text},
        notes=("one trace message tells of several messages",),
        messages_per_s=20_000,
    )


def run(spark: SparkSession, settings: TraceSettings, run: Run) -> Summary:
    check(settings)
    with owned(spark, settings.place, settings.owner):
        messages = spark.readStream.format("rocketmq").options(**settings.reading).load()
        query = (
            trace_events(messages)
            .withColumn("day", f.to_date("at"))
            .writeStream.queryName(NAME)
            .format("parquet")
            .partitionBy("day")
            .options(path=f"{settings.lake}/events", checkpointLocation=settings.place)
            .trigger(**run.trigger)
            .start()
        )
        summary = run.follow(query)
        tables, facts = _derive(spark, settings)
    return msgspec.structs.replace(summary, tables=tables, facts=facts)


def _derive(
    spark: SparkSession, settings: TraceSettings
) -> tuple[dict[str, list[dict[str, object]]], dict[str, object]]:
    """Timelines and latencies of the last while, and what to show of them."""
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


def _recent(events: DataFrame, window: Span) -> DataFrame:
    newest = events.agg(f.max("at").alias("newest"))
    since = f.col("newest") - f.expr(f"INTERVAL {window} MILLISECOND")
    return (
        events.crossJoin(f.broadcast(newest)).where((f.col("at") >= since) | f.col("at").isNull()).drop("newest", "day")
    )


TRACE: Final = Job(
    NAME,
    "Timelines of messages and percentiles of latency, out of the trace topic.",
    TraceSettings,
    plan,
    run,
    f"Clients write traces when they are told to: {HOW}.",
    check,
)

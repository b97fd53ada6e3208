"""Events to timelines: what happened to each message, and how long things took, by topic and group.

    sent ──── sendMs ────► stored      consuming ── handleMs ──► consumed
      └───────────── deliverMs ─────────────┘            from the begin of the send to the begin of its first attempt

Times are those of the clients that wrote them down. Between two machines, `deliverMs` holds the difference of their clocks: below zero, the
consumer's clock is behind. A message whose trace is only there in part has nulls for what nobody wrote.
"""

from typing import Final

from pocketmq.pipelines.libraries import Column, DataFrame
from pocketmq.pipelines.libraries import functions as f

PERCENTILES: Final = (0.5, 0.95, 0.99)
ACCURACY: Final = 10_000


def timelines(events: DataFrame) -> DataFrame:
    """One row for each message: how it was sent, and every attempt to consume it, in the order of time."""
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
    """One row for each attempt to consume a message: its beginning and its end, put together by the request id."""
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
    """Percentiles by topic and group, in milliseconds: of sending, of delivery to a group, and of its handling."""
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

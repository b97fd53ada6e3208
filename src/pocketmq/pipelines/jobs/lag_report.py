"""The pipeline `lag-report`: how far consumer groups are behind, in messages and in time, watched for a while.

    every so often: each group ── its queues ──► samples   a row for each queue: lag in messages, lag in time, what was lost
                                                 └─ lag_summary ──► a row for each group and topic: least, most, last, trend

What nobody knows is null: the lag of a group that broadcasts, or of a queue whose broker did not answer. `problem` says why.
Sinks of Spark keep two groups each as a note of where their last batches ended. These consume nothing and are behind by design:
they are watched only if they are named.
"""

import re
from collections.abc import Collection, Iterable, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, Final, Literal

from msgspec import Meta

from pocketmq.client import Admin
from pocketmq.client.admin.lag import GroupLag
from pocketmq.errors import GroupNotFound, PocketMQError
from pocketmq.pipelines.core.connector_options import check_used
from pocketmq.pipelines.core.libraries import DataFrame, SparkSession
from pocketmq.pipelines.core.libraries import functions as f
from pocketmq.pipelines.core.plan import Plan, admin_of
from pocketmq.pipelines.core.progress import Progress
from pocketmq.pipelines.core.running import Run, Summary
from pocketmq.pipelines.core.settings import Duration, Job, JobSettings

NAME: Final = "lag-report"
MAX_SAMPLES: Final = 100_000
"""Looks at the cluster in one run; a longer watch takes a longer step."""
NOTE_OF_A_SINK: Final = re.compile(r".+-[0-9a-f]{12}-(?:odd|even)")
"""What `spark.sink_progress` calls them."""
SAMPLES: Final = (
    "at timestamp, `group` string, topic string, broker string, queue int, committed bigint, end bigint, messages bigint, "
    "timeMs bigint, lost bigint, problem string"
)


class LagSettings(JobSettings, frozen=True, kw_only=True, rename="kebab"):
    """What `lag-report` is told."""

    groups: Annotated[
        tuple[str, ...],
        Meta(
            description="A group to watch; may be repeated.  [default: all but the notes of Spark's sinks]",
            extra={"flag": "group"},
        ),
    ] = ()
    window: Annotated[Duration, Meta(description="How long to watch; 0s for one look.")] = Duration(60_000)
    every: Annotated[Duration, Meta(description="How often to look.")] = Duration(5_000)
    output: Annotated[
        str | None, Meta(description="A folder for the samples and the summary.  [default: only shown]")
    ] = None
    format: Annotated[Literal["parquet", "csv", "json"], Meta(description="How they are written there.")] = "parquet"

    @property
    def step_ms(self) -> int:
        """How often it looks: as told, unless there were too many looks."""
        return max(1, self.every, -(-self.window // (MAX_SAMPLES - 1)))

    @property
    def looks(self) -> int:
        return 1 + self.window // self.step_ms


def lag_summary(samples: DataFrame) -> DataFrame:
    """A row for each group and topic. `trend` is messages a second that its lag grew by, from the first look to the last."""
    each = samples.groupBy("group", "topic", "at").agg(
        f.when(f.count("messages") == f.count("*"), f.sum("messages")).alias("messages"),
        f.when(f.count("timeMs") == f.count("*"), f.max("timeMs")).alias("timeMs"),
        f.sum("lost").alias("lost"),
    )
    took_s = (f.unix_millis(f.max("at")) - f.unix_millis(f.min("at"))) / 1000
    grown = f.max_by("messages", "at") - f.min_by("messages", "at")
    return (
        each.groupBy("group", "topic")
        .agg(
            f.count("*").alias("looks"),
            f.max_by("messages", "at").alias("messages"),
            f.max_by("timeMs", "at").alias("timeMs"),
            f.min("messages").alias("least"),
            f.max("messages").alias("most"),
            f.max("timeMs").alias("mostMs"),
            f.round(grown / f.nullif(took_s, f.lit(0)), 1).alias("trend"),
            f.max_by("lost", "at").alias("lost"),
        )
        .orderBy("group", "topic")
    )


def check(settings: LagSettings) -> None:
    check_used(settings.options, settings.connection)
    with admin_of(settings.connection) as admin:
        watched(admin.groups.names(), settings.groups)


def plan(settings: LagSettings) -> Plan:
    with admin_of(settings.connection) as admin:
        groups = watched(admin.groups.names(), settings.groups)
    return Plan(
        pipeline=NAME,
        source=f"groups: {', '.join(groups[:10])}{' …' if len(groups) > 10 else ''}",
        sink=f"{settings.format} below {settings.output}" if settings.output else "the screen",
        options={
            "window": settings.window.text,
            "every": Duration(settings.step_ms).text,
            "looks": str(settings.looks),
        },
    )


def run(spark: SparkSession, settings: LagSettings, run: Run) -> Summary:
    began = run.clock.monotonic()
    with admin_of(settings.connection) as admin:
        groups = watched(admin.groups.names(), settings.groups)
        seen = _watch(admin, groups, settings, run)
    samples = spark.createDataFrame(seen.rows, SAMPLES)
    summary = lag_summary(samples)
    shown = [row.asDict() for row in summary.collect()]
    facts: dict[str, Any] = {"groups": len(groups), "looks": seen.looks, "samples": len(seen.rows)}
    if seen.failures:
        facts["looks_failed"] = f"{len(seen.failures)}, the last one: {seen.failures[-1]}"
    if settings.output:
        facts["output"] = folder = f"{settings.output}/run={run.clock.now_ms()}"
        _written(samples.coalesce(1), f"{folder}/samples", settings.format)
        _written(summary.coalesce(1), f"{folder}/summary", settings.format)
    return Summary(
        ended="stopped" if run.stopping.is_set() else "watched",
        took_ms=round((run.clock.monotonic() - began) * 1000),
        facts=facts,
        tables={"lag by group": shown},
    )


class _Seen:
    """What a watch came to."""

    def __init__(self) -> None:
        self.rows: list[tuple[Any, ...]] = []
        self.looks = 0
        self.failures: list[str] = []


def _watch(admin: Admin, groups: Sequence[str], settings: LagSettings, run: Run) -> _Seen:
    """Look so often, or until it is to stop. Who cannot be asked at first cannot be watched; later, that costs only a look."""
    seen, began = _Seen(), run.clock.monotonic()
    for look in range(settings.looks):
        if look and run.stopping.wait(max(0.0, began + look * settings.step_ms / 1000 - run.clock.monotonic())):
            break
        seen.looks += 1
        try:
            lags = [lag for group in groups if (lag := _lag(admin, group)) is not None]
        except PocketMQError as error:
            if not look or not error.retriable:
                raise
            seen.failures.append(str(error))
            continue
        seen.rows += [row for lag in lags for row in _rows(lag)]
        run.report(_progress(look, settings, lags))
    return seen


def watched(known: Collection[str], named: Sequence[str]) -> list[str]:
    """Which of the groups that there are a report is about; GroupNotFound for one that is named and not there."""
    for group in named:
        if group not in known:
            raise GroupNotFound(f"there is no group {group!r}; `pocketmq group ls` shows which there are")
    return sorted(named or (group for group in known if not NOTE_OF_A_SINK.fullmatch(group)))


def _lag(admin: Admin, group: str) -> GroupLag | None:
    try:
        return admin.offsets.lag(group)
    except GroupNotFound:  # gone since, or never read anything
        return None


def _rows(lag: GroupLag) -> Iterable[tuple[Any, ...]]:
    for one in lag.queues:
        queue = one.queue
        yield (
            _moment(lag.at_ms),
            lag.group,
            queue.topic,
            queue.broker_name,
            queue.queue_id,
            one.committed,
            one.max_offset,
            one.messages,
            one.time_ms,
            one.lost,
            one.problem or None,
        )


def _moment(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)


def _progress(look: int, settings: LagSettings, lags: list[GroupLag]) -> Progress:
    behind = sum(lag.messages or 0 for lag in lags)
    left_s = (settings.looks - 1 - look) * settings.step_ms / 1000
    return Progress(query=NAME, batch=look, messages=0, per_s=0.0, behind=behind, eta_s=left_s, took_ms=0)


def _written(rows: DataFrame, folder: str, form: str) -> None:
    writing = rows.write.format(form).mode("error")
    (writing.option("header", "true") if form == "csv" else writing).save(folder)


LAG_REPORT: Final = Job(
    NAME,
    "How far groups are behind, in messages and in time, over a window.",
    LagSettings,
    plan,
    run,
    "It looks at the cluster every so often, and tells for each group and topic the least, the most, the last and the trend.",
    check,
)

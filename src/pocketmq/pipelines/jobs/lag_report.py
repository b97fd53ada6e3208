"""The pipeline `lag-report`: the lag of consumer groups, in messages and in time, over a window.

    each step: each group ── its queues ──► samples   a row for each queue: lag in messages, lag in time, lost messages
                                            └─ lag_summary ──► a row for each group and topic: least, most, last, trend

Unknown values are null: the lag of a broadcasting group, or of a queue whose broker did not respond. `problem` has the reason. Each
Spark sink keeps the ends of its batches in two groups. These never consume and are always behind, so they are watched only if named.
"""

import re
from collections.abc import Collection, Iterable, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, Final, Literal

from msgspec import Meta

from pocketmq.client import Admin
from pocketmq.client.admin.lag import GroupLag
from pocketmq.errors import GroupNotFound, PocketMQError
from pocketmq.pipelines.core.libraries import DataFrame, SparkSession
from pocketmq.pipelines.core.libraries import functions as f
from pocketmq.pipelines.core.plan import Plan, admin_of
from pocketmq.pipelines.core.progress import Progress
from pocketmq.pipelines.core.running import Run, Summary
from pocketmq.pipelines.core.settings import Duration, Job, JobSettings, check_used

NAME: Final = "lag-report"
MAX_SAMPLES: Final = 100_000
"""Maximum number of samples in one run; a longer window has longer steps."""
GROUP_OF_A_SINK: Final = re.compile(r".+-[0-9a-f]{12}-(?:odd|even)")
"""The group names of `spark.write.sink_offsets`."""
SAMPLES: Final = (
    "at timestamp, `group` string, topic string, broker string, queue int, committed bigint, end bigint, messages bigint, "
    "timeMs bigint, lost bigint, problem string"
)


class LagSettings(JobSettings, frozen=True, kw_only=True, rename="kebab"):
    """The settings of `lag-report`."""

    groups: Annotated[
        tuple[str, ...],
        Meta(
            description="A group to watch; may be repeated.  [default: all but the groups of Spark sinks]",
            extra={"flag": "group"},
        ),
    ] = ()
    window: Annotated[Duration, Meta(description="How long to watch; 0s for one sample.")] = Duration(60_000)
    every: Annotated[Duration, Meta(description="The interval between samples.")] = Duration(5_000)
    output: Annotated[str | None, Meta(description="A folder for samples and summary.  [default: only shown]")] = None
    format: Annotated[Literal["parquet", "csv", "json"], Meta(description="The file format in that folder.")] = (
        "parquet"
    )

    @property
    def step_ms(self) -> int:
        """The interval, longer if there would be too many samples."""
        return max(1, self.every, -(-self.window // (MAX_SAMPLES - 1)))

    @property
    def looks(self) -> int:
        return 1 + self.window // self.step_ms


def lag_summary(samples: DataFrame) -> DataFrame:
    """A row for each group and topic. `trend` is the growth of its lag in messages per second, from the first sample to the last."""
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
        sink=f"{settings.format} files in {settings.output}" if settings.output else "the screen",
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
        facts["looks_failed"] = f"{len(seen.failures)}, last error: {seen.failures[-1]}"
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
    """The results of a watch."""

    def __init__(self) -> None:
        self.rows: list[tuple[Any, ...]] = []
        self.looks = 0
        self.failures: list[str] = []


def _watch(admin: Admin, groups: Sequence[str], settings: LagSettings, run: Run) -> _Seen:
    """Take samples until the window ends or a stop is requested. The first sample must succeed; a later failure costs a sample."""
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
    """The groups of a report; GroupNotFound for a missing one."""
    for group in named:
        if group not in known:
            raise GroupNotFound(f"group {group!r} does not exist; `pocketmq group ls` lists the groups")
    return sorted(named or (group for group in known if not GROUP_OF_A_SINK.fullmatch(group)))


def _lag(admin: Admin, group: str) -> GroupLag | None:
    try:
        return admin.offsets.lag(group)
    except GroupNotFound:  # deleted since, or it never read anything
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
    "The lag of consumer groups, in messages and in time, over a window.",
    LagSettings,
    plan,
    run,
    "It takes samples at an interval, and shows for each group and topic the least, the most and the last lag, and its trend.",
    check,
)

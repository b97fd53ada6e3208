"""The pipeline `quality`: checks rows against a contract. Bad rows become dead letters, and a report counts them.

topics ── JSON by a schema ── contract ──┬─ good ► a topic, unchanged (optional, as the source topic has them)
                                         ├─ bad ─► the dead-letter topic, with the reason
                                         └─ counts by rule ► the report, a Parquet table, and the summary of the run
"""

import os
from collections.abc import Mapping
from typing import Annotated, Any, Final, NamedTuple

import msgspec
from msgspec import Meta

from pocketmq.errors import InvalidSetting
from pocketmq.files import DiskFiles
from pocketmq.pipelines.core.checkpoint import Owner, check_owner, owned
from pocketmq.pipelines.core.contracts import VIOLATIONS, Checked, Contract
from pocketmq.pipelines.core.libraries import DataFrame, SparkSession
from pocketmq.pipelines.core.libraries import functions as f
from pocketmq.pipelines.core.plan import Plan, ensure_topics, require_topics, stream_queues
from pocketmq.pipelines.core.rows import MESSAGE, REASON, parse_json, parse_schema, write_dead_letters
from pocketmq.pipelines.core.running import Run, Summary
from pocketmq.pipelines.core.settings import Job, StreamSettings, of_writes
from pocketmq.spark.options.write_options import parse_write_options

NAME: Final = "quality"
WRITING_TASKS: Final = 8
"""Tasks that write good rows. A constant, so that a batch that is run again has the same rows in each."""
UNREADABLE: Final = "does not fit the schema"
"""The line of the report for messages that do not fit the schema."""


class QualitySettings(StreamSettings, frozen=True, kw_only=True, rename="kebab"):
    """The settings of `quality`."""

    schema: Annotated[
        str,
        Meta(
            min_length=1,
            description="The columns of the JSON as a Spark schema: 'id string NOT NULL, amount double'.",
        ),
    ]
    dead_letters: Annotated[str, Meta(min_length=1, description="The topic for rows that break the contract.")]
    good: Annotated[
        str | None, Meta(description="A topic for rows that keep the contract.  [default: not written]")
    ] = None
    report: Annotated[str | None, Meta(description="A folder for the counts of each batch by rule, as Parquet.")] = None
    expect: Annotated[
        tuple[str, ...],
        Meta(description="A SQL expression that every row must satisfy; may be repeated.", extra={"split": False}),
    ] = ()
    rules: Annotated[tuple[dict[str, Any], ...], Meta(description="Rules.", extra={"file_only": True})] = ()

    @property
    def contract(self) -> Contract | None:
        """All rules; None if only the schema is checked."""
        rules = [*self.rules, *({"expression": text} for text in self.expect)]
        return Contract.of(rules) if rules else None

    @property
    def owner(self) -> Owner:
        return Owner(pipeline=NAME, topics=tuple(sorted(self.topics)), sink=_sink(self))

    @property
    def writing(self) -> dict[str, str]:
        """The connector options for both topics."""
        return of_writes(self.options, self.address)

    @property
    def written(self) -> list[str]:
        """The topics that it writes to."""
        return [self.dead_letters, *([self.good] if self.good else [])]


class Counts(NamedTuple):
    """The result of a batch."""

    batch: int
    rows: int
    bad: int
    by_rule: Mapping[str, int]


def check_quality(messages: DataFrame, schema: str, contract: Contract | None) -> Checked:
    """Check JSON messages against the schema and the contract."""
    rows = parse_json(messages, schema).rows
    if contract is not None:
        return contract.check(rows)
    empty = rows.withColumn(VIOLATIONS, f.array().cast("array<string>"))
    is_good = f.col(REASON).isNull()
    return Checked(empty, rows.where(is_good).drop(REASON), empty.where(~is_good))


def plan(settings: QualitySettings) -> Plan:
    contract = settings.contract
    queues, begins = stream_queues(settings.reading, settings.checkpoint, DiskFiles())
    names = [UNREADABLE, *(contract.names if contract else [])]
    return Plan(
        pipeline=NAME,
        source=f"the topics {', '.join(settings.topics)}",
        sink=_sink(settings),
        queues=queues,
        begins=begins,
        options={"schema": settings.schema, **settings.reading, "checkpoint": settings.checkpoint},
        remarks=(
            f"a row is bad if it: {'; '.join(names)}",
            "only Spark can check --schema and --expect: a mistake in them shows when the pipeline runs",
        ),
        messages_per_s=40_000,
    )


def check(settings: QualitySettings) -> None:
    """Check everything but the schema, which needs Spark."""
    _ = settings.contract
    if settings.remote is None:
        check_owner(settings.checkpoint, settings.owner)
    _ = settings.read_options
    parse_write_options({**settings.writing, "writeId": NAME}, streaming=False, environ=os.environ)
    require_topics(settings.connection, settings.topics)
    if clash := set(settings.written) & set(settings.topics):
        raise InvalidSetting(
            f"topic {clash.pop()!r} is both read and written, which would be an endless loop; use another topic"
        )


def run(spark: SparkSession, settings: QualitySettings, run: Run) -> Summary:
    check(settings)
    contract = settings.contract
    parse_schema(settings.schema)
    made = ensure_topics(settings.connection, settings.written)
    counted: list[Counts] = []
    with owned(spark, settings.checkpoint, settings.owner) as name:

        def each(batch: DataFrame, number: int) -> None:
            counted.append(_write(batch, number, settings, contract, name))

        messages = spark.readStream.format("rocketmq").options(**settings.reading).load()
        query = (
            messages.writeStream.queryName(NAME)
            .foreachBatch(each)
            .option("checkpointLocation", settings.checkpoint)
            .trigger(**run.trigger)
            .start()
        )
        summary = run.follow(query)
    return _with_report(summary, counted, made)


def _sink(settings: QualitySettings) -> str:
    good = f", and good rows to the topic {settings.good}" if settings.good else ""
    return f"dead letters to the topic {settings.dead_letters}{good}"


def _write(batch: DataFrame, number: int, settings: QualitySettings, contract: Contract | None, name: str) -> Counts:
    """Write one micro-batch; running it again writes nothing twice."""
    checked = check_quality(batch, settings.schema, contract)
    rows = checked.rows.persist()
    try:
        counts = _count(rows, number, contract.names if contract else [])
        bad = rows.where(f.col(REASON).isNotNull())
        if counts.bad:
            write_dead_letters(
                bad, settings.dead_letters, options=settings.writing, write_id=f"{NAME}-{name}-dead", batch=number
            )
        if settings.good:
            _write_good(rows.where(f.col(REASON).isNull()), settings, f"{NAME}-{name}-good", number)
        if settings.report:
            _report(rows.sparkSession, counts, f"{settings.report}/pipeline={name}/batch={number}")
    finally:
        rows.unpersist()
    return counts


def _write_good(good: DataFrame, settings: QualitySettings, write_id: str, number: int) -> None:
    # Each queue goes to one task, in order, on any number of cores: so a batch that is run again has the same rows in each task.
    queue = [f"{MESSAGE}.{name}" for name in ("topic", "brokerName", "queueId")]
    sorted_rows = good.repartition(WRITING_TASKS, *queue).sortWithinPartitions(*queue, f"{MESSAGE}.queueOffset")
    rows = sorted_rows.select(*(f"{MESSAGE}.{name}" for name in ("value", "keys", "tags", "properties")))
    writing = rows.write.format("rocketmq").options(**settings.writing).mode("append")
    writing.options(topic=settings.good, writeId=write_id, writeBatch=str(number), reservedProperties="drop").save()


def _count(rows: DataFrame, number: int, names: list[str]) -> Counts:
    """The number of rows that broke each rule, in one query."""
    is_bad = f.col(REASON).isNotNull()
    is_unreadable = is_bad & (f.size(VIOLATIONS) == 0)
    by_name = [f.count_if(f.array_contains(VIOLATIONS, name)) for name in names]
    [found] = rows.agg(f.count("*"), f.count_if(is_bad), f.count_if(is_unreadable), *by_name).collect()
    total, bad, *broken = found
    return Counts(
        number, total, bad, {name: many for name, many in zip([UNREADABLE, *names], broken, strict=True) if many}
    )


def _report(spark: SparkSession, counts: Counts, folder: str) -> None:
    """Writes one folder for each batch, so that a batch that is run again replaces its own counts."""
    rows = [(rule, many, counts.rows) for rule, many in sorted(counts.by_rule.items())] or [("", 0, counts.rows)]
    table = spark.createDataFrame(rows, "rule string, broken bigint, rows bigint").coalesce(1)
    table.write.mode("overwrite").parquet(folder)


def _with_report(summary: Summary, counted: list[Counts], made: list[str]) -> Summary:
    rows, bad = sum(counts.rows for counts in counted), sum(counts.bad for counts in counted)
    by_rule: dict[str, int] = {}
    for counts in counted:
        for rule, many in counts.by_rule.items():
            by_rule[rule] = by_rule.get(rule, 0) + many
    table = [
        {"rule": rule, "broken": many, "share": f"{many / rows:.2%}"}
        for rule, many in sorted(by_rule.items(), key=lambda pair: -pair[1])
    ]
    facts = {"good_rows": rows - bad, "dead_letters": bad, **({"topics_created": ", ".join(made)} if made else {})}
    return msgspec.structs.replace(summary, facts=facts, tables={"rules that rows broke": table} if table else {})


QUALITY: Final = Job(
    NAME,
    "Check rows against a contract; bad rows go to a dead-letter topic.",
    QualitySettings,
    plan,
    run,
    "Messages are JSON by --schema. Rules are in the file as [[rules]], or set by --expect.",
    check,
)

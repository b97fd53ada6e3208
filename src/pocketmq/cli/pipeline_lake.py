"""`pocketmq pipeline lake`: show the content of a lake or a table, find messages in it, and keep it small.

    lake LAKE [--offset | --key | --time | --missing | --lost | --commits]      the same as `lake show LAKE`
    lake compact LAKE                                                           merge small files
    lake expire LAKE                                                            remove old commits of a table

The answers about a lake of files come from its manifest. Tables and keys need Spark, which starts then.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

import pocketmq
from pocketmq.cli.commands import CommandGroup, current_ms, parsed
from pocketmq.cli.output import Column, json_option, show_facts, show_json, show_rows, show_text, texts
from pocketmq.errors import InvalidSetting, UsageError
from pocketmq.model import QueueRange
from pocketmq.model.human import (
    count,
    local_time,
    number,
    offset,
    parse_duration_ms,
    parse_pair,
    parse_queue,
    parse_time,
    time_ms,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pocketmq.pipelines.archive.contents import Missing
    from pocketmq.pipelines.archive.manifest import DataFile, Manifest
    from pocketmq.pipelines.archive.reading import NamedLake, ReadTable

_RANGE = tuple(Column(name, shown_as=offset) for name in ("queue", "start", "end"))
_RANGES = (*texts("topic", "broker"), *_RANGE, Column("messages", shown_as=number))
_FILES = (
    *texts("file", "broker"),
    *_RANGE,
    Column("messages", shown_as=number),
    Column("first_store_ms", "stored from", local_time),
    Column("last_store_ms", "to", local_time),
)
_OF_TABLE = (*_FILES, Column("commit"))
_LOST = (*_RANGES[:-1], Column("cause"))
_MISSING = (*_RANGES, Column("why"))
_COMMITS = (Column("commit"), Column("made_ms", "made at", local_time), Column("operation"), *_RANGES)
_BETWEEN: Final = re.compile(r"(\d+)(?:\.\.|:)(\d+)")
_WEEK_MS: Final = 7 * 24 * 3_600_000
_AIM_BYTES: Final = 128 * 1024 * 1024


def between(text: str) -> tuple[int, int]:
    """`100..500`: the offsets from 100 to before 500."""
    found = _BETWEEN.fullmatch(text)
    if found is None or int(found[1]) >= int(found[2]):
        raise UsageError(f"{text!r} is not a range of offsets such as 100..500")
    return int(found[1]), int(found[2])


class LakeGroup(CommandGroup):
    """`lake LAKE` is `lake show LAKE`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        is_option = bool(args) and args[0].startswith("-") and args[0] != "--help"
        return super().parse_args(ctx, ["show", *args] if is_option else args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        return super().resolve_command(ctx, args if args and args[0] in self.commands else ["show", *args])


@click.group("lake", cls=LakeGroup, short_help="Show a lake or a table, find messages in it, and keep it small.")
def lake_command() -> None:
    """Show the content of a lake or a table that `archive` wrote, find messages in it, and keep it small.

    `pocketmq pipeline lake LAKE` is the same as `pocketmq pipeline lake show LAKE`.
    """


class Question(NamedTuple):
    """A question about a lake or a table."""

    topic: str | None
    at: int | None
    queue: tuple[str, int] | None
    key: str | None
    time: datetime | timedelta | None
    missing: tuple[int, int] | None
    lost: bool
    commits: bool

    def check(self) -> None:
        given = {
            "--offset": self.at is not None,
            "--key": self.key is not None,
            "--time": self.time is not None,
            "--missing": self.missing is not None,
            "--lost": self.lost,
            "--commits": self.commits,
        }
        if len(both := [name for name, is_given in given.items() if is_given]) > 1:
            raise UsageError(f"give either {both[0]} or {both[1]}")
        if self.queue is not None and self.at is None and self.missing is None:
            raise UsageError("--queue needs --offset or --missing")

    def wanted(self, ranges: list[QueueRange]) -> list[QueueRange]:
        """The ranges that --missing is about, in the queues of a lake."""
        queues = {
            one.queue
            for one in ranges
            if self.topic in (None, one.queue.topic)
            and self.queue in (None, (one.queue.broker_name, one.queue.queue_id))
        }
        start, end = self.missing or (0, 0)
        return [QueueRange(queue, start, end) for queue in sorted(queues)]


def _spark_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        click.option("--format", "kind", metavar="NAME", default="", help="delta or iceberg, for a table by its name."),
        click.option("--master", metavar="URL", help="The Spark cluster.  [default: local[*]]"),
        click.option(
            "--spark",
            "settings",
            metavar="KEY=VALUE",
            multiple=True,
            type=parsed(parse_pair),
            help="A Spark setting, for example of the catalog of a table; may be repeated.",
        ),
    ):
        command = option(command)
    return command


@lake_command.command("show", short_help="Show the content, or find messages.")
@click.argument("lake")
@click.option("--topic", metavar="NAME", help="Only this topic.")
@click.option("--offset", "at", type=click.IntRange(0), metavar="N", help="Only files with this queue offset.")
@click.option(
    "--queue", type=parsed(parse_queue), metavar="BROKER:N", help="With --offset or --missing: only this queue."
)
@click.option("--key", metavar="TEXT", help="Only files with messages of this key.")
@click.option(
    "--time",
    type=parsed(parse_time),
    metavar="WHEN",
    help="Only files around this store time: 2026-03-01T12:00, or 2h for 2 hours ago.",
)
@click.option(
    "--missing", type=parsed(between), metavar="A..B", help="Show what is missing from offset A to before offset B."
)
@click.option("--lost", is_flag=True, help="Show messages that brokers deleted before they were archived.")
@click.option("--commits", is_flag=True, help="Show the commits of a table, and the offsets that each added.")
@_spark_options
@json_option
def show_command(
    lake: str, kind: str, master: str | None, settings: tuple[tuple[str, str], ...], as_json: bool, **asked: Any
) -> None:
    """Show the content of a lake or a table that `archive` wrote, or the files and commits with some of its messages."""
    question = Question(**asked)
    question.check()
    found = pocketmq.pipelines.named_lake(lake, kind)
    if found.target is not None:
        with _spark(found, master, dict(settings)) as spark:
            _show_table(pocketmq.pipelines.ReadTable(spark, found.target), question, as_json=as_json)
        return
    if question.commits:
        raise InvalidSetting(
            "--commits is for tables; the files of a lake have the numbers of their commits in their names"
        )
    files = pocketmq.pipelines.ReadLake(found.name)
    if question.key is not None:
        with _spark(found, master, dict(settings)) as spark:
            topics = files.manifest.topics if question.topic is None else [question.topic]
            rows = files.with_key(spark, question.key, topics)
        show_rows(rows, _FILES, as_json=as_json, empty="No file found.")
    elif question.missing is not None:
        wanted = question.wanted(files.manifest.ranges)
        with _spark(found, master, dict(settings)) if files.has_gaps(wanted) else nullcontext() as spark:
            missing = files.missing(wanted, spark)
        _show_missing(missing, as_json=as_json)
    else:
        _show_lake(files.manifest, question, as_json=as_json)


@lake_command.command("compact", short_help="Merge small files.")
@click.argument("lake")
@_spark_options
@json_option
def compact_command(
    lake: str, kind: str, master: str | None, settings: tuple[tuple[str, str], ...], as_json: bool
) -> None:
    """Merge small files: of a table by OPTIMIZE of Delta or rewrite_data_files of Iceberg, of a lake as `archive` does."""
    found = pocketmq.pipelines.named_lake(lake, kind)
    with _spark(found, master, dict(settings)) as spark:
        if found.target is not None:
            done = pocketmq.pipelines.compact_table(spark, found.target)
        else:
            done = pocketmq.pipelines.compact_lake(spark, found.name, aim_bytes=_AIM_BYTES, at_least=2)
    _show_done(done, as_json=as_json)


@lake_command.command("expire", short_help="Remove old commits of a table, and their files.")
@click.argument("lake")
@click.option(
    "--older-than",
    type=parsed(parse_duration_ms),
    metavar="DURATION",
    help="Keep the commits of this time, for example 30d.  [default: 7d]",
)
@_spark_options
@json_option
def expire_command(
    lake: str,
    older_than: int | None,
    kind: str,
    master: str | None,
    settings: tuple[tuple[str, str], ...],
    as_json: bool,
) -> None:
    """Remove old commits, and files that no newer commit needs, by VACUUM of Delta or expire_snapshots of Iceberg.

    Rows of the current table stay. Commits that are removed cannot be read by --as-of any more.
    """
    found = pocketmq.pipelines.named_lake(lake, kind)
    if found.target is None:
        raise InvalidSetting(f"{lake} is a lake of files, which has no old commits to remove")
    now_ms = current_ms()
    with _spark(found, master, dict(settings)) as spark:
        before_ms = now_ms - (_WEEK_MS if older_than is None else older_than)
        done = pocketmq.pipelines.expire_table(spark, found.target, before_ms, now_ms)
    _show_done(done, as_json=as_json)


@contextmanager
def _spark(named: "NamedLake", master: str | None, settings: dict[str, str]) -> "Iterator[SparkSession]":
    pipelines = pocketmq.pipelines
    with (
        pipelines.session("pocketmq lake", master, None, named.session(settings), is_quiet=True) as spark,
        pipelines.pipeline_failures(),
    ):
        yield spark


def _show_done(done: Mapping[str, int], *, as_json: bool) -> None:
    if as_json:
        show_json([done])
    else:
        show_facts({name.replace("_", " "): number(value) for name, value in done.items()})


def _show_table(table: "ReadTable", question: Question, *, as_json: bool) -> None:
    topic, at, queue, key, time, missing, lost, commits = question
    if missing is not None:
        _show_missing(table.missing(question.wanted(table.record.ranges)), as_json=as_json)
    elif lost:
        rows = [row for row in pocketmq.pipelines.lost_rows(table.record) if topic in (None, row["topic"])]
        show_rows(rows, _LOST, as_json=as_json, empty="No lost messages.")
    elif commits:
        show_rows(_commit_rows(table, topic), _COMMITS, as_json=as_json, empty="The table has no commits of archives.")
    elif at is None and key is None and time is None:
        _show_ranges(table.ranges_of(None if topic is None else [topic]), as_json=as_json)
    else:
        if at is not None:
            broker, queue_id = queue or (None, None)
            found = table.at_offset(topic, at, broker=broker, queue_id=queue_id)
        elif key is not None:
            found = table.with_key(topic, key)
        else:
            assert time is not None, "one of the three is given"
            found = table.at_time(topic, time_ms(time, current_ms()))
        show_rows(found, _OF_TABLE, as_json=as_json, empty="No file found.")


def _commit_rows(table: "ReadTable", topic: str | None) -> list[dict[str, Any]]:
    return [
        {"commit": one.id, "made_ms": one.made_ms, "operation": one.operation, **_range_row(part)}
        for one in table.commits()
        if one.record is not None
        for part in one.record.added_ranges
        if topic in (None, part.queue.topic)
    ]


def _show_missing(missing: "list[Missing]", *, as_json: bool) -> None:
    rows = [{**_range_row(one.range), "why": one.why} for one in missing]
    show_rows(rows, _MISSING, as_json=as_json, empty="Nothing is missing.")


def _show_lake(manifest: "Manifest", question: Question, *, as_json: bool) -> None:
    topic, at, queue, _, time, _, lost, _ = question
    if lost:
        rows = [row for row in pocketmq.pipelines.lost_rows(manifest) if topic in (None, row["topic"])]
        show_rows(rows, _LOST, as_json=as_json, empty="No lost messages.")
    elif at is None and time is None:
        _show_ranges([one for one in sorted(manifest.ranges) if topic in (None, one.queue.topic)], as_json=as_json)
        if not as_json:
            gone = sum(len(one.range) for one in manifest.lost)
            suffix = f"; {gone:,} messages were deleted before they were archived, see --lost" if gone else ""
            files = count(len(manifest.files), "file")
            show_text(f"\n{count(manifest.rows, 'message')} in {files}, {manifest.bytes:,} bytes{suffix}")
    else:
        found = _found(manifest, topic, at, queue, time)
        show_rows(pocketmq.pipelines.file_rows(found), _FILES, as_json=as_json, empty="No file found.")


def _show_ranges(ranges: list[QueueRange], *, as_json: bool) -> None:
    show_rows([_range_row(one) for one in ranges], _RANGES, as_json=as_json, empty="The lake is empty.")


def _range_row(one: QueueRange) -> dict[str, Any]:
    return {
        "topic": one.queue.topic,
        "broker": one.queue.broker_name,
        "queue": one.queue.queue_id,
        "start": one.start,
        "end": one.end,
        "messages": len(one),
    }


def _found(
    manifest: "Manifest",
    topic: str | None,
    at: int | None,
    queue: tuple[str, int] | None,
    time: datetime | timedelta | None,
) -> "list[DataFile]":
    topics = manifest.topics if topic is None else [topic]
    if at is not None:
        broker, queue_id = queue or (None, None)
        return [file for one in topics for file in manifest.at_offset(one, at, broker=broker, queue_id=queue_id)]
    assert time is not None, "the caller checks that one is set"
    moment = time_ms(time, current_ms())
    return [file for one in topics for file in manifest.at_time(one, moment)]

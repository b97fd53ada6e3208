"""`pocketmq pipeline lake`: show the content of a lake, and find the file of a message."""

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import click

import pocketmq
from pocketmq.cli.commands import current_ms, parsed
from pocketmq.cli.output import Column, json_option, show_rows, show_text, texts
from pocketmq.errors import UsageError
from pocketmq.model.human import local_time, number, offset, parse_queue, parse_time, time_ms

if TYPE_CHECKING:
    from pocketmq.pipelines.archive.manifest import DataFile, Manifest

_RANGE = tuple(Column(name, shown_as=offset) for name in ("queue", "start", "end"))
_RANGES = (*texts("topic", "broker"), *_RANGE, Column("messages", shown_as=number))
_FILES = (
    *texts("file", "broker"),
    *_RANGE,
    Column("messages", shown_as=number),
    Column("first_store_ms", "stored from", local_time),
    Column("last_store_ms", "to", local_time),
)
_LOST = (*_RANGES[:-1], Column("cause"))


@click.command("lake", short_help="Show the content of a lake, and find the file of a message.")
@click.argument("folder")
@click.option("--topic", metavar="NAME", help="Only this topic.")
@click.option("--offset", "at", type=click.IntRange(0), metavar="N", help="Only files with this queue offset.")
@click.option("--queue", type=parsed(parse_queue), metavar="BROKER:N", help="With --offset: only this queue.")
@click.option(
    "--time",
    type=parsed(parse_time),
    metavar="WHEN",
    help="Only files around this store time: 2026-03-01T12:00, or 2h for 2 hours ago.",
)
@click.option("--lost", is_flag=True, help="Show messages that brokers deleted before they were archived.")
@json_option
def lake_command(
    folder: str,
    topic: str | None,
    at: int | None,
    queue: tuple[str, int] | None,
    time: datetime | timedelta | None,
    lost: bool,
    as_json: bool,
) -> None:
    """Show the content of a lake that `archive` wrote, or the files with an offset or a store time."""
    if at is not None and time is not None:
        raise UsageError("give either --offset or --time")
    if queue is not None and at is None:
        raise UsageError("--queue needs --offset")
    manifest = pocketmq.pipelines.ReadLake(folder).manifest
    if lost:
        rows = [row for row in pocketmq.pipelines.lost_rows(manifest) if topic in (None, row["topic"])]
        show_rows(rows, _LOST, as_json=as_json, empty="No lost messages.")
    elif at is None and time is None:
        _show_ranges(manifest, topic, as_json=as_json)
    else:
        found = _found(manifest, topic, at, queue, time)
        show_rows(pocketmq.pipelines.file_rows(found), _FILES, as_json=as_json, empty="No file found.")


def _show_ranges(manifest: "Manifest", topic: str | None, *, as_json: bool) -> None:
    rows = [
        {
            "topic": one.queue.topic,
            "broker": one.queue.broker_name,
            "queue": one.queue.queue_id,
            "start": one.start,
            "end": one.end,
            "messages": len(one),
        }
        for one in sorted(manifest.ranges)
        if topic in (None, one.queue.topic)
    ]
    show_rows(rows, _RANGES, as_json=as_json, empty="The lake is empty.")
    if not as_json:
        lost = sum(len(one.range) for one in manifest.lost)
        suffix = f"; {lost:,} messages were deleted before they were archived, see --lost" if lost else ""
        show_text(f"\n{manifest.rows:,} messages in {len(manifest.files):,} files, {manifest.bytes:,} bytes{suffix}")


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

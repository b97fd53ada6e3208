"""The offset of a query: its offset in each queue, as the JSON that Spark writes to the checkpoint.

    {"version": 1, "start": "unresolved"}                       before the first batch, always the same
    {"version": 1,
     "queues": {"orders": {"broker-a": {"0": 120, "1": 98}}},   the next message to read in each queue
     "first":  {"orders": {"broker-a": {"0": 100, "1": 98}}},   the start of queues that this batch is the first to read
     "seenMs": 1767225600000,                                   when the brokers were queried
     "partitions": 2,                                           the number of partitions of this batch
     "lost":   [{"topic": …, "start": 7, "end": 9, …}],         messages that were deleted before this batch could read them
     "seen":   {…}}                                             with PySpark 4.0 and 4.1 only: see `source_progress`

If batch 0 fails, Spark requests the initial offset again, and does not log it. An initial offset that moves (`latest`) would lose
messages. So it is a constant, and the actual start is in `first` of the first batch's end. A queue that is added later, or that
starts again after a loss, gets its start there, too. So every logged range can be read again exactly, in the same number of
partitions: a sink that identifies rows by their partition must find them there again, even if the driver now has other cores.

Spark compares offsets by their text: keys are sorted, and an offset without new messages has the very same text.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from pocketmq.errors import WrongState
from pocketmq.files import DiskFiles, Files
from pocketmq.model import MessageQueue, QueueRange

VERSION: Final = 1
UNRESOLVED: Final[Mapping[str, Any]] = {"version": VERSION, "start": "unresolved"}
"""The initial offset."""

SEEN: Final = "seen"
"""Where an offset has what the driver saw when it planned the batch, if Spark does not ask for it in another way."""
SHOWN_CHARS: Final = 120
"""Longest foreign offset that an error shows; the rest is cut off."""

QueueOffsets = Mapping[MessageQueue, int]


class Cause(StrEnum):
    """Why messages are lost."""

    RETENTION = "retention"
    TRUNCATION = "truncation"
    RECREATION = "re-created topic"
    DELETION = "deleted topic"
    HOLE = "hole in the queue"


class Lost(msgspec.Struct, frozen=True):
    """Messages that were deleted before they were read."""

    range: QueueRange
    cause: Cause

    def __str__(self) -> str:
        what = (
            f"from {self.range.start} to {self.range.end}" if len(self.range) else f"from {self.range.start}, if any,"
        )
        return f"{self.range.queue} {what} ({self.cause})"


class QueryOffset(msgspec.Struct, frozen=True):
    """The offset of a query. The module docstring describes the fields."""

    queues: dict[MessageQueue, int]
    first: dict[MessageQueue, int] = {}
    seen_ms: int = 0
    lost: tuple[Lost, ...] = ()
    partitions: int | None = None
    """None in a checkpoint of a version that did not log it."""

    def to_json(self) -> dict[str, Any]:
        """For Spark; keys have a fixed order."""
        fields: dict[str, Any] = {"version": VERSION, "queues": _nested(self.queues)}
        if self.first:
            fields["first"] = _nested(self.first)
        fields["seenMs"] = self.seen_ms
        if self.partitions is not None:
            fields["partitions"] = self.partitions
        if self.lost:
            fields["lost"] = [_lost_to_json(lost) for lost in self.lost]
        return fields


def parse_offset(fields: Mapping[str, Any]) -> QueryOffset | None:
    """The offset that Spark read from the checkpoint; None for the initial one. WrongState if it is not one of ours."""
    if not isinstance(fields, Mapping) or "version" not in fields:
        shown = msgspec.json.encode(fields).decode()[:SHOWN_CHARS]
        raise WrongState(
            f"the checkpoint belongs to a query that reads another source: its offset is {shown}. This query reads RocketMQ topics; "
            "set another checkpointLocation"
        )
    version = fields["version"]
    if version != VERSION:
        raise WrongState(
            f"the checkpoint holds offsets of version {version!r}, and this connector reads version {VERSION}: "
            "use the connector version that wrote it, or start the query with a new checkpoint"
        )
    if "start" in fields:
        return None
    try:
        return QueryOffset(
            _flat(fields["queues"]),
            _flat(fields.get("first", {})),
            int(fields["seenMs"]),
            tuple(map(_lost, fields.get("lost", ()))),
            None if (count := fields.get("partitions")) is None else _whole(count),
        )
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise WrongState(f"the checkpoint contains a damaged offset: {type(error).__name__} {error}") from None


def ranges_between(start: QueryOffset | None, end: QueryOffset) -> list[QueueRange]:
    """The ranges between two offsets; queues without new messages are omitted."""
    before = start.queues if start else {}
    ranges = []
    for queue in sorted(end.queues):
        first = end.first.get(queue, before.get(queue))
        if first is None:
            raise WrongState(f"the checkpoint has no start for {queue}; it is damaged")
        if first > end.queues[queue]:
            raise WrongState(
                f"the checkpoint reads {queue} backwards, from {first} to {end.queues[queue]}; it is damaged"
            )
        if first < end.queues[queue]:
            ranges.append(QueueRange(queue, first, end.queues[queue]))
    return ranges


def next_offset(
    before: QueryOffset | None, ends: QueueOffsets, *, first: QueueOffsets, seen_ms: int, lost: Iterable[Lost] = ()
) -> QueryOffset:
    """The offset after a batch that reads up to `ends`; `before` itself if nothing changes.

    `first` are queues that are read for the first time, or again after a loss. Other queues keep their offset, even if they are
    missing: they continue there if their broker returns.
    """
    lost = tuple(lost)
    queues = {**(before.queues if before else {}), **first, **ends}
    if before is not None and queues == before.queues and not lost and not (first.keys() - before.queues.keys()):
        return before
    return QueryOffset(queues, dict(first), seen_ms, lost)


class BatchOffsets(NamedTuple):
    """The offsets of a batch, as the option `batchFile` keeps them."""

    start: QueryOffset | None
    end: QueryOffset

    @property
    def ranges(self) -> list[QueueRange]:
        return [] if self.start == self.end else ranges_between(self.start, self.end)

    @property
    def lost(self) -> tuple[Lost, ...]:
        """An end that equals the start repeats the losses of the batch before."""
        return () if self.start == self.end else self.end.lost


def write_batch(path: Path, start: Mapping[str, Any], end: Mapping[str, Any], files: Files | None = None) -> None:
    """Replace the offsets of the batch before. Without a sync: after a crash, Spark plans the batch again."""
    files, new = files or DiskFiles(), path.with_name(f"{path.name}.tmp")
    files.make_dir(path.parent)
    with files.open(new, create=True) as file:
        file.truncate(0)
        file.write_at(0, msgspec.json.encode({"start": start, "end": end}))
    files.replace(new, path)


def read_batch(path: Path, files: Files | None = None) -> BatchOffsets:
    """The offsets of the batch that runs now."""
    try:
        fields = msgspec.json.decode((files or DiskFiles()).read(path))
    except msgspec.MsgspecError as error:
        raise WrongState(f"{path} is damaged: {error}; the next batch replaces it") from None
    end = parse_offset(fields["end"])
    if end is None:
        raise WrongState(f"{path} has no end: it belongs to another query")
    return BatchOffsets(parse_offset(fields["start"]), end)


class QueueChanges(NamedTuple):
    """Queues that were added or removed since an offset."""

    added: list[MessageQueue]
    removed: list[MessageQueue]


def queue_changes(before: QueryOffset, present: Iterable[MessageQueue]) -> QueueChanges:
    """The changes. An added queue is read from its beginning: it may have messages from before it was discovered."""
    now = set(present)
    return QueueChanges(sorted(now - before.queues.keys()), sorted(before.queues.keys() - now))


def backlog(before: QueueOffsets, latest: QueueOffsets) -> int:
    """The number of unread messages."""
    return sum(max(0, latest[queue] - offset) for queue, offset in before.items() if queue in latest)


def _nested(offsets: QueueOffsets) -> dict[str, dict[str, dict[str, int]]]:
    fields: dict[str, dict[str, dict[str, int]]] = {}
    for queue in sorted(offsets):
        fields.setdefault(queue.topic, {}).setdefault(queue.broker_name, {})[str(queue.queue_id)] = offsets[queue]
    return fields


def _flat(fields: Mapping[str, Mapping[str, Mapping[str, int]]]) -> dict[MessageQueue, int]:
    return {
        MessageQueue(topic, broker, int(queue_id)): _whole(offset)
        for topic, brokers in fields.items()
        for broker, queues in brokers.items()
        for queue_id, offset in queues.items()
    }


def _whole(offset: Any) -> int:
    if type(offset) is not int or offset < 0:
        raise ValueError(f"{offset!r} is not an offset")
    return offset


def _lost_to_json(lost: Lost) -> dict[str, Any]:
    queue = lost.range.queue
    return {
        "topic": queue.topic,
        "brokerName": queue.broker_name,
        "queueId": queue.queue_id,
        "start": lost.range.start,
        "end": lost.range.end,
        "cause": lost.cause.value,
    }


def _lost(fields: Mapping[str, Any]) -> Lost:
    queue = MessageQueue(fields["topic"], fields["brokerName"], int(fields["queueId"]))
    return Lost(QueueRange(queue, _whole(fields["start"]), _whole(fields["end"])), Cause(fields["cause"]))

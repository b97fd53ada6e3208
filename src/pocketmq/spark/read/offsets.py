"""The offset of a query: how far it is in each queue, as the JSON that Spark writes to the checkpoint.

    {"version": 1, "start": "unresolved"}                       before the first batch, always the same
    {"version": 1,
     "queues": {"orders": {"broker-a": {"0": 120, "1": 98}}},   the next message to read of each queue
     "first":  {"orders": {"broker-a": {"0": 100, "1": 98}}},   where queues begin that this batch reads for the first time
     "seenMs": 1767225600000,                                   when the brokers were asked
     "partitions": 2,                                           in how many partitions this batch is read
     "lost":   [{"topic": …, "start": 7, "end": 9, …}]}         what this batch would have read, had it not been gone

Spark asks for the beginning again when batch 0 failed, and does not log it. So a beginning that moves (`latest`) would lose
messages: the beginning is a constant, and what it came to stands in the first end, under `first`. A queue that appears later,
or that is begun again after a loss, gets its place there too, so that every logged range is read again exactly. And in the same
partitions: a sink that knows rows by their partition must find them there again, also when the driver has other cores by then.

Spark takes offsets for equal when their text is equal: keys are sorted, and nothing new gives the very same offset.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any, Final, NamedTuple

import msgspec

from pocketmq.errors import WrongState
from pocketmq.model.queue import MessageQueue, QueueRange

VERSION: Final = 1
UNRESOLVED: Final[Mapping[str, Any]] = {"version": VERSION, "start": "unresolved"}
"""The offset before the first one."""

SHOWN_CHARS: Final = 120
"""Of an offset that is none of ours, in the sentence about it."""

Places = Mapping[MessageQueue, int]


class Cause(StrEnum):
    """Why messages are gone."""

    RETENTION = "retention"
    TRUNCATION = "truncation"
    RECREATION = "re-created topic"
    HOLE = "hole in the queue"


class Lost(msgspec.Struct, frozen=True):
    """Messages that were to be read and are gone."""

    range: QueueRange
    cause: Cause

    def __str__(self) -> str:
        return f"{self.range.queue} from {self.range.start} to {self.range.end} ({self.cause})"


class QueryOffset(msgspec.Struct, frozen=True):
    """How far a query is. See above for the fields."""

    queues: dict[MessageQueue, int]
    first: dict[MessageQueue, int] = {}
    seen_ms: int = 0
    lost: tuple[Lost, ...] = ()
    partitions: int | None = None
    """None in a checkpoint of a version that did not log it."""

    def to_json(self) -> dict[str, Any]:
        """For Spark: keys in a fixed order."""
        told: dict[str, Any] = {"version": VERSION, "queues": _nested(self.queues)}
        if self.first:
            told["first"] = _nested(self.first)
        told["seenMs"] = self.seen_ms
        if self.partitions is not None:
            told["partitions"] = self.partitions
        if self.lost:
            told["lost"] = [_told(lost) for lost in self.lost]
        return told


def parse_offset(told: Mapping[str, Any]) -> QueryOffset | None:
    """The offset that Spark read from the checkpoint; None for the one before the first. WrongState when it is none of ours."""
    if not isinstance(told, Mapping) or "version" not in told:
        shown = msgspec.json.encode(told).decode()[:SHOWN_CHARS]
        raise WrongState(
            f"the checkpoint belongs to a query that reads another source: its offset is {shown}. This query reads topics of RocketMQ: "
            "give it a checkpointLocation of its own"
        )
    version = told["version"]
    if version != VERSION:
        raise WrongState(
            f"the checkpoint holds offsets of version {version!r}, and this connector reads version {VERSION}: "
            "use the connector that wrote it, or start the query with a new checkpoint"
        )
    if "start" in told:
        return None
    try:
        return QueryOffset(
            _flat(told["queues"]),
            _flat(told.get("first", {})),
            int(told["seenMs"]),
            tuple(map(_lost, told.get("lost", ()))),
            None if (count := told.get("partitions")) is None else _whole(count),
        )
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise WrongState(f"the checkpoint holds an offset that is damaged: {type(error).__name__} {error}") from None


def places_of(told: Mapping[str, Any]) -> dict[MessageQueue, int]:
    """The queues of an offset, or of what the progress of a query shows beside it, and where they are."""
    return _flat(told["queues"])


def ranges_between(start: QueryOffset | None, end: QueryOffset) -> list[QueueRange]:
    """What lies between two offsets, by queue; queues without anything new are left out."""
    before = start.queues if start else {}
    ranges = []
    for queue in sorted(end.queues):
        first = end.first.get(queue, before.get(queue))
        if first is None:
            raise WrongState(f"the checkpoint does not say where {queue} begins; it is damaged")
        if first > end.queues[queue]:
            raise WrongState(
                f"the checkpoint wants {queue} read from {first} to {end.queues[queue]}, which is backwards; it is damaged"
            )
        if first < end.queues[queue]:
            ranges.append(QueueRange(queue, first, end.queues[queue]))
    return ranges


def next_offset(
    before: QueryOffset | None, ends: Places, *, first: Places, seen_ms: int, lost: Iterable[Lost] = ()
) -> QueryOffset:
    """The offset after a batch that reads up to `ends`; `before` itself when that is nothing new.

    `first` are the queues read for the first time, or begun anew. Queues that are not mentioned stay where they are, also
    those that are gone: should their broker come back, they go on.
    """
    lost = tuple(lost)
    queues = {**(before.queues if before else {}), **first, **ends}
    if before is not None and queues == before.queues and not lost and not (first.keys() - before.queues.keys()):
        return before
    return QueryOffset(queues, dict(first), seen_ms, lost)


class QueueChanges(NamedTuple):
    """Queues that came and went since an offset."""

    added: list[MessageQueue]
    removed: list[MessageQueue]


def queue_changes(before: QueryOffset, present: Iterable[MessageQueue]) -> QueueChanges:
    """What changed. An added queue is read from its beginning: it may have messages from before it was noticed."""
    now = set(present)
    return QueueChanges(sorted(now - before.queues.keys()), sorted(before.queues.keys() - now))


def backlog(before: Places, latest: Places) -> int:
    """How many messages wait."""
    return sum(max(0, latest[queue] - place) for queue, place in before.items() if queue in latest)


def _nested(places: Places) -> dict[str, dict[str, dict[str, int]]]:
    told: dict[str, dict[str, dict[str, int]]] = {}
    for queue in sorted(places):
        told.setdefault(queue.topic, {}).setdefault(queue.broker_name, {})[str(queue.queue_id)] = places[queue]
    return told


def _flat(told: Mapping[str, Mapping[str, Mapping[str, int]]]) -> dict[MessageQueue, int]:
    return {
        MessageQueue(topic, broker, int(queue_id)): _whole(place)
        for topic, brokers in told.items()
        for broker, queues in brokers.items()
        for queue_id, place in queues.items()
    }


def _whole(place: Any) -> int:
    if type(place) is not int or place < 0:
        raise ValueError(f"{place!r} is no offset")
    return place


def _told(lost: Lost) -> dict[str, Any]:
    queue = lost.range.queue
    return {
        "topic": queue.topic,
        "brokerName": queue.broker_name,
        "queueId": queue.queue_id,
        "start": lost.range.start,
        "end": lost.range.end,
        "cause": lost.cause.value,
    }


def _lost(told: Mapping[str, Any]) -> Lost:
    queue = MessageQueue(told["topic"], told["brokerName"], int(told["queueId"]))
    return Lost(QueueRange(queue, _whole(told["start"]), _whole(told["end"])), Cause(told["cause"]))

"""What the progress of a streaming query shows about its topics, and how to read it.

    reportLatestOffset ──► progress.sources[…].latestOffset ──► sources_of(query.lastProgress)

In Java, Spark describes every Python source by a class and a number, and asks it for no metrics. Neither can be changed from
Python. So the description and the lag are in the JSON of the latest offset, with the names of Kafka's metrics:

    {"version": 1, "queues": {"orders": {"broker-a": {"0": 120}}},
     "description": "RocketMQ[orders: 1 queue]",
     "metrics": {"minOffsetsBehindLatest": "20", "maxOffsetsBehindLatest": "20", "avgOffsetsBehindLatest": "20.0"}}

PySpark 4.0 and 4.1 do not ask for a latest offset. There the end of the batch contains the same fields as `seen`.
"""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from pocketmq.errors import WrongState
from pocketmq.model import MessageQueue
from pocketmq.spark.options.read_options import ReadOptions
from pocketmq.spark.read.offsets import SEEN, QueryOffset, QueueOffsets, parse_offset

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import StreamingQueryProgress

SHOWN_TOPICS: Final = 5


class SourceProgress(msgspec.Struct, frozen=True, kw_only=True):
    """The progress of one RocketMQ source in one trigger."""

    description: str
    group: str | None
    """The option `groupId`."""
    input_rows: int
    end: QueryOffset
    """Where the batch ended."""
    latest: dict[MessageQueue, int]
    """The ends of queues, when the batch was planned; of the last answer, while brokers do not respond."""
    outage: str | None
    """The error of brokers that do not respond."""

    @property
    def min_offsets_behind_latest(self) -> int:
        return min(self._behind, default=0)

    @property
    def max_offsets_behind_latest(self) -> int:
        return max(self._behind, default=0)

    @property
    def avg_offsets_behind_latest(self) -> float:
        behind = self._behind
        return sum(behind) / len(behind) if behind else 0.0

    @property
    def offsets_behind_latest(self) -> int:
        """In all queues."""
        return sum(self._behind)

    @property
    def _behind(self) -> list[int]:
        return _behind(self.end.queues, self.latest)


def sources_of(progress: "StreamingQueryProgress") -> list[SourceProgress]:
    """The RocketMQ sources of a query's progress: of `query.lastProgress`, or of the event of a listener."""
    found = []
    for source in json.loads(progress.json)["sources"]:
        end, seen = offset_of(source.get("endOffset")), seen_by(source)
        if end is not None:
            latest = offset_of(seen)
            found.append(
                SourceProgress(
                    description=seen.get("description", "RocketMQ"),
                    group=seen.get("groupId"),
                    input_rows=source.get("numInputRows") or 0,
                    end=end,
                    latest={} if latest is None else latest.queues,
                    outage=seen["outage"].get("error") if "outage" in seen else None,
                )
            )
    return found


def seen_by(source: Mapping[str, Any]) -> dict[str, Any]:
    """What a source reported about its queues beside its offsets; empty for other sources and before the first batch."""
    latest = fields_of(source.get("latestOffset"))
    if SEEN in latest:  # PySpark 4.0 and 4.1 show the end of the batch here
        return latest[SEEN] or {}
    return latest or fields_of(source.get("endOffset")).get(SEEN) or {}


def offset_of(offset: Any) -> QueryOffset | None:
    """An offset of our source in a progress; None for other sources, and before the first batch."""
    fields = fields_of(offset)
    if "queues" not in fields:
        return None
    try:
        return parse_offset({"seenMs": 0, **fields})  # the latest offset has no such field
    except WrongState:
        return None


def fields_of(offset: Any) -> dict[str, Any]:
    """The fields of an offset in a progress; empty if it has no fields, as those of other sources may."""
    if isinstance(offset, str):
        try:
            offset = json.loads(offset)
        except ValueError:
            return {}
    return offset if isinstance(offset, dict) else {}


def description_of(options: ReadOptions, queues: int) -> str:
    """A text for people: what the query reads, and how many queues that is."""
    if options.pattern is not None:
        what = f"topics that match {options.pattern}"
    else:
        names = options.topics or sorted({queue.topic for queue in options.queues or ()})
        shown = ", ".join(names[:SHOWN_TOPICS])
        what = shown if len(names) <= SHOWN_TOPICS else f"{shown} and {len(names) - SHOWN_TOPICS} more topics"
    return f"RocketMQ[{what}: {queues} queue{'' if queues == 1 else 's'}]"


def metrics_of(ends: QueueOffsets, latest: QueueOffsets) -> dict[str, str]:
    """The lag after a batch with these ends, by the names and in the form of Kafka's source; empty without queues."""
    behind = _behind(ends, latest)
    if not behind:
        return {}
    return {
        "minOffsetsBehindLatest": f"{min(behind)}",
        "maxOffsetsBehindLatest": f"{max(behind)}",
        "avgOffsetsBehindLatest": f"{sum(behind) / len(behind)}",
    }


def _behind(ends: QueueOffsets, latest: QueueOffsets) -> list[int]:
    return [max(0, latest[queue] - end) for queue, end in ends.items() if queue in latest]

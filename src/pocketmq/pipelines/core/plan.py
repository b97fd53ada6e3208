"""A dry run: the plan of a pipeline, made without Spark and without changing anything.

    options ─┐
    brokers ─┼─► Plan: its queues with start and end, its sink, the amount of messages and the time
    checkpoint ┘

Sizes are estimated by a sample of each queue, and times by the known rate of the pipeline on two cores, which the plan states.

Pipelines also query the cluster before Spark starts, with the connector's own options. Topics that they read must exist; topics that
they write are created if they are missing.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

import msgspec

from pocketmq.client import Admin
from pocketmq.errors import PocketMQError, TopicNotFound
from pocketmq.files import DiskFiles, Files
from pocketmq.model import MessageQueue, QueueRange
from pocketmq.pipelines.core.checkpoint import is_local, last_batch
from pocketmq.spark.options.read_options import ReadOptions, parse_read_options
from pocketmq.spark.read.bounds import batch_ranges, no_such_topic, queues_of, starting_offsets
from pocketmq.spark.read.metadata import ClientMetadata, borrowed_metadata
from pocketmq.spark.shared_clients import reading_settings

TYPICAL_MESSAGES_PER_S: Final = 100_000


class QueuePlan(msgspec.Struct, frozen=True, kw_only=True):
    """The planned read of a queue: messages `start` (included) to `end` (excluded)."""

    topic: str
    broker: str
    queue: int
    start: int
    end: int
    bytes: int = 0

    @property
    def messages(self) -> int:
        return max(0, self.end - self.start)


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The plan of a pipeline."""

    pipeline: str
    source: str
    sink: str
    queues: tuple[QueuePlan, ...] = ()
    begins: str = ""
    """Where it starts, as text: a new checkpoint, or the end of the last run."""
    options: Mapping[str, str] = {}
    """The options for the connector, Spark and the sink. They contain no secrets."""
    remarks: tuple[str, ...] = ()
    """What else to know before a run."""
    messages_per_s: int = TYPICAL_MESSAGES_PER_S

    @property
    def messages(self) -> int:
        return sum(queue.messages for queue in self.queues)

    @property
    def bytes(self) -> int:
        return sum(queue.bytes for queue in self.queues)

    @property
    def seconds(self) -> float:
        return self.messages / self.messages_per_s

    def to_json(self) -> dict[str, Any]:
        return {
            **msgspec.to_builtins(self),
            "queues": [{**msgspec.to_builtins(queue), "messages": queue.messages} for queue in self.queues],
            "messages": self.messages,
            "bytes": self.bytes,
            "seconds": round(self.seconds, 1),
        }


def stream_queues(options: Mapping[str, str], checkpoint: str, files: Files) -> tuple[tuple[QueuePlan, ...], str]:
    """The read of a stream if it started now, and where it starts as text."""
    parsed = parse_read_options(options, streaming=True, environ=os.environ)
    last = last_batch(checkpoint, files)
    before = None if last is None else last.end
    with borrowed_metadata(parsed) as metadata:
        known = {} if before is None else before.queues
        queues = queues_of(parsed, metadata, known)
        new = [queue for queue in queues if queue not in known]
        starts = {queue: known[queue] for queue in queues if queue in known}
        if before is None:
            starts |= starting_offsets(parsed, new, metadata)
        bounds = metadata.bounds(queues)
        starts |= {queue: bounds[queue].min for queue in new if queue not in starts}
        ranges = [QueueRange(queue, min(starts[queue], bounds[queue].max), bounds[queue].max) for queue in queues]
        planned = _sized(ranges, metadata, parsed)
    if before is not None:
        return planned, "where the last run ended, by the checkpoint"
    if not is_local(checkpoint):
        return planned, f"{parsed.starting_offsets}, unless the checkpoint, which only Spark can read, has an offset"
    return planned, f"{parsed.starting_offsets}: the checkpoint is new"


def batch_queues(options: Mapping[str, str]) -> tuple[QueuePlan, ...]:
    """The read of a batch with these options if it started now."""
    parsed = parse_read_options(options, streaming=False, environ=os.environ)
    with borrowed_metadata(parsed) as metadata:
        return _sized(batch_ranges(parsed, metadata), metadata, parsed)


def _sized(ranges: Sequence[QueueRange], metadata: ClientMetadata, options: ReadOptions) -> tuple[QueuePlan, ...]:
    filled: dict[MessageQueue, int] = {part.queue: part.start for part in ranges if len(part)}
    sizes = metadata.bytes_per_message(options.pull_group, filled)
    return tuple(
        QueuePlan(
            topic=part.queue.topic,
            broker=part.queue.broker_name,
            queue=part.queue.queue_id,
            start=part.start,
            end=part.end,
            bytes=sizes.get(part.queue, 0) * len(part),
        )
        for part in ranges
    )


@contextmanager
def queue_metadata(options: Mapping[str, str]) -> Iterator[tuple[ReadOptions, ClientMetadata]]:
    """Metadata for a batch read with these options."""
    parsed = parse_read_options(options, streaming=False, environ=os.environ)
    with borrowed_metadata(parsed) as metadata:
        yield parsed, metadata


def known_queues(connection: Mapping[str, str], topics: Sequence[str]) -> list[MessageQueue]:
    """All queues of topics; TopicNotFound for one that does not exist."""
    with queue_metadata({**connection, "subscribe": ",".join(topics)}) as (_, metadata):
        return sorted(queue for topic in topics for queue in metadata.queues(topic))


class Beginning(NamedTuple):
    """The first message of a queue, its store time, and the end of the queue."""

    start: int
    stored_ms: int
    end: int

    def is_another_than(self, before: "Beginning", end: int) -> bool:
        """Whether the queue was re-created since `before`, when it reached `end`: a message at an offset never becomes newer."""
        if self.end < end or self.start < before.start:
            return True
        return self.start == before.start and self.stored_ms > before.stored_ms >= 0


def beginnings(connection: Mapping[str, str], ranges: Sequence[QueueRange]) -> dict[MessageQueue, Beginning]:
    """The beginnings of the queues of ranges. Those of a deleted topic are empty."""
    if not ranges:
        return {}
    queues = [one.queue for one in ranges]
    with queue_metadata({**connection, "subscribe": ",".join(sorted({one.topic for one in queues}))}) as (_, metadata):
        oldest = metadata.earliest_store_ms(queues)
        bounds = metadata.bounds(queues)
    return {queue: Beginning(bounds[queue].min, oldest[queue], bounds[queue].max) for queue in queues}


def ranges_of(options: Mapping[str, str]) -> list[QueueRange]:
    """The ranges of a batch read with these options if it started now."""
    with queue_metadata(options) as (parsed, metadata):
        return batch_ranges(parsed, metadata)


def admin_of(connection: Mapping[str, str]) -> Admin:
    """An admin client for the cluster in these connector options."""
    parsed = parse_read_options({**connection, "subscribe": "any"}, streaming=False, environ=os.environ)
    settings = reading_settings(parsed.connection, os.environ, DiskFiles())
    arguments: dict[str, Any] = {name: getattr(settings, name) for name in settings.__struct_fields__}
    return Admin(arguments.pop("name_servers"), **arguments)


NEW_QUEUES: Final = 8
"""Queues of a new topic on each broker."""


def require_topics(connection: Mapping[str, str], topics: Iterable[str]) -> None:
    """TopicNotFound for the first topic that does not exist. `connection` are connector options."""
    with admin_of(connection) as admin:
        for topic in topics:
            if not admin.topics.exists(topic):
                raise TopicNotFound(no_such_topic(topic, _names(admin)))


def _names(admin: Admin) -> list[str]:
    """All topics; an empty list for an account that may not list them."""
    try:
        return admin.topics.names()
    except PocketMQError:
        return []


def ensure_topics(connection: Mapping[str, str], topics: Iterable[str], *, queues: int = NEW_QUEUES) -> list[str]:
    """Create missing topics; returns their names. Rows can be written effectively once only to existing topics."""
    with admin_of(connection) as admin:
        made = [topic for topic in topics if not admin.topics.exists(topic)]
        for topic in made:
            admin.topics.create(topic, queues=queues)
    return made

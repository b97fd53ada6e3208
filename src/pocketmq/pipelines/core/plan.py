"""A dry run: what a pipeline would do, found out without Spark and without changing anything.

    options ─┐
    brokers ─┼─► Plan: from which queues it reads, from where to where, into what, and about how much and how long
    checkpoint ┘

Sizes are estimates by a look at some messages of each queue. Times are estimates by the rate that the pipeline is known to do on
two cores, which the plan names.

Questions that pipelines ask a cluster before Spark does: by the same options as the connector's.

Topics that a pipeline needs: those it reads must be there before Spark starts, those it writes are made when they are missing.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec

from pocketmq.client import Admin
from pocketmq.errors import PocketMQError, TopicNotFound
from pocketmq.files import DiskFiles, Files
from pocketmq.model.queue import MessageQueue, QueueRange
from pocketmq.pipelines.core.checkpoint import is_local, last_offset
from pocketmq.spark.options.read_options import ReadOptions, parse_read_options
from pocketmq.spark.read.batch_reader import batch_ranges
from pocketmq.spark.read.bounds import no_such_topic, queues_of, starting_offsets
from pocketmq.spark.read.metadata import ClientMetadata
from pocketmq.spark.shared_clients import READING, reading_settings

TYPICAL_MESSAGES_PER_S: Final = 100_000


class QueuePlan(msgspec.Struct, frozen=True, kw_only=True):
    """What would be read of a queue: messages `start` (included) to `end` (excluded)."""

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
    """What a pipeline would do."""

    pipeline: str
    source: str
    sink: str
    queues: tuple[QueuePlan, ...] = ()
    begins: str = ""
    """Where from, in words: a new checkpoint, or where the last run ended."""
    options: Mapping[str, str] = {}
    """What it would tell the connector, Spark and its sink. No secret is among them: options hold none."""
    notes: tuple[str, ...] = ()
    """What else somebody should know before."""
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
    """What a stream would read now, and the words for where it begins."""
    parsed = parse_read_options(options, streaming=True, environ=os.environ)
    before = last_offset(Path(checkpoint), files) if is_local(checkpoint) else None
    with READING.borrow(parsed.connection, parsed.idle_timeout_ms) as client:
        metadata = ClientMetadata.of(client, parsed)
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
        return planned, f"{parsed.starting_offsets}, unless the checkpoint, which only Spark can read, says otherwise"
    return planned, f"{parsed.starting_offsets}: the checkpoint is new"


def batch_queues(options: Mapping[str, str]) -> tuple[QueuePlan, ...]:
    """What a batch read with these options would read now."""
    parsed = parse_read_options(options, streaming=False, environ=os.environ)
    with READING.borrow(parsed.connection, parsed.idle_timeout_ms) as client:
        metadata = ClientMetadata.of(client, parsed)
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
def asking(options: Mapping[str, str]) -> Iterator[tuple[ReadOptions, ClientMetadata]]:
    """Facts about the queues of a batch read with these options."""
    parsed = parse_read_options(options, streaming=False, environ=os.environ)
    with READING.borrow(parsed.connection, parsed.idle_timeout_ms) as client:
        yield (
            parsed,
            ClientMetadata(
                client,
                retries=parsed.fetch_retries,
                retry_interval_ms=parsed.fetch_interval_ms,
                ttl_ms=parsed.metadata_ttl_ms,
            ),
        )


def known_queues(connection: Mapping[str, str], topics: Sequence[str]) -> list[MessageQueue]:
    """All queues of topics; TopicNotFound for one that is not there."""
    with asking({**connection, "subscribe": ",".join(topics)}) as (_, metadata):
        return sorted(queue for topic in topics for queue in metadata.queues(topic))


def ranges_of(options: Mapping[str, str]) -> list[QueueRange]:
    """What a batch read with these options reads if it is planned now."""
    with asking(options) as (parsed, metadata):
        return batch_ranges(parsed, metadata)


def admin_of(connection: Mapping[str, str]) -> Admin:
    """An administrator's client of the cluster that these options of the connector name."""
    parsed = parse_read_options({**connection, "subscribe": "any"}, streaming=False, environ=os.environ)
    settings = reading_settings(parsed.connection, os.environ, DiskFiles())
    given: dict[str, Any] = {name: getattr(settings, name) for name in settings.__struct_fields__}
    return Admin(given.pop("name_servers"), **given)


NEW_QUEUES: Final = 8
"""Of a topic that is made, on each broker."""


def require_topics(connection: Mapping[str, str], topics: Iterable[str]) -> None:
    """TopicNotFound for the first that does not exist. `connection` are options of the connector."""
    with admin_of(connection) as admin:
        for topic in topics:
            if not admin.topics.exists(topic):
                raise TopicNotFound(no_such_topic(topic, _names(admin)))


def _names(admin: Admin) -> list[str]:
    """All topics; none for an account that may not list them."""
    try:
        return admin.topics.names()
    except PocketMQError:
        return []


def ensure_topics(connection: Mapping[str, str], topics: Iterable[str], *, queues: int = NEW_QUEUES) -> list[str]:
    """Make those that do not exist; their names. Rows are written effectively once only to a topic that is there."""
    with admin_of(connection) as admin:
        made = [topic for topic in topics if not admin.topics.exists(topic)]
        for topic in made:
            admin.topics.create(topic, queues=queues)
    return made

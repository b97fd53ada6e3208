"""Metadata as rows: topics, queues, groups, losses and dead letters.

    topics         one row for each topic and broker
    queues         one row for each queue, with its offsets and times
    groups         one row for each group and queue, with its lag
    losses         one row for each range that a query lost, would lose now, or cannot read because its queue is missing
    dead-letters   one row for each message in a dead-letter topic

The driver reads all rows except dead letters, which may be many: tasks read those, by ranges. Spark calls `MetadataReader`.
"""

import re
from collections.abc import Callable, Coroutine, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
from pyspark.sql.datasource import DataSourceReader, InputPartition

from pocketmq.client.admin.dead_letters import DeadLetterAdmin, Letter
from pocketmq.client.admin.groups import GroupAdmin
from pocketmq.client.admin.lag import QueueLag, group_lag
from pocketmq.client.admin.topics import QueueState, TopicAdmin
from pocketmq.errors import InvalidSetting, TopicNotFound
from pocketmq.model import MessageQueue, properties
from pocketmq.spark.executors import SentToExecutors
from pocketmq.spark.options.metadata_options import MetadataOptions
from pocketmq.spark.python_processes import require_libraries, short_errors
from pocketmq.spark.read.bounds import no_such_topic
from pocketmq.spark.read.data_loss import QueueFacts, find_losses
from pocketmq.spark.read.metadata import ClientMetadata
from pocketmq.spark.read.offsets import Lost, QueryOffset, parse_offset, read_batch
from pocketmq.spark.shared_clients import READING, ReadingCore

MISSING: Final = "missing queue"
"""The cause of a range whose queue does not exist now. It is no loss if the queue returns."""
LETTERS_PER_PARTITION: Final = 5_000
Row = tuple[Any, ...]


class Field(NamedTuple):
    """A column: its type as Spark writes it, and its meaning."""

    name: str
    type: str
    meaning: str
    may_be_null: bool = False


_QUEUE: Final = (
    Field("topic", "string", "the topic"),
    Field("brokerName", "string", "the broker"),
    Field("queueId", "int", "the number of the queue at this broker"),
)

TABLES: Final[dict[str, tuple[Field, ...]]] = {
    "topics": (
        *_QUEUE[:2],
        Field("readQueues", "int", "queues that consumers read"),
        Field("writeQueues", "int", "queues that producers write"),
        Field("permission", "string", "R, W or RW"),
        Field("messages", "bigint", "messages at this broker; null if it did not answer", may_be_null=True),
        Field("lastStoreTimestamp", "timestamp", "when the newest message was stored", may_be_null=True),
    ),
    "queues": (
        *_QUEUE,
        Field("minOffset", "bigint", "the offset of the oldest message"),
        Field("maxOffset", "bigint", "the offset of the next message to be stored"),
        Field("messages", "bigint", "messages in the queue"),
        Field("firstStoreTimestamp", "timestamp", "when the oldest message was stored", may_be_null=True),
        Field("lastStoreTimestamp", "timestamp", "when the newest message was stored", may_be_null=True),
    ),
    "groups": (
        Field("group", "string", "the consumer group"),
        *_QUEUE,
        Field("committedOffset", "bigint", "the next message to consume", may_be_null=True),
        Field("minOffset", "bigint", "the offset of the oldest message", may_be_null=True),
        Field("maxOffset", "bigint", "the offset of the next message to be stored", may_be_null=True),
        Field("lag", "bigint", "messages that are not consumed", may_be_null=True),
        Field("lagMs", "bigint", "time since the oldest of them was stored, in milliseconds", may_be_null=True),
        Field("lost", "bigint", "messages that were deleted before the group consumed them"),
        Field("problem", "string", "why values are unknown", may_be_null=True),
    ),
    "losses": (
        *_QUEUE,
        Field("startOffset", "bigint", "the first offset of the range"),
        Field("endOffset", "bigint", "the end of the range, excluded; null if it is unknown", may_be_null=True),
        Field("messages", "bigint", "offsets in the range", may_be_null=True),
        Field("cause", "string", "retention, truncation, re-created topic, or missing queue"),
        Field("found", "string", "recorded: the query continued after it. now: the query would find it"),
    ),
    "dead-letters": (
        Field("group", "string", "the group that could not consume the message"),
        *_QUEUE[1:],
        Field("queueOffset", "bigint", "its offset in the dead-letter topic"),
        Field("topic", "string", "the topic that it was sent to"),
        Field("msgId", "string", "the producer's id, or else the broker's"),
        Field("reason", "string", "the reason that the consumer gave", may_be_null=True),
        Field("attempts", "int", "how often its consumption failed"),
        Field("deadTimestamp", "timestamp", "when it became a dead letter"),
        Field("keys", "string", "the keys, separated by blanks", may_be_null=True),
        Field("tags", "string", "the tag", may_be_null=True),
        Field("value", "binary", "the body"),
    ),
}


class LetterRange(msgspec.Struct, frozen=True):
    """The dead letters of one partition."""

    group: str
    queue: MessageQueue
    start: int
    end: int


def rows_of(options: MetadataOptions, metadata: ClientMetadata) -> list[Row]:
    """The rows of a kind that the driver reads."""
    if options.metadata == "losses":
        return _losses(options, metadata)
    queries: dict[str, Callable[[ReadingCore], Coroutine[Any, Any, list[Row]]]] = {
        "topics": lambda core: _topics(core, options),
        "queues": lambda core: _queues(core, options),
        "groups": lambda core: _groups(core, options),
    }
    return metadata.ask(queries[options.metadata])


async def _topics(core: ReadingCore, options: MetadataOptions) -> list[Row]:
    admin = TopicAdmin(core)
    configs = await admin.configs()
    names = await _wanted(admin, options)
    brokers = {topic: sorted(configs.get(topic, {})) for topic in names}
    states = await admin.queues_of_many(brokers)
    rows: list[Row] = []
    for topic in names:
        for broker in brokers[topic]:
            config = configs[topic][broker]
            queues = [state for state in states.get(topic, ()) if state.queue.broker_name == broker]
            messages = sum(state.messages for state in queues) if topic in states else None
            last_ms = max((state.last_store_ms for state in queues if state.last_store_ms is not None), default=None)
            permission = "".join(letter for letter, bit in (("R", 4), ("W", 2)) if config.perm & bit)
            rows.append(
                (topic, broker, config.read_queue_nums, config.write_queue_nums, permission, messages, _time(last_ms))
            )
    return rows


async def _queues(core: ReadingCore, options: MetadataOptions) -> list[Row]:
    admin, targets = TopicAdmin(core), core.targets
    tables = await targets.gather(await _wanted(admin, options), admin.queues)
    states: list[QueueState] = sorted((state for table in tables for state in table), key=lambda state: state.queue)

    async def first_ms(state: QueueState) -> int | None:
        found = await targets.brokers.offsets.earliest_store_ms(targets.wire_queue(state.queue))
        return found if found >= 0 else None

    firsts = await targets.gather(states, first_ms)
    return [
        (
            *_named(state.queue),
            state.min_offset,
            state.max_offset,
            state.messages,
            _time(first),
            _time(state.last_store_ms),
        )
        for state, first in zip(states, firsts, strict=True)
    ]


async def _groups(core: ReadingCore, options: MetadataOptions) -> list[Row]:
    targets = core.targets
    names = [options.group] if options.group is not None else await GroupAdmin(core).names()
    topics = None if options.topics is None and options.pattern is None else {*await _wanted(TopicAdmin(core), options)}
    lags = await targets.gather(names, lambda name: group_lag(targets, targets.group(name), None))
    return [
        (lag.group, *_lag(queue))
        for lag in lags
        for queue in sorted(lag.queues, key=lambda queue: queue.queue)
        if topics is None or queue.queue.topic in topics
    ]


def _lag(lag: QueueLag) -> Row:
    offsets = lag.committed, lag.min_offset, lag.max_offset
    return (*_named(lag.queue), *offsets, lag.messages, lag.time_ms, lag.lost, lag.problem or None)


async def _wanted(admin: TopicAdmin, options: MetadataOptions) -> list[str]:
    """The topics that the options choose. TopicNotFound for one that does not exist."""
    if options.topics is None and options.pattern is None:
        return await admin.names()
    known = await admin.names(everything=True)
    if options.pattern is not None:
        pattern = re.compile(options.pattern)
        return [topic for topic in known if pattern.fullmatch(topic)]
    for topic in options.topics or ():
        if topic not in known:
            raise TopicNotFound(no_such_topic(topic, known))
    return sorted(options.topics or ())


def _losses(options: MetadataOptions, metadata: ClientMetadata) -> list[Row]:
    offsets = _offsets(options)
    recorded = dict.fromkeys(lost for offset in offsets for lost in offset.lost)
    newest = offsets[-1]
    present: set[MessageQueue] = set()
    for topic in sorted({queue.topic for queue in newest.queues}):
        try:
            present.update(metadata.queues(topic))
        except TopicNotFound:
            continue
    known = {queue: offset for queue, offset in newest.queues.items() if queue in present}
    oldest = metadata.earliest_store_ms(list(known))
    facts = {queue: QueueFacts(bounds, oldest[queue]) for queue, bounds in metadata.bounds(list(known)).items()}
    rows = [_loss(lost, "recorded") for lost in recorded]
    rows += [_loss(lost, "now") for lost in find_losses(known, facts, newest.seen_ms)]
    missing = sorted(newest.queues.keys() - present)
    return rows + [(*_named(queue), newest.queues[queue], None, None, MISSING, "now") for queue in missing]


def _offsets(options: MetadataOptions) -> list[QueryOffset]:
    if options.batch_file is not None:
        try:
            return [read_batch(Path(options.batch_file)).end]
        except (OSError, msgspec.DecodeError, KeyError, TypeError) as error:
            raise InvalidSetting(f"the option batchFile: cannot read {options.batch_file}: {error}") from None
    found = [parse_offset(fields) for fields in options.offsets or ()]
    offsets = [offset for offset in found if offset is not None]
    if not offsets:
        raise InvalidSetting("the option offset: the query has not read anything yet")
    return offsets


def _loss(lost: Lost, found: str) -> Row:
    range_ = lost.range
    return (*_named(range_.queue), range_.start, range_.end, len(range_), lost.cause.value, found)


def letter_ranges(options: MetadataOptions, metadata: ClientMetadata) -> list[LetterRange]:
    """The dead letters of the groups that the options choose, in parts for tasks."""

    async def query(core: ReadingCore) -> list[LetterRange]:
        admin = DeadLetterAdmin(core)
        groups = [options.group] if options.group is not None else sorted(await admin.counts())
        found = await core.targets.gather(groups, admin.ranges)
        return [
            LetterRange(group, core.targets.shown_queue(queue), start, min(end, start + LETTERS_PER_PARTITION))
            for group, ranges in zip(groups, found, strict=True)
            for queue, begin, end in ranges
            for start in range(begin, end, LETTERS_PER_PARTITION)
        ]

    return metadata.ask(query)


def letters_in(part: LetterRange, metadata: ClientMetadata) -> list[Row]:
    """The rows of a task. Letters that retention deleted since are left out."""
    found = metadata.ask(lambda core: DeadLetterAdmin(core).in_queue(part.group, part.queue, part.start, part.end))
    return [_letter(letter) for letter in found]


def _letter(letter: Letter) -> Row:
    message = letter.message
    keys = message.properties.get(properties.KEYS)
    where = letter.queue.broker_name, letter.queue.queue_id, message.queue_offset
    how = letter.reason, letter.attempts, _time(letter.died_ms)
    return (letter.group, *where, letter.topic, letter.original_id, *how, keys, message.tags, message.body)


def _named(queue: MessageQueue) -> tuple[str, str, int]:
    return queue.topic, queue.broker_name, queue.queue_id


def _time(ms: int | None) -> datetime | None:
    return None if ms is None else datetime.fromtimestamp(ms / 1000, UTC)


def names_of_kind(kind: str) -> Sequence[str]:
    return [field.name for field in TABLES[kind]]


class MetadataReader(SentToExecutors, DataSourceReader):
    """Spark sends it to executors. `columns` are those of the kind that the schema names, in its order."""

    def __init__(self, options: MetadataOptions, columns: Sequence[str]) -> None:
        self._options = options
        self._positions = [names_of_kind(options.metadata).index(name) for name in columns]

    @short_errors()
    def partitions(self) -> Sequence[InputPartition]:
        require_libraries()
        if self._options.metadata == "dead-letters":
            return [InputPartition(part) for part in self._answer(letter_ranges)]
        return [InputPartition(self._answer(rows_of))]

    @short_errors()
    def read(self, partition: InputPartition | None) -> Iterator[Any]:
        """Without partitions, Spark reads one without a value, and PySpark 4.0 reads None."""
        rows = (None if partition is None else partition.value) or []
        if isinstance(rows, LetterRange):
            part = rows
            rows = self._answer(lambda _, metadata: letters_in(part, metadata))
        return iter([tuple(row[position] for position in self._positions) for row in rows])

    def _answer(self, query: Any) -> Any:
        options = self._options
        with READING.borrow(options.connection, options.idle_timeout_ms) as client:
            metadata = ClientMetadata(
                client,
                retries=options.fetch_retries,
                retry_interval_ms=options.fetch_interval_ms,
                ttl_ms=options.metadata_ttl_ms,
            )
            return query(options, metadata)

"""DataFrames to topics: tasks send, and the driver notes that a batch is written.

    task    batches of rows ── messages ── not there yet? ── sent, all answered ──► its topics
    driver  commit ── where the next batch has to look

A failed send fails its task. What it wrote stays in the topic: with effectively-once the next attempt finds it there.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import repeat
from typing import Any

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from pocketmq.errors import InvalidMessage, UsageError, WrongState
from pocketmq.model.message import Message
from pocketmq.model.properties import DELAY, TIMER_DELIVER_MS
from pocketmq.spark.kept_memory import keep_memory
from pocketmq.spark.sink_batches import PlainRows
from pocketmq.spark.sink_connections import SENDING
from pocketmq.spark.sink_ids import Replay, RowIds, row_head
from pocketmq.spark.sink_progress import SinkProgress
from pocketmq.spark.sink_rows import SinkRows
from pocketmq.spark.sink_search import IDLE_TIMEOUT_MS, borrow_metadata
from pocketmq.spark.sink_sending import Sends
from pocketmq.spark.write_options import WriteOptions

BATCH_ID_PROPERTY = "streaming.sql.batchId"
QUERY_ID_PROPERTY = "sql.streaming.queryId"
"""What Spark tells a task of its query; the id stays the same when the query is started again from its checkpoint."""


@dataclasses.dataclass
class RowsWritten(WriterCommitMessage):
    """What a task did, for the driver."""

    query_id: str
    topics: tuple[str, ...]


class TopicWriter(DataSourceArrowWriter):
    """A batch write."""

    def __init__(self, options: WriteOptions, *, overwrite: bool) -> None:
        if overwrite:
            raise UsageError("a topic cannot be overwritten: write with mode append")
        self._options = options

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return write_rows(iterator, self._options, self._options.write_id or "", self._options.write_batch or 0)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Writes that are numbered look only behind the one before; a single one is not followed by another."""
        if self._options.write_batch is not None:
            note_end(self._options, messages, self._options.write_batch)


class TopicStreamWriter(DataSourceStreamArrowWriter):
    """A streaming write."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        task = _task()
        query_id, batch_id = task.getLocalProperty(QUERY_ID_PROPERTY), task.getLocalProperty(BATCH_ID_PROPERTY)
        if query_id is None or batch_id is None:
            raise WrongState("Spark does not tell which query and batch a task belongs to; is this a streaming write?")
        return write_rows(iterator, self._options, query_id, int(batch_id))

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        note_end(self._options, messages, batchId)


def note_end(options: WriteOptions, messages: Sequence[WriterCommitMessage | None], batch_id: int) -> None:
    """All tasks have written: the next batch need not look before this place."""
    told = [message for message in messages if isinstance(message, RowsWritten)]
    if not options.is_effectively_once or not told:
        return
    topics = {topic for message in told for topic in message.topics}
    if options.topic is not None:
        topics.add(options.topic)
    with ExitStack() as lease:
        SinkProgress(options, told[0].query_id, borrow_metadata(options.connection, lease)).finish(topics, batch_id)


def write_rows(batches: Iterator[Any], options: WriteOptions, query_id: str, batch_id: int) -> RowsWritten:
    """What a task does: send all rows of its partition that are not in their topic yet."""
    keep_memory()
    with ExitStack() as lease:
        client = lease.enter_context(SENDING.borrow(options, IDLE_TIMEOUT_MS))
        metadata = borrow_metadata(options.connection, lease)
        sends = Sends(client.core(), options, client.submit, metadata.queues)
        replays = Replays(SinkProgress(options, query_id, metadata), query_id, batch_id, _task().partitionId())
        topics: set[str] = set()
        rows: SinkRows | None = None
        try:
            for batch in batches:
                if rows is None:
                    drops = options.reserved_properties == "drop"
                    rows = SinkRows(batch.schema, topic=options.topic, drop_reserved=drops)
                plain = rows.plain(batch, sends.alone_from_bytes)
                if plain is not None:
                    topics.add(plain.topic)
                    sends.add_rows(replays.missing_rows(plain) if options.is_effectively_once else plain)
                    continue
                messages = rows.messages(batch)
                topics.update(message.topic for message in messages)
                sends.add(replays.missing(messages) if options.is_effectively_once else messages)
            sends.finish()
            replays.check_complete()
        except BaseException:
            sends.abandon()
            raise
    return RowsWritten(query_id, tuple(sorted(topics)))


class Replays:
    """What of a partition is in its topics already: each is looked through before the first row is sent to it."""

    def __init__(self, progress: SinkProgress, query_id: str, batch_id: int, partition: int) -> None:
        self._progress = progress
        self._query = query_id, batch_id, partition
        self._of_topic: dict[str, Replay] = {}

    def missing(self, messages: Sequence[Message]) -> list[Message]:
        """Those that have to be sent, each with its id."""
        found = []
        topic, replay = "", None
        for message in messages:
            if DELAY in message.properties or TIMER_DELIVER_MS in message.properties:
                raise InvalidMessage(
                    "a row with delayLevel or deliverAt is not in its topic until it is due, so a replay would write it "
                    "again: set deliveryGuarantee = at-least-once for such rows"
                )
            if replay is None or message.topic != topic:
                topic, replay = message.topic, self._replay(message.topic)
            if replay.admit(message):
                found.append(message)
        return found

    def missing_rows(self, rows: PlainRows) -> PlainRows:
        """The same for rows that share batches."""
        replay = self._replay(rows.topic)
        own = repeat({}, len(rows)) if rows.own is None else rows.own
        head = row_head(rows.topic, {})
        ids = [
            replay.new_id(row_head(rows.topic, each) if each else head, body)
            for body, each in zip(rows.bodies, own, strict=True)
        ]
        new = [row_id for row_id in ids if row_id is not None]
        if len(new) == len(rows):
            return PlainRows(rows.topic, rows.bodies, rows.own, new)
        kept = [place for place, row_id in enumerate(ids) if row_id is not None]
        said = None if rows.own is None else [rows.own[place] for place in kept]
        return PlainRows(rows.topic, [rows.bodies[place] for place in kept], said, new)

    def check_complete(self) -> None:
        """WrongState when rows are there that the partition does not have now."""
        for replay in self._of_topic.values():
            replay.check_complete()

    def _replay(self, topic: str) -> Replay:
        replay = self._of_topic.get(topic)
        if replay is None:
            ids = RowIds(*self._query)
            ranges = self._progress.ranges(topic, self._query[1])
            replay = self._of_topic[topic] = Replay(ids, self._progress.row_ids(ranges, ids.prefix))
        return replay


def _task() -> TaskContext:
    task = TaskContext.get()
    assert task is not None, "rows are written by a task"
    return task

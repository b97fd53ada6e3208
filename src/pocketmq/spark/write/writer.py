"""Writes as Spark calls them: tasks send rows, and the driver commits the batch.

    task    batches of rows ── messages ── new ones are sent, all results received ──► its topics          `sink_task`
    driver  commit ── the offsets from which the next batch searches

A failed send fails its task. Its messages stay in the topic; with effectively-once the next attempt finds them there.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    WriterCommitMessage,
)

from pocketmq.errors import UsageError, WrongState
from pocketmq.spark.executors import SentToExecutors
from pocketmq.spark.options.write_options import WriteOptions
from pocketmq.spark.pyspark_versions import DataSourceStreamArrowWriter
from pocketmq.spark.python_processes import short_errors

BATCH_ID_PROPERTY = "streaming.sql.batchId"
QUERY_ID_PROPERTY = "sql.streaming.queryId"
"""Spark's properties of a task; the query id stays the same when the query restarts from its checkpoint."""
RUN_ID_PROPERTY = "spark.jobGroup.id"
"""Changes with each start of a query. A failed batch ends its query, so only the first batch of a run may be a replay."""


@dataclasses.dataclass
class RowsWritten(WriterCommitMessage):
    """The result of a task, for the driver."""

    query_id: str
    topics: tuple[str, ...]


class TopicWriter(SentToExecutors, DataSourceArrowWriter):
    """A batch write."""

    def __init__(self, options: WriteOptions, *, overwrite: bool) -> None:
        if overwrite:
            raise UsageError("a topic cannot be overwritten; write with mode append")
        self._options = options

    @short_errors()
    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return _write(iterator, self._options, self._options.write_id or "", self._options.write_batch or 0)

    @short_errors()
    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """A numbered write searches from the end of the one before; a single write needs no commit."""
        if self._options.write_batch is not None:
            _commit_end(self._options, messages, self._options.write_batch)


class TopicStreamWriter(SentToExecutors, DataSourceStreamArrowWriter):
    """A streaming write."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    @short_errors()
    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        task = _task()
        query_id, batch_id = task.getLocalProperty(QUERY_ID_PROPERTY), task.getLocalProperty(BATCH_ID_PROPERTY)
        if query_id is None or batch_id is None:
            raise WrongState(
                "Spark did not pass the query and batch of the task; use writeStream for a streaming write"
            )
        return _write(iterator, self._options, query_id, int(batch_id), task.getLocalProperty(RUN_ID_PROPERTY))

    @short_errors()
    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        _commit_end(self._options, messages, batchId)


def _write(
    batches: Iterator[Any], options: WriteOptions, query_id: str, batch_id: int, launch: str | None = None
) -> RowsWritten:
    """A batch write is a launch of its own, also in `foreachBatch`, which may repeat a failed one."""
    from pocketmq.spark.write.sink_task import write_rows

    task = _task()
    written = write_rows(
        batches,
        options,
        query_id,
        batch_id,
        task.partitionId(),
        task.attemptNumber(),
        launch or f"stage {task.stageId()}",
    )
    return RowsWritten(query_id, written)


def _commit_end(options: WriteOptions, messages: Sequence[WriterCommitMessage | None], batch_id: int) -> None:
    from pocketmq.spark.write.sink_task import commit_end

    written = [message for message in messages if isinstance(message, RowsWritten)]
    if not options.is_effectively_once or not written:
        return
    topics = {topic for message in written for topic in message.topics}
    if options.topic is not None:
        topics.add(options.topic)
    commit_end(options, written[0].query_id, topics, batch_id)


def _task() -> TaskContext:
    task = TaskContext.get()
    assert task is not None, "rows are written by a task"
    return task

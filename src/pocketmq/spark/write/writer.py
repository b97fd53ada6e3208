"""DataFrames to topics: tasks send, and the driver notes that a batch is written.

    task    batches of rows ── messages ── not there yet? ── sent, all answered ──► its topics          `sink_task`
    driver  commit ── where the next batch has to look

A failed send fails its task. What it wrote stays in the topic: with effectively-once the next attempt finds it there.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from pocketmq.errors import UsageError, WrongState
from pocketmq.spark.options.write_options import WriteOptions
from pocketmq.spark.python_processes import short_errors

BATCH_ID_PROPERTY = "streaming.sql.batchId"
QUERY_ID_PROPERTY = "sql.streaming.queryId"
"""What Spark tells a task of its query; the id stays the same when the query is started again from its checkpoint."""
RUN_ID_PROPERTY = "spark.jobGroup.id"
"""Another one each time a query is started. A batch that fails ends its query, so all but the first of a run are new."""


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

    @short_errors()
    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return _write(iterator, self._options, self._options.write_id or "", self._options.write_batch or 0)

    @short_errors()
    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Writes that are numbered look only behind the one before; a single one is not followed by another."""
        if self._options.write_batch is not None:
            _note_end(self._options, messages, self._options.write_batch)


class TopicStreamWriter(DataSourceStreamArrowWriter):
    """A streaming write."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    @short_errors()
    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        task = _task()
        query_id, batch_id = task.getLocalProperty(QUERY_ID_PROPERTY), task.getLocalProperty(BATCH_ID_PROPERTY)
        if query_id is None or batch_id is None:
            raise WrongState("Spark does not tell which query and batch a task belongs to; is this a streaming write?")
        return _write(iterator, self._options, query_id, int(batch_id), task.getLocalProperty(RUN_ID_PROPERTY))

    @short_errors()
    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        _note_end(self._options, messages, batchId)


def _write(
    batches: Iterator[Any], options: WriteOptions, query_id: str, batch_id: int, launch: str | None = None
) -> RowsWritten:
    """A write is a launch by itself, also in `foreachBatch`, where somebody may try a failed one again."""
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


def _note_end(options: WriteOptions, messages: Sequence[WriterCommitMessage | None], batch_id: int) -> None:
    from pocketmq.spark.write.sink_task import note_end

    told = [message for message in messages if isinstance(message, RowsWritten)]
    if not options.is_effectively_once or not told:
        return
    topics = {topic for message in told for topic in message.topics}
    if options.topic is not None:
        topics.add(options.topic)
    note_end(options, told[0].query_id, topics, batch_id)


def _task() -> TaskContext:
    task = TaskContext.get()
    assert task is not None, "rows are written by a task"
    return task

"""A batch read: Spark plans its ranges once and assigns them to tasks."""

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from pocketmq.model import MessageQueue, QueueRange
from pocketmq.spark.options.read_options import ReadOptions
from pocketmq.spark.python_processes import keep_memory, require_libraries, short_errors
from pocketmq.spark.read.bounds import batch_ranges
from pocketmq.spark.read.metadata import ClientMetadata, borrowed_metadata
from pocketmq.spark.read.planning import plan_partitions
from pocketmq.spark.read.pushdown import Pushed, narrowed, split_filters
from pocketmq.spark.schema import NULLS_ANYWHERE, Name, NeverNull


class TopicReader(DataSourceReader):
    """Spark sends it to executors, so it holds only what the read requested."""

    def __init__(self, options: ReadOptions, columns: Sequence[Name], never_null: NeverNull = NULLS_ANYWHERE) -> None:
        self._options = options
        self._columns = tuple(columns)
        self._never_null = never_null
        self._pushed = Pushed()

    @short_errors()
    def partitions(self) -> Sequence[InputPartition]:
        require_libraries()
        keep_memory()
        options = self._options
        with borrowed_metadata(options) as metadata:
            ranges = narrowed(batch_ranges(options, metadata), self._pushed, metadata)
            sizes = sizes_of_topics(ranges, options, metadata)
        planned = plan_partitions(
            ranges,
            self._columns,
            options,
            cores=os.cpu_count() or 1,
            bytes_per_message=sizes,
            pushed_tags=self._pushed.tag_expression,
        )
        return [InputPartition(one) for one in planned]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Without partitions, Spark reads one without a value."""
        from pocketmq.spark.read.range_reading import read_partition

        return iter(()) if partition.value is None else read_partition(partition.value, self._never_null)


class FilteringTopicReader(TopicReader):
    """Also accepts filters. A class of its own, because Spark refuses such a reader unless pushing filters is enabled."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        options = self._options
        has_none = options.filter_tags is None and options.filter_sql is None
        self._pushed, remaining = split_filters(filters, can_filter_tags=has_none)
        return remaining


def sizes_of_topics(
    ranges: Sequence[QueueRange], options: ReadOptions, metadata: ClientMetadata
) -> dict[MessageQueue, int]:
    """The average message size by queue, if several topics are read: their sizes may differ a hundredfold. The queues of one
    topic are much alike, and are not sampled.
    """
    if len({part.queue.topic for part in ranges}) < 2:
        return {}
    return metadata.bytes_per_message(options.pull_group, {part.queue: part.start for part in ranges})

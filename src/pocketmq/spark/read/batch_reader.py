"""A batch read: Spark plans its ranges once and assigns them to tasks."""

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, InputPartition

from pocketmq.spark.executors import SentToExecutors
from pocketmq.spark.options.read_options import ReadOptions
from pocketmq.spark.python_processes import keep_memory, require_libraries, short_errors
from pocketmq.spark.read.batch_plan import plan_batch
from pocketmq.spark.read.metadata import borrowed_metadata
from pocketmq.spark.read.pushdown import can_filter_tags, split_filters
from pocketmq.spark.schema import NULLS_ANYWHERE, Name, NeverNull

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter  # since PySpark 4.1


class TopicReader(SentToExecutors, DataSourceReader):
    """Spark sends it to executors, so it holds only what the read requested."""

    def __init__(self, options: ReadOptions, columns: Sequence[Name], never_null: NeverNull = NULLS_ANYWHERE) -> None:
        self._options = options
        self._columns = tuple(columns)
        self._never_null = never_null
        self._offered: list[Filter] = []

    @short_errors()
    def partitions(self) -> Sequence[InputPartition]:
        require_libraries()
        keep_memory()
        options = self._options
        with borrowed_metadata(options) as metadata:
            planned = plan_batch(options, self._columns, metadata, cores=os.cpu_count() or 1, offered=self._offered)
        return [InputPartition(one) for one in planned]

    @short_errors()
    def read(self, partition: InputPartition | None) -> Iterator[Any]:
        """Without partitions, Spark reads one without a value, and PySpark 4.0 reads None."""
        from pocketmq.spark.read.range_reading import read_partition

        return (
            iter(())
            if partition is None or partition.value is None
            else read_partition(partition.value, self._never_null)
        )


class FilteringTopicReader(TopicReader):
    """Also accepts the filters of the query; only for a process that `takes_filters`."""

    def pushFilters(self, filters: "list[Filter]") -> "Iterable[Filter]":  # noqa: N802
        self._offered = list(filters)
        return split_filters(self._offered, can_filter_tags=can_filter_tags(self._options)).remaining

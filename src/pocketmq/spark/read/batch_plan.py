"""The plan of a batch: its ranges, what filters leave of them, and its partitions."""

from collections.abc import Sequence
from typing import Any

from pocketmq.model import MessageQueue, QueueRange
from pocketmq.spark.options.read_options import ReadOptions
from pocketmq.spark.read.bounds import batch_ranges
from pocketmq.spark.read.metadata import ClientMetadata
from pocketmq.spark.read.planning import ReadPartition, plan_partitions
from pocketmq.spark.read.pushdown import narrowed, planned_filter
from pocketmq.spark.schema import Name


def plan_batch(
    options: ReadOptions, columns: Sequence[Name], metadata: ClientMetadata, *, cores: int, offered: Sequence[Any] = ()
) -> list[ReadPartition]:
    """The partitions of a batch. `offered` are the filters of the query that Spark offers."""
    whole = batch_ranges(options, metadata)
    plan = planned_filter(options, offered, [part.queue for part in whole], metadata)
    ranges = narrowed(whole, plan.pushed, metadata)
    sizes = sizes_of_topics(ranges, options, metadata)
    return plan_partitions(ranges, columns, options, cores=cores, bytes_per_message=sizes, plan=plan)


def sizes_of_topics(
    ranges: Sequence[QueueRange], options: ReadOptions, metadata: ClientMetadata
) -> dict[MessageQueue, int]:
    """The average message size by queue, if several topics are read: their sizes may differ a hundredfold. The queues of one
    topic are much alike, and are not sampled.
    """
    if len({part.queue.topic for part in ranges}) < 2:
        return {}
    return metadata.bytes_per_message(options.pull_group, {part.queue: part.start for part in ranges})

"""Ranges of queues become partitions of about the same weight.

    queue 0 ├──────────────────────────┤ queue 1 ├──┤ queue 2 ├───┤        laid end to end, by weight
            ├────────── p0 ──────────┤├──────── p1 ────────────────┤       cut into equal lengths

A hot queue is cut where it must be, small ones share a partition, and no partition is much larger than another. The same
ranges and numbers always give the same partitions, in the same order: a batch that is run again is the same batch.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from pocketmq.errors import InvalidSetting
from pocketmq.model.queue import MessageQueue, QueueRange
from pocketmq.model.subscription import Subscription
from pocketmq.spark.options.connection_options import Connection
from pocketmq.spark.options.read_options import ReadOptions, wanted_of
from pocketmq.spark.schema import Name

MAX_PARTITIONS: Final = 100_000


class ReadPartition(msgspec.Struct, frozen=True):
    """What one task reads, with everything that it needs for it: the process that runs it knows nothing else."""

    slices: tuple[QueueRange, ...]
    columns: tuple[Name, ...]
    connection: Connection
    group: str
    filter_tags: str | None
    filter_sql: str | None
    pull_messages: int
    pull_bytes: int
    buffer_bytes: int
    check_crc: bool
    poll_timeout_ms: int
    idle_timeout_ms: int
    on_data_loss: str

    def __len__(self) -> int:
        return sum(map(len, self.slices))

    @property
    def needs_only_bodies(self) -> bool:
        """Whether brokers may leave out all else. Messages that are filtered are told by their offsets."""
        return self.columns == (Name.VALUE,) and not self.check_crc and self.subscription("any").takes_all

    def subscription(self, topic: str) -> Subscription:
        """What is wanted of a topic."""
        return wanted_of(topic, self.filter_tags, self.filter_sql)


def plan_partitions(
    ranges: Sequence[QueueRange],
    columns: Sequence[Name],
    options: ReadOptions,
    *,
    cores: int,
    count: int | None = None,
    bytes_per_message: Mapping[MessageQueue, int] | None = None,
    pushed_tags: str | None = None,
) -> list[ReadPartition]:
    """The partitions of a read. `cores` bounds their number unless options say otherwise; `count` is what it was when the same was
    planned before.

    `pushed_tags` is the expression of a filter of the query that brokers apply; it can only be if no option has one.
    """
    if count is None:
        count = partition_count(sum(map(len, ranges)), options, cores)
    # A bound on messages is kept only if messages are what is shared out evenly.
    weights = {} if options.max_records_per_partition is not None else bytes_per_message or {}
    tags = pushed_tags if pushed_tags is not None else options.filter_tags
    return [_partition(slices, tuple(columns), tags, options) for slices in cut_evenly(ranges, count, weights)]


def partition_count(total: int, options: ReadOptions, cores: int) -> int:
    """How many partitions so many messages are read in."""
    count = options.max_partitions or max(1, cores, options.min_partitions or 0)
    if options.max_records_per_partition is not None:
        count = max(count, -(-total // options.max_records_per_partition))
    if min(count, total) > MAX_PARTITIONS:
        raise InvalidSetting(
            f"maxRecordsPerPartition = {options.max_records_per_partition} would make {count} partitions of {total} messages; "
            f"at most {MAX_PARTITIONS} can be"
        )
    return min(count, total)


def cut_evenly(
    ranges: Sequence[QueueRange], count: int, weights: Mapping[MessageQueue, int]
) -> list[tuple[QueueRange, ...]]:
    """`ranges` in at most `count` groups of about the same weight; a queue that no weight is known of weighs 1 a message."""
    in_order = sorted(wanted for wanted in ranges if len(wanted))
    total = sum(len(wanted) * max(1, weights.get(wanted.queue, 1)) for wanted in in_order)
    groups: list[list[QueueRange]] = [[] for _ in range(count)]
    done = 0
    for wanted in in_order:
        weight = max(1, weights.get(wanted.queue, 1))
        start = wanted.start
        while start < wanted.end:
            number = min(done * count // total, count - 1)
            # The first message whose weight lies beyond the next cut; what the cut falls into stays on this side.
            room = -(-((number + 1) * total - done * count) // (count * weight))
            end = wanted.end if number == count - 1 else min(wanted.end, start + max(1, room))
            groups[number].append(QueueRange(wanted.queue, start, end))
            done += (end - start) * weight
            start = end
    return [tuple(group) for group in groups if group]


def _partition(
    slices: tuple[QueueRange, ...], columns: tuple[Name, ...], tags: str | None, options: ReadOptions
) -> ReadPartition:
    return ReadPartition(
        slices,
        columns,
        options.connection,
        options.pull_group,
        tags,
        options.filter_sql,
        options.pull_messages,
        options.pull_bytes,
        options.buffer_bytes,
        options.check_crc,
        options.poll_timeout_ms,
        options.idle_timeout_ms,
        options.on_data_loss,
    )

"""Ranges of queues become partitions of about the same weight.

    queue 0 ├──────────────────────────┤ queue 1 ├──┤ queue 2 ├───┤        laid end to end, by weight
            ├────────── p0 ──────────┤├──────── p1 ────────────────┤       cut into equal lengths

A large range is cut, small ones share a partition, and no partition is much larger than another. The same ranges and numbers
always give the same partitions, in the same order, so a batch that is run again has the same partitions.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from pocketmq.errors import InvalidSetting
from pocketmq.model import SCHEDULE_TOPIC, MessageQueue, QueueRange, Subscription
from pocketmq.spark.filters.conditions import Condition
from pocketmq.spark.options.connection_options import Connection
from pocketmq.spark.options.read_options import ReadOptions, subscription_of
from pocketmq.spark.read.pushdown import FilterPlan
from pocketmq.spark.schema import Name

MAX_PARTITIONS: Final = 100_000


class ReadPartition(msgspec.Struct, frozen=True):
    """The input of one task. It is complete: the process that runs the task knows nothing else."""

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
    condition: Condition | None = None
    """What the task applies itself, besides tags. It includes `filter_sql`, if that comes from the option `filter`."""

    def __len__(self) -> int:
        return sum(map(len, self.slices))

    @property
    def needs_only_bodies(self) -> bool:
        """Whether brokers may omit all but the bodies. Filtered messages need their offsets."""
        is_filtered = self.condition is not None or not self.subscription("any").matches_all
        return self.columns == (Name.VALUE,) and not self.check_crc and not is_filtered

    def subscription(self, topic: str) -> Subscription:
        """What brokers filter a topic by: SQL92, or else tags."""
        if self.filter_sql is None:
            return self.subscription_without_sql(topic)
        return subscription_of(topic, None, self.filter_sql)

    def subscription_without_sql(self, topic: str) -> Subscription:
        """By tags, or all messages. Entries of delayed messages have a time instead of the hash of a tag: a broker that compares
        tags finds none of them.
        """
        return subscription_of(topic, None if topic == SCHEDULE_TOPIC else self.filter_tags, None)

    @property
    def tags(self) -> tuple[str, ...]:
        """The tags of the messages to keep; empty for all. Brokers compare only the hashes of tags, if at all."""
        return subscription_of("any", self.filter_tags, None).tags_set


def plan_partitions(
    ranges: Sequence[QueueRange],
    columns: Sequence[Name],
    options: ReadOptions,
    *,
    cores: int,
    count: int | None = None,
    bytes_per_message: Mapping[MessageQueue, int] | None = None,
    plan: FilterPlan | None = None,
) -> list[ReadPartition]:
    """The partitions of a read. `cores` is the default number of partitions; `count` is their number when the same batch was planned
    before. Without a `plan`, tasks apply the whole option `filter`.
    """
    if count is None:
        count = partition_count(sum(map(len, ranges)), options, cores)
    # A limit of messages per partition holds only if partitions have equal numbers of messages.
    weights = {} if options.max_records_per_partition is not None else bytes_per_message or {}
    plan = plan or FilterPlan(tags=options.filter_tags, sql=options.filter_sql, condition=options.filter)
    return [_partition(slices, tuple(columns), plan, options) for slices in cut_evenly(ranges, count, weights)]


def partition_count(total: int, options: ReadOptions, cores: int) -> int:
    """The number of partitions for `total` messages."""
    count = options.max_partitions or max(1, cores, options.min_partitions or 0)
    if options.max_records_per_partition is not None:
        count = max(count, -(-total // options.max_records_per_partition))
    if min(count, total) > MAX_PARTITIONS:
        raise InvalidSetting(
            f"maxRecordsPerPartition = {options.max_records_per_partition} would make {count} partitions of {total} messages; "
            f"the limit is {MAX_PARTITIONS} partitions"
        )
    return min(count, total)


def cut_evenly(
    ranges: Sequence[QueueRange], count: int, weights: Mapping[MessageQueue, int]
) -> list[tuple[QueueRange, ...]]:
    """`ranges` in at most `count` groups of about the same weight; the default weight is 1 per message."""
    in_order = sorted(wanted for wanted in ranges if len(wanted))
    total = sum(len(wanted) * max(1, weights.get(wanted.queue, 1)) for wanted in in_order)
    groups: list[list[QueueRange]] = [[] for _ in range(count)]
    done = 0
    for wanted in in_order:
        weight = max(1, weights.get(wanted.queue, 1))
        start = wanted.start
        while start < wanted.end:
            number = min(done * count // total, count - 1)
            # The first message beyond the next cut; the message at the cut stays on this side.
            size = -(-((number + 1) * total - done * count) // (count * weight))
            end = wanted.end if number == count - 1 else min(wanted.end, start + max(1, size))
            groups[number].append(QueueRange(wanted.queue, start, end))
            done += (end - start) * weight
            start = end
    return [tuple(group) for group in groups if group]


def _partition(
    slices: tuple[QueueRange, ...], columns: tuple[Name, ...], plan: FilterPlan, options: ReadOptions
) -> ReadPartition:
    return ReadPartition(
        slices,
        columns,
        options.connection,
        options.pull_group,
        plan.tags,
        plan.sql,
        options.pull_messages,
        options.pull_bytes,
        options.buffer_bytes,
        options.check_crc,
        options.poll_timeout_ms,
        options.idle_timeout_ms,
        options.on_data_loss,
        plan.condition,
    )

"""The driver of a streaming read: the end of the next batch, lost messages, messages that expire soon, published offsets.

    latestOffset(start) ─► queues ── publish `start` ── bounds ── losses ── expiry ── limits ─► the end of the batch

Its state only saves requests and repeated log lines. `stream_reader` calls it.

A micro-batch takes nothing yet, an allocation of the backlog, or all of it:

    offsets ──► latest        the backlog by queue
        └─────► end           at most maxOffsetsPerTrigger messages and maxBytesPerTrigger bytes, in proportion to the backlog

The allocations add up to the limit exactly, so a batch is never larger. Every queue with a backlog gets at least one message, if
the limit suffices, so no queue starves. If the limit is below the number of queues, they rotate.

The offsets of a query are published as those of a consumer group, so that tools that show lag see the query. The checkpoint is
the truth, and the group only mirrors it: a failure is logged and never stops the query. Spark commits a batch while it plans the
one after the next, and never the last one. But when Spark requests new messages after an offset, all before it is done.
"""

import logging
import os
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from pocketmq.clock import SystemClock
from pocketmq.errors import PocketMQError, TopicNotFound
from pocketmq.model import MessageQueue, QueueRange
from pocketmq.spark.broker_facts import Bounds
from pocketmq.spark.options.read_options import ReadOptions
from pocketmq.spark.read.bounds import check_checkpoint, present_queues, queues_of, starting_offsets
from pocketmq.spark.read.data_loss import LastMessages, MissingQueues, OldestMessages, QueueFacts, find_losses, settle
from pocketmq.spark.read.metadata import ClientMetadata, borrowed_metadata
from pocketmq.spark.read.offsets import (
    Cause,
    Lost,
    QueryOffset,
    QueueOffsets,
    backlog,
    next_offset,
    queue_changes,
    ranges_between,
)
from pocketmq.spark.read.planning import partition_count
from pocketmq.spark.read.pushdown import FilterPlan, planned_filter
from pocketmq.spark.read.source_progress import description_of, metrics_of
from pocketmq.spark.read.stream_health import Outage, RetentionWatch


class Limits(msgspec.Struct, frozen=True):
    """Limits for a query's batches; None if unlimited."""

    max_offsets: int | None = None
    max_bytes: int | None = None
    min_offsets: int | None = None
    max_delay_ms: int = 900_000

    def without_minimum(self) -> "Limits":
        """For a run that ends when all is read (AvailableNow): any backlog is enough."""
        return msgspec.structs.replace(self, min_offsets=None)


def is_due(waiting: int, waited_ms: int, limits: Limits) -> bool:
    """Whether the backlog is enough for a batch, or the last batch is so long ago that any number is."""
    if waiting == 0:
        return False
    return limits.min_offsets is None or waiting >= limits.min_offsets or waited_ms >= limits.max_delay_ms


def admitted(
    offsets: QueueOffsets,
    latest: QueueOffsets,
    limits: Limits,
    *,
    bytes_per_message: Mapping[MessageQueue, int] | None = None,
    rotation: int = 0,
) -> dict[MessageQueue, int]:
    """The end of the next batch in each queue with a backlog. `rotation` counts the batches, for fairness."""
    waiting = {
        queue: latest[queue] - offset for queue, offset in sorted(offsets.items()) if latest.get(queue, 0) > offset
    }
    shares = waiting
    if limits.max_offsets is not None:
        shares = allocated(waiting, limits.max_offsets, rotation)
    if limits.max_bytes is not None:
        shares = _within_bytes(shares, limits.max_bytes, bytes_per_message or {}, rotation)
    return {queue: offsets[queue] + count for queue, count in shares.items() if count}


def capped(latest: QueueOffsets, target: QueueOffsets) -> dict[MessageQueue, int]:
    """`latest`, but not beyond `target`: for a run that ends where queues ended when it began."""
    return {queue: min(offset, target[queue]) for queue, offset in latest.items() if queue in target}


def allocated(waiting: Mapping[MessageQueue, int], limit: int, rotation: int = 0) -> dict[MessageQueue, int]:
    """`limit` messages, or all if fewer wait, allocated to queues in proportion."""
    total, count = sum(waiting.values()), len(waiting)
    if total <= limit:
        return dict(waiting)
    queues = list(waiting)
    if limit < count:
        return {queues[(rotation * limit + at) % count]: 1 for at in range(limit)}
    rest, others = limit - count, total - count
    shares = {queue: 1 + rest * (waiting[queue] - 1) // others for queue in queues}
    left = limit - sum(shares.values())
    by_remainder = sorted(queues, key=lambda queue: -(rest * (waiting[queue] - 1) % others))
    for queue in by_remainder[:left]:
        shares[queue] += 1
    return shares


def _within_bytes(
    shares: Mapping[MessageQueue, int], max_bytes: int, sizes: Mapping[MessageQueue, int], rotation: int
) -> dict[MessageQueue, int]:
    """The shares reduced to `max_bytes`, but at least one message, so that the query makes progress."""
    weights = {queue: max(1, sizes.get(queue, 1)) for queue in shares}
    total = sum(count * weights[queue] for queue, count in shares.items())
    if total <= max_bytes:
        return dict(shares)
    cut = {queue: count * max_bytes // total for queue, count in shares.items()}
    spare = max_bytes - sum(count * weights[queue] for queue, count in cut.items())
    queues = list(shares)
    for at in range(len(queues)):
        queue = queues[(rotation + at) % len(queues)]
        if not cut[queue] and weights[queue] <= spare:
            cut[queue] = 1
            spare -= weights[queue]
    if not any(cut.values()):
        cut[queues[rotation % len(queues)]] = 1
    return cut


log = logging.getLogger("pocketmq.spark")


class OffsetPublisher:
    """Publishes the offsets of one query; without a group it does nothing."""

    def __init__(self, group: str | None) -> None:
        self._group = group
        self._published: dict[MessageQueue, int] = {}
        self._done: dict[MessageQueue, int] = {}

    def record(self, offsets: QueueOffsets) -> None:
        """All messages before these offsets are done."""
        self._done = dict(offsets)

    def publish(self, metadata: ClientMetadata, present: Collection[MessageQueue] | None = None) -> None:
        """Commit offsets that are new, or whose commit failed or was interrupted.

        If `present` is known, offsets of other queues are skipped: a missing queue would make the commit fail.
        """
        changed = {
            queue: offset
            for queue, offset in self._done.items()
            if self._published.get(queue) != offset and (present is None or queue in present)
        }
        if self._group is None or not changed:
            return
        try:
            metadata.commit(self._group, changed)
        except PocketMQError as error:
            log.warning(
                "Publishing the offsets of the query to group %s failed: %s; retrying after the next batch",
                self._group,
                error,
            )
            return
        self._published.update(changed)


def _emptied(bounds: Mapping[MessageQueue, Bounds], read: QueueOffsets) -> list[MessageQueue]:
    """The queues that messages of `read` came from, and that never had any by their bounds."""
    return [queue for queue, one in bounds.items() if one.max == 0 and read.get(queue)]


T = TypeVar("T")


class StreamDriver:
    """The driver of one query."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._clock = SystemClock()
        self._lease = ExitStack()
        self._metadata = self._lease.enter_context(borrowed_metadata(options, retries=0))  # `_outage` repeats queries
        self._outage = Outage(options, self._clock)
        self._was_answered = False
        self._publisher = OffsetPublisher(options.group)
        self._retention = RetentionWatch(options.retention_warning_ms, options.pull_group)
        self._missing = MissingQueues()
        self._oldest = OldestMessages()
        self._last = LastMessages(options.pull_group)
        self._present: frozenset[MessageQueue] | None = None
        self._limits = Limits(options.max_offsets, options.max_bytes, options.min_offsets, options.max_delay_ms)
        self._target: dict[MessageQueue, int] | None = None
        self._bytes_per_message: dict[MessageQueue, int] = {}
        self._rotation = 0
        self._last_batch = self._clock.monotonic()
        self._idle_since: float | None = None
        self._latest: dict[MessageQueue, int] = {}
        self._ends: QueueOffsets = {}

    def close(self) -> None:
        """Publish offsets whose commit failed or was interrupted, and disconnect."""
        if not self._outage.is_on:
            self._publisher.publish(self._metadata, self._present)
        self._lease.close()

    def publish(self, offsets: QueueOffsets) -> None:
        self._publisher.record(offsets)
        if not self._outage.is_on:
            self._publisher.publish(self._metadata, self._present)

    def fix_target(self) -> None:
        """Read up to the current ends of queues, and no further."""

        def ends() -> dict[MessageQueue, int]:
            bounds = self._metadata.bounds(present_queues(self._options, self._metadata))
            return {queue: one.max for queue, one in bounds.items()}

        self._target = self._answered(ends, is_new=True)
        self._limits = self._limits.without_minimum()

    def without_recreated(self, ranges: Sequence[QueueRange], seen_ms: int) -> list[QueueRange]:
        """The ranges of a batch, planned at `seen_ms`, that can be read again. A topic that was re-created since then has other
        messages there: DataLost, or its ranges are omitted, and planning the next batch records the loss.
        """
        check_checkpoint(self._options, [part.queue for part in ranges])
        ends = {part.queue: part.end for part in ranges}

        def facts_of() -> dict[MessageQueue, QueueFacts]:
            present = [queue for queue in present_queues(self._options, self._metadata) if queue in ends]
            bounds = self._metadata.bounds(present)
            oldest = self._metadata.earliest_store_ms(list(bounds))
            return {queue: QueueFacts(one, oldest[queue]) for queue, one in bounds.items()}

        facts = self._answered(facts_of, is_new=False)
        others = {lost.range.queue for lost in find_losses(ends, facts, seen_ms) if lost.cause is Cause.RECREATION}
        losses = [Lost(part, Cause.RECREATION) for part in ranges if part.queue in others]
        settle(losses, facts, self._options.on_data_loss)
        for lost in losses:
            log.warning("Messages were deleted before they were read again: %s", lost)
        return [part for part in ranges if part.queue not in others]

    def planned_filter(self, queues: Sequence[MessageQueue]) -> FilterPlan:
        """How a batch with these queues filters."""
        return self._answered(lambda: planned_filter(self._options, (), queues, self._metadata), is_new=False)

    def latest_seen(self) -> dict[str, Any] | None:
        """Shown in the query's progress beside its offsets: the ends of queues, and problems."""
        outage, missing = self._outage.to_json(), self._missing.to_json()
        if not self._latest and outage is None and not missing:
            return None
        report: dict[str, Any] = QueryOffset(self._latest).to_json()
        del report["seenMs"]
        report["description"] = description_of(self._options, len(self._latest))
        if self._options.group is not None:
            report["groupId"] = self._options.group
        if dangers := self._retention.dangers:
            report["endangered"] = [danger.to_json() for danger in dangers]
        if missing:
            report["missing"] = missing
        if outage is not None:
            report["outage"] = outage
        elif metrics := metrics_of(self._ends, self._latest):
            report["metrics"] = metrics
        if problem := self._metadata.name_servers_problem:
            report["nameServersProblem"] = problem
        return report

    def next(self, before: QueryOffset | None, *, everything: bool) -> QueryOffset:
        """The end of the next batch; `before` itself if there is nothing to read. `everything`: Spark ignores the limits.

        There is also nothing to read while brokers are unavailable: Spark then reports the outage in its progress and calls again.
        With a target Spark would end the query on that answer, so this waits.
        """
        if before is not None:
            check_checkpoint(self._options, before.queues)
            self._publisher.record(before.queues)  # Spark requests more when all of this is done
        self._wait_for_interval()
        if before is None:
            after = self._answered(lambda: self._resolved(everything=everything), is_new=True)
        elif self._target is not None or not self._was_answered:
            after = self._answered(lambda: self._continued(before, everything=everything), is_new=False)
        else:
            try:
                after = self._continued(before, everything=everything)
                self._outage.end()
            except PocketMQError as error:
                self._outage.record_failure(error, is_new=False)
                return before
        if after is before:
            self._idle_since = self._clock.monotonic()
        else:
            self._idle_since = None
            self._last_batch = self._clock.monotonic()
            self._rotation += 1
            after = self._with_partitions(before, after)
        self._ends = after.queues
        return after

    def _answered(self, query: Callable[[], T], *, is_new: bool) -> T:
        """The answer; waits while brokers are unavailable."""
        while True:
            try:
                found = query()
            except PocketMQError as error:
                self._outage.record_failure(error, is_new=is_new)
                self._outage.pause()
            else:
                self._outage.end()
                self._was_answered = True
                return found

    def _wait_for_interval(self) -> None:
        """Limit the rate of queries: without new messages Spark calls ninety times a second."""
        self._outage.pause()
        if self._idle_since is not None:
            left_s = self._idle_since + self._options.latest_interval_ms / 1000 - self._clock.monotonic()
            if left_s > 0:
                time.sleep(left_s)

    def _resolved(self, *, everything: bool) -> QueryOffset:
        """The start of a new query, with its first batch. An empty batch also records the start in the checkpoint."""
        seen_ms = self._clock.now_ms()
        queues = sorted(self._look_up())
        first = starting_offsets(self._options, queues, self._metadata)
        facts = self._oldest.check(self._metadata.bounds(queues), first, self._metadata)
        losses = find_losses(first, facts, 0)
        first |= settle(losses, facts, self._options.on_data_loss)
        self._latest = {queue: fact.bounds.max for queue, fact in facts.items()}
        latest = self._latest if self._target is None else capped(self._latest, self._target)
        ends = self._admitted(first, latest, everything=everything)
        self._last.record(first | ends, self._metadata)
        return next_offset(None, ends, first=first, seen_ms=seen_ms, lost=losses)

    def _continued(self, before: QueryOffset, *, everything: bool) -> QueryOffset:
        seen_ms = self._clock.now_ms()
        bounds = self._bounds(before.queues)
        present = sorted(bounds)
        self._publisher.publish(self._metadata, self._present)
        for text in self._missing.record(queue_changes(before, present).removed, before.queues, self._latest):
            log.warning("%s", text)
        self._latest = {queue: one.max for queue, one in bounds.items()}
        known = {queue: offset for queue, offset in before.queues.items() if queue in bounds}
        facts = self._oldest.check(bounds, known, self._metadata)
        for queue, first_new in self._last.first_new(bounds, known, self._metadata).items():
            facts[queue] = facts[queue]._replace(first_new=first_new)
        losses = find_losses(known, facts, before.seen_ms)
        first = {queue: bounds[queue].min for queue in queue_changes(before, present).added}
        first |= settle(losses, facts, self._options.on_data_loss)
        self._last.forget(losses)
        for lost in losses:
            log.warning("Messages were deleted before they were read: %s", lost)
        offsets = known | first
        for danger in self._retention.check(offsets, facts, self._metadata, seen_ms):
            log.warning("%s", danger)
        latest = self._latest if self._target is None else capped(self._latest, self._target)
        ends = self._admitted(offsets, latest, everything=everything)
        self._last.record(offsets | ends, self._metadata)
        return next_offset(before, ends, first=first, seen_ms=seen_ms, lost=losses)

    def _bounds(self, read: QueueOffsets) -> dict[MessageQueue, Bounds]:
        """The bounds of the queues that exist. The list of queues is cached, so a topic of it may have been deleted since: then
        its brokers report empty queues, as those of a topic that was created again do.
        """
        with suppress(TopicNotFound):
            bounds = self._metadata.bounds(sorted(self._look_up(read)))
            if not _emptied(bounds, read):
                return bounds
        self._metadata.forget_queues()
        bounds = self._metadata.bounds(sorted(self._look_up(read)))
        deleted = self._metadata.deleted(_emptied(bounds, read))
        self._present = frozenset(bounds.keys() - deleted)
        return {queue: one for queue, one in bounds.items() if queue not in deleted}

    def _look_up(self, read: QueueOffsets | None = None) -> frozenset[MessageQueue]:
        """The queues that exist. A topic of `read` that was deleted while the query runs has none, and may return."""
        self._present = frozenset(queues_of(self._options, self._metadata, read or {}))
        return self._present

    def _with_partitions(self, before: QueryOffset | None, after: QueryOffset) -> QueryOffset:
        """Log the number of partitions with the batch: a driver that runs it again may have other cores and options."""
        total = sum(map(len, ranges_between(before, after)))
        return replace(after, partitions=partition_count(total, self._options, os.cpu_count() or 1))

    def _admitted(self, offsets: QueueOffsets, latest: QueueOffsets, *, everything: bool) -> dict[MessageQueue, int]:
        limits = self._limits
        if everything:
            limits = Limits()  # the trigger takes all at once, whatever the options say
        waited_ms = int((self._clock.monotonic() - self._last_batch) * 1000)
        if not is_due(backlog(offsets, latest), waited_ms, limits):
            return {}
        if limits.max_bytes is not None:
            self._sample(offsets, latest)
        return admitted(offsets, latest, limits, bytes_per_message=self._bytes_per_message, rotation=self._rotation)

    def _sample(self, offsets: QueueOffsets, latest: QueueOffsets) -> None:
        """Sample the next messages of each queue: their size changes over time."""
        waiting = {queue: offset for queue, offset in offsets.items() if latest.get(queue, 0) > offset}
        self._bytes_per_message |= self._metadata.bytes_per_message(self._options.pull_group, waiting)

"""A streaming read in the driver: where the next batch ends, what is gone, what is in danger, and how far the query is.

    latestOffset(start) ─► queues ── publish `start` ── bounds ── losses ── dangers ── what is admitted ─► the end of the batch

Connected, and with a memory; the memory only saves questions and sentences that were said already. See `stream_reader` for who asks.

How much a micro-batch takes: nothing yet, a share, or all that waits.

    places ──► latest        what waits, by queue
       └── share ──►         at most maxOffsetsPerTrigger messages and maxBytesPerTrigger bytes, in proportion to what waits

The shares add up to the limit exactly, so a batch is never larger. Every queue where something waits gets at least one
message, as far as the limit reaches: a queue with little never starves beside one with much. Where the limit is below the
number of queues, they take turns.

A query's progress as that of a consumer group, so that whoever watches lag sees the query.

The checkpoint is the truth, and this only its mirror: a failure is told in the log and never stops the query. Spark commits a batch
while it plans the one after the next, and the last one never; but when it asks what is new since an offset, all before it is done.
"""

import logging
import os
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from pocketmq.clock import SystemClock
from pocketmq.errors import PocketMQError
from pocketmq.model.queue import MessageQueue, QueueRange
from pocketmq.spark.options.read_options import ReadOptions
from pocketmq.spark.read.bounds import check_checkpoint, present_queues, queues_of, starting_places
from pocketmq.spark.read.data_loss import MissingQueues, OldestMessages, QueueFacts, find_losses, settle
from pocketmq.spark.read.metadata import ClientMetadata
from pocketmq.spark.read.offsets import (
    Cause,
    Lost,
    Places,
    QueryOffset,
    backlog,
    next_offset,
    queue_changes,
    ranges_between,
)
from pocketmq.spark.read.planning import partition_count
from pocketmq.spark.read.stream_watch import Outage, RetentionWatch
from pocketmq.spark.worker_connections import READING


class Limits(msgspec.Struct, frozen=True):
    """The limits of a query's batches; None where there is none."""

    max_offsets: int | None = None
    max_bytes: int | None = None
    min_offsets: int | None = None
    max_delay_ms: int = 900_000

    def without_waiting(self) -> "Limits":
        """For a run that ends when all is read (AvailableNow): what waits is never too little."""
        return msgspec.structs.replace(self, min_offsets=None)


def is_due(waiting: int, waited_ms: int, limits: Limits) -> bool:
    """Whether so many messages are enough for a batch, or the last one is so long ago that any number is."""
    if waiting == 0:
        return False
    return limits.min_offsets is None or waiting >= limits.min_offsets or waited_ms >= limits.max_delay_ms


def admitted(
    places: Places,
    latest: Places,
    limits: Limits,
    *,
    bytes_per_message: Mapping[MessageQueue, int] | None = None,
    turn: int = 0,
) -> dict[MessageQueue, int]:
    """Where the next batch ends in each queue of `places` where something waits. `turn` counts the batches, for fairness."""
    waiting = {queue: latest[queue] - place for queue, place in sorted(places.items()) if latest.get(queue, 0) > place}
    shares = waiting
    if limits.max_offsets is not None:
        shares = shared_out(waiting, limits.max_offsets, turn)
    if limits.max_bytes is not None:
        shares = _within_bytes(shares, limits.max_bytes, bytes_per_message or {}, turn)
    return {queue: places[queue] + count for queue, count in shares.items() if count}


def capped(latest: Places, target: Places) -> dict[MessageQueue, int]:
    """`latest`, but no further than `target`: what a run reads that ends where things were when it began."""
    return {queue: min(place, target[queue]) for queue, place in latest.items() if queue in target}


def shared_out(waiting: Mapping[MessageQueue, int], limit: int, turn: int = 0) -> dict[MessageQueue, int]:
    """`limit` messages, or all if fewer wait, shared among queues in proportion."""
    total, count = sum(waiting.values()), len(waiting)
    if total <= limit:
        return dict(waiting)
    queues = list(waiting)
    if limit < count:
        return {queues[(turn * limit + at) % count]: 1 for at in range(limit)}
    rest, others = limit - count, total - count
    shares = {queue: 1 + rest * (waiting[queue] - 1) // others for queue in queues}
    left = limit - sum(shares.values())
    by_remainder = sorted(queues, key=lambda queue: -(rest * (waiting[queue] - 1) % others))
    for queue in by_remainder[:left]:
        shares[queue] += 1
    return shares


def _within_bytes(
    shares: Mapping[MessageQueue, int], max_bytes: int, sizes: Mapping[MessageQueue, int], turn: int
) -> dict[MessageQueue, int]:
    """The shares cut down to so many bytes; one message at least, so that the query gets on."""
    weights = {queue: max(1, sizes.get(queue, 1)) for queue in shares}
    total = sum(count * weights[queue] for queue, count in shares.items())
    if total <= max_bytes:
        return dict(shares)
    cut = {queue: count * max_bytes // total for queue, count in shares.items()}
    spare = max_bytes - sum(count * weights[queue] for queue, count in cut.items())
    queues = list(shares)
    for at in range(len(queues)):
        queue = queues[(turn + at) % len(queues)]
        if not cut[queue] and weights[queue] <= spare:
            cut[queue] = 1
            spare -= weights[queue]
    if not any(cut.values()):
        cut[queues[turn % len(queues)]] = 1
    return cut


log = logging.getLogger("pocketmq.spark")


class ProgressGroup:
    """Publishes for one query; without a group it does nothing."""

    def __init__(self, group: str | None) -> None:
        self._group = group
        self._published: dict[MessageQueue, int] = {}
        self._done: dict[MessageQueue, int] = {}

    def note(self, places: Places) -> None:
        """All before these places is done."""
        self._done = dict(places)

    def publish(self, metadata: ClientMetadata, present: Collection[MessageQueue] | None = None) -> None:
        """Tell brokers what they were not told yet: because it is new, or telling it failed or was broken off.

        Of `present` queues alone, if these are known: a place of one that is gone can be told to nobody, and must not be in the way.
        """
        changed = {
            queue: place
            for queue, place in self._done.items()
            if self._published.get(queue) != place and (present is None or queue in present)
        }
        if self._group is None or not changed:
            return
        try:
            metadata.commit(self._group, changed)
        except PocketMQError as error:
            log.warning("the progress of the query could not be published to the group %s: %s", self._group, error)
            return
        self._published.update(changed)


T = TypeVar("T")


class StreamDriver:
    """Of one query."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._clock = SystemClock()
        self._lease = ExitStack()
        client = self._lease.enter_context(READING.borrow(options.connection, options.idle_timeout_ms))
        self._metadata = ClientMetadata.of(client, options, retries=0)  # `_outage` says how often the query asks
        self._outage = Outage(options, self._clock)
        self._was_answered = False
        self._progress = ProgressGroup(options.group)
        self._watch = RetentionWatch(options.retention_warning_ms, options.pull_group)
        self._missing = MissingQueues()
        self._oldest = OldestMessages()
        self._present: frozenset[MessageQueue] | None = None
        self._limits = Limits(options.max_offsets, options.max_bytes, options.min_offsets, options.max_delay_ms)
        self._target: dict[MessageQueue, int] | None = None
        self._bytes_per_message: dict[MessageQueue, int] = {}
        self._turn = 0
        self._last_batch = self._clock.monotonic()
        self._idle_since: float | None = None
        self._latest: dict[MessageQueue, int] = {}

    def close(self) -> None:
        """The last words: what is done and was not published yet, because that failed or was broken off."""
        if not self._outage.is_on:
            self._progress.publish(self._metadata, self._present)
        self._lease.close()

    def publish(self, places: Places) -> None:
        self._progress.note(places)
        if not self._outage.is_on:
            self._progress.publish(self._metadata, self._present)

    def fix_target(self) -> None:
        """Read no further than where queues end now."""

        def ends() -> dict[MessageQueue, int]:
            bounds = self._metadata.bounds(present_queues(self._options, self._metadata))
            return {queue: held.max for queue, held in bounds.items()}

        self._target = self._answered(ends, is_new=True)
        self._limits = self._limits.without_waiting()

    def of_the_same_queues(self, ranges: Sequence[QueueRange], seen_ms: int) -> list[QueueRange]:
        """What can be read again of a batch that was planned at `seen_ms`. A topic that was re-created since then has other messages
        there: DataLost, or the ranges are left out, and the look for the next batch finds and records it.
        """
        check_checkpoint(self._options, [part.queue for part in ranges])
        ends = {part.queue: part.end for part in ranges}

        def look() -> dict[MessageQueue, QueueFacts]:
            present = [queue for queue in present_queues(self._options, self._metadata) if queue in ends]
            bounds = self._metadata.bounds(present)
            oldest = self._metadata.earliest_store_ms(list(bounds))
            return {queue: QueueFacts(held, oldest[queue]) for queue, held in bounds.items()}

        facts = self._answered(look, is_new=False)
        others = {lost.range.queue for lost in find_losses(ends, facts, seen_ms) if lost.cause is Cause.RECREATION}
        losses = [Lost(part, Cause.RECREATION) for part in ranges if part.queue in others]
        settle(losses, facts, self._options.on_data_loss)
        for lost in losses:
            log.warning("messages are gone before they were read again: %s", lost)
        return [part for part in ranges if part.queue not in others]

    def latest_seen(self) -> dict[str, Any] | None:
        """What the progress of the query shows beside its offsets: where queues end, and what there is to worry about."""
        outage = self._outage.to_json()
        if not self._latest and outage is None:
            return None
        told: dict[str, Any] = QueryOffset(self._latest).to_json()
        del told["seenMs"]
        if self._options.group is not None:
            told["groupId"] = self._options.group
        if dangers := self._watch.dangers:
            told["endangered"] = [danger.to_json() for danger in dangers]
        if missing := self._missing.to_json():
            told["missing"] = missing
        if outage is not None:
            told["outage"] = outage
        if problem := self._metadata.name_servers_problem:
            told["nameServersProblem"] = problem
        return told

    def next(self, before: QueryOffset | None, *, everything: bool) -> QueryOffset:
        """Where the next batch ends; `before` itself when there is nothing to do. `everything`: Spark wants no limits.

        Nothing to do is also the answer while brokers are away: Spark then reports the outage in its progress and asks again. With
        a target Spark would take that answer for the end of the query, so this waits.
        """
        if before is not None:
            check_checkpoint(self._options, before.queues)
            self._progress.note(before.queues)  # Spark asks for more when all of this is done
        self._wait_for_turn()
        if before is None:
            after = self._answered(lambda: self._resolved(everything=everything), is_new=True)
        elif self._target is not None or not self._was_answered:
            after = self._answered(lambda: self._gone_on(before, everything=everything), is_new=False)
        else:
            try:
                after = self._gone_on(before, everything=everything)
                self._outage.end()
            except PocketMQError as error:
                self._outage.note(error, is_new=False)
                return before
        if after is before:
            self._idle_since = self._clock.monotonic()
        else:
            self._idle_since = None
            self._last_batch = self._clock.monotonic()
            self._turn += 1
            after = self._with_partitions(before, after)
        return after

    def _answered(self, ask: Callable[[], T], *, is_new: bool) -> T:
        """The answer, for which this waits while brokers are away."""
        while True:
            try:
                found = ask()
            except PocketMQError as error:
                self._outage.note(error, is_new=is_new)
                self._outage.pause()
            else:
                self._outage.end()
                self._was_answered = True
                return found

    def _wait_for_turn(self) -> None:
        """Spark asks ninety times a second when nothing is new."""
        self._outage.pause()
        if self._idle_since is not None:
            left_s = self._idle_since + self._options.latest_interval_ms / 1000 - self._clock.monotonic()
            if left_s > 0:
                time.sleep(left_s)

    def _resolved(self, *, everything: bool) -> QueryOffset:
        """The beginning of a new query, with its first batch: also one that reads nothing puts it into the checkpoint."""
        seen_ms = self._clock.now_ms()
        queues = sorted(self._look_up())
        first = starting_places(self._options, queues, self._metadata)
        facts = self._oldest.look(self._metadata.bounds(queues), first, self._metadata)
        losses = find_losses(first, facts, 0)
        first |= settle(losses, facts, self._options.on_data_loss)
        self._latest = {queue: held.bounds.max for queue, held in facts.items()}
        latest = self._latest if self._target is None else capped(self._latest, self._target)
        ends = self._admitted(first, latest, everything=everything)
        return next_offset(None, ends, first=first, seen_ms=seen_ms, lost=losses)

    def _gone_on(self, before: QueryOffset, *, everything: bool) -> QueryOffset:
        seen_ms = self._clock.now_ms()
        present = sorted(self._look_up(before.queues))
        bounds = self._metadata.bounds(present)
        self._progress.publish(self._metadata, self._present)
        for sentence in self._missing.note(queue_changes(before, present).removed, before.queues, self._latest):
            log.warning("%s", sentence)
        self._latest = {queue: held.max for queue, held in bounds.items()}
        known = {queue: place for queue, place in before.queues.items() if queue in bounds}
        facts = self._oldest.look(bounds, known, self._metadata)
        losses = find_losses(known, facts, before.seen_ms)
        first = {queue: bounds[queue].min for queue in queue_changes(before, present).added}
        first |= settle(losses, facts, self._options.on_data_loss)
        for lost in losses:
            log.warning("messages are gone before they were read: %s", lost)
        places = known | first
        for danger in self._watch.look(places, facts, self._metadata, seen_ms):
            log.warning("%s", danger)
        latest = self._latest if self._target is None else capped(self._latest, self._target)
        ends = self._admitted(places, latest, everything=everything)
        return next_offset(before, ends, first=first, seen_ms=seen_ms, lost=losses)

    def _look_up(self, read: Places | None = None) -> frozenset[MessageQueue]:
        """The queues that there are. A topic of `read` that was deleted while the query runs has none, and may come back."""
        self._present = frozenset(queues_of(self._options, self._metadata, read or {}))
        return self._present

    def _with_partitions(self, before: QueryOffset | None, after: QueryOffset) -> QueryOffset:
        """In how many partitions the batch is read is logged with it: a driver that runs it again may have other cores and options."""
        total = sum(map(len, ranges_between(before, after)))
        return replace(after, partitions=partition_count(total, self._options, os.cpu_count() or 1))

    def _admitted(self, places: Places, latest: Places, *, everything: bool) -> dict[MessageQueue, int]:
        limits = self._limits
        if everything:
            limits = Limits()  # a trigger that takes all at once, whatever the options say
        waited_ms = int((self._clock.monotonic() - self._last_batch) * 1000)
        if not is_due(backlog(places, latest), waited_ms, limits):
            return {}
        if limits.max_bytes is not None:
            self._sample(places, latest)
        return admitted(places, latest, limits, bytes_per_message=self._bytes_per_message, turn=self._turn)

    def _sample(self, places: Places, latest: Places) -> None:
        """Messages change their size in the course of time, so some of what comes next are looked at."""
        waiting = {queue: place for queue, place in places.items() if latest.get(queue, 0) > place}
        self._bytes_per_message |= self._metadata.bytes_per_message(self._options.pull_group, waiting)

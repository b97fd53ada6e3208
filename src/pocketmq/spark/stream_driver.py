"""A streaming read in the driver: where the next batch ends, what is gone, what is in danger, and how far the query is.

    latestOffset(start) ─► queues ── publish `start` ── bounds ── losses ── dangers ── what is admitted ─► the end of the batch

Connected, and with a memory; the memory only saves questions and sentences that were said already. See `stream_reader` for who asks.
"""

import logging
import os
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any, TypeVar

from msgspec.structs import replace

from pocketmq.clock import SystemClock
from pocketmq.errors import PocketMQError
from pocketmq.model.queue import MessageQueue, QueueRange
from pocketmq.spark.admission import Limits, admitted, capped, is_due
from pocketmq.spark.bounds import check_checkpoint, present_queues, queues_of, starting_places
from pocketmq.spark.data_loss import QueueFacts, find_losses, settle
from pocketmq.spark.metadata import ClientMetadata
from pocketmq.spark.missing_queues import MissingQueues
from pocketmq.spark.offsets import (
    Cause,
    Lost,
    Places,
    QueryOffset,
    backlog,
    next_offset,
    queue_changes,
    ranges_between,
)
from pocketmq.spark.oldest_messages import OldestMessages
from pocketmq.spark.outage import Outage
from pocketmq.spark.planning import partition_count
from pocketmq.spark.progress_group import ProgressGroup
from pocketmq.spark.read_options import ReadOptions
from pocketmq.spark.retention_watch import RetentionWatch
from pocketmq.spark.worker_connections import READING

log = logging.getLogger("pocketmq.spark")

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

"""A streaming read in the driver: where the next batch ends, what is gone, what is in danger, and how far the query is.

    latestOffset(start) ─► publish `start` ── queues ── bounds ── losses ── dangers ── what is admitted ─► the end of the batch

Connected, and with a memory; the memory only saves questions and sentences that were said already. See `stream_reader` for who asks.
"""

import logging
import time
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

from pocketmq.clock import SystemClock
from pocketmq.errors import TopicNotFound
from pocketmq.model.queue import MessageQueue
from pocketmq.spark.admission import Limits, admitted, capped, is_due
from pocketmq.spark.bounds import queues_of, starting_places
from pocketmq.spark.broker_facts import Bounds
from pocketmq.spark.data_loss import QueueFacts, find_losses, settle
from pocketmq.spark.metadata import ClientMetadata
from pocketmq.spark.missing_queues import MissingQueues
from pocketmq.spark.offsets import Places, QueryOffset, backlog, next_offset, queue_changes
from pocketmq.spark.progress_group import ProgressGroup
from pocketmq.spark.read_options import ReadOptions
from pocketmq.spark.retention_watch import RetentionWatch
from pocketmq.spark.worker_connections import READING

log = logging.getLogger("pocketmq.spark")


class StreamDriver:
    """Of one query."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._clock = SystemClock()
        self._lease = ExitStack()
        client = self._lease.enter_context(READING.borrow(options.connection, options.idle_timeout_ms))
        self._metadata = ClientMetadata.of(client, options)
        self._progress = ProgressGroup(options.group)
        self._watch = RetentionWatch(options.retention_warning_ms, options.pull_group)
        self._missing = MissingQueues()
        self._limits = Limits(options.max_offsets, options.max_bytes, options.min_offsets, options.max_delay_ms)
        self._target: dict[MessageQueue, int] | None = None
        self._bytes_per_message: dict[MessageQueue, int] = {}
        self._turn = 0
        self._last_batch = self._clock.monotonic()
        self._idle_since: float | None = None
        self._latest: dict[MessageQueue, int] = {}

    def close(self) -> None:
        """The last words: what is done and was not published yet, because that failed or was broken off."""
        self._progress.publish_rest(self._metadata)
        self._lease.close()

    def publish(self, places: Places) -> None:
        self._progress.publish(self._metadata, places)

    def fix_target(self) -> None:
        """Read no further than where queues end now."""
        bounds = self._metadata.bounds(queues_of(self._options, self._metadata))
        self._target = {queue: held.max for queue, held in bounds.items()}
        self._limits = self._limits.without_waiting()

    def latest_seen(self) -> dict[str, Any] | None:
        """What the progress of the query shows beside its offsets: where queues end, and what there is to worry about."""
        if not self._latest:
            return None
        told: dict[str, Any] = QueryOffset(self._latest).to_json()
        del told["seenMs"]
        if self._options.group is not None:
            told["groupId"] = self._options.group
        if dangers := self._watch.dangers:
            told["endangered"] = [danger.to_json() for danger in dangers]
        if missing := self._missing.to_json():
            told["missing"] = missing
        return told

    def next(self, before: QueryOffset | None, *, everything: bool) -> QueryOffset:
        """Where the next batch ends; `before` itself when there is nothing to do. `everything`: Spark wants no limits."""
        if before is not None:
            self.publish(before.queues)  # Spark asks for more when all of this is done
        self._wait_for_turn()
        if before is None:
            after = self._resolved(everything=everything)
        else:
            after = self._gone_on(before, everything=everything)
        if after is before:
            self._idle_since = self._clock.monotonic()
        else:
            self._idle_since = None
            self._last_batch = self._clock.monotonic()
            self._turn += 1
        return after

    def _wait_for_turn(self) -> None:
        """Spark asks ninety times a second when nothing is new."""
        if self._idle_since is not None:
            left_s = self._idle_since + self._options.latest_interval_ms / 1000 - self._clock.monotonic()
            if left_s > 0:
                time.sleep(left_s)

    def _resolved(self, *, everything: bool) -> QueryOffset:
        """The beginning of a new query, with its first batch: also one that reads nothing puts it into the checkpoint."""
        seen_ms = self._clock.now_ms()
        queues = queues_of(self._options, self._metadata)
        first = starting_places(self._options, queues, self._metadata)
        facts = {queue: QueueFacts(held) for queue, held in self._metadata.bounds(queues).items()}
        losses = find_losses(first, facts, 0)
        first |= settle(losses, facts, self._options.on_data_loss)
        self._latest = {queue: held.bounds.max for queue, held in facts.items()}
        latest = self._latest if self._target is None else capped(self._latest, self._target)
        ends = self._admitted(first, latest, everything=everything)
        return next_offset(None, ends, first=first, seen_ms=seen_ms, lost=losses)

    def _gone_on(self, before: QueryOffset, *, everything: bool) -> QueryOffset:
        seen_ms = self._clock.now_ms()
        present = self._present()
        bounds = self._metadata.bounds(present)
        for sentence in self._missing.note(queue_changes(before, present).removed, before.queues, self._latest):
            log.warning("%s", sentence)
        self._latest = {queue: held.max for queue, held in bounds.items()}
        known = {queue: place for queue, place in before.queues.items() if queue in bounds}
        facts = self._facts(known, bounds)
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

    def _present(self) -> list[MessageQueue]:
        """The queues that there are. A topic that was deleted while the query runs has none, and may come back."""
        try:
            return queues_of(self._options, self._metadata)
        except TopicNotFound as error:
            log.warning("a topic of the query is not there: %s", error)
            return []

    def _facts(self, known: Places, bounds: Mapping[MessageQueue, Bounds]) -> dict[MessageQueue, QueueFacts]:
        """The age of the oldest message is asked for only where a query is not at the end: there it can matter."""
        behind = [queue for queue, place in known.items() if bounds[queue].max != place]
        oldest = self._metadata.earliest_store_ms(behind)
        return {queue: QueueFacts(held, oldest.get(queue, -1)) for queue, held in bounds.items()}

    def _admitted(self, places: Places, latest: Places, *, everything: bool) -> dict[MessageQueue, int]:
        limits = self._limits
        if everything and (limits.max_offsets is not None or limits.max_bytes is not None):
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

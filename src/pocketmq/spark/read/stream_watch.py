"""Warns before messages are deleted that a query has still to read.

    min ──────── place ──── margin ───────────── max
     ▲             ▲          └─ stored at the time below: what lies before it is deleted within the warning time
     └─ oldest     └─ read next

Two rules, and the later time counts:
- by age: a broker keeps messages for some hours, so those go next that were stored `kept - warning` before now;
- by movement: where the beginning of a queue has moved, for whatever reason, it goes on as fast as time does.

A danger is told once, until the query has caught up with it.

Brokers that do not answer a streaming query: how long it waits for them, how often it asks, and what it reports meanwhile.

a new query      fails after `fetchOffset.numRetries`: a wrong address shows at once
any other query  asks again, at longer and longer intervals, and fails after `fetchOffset.retryTimeout`
"""

import logging
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple, Protocol

from pocketmq.clock import Clock
from pocketmq.errors import CallTimedOut, PocketMQError
from pocketmq.model.queue import MessageQueue
from pocketmq.spark.options.read_options import ReadOptions
from pocketmq.spark.read.data_loss import QueueFacts
from pocketmq.spark.read.offsets import Places

LOOKS_PER_WARNING: Final = 100
LONGEST_INTERVAL_MS: Final = 30_000
"""A look costs questions to brokers, so there are at most so many within the warning time, and one in half a minute at least."""


class RetentionFacts(Protocol):
    """What is asked of brokers."""

    def kept_ms(self, brokers: frozenset[str]) -> dict[str, int]:
        """How long brokers keep messages; those that do not tell are left out."""

    def offsets_at(self, times_ms: Mapping[MessageQueue, int]) -> dict[MessageQueue, int]: ...

    def stored_ms(self, group: str, places: Places) -> dict[MessageQueue, int]:
        """When the messages at these places were stored; those that are gone are left out."""


class Danger(NamedTuple):
    """A message that is to be read next, and about when it will be deleted."""

    queue: MessageQueue
    offset: int
    min_offset: int
    deleted_at_ms: int
    left_ms: int

    def __str__(self) -> str:
        at = datetime.fromtimestamp(self.deleted_at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        when = f"in about {self.left_ms // 1000} s, at {at}" if self.left_ms > 0 else "at any moment"
        return (
            f"{self.queue}: message {self.offset}, the next to be read, will be deleted {when}; the queue begins at "
            f"{self.min_offset} now. Read faster, or let the broker keep messages longer"
        )

    def to_json(self) -> dict[str, Any]:
        """For the progress of the query."""
        return {
            "topic": self.queue.topic,
            "brokerName": self.queue.broker_name,
            "queueId": self.queue.queue_id,
            "offset": self.offset,
            "minOffset": self.min_offset,
            "deletedAtMs": self.deleted_at_ms,
        }


class RetentionWatch:
    """Of one query; `warning_ms` of 0 watches nothing. Messages are looked at as `pull_group`."""

    def __init__(self, warning_ms: int, pull_group: str) -> None:
        self._warning_ms = warning_ms
        self._pull_group = pull_group
        self._interval_ms = min(LONGEST_INTERVAL_MS, warning_ms // LOOKS_PER_WARNING)
        self._looked_ms: int | None = None
        self._first_min: dict[MessageQueue, int] = {}
        self._dangers: dict[MessageQueue, Danger] = {}

    @property
    def dangers(self) -> list[Danger]:
        """Those that there are now, as they were told."""
        return [self._dangers[queue] for queue in sorted(self._dangers)]

    def look(
        self, places: Places, facts: Mapping[MessageQueue, QueueFacts], brokers: RetentionFacts, now_ms: int
    ) -> list[Danger]:
        """The dangers that are new. Not more often than needed: then there are none."""
        for queue, held in facts.items():
            self._first_min.setdefault(queue, held.bounds.min)
        if not self._warning_ms or (self._looked_ms is not None and now_ms < self._looked_ms + self._interval_ms):
            return []
        self._looked_ms = now_ms
        behind = {
            queue: place
            for queue, place in places.items()
            if queue in facts and facts[queue].bounds.min <= place < facts[queue].bounds.max
        }
        kept = brokers.kept_ms(frozenset(queue.broker_name for queue in behind)) if behind else {}
        times = self._margin_times({queue: facts[queue] for queue in behind}, kept, now_ms)
        margins = brokers.offsets_at(times) if times else {}
        endangered = {queue: behind[queue] for queue in sorted(margins) if behind[queue] < margins[queue]}
        self._dangers = {queue: danger for queue, danger in self._dangers.items() if queue in endangered}
        new = {queue: place for queue, place in endangered.items() if queue not in self._dangers}
        stored = brokers.stored_ms(self._pull_group, new) if new else {}
        found = [self._danger(queue, new[queue], facts[queue], stored[queue], kept, now_ms) for queue in sorted(stored)]
        self._dangers |= {danger.queue: danger for danger in found}
        return found

    def _margin_times(
        self, facts: Mapping[MessageQueue, QueueFacts], kept: Mapping[str, int], now_ms: int
    ) -> dict[MessageQueue, int]:
        """Messages that were stored before these times go within the warning time; queues without such are left out."""
        times = {}
        for queue, held in facts.items():
            oldest_ms = held.earliest_store_ms
            if oldest_ms < 0:
                continue
            margin_ms = now_ms + self._warning_ms - kept[queue.broker_name] if queue.broker_name in kept else 0
            if held.bounds.min > self._first_min[queue]:
                margin_ms = max(margin_ms, oldest_ms + self._warning_ms)
            if margin_ms > oldest_ms:
                times[queue] = margin_ms
        return times

    def _danger(
        self,
        queue: MessageQueue,
        place: int,
        facts: QueueFacts,
        stored_ms: int,
        kept: Mapping[str, int],
        now_ms: int,
    ) -> Danger:
        """With the earlier of the two times that the rules come to."""
        left = []
        if queue.broker_name in kept:
            left.append(stored_ms + kept[queue.broker_name] - now_ms)
        if facts.bounds.min > self._first_min[queue]:
            left.append(stored_ms - facts.earliest_store_ms)
        left_ms = max(0, min(left))
        return Danger(queue, place, facts.bounds.min, now_ms + left_ms, left_ms)


log = logging.getLogger("pocketmq.spark")

LONGEST_PAUSE_S: Final = 5.0
LOGGED_FAILURES: Final = 6
"""The first failure is logged, and then each of this number."""


class Outage:
    """Of one query. There is none until a question fails, and none after one is answered."""

    def __init__(self, options: ReadOptions, clock: Clock, sleep: Callable[[float], None] = time.sleep) -> None:
        self._retries = options.fetch_retries
        self._interval_s = options.fetch_interval_ms / 1000
        self._timeout_s = options.fetch_timeout_ms / 1000
        self._clock = clock
        self._sleep = sleep
        self._began = 0.0
        self._began_ms = 0
        self._failures = 0
        self._error = ""

    @property
    def is_on(self) -> bool:
        return self._failures > 0

    def note(self, error: PocketMQError, *, is_new: bool) -> None:
        """A question failed. Raises if asking again cannot help, or has not helped for long enough."""
        if not error.retriable:
            raise error
        if not self._failures:
            self._began, self._began_ms = self._clock.monotonic(), self._clock.now_ms()
        lasted_s = self._clock.monotonic() - self._began
        if is_new and self._failures >= self._retries:
            raise error
        if not is_new and lasted_s >= self._timeout_s:
            raise CallTimedOut(
                f"brokers have not answered for {lasted_s:.0f} s, and fetchOffset.retryTimeout is {self._timeout_s:g} s; "
                f"the query can be started again with its checkpoint. The last error: {error}"
            ) from error
        self._failures += 1
        self._error = f"{type(error).__name__}: {error}"
        if self._failures == 1 or self._failures % LOGGED_FAILURES == 0:
            limit = f"{self._retries} retries" if is_new else f"{self._timeout_s:g} s"
            log.warning(
                "brokers have not answered the query for %.0f s; it asks again and fails after %s: %s",
                lasted_s,
                limit,
                self._error,
            )

    def end(self) -> None:
        """A question was answered."""
        if self._failures:
            lasted_s = self._clock.monotonic() - self._began
            log.warning("brokers answer the query again, after %.1f s; it continues where it was", lasted_s)
        self._failures, self._error = 0, ""

    def pause(self) -> None:
        """Wait before the next question, longer after each failure."""
        if self._failures:
            self._sleep(self._pause_s)

    def to_json(self) -> dict[str, Any] | None:
        """For the progress of the query: since when, and the last error."""
        if not self._failures:
            return None
        lasted_ms = round((self._clock.monotonic() - self._began) * 1000)
        return {"sinceMs": self._began_ms, "lastedMs": lasted_ms, "failures": self._failures, "error": self._error}

    @property
    def _pause_s(self) -> float:
        return min(self._interval_s * (1 << min(self._failures - 1, 10)), max(LONGEST_PAUSE_S, self._interval_s))

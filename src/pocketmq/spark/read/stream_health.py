"""Problems of a streaming query: messages that expire before they are read, and brokers that do not respond.

    min ─────── offset ─── margin ────────────── max
     ▲             ▲          └─ messages before the margin are deleted within the warning time
     └─ oldest     └─ next to read

Two rules give the margin, and the later one counts:
- age: a broker keeps messages for some hours, so messages stored before `now - retention + warning` are deleted next;
- movement: if the beginning of a queue has moved, for any reason, it is expected to keep moving at the speed of time.

A warning is logged once, until the query has passed the margin.

While brokers do not respond, a new query fails after `fetchOffset.numRetries`, so that a wrong address shows at once. Any other
query repeats its requests at growing intervals, and fails after `fetchOffset.retryTimeout`.
"""

import logging
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple, Protocol

from pocketmq.clock import Clock
from pocketmq.errors import CallTimedOut, PocketMQError
from pocketmq.model import MessageQueue
from pocketmq.spark.options.read_options import ReadOptions
from pocketmq.spark.read.data_loss import QueueFacts
from pocketmq.spark.read.offsets import QueueOffsets

CHECKS_PER_WARNING: Final = 100
MAX_INTERVAL_MS: Final = 30_000
"""A check costs requests to brokers, so the interval is a part of the warning time, and half a minute at most."""


class RetentionQueries(Protocol):
    """Queries to brokers."""

    def retention_ms(self, brokers: frozenset[str]) -> dict[str, int]:
        """The retention time of brokers; those that do not report it are omitted."""

    def offsets_at(self, times_ms: Mapping[MessageQueue, int]) -> dict[MessageQueue, int]: ...

    def stored_ms(self, group: str, offsets: QueueOffsets) -> dict[MessageQueue, int]:
        """The store times of the messages at these offsets; deleted messages are omitted."""


class Danger(NamedTuple):
    """The next message to read, and the estimated time of its deletion."""

    queue: MessageQueue
    offset: int
    min_offset: int
    deleted_at_ms: int
    left_ms: int

    def __str__(self) -> str:
        at = datetime.fromtimestamp(self.deleted_at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        when = f"in about {self.left_ms // 1000} s, at {at}" if self.left_ms > 0 else "at any moment"
        return (
            f"{self.queue}: message {self.offset}, the next to read, will be deleted {when}; the queue now begins at "
            f"{self.min_offset}. Read faster, or raise the broker's fileReservedTime"
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
    """The warnings of one query; 0 for `warning_ms` disables them. `pull_group` is the group for pulls."""

    def __init__(self, warning_ms: int, pull_group: str) -> None:
        self._warning_ms = warning_ms
        self._pull_group = pull_group
        self._interval_ms = min(MAX_INTERVAL_MS, warning_ms // CHECKS_PER_WARNING)
        self._checked_ms: int | None = None
        self._first_min: dict[MessageQueue, int] = {}
        self._dangers: dict[MessageQueue, Danger] = {}

    @property
    def dangers(self) -> list[Danger]:
        """All current dangers, as they were logged."""
        return [self._dangers[queue] for queue in sorted(self._dangers)]

    def check(
        self, offsets: QueueOffsets, facts: Mapping[MessageQueue, QueueFacts], brokers: RetentionQueries, now_ms: int
    ) -> list[Danger]:
        """The new dangers. Returns none before the interval has passed."""
        for queue, fact in facts.items():
            self._first_min.setdefault(queue, fact.bounds.min)
        if not self._warning_ms or (self._checked_ms is not None and now_ms < self._checked_ms + self._interval_ms):
            return []
        self._checked_ms = now_ms
        behind = {
            queue: offset
            for queue, offset in offsets.items()
            if queue in facts and facts[queue].bounds.min <= offset < facts[queue].bounds.max
        }
        retention = brokers.retention_ms(frozenset(queue.broker_name for queue in behind)) if behind else {}
        times = self._margin_times({queue: facts[queue] for queue in behind}, retention, now_ms)
        margins = brokers.offsets_at(times) if times else {}
        endangered = {queue: behind[queue] for queue in sorted(margins) if behind[queue] < margins[queue]}
        self._dangers = {queue: danger for queue, danger in self._dangers.items() if queue in endangered}
        new = {queue: offset for queue, offset in endangered.items() if queue not in self._dangers}
        stored = brokers.stored_ms(self._pull_group, new) if new else {}
        found = [
            self._danger(queue, new[queue], facts[queue], stored[queue], retention, now_ms) for queue in sorted(stored)
        ]
        self._dangers |= {danger.queue: danger for danger in found}
        return found

    def _margin_times(
        self, facts: Mapping[MessageQueue, QueueFacts], retention: Mapping[str, int], now_ms: int
    ) -> dict[MessageQueue, int]:
        """Messages stored before these times are deleted within the warning time; queues without such messages are omitted."""
        times = {}
        for queue, fact in facts.items():
            oldest_ms = fact.earliest_store_ms
            if oldest_ms < 0:
                continue
            margin_ms = (
                now_ms + self._warning_ms - retention[queue.broker_name] if queue.broker_name in retention else 0
            )
            if fact.bounds.min > self._first_min[queue]:
                margin_ms = max(margin_ms, oldest_ms + self._warning_ms)
            if margin_ms > oldest_ms:
                times[queue] = margin_ms
        return times

    def _danger(
        self,
        queue: MessageQueue,
        offset: int,
        facts: QueueFacts,
        stored_ms: int,
        retention: Mapping[str, int],
        now_ms: int,
    ) -> Danger:
        """With the earlier of the times by the two rules."""
        left = []
        if queue.broker_name in retention:
            left.append(stored_ms + retention[queue.broker_name] - now_ms)
        if facts.bounds.min > self._first_min[queue]:
            left.append(stored_ms - facts.earliest_store_ms)
        left_ms = max(0, min(left))
        return Danger(queue, offset, facts.bounds.min, now_ms + left_ms, left_ms)


log = logging.getLogger("pocketmq.spark")

MAX_PAUSE_S: Final = 5.0
LOGGED_FAILURES: Final = 6
"""The first failure is logged, and then one in this number."""


class Outage:
    """An outage of one query's brokers. It begins with a failed request, and ends with a successful one."""

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

    def record_failure(self, error: PocketMQError, *, is_new: bool) -> None:
        """Record a failed request. Raises if a retry cannot help, or the time or number of retries is exceeded."""
        if not error.retriable:
            raise error
        if not self._failures:
            self._began, self._began_ms = self._clock.monotonic(), self._clock.now_ms()
        lasted_s = self._clock.monotonic() - self._began
        if is_new and self._failures >= self._retries:
            raise error
        if not is_new and lasted_s >= self._timeout_s:
            raise CallTimedOut(
                f"brokers have not responded for {lasted_s:.0f} s (fetchOffset.retryTimeout is {self._timeout_s:g} s). "
                f"Start the query again with its checkpoint when they do. Last error: {error}"
            ) from error
        self._failures += 1
        self._error = f"{type(error).__name__}: {error}"
        if self._failures == 1 or self._failures % LOGGED_FAILURES == 0:
            limit = f"{self._retries} retries" if is_new else f"{self._timeout_s:g} s"
            log.warning("No response from brokers for %.0f s; retrying up to %s: %s", lasted_s, limit, self._error)

    def end(self) -> None:
        """A request succeeded."""
        if self._failures:
            lasted_s = self._clock.monotonic() - self._began
            log.warning("Brokers respond again after %.1f s; the query continues at its offset", lasted_s)
        self._failures, self._error = 0, ""

    def pause(self) -> None:
        """Wait before the next request, longer after each failure."""
        if self._failures:
            self._sleep(self._pause_s)

    def to_json(self) -> dict[str, Any] | None:
        """For the progress of the query: its start and the last error."""
        if not self._failures:
            return None
        lasted_ms = round((self._clock.monotonic() - self._began) * 1000)
        return {"sinceMs": self._began_ms, "lastedMs": lasted_ms, "failures": self._failures, "error": self._error}

    @property
    def _pause_s(self) -> float:
        return min(self._interval_s * (1 << min(self._failures - 1, 10)), max(MAX_PAUSE_S, self._interval_s))

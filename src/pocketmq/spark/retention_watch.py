"""Warns before messages are deleted that a query has still to read.

    min ──────── place ──── margin ───────────── max
     ▲             ▲          └─ stored at the time below: what lies before it is deleted within the warning time
     └─ oldest     └─ read next

Two rules, and the later time counts:
- by age: a broker keeps messages for some hours, so those go next that were stored `kept - warning` before now;
- by movement: where the beginning of a queue has moved, for whatever reason, it goes on as fast as time does.

A danger is told once, until the query has caught up with it.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple, Protocol

from pocketmq.model.queue import MessageQueue
from pocketmq.spark.data_loss import QueueFacts
from pocketmq.spark.offsets import Places

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

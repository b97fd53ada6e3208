"""Unread messages that retention deleted.

Retention deletes by age and disk usage, as in RocketMQ, whether or not messages were consumed. `UnreadDrops` logs and
counts what groups lost because they were stopped for too long, or because the disk was full.
"""

import logging
from collections.abc import Callable
from typing import Final, NamedTuple

from pocketmq.broker.groups.offsets import OffsetTable
from pocketmq.store.retention import Dropped

log = logging.getLogger("pocketmq.broker")

MAX_NAMED: Final = 20
"""Limit on groups and topics in the log message of one deletion; all are counted."""
MAX_QUEUES_NAMED: Final = 8


class Unread(NamedTuple):
    """Messages that a group had not consumed when they were deleted. `group` is empty if no group has an offset."""

    group: str
    topic: str
    queues: tuple[tuple[int, int, int], ...]
    """Queue id, first queue offset, and the end offset."""

    @property
    def messages(self) -> int:
        return sum(end - first for _, first, end in self.queues)

    def __str__(self) -> str:
        ranges = [f"queue {queue_id}: {first} to {end - 1}" for queue_id, first, end in self.queues[:MAX_QUEUES_NAMED]]
        ranges += ["…"] if len(self.queues) > MAX_QUEUES_NAMED else []
        who = f"group {self.group} had not consumed" if self.group else "no group has an offset for"
        return f"{who} {self.messages} messages of topic {self.topic} ({', '.join(ranges)})"


def unread_of(dropped: Dropped, offsets: OffsetTable, is_system: Callable[[str], bool]) -> list[Unread]:
    """Unread messages among those that retention deleted, the largest number first."""
    by_topic: dict[str, list[tuple[int, int, int]]] = {}
    for (topic, queue_id), (first, end) in sorted(dropped.ranges.items()):
        if not is_system(topic):
            by_topic.setdefault(topic, []).append((queue_id, first, end))
    found = []
    consumed = offsets.by_topic(by_topic)
    for topic, ranges in by_topic.items():
        for group, stored in consumed.get(topic, {"": {}}).items():
            rests = ((queue_id, max(first, stored.get(queue_id, first)), end) for queue_id, first, end in ranges)
            queues = tuple((queue_id, first, end) for queue_id, first, end in rests if first < end)
            if queues:
                found.append(Unread(group, topic, queues))
    return sorted(found, key=lambda one: -one.messages)


class UnreadDrops:
    """Logs each deletion of unread messages, and counts them."""

    def __init__(self, offsets: OffsetTable, is_system: Callable[[str], bool]) -> None:
        self._offsets = offsets
        self._is_system = is_system
        self.messages = 0
        """Deleted unread messages, counted once for each group."""

    def record(self, dropped: Dropped) -> None:
        unread = unread_of(dropped, self._offsets, self._is_system)
        if not unread:
            return
        self.messages += sum(one.messages for one in unread)
        more = [f"and {len(unread) - MAX_NAMED} more"] if len(unread) > MAX_NAMED else []
        log.warning(
            "Retention deleted unread messages with log offsets %d to %d (%s): %s",
            dropped.first_offset,
            dropped.end_offset,
            dropped.why,
            "; ".join([*map(str, unread[:MAX_NAMED]), *more]),
        )

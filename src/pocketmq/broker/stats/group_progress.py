"""Progress of groups: committed offsets, lag, the age of the next message, and unread messages that retention deleted.

    queue   0 ─────────── consumed ─────────── pulled ─────────── end
                              └──── in flight ────┘                │
                              └─────────────── lag ────────────────┘

An answer may contain tens of thousands of queues, each with a read of the log. So it is made in steps with other work
in between; changes in the meantime may or may not appear in it. Larger answers are rejected.

Retention deletes by age and disk usage, as in RocketMQ, whether or not messages were consumed. `UnreadDrops` logs and
counts what groups lost because they were stopped for too long, or because the disk was full.
"""

import logging
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from pocketmq.broker.groups.groups import GroupTable
from pocketmq.broker.groups.members import Members
from pocketmq.broker.groups.offsets import OffsetTable
from pocketmq.broker.stats.broker_stats import BrokerStats
from pocketmq.broker.topics import TopicTable
from pocketmq.errors import ImpossibleRequest
from pocketmq.model.queue import MessageQueue
from pocketmq.net.loops import Steps
from pocketmq.protocol.bodies.topics import (
    ConsumeStats,
    ConsumeStatsList,
    ConsumeTimeSpans,
    OffsetProgress,
    QueueTimeSpan,
    TopicConfig,
)
from pocketmq.store.message_store import MessageStore
from pocketmq.store.retention import Dropped

MAX_QUEUES_PER_ANSWER: Final = 20_000
"""Limit on the queues of one answer."""


class _QueueSteps(Steps):
    """Also limits the queues of the answer."""

    __slots__ = ("_queues",)

    def __init__(self) -> None:
        super().__init__()
        self._queues = 0

    async def next_queue(self) -> None:
        self._queues += 1
        if self._queues > MAX_QUEUES_PER_ANSWER:
            raise ImpossibleRequest(
                f"the answer would have more than {MAX_QUEUES_PER_ANSWER} queues; request one group and one topic at a time"
            )
        await self.pause()


class GroupProgress:
    """Reads the tables and the store; changes nothing."""

    def __init__(
        self,
        broker_name: str,
        store: MessageStore,
        topics: TopicTable,
        groups: GroupTable,
        offsets: OffsetTable,
        members: Members,
        stats: BrokerStats,
    ) -> None:
        self._broker_name = broker_name
        self._store = store
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._members = members
        self._stats = stats

    async def of_group(self, group: str, topics: Iterable[str] = ()) -> ConsumeStats:
        """A group in these topics, or in all topics where it has an offset. Unknown topics are left out."""
        steps = _QueueSteps()
        table: dict[MessageQueue, OffsetProgress] = {}
        tps = 0.0
        for config in self._subscribed_topics(group, list(topics) or self._offsets.topics_of(group)):
            table |= await self._in_topic(group, config, steps)
            tps += self._stats.get_tps(group, config.topic_name)
        return ConsumeStats(table, tps)

    async def of_all(self, broker_address: str, *, ordered_only: bool) -> ConsumeStatsList:
        """Every group of this broker by topic, and the total lag."""
        steps = _QueueSteps()
        rows: list[dict[str, tuple[ConsumeStats, ...]]] = []
        behind = in_flight = 0
        for group in [config.group_name for config in self._groups]:
            found = []
            for config in self._subscribed_topics(group, self._offsets.topics_of(group)):
                if ordered_only and not config.order:
                    continue
                table = await self._in_topic(group, config, steps)
                found.append(ConsumeStats(table, self._stats.get_tps(group, config.topic_name)))
                behind += sum(queue.broker_offset - queue.consumer_offset for queue in table.values())
                in_flight += sum(queue.pull_offset - queue.consumer_offset for queue in table.values())
            rows.append({group: tuple(found)})
        return ConsumeStatsList(tuple(rows), broker_address, behind, in_flight)

    def _subscribed_topics(self, group: str, topics: Iterable[str]) -> list[TopicConfig]:
        """Existing topics. If the group has members with subscriptions, only the subscribed ones."""
        members = self._members.group(group)
        wanted = members.subscriptions if members else {}
        configs = (self._topics.get(topic) for topic in topics)
        return [config for config in configs if config and (not wanted or config.topic_name in wanted)]

    async def _in_topic(
        self, group: str, config: TopicConfig, steps: _QueueSteps
    ) -> dict[MessageQueue, OffsetProgress]:
        topic = config.topic_name
        table = {}
        for queue_id in range(config.read_queue_nums):
            await steps.next_queue()
            consumed = self._offsets.stored(group, topic, queue_id) or 0
            table[MessageQueue(topic, self._broker_name, queue_id)] = OffsetProgress(
                self._store.max_offset(topic, queue_id),
                consumed,
                self._offsets.pulled(group, topic, queue_id) or 0,
                self._store.store_ms(topic, queue_id, consumed - 1) or 0,
            )
        return table

    async def time_spans(self, group: str, topic: str, now_ms: int) -> ConsumeTimeSpans:
        """The store times of the first, the last and the last consumed message of each queue; TopicNotFound."""
        steps = _QueueSteps()
        spans = []
        for queue_id in range(self._topics.require(topic).write_queue_nums):
            await steps.next_queue()
            spans.append(self._time_span(group, topic, queue_id, now_ms))
        return ConsumeTimeSpans(tuple(spans))

    def _time_span(self, group: str, topic: str, queue_id: int, now_ms: int) -> QueueTimeSpan:
        """-1 for a missing message. The delay is the age of the group's next message."""
        store = self._store

        def stored_ms(offset: int) -> int:
            found = store.store_ms(topic, queue_id, offset)
            return -1 if found is None else found

        first, end = store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)
        first_ms = stored_ms(first)
        consumed = self._offsets.stored(group, topic, queue_id) or 0
        next_ms = stored_ms(max(consumed, first)) if consumed < end else -1  # deleted messages do not wait
        return QueueTimeSpan(
            MessageQueue(topic, self._broker_name, queue_id),
            first_ms,
            stored_ms(end - 1),
            stored_ms(consumed - 1) if consumed > 0 else first_ms,
            max(0, now_ms - next_ms) if next_ms >= 0 else 0,
        )


log = logging.getLogger("pocketmq.broker")

MAX_NAMED: Final = 20
"""Limit on groups and topics in the log message of one deletion; all are counted."""
MAX_QUEUES_NAMED: Final = 8


class Unread(NamedTuple):
    """Messages that a group had not consumed when they were deleted. `group` is empty if no group has an offset."""

    group: str
    topic: str
    queues: tuple[tuple[int, int, int], ...]
    """Queue id, first queue offset, and the offset behind the last."""

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

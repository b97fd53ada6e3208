"""How far groups are in their topics: what lies in each queue, what of it is consumed, and since when the next message waits.

    queue   0 ─────────── consumed ─────────── pulled ─────────── end
                              └──── in flight ────┘                │
                              └───────────── behind ───────────────┘

An answer may speak of tens of thousands of queues, and each may need a look into the log. So it is made in steps, and everybody
else gets a turn between them; what changes meanwhile may show or not. Larger answers are refused.

Unread messages that retention deleted: which groups had not consumed them, in the log and as a number.

Retention deletes by age and by how full the disk is, as RocketMQ does; it does not ask whether everything was consumed. A group
that was away for too long, or whose log was deleted early because the disk was full, must be able to learn that from the log.
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
from pocketmq.protocol.bodies.stats import (
    ConsumeStats,
    ConsumeStatsList,
    ConsumeTimeSpans,
    OffsetProgress,
    QueueTimeSpan,
)
from pocketmq.protocol.bodies.topics import TopicConfig
from pocketmq.store.message_store import MessageStore
from pocketmq.store.retention import Dropped

MAX_QUEUES_TOLD: Final = 20_000
"""Queues that one answer may speak of."""


class _QueueSteps(Steps):
    """Also counts the queues that the answer speaks of."""

    __slots__ = ("_queues",)

    def __init__(self) -> None:
        super().__init__()
        self._queues = 0

    async def next_queue(self) -> None:
        self._queues += 1
        if self._queues > MAX_QUEUES_TOLD:
            raise ImpossibleRequest(
                f"the answer would speak of more than {MAX_QUEUES_TOLD} queues; ask for one group and one topic at a time"
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
        """A group in these topics, or in all in which it has an offset; a topic that is not there is left out."""
        steps = _QueueSteps()
        table: dict[MessageQueue, OffsetProgress] = {}
        tps = 0.0
        for config in self._of_interest(group, list(topics) or self._offsets.topics_of(group)):
            table |= await self._in_topic(group, config, steps)
            tps += self._stats.get_tps(group, config.topic_name)
        return ConsumeStats(table, tps)

    async def of_all(self, broker_address: str, *, ordered_only: bool) -> ConsumeStatsList:
        """Every group of this broker, each topic by itself, and how far all of them are behind together."""
        steps = _QueueSteps()
        told: list[dict[str, tuple[ConsumeStats, ...]]] = []
        behind = in_flight = 0
        for group in [config.group_name for config in self._groups]:
            found = []
            for config in self._of_interest(group, self._offsets.topics_of(group)):
                if ordered_only and not config.order:
                    continue
                table = await self._in_topic(group, config, steps)
                found.append(ConsumeStats(table, self._stats.get_tps(group, config.topic_name)))
                behind += sum(queue.broker_offset - queue.consumer_offset for queue in table.values())
                in_flight += sum(queue.pull_offset - queue.consumer_offset for queue in table.values())
            told.append({group: tuple(found)})
        return ConsumeStatsList(tuple(told), broker_address, behind, in_flight)

    def _of_interest(self, group: str, topics: Iterable[str]) -> list[TopicConfig]:
        """Those that are there; while the group has members that say what they want, only what they want."""
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
        """When the first, the last and the last consumed message of each queue were stored; TopicNotFound."""
        steps = _QueueSteps()
        spans = []
        for queue_id in range(self._topics.require(topic).write_queue_nums):
            await steps.next_queue()
            spans.append(self._time_span(group, topic, queue_id, now_ms))
        return ConsumeTimeSpans(tuple(spans))

    def _time_span(self, group: str, topic: str, queue_id: int, now_ms: int) -> QueueTimeSpan:
        """-1 for a message that is not there. The delay is how long the next message has been waiting for the group."""
        store = self._store

        def stored_ms(offset: int) -> int:
            found = store.store_ms(topic, queue_id, offset)
            return -1 if found is None else found

        first, end = store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)
        first_ms = stored_ms(first)
        consumed = self._offsets.stored(group, topic, queue_id) or 0
        next_ms = stored_ms(max(consumed, first)) if consumed < end else -1  # what is gone waits no longer
        return QueueTimeSpan(
            MessageQueue(topic, self._broker_name, queue_id),
            first_ms,
            stored_ms(end - 1),
            stored_ms(consumed - 1) if consumed > 0 else first_ms,
            max(0, now_ms - next_ms) if next_ms >= 0 else 0,
        )


log = logging.getLogger("pocketmq.broker")

MAX_NAMED: Final = 20
"""Groups and topics that one deletion names in the log; all are counted."""
MAX_QUEUES_NAMED: Final = 8


class Unread(NamedTuple):
    """Messages of a topic that a group had not consumed when they were deleted; `group` is empty when none has an offset there."""

    group: str
    topic: str
    queues: tuple[tuple[int, int, int], ...]
    """Queue id, first queue offset, and the one behind the last."""

    @property
    def messages(self) -> int:
        return sum(end - first for _, first, end in self.queues)

    def __str__(self) -> str:
        ranges = [f"queue {queue_id}: {first} to {end - 1}" for queue_id, first, end in self.queues[:MAX_QUEUES_NAMED]]
        ranges += ["…"] if len(self.queues) > MAX_QUEUES_NAMED else []
        who = f"group {self.group} had not consumed" if self.group else "no group has an offset for"
        return f"{who} {self.messages} messages of topic {self.topic} ({', '.join(ranges)})"


def unread_of(dropped: Dropped, offsets: OffsetTable, is_system: Callable[[str], bool]) -> list[Unread]:
    """What was unread of the messages that retention deleted, those with the most messages first."""
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
    """Reports each deletion of unread messages, and counts them."""

    def __init__(self, offsets: OffsetTable, is_system: Callable[[str], bool]) -> None:
        self._offsets = offsets
        self._is_system = is_system
        self.messages = 0
        """Unread messages that were deleted, counted once for each group."""

    def note(self, dropped: Dropped) -> None:
        unread = unread_of(dropped, self._offsets, self._is_system)
        if not unread:
            return
        self.messages += sum(one.messages for one in unread)
        more = [f"and {len(unread) - MAX_NAMED} more"] if len(unread) > MAX_NAMED else []
        log.warning(
            "retention deleted unread messages with log offsets %d to %d (%s): %s",
            dropped.first_offset,
            dropped.end_offset,
            dropped.why,
            "; ".join([*map(str, unread[:MAX_NAMED]), *more]),
        )

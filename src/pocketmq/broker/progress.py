"""How far groups are in their topics: what lies in each queue, what of it is consumed, and since when the next message waits.

    queue   0 ─────────── consumed ─────────── pulled ─────────── end
                              └──── in flight ────┘                │
                              └───────────── behind ───────────────┘

An answer may speak of tens of thousands of queues, and each may need a look into the log. So it is made in steps, and everybody
else gets a turn between them; what changes meanwhile may show or not. Larger answers are refused.
"""

from collections.abc import Iterable
from typing import Final

from pocketmq.broker.groups import GroupTable
from pocketmq.broker.members import Members
from pocketmq.broker.offsets import OffsetTable
from pocketmq.broker.stats.broker_stats import BrokerStats
from pocketmq.broker.steps import Steps
from pocketmq.broker.topics import TopicTable
from pocketmq.errors import ImpossibleRequest
from pocketmq.model.queue import MessageQueue
from pocketmq.protocol.bodies.stats import (
    ConsumeStats,
    ConsumeStatsList,
    ConsumeTimeSpans,
    OffsetProgress,
    QueueTimeSpan,
)
from pocketmq.protocol.bodies.topics import TopicConfig
from pocketmq.store.message_store import MessageStore

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
        await self.give_way()


class Progress:
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

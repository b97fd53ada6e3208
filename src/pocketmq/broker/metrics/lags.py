"""How far groups are behind: in messages, and since when the oldest that they have not consumed lies there.

There may be tens of thousands of queues, and each may need a look into the log. So this is done in steps, at most
`MAX_ROWS` groups in topics are told, and how many were left out is told as well.
"""

from typing import Final, NamedTuple

from pocketmq.broker.groups import GroupTable
from pocketmq.broker.offsets import OffsetTable
from pocketmq.broker.steps import Steps
from pocketmq.broker.topics import TopicTable
from pocketmq.clock import Clock
from pocketmq.metrics.families import Family, Labels, gauge, labels_of
from pocketmq.model.names import is_internal_group
from pocketmq.store.message_store import MessageStore

MAX_ROWS: Final = 5_000


class Lag(NamedTuple):
    """Of a group in a topic."""

    messages: int
    in_flight: int
    oldest_ms: int
    """How long the oldest message that waits has been there; 0 when none waits."""


class LagMetrics:
    """Reads the tables and the store; changes nothing."""

    def __init__(
        self, store: MessageStore, topics: TopicTable, groups: GroupTable, offsets: OffsetTable, clock: Clock
    ) -> None:
        self._store = store
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._clock = clock

    async def families(self) -> list[Family]:
        lags, left_out = await self._lags()
        return [
            gauge(
                "rocketmq_consumer_lag_messages",
                "Messages that a group has not consumed",
                {labels: lag.messages for labels, lag in lags.items()},
            ),
            gauge(
                "rocketmq_consumer_lag_latency",
                "Milliseconds that the oldest message not consumed has waited",
                {labels: lag.oldest_ms for labels, lag in lags.items()},
            ),
            gauge(
                "rocketmq_consumer_inflight_messages",
                "Messages that were pulled and are not consumed",
                {labels: lag.in_flight for labels, lag in lags.items()},
            ),
            gauge("rocketmq_consumer_lags_left_out", "Groups in topics that are too many to be told", left_out),
        ]

    async def _lags(self) -> tuple[dict[Labels, Lag], int]:
        steps = Steps()
        lags: dict[Labels, Lag] = {}
        left_out = 0
        for group in [name for config in self._groups if not is_internal_group(name := config.group_name)]:
            for topic in self._offsets.topics_of(group):
                if len(lags) >= MAX_ROWS:
                    left_out += 1
                elif (lag := await self._lag(group, topic, steps)) is not None:
                    lags[labels_of(topic=topic, consumer_group=group)] = lag
        return lags, left_out

    async def _lag(self, group: str, topic: str, steps: Steps) -> Lag | None:
        config = self._topics.get(topic)
        if config is None:
            return None
        messages = in_flight = 0
        oldest: int | None = None
        for queue_id in range(config.read_queue_nums):
            await steps.give_way()
            consumed = self._offsets.stored(group, topic, queue_id)
            if consumed is None:
                continue
            behind = max(0, self._store.max_offset(topic, queue_id) - consumed)
            in_flight += min(behind, max(0, (self._offsets.pulled(group, topic, queue_id) or 0) - consumed))
            messages += behind
            oldest_there = max(consumed, self._store.min_offset(topic, queue_id))  # retention may have taken the first
            stored_ms = self._store.store_ms(topic, queue_id, oldest_there) if behind else None
            if stored_ms is not None and (oldest is None or stored_ms < oldest):
                oldest = stored_ms
        return Lag(messages, in_flight, 0 if oldest is None else max(0, self._clock.now_ms() - oldest))

"""All metrics of a broker, labelled with its cluster and name."""

from collections.abc import Callable

from pocketmq.broker.metrics.lags import LagMetrics
from pocketmq.broker.metrics.messages import MessageMetrics
from pocketmq.broker.metrics.requests import RequestMetrics
from pocketmq.broker.metrics.storage import StorageMetrics
from pocketmq.broker.parts import BrokerParts
from pocketmq.files import Files
from pocketmq.metrics.families import Family, gauge, labels_of, with_labels
from pocketmq.metrics.process import process_families
from pocketmq.net.server import ServerCounters


class BrokerMetrics:
    """Made of the parts when the broker listens."""

    def __init__(self, parts: BrokerParts, files: Files, counters: Callable[[], ServerCounters]) -> None:
        self._parts = parts
        self._files = files
        store, topics, stats = parts.store, parts.topics, parts.stats
        self._messages = MessageMetrics(store, topics, stats, parts.delays, parts.timers, parts.transactions)
        self._lags = LagMetrics(store, topics, parts.groups, parts.offsets, parts.clock)
        self._requests = RequestMetrics(
            parts.turns, parts.arrivals, stats, parts.members, parts.authentication, counters, parts.clock
        )
        self._storage = StorageMetrics(store.facts, parts.unread, parts.clock)

    async def look(self) -> list[Family]:
        """What `metrics.page` tells."""
        settings = self._parts.settings.now
        families = [
            gauge("rocketmq_broker_permission", "2 is write, 4 is read, 6 is both", settings.permission),
            gauge("rocketmq_topic_number", "Topics of the broker", len(self._parts.topics)),
            gauge("rocketmq_consumer_group_number", "Groups of the broker", len(self._parts.groups)),
            *self._messages.families(),
            *self._requests.families(),
            *self._storage.families(),
            *await self._lags.families(),
        ]
        own = labels_of(cluster=settings.cluster, node_type="broker", node_id=settings.broker_name)
        return with_labels([*families, *process_families(self._files)], own)

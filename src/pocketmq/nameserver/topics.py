"""Topics: which broker names have each of them, with how many queues and which permission. Pure.

    topic ──► broker name ──► QueueData           a "place": one topic on one broker name
        └───► broker name ──► QueueMappingInfo    static topics only, and only where there is a place

A topic without a place is no topic: it goes with its last one.
"""

from collections.abc import Callable, Iterable

import msgspec

from pocketmq.protocol.bodies.routes import QueueData
from pocketmq.protocol.bodies.topics import QueueMappingInfo


class TopicTable:
    """All topics. `places` counts every topic on every broker name."""

    def __init__(self) -> None:
        self._queues: dict[str, dict[str, QueueData]] = {}
        self._mappings: dict[str, dict[str, QueueMappingInfo]] = {}
        self.places = 0

    def __len__(self) -> int:
        return len(self._queues)

    def __contains__(self, topic: str) -> bool:
        return topic in self._queues

    def names(self) -> tuple[str, ...]:
        return tuple(self._queues)

    def queues(self, topic: str) -> dict[str, QueueData]:
        """Broker name → queues; empty for a topic that nobody has. Not to be changed."""
        return self._queues.get(topic, {})

    def mappings(self, topic: str) -> dict[str, QueueMappingInfo] | None:
        """Broker name → queue mapping of a static topic; None for any other."""
        return self._mappings.get(topic)

    def put(self, topic: str, queues: QueueData) -> None:
        places = self._queues.setdefault(topic, {})
        self.places += queues.broker_name not in places
        places[queues.broker_name] = queues

    def put_mapping(self, topic: str, broker_name: str, mapping: QueueMappingInfo) -> None:
        """Without a place the mapping is forgotten at once: nothing would ever remove it."""
        if broker_name in self.queues(topic):
            self._mappings.setdefault(topic, {})[broker_name] = mapping

    def remove(self, topic: str, broker_names: Iterable[str]) -> None:
        """Take a topic from some broker names."""
        places = self._queues.get(topic, {})
        mappings = self._mappings.get(topic, {})
        for name in broker_names:
            self.places -= places.pop(name, None) is not None
            mappings.pop(name, None)
        if not places:
            self._queues.pop(topic, None)
        if not mappings:
            self._mappings.pop(topic, None)

    def delete(self, topic: str) -> None:
        """Take a topic from everybody."""
        self.remove(topic, list(self.queues(topic)))

    def remove_broker(self, broker_name: str) -> None:
        """Take all topics from a broker name."""
        for topic in self.of_broker(broker_name):
            self.remove(topic, (broker_name,))

    def of_broker(self, broker_name: str) -> list[str]:
        return [topic for topic, places in self._queues.items() if broker_name in places]

    def of_brokers(self, broker_names: Iterable[str]) -> list[str]:
        """Topics that at least one of these has."""
        wanted = frozenset(broker_names)
        return [topic for topic, places in self._queues.items() if not wanted.isdisjoint(places)]

    def with_flag(self, fits: Callable[[int], bool]) -> list[str]:
        """Topics whose topicSysFlag fits; it is the same at every place, so the first one is asked."""
        return [topic for topic, places in self._queues.items() if fits(next(iter(places.values())).topic_sys_flag)]

    def change_perm(self, broker_name: str, change: Callable[[int], int]) -> int:
        """Change the permission of all topics of a broker name; how many there are."""
        topics = self.of_broker(broker_name)
        for topic in topics:
            places = self._queues[topic]
            queues = places[broker_name]
            places[broker_name] = msgspec.structs.replace(queues, perm=change(queues.perm))
        return len(topics)

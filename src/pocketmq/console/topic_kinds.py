"""Which topics people made, and which belong to brokers and groups."""

from collections.abc import Iterable

from pocketmq.client.administration.cluster import BrokerState
from pocketmq.model.names import group_of, is_system_topic, reply_topic


def is_ordinary(topic: str) -> bool:
    return not (is_system_topic(topic) or group_of(topic))


def ordinary_topics(topics: Iterable[str], brokers: Iterable[BrokerState]) -> tuple[str, ...]:
    """Sorted; without retries, dead letters, and those that brokers have under their own names."""
    names, clusters = {state.place.name for state in brokers}, {state.place.cluster for state in brokers}
    own = names | clusters | {reply_topic(cluster) for cluster in clusters}
    return tuple(sorted(topic for topic in topics if topic not in own and is_ordinary(topic)))

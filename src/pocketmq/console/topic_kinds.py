"""Which topics people made, and which belong to brokers and groups."""

from collections.abc import Collection, Iterable

from pocketmq.client.administration.reach import BrokerPlace
from pocketmq.model.names import group_of, is_system_topic, reply_topic


def is_ordinary(topic: str) -> bool:
    return not (is_system_topic(topic) or group_of(topic))


def ordinary_topics(topics: Iterable[str], places: Collection[BrokerPlace]) -> tuple[str, ...]:
    """Sorted; without retries, dead letters, and those that brokers have under their own names."""
    clusters = {place.cluster for place in places}
    own = {place.name for place in places} | clusters | {reply_topic(cluster) for cluster in clusters}
    return tuple(sorted(topic for topic in topics if topic not in own and is_ordinary(topic)))

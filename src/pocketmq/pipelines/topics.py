"""Topics that a pipeline needs: those it reads must be there before Spark starts, those it writes are made when they are missing."""

from collections.abc import Iterable, Mapping
from typing import Final

from pocketmq.client import Admin
from pocketmq.errors import PocketMQError, TopicNotFound
from pocketmq.pipelines.cluster import admin_of
from pocketmq.spark.bounds import no_such_topic

NEW_QUEUES: Final = 8
"""Of a topic that is made, on each broker."""


def require_topics(connection: Mapping[str, str], topics: Iterable[str]) -> None:
    """TopicNotFound for the first that does not exist. `connection` are options of the connector."""
    with admin_of(connection) as admin:
        for topic in topics:
            if not admin.topics.exists(topic):
                raise TopicNotFound(no_such_topic(topic, _names(admin)))


def _names(admin: Admin) -> list[str]:
    """All topics; none for an account that may not list them."""
    try:
        return admin.topics.names()
    except PocketMQError:
        return []


def ensure_topics(connection: Mapping[str, str], topics: Iterable[str], *, queues: int = NEW_QUEUES) -> list[str]:
    """Make those that do not exist; their names. Rows are written effectively once only to a topic that is there."""
    with admin_of(connection) as admin:
        made = [topic for topic in topics if not admin.topics.exists(topic)]
        for topic in made:
            admin.topics.create(topic, queues=queues)
    return made

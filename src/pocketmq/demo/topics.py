"""Topics of the shop: made, and, where they are small, read whole."""

from pocketmq.client import Admin
from pocketmq.client.administration.messages import DEFAULT_LIMIT
from pocketmq.demo.names import TOPICS
from pocketmq.model.message import StoredMessage


def make_topics(name_servers: str) -> None:
    """Those of the shop, where they are not there."""
    with Admin(name_servers) as admin:
        for topic, queues in TOPICS.items():
            if not admin.topics.exists(topic):
                admin.topics.create(topic, queues=queues)


def keys_of(admin: Admin, topic: str) -> set[str]:
    """The keys of all its messages."""
    return {key for message in messages_of(admin, topic) for key in message.keys}


def messages_of(admin: Admin, topic: str) -> list[StoredMessage]:
    """All of them; none where there is no such topic."""
    if not admin.topics.exists(topic):
        return []
    found: list[StoredMessage] = []
    for state in admin.topics.describe(topic).queues:
        for begin in range(state.min_offset, state.max_offset, DEFAULT_LIMIT):
            found += admin.messages.in_queue(state.queue, begin, min(state.max_offset, begin + DEFAULT_LIMIT))
    return found

"""Topics that a test has just created by sends."""

import time
from contextlib import suppress

from pocketmq.client import Producer
from pocketmq.errors import TopicNotFound
from pocketmq.model.queue import MessageQueue


def queues_of(producer: Producer, topic: str) -> list[MessageQueue]:
    """The queues of a new topic: brokers register it with name servers a moment later."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        with suppress(TopicNotFound):
            return producer.queues(topic)
    raise AssertionError(f"{topic} did not come up")

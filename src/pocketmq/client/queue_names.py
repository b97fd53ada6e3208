"""Queues by two names: of the wire, where a namespace is part of a topic, and of users, where it is not."""

from pocketmq.errors import UsageError
from pocketmq.model.names import unwrap
from pocketmq.model.queue import MessageQueue


class QueueNames:
    """From one to the other. Without a namespace both are the same object, and nothing is kept."""

    __slots__ = ("_namespace", "_shown")

    def __init__(self, namespace: str | None) -> None:
        self._namespace = namespace
        self._shown: dict[str, dict[MessageQueue, MessageQueue]] = {}

    def shown(self, queue: MessageQueue) -> MessageQueue:
        """`queue` of the wire, as users know it."""
        if self._namespace is None:
            return queue
        of_topic = self._shown.setdefault(queue.topic, {})
        found = of_topic.get(queue)
        if found is None:
            topic = unwrap(self._namespace, queue.topic)
            found = of_topic[queue] = MessageQueue(topic, queue.broker_name, queue.queue_id)
        return found

    def on_the_wire(self, queue: MessageQueue, topic: str) -> MessageQueue:
        """`queue` of a user, for a message to `topic` of the wire; UsageError when it is a queue of another topic."""
        if queue.topic == topic:
            return queue
        if queue.topic != unwrap(self._namespace, topic):
            raise UsageError(f"a message to topic {topic!r} cannot go to {queue}, a queue of another topic")
        return MessageQueue(topic, queue.broker_name, queue.queue_id)

    def forget(self, topic: str) -> None:
        self._shown.pop(topic, None)

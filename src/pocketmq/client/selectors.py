"""Queue selectors: messages that belong together go to one queue, where order is kept.

    select(queues, message, key) ──► queue            key: an order number, a customer …

`queues` are all queues of the topic that can be written, in the order of its route, which all producers see alike. A producer
in Java that selects by the hash of the same key sends to the same queue. When queues come or go, keys move: for a while
messages of one key may then lie in two queues.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from pocketmq.client.allocation import room_of_broker
from pocketmq.errors import InvalidSetting, UsageError
from pocketmq.model import properties as names
from pocketmq.model.java_hash import java_hash
from pocketmq.model.message import Message
from pocketmq.model.queue import MessageQueue


class QueueSelector(Protocol):
    """Chooses the queue of a message. `key` is what the sender gave with it, None when nothing."""

    def __call__(self, queues: Sequence[MessageQueue], message: Message, key: object) -> MessageQueue: ...


def by_hash(queues: Sequence[MessageQueue], message: Message, key: object = None) -> MessageQueue:
    """By Java's hash of the key; without a key, of the message's sharding key."""
    if key is None:
        key = message.properties.get(names.SHARDING_KEY)
    return queues[abs(java_hash_of(key)) % len(queues)]


def java_hash_of(key: object) -> int:
    """Java's hash of a text, or of a number: an Integer's if it fits, else a Long's. UsageError for other keys."""
    if isinstance(key, str):
        return java_hash(key)
    if isinstance(key, int) and not isinstance(key, bool) and -(2**63) <= key < 2**63:
        return key if -(2**31) <= key < 2**31 else _signed((key ^ key >> 32) & 0xFFFFFFFF)
    raise UsageError(f"a message cannot be ordered by {key!r:.80}; give a text or a whole number, or a sharding key")


def _signed(low: int) -> int:
    return (low ^ 0x80000000) - 0x80000000


class ByRandom:
    """Any queue. `below(n)` gives a number from 0 to n - 1: `random.randrange`, or a test's own."""

    def __init__(self, below: Callable[[int], int]) -> None:
        self._below = below

    def __call__(self, queues: Sequence[MessageQueue], message: Message, key: object = None) -> MessageQueue:
        return queues[self._below(len(queues))]


class ByMachineRoom:
    """By hash, among the queues of brokers called `room@name` in one of the rooms. (Java's own never chooses one.)"""

    def __init__(self, rooms: Collection[str]) -> None:
        if isinstance(rooms, str) or not rooms:
            raise InvalidSetting(
                f"the machine rooms to send to are missing: {rooms!r}; give some, such as {{'hz', 'sh'}}"
            )
        self._rooms = frozenset(rooms)

    def __call__(self, queues: Sequence[MessageQueue], message: Message, key: object = None) -> MessageQueue:
        inside = [queue for queue in queues if room_of_broker(queue.broker_name) in self._rooms]
        if not inside:
            rooms = ", ".join(sorted(self._rooms))
            raise UsageError(f"topic {message.topic} has no queue on a broker called room@name in {rooms}")
        return by_hash(inside, message, key)

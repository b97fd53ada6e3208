"""A message as its copy on the other cluster: what is kept of it, and what it tells about where it comes from."""

from typing import Final, NamedTuple

from pocketmq.model import properties as names
from pocketmq.model.message import Message
from pocketmq.model.queue import MessageQueue

OF: Final = "mirrorOf"
"""The property with broker, queue and offset of the message that a copy is of."""
BORN: Final = "mirrorBorn"
"""When the message was made, in milliseconds: brokers take the time of a copy for that of its birth."""
ID: Final = "mirrorId"
"""The id of the message: each copy gets one of its own."""
_KEPT: Final = frozenset({names.TAGS, names.KEYS, names.SHARDING_KEY, names.BUYER_ID, names.MESSAGE_TYPE})
"""Of RocketMQ's own properties; brokers would take some of the others for wishes, and all of them tell of the past."""


class Place(NamedTuple):
    """Where a message is on its cluster."""

    broker: str
    queue_id: int
    offset: int

    def __str__(self) -> str:
        return f"{self.broker}:{self.queue_id}:{self.offset}"

    def queue(self, topic: str) -> MessageQueue:
        return MessageQueue(topic, self.broker, self.queue_id)


def parse_place(text: str) -> Place | None:
    """None for what is none: the property is anybody's to set."""
    broker, _, rest = text.rpartition(":")
    name, _, queue_id = broker.rpartition(":")
    return Place(name, int(queue_id), int(rest)) if name and queue_id.isdecimal() and rest.isdecimal() else None


def copy_of(
    topic: str, place: Place, body: bytes, properties: dict[str, str], born_ms: int, message_id: str
) -> Message:
    """The message to send."""
    copy = Message(topic, body)
    kept = {name: text for name, text in properties.items() if name not in names.RESERVED or name in _KEPT}
    copy.properties.update(kept)
    copy.properties.update({OF: str(place), BORN: str(born_ms), ID: message_id})
    return copy

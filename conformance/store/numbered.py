"""Numbered messages: the number determines the content, so a message that is found can be verified.

Both sides write them until they are killed. An acknowledgement names the offsets of a number.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from conformance.store.drafts import Draft, noise
from conformance.store.snapshots import QueueKey, Snapshot
from pocketmq.model import properties as names
from pocketmq.model.message import StoredMessage

TOPIC: Final = "Kept"
QUEUES: Final = 3
KEYS: Final = [(TOPIC, queue_id) for queue_id in range(QUEUES)]
_BORN_MS: Final = 1_700_000_000_000
_SIZES: Final = (20, 100, 333, 1_000, 3_000)


class Placed(NamedTuple):
    """An acknowledged message: its number and offsets."""

    number: int
    queue_offset: int
    log_offset: int

    def line(self) -> str:
        return f"{self.number} {self.queue_offset} {self.log_offset}\n"

    @classmethod
    def parse(cls, line: str) -> "Placed":
        number, queue_offset, log_offset = line.split()
        return cls(int(number), int(queue_offset), int(log_offset))

    @property
    def queue(self) -> QueueKey:
        return TOPIC, self.number % QUEUES


def numbered(number: int) -> Draft:
    body = b"%d " % number + noise(_SIZES[number % len(_SIZES)], number)
    properties = {names.UNIQ_KEY: f"{number:032X}", names.KEYS: key_of(number), "n": str(number)}
    return Draft(TOPIC, number % QUEUES, body, properties, born_ms=_BORN_MS + number)


def key_of(number: int) -> str:
    return f"kept{number}"


def flaws_of(found: Snapshot, acknowledged: Iterable[Placed]) -> Iterator[str]:
    """Acknowledged messages must be at their offsets; all other messages must be complete and in order."""
    yield from _flaws_of_acknowledged(found, acknowledged)
    for (topic, queue_id), messages in found.items():
        yield from _flaws_of_queue(f"{topic}:{queue_id}", messages)


def _flaws_of_acknowledged(found: Snapshot, acknowledged: Iterable[Placed]) -> Iterator[str]:
    for placed in acknowledged:
        messages = found.get(placed.queue, [])
        at = placed.queue_offset - (messages[0].queue_offset if messages else 0)
        if not 0 <= at < len(messages):
            yield f"message {placed.number} was acknowledged at offset {placed.queue_offset} and is not there"
        elif (number_in(messages[at]), messages[at].log_offset) != (placed.number, placed.log_offset):
            yield (
                f"message {placed.number} was acknowledged at offset {placed.queue_offset}, log {placed.log_offset}; "
                f"there is {number_in(messages[at])}, log {messages[at].log_offset}"
            )


def _flaws_of_queue(name: str, messages: Sequence[StoredMessage]) -> Iterator[str]:
    for message in messages:
        right = numbered(number_in(message))
        if message.body != right.body or not right.properties.items() <= message.properties.items():
            yield f"{name} offset {message.queue_offset}: not what was sent as {number_in(message)}"
    for one, following in pairwise(messages):
        if following.queue_offset != one.queue_offset + 1 or following.log_offset <= one.log_offset:
            yield f"{name}: offset {one.queue_offset} is followed by {following.queue_offset}, or the log goes back"


def number_in(message: StoredMessage) -> int:
    """The number that a message says it has; -1 for none."""
    text = message.body.partition(b" ")[0]
    return int(text) if text.isdigit() else -1

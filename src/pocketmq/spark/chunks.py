"""What a task pulls at once: about a buffer of messages of one queue."""

from typing import Final, NamedTuple, Protocol

from pocketmq.model.queue import QueueRange
from pocketmq.spark.decoding import Pulled
from pocketmq.spark.offsets import Lost

SPARE_SHARE: Final = 32
"""Of the messages of an answer: so much less are counted on, as messages differ in size."""


class Chunk(NamedTuple):
    """What pulling a range brought: records, where the rest of it begins, and what of it is gone."""

    pulled: Pulled
    rest: QueueRange | None
    lost: list[Lost]
    largest: int = 0
    """Messages of its largest answer, where it took several; 0 where nobody has counted them."""


class AwaitedChunk(Protocol):
    """A chunk that is being pulled; a future of one is."""

    def result(self) -> Chunk:
        """Wait for it; the PocketMQError that it came to."""

    def cancel(self) -> object:
        """Nobody wants it any more."""


def messages_of_next(chunk: Chunk, buffer_bytes: int, largest: int) -> int:
    """How many messages fill a buffer, by the average of this chunk, which has some. `largest` is what brokers answered with so far, if known.

    Where that is less than a buffer, as many as whole answers bring: a few more would take a pull of their own.
    """
    pulled, rest, _, _ = chunk
    done = (rest.start if rest is not None else pulled.wanted.end) - pulled.wanted.start
    count = max(1, buffer_bytes * done // len(pulled.records))
    if not 0 < largest < count:
        return count
    return (count + largest // 2) // largest * (largest - largest // SPARE_SHARE)

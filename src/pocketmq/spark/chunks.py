"""What a task pulls at once: about a buffer of messages of one queue."""

from typing import NamedTuple, Protocol

from pocketmq.model.queue import QueueRange
from pocketmq.spark.decoding import Pulled
from pocketmq.spark.offsets import Lost


class Chunk(NamedTuple):
    """What pulling a range brought: records, where the rest of it begins, and what of it is gone."""

    pulled: Pulled
    rest: QueueRange | None
    lost: list[Lost]


class AwaitedChunk(Protocol):
    """A chunk that is being pulled; a future of one is."""

    def result(self) -> Chunk:
        """Wait for it; the PocketMQError that it came to."""

    def cancel(self) -> object:
        """Nobody wants it any more."""

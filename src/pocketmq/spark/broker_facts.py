"""What the connector asks brokers: by many queues at once, so that whoever answers can ask them side by side."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from pocketmq.model.queue import MessageQueue
from pocketmq.model.subscription import Subscription


class Bounds(NamedTuple):
    """What a queue holds: messages `min` (included) to `max` (excluded)."""

    min: int
    max: int


class LogState(NamedTuple):
    """A broker's log: where it ends, and up to where its messages are entered into their queues, so that they can be read."""

    end: int
    entered: int


class Metadata(Protocol):
    """Facts about queues, for the driver. Failures are PocketMQErrors."""

    def topics(self) -> list[str]:
        """All topics that a pattern may choose from, system topics left out."""

    def queues(self, topic: str) -> list[MessageQueue]:
        """The queues of `topic` that can be read."""

    def bounds(self, queues: Sequence[MessageQueue]) -> dict[MessageQueue, Bounds]: ...

    def offsets_at(self, times_ms: Mapping[MessageQueue, int]) -> dict[MessageQueue, int]:
        """The first message stored at that time or later; the largest offset when there is none."""

    def committed(self, group: str, queues: Sequence[MessageQueue]) -> dict[MessageQueue, int]:
        """Where the group stands; queues that it has no offset for are left out."""

    def earliest_store_ms(self, queues: Sequence[MessageQueue]) -> dict[MessageQueue, int]:
        """When the oldest message was stored; -1 for an empty queue."""


class Answer(NamedTuple):
    """What a pull brought: records back to back, where the next pull begins, and what the queue holds now."""

    records: bytes
    next_offset: int
    bounds: Bounds
    passes_over: bool = False
    """Whether messages at its offset were wanted, and it begins behind them."""
    is_hole: bool = False
    """Whether the queue itself lacks what it should have up to `next_offset`."""

    @property
    def is_gap(self) -> bool:
        return self.passes_over or self.is_hole


class Puller(Protocol):
    """Messages of queues, for a task. Many pulls may be under way at once."""

    async def pull(
        self, queue: MessageQueue, offset: int, subscription: Subscription, max_messages: int, max_bytes: int
    ) -> Answer:
        """Without waiting for messages to come: no records when the queue ends at `offset`, or nothing matched."""

    async def bounds(self, queue: MessageQueue) -> Bounds:
        """What the queue holds by its master: who answers pulls may be a slave that lags behind."""

"""Interfaces to the brokers and their answers. Most take several queues, so that requests run in parallel."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from pocketmq.errors import RemoteError
from pocketmq.model import MessageQueue, Subscription


class Bounds(NamedTuple):
    """The offsets of a queue: from `min` (included) to `max` (excluded)."""

    min: int
    max: int


_NO_SQL_REMARK: Final = "does not support consumer to filter"
"""The answer of brokers whose `enablePropertyFilter` is false."""


def refuses_sql(error: Exception) -> bool:
    """Whether a broker refused a pull because it does not filter by SQL92."""
    return isinstance(error, RemoteError) and _NO_SQL_REMARK in (error.remark or "")


class LogState(NamedTuple):
    """The end of a broker's log, and the offset up to which messages are in their queues and can be read."""

    end: int
    entered: int


class Metadata(Protocol):
    """Queries about queues, for the driver. They raise PocketMQErrors."""

    def topics(self) -> list[str]:
        """All topics except system topics."""

    def queues(self, topic: str) -> list[MessageQueue]:
        """The readable queues of `topic`."""

    def bounds(self, queues: Sequence[MessageQueue]) -> dict[MessageQueue, Bounds]: ...

    def offsets_at(self, times_ms: Mapping[MessageQueue, int]) -> dict[MessageQueue, int]:
        """The first message stored at that time or later; the max offset if there is none."""

    def committed(self, group: str, queues: Sequence[MessageQueue]) -> dict[MessageQueue, int]:
        """The committed offsets of a group; queues without one are left out."""

    def earliest_store_ms(self, queues: Sequence[MessageQueue]) -> dict[MessageQueue, int]:
        """The store time of the oldest message; -1 for an empty queue."""


class Answer(NamedTuple):
    """The answer to a pull: records back to back, the offset of the next pull, and the bounds of the queue."""

    records: bytes
    next_offset: int
    bounds: Bounds
    passes_over: bool = False
    """Whether the answer skips matching messages at the requested offset."""
    is_hole: bool = False
    """Whether the queue lacks entries up to `next_offset`."""

    @property
    def is_gap(self) -> bool:
        return self.passes_over or self.is_hole


class Puller(Protocol):
    """Pulls messages, for a task. Several pulls may run at once."""

    async def pull(
        self, queue: MessageQueue, offset: int, subscription: Subscription, max_messages: int, max_bytes: int
    ) -> Answer:
        """Does not wait for new messages: no records if the queue ends at `offset` or nothing matches."""

    async def bounds(self, queue: MessageQueue) -> Bounds:
        """The bounds at the master. Pulls may be answered by a slave that lags behind."""

    async def is_deleted(self, queue: MessageQueue) -> bool:
        """Whether the broker of the queue is available and does not have its topic."""

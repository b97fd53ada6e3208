"""Lag: how far a group is behind, in messages and in time. What nobody knows is None, never 0 and never -1.

    min ────── committed ────────────── max
     │             │<──── messages ────>│        time: how long the oldest of them has been there
     committed │ min ──────────── max
               │<─────── messages ─>│            committed … min were deleted before the group had read them: `lost`
     min ───────── max      committed            beyond the end: the topic was made anew, or the group moved there;
                                                 how many it will miss is unknown until it is reset

Offsets of a group that broadcasts are kept by its members, so brokers know of none.
"""

import msgspec

from pocketmq.model.queue import MessageQueue


class QueueLag(msgspec.Struct, frozen=True, kw_only=True):
    """A group in one queue."""

    queue: MessageQueue
    min_offset: int | None = None
    max_offset: int | None = None
    committed: int | None = None
    """The offset of the next message that it will read."""
    messages: int | None = None
    time_ms: int | None = None
    """How long the oldest message that it has not read has been stored; 0 when it has read all."""
    lost: int = 0
    """Messages that were deleted before it had read them."""
    problem: str = ""
    """Why something is unknown."""


class GroupLag(msgspec.Struct, frozen=True, kw_only=True):
    """A group in all its queues, at one moment."""

    group: str
    at_ms: int
    queues: tuple[QueueLag, ...]
    per_s: float | None = None
    """Messages that it reads a second."""

    @property
    def is_known(self) -> bool:
        """Whether its lag is known in every queue, of which there is one at least: a group that reads nothing has no lag."""
        return bool(self.queues) and all(queue.messages is not None for queue in self.queues)

    @property
    def messages(self) -> int | None:
        """In all queues together; None when it is unknown in one of them."""
        return sum(queue.messages or 0 for queue in self.queues) if self.is_known else None

    @property
    def time_ms(self) -> int | None:
        """In the queue that is the furthest behind; None when it is unknown in one of them."""
        known = [queue.time_ms for queue in self.queues if queue.time_ms is not None]
        return max(known) if known and len(known) == len(self.queues) else None

    def of_topic(self, topic: str) -> "GroupLag":
        """The same, for one of its topics."""
        return msgspec.structs.replace(self, queues=tuple(each for each in self.queues if each.queue.topic == topic))


def queue_lag(queue: MessageQueue, min_offset: int | None, max_offset: int, committed: int | None) -> QueueLag:
    """From what a broker says. The time of a queue that is behind is still to be asked for: see `next_offset`."""
    messages, lost, problem = None, 0, ""
    if committed is None:
        problem = "the group has no offset in this queue"
    elif committed > max_offset:
        problem = f"the group is at {committed}, and the queue ends at {max_offset}: reset it"
    else:
        first = max(committed, min_offset or 0)
        messages, lost = max(0, max_offset - first), first - committed
    return QueueLag(
        queue=queue,
        min_offset=min_offset,
        max_offset=max_offset,
        committed=committed,
        messages=messages,
        time_ms=0 if messages == 0 else None,
        lost=lost,
        problem=problem,
    )


def next_offset(lag: QueueLag) -> int | None:
    """The offset of the oldest message that the group has not read; None when there is none, or it is unknown."""
    if not lag.messages or lag.committed is None:
        return None
    return max(lag.committed, lag.min_offset or 0)


def with_time(lag: QueueLag, store_ms: int | None, now_ms: int) -> QueueLag:
    """Now that it is known when the oldest unread message was stored; None when it could not be read."""
    if store_ms is None:
        return msgspec.structs.replace(lag, problem="the oldest unread message could not be read")
    return msgspec.structs.replace(lag, time_ms=max(0, now_ms - store_ms))


def unknown(queue: MessageQueue, problem: str) -> QueueLag:
    """Of a queue that nobody could be asked about."""
    return QueueLag(queue=queue, problem=problem)

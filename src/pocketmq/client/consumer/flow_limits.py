"""Flow limits: why a pull has to wait although the broker has more.

    paused by the user                          1000 ms
    ordered, and the lock is not ours           1000 ms
    too many messages here                        50 ms   per queue, or in all queues of a lite consumer
    too many bytes here                           50 ms
    span too long: one message holds all up       50 ms   not for ordered queues, whose head is always next

A limit is passed when there is *more* than it says, so a queue may go over it by one pull. A limit for the topic replaces the
one for its queues and is divided among those that this member owns, so a member with few queues keeps more of each.
(Java divides it by its queues of all topics.)

The first time that a limit stops a pull, and every 1000th time, is logged in RocketMQ's words.
"""

from collections import Counter
from enum import StrEnum
from typing import Final

import msgspec

from pocketmq.client.consumer.process_queue import ProcessQueue
from pocketmq.errors import InvalidSetting

_MIB: Final = 1024 * 1024


class PauseCause(StrEnum):
    """Why a pull waits."""

    PAUSED = "paused"
    UNLOCKED = "unlocked"
    MESSAGES = "messages"
    ALL_MESSAGES = "all messages"
    BYTES = "bytes"
    SPAN = "span"


PAUSE_MS: Final[dict[PauseCause, int]] = {
    PauseCause.PAUSED: 1000,
    PauseCause.UNLOCKED: 1000,
    PauseCause.MESSAGES: 50,
    PauseCause.ALL_MESSAGES: 50,
    PauseCause.BYTES: 50,
    PauseCause.SPAN: 50,
}
"""How long it waits before it looks again."""

LOGGED_EVERY: Final = 1000
"""Of flow controls of one cause, the first is logged, and then one of so many."""


class QueueLimits(msgspec.Struct, frozen=True):
    """What one queue may hold."""

    messages: int
    body_bytes: int
    span: int
    all_messages: int | None = None


class FlowLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What a consumer may hold. None: no limit of that kind."""

    queue_messages: int = 1000
    queue_bytes: int = 100 * _MIB
    span: int = 2000
    topic_messages: int | None = None
    topic_bytes: int | None = None
    all_messages: int | None = None
    """In all queues of all topics; lite consumers have 10,000."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InvalidSetting(f"flow limit {name} is {value}; with less than 1 nothing could be pulled")

    def of_queue(self, owned: int) -> QueueLimits:
        """The limits of each queue of a topic of which this member owns `owned`."""
        return QueueLimits(
            _share(self.topic_messages, owned, self.queue_messages),
            _share(self.topic_bytes, owned, self.queue_bytes),
            self.span,
            self.all_messages,
        )


def _share(topic_limit: int | None, owned: int, queue_limit: int) -> int:
    """Never less than 1, or a queue could never be pulled."""
    return queue_limit if topic_limit is None or owned < 1 else max(1, topic_limit // owned)


def pause_cause(
    limits: QueueLimits, queue: ProcessQueue, now: float, *, is_paused: bool = False, all_messages: int = 0
) -> PauseCause | None:
    """Why this queue may not be pulled now; None when it may. `all_messages` is what all queues hold together."""
    if is_paused or queue.is_paused:
        return PauseCause.PAUSED
    if limits.all_messages is not None and all_messages > limits.all_messages:
        return PauseCause.ALL_MESSAGES
    if queue.count > limits.messages:
        return PauseCause.MESSAGES
    if queue.body_bytes > limits.body_bytes:
        return PauseCause.BYTES
    if not queue.is_orderly:
        return PauseCause.SPAN if queue.span > limits.span else None
    return None if queue.is_locked(now) else PauseCause.UNLOCKED


class PauseCounts:
    """How often pulls waited, and why."""

    def __init__(self) -> None:
        self._counts: Counter[PauseCause] = Counter()

    def note(self, cause: PauseCause) -> int:
        """Count one; how long to wait, in milliseconds."""
        self._counts[cause] += 1
        return PAUSE_MS[cause]

    def is_to_be_logged(self, cause: PauseCause) -> bool:
        """Whether the pause that was noted last is one of those that the log tells. A pause that the user asked for is not."""
        is_flow_control = cause not in (PauseCause.PAUSED, PauseCause.UNLOCKED)
        return is_flow_control and self._counts[cause] % LOGGED_EVERY == 1

    def __getitem__(self, cause: PauseCause) -> int:
        return self._counts[cause]

    def snapshot(self) -> dict[PauseCause, int]:
        """All causes, also those that never came up."""
        return {cause: self._counts[cause] for cause in PauseCause}


def flow_control_text(
    cause: PauseCause, limits: QueueLimits, queue: ProcessQueue, *, all_messages: int, times: int
) -> str:
    """What the log says of a pull that a limit stopped."""
    match cause:
        case PauseCause.MESSAGES:
            start = f"the cached message count exceeds the threshold {limits.messages}"
        case PauseCause.BYTES:
            start = f"the cached message size exceeds the threshold {_mib(limits.body_bytes)}"
        case PauseCause.SPAN:
            start = f"the queue's messages, span too long (maxSpan={limits.span})"
        case _:
            start = f"the message count of all queues, {all_messages}, exceeds the threshold {limits.all_messages}"
    return (
        f"{start}, so do flow control, minOffset={queue.min_offset}, maxOffset={queue.max_offset}, count={queue.count}, "
        f"size={_mib(queue.body_bytes)}, span={queue.span}, pullRequest={queue.queue} nextOffset={queue.pulls.next_offset}, "
        f"flowControlTimes={times}; the next pull is tried in {PAUSE_MS[cause]} ms"
    )


def _mib(size: int) -> str:
    return f"{size / _MIB:g} MiB" if not size % _MIB else f"{size / _MIB:.1f} MiB"

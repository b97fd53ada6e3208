"""Flow limits: when the pulls of a queue pause, and for how long.

    paused by the user                            1000 ms
    orderly, and the queue is not locked          1000 ms
    too many cached messages                        50 ms   per queue, or in all queues of a lite pull consumer
    too many cached bytes                           50 ms
    span too long: one slow message                 50 ms   not for orderly queues, which consume the head next

A pull pauses when a queue has *more* than a limit, so a queue may exceed it by one pull. A limit for a topic replaces that for its
queues, and is divided among the assigned queues of the topic. (Java divides it among the queues of all topics.)

The first pause of each cause, and every 1000th, is logged in RocketMQ's words.
"""

from collections import Counter
from enum import StrEnum
from typing import Final

import msgspec

from pocketmq.client.consumer.process_queue import ProcessQueue
from pocketmq.errors import InvalidSetting

_MIB: Final = 1024 * 1024

Workers = int | tuple[int, int]
"""The number of parallel calls of listeners, or its minimum and maximum."""
WORKERS: Final = (1, 1000)
"""The limits of both numbers of `workers`."""
AHEAD_S: Final = 0.1
"""A member pops what its workers handle in this time."""


def worker_range(workers: Workers) -> tuple[int, int]:
    """The minimum and maximum of `workers`. Raises InvalidSetting with a valid example."""
    low, high = WORKERS
    numbers = workers if isinstance(workers, tuple) else (workers, workers)
    if len(numbers) == 2 and all(type(number) is int and low <= number <= high for number in numbers):
        least, most = numbers
        if least <= most:
            return least, most
        raise InvalidSetting(
            f"option workers = {workers} has a minimum above its maximum, for example workers=({most}, {least})"
        )
    raise InvalidSetting(
        f"option workers = {workers!r} must be a whole number from {low} to {high}, or minimum and maximum as two of them, "
        "for example workers=20 or workers=(4, 64)"
    )


def lease_limit(workers: int, batch_size: int, mean_s: float | None) -> int:
    """How many messages a member leases: those of running calls, and of the next call of each worker, or of the next 0.1 s.
    `mean_s` is the mean duration of a call.
    """
    ahead = 1 if mean_s is None or mean_s <= 0 else max(1, int(AHEAD_S / mean_s))
    return workers * batch_size * (1 + ahead)


class PauseCause(StrEnum):
    """Why a pull waits."""

    PAUSED = "paused"
    UNLOCKED = "unlocked"
    MESSAGES = "messages"
    ALL_MESSAGES = "all messages"
    BYTES = "bytes"
    SPAN = "span"


PAUSE_MS: Final = dict.fromkeys(PauseCause, 50) | {PauseCause.PAUSED: 1000, PauseCause.UNLOCKED: 1000}
"""After this time the limits are checked again."""

LOGGED_EVERY: Final = 1000
"""Of the pauses of one cause, the first is logged, and every 1000th after it."""


class QueueLimits(msgspec.Struct, frozen=True):
    """The limits of one queue. `all_messages` limits the messages in all queues of all topics; None: no limit."""

    messages: int
    body_bytes: int
    span: int
    all_messages: int | None = None


def per_queue(topic_limit: int | None, owned: int, queue_limit: int) -> int:
    """The limit of each of `owned` queues of a topic. At least 1, or the queue would never be pulled."""
    return queue_limit if topic_limit is None or owned < 1 else max(1, topic_limit // owned)


def pause_cause(
    limits: QueueLimits, queue: ProcessQueue, now: float, *, is_paused: bool = False, all_messages: int = 0
) -> PauseCause | None:
    """Why this queue may not be pulled now; None when it may. `all_messages` counts the messages in all queues."""
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
    """How often pulls paused, by cause."""

    def __init__(self) -> None:
        self._counts: Counter[PauseCause] = Counter()

    def count(self, cause: PauseCause) -> int:
        """Count a pause and return its length in milliseconds."""
        self._counts[cause] += 1
        return PAUSE_MS[cause]

    def should_log(self, cause: PauseCause) -> bool:
        """Whether to log the last pause: never one that the user requested."""
        is_flow_control = cause not in (PauseCause.PAUSED, PauseCause.UNLOCKED)
        return is_flow_control and self._counts[cause] % LOGGED_EVERY == 1

    def __getitem__(self, cause: PauseCause) -> int:
        return self._counts[cause]

    def snapshot(self) -> dict[PauseCause, int]:
        """All causes, also those with a count of 0."""
        return {cause: self._counts[cause] for cause in PauseCause}


def flow_control_text(
    cause: PauseCause, limits: QueueLimits, queue: ProcessQueue, *, all_messages: int, times: int
) -> str:
    """The log line of a pause."""
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
        f"flowControlTimes={times}; next attempt in {PAUSE_MS[cause]} ms"
    )


def _mib(size: int) -> str:
    if not size % _MIB:
        return f"{size // _MIB} MiB"
    return f"{size / _MIB:.4f} MiB" if size < _MIB else f"{size / _MIB:.1f} MiB"

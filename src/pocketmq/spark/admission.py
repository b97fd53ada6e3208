"""How much a micro-batch takes: nothing yet, a share, or all that waits.

    places ──► latest        what waits, by queue
       └── share ──►         at most maxOffsetsPerTrigger messages and maxBytesPerTrigger bytes, in proportion to what waits

The shares add up to the limit exactly, so a batch is never larger. Every queue where something waits gets at least one
message, as far as the limit reaches: a queue with little never starves beside one with much. Where the limit is below the
number of queues, they take turns.
"""

from collections.abc import Mapping

import msgspec

from pocketmq.model.queue import MessageQueue
from pocketmq.spark.offsets import Places


class Limits(msgspec.Struct, frozen=True):
    """The limits of a query's batches; None where there is none."""

    max_offsets: int | None = None
    max_bytes: int | None = None
    min_offsets: int | None = None
    max_delay_ms: int = 900_000

    def without_waiting(self) -> "Limits":
        """For a run that ends when all is read (AvailableNow): what waits is never too little."""
        return msgspec.structs.replace(self, min_offsets=None)


def is_due(waiting: int, waited_ms: int, limits: Limits) -> bool:
    """Whether so many messages are enough for a batch, or the last one is so long ago that any number is."""
    if waiting == 0:
        return False
    return limits.min_offsets is None or waiting >= limits.min_offsets or waited_ms >= limits.max_delay_ms


def admitted(
    places: Places,
    latest: Places,
    limits: Limits,
    *,
    bytes_per_message: Mapping[MessageQueue, int] | None = None,
    turn: int = 0,
) -> dict[MessageQueue, int]:
    """Where the next batch ends in each queue of `places` where something waits. `turn` counts the batches, for fairness."""
    waiting = {queue: latest[queue] - place for queue, place in sorted(places.items()) if latest.get(queue, 0) > place}
    shares = waiting
    if limits.max_offsets is not None:
        shares = shared_out(waiting, limits.max_offsets, turn)
    if limits.max_bytes is not None:
        shares = _within_bytes(shares, limits.max_bytes, bytes_per_message or {}, turn)
    return {queue: places[queue] + count for queue, count in shares.items() if count}


def capped(latest: Places, target: Places) -> dict[MessageQueue, int]:
    """`latest`, but no further than `target`: what a run reads that ends where things were when it began."""
    return {queue: min(place, target[queue]) for queue, place in latest.items() if queue in target}


def shared_out(waiting: Mapping[MessageQueue, int], limit: int, turn: int = 0) -> dict[MessageQueue, int]:
    """`limit` messages, or all if fewer wait, shared among queues in proportion."""
    total, count = sum(waiting.values()), len(waiting)
    if total <= limit:
        return dict(waiting)
    queues = list(waiting)
    if limit < count:
        return {queues[(turn * limit + at) % count]: 1 for at in range(limit)}
    rest, others = limit - count, total - count
    shares = {queue: 1 + rest * (waiting[queue] - 1) // others for queue in queues}
    left = limit - sum(shares.values())
    by_remainder = sorted(queues, key=lambda queue: -(rest * (waiting[queue] - 1) % others))
    for queue in by_remainder[:left]:
        shares[queue] += 1
    return shares


def _within_bytes(
    shares: Mapping[MessageQueue, int], max_bytes: int, sizes: Mapping[MessageQueue, int], turn: int
) -> dict[MessageQueue, int]:
    """The shares cut down to so many bytes; one message at least, so that the query gets on."""
    weights = {queue: max(1, sizes.get(queue, 1)) for queue in shares}
    total = sum(count * weights[queue] for queue, count in shares.items())
    if total <= max_bytes:
        return dict(shares)
    cut = {queue: count * max_bytes // total for queue, count in shares.items()}
    spare = max_bytes - sum(count * weights[queue] for queue, count in cut.items())
    queues = list(shares)
    for at in range(len(queues)):
        queue = queues[(turn + at) % len(queues)]
        if not cut[queue] and weights[queue] <= spare:
            cut[queue] = 1
            spare -= weights[queue]
    if not any(cut.values()):
        cut[queues[turn % len(queues)]] = 1
    return cut

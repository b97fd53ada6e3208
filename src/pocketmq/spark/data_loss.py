"""Messages that are gone before they were read: found out, told exactly, and settled as the query wishes.

retention    place ··· min ───────── max          the queue begins behind the place: [place, min) is gone
truncation             min ── max ··· place       the queue ends before it: a broker lost its tail, [max, place) is gone
re-created   min ─── place? ─── max               what stands before the place is newer than the last look at it: another queue, see
                                                  `oldest_messages` for one that was re-created soon after it
hole         min ── place ···── max               a broker lost a file in the middle of the queue; only a task finds that out, see `range_reading`

fail      DataLost, with every range                    the query stops where it was
skip      go on behind what is gone, and record it      a new topic is read from its beginning
earliest  go on at the beginning of the queue           may read again what was read before the tail was lost
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from pocketmq.errors import DataLost
from pocketmq.model.queue import MessageQueue, QueueRange
from pocketmq.spark.broker_facts import Bounds
from pocketmq.spark.offsets import Cause, Lost, Places

CLOCK_SKEW_MS: Final = 60_000
"""How far the clocks of brokers and of the driver may differ before a topic seems re-created."""

_TOLD: Final = 20
"""How many ranges an error names before it only counts them."""


class QueueFacts(NamedTuple):
    """A queue as it is now; `earliest_store_ms` is -1 when it is empty or nobody asked. `is_another` than at the last look, or None
    where only times can tell.
    """

    bounds: Bounds
    earliest_store_ms: int = -1
    is_another: bool | None = None


def find_losses(places: Places, facts: Mapping[MessageQueue, QueueFacts], seen_ms: int) -> list[Lost]:
    """What a query that is at `places`, seen at `seen_ms`, cannot read any more. Queues without facts are not judged."""
    judged = [queue for queue in sorted(places) if queue in facts]
    losses = (_loss(queue, places[queue], facts[queue], seen_ms) for queue in judged)
    return [lost for lost in losses if lost is not None]


def _loss(queue: MessageQueue, place: int, facts: QueueFacts, seen_ms: int) -> Lost | None:
    low, high = facts.bounds
    if _is_another_queue(place, facts, seen_ms):
        return Lost(QueueRange(queue, place, max(place, high)), Cause.RECREATION)
    if place < low:
        return Lost(QueueRange(queue, place, low), Cause.RETENTION)
    if place > high:
        return Lost(QueueRange(queue, high, place), Cause.TRUNCATION)
    return None


def _is_another_queue(place: int, facts: QueueFacts, seen_ms: int) -> bool:
    """Whether messages before `place`, which were there at `seen_ms`, were stored after it. A queue that was emptied is one, too."""
    low, high = facts.bounds
    if place > 0 and low == high == 0:
        return True
    if facts.is_another is not None:
        return low < place and facts.is_another
    return bool(seen_ms) and low < place and facts.earliest_store_ms > seen_ms + CLOCK_SKEW_MS


def settle(losses: Sequence[Lost], facts: Mapping[MessageQueue, QueueFacts], policy: str) -> dict[MessageQueue, int]:
    """Where the queues with losses go on, by the policy of `onDataLoss`; DataLost if that is to fail."""
    if losses and policy == "fail":
        raise DataLost(loss_text(losses))
    return {lost.range.queue: _next_place(lost, facts[lost.range.queue].bounds, policy) for lost in losses}


def _next_place(lost: Lost, bounds: Bounds, policy: str) -> int:
    if policy == "skip" and lost.cause is Cause.TRUNCATION:
        return bounds.max
    return bounds.min


def loss_text(losses: Sequence[Lost]) -> str:
    """What is gone, why, and what to do."""
    told = "; ".join(str(lost) for lost in losses[:_TOLD])
    more = f"; and {len(losses) - _TOLD} more queues" if len(losses) > _TOLD else ""
    return (
        f"messages are gone before they were read: {told}{more}. "
        "Set onDataLoss = skip to go on without them, or onDataLoss = earliest to begin again with what is there"
    )

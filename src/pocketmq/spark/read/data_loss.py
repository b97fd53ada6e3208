"""Messages that are gone before they were read: found out, told exactly, and settled as the query wishes.

retention    place ··· min ───────── max          the queue begins behind the place: [place, min) is gone
truncation             min ── max ··· place       the queue ends before it: a broker lost its tail, [max, place) is gone
re-created   min ─── place? ─── max               what stands before the place is newer than the last look at it: another queue, see
                                                  `OldestMessages` for one that was re-created soon after it
hole         min ── place ···── max               a broker lost a file in the middle of the queue; only a task finds that out, see `range_reading`

fail      DataLost, with every range                    the query stops where it was
skip      go on behind what is gone, and record it      a new topic is read from its beginning
earliest  go on at the beginning of the queue           may read again what was read before the tail was lost

Queues that a query reads and that are not there any more: told once each, with what was not read of them.

A queue is missing when its topic was deleted or has fewer queues than before, and also when its broker is away for a while. Which of
them it is nobody can say, so this is no loss yet: the query keeps the place, and goes on there should the queue come back.

The oldest message of each queue that a query reads: where another one stands in its place, the queue is another one.

    last look   min 0, stored at t0
    now         min 0, stored at t0           the same queue
    now         min 0, stored at t1 > t0      re-created: in the same queue what stands there, or before it, is never newer
    now         min 7, stored at t1 > t0      retention took the beginning; or it was re-created long ago

That needs no clock but the broker's own, so a topic is recognised that was re-created a moment ago. It is a memory of this process: the
third case, and what happened before the first look, are left to the times in the checkpoint, see `data_loss`.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

from pocketmq.errors import DataLost
from pocketmq.model.queue import MessageQueue, QueueRange
from pocketmq.spark.broker_facts import Bounds
from pocketmq.spark.read.offsets import Cause, Lost, Places

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


class MissingQueues:
    """Of one query."""

    def __init__(self) -> None:
        self._unread: dict[MessageQueue, QueueRange] = {}

    def note(self, missing: Iterable[MessageQueue], places: Places, last_seen: Places) -> list[str]:
        """A sentence for each queue that is missing and was there before; `last_seen` is where queues ended at the last look."""
        now = sorted(missing)
        new = [queue for queue in now if queue not in self._unread]
        self._unread = {
            queue: self._unread.get(queue) or _unread(queue, places[queue], last_seen.get(queue)) for queue in now
        }
        return [_sentence(self._unread[queue]) for queue in new]

    def to_json(self) -> list[dict[str, Any]]:
        """For the progress of the query: what was there and was not read."""
        return [
            {
                "topic": queue.topic,
                "brokerName": queue.broker_name,
                "queueId": queue.queue_id,
                "start": unread.start,
                "end": unread.end,
            }
            for queue, unread in self._unread.items()
        ]


def _unread(queue: MessageQueue, place: int, last_seen: int | None) -> QueueRange:
    return QueueRange(queue, place, max(place, last_seen or 0))


def _sentence(unread: QueueRange) -> str:
    what = (
        f"messages from {unread.start} to {unread.end} were not read" if len(unread) else "all that was seen was read"
    )
    return f"{unread.queue} is not there any more; {what}. Should it come back, the query goes on at {unread.start}"


_UNKNOWN_MS: Final = -1


class OldestFacts(Protocol):
    """What is asked of brokers."""

    def bounds(self, queues: list[MessageQueue]) -> dict[MessageQueue, Bounds]: ...

    def earliest_store_ms(self, queues: list[MessageQueue]) -> dict[MessageQueue, int]: ...


class OldestMessages:
    """Of one query."""

    def __init__(self) -> None:
        self._seen: dict[MessageQueue, QueueFacts] = {}

    def look(
        self, bounds: Mapping[MessageQueue, Bounds], places: Places, brokers: OldestFacts
    ) -> dict[MessageQueue, QueueFacts]:
        """The facts about queues that have these bounds, with those that are others than at the last look.

        The age of the oldest message is asked for only where it can matter: at the first look, and where a query is not at the end.
        """
        asked = [
            queue
            for queue, held in bounds.items()
            if held.max != places.get(queue) or (queue not in self._seen and held.min < held.max)
        ]
        oldest = brokers.earliest_store_ms(asked)
        facts = {queue: self._judged(queue, held, oldest.get(queue, _UNKNOWN_MS)) for queue, held in bounds.items()}
        if seem_others := [queue for queue in asked if facts[queue].is_another]:
            facts |= self._moved(seem_others, facts, brokers)
        self._seen |= {queue: facts[queue] for queue in asked if facts[queue].earliest_store_ms != _UNKNOWN_MS}
        return facts

    def _judged(self, queue: MessageQueue, held: Bounds, oldest_ms: int) -> QueueFacts:
        seen = self._seen.get(queue)
        is_another: bool | None = None
        if seen is not None and oldest_ms == seen.earliest_store_ms:
            is_another = False
        elif seen is not None and oldest_ms > seen.earliest_store_ms and held.min <= seen.bounds.min:
            is_another = True
        return QueueFacts(held, oldest_ms, is_another)

    def _moved(
        self, queues: Collection[MessageQueue], facts: Mapping[MessageQueue, QueueFacts], brokers: OldestFacts
    ) -> dict[MessageQueue, QueueFacts]:
        """Those whose beginning has moved. It was asked for before what stands there: retention may have come in between."""
        again = brokers.bounds(list(queues))
        moved = {queue: held for queue, held in again.items() if held.min != facts[queue].bounds.min}
        return {queue: QueueFacts(held) for queue, held in moved.items()}

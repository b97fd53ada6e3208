"""The oldest message of each queue that a query reads: where another one stands in its place, the queue is another one.

    last look   min 0, stored at t0
    now         min 0, stored at t0           the same queue
    now         min 0, stored at t1 > t0      re-created: in the same queue what stands there, or before it, is never newer
    now         min 7, stored at t1 > t0      retention took the beginning; or it was re-created long ago

That needs no clock but the broker's own, so a topic is recognised that was re-created a moment ago. It is a memory of this process: the
third case, and what happened before the first look, are left to the times in the checkpoint, see `data_loss`.
"""

from collections.abc import Collection, Mapping
from typing import Final, Protocol

from pocketmq.model.queue import MessageQueue
from pocketmq.spark.broker_facts import Bounds
from pocketmq.spark.data_loss import QueueFacts
from pocketmq.spark.offsets import Places

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

"""The first message of a queue that was stored at a time or later. Brokers search for it, and not all of them find it.

    stored at   1  1  1  1  5  5  5  5        asked for 5, RocketMQ 4.9 names any of the last four; asked for 3, the one that is
    offset      0  1  2  3  4  5  6  7        nearest in time, 3 or 4. To begin at 6, or to end at 3, would leave messages out.

So what a broker names is a guess. It is looked at, and then its neighbour: that is all where the guess is right. Else the queue is
halved until the first one is found, all queues side by side. Times are taken for rising within a queue.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from pocketmq.model.queue import MessageQueue
from pocketmq.spark.broker_facts import Bounds
from pocketmq.spark.offsets import Places

Stored = Callable[[Places], Mapping[MessageQueue, int]]
"""When the messages at these places were stored; those that are gone are left out."""


class _Span(NamedTuple):
    """The first message lies at `low` or behind, and at `high` or before; `probe` is looked at next."""

    low: int
    high: int
    probe: int
    is_guess: bool = True

    def narrowed(self, is_late: bool) -> "_Span":
        """By whether the message at `probe` was stored at the time or later."""
        low, high = (self.low, self.probe) if is_late else (self.probe + 1, self.high)
        neighbour = self.probe - 1 if is_late else self.probe + 1
        return _Span(low, high, neighbour if self.is_guess else (low + high) // 2, is_guess=False)


def first_at(
    times_ms: Mapping[MessageQueue, int], guesses: Places, bounds: Mapping[MessageQueue, Bounds], stored: Stored
) -> dict[MessageQueue, int]:
    """Where it is in each queue; where the queue ends if no message is that new."""
    spans = {queue: _span(guesses[queue], bounds[queue]) for queue in times_ms}
    while asked := {queue: span.probe for queue, span in spans.items() if span.low < span.high}:
        found = stored(asked)
        for queue in asked:
            # One that is gone was taken by retention, which begins with the oldest.
            spans[queue] = spans[queue].narrowed(queue in found and found[queue] >= times_ms[queue])
    return {queue: span.low for queue, span in spans.items()}


def _span(guess: int, held: Bounds) -> _Span:
    return _Span(held.min, held.max, min(max(guess, held.min), held.max - 1))

"""Queues that a query reads and that are not there any more: told once each, with what was not read of them.

A queue is missing when its topic was deleted or has fewer queues than before, and also when its broker is away for a while. Which of
them it is nobody can say, so this is no loss yet: the query keeps the place, and goes on there should the queue come back.
"""

from collections.abc import Iterable
from typing import Any

from pocketmq.model.queue import MessageQueue, QueueRange
from pocketmq.spark.offsets import Places


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

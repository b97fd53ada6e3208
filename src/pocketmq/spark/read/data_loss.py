"""Messages that were deleted before they were read: found, reported with exact ranges, and handled by the policy of the query.

retention    offset ··· min ───────── max          the queue begins after the offset: [offset, min) is lost
truncation              min ── max ··· offset      the queue ends before it: a broker lost its tail, [max, offset) is lost
             min ─── new ─── offset ─── max        it lost its tail, and new messages passed the offset: see `LastMessages`
re-created   min ─── offset? ─── max               messages before the offset are newer than the last batch: another queue. See
                                                   `OldestMessages` for one that was re-created soon after it
hole         min ── offset ···── max               a broker lost a file in the middle of the queue; only a task notices, see `range_reading`

fail      DataLost, with every range                  the query stops at its offset
skip      continue after the lost range               a re-created topic is read from its beginning, a new tail from its first message
earliest  continue at the beginning of the queue      may repeat messages that were read before the tail was lost

Missing queues are reported once each, with the range that was not read. A queue is missing if its topic was deleted or has fewer
queues than before, but also if its broker is temporarily unavailable. The two cannot be distinguished, so this is not a loss: the
query keeps the offset, and continues there if the queue returns.

The oldest message of each queue shows that a topic was re-created:

    last check   min 0, stored at t0
    now          min 0, stored at t0           the same queue
    now          min 0, stored at t1 > t0      re-created: within one queue, the message at an offset never becomes newer
    now          min 7, stored at t1 > t0      retention deleted the beginning, or it was re-created long ago

This uses only the broker's clock, so it recognises a topic that was re-created a moment ago. It is known in this process only:
for the third case, and for the time before the first check, the times in the checkpoint decide.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

from pocketmq.errors import DataLost
from pocketmq.model import MessageQueue, QueueRange
from pocketmq.spark.broker_facts import Bounds
from pocketmq.spark.read.offsets import Cause, Lost, QueueOffsets

CLOCK_SKEW_MS: Final = 60_000
"""Maximum clock difference between brokers and driver; beyond it, a topic counts as re-created."""

_MAX_NAMED: Final = 20
"""Number of ranges that an error names; it only counts the rest."""


class QueueFacts(NamedTuple):
    """A queue as it is now. `earliest_store_ms` is -1 if the queue is empty or it was not queried; `is_another` compares the queue
    with the last check, None if only times can decide. `first_new` is where a shorter log begins to reuse offsets that were read.
    """

    bounds: Bounds
    earliest_store_ms: int = -1
    is_another: bool | None = None
    first_new: int | None = None


def find_losses(offsets: QueueOffsets, facts: Mapping[MessageQueue, QueueFacts], seen_ms: int) -> list[Lost]:
    """The messages that a query at `offsets`, recorded at `seen_ms`, has lost. Queues without facts are skipped."""
    known = [queue for queue in sorted(offsets) if queue in facts]
    losses = (_loss(queue, offsets[queue], facts[queue], seen_ms) for queue in known)
    return [lost for lost in losses if lost is not None]


def _loss(queue: MessageQueue, offset: int, facts: QueueFacts, seen_ms: int) -> Lost | None:
    low, high = facts.bounds
    if _is_another_queue(offset, facts, seen_ms):
        return Lost(QueueRange(queue, offset, max(offset, high)), Cause.RECREATION)
    if offset < low:
        return Lost(QueueRange(queue, offset, low), Cause.RETENTION)
    if facts.first_new is not None:
        return Lost(QueueRange(queue, facts.first_new, offset), Cause.TRUNCATION)
    if offset > high:
        return Lost(QueueRange(queue, high, offset), Cause.TRUNCATION)
    return None


def _is_another_queue(offset: int, facts: QueueFacts, seen_ms: int) -> bool:
    """Whether messages before `offset`, which existed at `seen_ms`, were stored after it. An emptied queue counts, too."""
    low, high = facts.bounds
    if offset > 0 and low == high == 0:
        return True
    if facts.is_another is not None:
        return low < offset and facts.is_another
    return bool(seen_ms) and low < offset and facts.earliest_store_ms > seen_ms + CLOCK_SKEW_MS


def settle(losses: Sequence[Lost], facts: Mapping[MessageQueue, QueueFacts], policy: str) -> dict[MessageQueue, int]:
    """The offsets at which queues with losses continue, by `onDataLoss`; DataLost if the policy is to fail."""
    if losses and policy == "fail":
        raise DataLost(loss_text(losses))
    return {lost.range.queue: _continue_at(lost, facts[lost.range.queue].bounds, policy) for lost in losses}


def _continue_at(lost: Lost, bounds: Bounds, policy: str) -> int:
    if policy == "skip" and lost.cause is Cause.TRUNCATION:
        return lost.range.start
    return bounds.min


def loss_text(losses: Sequence[Lost]) -> str:
    """The lost ranges with their causes, and how to continue."""
    named = "; ".join(str(lost) for lost in losses[:_MAX_NAMED])
    more = f"; and {len(losses) - _MAX_NAMED} more queues" if len(losses) > _MAX_NAMED else ""
    return (
        f"messages were deleted before they were read: {named}{more}. "
        "Set onDataLoss = skip to continue without them, or onDataLoss = earliest to continue with the earliest messages"
    )


class MissingQueues:
    """The missing queues of one query."""

    def __init__(self) -> None:
        self._unread: dict[MessageQueue, QueueRange] = {}

    def record(self, missing: Iterable[MessageQueue], offsets: QueueOffsets, last_seen: QueueOffsets) -> list[str]:
        """A text for each queue that is newly missing; `last_seen` are the last known ends of queues."""
        now = sorted(missing)
        new = [queue for queue in now if queue not in self._unread]
        self._unread = {
            queue: self._unread.get(queue) or _unread(queue, offsets[queue], last_seen.get(queue)) for queue in now
        }
        return [_text(self._unread[queue]) for queue in new]

    def to_json(self) -> list[dict[str, Any]]:
        """For the progress of the query: the known ranges that were not read."""
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


def _unread(queue: MessageQueue, offset: int, last_seen: int | None) -> QueueRange:
    return QueueRange(queue, offset, max(offset, last_seen or 0))


def _text(unread: QueueRange) -> str:
    what = f"messages from {unread.start} to {unread.end} are unread" if len(unread) else "all known messages were read"
    return f"{unread.queue} does not exist any more; {what}. If it returns, the query continues at {unread.start}"


_UNKNOWN_MS: Final = -1


class OldestQueries(Protocol):
    """Queries to brokers."""

    def bounds(self, queues: list[MessageQueue]) -> dict[MessageQueue, Bounds]: ...

    def earliest_store_ms(self, queues: list[MessageQueue]) -> dict[MessageQueue, int]: ...


class OldestMessages:
    """The oldest messages of one query's queues."""

    def __init__(self) -> None:
        self._seen: dict[MessageQueue, QueueFacts] = {}

    def check(
        self, bounds: Mapping[MessageQueue, Bounds], offsets: QueueOffsets, brokers: OldestQueries
    ) -> dict[MessageQueue, QueueFacts]:
        """The facts about queues with these bounds, compared to the last check.

        Brokers are only queried where it matters: on the first check, and where a query is not at the end of the queue.
        """
        queried = [
            queue
            for queue, one in bounds.items()
            if one.max != offsets.get(queue) or (queue not in self._seen and one.min < one.max)
        ]
        oldest = brokers.earliest_store_ms(queried)
        facts = {queue: self._compared(queue, one, oldest.get(queue, _UNKNOWN_MS)) for queue, one in bounds.items()}
        if suspects := [queue for queue in queried if facts[queue].is_another]:
            facts |= self._moved(suspects, facts, brokers)
        self._seen |= {queue: facts[queue] for queue in queried if facts[queue].earliest_store_ms != _UNKNOWN_MS}
        return facts

    def _compared(self, queue: MessageQueue, bounds: Bounds, oldest_ms: int) -> QueueFacts:
        seen = self._seen.get(queue)
        is_another: bool | None = None
        if seen is not None and oldest_ms == seen.earliest_store_ms:
            is_another = False
        elif seen is not None and oldest_ms > seen.earliest_store_ms and bounds.min <= seen.bounds.min:
            is_another = True
        return QueueFacts(bounds, oldest_ms, is_another)

    def _moved(
        self, queues: Collection[MessageQueue], facts: Mapping[MessageQueue, QueueFacts], brokers: OldestQueries
    ) -> dict[MessageQueue, QueueFacts]:
        """Queues whose beginning moved after their bounds were queried: retention may have deleted messages in between."""
        again = brokers.bounds(list(queues))
        moved = {queue: one for queue, one in again.items() if one.min != facts[queue].bounds.min}
        return {queue: QueueFacts(one) for queue, one in moved.items()}


class StoreTimes(Protocol):
    """Queries to brokers."""

    def stored_ms(self, group: str, offsets: Mapping[MessageQueue, int]) -> dict[MessageQueue, int]: ...

    def offsets_at(self, times_ms: Mapping[MessageQueue, int]) -> dict[MessageQueue, int]: ...


class _Mark(NamedTuple):
    """`store_ms`: None if the message was deleted already."""

    offset: int
    store_ms: int | None

    def is_before(self, offset: int | None, bounds: Bounds) -> bool:
        """Whether a query continues right behind the message, and the queue does not end there."""
        return self.store_ms is not None and bounds.min <= self.offset and self.offset + 1 == offset != bounds.max


class LastMessages:
    """The last message before the offset of each queue of one query. A broker that loses unsynced messages gives their offsets to new
    ones, so another message is there then. Like `OldestMessages`, this is known in one process, and uses only the broker's clock.
    """

    def __init__(self, group: str) -> None:
        self._group = group
        self._marks: dict[MessageQueue, _Mark] = {}

    def first_new(
        self, bounds: Mapping[MessageQueue, Bounds], offsets: QueueOffsets, brokers: StoreTimes
    ) -> dict[MessageQueue, int]:
        """The first new message of each queue that became shorter; its end if there is none."""
        marks = {
            queue: mark
            for queue, mark in self._marks.items()
            if queue in bounds and mark.is_before(offsets.get(queue), bounds[queue])
        }
        longer = {queue: mark.offset for queue, mark in marks.items() if mark.offset < bounds[queue].max}
        stored = brokers.stored_ms(self._group, longer)
        times = {
            queue: mark.store_ms
            for queue, mark in marks.items()
            if queue not in longer
            or stored.get(queue, mark.store_ms) != mark.store_ms  # it may have been deleted just now
        }
        found = brokers.offsets_at({queue: store_ms + 1 for queue, store_ms in times.items() if store_ms is not None})
        return {queue: min(at, marks[queue].offset) for queue, at in found.items()}

    def forget(self, losses: Iterable[Lost]) -> None:
        """These queues have other messages now, maybe at the same offsets."""
        for lost in losses:
            self._marks.pop(lost.range.queue, None)

    def record(self, offsets: QueueOffsets, brokers: StoreTimes) -> None:
        """The query has planned to read up to these offsets."""
        last = {queue: offset - 1 for queue, offset in offsets.items() if offset > 0}
        new = {
            queue: offset
            for queue, offset in last.items()
            if queue not in self._marks or self._marks[queue].offset != offset
        }
        stored = brokers.stored_ms(self._group, new)
        self._marks |= {queue: _Mark(offset, stored.get(queue)) for queue, offset in new.items()}

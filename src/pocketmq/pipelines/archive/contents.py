"""What a table contains of its topics: the record that each commit of PocketMQ has in the table's own metadata, as JSON.

    number 7 ── added: orders@broker-a:0 400…500 ── holds: orders@broker-a:0 0…500 ── lost: orders@broker-a:0 20…30
    number 8 ── added: orders@broker-a:0 500…620 ── holds: orders@broker-a:0 0…620 ── lost: …

`added` are the ranges of one commit. `holds` are all ranges that the table has read, so the newest record is enough. Ranges in JSON:

    {"orders": {"broker-a": {"0": [[0, 620]], "1": [[0, 90], [200, 300]]}}}

Lost messages whose offsets may be used again, by a re-created topic or after the end of a queue was lost, are not held any more.

A batch is written without the ranges that the table holds. So a checkpoint that was deleted, a batch that runs again and a second writer
add no row twice.
"""

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from pocketmq.errors import StoreDamaged, WrongState
from pocketmq.model import MessageQueue, QueueRange
from pocketmq.spark.read.offsets import Cause, Lost

VERSION: Final = 1
Nested = dict[str, dict[str, dict[str, list[tuple[int, int]]]]]
"""Ranges by topic, broker and queue, as JSON has them."""


def nested(ranges: Iterable[QueueRange]) -> Nested:
    """Ranges as JSON has them."""
    found: Nested = {}
    for one in sorted(ranges):
        queue = one.queue
        queues = found.setdefault(queue.topic, {}).setdefault(queue.broker_name, {})
        queues.setdefault(str(queue.queue_id), []).append((one.start, one.end))
    return found


def flat(ranges: Nested) -> list[QueueRange]:
    """The same as a list, by queue and offset."""
    return sorted(
        QueueRange(MessageQueue(topic, broker, int(queue_id)), start, end)
        for topic, brokers in ranges.items()
        for broker, queues in brokers.items()
        for queue_id, pairs in queues.items()
        for start, end in pairs
    )


def joined(ranges: Iterable[QueueRange]) -> list[QueueRange]:
    """Ranges by queue and offset; those that touch or overlap are one."""
    found: list[QueueRange] = []
    for one in sorted(one for one in ranges if len(one)):
        last = found[-1] if found else None
        if last is not None and last.queue == one.queue and one.start <= last.end:
            found[-1] = QueueRange(one.queue, last.start, max(last.end, one.end))
        else:
            found.append(one)
    return found


def without(wanted: Iterable[QueueRange], held: Iterable[QueueRange]) -> list[QueueRange]:
    """The parts of ranges that are in none of `held`."""
    by_queue: dict[MessageQueue, list[QueueRange]] = {}
    for one in joined(held):
        by_queue.setdefault(one.queue, []).append(one)
    found = []
    for one in joined(wanted):
        at = one.start
        for known in by_queue.get(one.queue, ()):
            if at < min(known.start, one.end):
                found.append(QueueRange(one.queue, at, min(known.start, one.end)))
            at = max(at, known.end)
        if at < one.end:
            found.append(QueueRange(one.queue, at, one.end))
    return found


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """The record of one commit."""

    number: int = 0
    """One more than that of the record before."""
    attempt: str = ""
    """A name of its own for each attempt to commit."""
    query: str = ""
    batch: int = -1
    added: Nested = {}
    holds: Nested = {}
    lost: tuple[Lost, ...] = ()
    """All messages that were deleted before they were read."""
    batches: dict[str, int] = {}
    """The last batch of each query."""
    is_filtered: bool = False
    """Whether messages of these ranges may have been left out on purpose, now or before."""
    version: int = VERSION

    @property
    def ranges(self) -> list[QueueRange]:
        return flat(self.holds)

    @property
    def added_ranges(self) -> list[QueueRange]:
        return flat(self.added)

    @property
    def topics(self) -> list[str]:
        return sorted(self.holds)

    def new_losses(self, query: str, batch: int, lost: Sequence[Lost]) -> Sequence[Lost]:
        """The losses of a batch, unless the batch runs again."""
        return () if self.batches.get(query, -1) >= batch else lost

    def missing(self, wanted: Iterable[QueueRange], lost: Iterable[Lost]) -> list[QueueRange]:
        """The parts of ranges that the table does not have. Offsets that were used again count as not held."""
        return without(wanted, kept_after(self.ranges, lost))

    def starts(self) -> dict[MessageQueue, int]:
        """Where a new checkpoint starts to read: behind the first range of each queue."""
        found: dict[MessageQueue, int] = {}
        for one in self.ranges:
            found.setdefault(one.queue, one.end)
        return found

    def next(
        self,
        attempt: str,
        query: str,
        batch: int,
        added: Iterable[QueueRange],
        lost: Sequence[Lost],
        *,
        is_filtered: bool,
    ) -> "Record":
        """The record of the commit after this one."""
        more, kept = list(added), kept_after(self.ranges, lost)
        return Record(
            number=self.number + 1,
            attempt=attempt,
            query=query,
            batch=batch,
            added=nested(more),
            holds=nested(joined([*kept, *more])),
            lost=(*self.lost, *lost),
            batches={**self.batches, query: max(batch, self.batches.get(query, -1))},
            is_filtered=self.is_filtered or is_filtered,
        )

    def to_json(self) -> str:
        return msgspec.json.encode(self).decode()


def parse_record(text: str, where: str) -> Record:
    """The record in a commit; StoreDamaged or WrongState if this PocketMQ cannot read it."""
    try:
        record = msgspec.json.decode(text, type=Record)
    except msgspec.MsgspecError as error:
        raise StoreDamaged(f"the record of offsets in {where} is damaged: {error}") from None
    if record.version != VERSION:
        raise WrongState(
            f"the record of offsets in {where} has version {record.version}, and this PocketMQ reads version {VERSION}; use the "
            "PocketMQ that wrote it"
        )
    return record


def is_record(text: str | None) -> bool:
    """Whether the metadata of a commit are a record: other programs write their own."""
    return bool(text) and str(text).startswith('{"number":')


class Missing(msgspec.Struct, frozen=True):
    """Messages of a range that are not in a table, and why."""

    range: QueueRange
    why: str


NOT_READ: Final = "not archived yet"
LEFT_OUT: Final = "left out by a filter, lost before it was read, or deleted from the table"
ABSENT: Final = "lost before it was read, or deleted from the table"


def explained(
    wanted: Iterable[QueueRange],
    present: Iterable[QueueRange],
    held: Iterable[QueueRange],
    lost: Iterable[Lost],
    *,
    is_filtered: bool,
) -> list[Missing]:
    """The parts of ranges that are not `present`, with the reason that the records give.

    A batch holds what was planned: messages that brokers deleted between its plan and its read are held and absent.
    """
    absent, known = without(wanted, present), list(lost)
    found = [Missing(part, f"lost: {one.cause}") for one in known for part in _common(absent, one.range)]
    others = without(absent, (one.range for one in known))
    not_read = without(others, held)
    found += [Missing(one, NOT_READ) for one in not_read]
    found += [Missing(one, LEFT_OUT if is_filtered else ABSENT) for one in without(others, not_read)]
    return sorted(found, key=lambda one: (one.range, one.why))


def _common(ranges: Iterable[QueueRange], other: QueueRange) -> list[QueueRange]:
    parts = (
        QueueRange(one.queue, max(one.start, other.start), min(one.end, other.end))
        for one in ranges
        if one.queue == other.queue
    )
    return [one for one in parts if len(one)]


def kept_after(held: Iterable[QueueRange], lost: Iterable[Lost]) -> list[QueueRange]:
    """The parts of ranges whose messages still have these offsets; others may have those of a new topic, or of a lost end."""
    losses = list(lost)
    recreated = {one.range.queue for one in losses if one.cause is Cause.RECREATION}
    ends = [one.range for one in losses if one.cause is Cause.TRUNCATION]
    return without((one for one in held if one.queue not in recreated), ends)

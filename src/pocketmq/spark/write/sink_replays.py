"""Effectively once: every row that a query writes has an id, and gets the same id when its batch is written again.

    <query 12> - <batch> - <partition> - <digest of the row 20> - <n>     the property sparkRowId of each message

    new batch        the topic has no id with this prefix             write all rows
    replay           the topic has some of the rows, in any order     write the others
    different rows   the topic has a row that the partition lacks     fail: the batch is not the same as before

The id depends on the content of a row, not on its number: after a shuffle Spark returns the rows of a partition in another order,
and numbers would then skip rows that were never written. Equal rows are numbered by `n`.

Each attempt searches the topic, from the end of the query's last committed batch, for ids with the prefix of its partition.
"""

from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from itertools import repeat
from typing import Final

from pocketmq import compiled
from pocketmq.errors import InvalidMessage, WrongState
from pocketmq.model import Message
from pocketmq.model.properties import DELAY, TIMER_DELIVER_MS
from pocketmq.spark.write.sink_batches import ROW_ID, PlainRows
from pocketmq.spark.write.sink_offsets import SinkOffsets

_DIGEST_BYTES: Final = 10
_QUERY_BYTES: Final = 6
_LENGTH_BYTES: Final = 4


class RowIds:
    """The ids for one partition of one batch of a query. The same rows get the same ids, in any order."""

    def __init__(self, query_id: str, batch_id: int, partition: int) -> None:
        query = blake2b(query_id.encode(), digest_size=_QUERY_BYTES).hexdigest()
        self.prefix = f"{query}-{batch_id}-{partition}-"
        self._seen: set[str] = set()
        self._repeated: dict[str, int] = {}

    def next(self, head: bytes, body: bytes) -> str:
        """The id of the next row, by its `row_head` and body."""
        return self._counted(self._first(head, body))

    def next_of(self, heads: bytes | list[bytes], bodies: list[bytes]) -> list[str]:
        """The ids of the next rows; `heads` has one for each row, or is one for all."""
        twin = compiled.twin()
        if twin is not None:
            firsts = twin.row_ids(self.prefix.encode(), heads, bodies)
        else:
            each = repeat(heads, len(bodies)) if isinstance(heads, bytes) else heads
            firsts = [self._first(head, body) for head, body in zip(each, bodies, strict=True)]
        different = set(firsts)
        if len(different) == len(firsts) and self._seen.isdisjoint(different):
            self._seen |= different
            return firsts
        return [self._counted(first) for first in firsts]

    def _first(self, head: bytes, body: bytes) -> str:
        return f"{self.prefix}{blake2b(head + body, digest_size=_DIGEST_BYTES).hexdigest()}-0"

    def _counted(self, first: str) -> str:
        """The id of a row, numbered among equal rows; `first` is the id of the first one."""
        if first not in self._seen:
            self._seen.add(first)
            return first
        number = self._repeated[first] = self._repeated.get(first, 0) + 1
        return f"{first[:-1]}{number}"


def row_head(topic: str, properties: Mapping[str, str]) -> bytes:
    """The topic and properties of a row in a canonical form: sorted, separated as on the wire, after their length."""
    text = topic
    if properties:
        text = "\x02".join([topic, *[f"{name}\x01{value}" for name, value in sorted(properties.items())]])
    encoded = text.encode()
    return len(encoded).to_bytes(_LENGTH_BYTES, "big") + encoded


class Replay:
    """The rows of a partition that the topic already has. If it has none, every row is new."""

    def __init__(self, ids: RowIds, found: Iterable[str | None]) -> None:
        """`found` are the ids in the topic, including those of other writers; None for messages without one."""
        self._ids = ids
        self._stored = {row_id for row_id in found if row_id is not None and row_id.startswith(ids.prefix)}
        self._matched = 0

    def admit(self, message: Message) -> bool:
        """Whether the next row must be written; if so, its id becomes a property of `message`."""
        row_id = self.new_id(row_head(message.topic, message.properties), message.body)
        if row_id is None:
            return False
        message.properties[ROW_ID] = row_id
        return True

    def new_id(self, head: bytes, body: bytes) -> str | None:
        """The id of the next row; None if the topic has the row."""
        row_id = self._ids.next(head, body)
        if row_id in self._stored:
            self._matched += 1
            return None
        return row_id

    def new_ids(self, heads: bytes | list[bytes], bodies: list[bytes]) -> Sequence[str | None]:
        """The same for the next rows; `heads` has one for each row, or is one for all."""
        row_ids = self._ids.next_of(heads, bodies)
        if not self._stored:
            return row_ids
        new = [None if row_id in self._stored else row_id for row_id in row_ids]
        self._matched += new.count(None)
        return new

    def check_complete(self) -> None:
        """WrongState if the topic has a row that this partition lacks: then its rows have changed."""
        if self._matched < len(self._stored):
            raise WrongState(
                f"an earlier attempt wrote {len(self._stored) - self._matched} rows that this batch and partition now lack. The query "
                "returns other rows when it runs again (rand(), a changed number of partitions, a changed source), so it cannot "
                "write effectively once: make it repeatable, or set deliveryGuarantee = at-least-once"
            )


class Replays:
    """The rows of a partition that its topics already have. Each topic is searched before the first row is sent to it."""

    def __init__(self, offsets: SinkOffsets, query_id: str, batch_id: int, partition: int) -> None:
        self._offsets = offsets
        self._query = query_id, batch_id, partition
        self._of_topic: dict[str, Replay] = {}

    def missing(self, messages: Sequence[Message]) -> list[Message]:
        """The messages to send, each with its id."""
        found = []
        topic, replay = "", None
        for message in messages:
            if DELAY in message.properties or TIMER_DELIVER_MS in message.properties:
                raise InvalidMessage(
                    "a row with delayLevel or deliverAt is not in its topic until it is due, so a replay would write it twice: "
                    "set deliveryGuarantee = at-least-once for such rows"
                )
            if replay is None or message.topic != topic:
                topic, replay = message.topic, self._replay(message.topic)
            if replay.admit(message):
                found.append(message)
        return found

    def missing_rows(self, rows: PlainRows) -> PlainRows:
        """The same for rows that share batches."""
        head = row_head(rows.topic, {})
        heads = head if rows.own is None else [row_head(rows.topic, each) if each else head for each in rows.own]
        ids = self._replay(rows.topic).new_ids(heads, rows.bodies)
        new = [row_id for row_id in ids if row_id is not None]
        if len(new) == len(rows):
            return PlainRows(rows.topic, rows.bodies, rows.own, new)
        kept = [at for at, row_id in enumerate(ids) if row_id is not None]
        own = None if rows.own is None else [rows.own[at] for at in kept]
        return PlainRows(rows.topic, [rows.bodies[at] for at in kept], own, new)

    def check_complete(self) -> None:
        """WrongState if a topic has rows that the partition lacks."""
        for replay in self._of_topic.values():
            replay.check_complete()

    def _replay(self, topic: str) -> Replay:
        replay = self._of_topic.get(topic)
        if replay is None:
            ids = RowIds(*self._query)
            ranges = self._offsets.ranges(topic, self._query[1])
            replay = self._of_topic[topic] = Replay(ids, self._offsets.row_ids(ranges, ids.prefix))
        return replay

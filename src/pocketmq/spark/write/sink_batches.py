"""Rows that can share batches, encoded without an object for each: what most DataFrames are made of.

    bodies      b1       b2       …          one list for each column
    properties  {…}      {…}      …  ──►  | item | item | … |  ≤ sendBatchBytes  ──►  a request
    row ids     …-0      …-0      …

One topic, no sharding key, nothing delayed, no body that would be compressed. All else becomes messages, one by one: see `sink_rows`.

Effectively once: every row that a query writes has an id that a replay gives it again.

    <query 12> - <batch> - <partition> - <digest of the row 20> - <n-th such row>     a property, sparkRowId, of each message

    new batch      nothing with this beginning is in the topic          write all
    replay         some rows are there, in any order, from any attempt  write the others
    not the same   a row is there that the partition does not have      stop: the rows are not those of before

The id holds what the row says and not its number in the partition: after a shuffle Spark gives the rows of a partition in another
order, and numbers would then skip rows that were never written. Equal rows are told apart by counting them.

Whoever writes looks through the topic from where the query's last committed batch ended, once for each attempt, for ids
that begin as those of its partition do.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from itertools import repeat
from typing import Final

import msgspec

from pocketmq import compiled
from pocketmq.client.producer.outgoing import Outgoing
from pocketmq.client.settings import ProducerSettings
from pocketmq.clock import Clock
from pocketmq.errors import InvalidMessage, WrongState
from pocketmq.model import properties as names
from pocketmq.model.message import Message
from pocketmq.model.message_id import UniqueIds
from pocketmq.model.names import TopicName, parse_topic, wrap
from pocketmq.model.queue import MessageQueue, QueueRange
from pocketmq.protocol.batch import BatchItem, encode_batch
from pocketmq.spark.broker_facts import Bounds

ROW_ID: Final = "sparkRowId"
"""The property that carries the id. Consumers may use it, too, to recognise what they have seen."""

_DIGEST_BYTES: Final = 10
_QUERY_BYTES: Final = 6
_LENGTH_BYTES: Final = 4


class RowIds:
    """Gives the ids of one partition of one batch of one query. The same rows get the same ids, in whatever order they come."""

    def __init__(self, query_id: str, batch_id: int, partition: int) -> None:
        query = blake2b(query_id.encode(), digest_size=_QUERY_BYTES).hexdigest()
        self.prefix = f"{query}-{batch_id}-{partition}-"
        self._seen: set[str] = set()
        self._repeated: dict[str, int] = {}

    def next(self, head: bytes, body: bytes) -> str:
        """The id of the next row; see `row_head`."""
        return self._counted(self._first(head, body))

    def next_of(self, heads: bytes | list[bytes], bodies: list[bytes]) -> list[str]:
        """The ids of the next rows. There is a head for each, or one for all of them."""
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
        """The id of a row that is the n-th such one, from what the first had."""
        if first not in self._seen:
            self._seen.add(first)
            return first
        number = self._repeated[first] = self._repeated.get(first, 0) + 1
        return f"{first[:-1]}{number}"


def row_head(topic: str, properties: Mapping[str, str]) -> bytes:
    """What a row says beside its body, in one way: properties by name, separated as on the wire, and the length of all that first."""
    said = topic
    if properties:
        said = "\x02".join([said, *[f"{name}\x01{value}" for name, value in sorted(properties.items())]])
    text = said.encode()
    return len(text).to_bytes(_LENGTH_BYTES, "big") + text


class Replay:
    """What of a partition is in the topic already. With nothing there, every row is new."""

    def __init__(self, ids: RowIds, found: Iterable[str | None]) -> None:
        """`found` are the ids of messages in the topic, also those of others; None for messages without one."""
        self._ids = ids
        self._there = {row_id for row_id in found if row_id is not None and row_id.startswith(ids.prefix)}
        self._matched = 0

    def admit(self, message: Message) -> bool:
        """Whether the next row must be written; if so, `message` carries its id from now on."""
        row_id = self.new_id(row_head(message.topic, message.properties), message.body)
        if row_id is None:
            return False
        message.properties[ROW_ID] = row_id
        return True

    def new_id(self, head: bytes, body: bytes) -> str | None:
        """The id of the next row, by what it says; None when it is there already."""
        row_id = self._ids.next(head, body)
        if row_id in self._there:
            self._matched += 1
            return None
        return row_id

    def new_ids(self, heads: bytes | list[bytes], bodies: list[bytes]) -> Sequence[str | None]:
        """The same for the next rows. There is a head for each, or one for all of them."""
        row_ids = self._ids.next_of(heads, bodies)
        if not self._there:
            return row_ids
        new = [None if row_id in self._there else row_id for row_id in row_ids]
        self._matched += new.count(None)
        return new

    def check_complete(self) -> None:
        """WrongState when a row is in the topic that this partition did not have: then its rows are not those of before."""
        if self._matched < len(self._there):
            raise WrongState(
                f"{len(self._there) - self._matched} rows of this batch and partition are in the topic from an earlier attempt, but "
                "not in the partition now. The query gives other rows when it is run again (rand(), a changed number of "
                "partitions, a source that was changed), so nothing can be written effectively once; "
                "make it repeatable, or set deliveryGuarantee = at-least-once"
            )


def ranges_to_search(
    committed: Mapping[MessageQueue, int], bounds: Mapping[MessageQueue, Bounds], batch_id: int
) -> list[QueueRange]:
    """Where rows of this batch may be already: from where the last committed batch of the query ended, to now.

    A queue without a committed place is new in batch 0, which nothing was written before. Later it is one that brokers lost
    the place of, or that was added since, and it is searched from its beginning. So is one that ends before its place: it was made
    anew, or lost its tail, and rows may lie where others lay before.
    """
    ranges = []
    for queue in sorted(bounds):
        low, high = bounds[queue]
        place = committed.get(queue, high if batch_id == 0 else low)
        start = low if place > high else max(low, place)
        if start < high:
            ranges.append(QueueRange(queue, start, high))
    return ranges


_ITEM_BYTES: Final = 22
"""What an item of a batch takes beside its body and properties."""
_MARK: Final = f"{ROW_ID}\x01"


class PlainRows(msgspec.Struct, frozen=True):
    """Rows of one topic. `own` are the properties of each, None where there is no column of any; `row_ids` the ids that a replay
    knows them by.
    """

    topic: TopicName
    bodies: list[bytes]
    own: list[dict[str, str]] | None = None
    row_ids: list[str] | None = None

    def __len__(self) -> int:
        return len(self.bodies)


class BatchPacker:
    """Makes the batches of one producer ready."""

    def __init__(self, settings: ProducerSettings, ids: UniqueIds, clock: Clock, batch_bytes: int) -> None:
        self._namespace = settings.namespace
        self._ids = ids
        self._clock = clock
        self._batch_bytes = batch_bytes
        instance = "" if self._namespace is None else f"{names.INSTANCE_ID}\x01{self._namespace}\x02"
        self._of_batch = f"{names.WAIT}\x01true\x02{instance}"
        self._common = f"\x02{self._of_batch}"
        self._twin = compiled.twin()

    def packed(self, rows: PlainRows) -> Iterator[Outgoing]:
        """Batches of about the wanted size, all rows in their order; InvalidMessage for one whose properties are too long."""
        topic = rows.topic if self._namespace is None else parse_topic(wrap(self._namespace, rows.topic))
        own = None if rows.own is None else [_text(each) for each in rows.own]
        numbers = self._ids.numbers(len(rows))
        at = 0
        while at < len(rows):
            # Anew for each: with a time for all of them, the numbers of many rows would come round.
            beginning = f"{names.UNIQ_KEY}\x01{self._ids.beginning(self._clock.now_ms())}"
            body, at = self._compiled_body(rows, own, at, beginning, numbers) or self._body(
                rows, own, at, beginning, numbers
            )
            # Nobody asks for the members: one answer speaks for all of them.
            yield Outgoing(Message(rows.topic, body), topic, "", body, self._of_batch, members=())

    def _body(
        self, rows: PlainRows, own: list[str] | None, at: int, beginning: str, numbers: list[int]
    ) -> tuple[bytes, int]:
        """A batch of rows from `at` on, and the row behind it."""
        items: list[BatchItem] = []
        size = 0
        while at < len(rows) and size < self._batch_bytes:
            text = "" if own is None else own[at]
            mark = "" if rows.row_ids is None else f"{_MARK}{rows.row_ids[at]}\x02"
            properties = f"{beginning}{numbers[at] & 0xFFFF:04X}{self._common}{text}{mark}".encode()
            if len(properties) > names.MAX_BYTES:
                raise InvalidMessage(
                    f"keys, tags and properties of a row take {len(properties)} bytes; at most {names.MAX_BYTES} may be sent"
                )
            items.append((0, rows.bodies[at], properties))
            size += len(rows.bodies[at]) + len(properties) + _ITEM_BYTES
            at += 1
        return encode_batch(items), at

    def _compiled_body(
        self, rows: PlainRows, own: list[str] | None, at: int, beginning: str, numbers: list[int]
    ) -> tuple[bytes, int] | None:
        """The same by the compiled twin; None where there is none, or a row does not fit."""
        if self._twin is None:
            return None
        return self._twin.pack_rows(
            rows.bodies,
            at,
            numbers,
            beginning.encode(),
            self._common.encode(),
            own,
            _MARK.encode(),
            rows.row_ids,
            names.MAX_BYTES,
            self._batch_bytes,
        )


def _text(own: dict[str, str]) -> str:
    """As it travels. That no name and no value is empty or holds a separator was seen by columns."""
    return "".join([f"{name}\x01{value}\x02" for name, value in own.items()])

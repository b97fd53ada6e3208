"""Rows that can share batches, encoded without an object for each: what most DataFrames are made of.

    bodies      b1       b2       …          one list for each column
    properties  {…}      {…}      …  ──►  | item | item | … |  ≤ sendBatchBytes  ──►  a request
    row ids     …-0      …-0      …

One topic, no sharding key, nothing delayed, no body that would be compressed. All else becomes messages, one by one: see `sink_rows`.
"""

from collections.abc import Iterator, Sequence
from itertools import repeat
from typing import Final

import msgspec

from pocketmq.client.outgoing import Outgoing
from pocketmq.client.settings import MIB, ProducerSettings
from pocketmq.clock import Clock
from pocketmq.errors import InvalidMessage
from pocketmq.model import properties as names
from pocketmq.model.message import Message
from pocketmq.model.message_id import UniqueIds
from pocketmq.model.names import TopicName, parse_topic, wrap
from pocketmq.protocol.batch import BatchItem, encode_batch
from pocketmq.spark.sink_ids import ROW_ID

MAX_BATCH_BYTES: Final = MIB
"""RocketMQ advises not to make batches larger."""
_ITEM_BYTES: Final = 22
"""What an item of a batch takes beside its body and properties."""


class PlainRows(msgspec.Struct, frozen=True):
    """Rows of one topic. `own` are the properties of each, None where there is no column of any; `row_ids` the ids that a replay
    knows them by.
    """

    topic: TopicName
    bodies: Sequence[bytes]
    own: Sequence[dict[str, str]] | None = None
    row_ids: Sequence[str] | None = None

    def __len__(self) -> int:
        return len(self.bodies)


class BatchPacker:
    """Makes the batches of one producer ready."""

    def __init__(self, settings: ProducerSettings, ids: UniqueIds, clock: Clock, batch_bytes: int) -> None:
        self._namespace = settings.namespace
        self._ids = ids
        self._clock = clock
        self._batch_bytes = min(batch_bytes, MAX_BATCH_BYTES)
        instance = "" if self._namespace is None else f"{names.INSTANCE_ID}\x01{self._namespace}\x02"
        self._of_batch = f"{names.WAIT}\x01true\x02{instance}"

    def packed(self, rows: PlainRows) -> Iterator[Outgoing]:
        """Batches of about the wanted size, all rows in their order; InvalidMessage for one whose properties are too long."""
        topic = rows.topic if self._namespace is None else parse_topic(wrap(self._namespace, rows.topic))
        items: list[BatchItem] = []
        size = 0
        for item in self._items(rows):
            items.append(item)
            size += len(item[1]) + len(item[2]) + _ITEM_BYTES
            if size >= self._batch_bytes:
                yield self._batch(rows.topic, topic, items)
                items, size = [], 0
        if items:
            yield self._batch(rows.topic, topic, items)

    def _batch(self, shown: TopicName, topic: str, items: Sequence[BatchItem]) -> Outgoing:
        body = encode_batch(items)
        # Nobody asks for the members: one answer speaks for all of them.
        return Outgoing(Message(shown, body), topic, "", body, self._of_batch, members=())

    def _items(self, rows: PlainRows) -> Iterator[BatchItem]:
        own = repeat("", len(rows)) if rows.own is None else map(_text, rows.own)
        marks = repeat("", len(rows)) if rows.row_ids is None else [f"{ROW_ID}\x01{one}\x02" for one in rows.row_ids]
        after = f"\x02{self._of_batch}"
        next_id, now_ms = self._ids.next, self._clock.now_ms()
        for body, text, mark in zip(rows.bodies, own, marks, strict=True):
            properties = f"{names.UNIQ_KEY}\x01{next_id(now_ms)}{after}{text}{mark}".encode()
            if len(properties) > names.MAX_BYTES:
                raise InvalidMessage(
                    f"keys, tags and properties of a row take {len(properties)} bytes; at most {names.MAX_BYTES} may be sent"
                )
            yield 0, body, properties


def _text(own: dict[str, str]) -> str:
    """As it travels. That no name and no value is empty or holds a separator was seen by columns."""
    return "".join([f"{name}\x01{value}\x02" for name, value in own.items()])

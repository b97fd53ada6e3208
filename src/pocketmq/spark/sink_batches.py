"""Rows that can share batches, encoded without an object for each: what most DataFrames are made of.

    bodies      b1       b2       …          one list for each column
    properties  {…}      {…}      …  ──►  | item | item | … |  ≤ sendBatchBytes  ──►  a request
    row ids     …-0      …-0      …

One topic, no sharding key, nothing delayed, no body that would be compressed. All else becomes messages, one by one: see `sink_rows`.
"""

from collections.abc import Iterator
from typing import Final

import msgspec

from pocketmq import compiled
from pocketmq.client.outgoing import Outgoing
from pocketmq.client.settings import ProducerSettings
from pocketmq.clock import Clock
from pocketmq.errors import InvalidMessage
from pocketmq.model import properties as names
from pocketmq.model.message import Message
from pocketmq.model.message_id import UniqueIds
from pocketmq.model.names import TopicName, parse_topic, wrap
from pocketmq.protocol.batch import BatchItem, encode_batch
from pocketmq.spark.sink_ids import ROW_ID

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

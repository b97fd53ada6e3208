"""Rows that can share batches, encoded without an object for each; most DataFrames consist of such rows.

    bodies      b1       b2       …          one list for each column
    properties  {…}      {…}      …  ──►  | item | item | … |  ≤ sendBatchBytes  ──►  a request
    row ids     …-0      …-0      …

They have one topic, no sharding key, no delay, and no body that would be compressed. Other rows become messages, see `sink_rows`.
"""

from collections.abc import Iterator
from typing import Final

import msgspec

from pocketmq import compiled
from pocketmq.client.producer.outgoing import Outgoing
from pocketmq.client.settings import ProducerSettings
from pocketmq.clock import Clock
from pocketmq.errors import InvalidMessage
from pocketmq.model import Message, TopicName, UniqueIds
from pocketmq.model import properties as names
from pocketmq.model.names import parse_topic, wrap
from pocketmq.protocol.batch import BatchItem, encode_batch

ROW_ID: Final = "sparkRowId"
"""The property with the id of a row. Consumers may use it, too, to recognise duplicates."""

_ITEM_BYTES: Final = 22
"""The size of an item in a batch without its body and properties."""
_MARK: Final = f"{ROW_ID}\x01"


class PlainRows(msgspec.Struct, frozen=True):
    """Rows of one topic. `own` are their properties, if there are columns of them; `row_ids` their ids, if replays need them."""

    topic: TopicName
    bodies: list[bytes]
    own: list[dict[str, str]] | None = None
    row_ids: list[str] | None = None

    def __len__(self) -> int:
        return len(self.bodies)


class BatchPacker:
    """Encodes batches for one producer."""

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
        """Batches of about `batch_bytes`, in order; InvalidMessage for a row whose properties are too long."""
        topic = rows.topic if self._namespace is None else parse_topic(wrap(self._namespace, rows.topic))
        own = None if rows.own is None else [_text(each) for each in rows.own]
        numbers = self._ids.numbers(len(rows))
        at = 0
        while at < len(rows):
            # A new time for each batch: with a single time, the numbers of many rows would repeat.
            beginning = f"{names.UNIQ_KEY}\x01{self._ids.beginning(self._clock.now_ms())}"
            body, at = self._compiled_body(rows, own, at, beginning, numbers) or self._body(
                rows, own, at, beginning, numbers
            )
            # One result is enough for all members.
            yield Outgoing(Message(rows.topic, body), topic, "", body, self._of_batch, members=())

    def _body(
        self, rows: PlainRows, own: list[str] | None, at: int, beginning: str, numbers: list[int]
    ) -> tuple[bytes, int]:
        """A batch of rows from `at` on, and the next row."""
        items: list[BatchItem] = []
        size = 0
        while at < len(rows) and size < self._batch_bytes:
            text = "" if own is None else own[at]
            mark = "" if rows.row_ids is None else f"{_MARK}{rows.row_ids[at]}\x02"
            properties = f"{beginning}{numbers[at] & 0xFFFF:04X}{self._common}{text}{mark}".encode()
            if len(properties) > names.MAX_BYTES:
                raise InvalidMessage(
                    f"keys, tags and properties of a row have {len(properties)} bytes; the limit is {names.MAX_BYTES}"
                )
            items.append((0, rows.bodies[at], properties))
            size += len(rows.bodies[at]) + len(properties) + _ITEM_BYTES
            at += 1
        return encode_batch(items), at

    def _compiled_body(
        self, rows: PlainRows, own: list[str] | None, at: int, beginning: str, numbers: list[int]
    ) -> tuple[bytes, int] | None:
        """The same by the C twin; None without the twin, or if a row does not fit."""
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
    """In wire format. `sink_rows` has refused empty names and values, and separators in them."""
    return "".join([f"{name}\x01{value}\x02" for name, value in own.items()])

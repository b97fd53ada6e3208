"""Pulled records become Arrow batches, by columns and not row by row.

    pulls ─ joined to 1-4 MB ─ record starts ─ heads ─ wanted rows ┬─ usual: one gather per column ──────┬─ batch
                                                                   └─ odd: decode_record, one by one ────┘
    odd    compressed, IPv6 hosts, a long topic's record of version 2, texts out of shape: few, and kept in their place

Where the compiled twin is there, a buffer with nothing odd in it, as most are, becomes a batch in one pass of it instead: see `compiled_records`.

Only what the columns need is looked at. Bodies that inflate to more than a bound are given in several batches, so that a small
buffer of compressed ones cannot fill the memory.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from pocketmq import compiled
from pocketmq.client.received import inner_batch, is_unreadable_as_stored, readable
from pocketmq.errors import ProtocolError
from pocketmq.model import properties as names
from pocketmq.model.flags import SysFlag
from pocketmq.model.message import StoredMessage
from pocketmq.model.message_id import offset_id
from pocketmq.model.names import unwrap
from pocketmq.model.queue import QueueRange
from pocketmq.protocol.record import decode_record
from pocketmq.spark.arrow_types import ARROW_TYPES, arrow_schema, maps_without_nulls, number_array
from pocketmq.spark.compiled_records import CompiledRecords, read_usual, wanted_bits
from pocketmq.spark.libraries import np, pa, pc
from pocketmq.spark.records import Numbers, Records, Switches, usual_layout
from pocketmq.spark.schema import NULLS_ANYWHERE, Name, NeverNull, type_of
from pocketmq.spark.usual_rows import MAX_MS, UsualRows

MAX_INFLATED_BYTES: Final = 64 * 1024 * 1024
"""Bodies of odd records in one batch. One body alone may be as long as the client lets it be."""

_WHOLE_BATCH: Final = SysFlag.INNER_BATCH | SysFlag.NEED_UNWRAP
_UNDECIDED: Final = SysFlag.TRANSACTION_PREPARED
"""A bit that prepared and rolled-back messages have, and plain and committed ones have not."""


class Pulled(NamedTuple):
    """What a pull brought: whole records, back to back, of which those of `wanted` count."""

    wanted: QueueRange
    records: bytes | memoryview


class _Portion(NamedTuple):
    """Rows `start` to `end` of the records, those of one batch, with the odd ones among them decoded."""

    start: int
    end: int
    odd_rows: list[int]
    odd: list[StoredMessage]


class Decoder:
    """Decodes for one query: its columns, its tags, its namespace. Keeps nothing from call to call."""

    def __init__(
        self,
        columns: Sequence[Name],
        *,
        never_null: NeverNull = NULLS_ANYWHERE,
        tags: Sequence[str] = (),
        namespace: str | None = None,
        check_crc: bool = False,
        max_inflated_bytes: int = MAX_INFLATED_BYTES,
    ) -> None:
        """`tags`, if any, are the only ones wanted: brokers compare hashes, and two tags may have the same."""
        self.schema = arrow_schema(columns, never_null)
        self._columns = tuple(columns)
        self._never_null = never_null
        self._tags = pa.array(tags, pa.string()) if tags else None
        self._namespace = namespace
        self._check_crc = check_crc
        self._max_inflated_bytes = max_inflated_bytes
        self._needed = frozenset({*columns, Name.TAGS} if tags else columns)
        self._odd_flags = SysFlag.COMPRESSED if Name.VALUE in self._needed else 0
        self._twin = compiled.twin()
        self._bits = wanted_bits(self._needed, check_crc=check_crc)

    def batches(self, pulls: Sequence[Pulled]) -> Iterator[Any]:
        """Record batches of `schema` with the wanted records in their order; ProtocolError for bytes that are no records."""
        if len(pulls) == 1 and (usual := self._all_usual(pulls[0])) is not None:
            yield self._batch({name: usual.column(name) for name in self._needed})
        else:
            yield from self._looked_through(pulls)

    def _all_usual(self, pull: Pulled) -> CompiledRecords | None:
        if self._twin is None:
            return None
        return read_usual(self._twin, pull.wanted, pull.records, self._odd_flags, self._bits)

    def _looked_through(self, pulls: Sequence[Pulled]) -> Iterator[Any]:
        """The same where there may be odd records, unwanted ones, or bytes that are none."""
        whole = pulls[0].records if len(pulls) == 1 else b"".join([pull.records for pull in pulls])
        records = Records.find(whole, self._twin)
        pull_of = _pull_of_each(records, pulls)
        kept = _wanted(records, pulls, pull_of)
        if kept is not None:
            records, pull_of = records.chosen(kept), pull_of[kept]
        if not len(records):
            return
        usual_rows, usual = self._usual(records)
        brokers = pa.array([pull.wanted.queue.broker_name for pull in pulls], pa.string())
        for portion in self._portions(records, usual_rows):
            first, last = np.searchsorted(usual_rows, (portion.start, portion.end))
            own = usual if last - first == len(usual) else usual.chosen(slice(first, last))
            order = np.argsort(np.concatenate((usual_rows[first:last], portion.odd_rows))) if portion.odd else None
            arrays = {
                name: brokers.take(number_array(pull_of[portion.start : portion.end]))
                if name is Name.BROKER_NAME
                else _merged(name, own, portion.odd, order)
                for name in self._needed
            }
            yield self._batch(arrays)

    def _usual(self, records: Records) -> tuple[Numbers, UsualRows]:
        """The numbers of the records that can be decoded by columns, and these."""
        is_usual, layout = usual_layout(records, self._odd_flags)
        rows = np.flatnonzero(is_usual)
        own = records if len(rows) == len(records) else records.chosen(rows)
        usual = UsualRows(own, layout, self._needed, self._twin)
        if (odd := usual.odd_rows()) is not None:
            rows, usual = rows[~odd], usual.chosen(~odd)
        if self._check_crc:
            usual.check_bodies()
        return rows, usual

    def _portions(self, records: Records, usual_rows: Numbers) -> Iterator[_Portion]:
        """All rows, in as many portions as the bound on inflated bodies asks for."""
        start, total_bytes = 0, 0
        numbers: list[int] = []
        odd: list[StoredMessage] = []
        if len(usual_rows) < len(records):
            for row in np.setdiff1d(np.arange(len(records)), usual_rows, assume_unique=True).tolist():
                message = self._decoded(records, row)
                total_bytes += len(message.body)
                if odd and total_bytes > self._max_inflated_bytes:
                    yield _Portion(start, row, numbers, odd)
                    start, total_bytes, numbers, odd = row, len(message.body), [], []
                numbers.append(row)
                odd.append(message)
        yield _Portion(start, len(records), numbers, odd)

    def _decoded(self, records: Records, row: int) -> StoredMessage:
        message = decode_record(records.one(row), 0, self._check_crc)
        return message if not self._odd_flags or is_unreadable_as_stored(message) else readable(message, None)

    def _batch(self, arrays: dict[Name, Any]) -> Any:
        if self._namespace is not None and Name.TOPIC in arrays:
            arrays[Name.TOPIC] = _unwrapped(arrays[Name.TOPIC], self._namespace)
        if self._never_null.values and Name.PROPERTIES in arrays:
            arrays[Name.PROPERTIES] = maps_without_nulls(arrays[Name.PROPERTIES])
        assert not any(arrays[name].null_count for name in self._never_null.columns), (
            "Java does not look for nulls there"
        )
        batch = pa.RecordBatch.from_arrays([arrays[name] for name in self._columns], schema=self.schema)
        if self._tags is None:
            return batch
        return batch.filter(pc.is_in(arrays[Name.TAGS], value_set=self._tags))


def _pull_of_each(records: Records, pulls: Sequence[Pulled]) -> Numbers:
    """By which pull each record came."""
    if len(pulls) == 1:
        return np.zeros(len(records), np.int64)
    ends = np.cumsum([len(pull.records) for pull in pulls])
    return np.searchsorted(ends, records.starts, side="right")


def _wanted(records: Records, pulls: Sequence[Pulled], pull_of: Numbers) -> Switches | None:
    """Which records count: those of their range, unless their transaction was not committed; None when all do."""
    offsets, flags = records.field("queue_offset"), records.field("sys_flag")
    for row in np.flatnonzero((flags & _WHOLE_BATCH) == _WHOLE_BATCH).tolist():
        _refuse_batch(records, pulls, pull_of, row)
    starts = np.array([pull.wanted.start for pull in pulls], np.int64)
    ends = np.array([pull.wanted.end for pull in pulls], np.int64)
    kept: Switches = (offsets >= starts[pull_of]) & (offsets < ends[pull_of]) & ((flags & _UNDECIDED) == 0)
    return None if kept.all() else kept


def _refuse_batch(records: Records, pulls: Sequence[Pulled], pull_of: Numbers, row: int) -> None:
    """ProtocolError for an inner batch. A message that only claims to be one, and has a single offset, is a row like any other."""
    has_next = row + 1 < len(records) and pull_of[row + 1] == pull_of[row]
    end = int(records.field("queue_offset")[row + 1]) if has_next else pulls[pull_of[row]].wanted.end
    if inner_batch(decode_record(records.one(row), 0, check_crc=False), end):
        raise ProtocolError(
            "a topic that keeps batches whole (queue.type=BatchCQ) has no offsets of its messages and cannot be read so"
        )


def _merged(name: Name, usual: UsualRows, odd: Sequence[StoredMessage], order: Numbers | None) -> Any:
    """A column of the usual rows, with the odd ones at their places."""
    array = usual.column(name)
    if order is None:
        return array
    others = pa.array([_ODD_COLUMNS[name](message) for message in odd], ARROW_TYPES[type_of(name)])
    return pa.concat_arrays([array, others]).take(number_array(order))


def _unwrapped(topics: Any, namespace: str) -> Any:
    """Topics as the users of the namespace call them; few different ones, so each is looked at once."""
    encoded = topics.dictionary_encode()
    bare = pa.array([unwrap(namespace, topic) for topic in encoded.dictionary.to_pylist()], pa.string())
    return bare.take(encoded.indices)


def _offset_id(message: StoredMessage) -> str:
    return offset_id(message.packed_store_host, message.log_offset & 2**64 - 1)  # a damaged one may be below 0


def _micros(ms: int) -> int:
    return min(max(ms, -MAX_MS), MAX_MS) * 1000


_ODD_COLUMNS: Final[dict[Name, Callable[[StoredMessage], Any]]] = {
    Name.TOPIC: lambda message: message.topic,
    Name.QUEUE_ID: lambda message: message.queue_id,
    Name.QUEUE_OFFSET: lambda message: message.queue_offset,
    Name.MSG_ID: lambda message: message.properties.get(names.UNIQ_KEY) or _offset_id(message),
    Name.KEYS: lambda message: message.properties.get(names.KEYS),
    Name.TAGS: lambda message: message.tags,
    Name.VALUE: lambda message: message.body,
    Name.PROPERTIES: lambda message: list(message.properties.items()),
    Name.BORN_TIMESTAMP: lambda message: _micros(message.born_ms),
    Name.STORE_TIMESTAMP: lambda message: _micros(message.store_ms),
    Name.RECONSUME_TIMES: lambda message: message.reconsume_times,
}
"""The columns of one message: what each means is defined here, and `UsualRows` must agree."""

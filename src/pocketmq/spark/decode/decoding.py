"""Pulled records become Arrow batches, by columns and not row by row.

    pulls ─ joined to 1-4 MB ─ record starts ─ heads ─ wanted rows ┬─ usual: one gather per column ──────┬─ batch
                                                                   └─ odd: decode_record, one by one ────┘
    odd    compressed, IPv6 hosts, a long topic's record of version 2, texts out of shape: few, and kept in their place

Where the compiled twin is there, a buffer with nothing odd in it, as most are, becomes a batch in one pass of it instead: see `compiled`.

Only what the columns need is looked at. Bodies that inflate to more than a bound are given in several batches, so that a small
buffer of compressed ones cannot fill the memory.

Usual records as columns: a strided view for each fixed field, one gather for each text.

offsets  [body at, body end, next body at, …]      a binary array over the raw buffer, nothing copied
take     0, 2, 4, …                                the bodies alone, copied at the speed of memory; the compiled twin has one call for it
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any, Final, NamedTuple

from pocketmq import compiled
from pocketmq.client.received import inner_batch, is_unreadable_as_stored, readable
from pocketmq.compiled import Twin
from pocketmq.errors import ProtocolError, UnreadableMessage
from pocketmq.model import properties as names
from pocketmq.model.flags import SysFlag
from pocketmq.model.message import StoredMessage
from pocketmq.model.message_id import offset_id
from pocketmq.model.names import unwrap
from pocketmq.model.queue import QueueRange
from pocketmq.protocol.record import LOG_OFFSET_AT, crc_of, decode_record
from pocketmq.spark.arrow import ARROW_TYPES, arrow_schema, maps_without_nulls, np, number_array, pa, pc
from pocketmq.spark.decode.compiled import CompiledProperties, CompiledRecords, read_usual, wanted_bits
from pocketmq.spark.decode.property_table import PropertyTable, PropertyTexts
from pocketmq.spark.decode.records import HEAD, Layout, Numbers, Records, Switches, usual_layout
from pocketmq.spark.schema import NULLS_ANYWHERE, Name, NeverNull, type_of

MAX_MS: Final = (2**63 - 1) // 1000
"""The last moment that Spark's timestamps hold. What lies beyond, by a producer's broken clock, becomes this one."""

_ALL_COLUMNS: Final = frozenset(Name)
_TEXT_COLUMNS: Final = frozenset({Name.MSG_ID, Name.KEYS, Name.TAGS, Name.PROPERTIES})
_HEX: Final = np.frombuffer(b"".join(b"%02X" % octet for octet in range(256)), np.uint16)
_HOST_AT: Final = 64


class UsualRows:
    """Records that `usual_layout` found usual, with the places of their parts. `columns` are those that will be asked for."""

    def __init__(
        self,
        records: Records,
        layout: Layout,
        columns: frozenset[Name] = _ALL_COLUMNS,
        twin: Twin | None = None,
    ) -> None:
        self._records = records
        self._layout = layout
        self._wanted = columns
        self._twin = twin

    def __len__(self) -> int:
        return len(self._records)

    def chosen(self, which: Any) -> "UsualRows":
        """Those of a mask or a slice."""
        layout = Layout(*(part[which] for part in self._layout))
        return UsualRows(self._records.chosen(which), layout, self._wanted, self._twin)

    def odd_rows(self) -> Switches | None:
        """Which rows cannot be decoded to the columns after all, because of what stands in their texts; None when all can."""
        odd: Switches | None = None
        if Name.TOPIC in self._wanted:
            odd = _beyond_ascii(self._topics)
        if self._wanted & _TEXT_COLUMNS:
            out_of_shape = self._texts.odd_rows() if self._compiled is None else self._compiled.odd_rows()
            if out_of_shape is not None:
                odd = out_of_shape if odd is None else odd | out_of_shape
        return odd

    def check_bodies(self) -> None:
        """ProtocolError if the checksum of a body is wrong. One step per record, so only for those who ask for it."""
        crcs = self._records.heads["body_crc"].tolist()
        view = memoryview(self._records.buffer)
        bodies = zip(self._layout.body_at.tolist(), self._layout.body_end.tolist(), crcs, strict=True)
        for row, (start, end, crc) in enumerate(bodies):
            if crc_of(view[start:end]) != crc:
                decode_record(self._records.one(row))

    def column(self, name: Name) -> Any:
        """One column as an Arrow array of its type."""
        return _COLUMNS[name](self)

    @cached_property
    def _topics(self) -> Any:
        return self._gathered(self._layout.body_end + 1, self._layout.topic_end)

    @cached_property
    def _texts(self) -> PropertyTexts:
        texts = self._gathered(self._layout.topic_end + 2, self._layout.end)
        _, offsets, octets = texts.buffers()
        bounds = np.frombuffer(offsets, np.int32, len(self) + 1).astype(np.int64)
        return PropertyTexts(np.frombuffer(octets or b"", np.uint8, bounds[-1]), bounds)

    @cached_property
    def _compiled(self) -> CompiledProperties | None:
        if self._twin is None:
            return None
        starts, ends = self._layout.topic_end + 2, self._layout.end
        with_map = Name.PROPERTIES in self._wanted
        return CompiledProperties(self._twin, self._records.buffer, starts, ends, with_map=with_map)

    @cached_property
    def _properties(self) -> PropertyTable | CompiledProperties:
        return PropertyTable(self._texts) if self._compiled is None else self._compiled

    def _gathered(self, starts: Numbers, ends: Numbers) -> Any:
        """A binary array of the stretches of the buffer from `starts` to `ends`."""
        if self._twin is not None:
            parts = self._twin.gather(self._records.buffer, np.ascontiguousarray(starts), np.ascontiguousarray(ends))
            return pa.Array.from_buffers(pa.binary(), len(starts), [None, *map(pa.py_buffer, parts)])
        offsets = np.empty(2 * len(starts) + 1, np.int32)
        offsets[0:-1:2] = starts
        offsets[1::2] = ends
        offsets[-1] = len(self._records.buffer)
        between = pa.Array.from_buffers(
            pa.binary(), 2 * len(starts), [None, pa.py_buffer(offsets), pa.py_buffer(self._records.buffer)]
        )
        return between.take(number_array(np.arange(0, 2 * len(starts), 2)))

    def _value(self) -> Any:
        return self._gathered(self._layout.body_at, self._layout.body_end)

    def _topic(self) -> Any:
        return self._topics.view(pa.string())

    def _number(self, field: str, kind: Any) -> Any:
        return number_array(self._records.heads[field].astype(kind))

    def _moment(self, field: str) -> Any:
        micros = self._records.field(field).clip(-MAX_MS, MAX_MS) * 1000
        return number_array(micros, ARROW_TYPES["timestamp"])

    def _msg_id(self) -> Any:
        given = self._properties.values(names.UNIQ_KEY)
        return pc.coalesce(given, self._offset_ids()) if given.null_count else given

    def _offset_ids(self) -> Any:
        """Where each record lies, as the broker names it: host, port and log offset in hex."""
        heads = self._records.heads.view(np.uint8).reshape(len(self), HEAD.itemsize)
        octets = np.hstack((heads[:, _HOST_AT : _HOST_AT + 8], heads[:, LOG_OFFSET_AT : LOG_OFFSET_AT + 8]))
        digits = pa.py_buffer(_HEX[octets])
        offsets = np.arange(0, 32 * (len(self) + 1), 32, dtype=np.int32)
        return pa.Array.from_buffers(pa.string(), len(self), [None, pa.py_buffer(offsets), digits])


_COLUMNS: Final[dict[Name, Callable[[UsualRows], Any]]] = {
    Name.TOPIC: UsualRows._topic,
    Name.QUEUE_ID: lambda rows: rows._number("queue_id", np.int32),
    Name.QUEUE_OFFSET: lambda rows: rows._number("queue_offset", np.int64),
    Name.MSG_ID: UsualRows._msg_id,
    Name.KEYS: lambda rows: rows._properties.values(names.KEYS),
    Name.TAGS: lambda rows: rows._properties.values(names.TAGS),
    Name.VALUE: UsualRows._value,
    Name.PROPERTIES: lambda rows: rows._properties.maps(),
    Name.BORN_TIMESTAMP: lambda rows: rows._moment("born_ms"),
    Name.STORE_TIMESTAMP: lambda rows: rows._moment("store_ms"),
    Name.RECONSUME_TIMES: lambda rows: rows._number("reconsume_times", np.int32),
}
"""How each column is made; the broker's name is not in the records."""


def _beyond_ascii(texts: Any) -> Switches | None:
    """Which texts hold anything but ASCII; None when none does."""
    _, offsets, octets = texts.buffers()
    bounds = np.frombuffer(offsets, np.int32, len(texts) + 1)
    high = np.frombuffer(octets or b"", np.uint8, bounds[-1]) >= 0x80
    if not high.any():
        return None
    before = np.concatenate(([0], np.cumsum(high)))
    odd: Switches = before[bounds[1:]] > before[bounds[:-1]]
    return odd


log = logging.getLogger("pocketmq.spark")

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
    """Decodes for one query: its columns, its tags, its namespace. Keeps no message from call to call."""

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
        self._has_told_unreadable = False
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
        if not self._odd_flags or is_unreadable_as_stored(message):
            return message
        try:
            return readable(message, None)
        except UnreadableMessage as error:  # who may send could stop the query with it for good
            if not self._has_told_unreadable:
                self._has_told_unreadable = True
                log.warning(
                    "topic %s, queue %d, offset %d: the body is given as it is stored, and so are others like it: %s",
                    message.topic,
                    message.queue_id,
                    message.queue_offset,
                    error,
                )
            return message

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

"""Pulled records become Arrow batches, by columns and not row by row.

    pulls ─ joined to 1-4 MB ─ record starts ─ heads ─ rows in range ┬─ regular: one gather per column ──────┬─ batch
                                                                     └─ irregular: decode_record, one by one ┘

Irregular records are few: compressed ones, IPv6 hosts, record version 2 for a long topic, malformed texts. They keep their
position among the others. With the C twin, a buffer without irregular records becomes a batch in one pass: see `compiled`.

Only the parts that the columns need are decoded. If bodies inflate to more than a limit, they are split into several batches,
so that a small buffer of compressed bodies cannot fill the memory.

A regular column is a strided view for a fixed field, or one gather for a text:

    offsets  [body start, body end, next body start, …]   a binary array over the raw buffer, without a copy
    take     0, 2, 4, …                                   copies the bodies alone; one call of the C twin does the same
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any, Final, NamedTuple

from pocketmq import compiled
from pocketmq.client.received import is_unreadable_as_stored, readable
from pocketmq.codes import SysFlag
from pocketmq.compiled import Twin
from pocketmq.errors import UnreadableMessage
from pocketmq.model import QueueRange, StoredMessage
from pocketmq.model import properties as names
from pocketmq.model.message_id import offset_id
from pocketmq.model.names import unwrap
from pocketmq.protocol.record import LOG_OFFSET_AT, crc_of, decode_record
from pocketmq.spark.arrow import ARROW_TYPES, arrow_schema, maps_without_nulls, np, number_array, pa, pc
from pocketmq.spark.decode.compiled import CompiledProperties, CompiledRecords, read_regular, wanted_bits
from pocketmq.spark.decode.property_table import PropertyTable, PropertyTexts
from pocketmq.spark.decode.records import HEAD, Layout, Numbers, Records, Switches, regular_layout
from pocketmq.spark.filters.conditions import Condition, In, all_of, columns_of
from pocketmq.spark.filters.masks import mask_of
from pocketmq.spark.schema import NULLS_ANYWHERE, Name, NeverNull, type_of

MAX_MS: Final = (2**63 - 1) // 1000
"""The last millisecond that Spark's timestamps hold. Later times, from a wrong clock of a producer, become this one."""

_ALL_COLUMNS: Final = frozenset(Name)
_TEXT_COLUMNS: Final = frozenset({Name.MSG_ID, Name.KEYS, Name.TAGS, Name.PROPERTIES})
_HEX: Final = np.frombuffer(b"".join(b"%02X" % octet for octet in range(256)), np.uint16)
_HOST_AT: Final = 64


class RegularRows:
    """Records that `regular_layout` found regular, and the positions of their parts. `columns` are the requested ones."""

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

    def chosen(self, which: Any) -> "RegularRows":
        """The rows of a mask or a slice."""
        layout = Layout(*(part[which] for part in self._layout))
        return RegularRows(self._records.chosen(which), layout, self._wanted, self._twin)

    def irregular_rows(self) -> Switches | None:
        """The rows whose texts cannot be decoded by columns after all; None if all can."""
        irregular: Switches | None = None
        if Name.TOPIC in self._wanted:
            irregular = _beyond_ascii(self._topics)
        if self._wanted & _TEXT_COLUMNS:
            malformed = self._texts.irregular_rows() if self._compiled is None else self._compiled.irregular_rows()
            if malformed is not None:
                irregular = malformed if irregular is None else irregular | malformed
        return irregular

    def check_bodies(self) -> None:
        """ProtocolError if the checksum of a body is wrong. Takes one step per record, so it runs on request only."""
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
        """A binary array of the ranges of the buffer from `starts` to `ends`."""
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
        """The id that the broker gives each record: host, port and log offset in hex."""
        heads = self._records.heads.view(np.uint8).reshape(len(self), HEAD.itemsize)
        octets = np.hstack((heads[:, _HOST_AT : _HOST_AT + 8], heads[:, LOG_OFFSET_AT : LOG_OFFSET_AT + 8]))
        digits = pa.py_buffer(_HEX[octets])
        offsets = np.arange(0, 32 * (len(self) + 1), 32, dtype=np.int32)
        return pa.Array.from_buffers(pa.string(), len(self), [None, pa.py_buffer(offsets), digits])


_COLUMNS: Final[dict[Name, Callable[[RegularRows], Any]]] = {
    Name.TOPIC: RegularRows._topic,
    Name.QUEUE_ID: lambda rows: rows._number("queue_id", np.int32),
    Name.QUEUE_OFFSET: lambda rows: rows._number("queue_offset", np.int64),
    Name.MSG_ID: RegularRows._msg_id,
    Name.KEYS: lambda rows: rows._properties.values(names.KEYS),
    Name.TAGS: lambda rows: rows._properties.values(names.TAGS),
    Name.VALUE: RegularRows._value,
    Name.PROPERTIES: lambda rows: rows._properties.maps(),
    Name.BORN_TIMESTAMP: lambda rows: rows._moment("born_ms"),
    Name.STORE_TIMESTAMP: lambda rows: rows._moment("store_ms"),
    Name.RECONSUME_TIMES: lambda rows: rows._number("reconsume_times", np.int32),
}
"""The source of each column; the broker's name is not in the records."""


def _beyond_ascii(texts: Any) -> Switches | None:
    """The texts with a byte beyond ASCII; None if there is none."""
    _, offsets, octets = texts.buffers()
    bounds = np.frombuffer(offsets, np.int32, len(texts) + 1)
    high = np.frombuffer(octets or b"", np.uint8, bounds[-1]) >= 0x80
    if not high.any():
        return None
    before = np.concatenate(([0], np.cumsum(high)))
    irregular: Switches = before[bounds[1:]] > before[bounds[:-1]]
    return irregular


log = logging.getLogger("pocketmq.spark")

MAX_INFLATED_BYTES: Final = 64 * 1024 * 1024
"""Limit for the bodies of irregular records in one batch. A single body may be larger, up to the client's limit."""

_UNDECIDED: Final = SysFlag.TRANSACTION_PREPARED
"""A bit that prepared and rolled-back messages have, and plain and committed ones do not."""


class Pulled(NamedTuple):
    """The answer to a pull: whole records, back to back. Only those in the range `wanted` count."""

    wanted: QueueRange
    records: bytes | memoryview


class _Portion(NamedTuple):
    """Rows `start` to `end` of the records, which form one batch, with the irregular ones decoded."""

    start: int
    end: int
    irregular_rows: list[int]
    irregular: list[StoredMessage]


class Decoder:
    """Decodes for one query: its columns, tags and namespace. Keeps no message between calls."""

    def __init__(
        self,
        columns: Sequence[Name],
        *,
        never_null: NeverNull = NULLS_ANYWHERE,
        tags: Sequence[str] = (),
        condition: Condition | None = None,
        namespace: str | None = None,
        check_crc: bool = False,
        max_inflated_bytes: int = MAX_INFLATED_BYTES,
    ) -> None:
        """`tags`, if any, select messages: brokers compare hashes, and two tags may have the same hash. So does `condition`."""
        self.schema = arrow_schema(columns, never_null)
        self._columns = tuple(columns)
        self._never_null = never_null
        of_tags = In((Name.TAGS.value,), tuple(tags)) if tags else None
        selecting = all_of([each for each in (of_tags, condition) if each is not None])
        self._mask = None if selecting is None else mask_of(selecting)
        self._namespace = namespace
        self._check_crc = check_crc
        self._max_inflated_bytes = max_inflated_bytes
        self._needed = frozenset(columns) | columns_of(selecting)
        self._irregular_flags = SysFlag.COMPRESSED | SysFlag.NEED_UNWRAP if Name.VALUE in self._needed else 0
        self._has_logged_unreadable = False
        self._twin = compiled.twin()
        self._bits = wanted_bits(self._needed, check_crc=check_crc)

    def batches(self, pulls: Sequence[Pulled]) -> Iterator[Any]:
        """Record batches of `schema` with the records in range, in order; ProtocolError for bytes that are no records."""
        if len(pulls) == 1 and (regular := self._all_regular(pulls[0])) is not None:
            yield self._batch({name: regular.column(name) for name in self._needed})
        else:
            yield from self._with_irregular(pulls)

    def _all_regular(self, pull: Pulled) -> CompiledRecords | None:
        if self._twin is None:
            return None
        return read_regular(self._twin, pull.wanted, pull.records, self._irregular_flags, self._bits)

    def _with_irregular(self, pulls: Sequence[Pulled]) -> Iterator[Any]:
        """The same for pulls that may have irregular records, records out of range, or other bytes."""
        whole = pulls[0].records if len(pulls) == 1 else b"".join([pull.records for pull in pulls])
        records = Records.find(whole, self._twin)
        pull_of = _pull_of_each(records, pulls)
        kept = _wanted(records, pulls, pull_of)
        if kept is not None:
            records, pull_of = records.chosen(kept), pull_of[kept]
        if not len(records):
            return
        regular_rows, regular = self._regular(records)
        brokers = pa.array([pull.wanted.queue.broker_name for pull in pulls], pa.string())
        for portion in self._portions(records, regular_rows):
            first, last = np.searchsorted(regular_rows, (portion.start, portion.end))
            own = regular if last - first == len(regular) else regular.chosen(slice(first, last))
            order = (
                np.argsort(np.concatenate((regular_rows[first:last], portion.irregular_rows)))
                if portion.irregular
                else None
            )
            arrays = {
                name: brokers.take(number_array(pull_of[portion.start : portion.end]))
                if name is Name.BROKER_NAME
                else _merged(name, own, portion.irregular, order)
                for name in self._needed
            }
            yield self._batch(arrays)

    def _regular(self, records: Records) -> tuple[Numbers, RegularRows]:
        """The row numbers of the regular records, and these records."""
        is_regular, layout = regular_layout(records, self._irregular_flags)
        rows = np.flatnonzero(is_regular)
        own = records if len(rows) == len(records) else records.chosen(rows)
        regular = RegularRows(own, layout, self._needed, self._twin)
        if (irregular := regular.irregular_rows()) is not None:
            rows, regular = rows[~irregular], regular.chosen(~irregular)
        if self._check_crc:
            regular.check_bodies()
        return rows, regular

    def _portions(self, records: Records, regular_rows: Numbers) -> Iterator[_Portion]:
        """All rows, in as many portions as the limit on inflated bodies requires."""
        start, total_bytes = 0, 0
        numbers: list[int] = []
        irregular: list[StoredMessage] = []
        if len(regular_rows) < len(records):
            for row in np.setdiff1d(np.arange(len(records)), regular_rows, assume_unique=True).tolist():
                message = self._decoded(records, row)
                total_bytes += len(message.body)
                if irregular and total_bytes > self._max_inflated_bytes:
                    yield _Portion(start, row, numbers, irregular)
                    start, total_bytes, numbers, irregular = row, len(message.body), [], []
                numbers.append(row)
                irregular.append(message)
        yield _Portion(start, len(records), numbers, irregular)

    def _decoded(self, records: Records, row: int) -> StoredMessage:
        message = decode_record(records.one(row), 0, self._check_crc)
        if not self._irregular_flags:
            return message
        try:
            found = readable(message, None)
        except UnreadableMessage as error:  # failing would let anyone who may send stop the query permanently
            if not self._has_logged_unreadable:
                self._has_logged_unreadable = True
                log.warning(
                    "Cannot read the body at %s, queue %d, offset %d: %s. The row contains the stored bytes; further such "
                    "bodies are not logged",
                    message.topic,
                    message.queue_id,
                    message.queue_offset,
                    error,
                )
            return message
        return message if is_unreadable_as_stored(message) else found

    def _batch(self, arrays: dict[Name, Any]) -> Any:
        if self._namespace is not None and Name.TOPIC in arrays:
            arrays[Name.TOPIC] = _unwrapped(arrays[Name.TOPIC], self._namespace)
        if self._never_null.values and Name.PROPERTIES in arrays:
            arrays[Name.PROPERTIES] = maps_without_nulls(arrays[Name.PROPERTIES])
        assert not any(arrays[name].null_count for name in self._never_null.columns), (
            "Java does not check these columns for nulls"
        )
        batch = pa.RecordBatch.from_arrays([arrays[name] for name in self._columns], schema=self.schema)
        return batch if self._mask is None else batch.filter(self._mask(arrays))


def _pull_of_each(records: Records, pulls: Sequence[Pulled]) -> Numbers:
    """The index of the pull that each record came with."""
    if len(pulls) == 1:
        return np.zeros(len(records), np.int64)
    ends = np.cumsum([len(pull.records) for pull in pulls])
    return np.searchsorted(ends, records.starts, side="right")


def _wanted(records: Records, pulls: Sequence[Pulled], pull_of: Numbers) -> Switches | None:
    """The records in their range, without those of undecided transactions; None if that is all of them."""
    offsets, flags = records.field("queue_offset"), records.field("sys_flag")
    starts = np.array([pull.wanted.start for pull in pulls], np.int64)
    ends = np.array([pull.wanted.end for pull in pulls], np.int64)
    kept: Switches = (offsets >= starts[pull_of]) & (offsets < ends[pull_of]) & ((flags & _UNDECIDED) == 0)
    return None if kept.all() else kept


def _merged(name: Name, regular: RegularRows, irregular: Sequence[StoredMessage], order: Numbers | None) -> Any:
    """A column of the regular rows, with the irregular ones at their positions."""
    array = regular.column(name)
    if order is None:
        return array
    others = pa.array([_IRREGULAR_COLUMNS[name](message) for message in irregular], ARROW_TYPES[type_of(name)])
    return pa.concat_arrays([array, others]).take(number_array(order))


def _unwrapped(topics: Any, namespace: str) -> Any:
    """Topics without the prefix of the namespace. Each different topic is converted once."""
    encoded = topics.dictionary_encode()
    bare = pa.array([unwrap(namespace, topic) for topic in encoded.dictionary.to_pylist()], pa.string())
    return bare.take(encoded.indices)


def _offset_id(message: StoredMessage) -> str:
    return offset_id(message.packed_store_host, message.log_offset & 2**64 - 1)  # negative in a damaged record


def _micros(ms: int) -> int:
    return min(max(ms, -MAX_MS), MAX_MS) * 1000


_IRREGULAR_COLUMNS: Final[dict[Name, Callable[[StoredMessage], Any]]] = {
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
"""The columns of one message. This table defines their meaning; `RegularRows` must agree."""

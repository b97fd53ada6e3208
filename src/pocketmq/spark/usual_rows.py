"""Usual records as columns: a strided view for each fixed field, one gather for each text.

offsets  [body at, body end, next body at, …]      a binary array over the raw buffer, nothing copied
take     0, 2, 4, …                                the bodies alone, copied at the speed of memory; the compiled twin has one call for it
"""

from collections.abc import Callable
from functools import cached_property
from typing import Any, Final

from pocketmq.compiled import Twin
from pocketmq.model import properties as names
from pocketmq.protocol.record import LOG_OFFSET_AT, crc_of, decode_record
from pocketmq.spark.arrow_types import ARROW_TYPES, number_array
from pocketmq.spark.compiled_properties import CompiledProperties
from pocketmq.spark.libraries import np, pa, pc
from pocketmq.spark.property_table import PropertyTable, PropertyTexts
from pocketmq.spark.records import HEAD, Layout, Numbers, Records, Switches
from pocketmq.spark.schema import Name

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

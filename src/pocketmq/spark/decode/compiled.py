"""The C twins of decoding: `records` and `RegularRows` in one pass, and `property_table`.

A buffer with an irregular record is left to the Python code, which separates irregular records from regular ones.
"""

from collections.abc import Collection
from typing import Any, Final

from pocketmq.codes import SysFlag
from pocketmq.compiled import MapColumn, RecordColumns, TextColumn, Twin, Wanted
from pocketmq.model import QueueRange
from pocketmq.model import properties as names
from pocketmq.protocol.record import HOSTS_V6
from pocketmq.spark.arrow import ARROW_TYPES, np, number_array, pa, same_texts
from pocketmq.spark.decode.records import Numbers, Switches
from pocketmq.spark.schema import Name, type_of

COLUMNS: Final = (names.UNIQ_KEY, names.KEYS, names.TAGS)
"""Properties that have a column of their own."""
_COLUMN_NAMES: Final = tuple(name.encode() for name in COLUMNS)


class CompiledProperties:
    """The properties of rows, whose texts lie from `starts` to `ends` in a buffer of records."""

    def __init__(
        self, twin: Twin, buffer: bytes | memoryview, starts: Numbers, ends: Numbers, *, with_map: bool
    ) -> None:
        self._rows = len(starts)
        self._irregular, self._map, self._columns = twin.read_properties(
            buffer, np.ascontiguousarray(starts), np.ascontiguousarray(ends), _COLUMN_NAMES, with_map
        )

    def irregular_rows(self) -> Switches | None:
        """The rows that need the Python code; None if all are regular. Only then are values and maps available."""
        return None if self._irregular is None else np.frombuffer(self._irregular, np.bool_)

    def values(self, name: str) -> Any:
        """The values of one of `COLUMNS` as a string array; null if a row has none. Of equal names the last one counts."""
        assert self._columns is not None, "irregular rows are excluded before"
        return text_array(self._rows, self._columns[COLUMNS.index(name)])

    def maps(self) -> Any:
        """All properties as a map array. A repeated name keeps its first position and its last value, as in a dict."""
        assert self._map is not None, "the map was requested, and irregular rows are excluded before"
        return map_array(self._map)


def map_array(column: MapColumn) -> Any:
    firsts, keys, values = column
    offsets = np.frombuffer(firsts, np.int32)
    return pa.MapArray.from_arrays(
        number_array(offsets), *(text_array(int(offsets[-1]), side) for side in (keys, values))
    )


def text_array(count: int, column: TextColumn) -> Any:
    bits, offsets, data = column
    buffers = [None if bits is None else pa.py_buffer(bits), pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.string(), count, buffers)


ALWAYS_IRREGULAR: Final = HOSTS_V6 | SysFlag.TRANSACTION_PREPARED | SysFlag.INNER_BATCH | SysFlag.NEED_UNWRAP
"""Flags that always make a record irregular, or exclude it."""

_NUMBERS: Final = (Name.QUEUE_ID, Name.QUEUE_OFFSET, Name.BORN_TIMESTAMP, Name.STORE_TIMESTAMP, Name.RECONSUME_TIMES)
_TEXTS: Final = {Name.MSG_ID: names.UNIQ_KEY, Name.KEYS: names.KEYS, Name.TAGS: names.TAGS}


class CompiledRecords:
    """The columns of a buffer with regular records only, all of them in the requested range."""

    def __init__(self, wanted: QueueRange, read: RecordColumns) -> None:
        self._broker_name = wanted.queue.broker_name
        self._rows, self._topic, self._values, self._numbers, self._texts, self._map = read

    def column(self, name: Name) -> Any:
        """One of the requested columns as an Arrow array of its type."""
        if name is Name.BROKER_NAME:
            return same_texts(self._broker_name, self._rows)
        if name is Name.TOPIC:
            return same_texts(self._topic.decode(), self._rows)
        if name is Name.VALUE:
            return self._binary(self._values)
        if name is Name.PROPERTIES:
            assert self._map is not None, "the column was requested"
            return map_array(self._map)
        if name in _TEXTS:
            assert self._texts is not None, "the column was requested"
            return text_array(self._rows, self._texts[COLUMNS.index(_TEXTS[name])])
        assert self._numbers is not None, "the column was requested"
        octets = pa.py_buffer(self._numbers[_NUMBERS.index(name)])
        return pa.Array.from_buffers(ARROW_TYPES[type_of(name)], self._rows, [None, octets])

    def _binary(self, column: TextColumn | None) -> Any:
        assert column is not None, "the column was requested"
        _, offsets, octets = column
        return pa.Array.from_buffers(pa.binary(), self._rows, [None, pa.py_buffer(offsets), pa.py_buffer(octets)])


def wanted_bits(columns: Collection[Name], *, check_crc: bool) -> int:
    """What the C twin has to produce for these columns."""
    bits = Wanted.CHECKED_BODIES if check_crc else 0
    if Name.VALUE in columns:
        bits |= Wanted.VALUES
    if Name.PROPERTIES in columns:
        bits |= Wanted.MAP
    if not _TEXTS.keys().isdisjoint(columns):
        bits |= Wanted.TEXTS
    return bits if set(_NUMBERS).isdisjoint(columns) else bits | Wanted.NUMBERS


def read_regular(
    twin: Twin, wanted: QueueRange, records: bytes | memoryview, irregular_flags: int, bits: int
) -> CompiledRecords | None:
    """The records of one pull; None if one of them is irregular."""
    read = twin.read_columns(records, wanted.start, wanted.end, irregular_flags | ALWAYS_IRREGULAR, bits, _COLUMN_NAMES)
    return None if read is None else CompiledRecords(wanted, read)

"""Records by the compiled twin of `records` and `UsualRows`: all columns in one pass, where everything about a buffer is usual.

Whatever is not, be it one record, is left to those two, which tell usual records from odd ones.

Properties of many messages by the compiled twin of `property_table`, which lays out the buffers of Arrow itself.
"""

from collections.abc import Collection
from typing import Any, Final

from pocketmq.compiled import MapColumn, RecordColumns, TextColumn, Twin, Wanted
from pocketmq.model import properties as names
from pocketmq.model.flags import SysFlag
from pocketmq.model.queue import QueueRange
from pocketmq.protocol.record import HOSTS_V6
from pocketmq.spark.arrow import ARROW_TYPES, np, number_array, pa, same_texts
from pocketmq.spark.decode.records import Numbers, Switches
from pocketmq.spark.schema import Name, type_of

COLUMNS: Final = (names.UNIQ_KEY, names.KEYS, names.TAGS)
"""Properties that have a column of their own."""
_COLUMN_NAMES: Final = tuple(name.encode() for name in COLUMNS)


class CompiledProperties:
    """The property texts of rows, which stand from `starts` to `ends` in a buffer of records."""

    def __init__(
        self, twin: Twin, buffer: bytes | memoryview, starts: Numbers, ends: Numbers, *, with_map: bool
    ) -> None:
        self._rows = len(starts)
        self._odd, self._map, self._columns = twin.read_properties(
            buffer, np.ascontiguousarray(starts), np.ascontiguousarray(ends), _COLUMN_NAMES, with_map
        )

    def odd_rows(self) -> Switches | None:
        """Which rows cannot be read so; None when all can. Only then is there anything else."""
        return None if self._odd is None else np.frombuffer(self._odd, np.bool_)

    def values(self, name: str) -> Any:
        """The values of one of `COLUMNS` as a string array; null where a row has none. Of equal names the last one counts."""
        assert self._columns is not None, "odd rows are left out before"
        return text_array(self._rows, self._columns[COLUMNS.index(name)])

    def maps(self) -> Any:
        """All properties as a map array. Of equal names the first one's place and the last one's value count, as in a dict."""
        assert self._map is not None, "it was asked for, and odd rows are left out before"
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


NEVER_USUAL: Final = HOSTS_V6 | SysFlag.TRANSACTION_PREPARED | SysFlag.INNER_BATCH | SysFlag.NEED_UNWRAP
"""Flags of records that are odd, or that do not count, whatever is wanted of them."""

_NUMBERS: Final = (Name.QUEUE_ID, Name.QUEUE_OFFSET, Name.BORN_TIMESTAMP, Name.STORE_TIMESTAMP, Name.RECONSUME_TIMES)
_TEXTS: Final = {Name.MSG_ID: names.UNIQ_KEY, Name.KEYS: names.KEYS, Name.TAGS: names.TAGS}
_NAMES: Final = tuple(name.encode() for name in COLUMNS)


class CompiledRecords:
    """The columns of a buffer whose records are all usual, and all wanted."""

    def __init__(self, wanted: QueueRange, read: RecordColumns) -> None:
        self._broker_name = wanted.queue.broker_name
        self._rows, self._topic, self._values, self._numbers, self._texts, self._map = read

    def column(self, name: Name) -> Any:
        """One of the columns that were asked for, as an Arrow array of its type."""
        if name is Name.BROKER_NAME:
            return same_texts(self._broker_name, self._rows)
        if name is Name.TOPIC:
            return same_texts(self._topic.decode(), self._rows)
        if name is Name.VALUE:
            return self._binary(self._values)
        if name is Name.PROPERTIES:
            assert self._map is not None, "it was asked for"
            return map_array(self._map)
        if name in _TEXTS:
            assert self._texts is not None, "they were asked for"
            return text_array(self._rows, self._texts[COLUMNS.index(_TEXTS[name])])
        assert self._numbers is not None, "they were asked for"
        octets = pa.py_buffer(self._numbers[_NUMBERS.index(name)])
        return pa.Array.from_buffers(ARROW_TYPES[type_of(name)], self._rows, [None, octets])

    def _binary(self, column: TextColumn | None) -> Any:
        assert column is not None, "it was asked for"
        _, offsets, octets = column
        return pa.Array.from_buffers(pa.binary(), self._rows, [None, pa.py_buffer(offsets), pa.py_buffer(octets)])


def wanted_bits(columns: Collection[Name], *, check_crc: bool) -> int:
    """What the twin has to make for these columns."""
    bits = Wanted.CHECKED_BODIES if check_crc else 0
    if Name.VALUE in columns:
        bits |= Wanted.VALUES
    if Name.PROPERTIES in columns:
        bits |= Wanted.MAP
    if not _TEXTS.keys().isdisjoint(columns):
        bits |= Wanted.TEXTS
    return bits if set(_NUMBERS).isdisjoint(columns) else bits | Wanted.NUMBERS


def read_usual(
    twin: Twin, wanted: QueueRange, records: bytes | memoryview, odd_flags: int, bits: int
) -> CompiledRecords | None:
    """The records of one pull; None when any of them has to be looked at otherwise."""
    read = twin.read_columns(records, wanted.start, wanted.end, odd_flags | NEVER_USUAL, bits, _NAMES)
    return None if read is None else CompiledRecords(wanted, read)

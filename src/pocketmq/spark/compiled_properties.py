"""Properties of many messages by the compiled twin of `property_table`, which lays out the buffers of Arrow itself."""

from typing import Any, Final

from pocketmq.compiled import MapColumn, TextColumn, Twin
from pocketmq.model import properties as names
from pocketmq.spark.arrow_types import number_array
from pocketmq.spark.libraries import np, pa
from pocketmq.spark.records import Numbers, Switches

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

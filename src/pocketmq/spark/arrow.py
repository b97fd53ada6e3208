"""Arrow types and arrays, as Spark accepts them from a Python source.

This is the only module that imports numpy and pyarrow, which come with the extra `spark`. If one is missing, the error says
what to install on the driver and the executors.

`pa.array` and `pa.scalar` search for pandas on every call. Where pandas is not installed, that search takes longer than the
rest of the work, so the functions here build arrays from buffers.
"""

from collections.abc import Sequence
from typing import Any, Final

from pocketmq.spark.python_processes import missing
from pocketmq.spark.schema import NULLS_ANYWHERE, Name, NeverNull, type_of

try:
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc
except ImportError as error:
    raise missing(error.name) from None

__all__ = ["np", "pa", "pc"]


ARROW_TYPES: Final[dict[str, Any]] = {
    "string": pa.string(),
    "binary": pa.binary(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "map<string,string>": pa.map_(pa.string(), pa.string()),
}

MAP_WITHOUT_NULLS: Final = pa.map_(pa.string(), pa.field("value", pa.string(), nullable=False))


def arrow_schema(names: Sequence[Name], never_null: NeverNull = NULLS_ANYWHERE) -> Any:
    """The Arrow schema of these columns, in this order."""
    kinds = {name: ARROW_TYPES[type_of(name)] for name in names}
    if never_null.values and Name.PROPERTIES in kinds:
        kinds[Name.PROPERTIES] = MAP_WITHOUT_NULLS
    return pa.schema([pa.field(name.value, kind, name not in never_null.columns) for name, kind in kinds.items()])


def maps_without_nulls(maps: Any) -> Any:
    """The same maps as a type that excludes null values; nothing is copied."""
    return pa.MapArray.from_arrays(maps.offsets, maps.keys, maps.items, type=MAP_WITHOUT_NULLS)


def number_array(numbers: Any, kind: Any = None) -> Any:
    """An Arrow array over a numpy one, without a copy; `kind` defaults to the type of the numbers."""
    return pa.Array.from_buffers(
        kind or pa.from_numpy_dtype(numbers.dtype), len(numbers), [None, pa.py_buffer(numbers)]
    )


def same_texts(text: str, count: int) -> Any:
    """A string array with `text` in each row."""
    octets = text.encode()
    offsets = np.arange(count + 1, dtype=np.int32) * len(octets)
    return pa.Array.from_buffers(pa.string(), count, [None, pa.py_buffer(offsets), pa.py_buffer(octets * count)])

"""Spark's types as Arrow's: the only spelling that Spark takes from a Python source."""

from collections.abc import Sequence
from typing import Any, Final

from pocketmq.spark.libraries import pa
from pocketmq.spark.schema import Name, type_of

ARROW_TYPES: Final[dict[str, Any]] = {
    "string": pa.string(),
    "binary": pa.binary(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "map<string,string>": pa.map_(pa.string(), pa.string()),
}


def arrow_schema(names: Sequence[Name]) -> Any:
    """The Arrow schema of these columns, in this order."""
    return pa.schema([pa.field(name.value, ARROW_TYPES[type_of(name)]) for name in names])

"""The columns of a topic, and those that a query requests.

Spark does not prune the columns of a Python source: every column of `.schema(…)` is decoded, so a narrow schema is faster. Arrow
types must equal Spark's own: plain strings, microseconds in UTC, and nulls only where the schema permits them.

Spark checks every nullable value of every row for null, each time it copies the row. Most columns are declared without nulls.
"""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from enum import StrEnum
from typing import Any, Final, NamedTuple, Protocol

from pocketmq.errors import InvalidSetting


class Name(StrEnum):
    """The columns, by the names that users write."""

    TOPIC = "topic"
    BROKER_NAME = "brokerName"
    QUEUE_ID = "queueId"
    QUEUE_OFFSET = "queueOffset"
    MSG_ID = "msgId"
    KEYS = "keys"
    TAGS = "tags"
    VALUE = "value"
    PROPERTIES = "properties"
    BORN_TIMESTAMP = "bornTimestamp"
    STORE_TIMESTAMP = "storeTimestamp"
    RECONSUME_TIMES = "reconsumeTimes"


class Column(NamedTuple):
    """A column: its type as Spark writes it, and its meaning."""

    name: Name
    type: str
    meaning: str
    may_be_null: bool = False


COLUMNS: Final = (
    Column(Name.TOPIC, "string", "the topic"),
    Column(Name.BROKER_NAME, "string", "the broker that has the queue"),
    Column(Name.QUEUE_ID, "int", "the number of the queue at this broker"),
    Column(Name.QUEUE_OFFSET, "bigint", "the offset in the queue, without gaps"),
    Column(Name.MSG_ID, "string", "the producer's id, or else the broker's"),
    Column(Name.KEYS, "string", "the keys, separated by blanks; null if there are none", may_be_null=True),
    Column(Name.TAGS, "string", "the tag; null if there is none", may_be_null=True),
    Column(Name.VALUE, "binary", "the body, decompressed"),
    Column(Name.PROPERTIES, "map<string,string>", "all properties, including those that RocketMQ adds"),
    Column(Name.BORN_TIMESTAMP, "timestamp", "when the producer created the message, by its clock"),
    Column(Name.STORE_TIMESTAMP, "timestamp", "when the broker stored it"),
    Column(Name.RECONSUME_TIMES, "int", "how often its consumption failed, in a retry or dead-letter topic"),
)

_BY_NAME: Final = {column.name.value: column for column in COLUMNS}


class _Type(Protocol):
    def simpleString(self) -> str: ...  # noqa: N802


class _Field(Protocol):
    """A field of Spark's StructType, as a protocol, so that this module does not import Spark."""

    @property
    def name(self) -> str: ...
    @property
    def dataType(self) -> Any: ...  # noqa: N802
    @property
    def nullable(self) -> bool: ...


class NeverNull(NamedTuple):
    """The columns and map values that a schema declares without nulls."""

    columns: frozenset[Name] = frozenset()
    values: bool = False
    """Whether values of the properties are never null."""


NULLS_ANYWHERE: Final = NeverNull()
"""The default: any column may have nulls."""


def names_of(fields: Iterable[_Field]) -> tuple[Name, ...]:
    """The columns of a user's schema, in its order; InvalidSetting for one that cannot be read."""
    found = tuple(_checked(field) for field in fields)
    if not found:
        raise InvalidSetting(f"the schema has no columns; choose from {', '.join(_BY_NAME)}")
    if repeated := [name for name in found if found.count(name) > 1]:
        raise InvalidSetting(f"the schema has the column {repeated[0]} twice")
    return found


def parse_columns(names: Sequence[str]) -> tuple[Name, ...]:
    """The columns with these names, in this order; InvalidSetting for one that does not exist or is named twice."""
    if isinstance(names, str):
        raise InvalidSetting(f"columns is a list of names: columns=[{names!r}]")
    for name in names:
        if name not in _BY_NAME:
            raise InvalidSetting(f"a topic has no column {name!r}{_hint(str(name))}")
        if names.count(name) > 1:
            raise InvalidSetting(f"columns has {name!r} twice")
    if not names:
        raise InvalidSetting(f"columns names no column; choose from {', '.join(_BY_NAME)}")
    return tuple(map(Name, names))


def never_null_of(fields: Iterable[_Field]) -> NeverNull:
    """What a schema that passed `names_of` says about nulls."""
    all_fields = tuple(fields)
    return NeverNull(
        frozenset(Name(field.name) for field in all_fields if not field.nullable),
        any(not getattr(field.dataType, "valueContainsNull", True) for field in all_fields),
    )


def _checked(field: _Field) -> Name:
    column = _BY_NAME.get(field.name)
    if column is None:
        raise InvalidSetting(f"a topic has no column {field.name!r}{_hint(field.name)}")
    kind: _Type = field.dataType
    actual = kind.simpleString()
    if actual != column.type:
        advice = "; cast it after reading" if column.name == Name.VALUE else ""
        raise InvalidSetting(f"the column {column.name} has type {column.type}, not {actual}{advice}")
    if column.may_be_null and not field.nullable:
        raise InvalidSetting(f"the column {column.name} cannot be NOT NULL: not every message has a value for it")
    return column.name


def _hint(name: str) -> str:
    folded = {known.lower(): known for known in _BY_NAME}
    near = get_close_matches(name.lower(), folded, 1, 0.5)
    return f"; did you mean {folded[near[0]]}?" if near else f"; the columns are {', '.join(_BY_NAME)}"


def type_of(name: Name) -> str:
    """The type of a column as Spark writes it."""
    return _BY_NAME[name].type


def markdown_table() -> Sequence[str]:
    """The rows of the documentation."""
    return [f"| `{column.name}` | {column.type} | {column.meaning} |" for column in COLUMNS]

"""Rows to messages: the columns of a DataFrame that is written to a topic.

    schema ── once: names, types ──►  batch ── column by column: every value ──►  messages

A misspelt column fails before the first row. An invalid row fails before any row of its batch is sent; the error has the number
of the row in its partition and the name of the column.
"""

from collections.abc import Callable, Sequence
from difflib import get_close_matches
from enum import StrEnum
from itertools import repeat
from typing import Any, Final, NamedTuple

from pocketmq.errors import InvalidMessage, UsageError
from pocketmq.model import Message
from pocketmq.model.names import UNSENDABLE_TOPICS, is_retry, parse_topic
from pocketmq.model.properties import KEYS, NAME_END, RESERVED, TAGS, VALUE_END
from pocketmq.spark.arrow import np, pa, pc
from pocketmq.spark.write.sink_batches import ROW_ID, PlainRows


class Written(StrEnum):
    """The columns that can be written."""

    VALUE = "value"
    TOPIC = "topic"
    KEYS = "keys"
    TAGS = "tags"
    PROPERTIES = "properties"
    SHARDING_KEY = "shardingKey"
    DELAY_LEVEL = "delayLevel"
    DELIVER_AT = "deliverAt"


class Rule(NamedTuple):
    """The types that a column may have, as text and as a check of the Arrow type, and its meaning."""

    types: str
    takes: Callable[[Any], bool]
    meaning: str


def _is_text(kind: Any) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_octets(kind: Any) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _is_texts(kind: Any) -> bool:
    return bool(pa.types.is_list(kind)) and _is_text(kind.value_type)


def _is_text_map(kind: Any) -> bool:
    return bool(pa.types.is_map(kind)) and _is_text(kind.key_type) and _is_text(kind.item_type)


RULES: Final[dict[Written, Rule]] = {
    Written.VALUE: Rule("binary or string", lambda kind: _is_octets(kind) or _is_text(kind), "the body; required and not empty"),
    Written.TOPIC: Rule("string", _is_text, "the topic; required unless the option `topic` is set"),
    Written.KEYS: Rule("string or array<string>", lambda kind: _is_text(kind) or _is_texts(kind), "keys to search by; a string may have several, separated by blanks"),
    Written.TAGS: Rule("string", _is_text, "the tag that consumers filter by"),
    Written.PROPERTIES: Rule("map<string,string>", _is_text_map, "properties of your own"),
    Written.SHARDING_KEY: Rule("string", _is_text, "messages with the same key go to the same queue, in the order of their partition"),
    Written.DELAY_LEVEL: Rule("int or bigint", lambda kind: bool(pa.types.is_integer(kind)), "a delay level of the broker; 0 for no delay"),
    Written.DELIVER_AT: Rule("timestamp", lambda kind: bool(pa.types.is_timestamp(kind)) and kind.tz is not None, "deliver at this time"),
}  # fmt: skip

_OWN_NAMES: Final = pa.array(sorted(RESERVED | {ROW_ID}))
_SEPARATORS: Final = (NAME_END, VALUE_END)
_SEPARATOR_FOUND: Final = "contains 0x01 or 0x02, which separate properties on the wire"
_PLAIN: Final = frozenset({Written.VALUE, Written.TOPIC, Written.TAGS, Written.KEYS, Written.PROPERTIES})
_FEWEST_PLAIN: Final = 2
"""A single row becomes a message, not a batch."""


class SinkRows:
    """Converts the batches of one partition to messages, and counts its rows."""

    def __init__(self, schema: Any, *, topic: str | None = None, drop_reserved: bool = False) -> None:
        """`schema` is that of the batches; `topic` is the option, which overrides the column."""
        self._columns = tuple(_checked_column(field) for field in schema)
        if Written.VALUE not in self._columns:
            raise InvalidMessage("the column value is missing: it is the body, of type binary or string")
        if topic is None and Written.TOPIC not in self._columns:
            raise InvalidMessage("no topic is set: set the option topic, or add a column topic")
        self._topic = topic
        self._drop_reserved = drop_reserved
        self._rows_before = 0

    def messages(self, batch: Any) -> list[Message]:
        """The messages of the next batch, in order; InvalidMessage has row and column of an invalid one."""
        arrays = dict(zip(self._columns, batch.columns, strict=True))
        rows = len(batch)
        topics = repeat(self._topic, rows) if self._topic is not None else self._topics(arrays[Written.TOPIC])
        levels, moments = self._delays(arrays)
        made = [
            Message(
                topic,
                body,
                tags=tags,
                keys=keys or (),
                properties=properties,
                sharding_key=sharding_key,
                delay_level=level or 0,
                deliver_at_ms=deliver_at_ms,
            )
            for topic, body, tags, keys, properties, sharding_key, level, deliver_at_ms in zip(
                topics,
                self._bodies(arrays[Written.VALUE]),
                self._few_texts(Written.TAGS, arrays.get(Written.TAGS), rows),
                self._keys(arrays.get(Written.KEYS), rows),
                self._properties(arrays.get(Written.PROPERTIES), rows),
                self._few_texts(Written.SHARDING_KEY, arrays.get(Written.SHARDING_KEY), rows),
                levels,
                moments,
                strict=True,
            )
        ]
        self._rows_before += rows
        return made

    def plain(self, batch: Any, alone_from: int) -> PlainRows | None:
        """The next batch, if all its rows can share batches, otherwise None. Bodies of at least `alone_from` bytes cannot share.
        InvalidMessage as in `messages`.
        """
        arrays = dict(zip(self._columns, batch.columns, strict=True))
        rows = len(batch)
        if self._topic is None or rows < _FEWEST_PLAIN or not _PLAIN.issuperset(self._columns) or is_retry(self._topic):
            return None
        if pc.any(pc.greater_equal(pc.binary_length(arrays[Written.VALUE]), alone_from), min_count=0).as_py():
            return None
        bodies = self._bodies(arrays[Written.VALUE])
        own = None if self._columns == (Written.VALUE,) else self._own(arrays, rows)
        self._rows_before += rows
        return PlainRows(parse_topic(self._topic), bodies, own)

    def _own(self, arrays: dict[Written, Any], rows: int) -> list[dict[str, str]]:
        """Properties, tag and keys of each row, in the order in a message."""
        given = self._properties(arrays.get(Written.PROPERTIES), rows)
        tags = self._few_texts(Written.TAGS, arrays.get(Written.TAGS), rows)
        keys = self._keys(arrays.get(Written.KEYS), rows)
        found: list[dict[str, str]] = []
        for properties, tag, key in zip(given, tags, keys, strict=True):
            own = {} if properties is None else properties
            if tag is not None:
                own[TAGS] = tag
            if key:
                own[KEYS] = key
            found.append(own)
        return found

    def _bodies(self, array: Any) -> list[bytes]:
        self._refuse(Written.VALUE, pc.is_null(array), "is null; every message needs a body")
        self._refuse(
            Written.VALUE, pc.equal(pc.binary_length(array), 0), "is empty; brokers refuse a message without a body"
        )
        bodies: list[bytes] = array.cast(pa.large_binary()).to_pylist()
        return bodies

    def _topics(self, array: Any) -> list[str]:
        self._refuse(Written.TOPIC, pc.is_null(array), "is null; every message needs a topic")
        self._try_each(Written.TOPIC, array, _check_topic)
        topics: list[str] = array.to_pylist()
        return topics

    def _few_texts(self, name: Written, array: Any, rows: int) -> list[str | None]:
        """Tags or sharding keys; each different text is checked once."""
        if array is None:
            return [None] * rows
        self._refuse_separators(name, array)
        self._try_each(name, array, _check_tag if name is Written.TAGS else _check_not_empty)
        texts: list[str | None] = array.to_pylist()
        return texts

    def _keys(self, array: Any, rows: int) -> list[str | None]:
        if array is None:
            return [None] * rows
        if _is_texts(array.type):
            joined = pc.binary_join(array, " ")
            nulls = pc.and_(pc.is_null(joined), pc.is_valid(array))
            self._refuse(Written.KEYS, nulls, "contains a null; remove it, for example with array_compact")
            array = joined
        self._refuse_separators(Written.KEYS, array)
        keys: list[str | None] = array.to_pylist()
        return keys

    def _properties(self, array: Any, rows: int) -> Sequence[dict[str, str] | None]:
        if array is None:
            return [None] * rows
        array = array.cast(pa.map_(pa.string(), pa.string()))
        owners = pa.array(np.repeat(np.arange(rows), np.diff(array.offsets.to_numpy())))
        start, end = array.offsets[0].as_py(), array.offsets[-1].as_py()
        keys, items = array.keys[start:end], array.items[start:end]
        is_own = pc.is_in(keys, value_set=_OWN_NAMES)
        if self._drop_reserved:
            kept = pc.invert(is_own)
            keys, items, owners = keys.filter(kept), items.filter(kept), owners.filter(kept)
        else:
            self._refuse_entry(is_own, owners, keys, "is reserved for RocketMQ or the connector; remove it, or set reservedProperties = drop")  # fmt: skip
        self._refuse_entry(pc.is_null(items), owners, keys, "has no value")
        for side in (keys, items):
            self._refuse_entry(pc.equal(pc.binary_length(side), 0), owners, keys, "has an empty name or value, which the wire format cannot contain")  # fmt: skip
            self._refuse_entry(_has_separator(side), owners, keys, _SEPARATOR_FOUND)  # fmt: skip
        found: list[dict[str, str]] = [{} for _ in range(rows)]
        for row, key, item in zip(owners.to_pylist(), keys.to_pylist(), items.to_pylist(), strict=True):
            found[row][key] = item
        return found

    def _delays(self, arrays: dict[Written, Any]) -> tuple[list[int | None], list[int | None]]:
        rows = len(arrays[Written.VALUE])
        levels = arrays.get(Written.DELAY_LEVEL, pa.nulls(rows, pa.int64())).cast(pa.int64())
        moments_ms = pa.nulls(rows, pa.int64())
        if (moments := arrays.get(Written.DELIVER_AT)) is not None:
            moments_ms = moments.cast(pa.timestamp("ms", tz=moments.type.tz), safe=False).cast(pa.int64())
        self._refuse(Written.DELAY_LEVEL, pc.less(levels, 0), "is below 0")
        self._refuse(Written.DELIVER_AT, pc.less_equal(moments_ms, 0), "is not after 1970")
        both = pc.and_(pc.fill_null(pc.greater(levels, 0), False), pc.is_valid(moments_ms))
        self._refuse(Written.DELIVER_AT, both, "and delayLevel are both set; set one of them")
        return levels.to_pylist(), moments_ms.to_pylist()

    def _refuse(self, name: Written, mask: Any, why: str) -> None:
        """InvalidMessage for the first row at which the mask is true."""
        if pc.any(mask, min_count=0).as_py():
            row = pc.index(mask, True).as_py()
            raise InvalidMessage(f"row {self._rows_before + row}, column {name}: it {why}")

    def _refuse_separators(self, name: Written, array: Any) -> None:
        self._refuse(name, _has_separator(array), _SEPARATOR_FOUND)

    def _refuse_entry(self, mask: Any, owners: Any, keys: Any, why: str) -> None:
        if pc.any(mask, min_count=0).as_py():
            entry = pc.index(mask, True).as_py()
            row = self._rows_before + owners[entry].as_py()
            raise InvalidMessage(f"row {row}, column properties: the property {keys[entry].as_py()!r} {why}")

    def _try_each(self, name: Written, array: Any, check: Callable[[str], object]) -> None:
        """InvalidMessage for the first row whose text fails the check; equal texts are checked once."""
        encoded = array.dictionary_encode()
        for at, text in enumerate(encoded.dictionary.to_pylist()):
            try:
                check(text)
            except UsageError as error:
                row = pc.index(encoded.indices, at).as_py()
                raise InvalidMessage(f"row {self._rows_before + row}, column {name}: {error}") from None


def _checked_column(field: Any) -> Written:
    try:
        name = Written(field.name)
    except ValueError:
        near = get_close_matches(field.name, list(Written), 1, 0.6)
        hint = f"did you mean {near[0]}?" if near else f"the columns are {', '.join(Written)}."
        raise InvalidMessage(f"the column {field.name!r} cannot be written; {hint} Drop other columns") from None
    rule = RULES[name]
    if not rule.takes(field.type):
        raise InvalidMessage(f"the column {name} is {field.type}, but must be {rule.types}")
    return name


def _check_topic(topic: str) -> None:
    if parse_topic(topic) in UNSENDABLE_TOPICS:
        raise InvalidMessage(f"only brokers may write to topic {topic!r}")


def _check_tag(tag: str | None) -> None:
    Message("any", b"", tags=tag)


def _check_not_empty(text: str) -> None:
    if not text:
        raise InvalidMessage("it is empty, which the wire format cannot contain; use null instead")


def _has_separator(array: Any) -> Any:
    first, second = (pc.match_substring(array, mark) for mark in _SEPARATORS)
    return pc.fill_null(pc.or_(first, second), False)


def markdown_table() -> Sequence[str]:
    """The rows of the documentation."""
    return [f"| `{name}` | {rule.types} | {rule.meaning} |" for name, rule in RULES.items()]

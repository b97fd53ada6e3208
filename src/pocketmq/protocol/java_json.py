"""JSON bodies in the dialect of Java, as typed values.

    HeartbeatData.decode(data) ──► HeartbeatData       heartbeat.encode() ──► bytes

Bodies are frozen msgspec Structs with the base `Body`; `msgspec.structs.replace` changes a copy. Wire names are derived from
Python's field names; sets and lists of the wire are tuples. A None field with that default is omitted, as in Java; all
other fields are always written, with Java's defaults. msgspec decodes what Java normally writes. Input that only Java's parser accepts takes a slower path with
`java_json_reader` and tolerant conversion: null means no value, a number may replace a text, an enum may be its number (C++ clients), and
an unknown enum name means no value. Unknown properties are ignored. A missing body is not an empty one: Java reads no bytes as null, so
the smallest body is `{}`.

The writer produces JSON as Java does: sorted, without blanks, without nulls. Some releases of Java's parser fail on a blank after a colon.

    {"brokerAddrs":{0:"10.0.0.1:10911"}}                                numbers as keys are not quoted
    {"offsetTable":{{"brokerName":"b","queueId":0,"topic":"T"}:5}}      queues as keys are objects

With `strict`, for peers that need standard JSON, such keys are strings; Java reads them too.

Files have RocketMQ's layout: one property per line after tabs, with keys that are not texts on one line.

    {
        "offsetTable":{
            "T@group":{0:12,1:7
            }
        }
    }
"""

from collections.abc import Callable, Iterable
from contextlib import suppress
from enum import Enum
from functools import cache
from typing import Any, Self, TypeVar, cast

import msgspec
from msgspec.inspect import (
    AnyType,
    CollectionType,
    DictType,
    EnumType,
    NoneType,
    StrType,
    StructType,
    Type,
    UnionType,
    type_info,
)

from pocketmq.errors import BodyError, ProtocolError, UsageError
from pocketmq.model import MessageQueue
from pocketmq.protocol.header_encodings import DECODE_ERRORS
from pocketmq.protocol.java_json_reader import DEFAULT_LIMITS, REFERENCE_MARK, JsonLimits, read_json

_encode = msgspec.json.Encoder(order="sorted").encode

EMPTY_MAP: Any = msgspec.field(default_factory=dict)
"""The default of a dict field: a new dict for each body."""


class Body(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """One JSON object of the wire, or of a file."""

    @classmethod
    def decode(cls, data: bytes, limits: JsonLimits = DEFAULT_LIMITS) -> Self:
        """Decode a body. BodyError names the type and the missing or invalid property."""
        return read_body(cls, data, limits)

    def encode(self, *, strict: bool = False) -> bytes:
        """Encode a body; never empty."""
        return write_json(self, strict=strict)


def write_json(value: Any, *, strict: bool = False) -> bytes:
    """Encode `value` on one line. Accepts Structs, dicts with str, int or queue keys, lists, sets, enums and scalars."""
    return _written(value, strict=strict, pretty=False)


def write_pretty_json(value: Any) -> bytes:
    """Encode `value` in the layout of RocketMQ's files. Lists stay on one line."""
    return _written(value, strict=False, pretty=True)


def _written(value: Any, *, strict: bool, pretty: bool) -> bytes:
    writing = _Writing(strict, pretty)
    try:
        writing.value(value)
        return b"".join(writing.parts)
    except UnicodeEncodeError as error:
        raise UsageError(f"an unpaired surrogate cannot be encoded as JSON: {error.object[:80]!r}") from None


class _Writing:
    """Writes one document."""

    __slots__ = ("_depth", "_pretty", "_strict", "parts")

    def __init__(self, strict: bool, pretty: bool) -> None:
        self.parts: list[bytes] = []
        self._strict = strict
        self._pretty = pretty
        self._depth = 0

    def value(self, value: Any) -> None:
        kind = type(value)
        if kind is str or kind is float or kind is bool or value is None:
            self.parts.append(_encode(value))
        elif kind is int:
            self.parts.append(b"%d" % value)
        elif isinstance(value, msgspec.Struct):
            self._struct(value)
        elif isinstance(value, dict):
            self._map(value)
        elif isinstance(value, list | tuple):
            self._array(value)
        elif isinstance(value, set | frozenset):
            self._array(sorted(value))
        elif isinstance(value, Enum):
            self.parts.append(_encode(value.value if isinstance(value, str) else value.name))
        else:
            self.parts.append(_encode(value))

    def _struct(self, struct: msgspec.Struct) -> None:
        kind = type(struct)
        if not self._pretty and _is_plain_struct(kind):
            self.parts.append(_encode(struct))
            return
        properties = [(key, getattr(struct, name)) for key, name in _properties(kind)]
        self._properties(
            [(key, value) for key, value in properties if value is not None and value is not msgspec.UNSET]
        )

    def _map(self, entries: dict[Any, Any]) -> None:
        if not self._pretty and _is_plain_table(entries):
            self.parts.append(_encode(entries))
            return
        first = next(iter(entries), "")
        present = [(key, value) for key, value in sorted(entries.items(), key=_key) if value is not None]
        if isinstance(first, str):
            self._properties([(_encode(key) + b":", value) for key, value in present])
            return
        self.parts.append(b"{")
        self._depth += 1
        between = b""
        for key, value in present:
            self.parts.append(between)
            self._key_object(key)
            self.value(value)
            between = b","
        self._end(bool(present))

    def _properties(self, properties: list[tuple[bytes, Any]]) -> None:
        """Write an object with text keys in order. Each key includes its colon."""
        self.parts.append(b"{")
        self._depth += 1
        line = self._newline()
        between = line
        for key, value in properties:
            self.parts += between, key
            self.value(value)
            between = b"," + line
        self._end(bool(properties))

    def _key_object(self, key: Any) -> None:
        if isinstance(key, MessageQueue):
            if self._strict:
                self.parts.append(_encode(_encode(key).decode()))
            else:
                self._struct(key)
            self.parts.append(b":")
        elif type(key) is int:
            self.parts.append(b'"%d":' % key if self._strict else b"%d:" % key)
        else:
            raise TypeError(f"{type(key).__name__} cannot be a key of a JSON object; keys are texts, ints and queues")

    def _array(self, values: Iterable[Any]) -> None:
        self.parts.append(b"[")
        between = b""
        for value in values:
            self.parts.append(between)
            self.value(value)
            between = b","
        self.parts.append(b"]")

    def _end(self, filled: bool) -> None:
        self._depth -= 1
        self.parts.append(self._newline() + b"}" if filled else b"}")

    def _newline(self) -> bytes:
        return b"\n" + b"\t" * self._depth if self._pretty else b""


def _key(entry: tuple[Any, Any]) -> Any:
    return entry[0]


@cache
def _properties(kind: type[msgspec.Struct]) -> list[tuple[bytes, str]]:
    """The wire keys of a struct with their colons, and its field names, in wire order."""
    names = sorted(zip(kind.__struct_encode_fields__, kind.__struct_fields__, strict=True))
    return [(_encode(key) + b":", name) for key, name in names]


def _is_plain_table(entries: dict[Any, Any]) -> bool:
    """Whether msgspec writes this map as Java does: text keys, and structs of one plain type as values."""
    kinds = set(map(type, entries.values()))
    return len(kinds) == 1 and _is_plain_struct(kinds.pop()) and set(map(type, entries)) == {str}


@cache
def _is_plain_struct(kind: type) -> bool:
    """Whether msgspec writes this struct as Java does: no null values and no special keys."""
    return issubclass(kind, msgspec.Struct) and _is_plain(type_info(kind))


def _is_plain(kind: Type) -> bool:
    if isinstance(kind, StructType):
        return all(_is_plain(field.type) for field in kind.fields)
    if isinstance(kind, DictType):
        return isinstance(kind.key_type, StrType) and _is_plain(kind.value_type)
    if isinstance(kind, CollectionType):
        return _is_plain(kind.item_type)
    if isinstance(kind, UnionType):
        return all(map(_is_plain, kind.types))
    if isinstance(kind, EnumType):
        return issubclass(kind.cls, str)
    return not isinstance(kind, NoneType | AnyType)


__all__ = [
    "DEFAULT_LIMITS",
    "JsonLimits",
    "read_body",
    "read_json",
    "write_json",
    "write_pretty_json",
]

T = TypeVar("T")


def read_body(body: type[T], data: bytes, limits: JsonLimits = DEFAULT_LIMITS) -> T:
    """As `Body.decode`, also for tables and lists."""
    # The fast decoder would read a reference as an object without known properties.
    if REFERENCE_MARK not in data and len(data) <= limits.document_bytes:
        kind: Any = body
        try:
            return cast("T", _decoder(kind)(data))
        except DECODE_ERRORS:
            pass
    return _read_tolerantly(body, data, limits)


@cache
def _decoder(body: Any) -> Callable[[bytes], Any]:
    return msgspec.json.Decoder(body, strict=False).decode


@cache
def _shape(body: Any) -> Type:
    return type_info(body)


def _read_tolerantly(body: type[T], data: bytes, limits: JsonLimits) -> T:
    kind: Any = body
    if not data:
        raise BodyError(f"{_name(body)}: the body is missing; the smallest one is {{}}")
    try:
        value = read_json(data, limits)
        with suppress(msgspec.ValidationError):
            return msgspec.convert(value, body, strict=False)  # most need no tolerant conversion
        return msgspec.convert(_fitted(value, _shape(kind)), body, strict=False)
    except msgspec.ValidationError as error:
        raise BodyError(f"{_name(body)}: {error}") from None
    except ProtocolError as error:
        raise BodyError(f"{_name(body)}: {error}") from None


def _name(body: Any) -> str:
    return body.__name__ if isinstance(body, type) and issubclass(body, msgspec.Struct) else str(body)


def _fitted(value: Any, shape: Type) -> Any:
    """Convert `value` to what msgspec expects for this type. Invalid values stay, for msgspec to report."""
    if isinstance(shape, StructType) and isinstance(value, dict):
        return _fitted_struct(value, shape)
    if isinstance(shape, DictType) and isinstance(value, dict):
        fitted = ((key, _fitted(item, shape.value_type)) for key, item in value.items())
        return {key: item for key, item in fitted if item is not None}
    if isinstance(shape, CollectionType) and isinstance(value, list):
        return [_fitted(item, shape.item_type) for item in value]
    if isinstance(shape, UnionType):
        return _fitted_union(value, shape)
    if isinstance(shape, StrType):
        return _text(value)
    if isinstance(shape, EnumType):
        return _enum_value(value, [member.value for member in shape.cls])
    return value


def _fitted_struct(value: dict[Any, Any], shape: StructType) -> dict[str, Any]:
    fitted = {}
    for field in shape.fields:
        item = value.get(field.encode_name)
        if item is not None and (item := _fitted(item, field.type)) is not None:
            fitted[field.encode_name] = item
    return fitted


def _fitted_union(value: Any, shape: UnionType) -> Any:
    for kind in shape.types:
        if (fitted := _fitted(value, kind)) is not value:
            return fitted
    return value


def _text(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int | float) else value


def _enum_value(value: Any, members: list[Any]) -> Any:
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < len(members):
        return members[value]
    return value if value in members else None

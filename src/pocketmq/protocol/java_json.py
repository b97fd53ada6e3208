"""Bodies as JSON, in the dialect of Java: typed both ways.

    read_body(HeartbeatData, data) ──► HeartbeatData       write_body(heartbeat) ──► bytes

Bodies are msgspec Structs. What Java writes is read by msgspec at once. What only Java's parser would understand takes a
second, slower road, with `java_json_reader` and some forgiveness: null is no value, a number may stand for a text, an enum may
come as its number (C++ clients send that), an enum's name that nobody knows is no value. Unknown properties are ignored.

No body is not an empty one: Java reads a body of no bytes as null, so the smallest body is `{}`.

Writes JSON as Java writes it: sorted, without blanks, nulls left out.

    {"brokerAddrs":{0:"10.0.0.1:10911"}}                       numbers as keys stand bare
    {"offsetTable":{{"brokerName":"b","queueId":0,"topic":"T"}:5}}      queues as keys are objects

Peers that read nothing but JSON ask for it: strict puts such keys in quotes, the object as its own text, which Java reads too.
There is never a blank after a colon: some releases of Java's parser would corrupt the text behind it.

Files are written as RocketMQ's own: one property per line behind tabs, but keys that are no texts all on one line.

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
from typing import Any, TypeVar, cast

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
from pocketmq.model.queue import MessageQueue
from pocketmq.protocol.header_json import DECODE_ERRORS
from pocketmq.protocol.java_json_reader import DEFAULT_LIMITS, REFERENCE_MARK, JsonLimits, read_json

_encode = msgspec.json.Encoder(order="sorted").encode


def write_json(value: Any, *, strict: bool = False) -> bytes:
    """`value` on one line. Structs, dicts with texts, ints or queues as keys, lists, sets, enums and plain values."""
    return _written(value, strict=strict, pretty=False)


def write_pretty_json(value: Any) -> bytes:
    """`value` as RocketMQ lays out its files. Lists stay on one line, as Java's sets do."""
    return _written(value, strict=False, pretty=True)


def _written(value: Any, *, strict: bool, pretty: bool) -> bytes:
    writing = _Writing(strict, pretty)
    try:
        writing.value(value)
        return b"".join(writing.parts)
    except UnicodeEncodeError as error:
        raise UsageError(f"half of a surrogate pair cannot be written as JSON: {error.object[:80]!r}") from None


class _Writing:
    """One document on its way out."""

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
            self._odd_key(key)
            self.value(value)
            between = b","
        self._end(bool(present))

    def _properties(self, properties: list[tuple[bytes, Any]]) -> None:
        """An object whose keys are texts, in their order. Each key comes with its colon."""
        self.parts.append(b"{")
        self._depth += 1
        line = self._line()
        between = line
        for key, value in properties:
            self.parts += between, key
            self.value(value)
            between = b"," + line
        self._end(bool(properties))

    def _odd_key(self, key: Any) -> None:
        if isinstance(key, MessageQueue):
            if self._strict:
                self.parts.append(_encode(_encode(key).decode()))
            else:
                self._struct(key)
            self.parts.append(b":")
        elif type(key) is int:
            self.parts.append(b'"%d":' % key if self._strict else b"%d:" % key)
        else:
            raise TypeError(f"{type(key).__name__} as a key of a JSON object; texts, ints and queues can be")

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
        self.parts.append(self._line() + b"}" if filled else b"}")

    def _line(self) -> bytes:
        return b"\n" + b"\t" * self._depth if self._pretty else b""


def _key(entry: tuple[Any, Any]) -> Any:
    return entry[0]


@cache
def _properties(kind: type[msgspec.Struct]) -> list[tuple[bytes, str]]:
    """Wire keys of a struct, each with its colon, and the fields they are kept in, in the order of the wire."""
    names = sorted(zip(kind.__struct_encode_fields__, kind.__struct_fields__, strict=True))
    return [(_encode(key) + b":", name) for key, name in names]


def _is_plain_table(entries: dict[Any, Any]) -> bool:
    """Whether msgspec alone writes this map as Java would, and so all rows at once: texts to structs of one plain kind."""
    kinds = set(map(type, entries.values()))
    return len(kinds) == 1 and _is_plain_struct(kinds.pop()) and set(map(type, entries)) == {str}


@cache
def _is_plain_struct(kind: type) -> bool:
    """Whether msgspec alone writes this struct as Java would: nothing in it may be null or have an odd key."""
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
    "read_optional_body",
    "write_body",
    "write_json",
    "write_pretty_json",
]

T = TypeVar("T")


def read_body(body: type[T], data: bytes, limits: JsonLimits = DEFAULT_LIMITS) -> T:
    """The body of this type in `data`; BodyError names the type and the property that is missing or wrong."""
    # The fast decoder would take a reference for an object without properties.
    if REFERENCE_MARK not in data and len(data) <= limits.document_bytes:
        kind: Any = body
        try:
            return cast("T", _decoder(kind)(data))
        except DECODE_ERRORS:
            pass
    return _read_forgivingly(body, data, limits)


def read_optional_body(body: type[T], data: bytes, limits: JsonLimits = DEFAULT_LIMITS) -> T | None:
    """The body of this type, or None when there is none."""
    return read_body(body, data, limits) if data else None


def write_body(body: Any, *, strict: bool = False) -> bytes:
    """The bytes of a body; never none."""
    return write_json(body, strict=strict)


@cache
def _decoder(body: Any) -> Callable[[bytes], Any]:
    return msgspec.json.Decoder(body, strict=False).decode


@cache
def _shape(body: Any) -> Type:
    return type_info(body)


def _read_forgivingly(body: type[T], data: bytes, limits: JsonLimits) -> T:
    kind: Any = body
    if not data:
        raise BodyError(f"{_name(body)}: there is no body; the smallest one is {{}}")
    try:
        value = read_json(data, limits)
        with suppress(msgspec.ValidationError):
            return msgspec.convert(value, body, strict=False)  # odd as JSON, but nothing to forgive: most are so
        return msgspec.convert(_fitted(value, _shape(kind)), body, strict=False)
    except msgspec.ValidationError as error:
        raise BodyError(f"{_name(body)}: {error}") from None
    except ProtocolError as error:
        raise BodyError(f"{_name(body)}: {error}") from None


def _name(body: Any) -> str:
    return body.__name__ if isinstance(body, type) and issubclass(body, msgspec.Struct) else str(body)


def _fitted(value: Any, shape: Type) -> Any:
    """`value` as msgspec wants it for this shape. What does not fit at all is left for msgspec to complain about."""
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

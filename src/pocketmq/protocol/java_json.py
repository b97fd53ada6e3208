"""Bodies as JSON, in the dialect of Java: typed both ways.

    read_body(HeartbeatData, data) ──► HeartbeatData       write_body(heartbeat) ──► bytes

Bodies are msgspec Structs. What Java writes is read by msgspec at once. What only Java's parser would understand takes a
second, slower road, with `java_json_reader` and some forgiveness: null is no value, a number may stand for a text, an enum may
come as its number (C++ clients send that), an enum's name that nobody knows is no value. Unknown properties are ignored.

No body is not an empty one: Java reads a body of no bytes as null, so the smallest body is `{}`.
"""

from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Any, TypeVar, cast

import msgspec
from msgspec.inspect import CollectionType, DictType, EnumType, StrType, StructType, Type, UnionType, type_info

from pocketmq.errors import BodyError, ProtocolError
from pocketmq.protocol.header_json import DECODE_ERRORS
from pocketmq.protocol.java_json_reader import DEFAULT_LIMITS, REFERENCE_MARK, JsonLimits, read_json
from pocketmq.protocol.java_json_writer import write_json, write_pretty_json

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

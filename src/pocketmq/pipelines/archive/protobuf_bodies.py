"""Bodies in Protobuf: a message type as columns of Spark, and a decoder by Google's library.

A schema is a tuple of serialized file descriptors, imported files first: it is sent to tasks like this.
"""

from base64 import b64decode
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

from pocketmq.errors import InvalidSetting, MissingLibrary
from pocketmq.pipelines.archive.registry import bad_body
from pocketmq.pipelines.core.libraries import types

try:
    from google.protobuf import (
        any_pb2,
        descriptor_pb2,
        descriptor_pool,
        duration_pb2,
        empty_pb2,
        message,
        message_factory,
        timestamp_pb2,
        wrappers_pb2,
    )
except ImportError:
    descriptor_pb2 = None

_TIMESTAMP: Final = "google.protobuf.Timestamp"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_UNSIGNED: Final = ("uint64", "fixed64")
_KINDS: Final[dict[str, Callable[[], types.DataType]]] = {
    "double": types.DoubleType,
    "float": types.FloatType,
    "int32 sint32 sfixed32": types.IntegerType,
    "int64 sint64 sfixed64 uint32 fixed32": types.LongType,
    "uint64 fixed64": lambda: types.DecimalType(20, 0),
    "bool": types.BooleanType,
    "string enum": types.StringType,
    "bytes": types.BinaryType,
}
_NAMES: Final = [
    "double",
    "float",
    "int64",
    "uint64",
    "int32",
    "fixed64",
    "fixed32",
    "bool",
    "string",
    "group",
    "message",
    "bytes",
    "uint32",
    "enum",
    "sfixed32",
    "sfixed64",
    "sint32",
    "sint64",
]
"""The types of fields, by number from 1 on."""
_TYPES: Final = {name: kind for names, kind in _KINDS.items() for name in names.split()}


def of_set(data: bytes) -> tuple[bytes, ...]:
    """The files of a serialized FileDescriptorSet."""
    _require()
    try:
        found = descriptor_pb2.FileDescriptorSet.FromString(data)
    except message.DecodeError as error:
        raise InvalidSetting(f"--schema: this is not a file of `protoc --descriptor_set_out`: {error}") from None
    return tuple(file.SerializeToString() for file in found.file)


def of_serialized(text: str, references: Iterable[str]) -> tuple[bytes, ...]:
    """The files of a registry, each as text in base64."""
    _require()
    return tuple(b64decode(one) for one in (*references, text))


def message_type(described: tuple[bytes, ...], name: str) -> Any:
    """The descriptor of a message type, by default of the first in the last file; InvalidSetting if there is no such type."""
    _require()
    pool = descriptor_pool.DescriptorPool()
    files = [descriptor_pb2.FileDescriptorProto.FromString(data) for data in described]
    try:
        for file in (*_well_known(files), *files):
            pool.Add(file)
        if name:
            return pool.FindMessageTypeByName(name)
        first = pool.FindFileByName(files[-1].name) if files else None
    except (KeyError, TypeError) as error:
        known = ", ".join(f"{file.package}.{one.name}".strip(".") for file in files for one in file.message_type)
        raise InvalidSetting(f"--schema: there is no message type {name}; the types are {known} ({error})") from None
    if first is None or not first.message_types_by_name:
        raise InvalidSetting("--schema: the Protobuf schema has no message type")
    return next(iter(first.message_types_by_name.values()))


def _well_known(files: Sequence[Any]) -> list[Any]:
    """Google's own files that some file imports: registries and protoc leave them out."""
    given = {file.name for file in files}
    wanted = {name for file in files for name in file.dependency} - given
    found = []
    for module in (any_pb2, duration_pb2, empty_pb2, timestamp_pb2, wrappers_pb2):
        if module.DESCRIPTOR.name in wanted:
            module.DESCRIPTOR.CopyToProto(file := descriptor_pb2.FileDescriptorProto())
            found.append(file)
    return found


def protobuf_type(described: Any, within: tuple[str, ...] = ()) -> types.StructType:
    """The fields of a message type as columns; InvalidSetting if the type contains itself."""
    if described.full_name in within:
        raise InvalidSetting(
            f"--schema: the Protobuf type {described.full_name} is recursive, and a table cannot have recursive columns"
        )
    inner = (*within, described.full_name)
    return types.StructType([types.StructField(field.name, _column(field, inner)) for field in described.fields])


class ProtobufDecoder:
    """Reads bodies of one message type."""

    def __init__(self, described: Any) -> None:
        self._class = message_factory.GetMessageClass(described)

    def __call__(self, value: bytes) -> Any:
        try:
            found = self._class.FromString(value)
        except message.DecodeError as error:
            raise bad_body("Protobuf", error) from None
        return _fields(found)


def _column(field: Any, within: tuple[str, ...]) -> types.DataType:
    entry = field.message_type
    if entry is not None and entry.GetOptions().map_entry:
        key, value = (_one(entry.fields_by_name[name], within) for name in ("key", "value"))
        return types.MapType(key, value)
    kind = _one(field, within)
    return types.ArrayType(kind) if _is_repeated(field) else kind


def _one(field: Any, within: tuple[str, ...]) -> types.DataType:
    if field.message_type is None:
        return _TYPES[_NAMES[field.type - 1]]()
    return (
        types.TimestampType()
        if field.message_type.full_name == _TIMESTAMP
        else protobuf_type(field.message_type, within)
    )


def _fields(found: Any) -> dict[str, Any]:
    return {field.name: _value(found, field) for field in found.DESCRIPTOR.fields}


def _value(found: Any, field: Any) -> Any:
    entry = field.message_type
    value = getattr(found, field.name)
    if entry is not None and entry.GetOptions().map_entry:
        inner = entry.fields_by_name["value"]
        return {key: _plain(value[key], inner) for key in value}
    if _is_repeated(field):
        return [_plain(one, field) for one in value]
    return None if field.has_presence and not found.HasField(field.name) else _plain(value, field)


def _plain(value: Any, field: Any) -> Any:
    if field.enum_type is not None:
        named = field.enum_type.values_by_number.get(value)
        return str(value) if named is None else named.name
    if field.message_type is None:
        return Decimal(value) if _NAMES[field.type - 1] in _UNSIGNED else value
    if field.message_type.full_name == _TIMESTAMP:
        return _EPOCH + timedelta(seconds=value.seconds, microseconds=value.nanos // 1000)
    return _fields(value)


def _is_repeated(field: Any) -> bool:
    return bool(field.is_repeated)


def _require() -> None:
    if descriptor_pb2 is None:
        raise MissingLibrary("bodies in Protobuf need protobuf; run pip install 'pocketmq[schemas]'")

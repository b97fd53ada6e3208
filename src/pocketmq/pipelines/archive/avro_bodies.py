"""Bodies in Avro: a schema as columns of Spark, and a decoder by the library fastavro.

A body may be written with another version of the schema than the one that gives the columns: Avro resolves the two.
"""

from collections.abc import Callable
from io import BytesIO
from typing import Any, Final

import msgspec

from pocketmq.errors import InvalidSetting, MissingLibrary
from pocketmq.pipelines.archive.registry import BadBody, bad_body
from pocketmq.pipelines.core.libraries import types

try:
    import fastavro
except ImportError:
    fastavro = None  # type: ignore[assignment]

_SIMPLE: Final[dict[str, Callable[[], types.DataType]]] = {
    "boolean": types.BooleanType,
    "int": types.IntegerType,
    "long": types.LongType,
    "float": types.FloatType,
    "double": types.DoubleType,
    "bytes": types.BinaryType,
    "string": types.StringType,
    "enum": types.StringType,
    "fixed": types.BinaryType,
}
_LOGICAL: Final[dict[str, Callable[[], types.DataType]]] = {
    "date": types.DateType,
    "timestamp-millis": types.TimestampType,
    "timestamp-micros": types.TimestampType,
    "uuid": types.StringType,
    "time-millis": types.StringType,
    "time-micros": types.StringType,
}
Convert = Callable[[Any], Any]
_AS_TEXT: Final = ("uuid", "time-millis", "time-micros")
_ERRORS: Final = (EOFError, ValueError, IndexError, TypeError, KeyError, OverflowError, AttributeError, StopIteration)
"""The errors of fastavro for bytes that are not of a schema."""


def avro_type(text: str) -> types.StructType:
    """A schema as columns; InvalidSetting if it is not the schema of a record, or has a type without an equal in Spark."""
    found, _ = _described(_parsed(text), {}, ())
    if not isinstance(found, types.StructType):
        raise InvalidSetting("--schema: the Avro schema must be a record, whose fields are the columns")
    return found


class AvroDecoder:
    """Reads bodies as the schema in `text`."""

    def __init__(self, text: str) -> None:
        self._schema = _parsed(text)
        _, self._convert = _described(self._schema, {}, ())
        self._writers: dict[int, Any] = {}

    def plain(self, value: bytes) -> Any:
        """A body that was written with this schema."""
        return self._read(value, self._schema, None)

    def written_by(self, value: bytes, number: int, text: Callable[[], str]) -> Any:
        """A body that was written with the schema `number`, whose text is requested once."""
        if number not in self._writers:
            self._writers[number] = _parsed(text())
        return self._read(value, self._writers[number], self._schema)

    def _read(self, value: bytes, writer: Any, reader: Any) -> Any:
        stream = BytesIO(value)
        try:
            found = fastavro.schemaless_reader(stream, writer, reader)
        except (*_ERRORS, fastavro.read.SchemaResolutionError) as error:
            raise bad_body("Avro", error) from None
        if stream.tell() != len(value):
            raise BadBody(f"the body is not Avro of this schema: {len(value) - stream.tell()} bytes are left over")
        return found if self._convert is None else self._convert(found)


def _parsed(text: str) -> Any:
    if fastavro is None:
        raise MissingLibrary("bodies in Avro need fastavro; run pip install 'pocketmq[schemas]'")
    try:
        return fastavro.parse_schema(msgspec.json.decode(text))
    except (msgspec.MsgspecError, fastavro.schema.SchemaParseException, fastavro.schema.UnknownType) as error:
        raise InvalidSetting(f"--schema: this is not an Avro schema: {error}") from None


def _described(schema: Any, known: dict[str, Any], within: tuple[str, ...]) -> tuple[types.DataType, Convert | None]:
    """The type of a schema, and the conversion of its values, if they need one. `known` are named types, `within` the outer ones."""
    if isinstance(schema, list):
        return _of_union(schema, known, within)
    if isinstance(schema, str):
        if schema in known:
            return _described(known[schema], known, within)
        schema = {"type": schema}
    kind, logical, name = schema["type"], schema.get("logicalType"), schema.get("name")
    if isinstance(kind, dict | list):
        return _described(kind, known, within)
    if kind in ("record", "error", "enum", "fixed"):
        known[name] = schema
    if logical == "decimal":
        return types.DecimalType(schema["precision"], schema.get("scale", 0)), None
    if logical in _LOGICAL:
        return _LOGICAL[logical](), _text if logical in _AS_TEXT else None
    if kind in _SIMPLE:
        return _SIMPLE[kind](), None
    if kind == "array":
        item, convert = _described(schema["items"], known, within)
        return types.ArrayType(item), None if convert is None else _items_of(convert)
    if kind == "map":
        value, convert = _described(schema["values"], known, within)
        return types.MapType(types.StringType(), value), None if convert is None else _values_of(convert)
    if kind in ("record", "error"):
        return _of_record(schema, known, within)
    raise InvalidSetting(f"--schema: the Avro type {kind} has no equivalent in Spark")


def _of_record(schema: Any, known: dict[str, Any], within: tuple[str, ...]) -> tuple[types.DataType, Convert | None]:
    name = schema["name"]
    if name in within:
        raise InvalidSetting(
            f"--schema: the Avro record {name} is recursive, and a table cannot have recursive columns"
        )
    fields, converts = [], {}
    for field in schema["fields"]:
        kind, convert = _described(field["type"], known, (*within, name))
        fields.append(types.StructField(field["name"], kind))
        if convert is not None:
            converts[field["name"]] = convert
    return types.StructType(fields), _fields_of(converts) if converts else None


def _of_union(
    schema: list[Any], known: dict[str, Any], within: tuple[str, ...]
) -> tuple[types.DataType, Convert | None]:
    kinds = [one for one in schema if one != "null" and one != {"type": "null"}]
    if len(kinds) != 1:
        raise InvalidSetting(
            f"--schema: the Avro union {msgspec.json.encode(schema).decode()[:100]} has {len(kinds)} types, and a column has one"
        )
    return _described(kinds[0], known, within)


def _text(value: Any) -> Any:
    return None if value is None else str(value)


def _values_of(convert: Convert) -> Convert:
    """Converts the values of a dict."""
    return lambda value: None if value is None else {name: convert(one) for name, one in value.items()}


def _items_of(convert: Convert) -> Convert:
    return lambda value: None if value is None else [convert(one) for one in value]


def _fields_of(converts: dict[str, Convert]) -> Convert:
    """Converts some fields of a dict in place."""

    def convert(value: Any) -> Any:
        if value is not None:
            for name, one in converts.items():
                value[name] = one(value[name])
        return value

    return convert

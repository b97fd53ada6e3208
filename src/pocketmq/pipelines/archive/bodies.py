"""Typed columns from bodies: JSON, Avro or Protobuf, also in the wire format of a schema registry.

    --schema 'id string NOT NULL, amount double'                JSON; Spark itself reads it
             orders.avsc                                        Avro
             orders.desc#shop.Order                             Protobuf, by a file of `protoc --descriptor_set_out --include_imports`
             http://host:8081/subjects/orders-value             Avro or Protobuf of a registry, with the id of the schema in each body

All add a struct `body`, and `reason`: why a body does not fit, null if it does. Avro and Protobuf are read by Python in Spark's tasks:
this needs no JAR, on any version of Spark, but `pip install 'pocketmq[schemas]'` on the executors.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol
from urllib.parse import unquote, urlsplit

import msgspec

from pocketmq.errors import InvalidSetting
from pocketmq.files import Files
from pocketmq.pipelines.archive.avro_bodies import AvroDecoder, avro_type
from pocketmq.pipelines.archive.protobuf_bodies import (
    ProtobufDecoder,
    message_type,
    of_serialized,
    of_set,
    protobuf_type,
)
from pocketmq.pipelines.archive.registry import MAGIC_BYTES, BadBody, Registry, Subject, schema_id
from pocketmq.pipelines.core.libraries import DataFrame, functions, types
from pocketmq.pipelines.core.rows import MESSAGE, REASON, parse_json, parse_schema
from pocketmq.spark.schema import Name

BODY: Final = "body"
_DECODED: Final = "__decoded"
_SUBJECT: Final = re.compile(r"(?P<registry>https?://.+)/subjects/(?P<subject>[^/]+)(?:/versions/latest)?/?")

Decoder = Callable[[bytes], Any]
"""The columns of a body as a dict; BadBody if it does not fit."""


class Bodies(Protocol):
    """The bodies of messages as typed columns."""

    def typed(self, messages: DataFrame) -> DataFrame:
        """Messages with `body` and `reason`."""


class JsonBodies(NamedTuple):
    """JSON by a schema in Spark's words, as in the pipeline `quality`."""

    schema: types.StructType

    def typed(self, messages: DataFrame) -> DataFrame:
        rows = parse_json(messages, self.schema).rows
        body = functions.struct(*(functions.col(f"`{name}`") for name in self.schema.names))
        return rows.select(f"{MESSAGE}.*", body.alias(BODY), REASON)


class DecodedBodies(NamedTuple):
    """Bodies that a decoder reads, in Spark's tasks."""

    type: types.StructType
    decoder: Callable[[], Decoder]
    """Creates the decoder in each task."""

    def typed(self, messages: DataFrame) -> DataFrame:
        result = [types.StructField(BODY, self.type), types.StructField(REASON, types.StringType())]
        decode = functions.udf(_Decoding(self.decoder), types.StructType(result), useArrow=False)  # Arrow needs pandas
        decoded = messages.withColumn(_DECODED, decode(Name.VALUE))
        columns = [functions.col(f"{_DECODED}.{name}").alias(name) for name in (BODY, REASON)]
        return decoded.select(*messages.columns, *columns)


class _Decoding:
    """Decodes one body. Its decoder is made in the task."""

    def __init__(self, make: Callable[[], Decoder]) -> None:
        self._make = make
        self._decode: Decoder | None = None

    def __call__(self, value: Any) -> tuple[Any, str | None]:
        if self._decode is None:
            self._decode = self._make()
        try:
            return self._decode(bytes(value)), None
        except BadBody as error:
            return None, str(error)


def bodies_of(schema: str, files: Files, authorization: str | None = None) -> Bodies:
    """The bodies that `--schema` describes; InvalidSetting if it is wrong. `authorization` is `user:password` of a registry."""
    if schema.startswith(("http://", "https://")):
        return _of_registry(schema, authorization)
    path, _, message = schema.partition("#")
    if path.endswith(".avsc"):
        text = _text(path, files).decode()
        return DecodedBodies(avro_type(text), AvroFactory(text))
    if path.endswith((".desc", ".pb")):
        described = of_set(_text(path, files))
        return DecodedBodies(protobuf_type(message_type(described, message)), ProtobufFactory(described, message))
    return JsonBodies(parse_schema(schema))


class AvroFactory(msgspec.Struct, frozen=True):
    """Creates a decoder of Avro bodies in a task."""

    text: str

    def __call__(self) -> Decoder:
        return AvroDecoder(self.text).plain


class ProtobufFactory(msgspec.Struct, frozen=True):
    """Creates a decoder of Protobuf bodies in a task."""

    described: tuple[bytes, ...]
    message: str

    def __call__(self) -> Decoder:
        return ProtobufDecoder(message_type(self.described, self.message))


class AvroOfRegistry(msgspec.Struct, frozen=True):
    """Creates a decoder of Avro bodies with the id of their schema; they are read as the latest schema."""

    registry: Registry
    text: str

    def __call__(self) -> Decoder:
        decoder, registry = AvroDecoder(self.text), self.registry

        def decode(value: bytes) -> Any:
            number = schema_id(value)
            return decoder.written_by(value[MAGIC_BYTES:], number, lambda: registry.schema(number, "AVRO").text)

        return decode


class ProtobufOfRegistry(msgspec.Struct, frozen=True):
    """Creates a decoder of Protobuf bodies with the id of their schema. Fields are matched by their numbers, as Protobuf does."""

    described: tuple[bytes, ...]

    def __call__(self) -> Decoder:
        decoder = ProtobufDecoder(message_type(self.described, ""))

        def decode(value: bytes) -> Any:
            schema_id(value)
            return decoder(_without_indexes(value))

        return decode


def _of_registry(url: str, authorization: str | None) -> Bodies:
    found = _SUBJECT.fullmatch(url)
    if found is None or not urlsplit(url).hostname:
        raise InvalidSetting(
            f"--schema {url}: expected the address of a subject, for example http://host:8081/subjects/orders-value"
        )
    if urlsplit(url).username:
        raise InvalidSetting(
            "--schema has a user or password in the address of the registry; set SCHEMA_REGISTRY_AUTH=user:password instead"
        )
    registry = Registry(found["registry"], authorization)
    latest: Subject = registry.latest(unquote(found["subject"]))
    if latest.kind == "AVRO":
        return DecodedBodies(avro_type(latest.text), AvroOfRegistry(registry, latest.text))
    if latest.kind == "PROTOBUF":
        described = of_serialized(latest.text, registry.references(latest))
        return DecodedBodies(protobuf_type(message_type(described, "")), ProtobufOfRegistry(described))
    raise InvalidSetting(
        f"--schema {url}: the subject has a schema of the kind {latest.kind}; Avro and Protobuf of a registry can be read. For JSON "
        "without the id of a schema, use --schema 'id string, amount double'"
    )


def _without_indexes(value: bytes) -> bytes:
    """A body of Protobuf without the id of its schema, and without the path to its message type, which must be the first."""
    if value[MAGIC_BYTES : MAGIC_BYTES + 1] == b"\0":
        return value[MAGIC_BYTES + 1 :]
    if value[MAGIC_BYTES : MAGIC_BYTES + 2] == b"\x02\x00":
        return value[MAGIC_BYTES + 2 :]
    raise BadBody("the body is not of the first message type of its Protobuf schema")


def _text(path: str, files: Files) -> bytes:
    status = files.status(Path(path))
    if status is None or status.is_dir:
        raise InvalidSetting(f"--schema {path}: there is no such file")
    return files.read(Path(path))

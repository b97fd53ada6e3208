"""Bodies in Avro and Protobuf as typed columns, without Spark: files of schemas, a registry, and bodies that do not fit."""

import json
from base64 import b64encode
from datetime import UTC, date, datetime
from decimal import Decimal
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")
pytest.importorskip("fastavro", reason="the extra `schemas` is not installed")
pytest.importorskip("google.protobuf", reason="the extra `schemas` is not installed")

import fastavro
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2
from tests.pipelines.archive.fake_registry import registry

from pocketmq.errors import InvalidSetting, MissingLibrary, NetworkError
from pocketmq.files import DiskFiles
from pocketmq.pipelines.archive import avro_bodies, protobuf_bodies
from pocketmq.pipelines.archive.bodies import DecodedBodies, bodies_of
from pocketmq.pipelines.archive.registry import BadBody

ORDER: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "city", "type": ["null", "string"], "default": None},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "due", "type": {"type": "int", "logicalType": "date"}},
        {"name": "key", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]}},
        {"name": "tags", "type": {"type": "map", "values": "string"}},
        {
            "name": "lines",
            "type": {
                "type": "array",
                "items": {
                    "type": "record",
                    "name": "Line",
                    "fields": [{"name": "counts", "type": {"type": "map", "values": "int"}}],
                },
            },
        },
    ],
}
ROW: dict[str, Any] = {
    "id": 7,
    "city": "Oslo",
    "price": Decimal("3.50"),
    "at": datetime(2026, 11, 19, 12, tzinfo=UTC),
    "due": date(2026, 11, 20),
    "key": "3f2504e0-4f89-11d3-9a0c-0305e82c3301",
    "state": "PAID",
    "tags": {"a": "b"},
    "lines": [{"counts": {"x": 1}}],
}


def avro(schema: Any, row: Any) -> bytes:
    stream = BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), row)
    return stream.getvalue()


def shop() -> Any:
    """The descriptor of a file with a message type Order, which has another inside."""
    file = descriptor_pb2.FileDescriptorProto(name="shop.proto", package="shop", syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    line = file.message_type.add(name="Line")
    line.field.add(name="sku", number=1, type=9, label=1)
    order = file.message_type.add(name="Order")
    order.field.add(name="id", number=1, type=3, label=1)
    order.field.add(name="lines", number=2, type=11, label=3, type_name=".shop.Line")
    order.field.add(name="at", number=3, type=11, label=1, type_name=".google.protobuf.Timestamp")
    order.field.add(name="main", number=4, type=11, label=1, type_name=".shop.Line")
    order.field.add(name="tags", number=5, type=11, label=3, type_name=".shop.Order.TagsEntry")
    order.field.add(name="state", number=6, type=14, label=1, type_name=".shop.State")
    entry = order.nested_type.add(name="TagsEntry")
    entry.field.add(name="key", number=1, type=9, label=1)
    entry.field.add(name="value", number=2, type=5, label=1)
    entry.options.map_entry = True
    state = file.enum_type.add(name="State")
    state.value.add(name="NEW", number=0)
    state.value.add(name="PAID", number=1)
    return file


def timestamps() -> Any:
    file = descriptor_pb2.FileDescriptorProto()
    timestamp_pb2.DESCRIPTOR.CopyToProto(file)
    return file


def order_class(file: Any) -> Any:
    pool = descriptor_pool.DescriptorPool()
    pool.Add(timestamps())
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))


def order_body() -> bytes:
    order = order_class(shop())(id=7, state=1)
    order.lines.add(sku="a")
    order.at.FromMilliseconds(1_500)
    order.tags["x"] = 3
    return bytes(order.SerializeToString())


ORDER_ROW = {
    "id": 7,
    "lines": [{"sku": "a"}],
    "at": datetime(1970, 1, 1, 0, 0, 1, 500_000, tzinfo=UTC),
    "main": None,
    "tags": {"x": 3},
    "state": "PAID",
}


def decoded(schema: str, *values: bytes, authorization: str | None = None) -> list[Any]:
    bodies = bodies_of(schema, DiskFiles(), authorization)
    assert isinstance(bodies, DecodedBodies)
    decode = bodies.decoder()
    rows = [decode(value) for value in values]
    for row in rows:
        bodies.type.toInternal(row)
    return rows


def test_avro_bodies_have_the_types_of_their_schema(tmp_path: Path) -> None:
    (tmp_path / "order.avsc").write_text(json.dumps(ORDER), "utf-8")
    schema = str(tmp_path / "order.avsc")

    assert decoded(schema, avro(ORDER, ROW), avro(ORDER, {**ROW, "city": None})) == [ROW, {**ROW, "city": None}]
    bodies = bodies_of(schema, DiskFiles())
    assert isinstance(bodies, DecodedBodies)
    assert bodies.type.simpleString() == (
        "struct<id:bigint,city:string,price:decimal(10,2),at:timestamp,due:date,key:string,state:string,tags:map<string,string>,"
        "lines:array<struct<counts:map<string,int>>>>"
    )


@pytest.mark.parametrize("value", [b"", b"\x0e", b"\xff" * 40, avro(ORDER, ROW) + b"x", b'{"id": 7}'])
def test_a_body_of_another_schema_is_bad(tmp_path: Path, value: bytes) -> None:
    (tmp_path / "order.avsc").write_text(json.dumps(ORDER), "utf-8")

    with pytest.raises(BadBody, match="not Avro of this schema"):
        decoded(str(tmp_path / "order.avsc"), value)


def test_avro_schemas_without_an_equivalent_in_spark_are_refused(tmp_path: Path) -> None:
    def message_of(schema: Any) -> str:
        (tmp_path / "bad.avsc").write_text(schema if isinstance(schema, str) else json.dumps(schema), "utf-8")
        with pytest.raises(InvalidSetting) as caught:
            bodies_of(str(tmp_path / "bad.avsc"), DiskFiles())
        return str(caught.value)

    node = {"type": "record", "name": "Node", "fields": [{"name": "next", "type": ["null", "Node"]}]}
    union = {"type": "record", "name": "U", "fields": [{"name": "v", "type": ["int", "string"]}]}
    assert "is recursive" in message_of(node)
    assert "has 2 types, and a column has one" in message_of(union)
    assert "must be a record" in message_of('"int"')
    assert "not an Avro schema" in message_of("{")
    assert "not an Avro schema" in message_of(
        {"type": "record", "name": "X", "fields": [{"name": "a", "type": "nothing"}]}
    )
    with pytest.raises(InvalidSetting, match="there is no such file"):
        bodies_of(str(tmp_path / "none.avsc"), DiskFiles())


def test_protobuf_bodies_have_the_fields_of_their_type(tmp_path: Path) -> None:
    described = descriptor_pb2.FileDescriptorSet(file=[shop()])
    (tmp_path / "shop.desc").write_bytes(described.SerializeToString())
    schema = f"{tmp_path}/shop.desc#shop.Order"

    assert decoded(schema, order_body()) == [ORDER_ROW]
    bodies = bodies_of(schema, DiskFiles())
    assert isinstance(bodies, DecodedBodies)
    assert bodies.type.simpleString() == (
        "struct<id:bigint,lines:array<struct<sku:string>>,at:timestamp,main:struct<sku:string>,tags:map<string,int>,state:string>"
    )
    with pytest.raises(BadBody, match="not Protobuf of this schema"):
        decoded(schema, b"\xff\xff")
    with pytest.raises(InvalidSetting, match=r"no message type shop\.Missing; the types are .*shop\.Order"):
        bodies_of(f"{tmp_path}/shop.desc#shop.Missing", DiskFiles())
    (tmp_path / "bad.desc").write_bytes(b"\xff\xff\xff")
    with pytest.raises(InvalidSetting, match="protoc --descriptor_set_out"):
        bodies_of(f"{tmp_path}/bad.desc", DiskFiles())


def test_bodies_of_older_schemas_of_a_registry_are_read_as_the_latest() -> None:
    old = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}]}
    new = {
        "type": "record",
        "name": "Order",
        "fields": [{"name": "id", "type": "long"}, {"name": "city", "type": "string", "default": "?"}],
    }
    answers = {
        "/subjects/orders-value/versions/latest": {"id": 2, "schema": json.dumps(new)},
        "/schemas/ids/1": {"schema": json.dumps(old)},
        "/schemas/ids/2": {"schema": json.dumps(new)},
        "/schemas/ids/3": {"schema": "syntax = 'proto3';", "schemaType": "PROTOBUF"},
    }

    def body(number: int, schema: Any, row: Any) -> bytes:
        return b"\0" + number.to_bytes(4, "big") + avro(schema, row)

    with registry(answers) as schemas:
        url = f"{schemas.address}/subjects/orders-value"
        rows = decoded(url, body(1, old, {"id": 7}), body(2, new, {"id": 8, "city": "Oslo"}), body(1, old, {"id": 9}))
        requested = list(schemas.requested)

        for value, reason in (
            (b"{}", "does not begin with the id of a schema"),
            (b"\0\0\0\0\x09x", "no schema with the id 9"),
            (b"\0\0\0\0\x03x", "with the id 3 is PROTOBUF, not AVRO"),
            (b"\0\0\0\0\x02", "not Avro of this schema"),
        ):
            with pytest.raises(BadBody, match=reason):
                decoded(url, value)

    assert rows == [{"id": 7, "city": "?"}, {"id": 8, "city": "Oslo"}, {"id": 9, "city": "?"}]
    assert requested == ["/subjects/orders-value/versions/latest", "/schemas/ids/1", "/schemas/ids/2"]


def test_protobuf_of_a_registry_is_read_with_its_imported_schemas() -> None:
    def text(file: Any) -> str:
        return b64encode(file.SerializeToString()).decode()

    latest: dict[str, Any] = {
        "schemaType": "PROTOBUF",
        "references": [{"name": "t.proto", "subject": "times", "version": 3}],
    }
    file = shop()
    file.message_type.reverse()  # Order is the first
    answers = {
        "/subjects/orders-value/versions/latest": {**latest, "schema": "message Order {}"},
        "/subjects/orders-value/versions/latest?format=serialized": {**latest, "schema": text(file)},
        "/subjects/times/versions/3?format=serialized": {"schemaType": "PROTOBUF", "schema": text(timestamps())},
    }

    with registry(answers, f"Basic {b64encode(b'me:secret').decode()}") as schemas:
        url = f"{schemas.address}/subjects/orders-value"
        rows = decoded(
            url, b"\0\0\0\0\x01\0" + order_body(), b"\0\0\0\0\x01\x02\0" + order_body(), authorization="me:secret"
        )
        with pytest.raises(BadBody, match="first message type"):
            decoded(url, b"\0\0\0\0\x01\x02\x02" + order_body(), authorization="me:secret")
        with pytest.raises(NetworkError, match=r"answered 401 .* SCHEMA_REGISTRY_AUTH"):
            decoded(url)

    assert rows == [ORDER_ROW, ORDER_ROW]


def test_a_wrong_registry_is_named() -> None:
    with registry(
        {"/subjects/json/versions/latest": {"schema": "{}", "schemaType": "JSON"}, "/subjects/odd/versions/latest": [1]}
    ) as schemas:
        address = schemas.address
        with pytest.raises(InvalidSetting, match="has no subject orders"):
            bodies_of(f"{address}/subjects/orders", DiskFiles())
        with pytest.raises(InvalidSetting, match="of the kind JSON; Avro and Protobuf"):
            bodies_of(f"{address}/subjects/json", DiskFiles())
        with pytest.raises(NetworkError, match="is not a schema"):
            bodies_of(f"{address}/subjects/odd", DiskFiles())
        with pytest.raises(InvalidSetting, match="expected the address of a subject"):
            bodies_of(address, DiskFiles())
        with pytest.raises(InvalidSetting, match="SCHEMA_REGISTRY_AUTH"):
            bodies_of("http://me:secret@host/subjects/orders", DiskFiles())
    with pytest.raises(NetworkError, match="does not respond"):
        bodies_of(f"{address}/subjects/orders", DiskFiles())


def test_an_executor_without_the_libraries_reports_the_command_to_install_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "order.avsc").write_text(json.dumps(ORDER), "utf-8")
    bodies = bodies_of(str(tmp_path / "order.avsc"), DiskFiles())
    assert isinstance(bodies, DecodedBodies)
    monkeypatch.setattr(avro_bodies, "fastavro", None)
    monkeypatch.setattr(protobuf_bodies, "descriptor_pb2", None)

    with pytest.raises(MissingLibrary, match=r"pip install 'pocketmq\[schemas\]'"):
        bodies.decoder()
    with pytest.raises(MissingLibrary, match=r"pip install 'pocketmq\[schemas\]'"):
        protobuf_bodies.of_set(b"")

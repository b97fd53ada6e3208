"""What may be the body of a message: bytes as they are, text as UTF-8, anything else as JSON."""

import dataclasses
import datetime as dt
import decimal
import uuid
from typing import Any

import msgspec
import pytest

from pocketmq.errors import InvalidMessage
from pocketmq.model.message import Message


@dataclasses.dataclass
class Order:
    customer: str
    cents: int


class Line(msgspec.Struct):
    order: Order
    count: int = 1


class Model:
    """As pydantic's are."""

    def __init__(self, **values: Any) -> None:
        self.values = values

    def model_dump_json(self) -> str:
        return msgspec.json.encode(self.values).decode()

    def model_dump(self, *, mode: str) -> dict[str, Any]:
        assert mode == "json"
        return self.values


@pytest.mark.parametrize(
    ("body", "sent"),
    [
        (b"as it is", b"as it is"),
        (bytearray(b"bytes"), b"bytes"),
        (memoryview(b"bytes"), b"bytes"),
        ("grüße", "grüße".encode()),
        ({"n": 5, "at": [1, None, True]}, b'{"n":5,"at":[1,null,true]}'),
        ([1, 2], b"[1,2]"),
        ((1, "a"), b'[1,"a"]'),
        (Order("Ann", 350), b'{"customer":"Ann","cents":350}'),
        (Line(Order("Ann", 350)), b'{"order":{"customer":"Ann","cents":350},"count":1}'),
        (Model(a=1), b'{"a":1}'),
        ({"inside": Model(a=1)}, b'{"inside":{"a":1}}'),
        ([Order("Ben", 1)], b'[{"customer":"Ben","cents":1}]'),
        (
            {
                "at": dt.datetime(2024, 1, 31, tzinfo=dt.UTC),
                "id": uuid.UUID(int=1),
                "d": decimal.Decimal("1.5"),
            },
            b'{"at":"2024-01-31T00:00:00Z","id":"00000000-0000-0000-0000-000000000001","d":"1.5"}',
        ),
        (42, b"42"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_body_is_encoded_by_its_type(body: object, sent: bytes) -> None:
    assert Message("T", body).body == sent


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (object(), "body of type object cannot be encoded as JSON"),
        (
            {"file": open},
            r"body of type dict cannot be encoded as JSON: it contains a value of type builtin_function_or_method",
        ),
        (None, "body is missing"),
        ({1: {(1, 2): object}}, "body of type dict cannot be encoded as JSON"),
        ("\ud800", "cannot be encoded as UTF-8"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_a_body_of_an_unsupported_type_is_refused_by_its_type(body: object, words: str) -> None:
    with pytest.raises(InvalidMessage, match=words):
        Message("T", body)

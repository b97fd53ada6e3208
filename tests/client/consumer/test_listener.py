"""Listeners: the arguments of a function, by its annotations."""

import json
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypedDict

import msgspec
import pytest
from tests.client.messages import run_of, stored

from pocketmq.client.consumer.listener import Listener, for_user
from pocketmq.codes import SysFlag
from pocketmq.errors import InvalidSetting, ProtocolError, UsageError
from pocketmq.model.message import StoredMessage

if TYPE_CHECKING:
    from decimal import Decimal


@dataclass
class Order:
    id: int
    name: str = ""


class Row(TypedDict):
    id: int


class Event(msgspec.Struct):
    id: int


class Model:
    """As pydantic's models are read."""

    def __init__(self, text: bytes) -> None:
        self.id = json.loads(text)["id"]

    @classmethod
    def model_validate_json(cls, text: bytes) -> "Model":
        return cls(text)


BODY = stored(5, b'{"id":7,"name":"x"}')


def bare(message): ...  # type: ignore[no-untyped-def]


def annotated(message: StoredMessage) -> None: ...


def for_checkers(message: "StoredMessage") -> "Any": ...


def body(raw: bytes) -> None: ...


def text(raw: str) -> None: ...


def order(order: Order) -> None: ...


def row(row: Row) -> None: ...


def event(event: Event) -> None: ...


def model(model: Model) -> None: ...


def anything(value: dict[str, Any]) -> None: ...


def both(order: Order, message: StoredMessage) -> None: ...


def with_default(order: Order, retries: int = 3) -> None: ...


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        (bare, (BODY,)),
        (annotated, (BODY,)),
        (for_checkers, (BODY,)),
        (print, (BODY,)),
        (lambda message: message, (BODY,)),
        (partial(both, Order(1)), (BODY,)),
        (body, (BODY.body,)),
        (text, (BODY.body.decode(),)),
        (order, (Order(7, "x"),)),
        (row, ({"id": 7},)),
        (event, (Event(7),)),
        (anything, ({"id": 7, "name": "x"},)),
        (both, (Order(7, "x"), BODY)),
        (with_default, (Order(7, "x"),)),
    ],
)
def test_a_function_gets_the_arguments_of_its_signature(
    function: Callable[..., Any], arguments: tuple[object, ...]
) -> None:
    assert Listener(function).arguments([BODY]) == arguments


def test_a_model_type_decodes_the_body_itself() -> None:
    (made,) = Listener(model).arguments([BODY])

    assert made.id == 7


class Handler:
    def method(self, order: Order) -> None: ...

    async def __call__(self, message: StoredMessage) -> None: ...


def test_methods_and_callable_objects_can_be_listeners() -> None:
    assert Listener(Handler().method).arguments([BODY]) == (Order(7, "x"),)
    called = Listener(Handler())
    assert called.arguments([BODY]) == (BODY,)
    assert called.is_async


def test_batches_are_passed_as_lists() -> None:
    def messages(messages: list[StoredMessage]) -> None: ...

    def plain(messages: list) -> None: ...  # type: ignore[type-arg]

    def orders(orders: list[Order], messages: Sequence[StoredMessage]) -> None: ...

    def bodies(bodies: Sequence[bytes]) -> None: ...

    two = [BODY, BODY]
    assert Listener(messages, 2).arguments(two) == (two,)
    assert Listener(plain, 2).arguments([BODY]) == ([BODY],)
    assert Listener(orders, 2).arguments(two) == ([Order(7, "x")] * 2, two)
    assert Listener(bodies, 2).arguments(two) == ([BODY.body] * 2,)


def nothing() -> None: ...


def too_much(a: object, b: object, c: object) -> None: ...


def lost(value: "Decimal") -> None: ...


def no_list(order: Order) -> None: ...


def unreadable(value: Callable[[], None]) -> None: ...


@pytest.mark.parametrize(
    ("function", "batch_size", "said"),
    [
        (nothing, None, "must take a message"),
        (too_much, None, "must take a message"),
        (lost, None, "Decimal"),
        (no_list, 3, "as a list"),
        (unreadable, None, "cannot be decoded from JSON"),
        ("no function", None, "expected a function"),
    ],
)
def test_an_invalid_listener_is_refused_at_its_registration(function: Any, batch_size: int | None, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        Listener(function, batch_size)


@pytest.mark.parametrize("size", [0, -1, True])
def test_a_batch_size_is_required_for_lists(size: int) -> None:
    with pytest.raises(InvalidSetting, match="batch_size"):
        Listener(bare, size)


def test_a_body_that_cannot_be_decoded_fails_the_call() -> None:
    with pytest.raises(msgspec.MsgspecError):
        Listener(order).arguments([stored(0, b"no json")])
    with pytest.raises(UnicodeDecodeError):
        Listener(text).arguments([stored(0, b"\xff")])


def test_messages_are_passed_as_they_were_sent() -> None:
    compressed = stored(0, zlib.compress(b"long"), topic="%RETRY%ns%G", properties={"RETRY_TOPIC": "ns%T"}, sys_flag=1)

    seen = for_user(compressed, "ns")

    assert (seen.topic, seen.body, seen.sys_flag & SysFlag.COMPRESSED) == ("T", b"long", 0)
    assert for_user(BODY, None) is BODY
    with pytest.raises(ProtocolError):
        for_user(stored(0, b"damaged", sys_flag=1), None)


def test_a_function_for_messages_is_called_directly_unless_a_body_must_be_decoded() -> None:
    def handle(message: StoredMessage) -> str:
        return message.topic

    def handle_bytes(body: bytes) -> bytes:
        return body

    plain, again = stored(0), stored(1, topic="%RETRY%G", properties={"RETRY_TOPIC": "Orders"})
    packed = stored(2, zlib.compress(b"long"), sys_flag=SysFlag.COMPRESSED)
    listener = Listener(handle)

    assert listener.caller([plain, plain]) is handle
    assert listener.caller([again])(again) == "Orders"
    assert listener.caller([plain, packed])(packed) == "Orders"
    assert Listener(handle, namespace="ns").caller([plain]) is not handle
    assert Listener(handle_bytes).caller([packed])(packed) == b"long"


def test_a_call_gets_one_message_or_a_list() -> None:
    def handle(message: list[StoredMessage]) -> int:
        return len(message)

    messages = run_of(0, 5)

    assert Listener(lambda message: None).units(messages) == messages
    units = Listener(handle, 2).units(messages)
    assert units == [messages[:2], messages[2:4], messages[4:]]
    assert [Listener(handle, 2).caller(messages)(unit) for unit in units] == [2, 2, 1]


def test_a_pydantic_model_is_decoded_and_a_mismatch_names_the_field() -> None:
    pydantic = pytest.importorskip("pydantic")
    model = pydantic.create_model("Bill", id=(int, ...))

    def handle(bill: Any) -> None: ...

    handle.__annotations__["bill"] = model
    listener = Listener(handle)

    [bill] = listener.arguments([BODY])
    assert bill.id == 7
    with pytest.raises(pydantic.ValidationError, match="valid integer"):
        listener.arguments([stored(6, b'{"id":"seven"}')])

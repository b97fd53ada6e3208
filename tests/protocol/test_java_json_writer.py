"""JSON as Java writes it: on the wire, for strict readers, and in files."""

import json
import re
from enum import IntEnum, StrEnum
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.errors import UsageError
from pocketmq.model.queue import MessageQueue
from pocketmq.protocol.java_json import write_json, write_pretty_json
from pocketmq.protocol.java_json_reader import read_json

QUEUE = MessageQueue("T", "b", 0)
QUEUE_TEXT = b'{"brokerName":"b","queueId":0,"topic":"T"}'


class Colour(StrEnum):
    RED = "RED"


class Number(IntEnum):
    ONE = 1


class Plain(msgspec.Struct, rename="camel"):
    zone_name: str = "z"
    a_count: int = 1
    colour: Colour = Colour.RED
    tags: tuple[str, ...] = ()
    table: dict[str, float] = {}


class Nullable(msgspec.Struct, rename="camel"):
    broker_name: str | None = None
    addrs: dict[int, str] = {}
    inner: Plain | None = None
    number: Number = Number.ONE
    old: int | msgspec.UnsetType = msgspec.UNSET


def test_properties_are_sorted_and_nulls_omitted() -> None:
    assert write_json(Plain()) == b'{"aCount":1,"colour":"RED","table":{},"tags":[],"zoneName":"z"}'
    assert write_json(Nullable()) == b'{"addrs":{},"number":"ONE"}'
    assert write_json(Nullable("b", inner=Plain())) == (
        b'{"addrs":{},"brokerName":"b","inner":{"aCount":1,"colour":"RED","table":{},"tags":[],"zoneName":"z"},'
        b'"number":"ONE"}'
    )


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, b"null"),
        (True, b"true"),
        (-12, b"-12"),
        (0.5, b"0.5"),
        (0.0, b"0.0"),
        (float("nan"), b"null"),
        ('\x01\t中\x7f"\\', '"\\u0001\\t中\x7f\\"\\\\"'.encode()),
        ({"b": 1, "a": None, "A": [None]}, b'{"A":[null],"b":1}'),
        ({"z", "y"}, b'["y","z"]'),
        ((1, 2.5), b"[1,2.5]"),
        (Colour.RED, b'"RED"'),
        (Number.ONE, b'"ONE"'),
        ([QUEUE], b"[" + QUEUE_TEXT + b"]"),
        ({}, b"{}"),
        (b"\x07", b'"Bw=="'),
    ],
)
def test_each_kind_of_value_has_its_text(value: Any, text: bytes) -> None:
    assert write_json(value) == text
    assert write_json(value, strict=True) == text


def test_numeric_keys_are_unquoted_unless_the_reader_is_strict() -> None:
    table = {"addrs": {10: "x", 9: "y", -1: None}}

    assert write_json(table) == b'{"addrs":{9:"y",10:"x"}}'
    assert write_json(table, strict=True) == b'{"addrs":{"9":"y","10":"x"}}'


def test_queues_as_keys_are_objects_unless_the_reader_is_strict() -> None:
    table = {MessageQueue("T", "b", 10): 2, QUEUE: 1}

    assert write_json(table) == b"{" + QUEUE_TEXT + b":1," + QUEUE_TEXT.replace(b"0", b"10") + b":2}"
    assert json.loads(write_json(table, strict=True)) == {
        QUEUE_TEXT.decode(): 1,
        QUEUE_TEXT.decode().replace("0", "10"): 2,
    }


def test_a_table_of_plain_rows_is_written_like_single_rows() -> None:
    rows = {"ä": Plain("x"), "b": Plain(tags=("t",)), "Z": Plain(table={"y": 0.5, "a": 2.0}), "\U0001f600": Plain()}

    text = write_json(rows)

    assert text == b"{" + b",".join(write_json(key) + b":" + write_json(rows[key]) for key in sorted(rows)) + b"}"
    assert write_json({**rows, "n": None}) == text
    assert write_json(rows, strict=True) == text


def test_other_keys_are_refused() -> None:
    with pytest.raises(TypeError, match="tuple cannot be a key"):
        write_json({(1, 2): 3})


@pytest.mark.parametrize("value", ["\ud800", {"a": "\udc00"}, Plain("\ud800"), Nullable("\ud800")])
def test_half_a_surrogate_pair_is_refused(value: Any) -> None:
    with pytest.raises(UsageError, match="surrogate"):
        write_json(value)


def test_files_have_the_layout_of_rocketmq() -> None:
    value = {
        "dataVersion": {"counter": 0},
        "empty": {},
        "groups": ["a", {"b": 1}],
        "offsetTable": {"T@g": {0: 16, 1: 15}, "U@g": {}},
    }

    assert write_pretty_json(value).decode().split("\n") == [
        "{",
        '\t"dataVersion":{',
        '\t\t"counter":0',
        "\t},",
        '\t"empty":{},',
        '\t"groups":["a",{',
        '\t\t"b":1',
        "\t}],",
        '\t"offsetTable":{',
        '\t\t"T@g":{0:16,1:15',
        "\t\t},",
        '\t\t"U@g":{}',
        "\t}",
        "}",
    ]


def test_queues_as_keys_in_files_are_written_on_several_lines() -> None:
    assert write_pretty_json({"offsetTable": {QUEUE: 5, MessageQueue("T", "b", 1): 6}}).decode().split("\n") == [
        "{",
        '\t"offsetTable":{{',
        '\t\t\t"brokerName":"b",',
        '\t\t\t"queueId":0,',
        '\t\t\t"topic":"T"',
        "\t\t}:5,{",
        '\t\t\t"brokerName":"b",',
        '\t\t\t"queueId":1,',
        '\t\t\t"topic":"T"',
        "\t\t}:6",
        "\t}",
        "}",
    ]


QUEUES = st.builds(MessageQueue, st.text(), st.text(), st.integers(0, 2**31 - 1))
SCALARS = st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
KEYS = st.text() | st.integers() | QUEUES
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(), inner, max_size=4)
        | st.dictionaries(st.integers(), inner, max_size=4)
        | st.dictionaries(QUEUES, inner, max_size=4)
    ),
    max_leaves=20,
)


def as_read(value: Any) -> Any:
    """The result of a round trip: without types, numeric keys become texts."""
    if isinstance(value, dict):
        return {str(key) if isinstance(key, int) else key: as_read(inner) for key, inner in value.items()}
    return [as_read(inner) for inner in value] if isinstance(value, list) else value


@given(VALUES)
def test_values_are_preserved_in_all_three_forms(value: Any) -> None:
    assert read_json(write_json(value)) == as_read(value)
    assert read_json(write_json(value, strict=True)) == as_read(value)
    assert read_json(write_pretty_json(value)) == as_read(value)


@given(VALUES)
def test_strict_output_is_standard_json(value: Any) -> None:
    json.loads(write_json(value, strict=True))


@given(VALUES)
def test_there_is_never_a_blank_outside_of_a_text(value: Any) -> None:
    for strict in (False, True):
        outside = re.sub(rb'"(?:[^"\\]|\\.)*"', b"", write_json(value, strict=strict))
        assert not re.search(rb"\s", outside)


@given(VALUES)
def test_files_have_no_blank_after_a_colon_either(value: Any) -> None:
    outside = re.sub(rb'"(?:[^"\\]|\\.)*"', b'""', write_pretty_json(value))

    assert not re.search(rb":\s", outside)

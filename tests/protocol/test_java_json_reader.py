"""Java's dialect of JSON, and invalid texts."""

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.errors import ProtocolError
from pocketmq.model.queue import MessageQueue
from pocketmq.protocol.java_json_reader import JsonLimits, read_json

QUEUE = MessageQueue("T", "b", 0)
QUEUE_TEXT = b'{"brokerName":"b","queueId":0,"topic":"T"}'

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(VALUES)
def test_plain_json_is_parsed_as_by_python(value: Any) -> None:
    text = json.dumps(value)

    assert read_json(text.encode()) == json.loads(text)


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b'{0:"a",1:"b"}', {"0": "a", "1": "b"}),
        (b'{"0":"a","1":"b"}', {"0": "a", "1": "b"}),
        (b'{ 0 : "a" ,\n\t-12 : "b" }', {"0": "a", "-12": "b"}),
        (b'{"t":{0:12,1:7\n\t},"n":[1,2,3]}', {"t": {"0": 12, "1": 7}, "n": [1, 2, 3]}),
        (b'{0:"1:2,3:4",1:"{5:6"}', {"0": "1:2,3:4", "1": "{5:6"}),
        (b'{0:"a\\",1:"}', {"0": 'a",1:'}),
    ],
)
def test_numeric_keys_may_be_unquoted(data: bytes, value: Any) -> None:
    assert read_json(data) == value


@pytest.mark.parametrize(
    "data",
    [
        b"{" + QUEUE_TEXT + b":{}}",
        b'{{"topic" : "T", "queueId" : "0", "brokerName" : "b"} : {}}',
        b'{{\n\t"brokerName":"b",\n\t"queueId":0,\n\t"topic":"T"\n}:{}}',
        b'{"{\\"brokerName\\":\\"b\\",\\"queueId\\":0,\\"topic\\":\\"T\\"}":{}}',
    ],
)
def test_a_queue_is_a_key_as_an_object_and_as_its_text(data: bytes) -> None:
    assert read_json(data) == {QUEUE: {}}


def test_many_queues_may_be_keys_of_one_table() -> None:
    keys = [json.dumps({"brokerName": "{b", "queueId": n, "topic": '}":,'}) for n in range(9)]

    read = read_json(("{" + ",".join(f"{key}:{n}" for n, key in enumerate(keys)) + "}").encode())

    assert read == {MessageQueue('}":,', "{b", n): n for n in range(9)}


def test_an_object_that_is_not_a_queue_stays_a_text() -> None:
    assert read_json(b'{{"a":1}:2,"{":3}') == {'{"a":1}': 2, "{": 3}


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b'{"a":[1],"b":{"$ref":"$.a"}}', {"a": [1], "b": [1]}),
        (b'{"b":{"$ref":"$.a"},"a":[1]}', {"a": [1], "b": [1]}),
        (b'[{"x":1},{"$ref":"$[0]"},{"$ref":"$[0]"}]', [{"x": 1}] * 3),
        (rb'{"a":{"broker-a":{"p.q":{"k":1}}},"b":{"$ref":"$.a.broker\\-a.p\\.q"}}', {"b": {"k": 1}}),
        (b'{"a":{0:[5]},"b":{"$ref":"$.a[0]"}}', {"b": [5]}),
        (rb'{"a":{"x\"\\y":[5]},"b":{"$ref":"$.a.x\\\"\\\\y"}}', {"b": [5]}),
        ('{"a":{"中":[5]},"b":{"$ref":"$.a.中"}}'.encode(), {"b": [5]}),
        (b'{"a":{"x":[1],"y":{"$ref":"$.a.x"}},"b":{"$ref":"$.a"}}', {"b": {"x": [1], "y": [1]}}),
        (b'{"a":"text","b":{"$ref":"$.a"}}', {"b": "text"}),
    ],
)
def test_a_reference_is_replaced_by_its_target(data: bytes, value: Any) -> None:
    read = read_json(data)

    assert read == value if isinstance(value, list) else {key: read[key] for key in value} == value


@pytest.mark.parametrize(
    "data",
    [b'{"$ref":"$.a","more":1}', b'{"$ref":7}', b'{"a":"$ref"}', b'{"a":{"$ref":null}}'],
)
def test_a_text_that_looks_like_a_reference_is_unchanged(data: bytes) -> None:
    assert read_json(data) == json.loads(data)


@pytest.mark.parametrize(
    "path", ["..", "@", "", "$.b.b", "$.c", "$[0]", "$.a[1]", "$.a.x", "$.a[0].x", "$x", "$.", "$$"]
)
def test_a_reference_without_a_target_is_refused(path: str) -> None:
    with pytest.raises(ProtocolError, match="has no target"):
        read_json(json.dumps({"a": [1], "b": {"$ref": path}}).encode())


@pytest.mark.parametrize(
    "data",
    [
        b'{"a":{"$ref":"$"}}',
        b'{"a":{"b":{"c":{"$ref":"$.a"}}}}',
        b'{"a":[{"$ref":"$.b"}],"b":[{"$ref":"$.a"}]}',
    ],
)
def test_circular_references_are_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError, match="circular reference"):
        read_json(data)


def test_nested_and_bare_references_are_refused() -> None:
    with pytest.raises(ProtocolError, match="has no target"):
        read_json(b'{"a":{"$ref":"$.b"},"b":{"$ref":"$.a"}}')
    with pytest.raises(ProtocolError, match="consists of a reference only"):
        read_json(b'{"$ref":"$"}')


@pytest.mark.parametrize("leaf", ["[1]", "[" + "1," * 500 + "1]"])
def test_multiplying_references_are_refused_before_they_use_memory(leaf: str) -> None:
    levels = [f'"l{n}":[{",".join([json.dumps({"$ref": f"$.l{n - 1}"})] * 10)}]' for n in range(1, 20)]

    with pytest.raises(ProtocolError, match="more than 2000000 values"):
        read_json(("{" + f'"l0":{leaf},' + ",".join(levels) + "}").encode())


def test_a_chain_of_references_counts_as_depth() -> None:
    links = [f'"l{n}":[{{"$ref":"$.l{n + 1}"}}]' for n in range(5000)]

    with pytest.raises(ProtocolError, match="deeper than 64"):
        read_json(("{" + ",".join(links) + ',"l5000":[]}').encode())


def test_control_characters_are_allowed_in_a_text() -> None:
    assert read_json(b'{"a\x01":"x\x02\ty\\n\x7f\x1f",0:"\n"}') == {"a\x01": "x\x02\ty\n\x7f\x1f", "0": "\n"}


@pytest.mark.parametrize(
    ("data", "where"),
    [
        (b"", "0 bytes"),
        (b"{", "1 bytes"),
        (b'{0:1,1:"', "8 bytes"),
        (b"{a:1}", "byte 1"),
        (b"{'a':1}", "byte 1"),
        (b"{\"a\":'x'}", "byte 5"),
        (b'{0:1,1:"a",2:x}', "byte 13"),
        (b"{" + QUEUE_TEXT + b":1,0:?}", "byte 48"),
        (b'{"a":"\x01\x01",0:?}', "byte 12"),
        (b'{"a":"\xff"}', "byte 6"),
        (b'{{"a":"\xff"}:1}', "byte 7"),
        (b"{0:1}{0:1}", "byte 6"),
        (b"[0:1]", "byte"),
        (b"{1.5:2}", "byte 1"),
        (b'{"a":1:2}', "byte"),
        (b'{{"a":{}}:1}', "byte 1"),
        (b"{/* */}", "byte 1"),
        (b"\xef\xbb\xbf{}", "byte 0"),
        (b"NaN", "byte 0"),
        (b"[1,]", "byte"),
        (b'"\\\x01"', "byte"),
        (rb'"\ud800"', "bytes"),
        (rb'"\udc00 "', "byte"),
        (b"1e999", "out of range"),
        (b"9" * 5000, "out of range"),
    ],
)
def test_invalid_json_is_refused_with_its_position(data: bytes, where: str) -> None:
    with pytest.raises(ProtocolError, match=where):
        read_json(data)


@pytest.mark.parametrize("depth", [65, 900, 100_000])
@pytest.mark.parametrize("ends", ["[]", '{"a":}', "{0:}"])
def test_the_depth_is_limited(depth: int, ends: str) -> None:
    data = (ends[:-1] * depth + "1" + ends[-1] * depth).encode()

    with pytest.raises(ProtocolError, match="nested"):
        read_json(data)


def test_the_deepest_allowed_nesting_is_parsed() -> None:
    read_json(b"[" * 64 + b"]" * 64)
    read_json(b"[" * 3 + b"]" * 3, JsonLimits(depth=3))

    with pytest.raises(ProtocolError, match="deeper than 2"):
        read_json(b"[" * 3 + b"]" * 3, JsonLimits(depth=2))


def test_the_bytes_and_values_of_a_document_are_limited() -> None:
    assert read_json(b"[1,2,3]", JsonLimits(document_bytes=7, values=4)) == [1, 2, 3]

    with pytest.raises(ProtocolError, match="7 bytes exceeds the limit of 6"):
        read_json(b"[1,2,3]", JsonLimits(document_bytes=6))
    with pytest.raises(ProtocolError, match="limit of 2"):
        read_json(b"[1,2,3]", JsonLimits(values=2))


@pytest.mark.parametrize(
    "piece", [b"{", b"[", b"1", b"{1", b'"\\"', b",1 ", b'{"a"', b", ", b"{0:", b'{"a":', b"\\", b'"', b"-", b'{"\x01']
)
def test_long_invalid_text_is_refused_in_linear_time(piece: bytes) -> None:
    with pytest.raises(ProtocolError):
        read_json(b"[" + piece * 100_000)


PIECES = [b'{"$ref":"$.a"}', QUEUE_TEXT, b'"a"', b"\\u12", b"\\", b"\x01", b"\xff", b"1", b"-", b"null", b" "]


@given(st.binary() | st.lists(st.sampled_from([*PIECES, *(bytes([one]) for one in b'{}[]":,')])).map(b"".join))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    with suppress(ProtocolError):
        read_json(data)

"""Java's properties text, as Java itself reads it."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.errors import BodyError
from pocketmq.protocol.bodies.properties_text import read_properties, write_properties


@pytest.mark.parametrize(
    ("text", "properties"),
    [
        ("", {}),
        ("\n  \n\t# a=b\n!c=d\n", {}),
        ("a=b", {"a": "b"}),
        ("a:b\rc d\r\ne\t=\tf", {"a": "b", "c": "d", "e": "f"}),
        ("  a  =  b  \n", {"a": "b  "}),
        ("a", {"a": ""}),
        ("a=", {"a": ""}),
        ("=b", {"": "b"}),
        ("a==b", {"a": "=b"}),
        ("a = : b", {"a": ": b"}),
        ("a b=c", {"a": "b=c"}),
        ("namesrvAddr=127.0.0.1:9876;127.0.0.2:9876", {"namesrvAddr": "127.0.0.1:9876;127.0.0.2:9876"}),
        (r"a\ b\=c\:d=e", {"a b=c:d": "e"}),
        (r"a=\t\n\r\f\\\q\u4e2d", {"a": "\t\n\r\f\\q中"}),
        (r"a=\ud83d\ude00", {"a": "😀"}),
        ("a=b\\\n   c\\\n#d", {"a": "bc#d"}),
        ("a=b\\\\\nc=d", {"a": "b\\", "c": "d"}),
        ("a=b\\", {"a": "b"}),
        ("\\\n\\\na=b", {"a": "b"}),
        ("#comment\\\na=b", {"a": "b"}),
        ("a=中", {"a": "中"}),
        ("a=1\na=2", {"a": "2"}),
    ],
)
def test_texts_are_parsed_as_by_java(text: str, properties: dict[str, str]) -> None:
    assert read_properties(text.encode()) == properties


@pytest.mark.parametrize(
    ("data", "said"),
    [(rb"a=\u12", "four digits"), (rb"a=\uxyzw", "four digits"), (rb"a=\ud800", "surrogate"), (b"a=\xff", "byte 2")],
)
def test_invalid_texts_are_refused(data: bytes, said: str) -> None:
    with pytest.raises(BodyError, match=said):
        read_properties(data)


def test_properties_are_written_as_rocketmq_does_with_escapes_where_java_needs_them() -> None:
    properties = {"b": "1s 5s", "a": "127.0.0.1:9876", "key with=": " v\\\n", "c": "中😀\x01", "d": ""}

    assert write_properties(properties).decode().splitlines() == [
        "a=127.0.0.1:9876",
        "b=1s 5s",
        r"c=\u4e2d\ud83d\ude00\u0001",
        "d=",
        r"key\ with\==\ v\\\n",
    ]


@given(st.dictionaries(st.text(), st.text()))
def test_any_properties_are_preserved(properties: dict[str, str]) -> None:
    data = write_properties(properties)

    assert data.isascii()
    assert read_properties(data) == properties


@given(st.binary() | st.text("\\u0aD=: \n\r\t#!d8").map(str.encode))
def test_any_bytes_are_parsed_or_refused(data: bytes) -> None:
    with suppress(BodyError):
        read_properties(data)

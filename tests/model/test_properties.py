"""Properties as one text: what is preserved, dropped and refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.errors import InvalidMessage
from pocketmq.model import properties
from pocketmq.model.properties import (
    RESERVED,
    check_user_property,
    format_properties,
    parse_properties,
    raw_property,
)

PLAIN = st.text(st.characters(codec="utf-8", exclude_characters="\x01\x02"), min_size=1)


def test_an_entry_with_an_empty_value_is_dropped() -> None:
    assert parse_properties("A\x011\x02B\x01\x02C\x013") == {"A": "1", "C": "3"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("\x02\x02\x02", {}),
        ("TAGS\x01TagA\x02KEYS\x01k1\x02", {"TAGS": "TagA", "KEYS": "k1"}),
        ("TAGS\x01TagA\x02KEYS\x01k1", {"TAGS": "TagA", "KEYS": "k1"}),
        ("\x01no name\x02A\x011\x02", {"A": "1"}),
        ("no value\x02A\x011\x02", {"A": "1"}),
        ("A\x011\x02A\x012\x02", {"A": "2"}),
        ("A\x011\x012\x02", {"A": "1\x012"}),
    ],
)
def test_a_text_is_read_as_java_reads_it(text: str, expected: dict[str, str]) -> None:
    assert parse_properties(text) == expected


def test_a_text_ends_in_a_separator_as_version_5_writes_it() -> None:
    assert format_properties({"TAGS": "TagA", "KEYS": "k1"}) == "TAGS\x01TagA\x02KEYS\x01k1\x02"
    assert format_properties({}) == ""


@given(st.dictionaries(PLAIN, PLAIN))
def test_properties_survive_in_their_order(given_properties: dict[str, str]) -> None:
    text = format_properties(given_properties)

    assert list(parse_properties(text).items()) == list(given_properties.items())
    assert parse_properties(text.removesuffix("\x02")) == given_properties


@given(st.dictionaries(PLAIN | st.just(""), PLAIN | st.just("")))
def test_entries_that_the_wire_cannot_contain_are_not_written(given_properties: dict[str, str]) -> None:
    kept = {name: value for name, value in given_properties.items() if name and value}

    assert parse_properties(format_properties(given_properties)) == kept


@given(st.text())
def test_any_text_can_be_parsed(text: str) -> None:
    found = parse_properties(text)

    assert all(name and value for name, value in found.items())


@given(st.dictionaries(PLAIN, PLAIN), PLAIN)
def test_one_property_is_found_without_parsing_all(given_properties: dict[str, str], other: str) -> None:
    raw = format_properties(given_properties).encode()

    for name in {*given_properties, other}:
        value = given_properties.get(name)
        expected = None if value is None else value.encode()

        assert raw_property(raw, name.encode()) == expected
        assert raw_property(raw.removesuffix(b"\x02"), name.encode()) == expected


@pytest.mark.parametrize("end", [b"\x02", b""])
def test_of_equal_names_the_last_value_is_used(end: bytes) -> None:
    raw = b"KEYS\x01a\x02TAGS\x01b\x02KEYS\x01c" + end

    assert raw_property(raw, b"KEYS") == b"c"
    assert parse_properties(raw.decode())["KEYS"] == "c"


@pytest.mark.parametrize("raw", [b"", b"XTAGS\x01a\x02", b"TAGS\x01\x02", b"TAGS", b"A\x01TAGS\x02", b"TAGS2\x01a\x02"])
def test_a_property_that_is_missing_or_empty_is_not_found(raw: bytes) -> None:
    assert raw_property(raw, b"TAGS") is None
    assert "TAGS" not in parse_properties(raw.decode())


@pytest.mark.parametrize("mark", ["\x01", "\x02"])
@pytest.mark.parametrize("around", ["{}", "a{}", "{}a", "a{}b"])
def test_a_separator_inside_a_name_or_value_is_refused(around: str, mark: str) -> None:
    text = around.format(mark)

    with pytest.raises(InvalidMessage, match="property name"):
        format_properties({"good": "1", text: "1"})
    with pytest.raises(InvalidMessage, match="value of property 'bad'"):
        format_properties({"good": "1", "bad": text})
    with pytest.raises(InvalidMessage, match="separate properties"):
        check_user_property("bad", text)


def test_separators_that_cancel_out_in_number_are_refused_too() -> None:
    with pytest.raises(InvalidMessage):
        format_properties({"a\x01": "1", "": "\x02"})


def test_users_may_choose_any_name_without_meaning_in_rocketmq() -> None:
    check_user_property("colour", "blue")
    check_user_property("tags", "lower case is another name")


@pytest.mark.parametrize("name", sorted(RESERVED))
def test_a_reserved_name_is_refused(name: str) -> None:
    with pytest.raises(InvalidMessage, match="reserved by RocketMQ"):
        check_user_property(name, "1")


@pytest.mark.parametrize(("name", "value"), [("", "1"), ("a", ""), ("", "")])
def test_an_empty_name_or_value_is_refused(name: str, value: str) -> None:
    with pytest.raises(InvalidMessage, match="would be lost"):
        check_user_property(name, value)


def test_names_of_the_broker_are_reserved_and_separators_are_refused() -> None:
    assert {properties.TAGS, properties.UNIQ_KEY, properties.REAL_TOPIC, "__CRC32#", "1ST_POP_TIME"} <= RESERVED
    assert RESERVED.isdisjoint({"\x01", "\x02", " "})


@pytest.mark.parametrize("given_properties", [{"a": "\udcff"}, {"\ud800": "b"}, {"a": "grüße", "KEYS": "x\udfff"}])
def test_half_of_a_surrogate_pair_is_refused(given_properties: dict[str, str]) -> None:
    with pytest.raises(InvalidMessage, match="an unpaired surrogate"):
        format_properties(given_properties)

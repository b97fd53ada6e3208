"""Typed headers: one codec reads and writes every declared header."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import field

from pocketmq.codes import BoundaryType
from pocketmq.errors import HeaderError, ProtocolError
from pocketmq.protocol.fields import Fields, Int32, Int64, NoFields


class Sample(Fields):
    topic_name: str
    queue_id: Int32
    offset: Int64 = 0
    flag: bool | None = None
    odd_one: str | None = field(default=None, name="_ODD_ONE")
    boundary: BoundaryType | None = None


SAMPLES = st.builds(
    Sample,
    st.text(),
    st.integers(-(2**31), 2**31 - 1),
    st.integers(-(2**63), 2**63 - 1),
    st.none() | st.booleans(),
    st.none() | st.text(),
    st.none() | st.sampled_from(BoundaryType),
)


@given(SAMPLES)
def test_any_header_is_preserved(header: Sample) -> None:
    assert Sample.decode(header.encode()) == header


def test_every_value_is_written_as_text() -> None:
    assert Sample("T", 3).encode() == {"topicName": "T", "queueId": "3", "offset": "0"}
    assert Sample("", -1, 2**62, True, "x", BoundaryType.UPPER).encode() == {
        "topicName": "",
        "queueId": "-1",
        "offset": "4611686018427387904",
        "flag": "true",
        "_ODD_ONE": "x",
        "boundary": "UPPER",
    }
    assert Sample("T", 3, flag=False).encode()["flag"] == "false"


def test_unknown_fields_are_ignored_and_absent_ones_keep_their_default() -> None:
    assert Sample.decode({"queueId": "3", "topicName": "T", "later": "?"}) == Sample("T", 3)


def test_a_header_without_fields_accepts_any_fields() -> None:
    assert NoFields.decode(None) == NoFields.decode({"bname": "broker-a"}) == NoFields()
    assert NoFields().encode() == {}


@pytest.mark.parametrize("text", ["true", "True", "TRUE"])
def test_a_boolean_may_have_capital_letters(text: str) -> None:
    assert Sample.decode({"topicName": "T", "queueId": "3", "flag": text}).flag is True


@pytest.mark.parametrize("text", ["null", "true", "3"])
def test_a_text_is_never_converted_to_another_type(text: str) -> None:
    assert Sample.decode({"topicName": text, "queueId": "3", "_ODD_ONE": text}) == Sample(text, 3, odd_one=text)


@pytest.mark.parametrize(
    ("ext", "words"),
    [
        (None, "Sample: Object missing required field `topicName`"),
        ({"topicName": "T"}, "Sample: Object missing required field `queueId`"),
        ({"topicName": "T", "queueId": ""}, r"Expected `int`, got `str` - at `\$.queueId`"),
        ({"topicName": "T", "queueId": "three"}, r"\$.queueId"),
        ({"topicName": "T", "queueId": "2147483648"}, r"2147483647` - at `\$.queueId`|<= 2147483647"),
        ({"topicName": "T", "queueId": "1", "offset": "-9223372036854775809"}, r"\$.offset"),
        ({"topicName": "T", "queueId": "1", "offset": "9" * 5000}, r"\$.offset"),
        ({"topicName": "T", "queueId": "1", "flag": "maybe"}, r"\$.flag"),
    ],
)
def test_the_error_names_the_header_and_the_field(ext: dict[str, str] | None, words: str) -> None:
    with pytest.raises(HeaderError, match=words) as caught:
        Sample.decode(ext)

    assert isinstance(caught.value, ProtocolError)
    assert str(caught.value).startswith("Sample: ")


@given(st.dictionaries(st.sampled_from(["topicName", "queueId", "offset", "flag", "_ODD_ONE", "boundary"]), st.text()))
def test_arbitrary_texts_are_a_header_or_a_header_error(ext: dict[str, str]) -> None:
    try:
        header = Sample.decode(ext)
    except HeaderError:
        return

    assert Sample.decode(header.encode()) == header

"""Java's string hash, against the project's vectors and against the plain loop it is defined by."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pocketmq.model.java_hash import java_hash

ANY_TEXT = st.text(st.characters(exclude_categories=()))
"""Every code point, lone surrogates and those beyond the basic plane included."""


def hash_by_definition(text: str) -> int:
    units = text.encode("utf-16-be", "surrogatepass")
    total = 0
    for n in range(0, len(units), 2):
        total = (31 * total + units[n] * 256 + units[n + 1]) % 2**32
    return total - 2**32 if total >= 2**31 else total


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("TagA", 2598919),
        ("TagB", 2598920),
        ("*", 42),
        ("中文", 646394),
        ("TopicTest#k1", 2746024),
        ("polygenelubricants", -2147483648),
    ],
)
def test_hashes_equal_those_of_java(text: str, expected: int) -> None:
    assert java_hash(text) == expected
    assert hash_by_definition(text) == expected


@given(ANY_TEXT)
@example("\ud83d")
@example("😀")
@example("é")
@example("\0")
def test_the_hash_of_any_text_equals_that_of_a_plain_loop(text: str) -> None:
    assert java_hash(text) == hash_by_definition(text)


@given(st.integers(500, 530), st.sampled_from(["a", "é", "中", "😀", "\udc00"]))
def test_hashes_around_the_length_of_the_table_equal_those_of_a_plain_loop(length: int, character: str) -> None:
    text = character * length

    assert java_hash(text) == hash_by_definition(text)


def test_a_message_without_a_tag_has_code_0() -> None:
    assert java_hash("") == 0
    assert java_hash("TagA") == 2598919

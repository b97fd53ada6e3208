"""Words of SQL92, as RocketMQ parts them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.model.sql92.parser import END, FRACTION, NAME, OTHER, TEXT, WHOLE, Token, scan, text_of


def words(text: str) -> list[tuple[str, str]]:
    return [(token.kind, token.image) for token in scan(text)][:-1]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a $b _c1 D$_9", [(NAME, "a"), (NAME, "$b"), (NAME, "_c1"), (NAME, "D$_9")]),
        ("and aNd android", [("AND", "and"), ("AND", "aNd"), (NAME, "android")]),
        ("0 42 42L 7l 007", [(WHOLE, "0"), (WHOLE, "42"), (WHOLE, "42L"), (WHOLE, "7l"), (WHOLE, "007")]),
        ("4.2 .5 5. 1e3 1.5E-3 .5e+1", [(FRACTION, n) for n in ("4.2", ".5", "5.", "1e3", "1.5E-3", ".5e+1")]),
        ("5e", [(WHOLE, "5"), (NAME, "e")]),
        ("5and", [(WHOLE, "5"), ("AND", "and")]),
        ("'x' '' 'it''s' 'a\nb'", [(TEXT, "'x'"), (TEXT, "''"), (TEXT, "'it''s'"), (TEXT, "'a\nb'")]),
        ("'AND'", [(TEXT, "'AND'")]),
        ("<><=>=<>=", [(symbol, symbol) for symbol in ("<>", "<=", ">=", "<>", "=")]),
        ("=><(),+-", [(symbol, symbol) for symbol in ("=", ">", "<", "(", ")", ",", "+", "-")]),
        ("a-b", [(NAME, "a"), ("-", "-"), (NAME, "b")]),
        ("a.b", [(NAME, "a"), (OTHER, "."), (NAME, "b")]),
        ('"', [(OTHER, '"')]),
        ("é\u00a0\v", [(OTHER, "é"), (OTHER, "\u00a0"), (OTHER, "\v")]),
    ],
)
def test_a_text_is_split_into_tokens(text: str, expected: list[tuple[str, str]]) -> None:
    assert words(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "a\t\n\r\fb",
        "a -- b c d\nb",
        "a--\rb",
        "a b -- to the end",
        "a/**/b",
        "a /* = ' \n ** / -- */ b",
        "/* 1 */ a /* 2 */ b /* 3 ***/",
    ],
)
def test_blanks_and_comments_separate_tokens(text: str) -> None:
    assert words(text) == [(NAME, "a"), (NAME, "b")]


def test_a_token_knows_its_position_and_the_end_is_a_token() -> None:
    assert list(scan(" a\n= 5 ")) == [Token(NAME, "a", 1), Token("=", "=", 3), Token(WHOLE, "5", 5), Token(END, "", 7)]


@pytest.mark.parametrize("text", ["'never", "a = 'it''s", "/* never", "/*/"])
def test_an_unclosed_quote_or_comment_is_reported_at_its_start(text: str) -> None:
    assert OTHER in [token.kind for token in scan(text)]


@given(st.text())
def test_any_text_survives_its_quotes(text: str) -> None:
    (token, _) = scan("'" + text.replace("'", "''") + "'")

    assert token.kind == TEXT
    assert text_of(token) == text


@given(st.text())
def test_no_character_is_lost(text: str) -> None:
    tokens = list(scan(text))

    assert all(text.startswith(token.image, token.at) for token in tokens)
    assert tokens[-1] == Token(END, "", len(text))

"""Bodies for a page."""

import pytest

from pocketmq.console.bodies import is_text, shown_body


@pytest.mark.parametrize(
    ("body", "form"),
    [
        (b'{"a": 1}', "json"),
        (b"[1, 2", "text"),
        (b"plain", "text"),
        (b"\x00\x01", "hex"),
        (b"\xff", "hex"),
        (b"", "text"),
    ],
)
def test_the_form_is_guessed(body: bytes, form: str) -> None:
    assert shown_body(body, "", 100).form == form


def test_a_long_body_is_cut_also_within_a_character() -> None:
    shown = shown_body("ä".encode() * 100, "text", 101)

    assert shown.is_cut
    assert shown.shown_bytes == 101
    assert shown.text.startswith("ää")


def test_a_long_json_is_text() -> None:
    shown = shown_body(b"[" + b"1," * 100 + b"1]", "json", 50)

    assert shown.form == "text"
    assert "too long" in shown.problem


def test_json_that_is_nested_too_deeply_is_text() -> None:
    body = b"[" * 100_000

    assert shown_body(body, "json", 200_000).form == "text"
    assert shown_body(body, "", 200_000).form == "text"


def test_hex_shows_bytes_and_what_can_be_printed() -> None:
    assert shown_body(b"AB\x00", "hex", 100).text == "00000000  41 42 00" + " " * 41 + "AB."


def test_only_plain_text_can_be_edited() -> None:
    assert is_text("grüße\n".encode())
    assert not is_text(b"a\r\nb")
    assert not is_text(b"\x00")
    assert not is_text(b"\xff")

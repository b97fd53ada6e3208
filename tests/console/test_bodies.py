"""Bodies for a page."""

import json
import tracemalloc

import pytest

from pocketmq.codes import Compression
from pocketmq.console.bodies import ShownBody, body_contains, editable_text, is_text, preview, whole_body
from pocketmq.console.bodies import shown_body as shown_of
from pocketmq.model.message import StoredMessage
from pocketmq.protocol.compression import compress, with_compression

MIB = 1024 * 1024


def stored(body: bytes, sys_flag: int = 0) -> StoredMessage:
    return StoredMessage("orders", 0, 0, sys_flag, body, b"", bytes(88), 0)


def packed(body: bytes, kind: Compression = Compression.ZLIB) -> StoredMessage:
    return stored(compress(body, kind), with_compression(0, kind))


def shown_body(body: bytes, wanted: str, most_bytes: int) -> ShownBody:
    return shown_of(stored(body), wanted, most_bytes)


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


def test_hex_shows_bytes_and_printable_characters() -> None:
    assert shown_body(b"AB\x00", "hex", 100).text == "00000000  41 42 00" + " " * 41 + "AB."


def test_only_text_can_be_edited() -> None:
    assert is_text("grüße\n".encode())
    assert not is_text(b"a\r\nb")
    assert not is_text(b"\x00")
    assert not is_text(b"\xff")


@pytest.mark.parametrize("kind", Compression)
def test_only_the_shown_part_of_a_compressed_body_is_decompressed(kind: Compression) -> None:
    message = packed(b"x" * (16 * MIB - 1), kind)
    tracemalloc.start()
    try:
        shown = shown_of(message, "", 1_000)
        line = preview(message)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert shown.text == "x" * 1_000
    assert shown.is_cut
    assert shown.total_bytes is None
    assert line.startswith("xxx")
    assert peak < MIB


def test_a_short_compressed_body_is_shown_like_others() -> None:
    message = packed(b'{"a": 1}')

    shown = shown_of(message, "", 1_000)

    assert (shown.form, shown.text, shown.total_bytes, shown.is_cut) == ("json", '{\n  "a": 1\n}', 8, False)
    assert whole_body(message) == b'{"a": 1}'
    assert editable_text(message, 1_000) == '{"a": 1}'
    assert body_contains(message, b'"a"')
    assert not body_contains(message, b'"b"')


def test_a_compressed_body_that_is_damaged_is_shown_as_it_is_stored() -> None:
    message = stored(b"no zlib", with_compression(0, Compression.ZLIB))

    shown = shown_of(message, "", 1_000)

    assert shown.text == "no zlib"
    assert "the body cannot be decompressed" in shown.problem
    assert whole_body(message) == b"no zlib"
    assert editable_text(message, 1_000) is None


def test_json_that_would_be_far_longer_when_indented_is_shown_unchanged() -> None:
    body = b"[" * 900 + b"1," * 31_000 + b"1" + b"]" * 900
    assert len(json.dumps(json.loads(body), indent=2)) > 50 * MIB

    shown = shown_body(body, "", 64 * 1024)

    assert shown.form == "text"
    assert "nested too deeply" in shown.problem
    assert len(shown.text) == len(body)

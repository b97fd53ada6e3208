"""Recall handles: those of a broker, and invalid ones."""

import base64
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.golden import captured, needs_golden

from pocketmq.errors import ProtocolError, UsageError
from pocketmq.model.message_id import RecallHandle

HANDLE = RecallHandle("TimerTopic", "broker-a", 1794732030001, "7F0000010ACB4E0E2F2A49F582CF0006")
TEXT = "djEgVGltZXJUb3BpYyBicm9rZXItYSAxNzk0NzMyMDMwMDAxIDdGMDAwMDAxMEFDQjRFMEUyRjJBNDlGNTgyQ0YwMDA2"

words = st.text(min_size=1).filter(lambda word: " " not in word)


def handle_of(plain: str) -> str:
    return base64.urlsafe_b64encode(plain.encode()).decode()


def test_a_handle_has_the_text_of_java() -> None:
    assert str(HANDLE) == TEXT
    assert RecallHandle.parse(TEXT) == HANDLE


@needs_golden
def test_every_captured_handle_survives_parsing_and_writing() -> None:
    exts = [frame.command.ext or {} for frame in captured("wire/*/*/timer.jsonl")]
    texts = [ext["recallHandle"] for ext in exts if "recallHandle" in ext]

    assert len(texts) >= 5
    for text in texts:
        handle = RecallHandle.parse(text)
        assert (handle.topic, handle.broker_name) == ("TimerTopic", "broker-a")
        assert handle.deliver_ms % 1000 == 1
        assert str(handle) == text


@given(st.builds(RecallHandle, words, words, st.integers(-(2**63), 2**63 - 1), words))
def test_any_handle_is_preserved(handle: RecallHandle) -> None:
    assert RecallHandle.parse(str(handle)) == handle


@given(st.text() | st.binary().map(lambda raw: base64.urlsafe_b64encode(raw).decode()) | st.text().map(handle_of))
def test_arbitrary_text_raises_only_a_protocol_error(text: str) -> None:
    with suppress(ProtocolError):
        RecallHandle.parse(text)


def test_the_alphabet_is_url_safe_and_padding_is_optional() -> None:
    handle = RecallHandle("T", "b", 1, "ÿþ?>~~")
    text = str(handle)

    assert set("-_=") <= set(text)
    assert RecallHandle.parse(text.rstrip("=")) == handle
    with pytest.raises(ProtocolError, match="URL-safe base64"):
        RecallHandle.parse(text.replace("-", "+").replace("_", "/"))


def test_parts_after_the_fifth_are_ignored() -> None:
    assert RecallHandle.parse(handle_of("v1 T b 5 id more and more")) == RecallHandle("T", "b", 5, "id")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "djE",
        "not base64!",
        "A",
        "djEg=djEg",
        base64.urlsafe_b64encode(b"\xff\xff\xff").decode(),
        handle_of("v2 T b 5 id"),
        handle_of("v1 T b 5"),
        handle_of("v1  b 5 id"),
        handle_of("v1 T  5 id"),
        handle_of("v1 T b 5 "),
        handle_of("v1 T b soon id"),
        handle_of("v1 T b 1_0 id"),
        handle_of("v1 T b \u0665 id"),
        handle_of("v1 T b 99999999999999999999 id"),
    ],
)
def test_an_invalid_handle_is_refused(text: str) -> None:
    with pytest.raises(ProtocolError, match="recall handle"):
        RecallHandle.parse(text)


@pytest.mark.parametrize("handle", [HANDLE._replace(topic="two words"), HANDLE._replace(unique_id="")])
def test_an_unparsable_handle_is_not_written(handle: RecallHandle) -> None:
    with pytest.raises(UsageError, match="empty part or one with a blank"):
        str(handle)

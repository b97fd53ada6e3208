"""The ACL signature: the same as Java's for every captured request, and false for any other."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.golden import captured, needs_golden

from pocketmq.codes import VERSION, RequestCode, Version
from pocketmq.protocol.command import Command
from pocketmq.protocol.signing import (
    ACCESS_KEY,
    SECURITY_TOKEN,
    SIGNATURE,
    Credentials,
    sign,
    signed_content,
    signed_fields,
    verify,
)

SECRET = "pocketSecret12"
WRONG_SECRET = "notTheSecret"


def signed_requests() -> list[tuple[str, dict[str, str], Command]]:
    commands = [(frame.name, frame.command) for frame in captured("wire/*/*/*.jsonl")]
    return [(name, command.ext, command) for name, command in commands if command.ext and SIGNATURE in command.ext]


def test_the_reference_request_has_the_known_signature() -> None:
    ext = {"topic": "T", "queueId": "0", "AccessKey": "rocketmq"}

    assert signed_content(ext, b"hello") == b"rocketmq0Thello"
    assert sign(ext, b"hello", "12345678") == "a4W8wTRSzqV7o/z09HM7NlAipQk="


@needs_golden
def test_every_captured_signature_is_recomputed_and_equal() -> None:
    requests = signed_requests()

    assert len(requests) > 150
    for name, ext, command in requests:
        secret = WRONG_SECRET if SECURITY_TOKEN in ext else SECRET
        other = SECRET if SECURITY_TOKEN in ext else WRONG_SECRET
        assert sign(ext, command.body, secret, command.version) == ext[SIGNATURE], name
        assert verify(ext, command.body, secret, command.version), name
        assert not verify(ext, command.body, other, command.version), name


@needs_golden
def test_the_captured_signatures_are_of_every_kind() -> None:
    requests = signed_requests()

    codes = {command.code for _, _, command in requests}
    assert {RequestCode.SEND_MESSAGE_V2, RequestCode.PULL_MESSAGE, RequestCode.HEART_BEAT} <= codes
    assert {RequestCode.REGISTER_BROKER, RequestCode.UNREGISTER_BROKER} <= codes
    assert {command.encoding for _, _, command in requests} == {0, 1}
    assert {SECURITY_TOKEN in ext for _, ext, _ in requests} == {True, False}
    assert any(command.body for _, _, command in requests)


@needs_golden
def test_signing_a_captured_request_gives_the_captured_fields() -> None:
    for name, ext, command in signed_requests():
        token = ext.get(SECURITY_TOKEN)
        credentials = Credentials(ext[ACCESS_KEY], WRONG_SECRET if token else SECRET, token)
        bare = {key: value for key, value in ext.items() if key not in (ACCESS_KEY, SECURITY_TOKEN, SIGNATURE)}

        assert signed_fields(bare, command.body, credentials) == ext, name


def test_fields_are_sorted_as_by_java() -> None:
    ext = {"\uff5e": "5", "b": "3", "\U0001f600": "4", "a": "2", "B": "1", "": "0"}

    assert signed_content(ext, b"") == b"012345"


def test_the_signature_itself_is_not_signed() -> None:
    ext = {"topic": "T"}

    assert signed_content({**ext, SIGNATURE: "x"}, b"") == signed_content(ext, b"")


@pytest.mark.parametrize(
    ("version", "content"), [(Version.V4_9_3, b"kT"), (Version.V4_9_4, b"truekT"), (VERSION, b"truekT"), (0, b"kT")]
)
def test_a_field_that_old_clients_add_after_signing_is_not_verified_for_them(version: int, content: bytes) -> None:
    ext = {"topic": "T", "key": "k", "_UNIQUE_KEY_QUERY": "true"}

    assert signed_content(ext, b"", version) == content
    assert verify({**ext, SIGNATURE: sign(ext, b"", "s", version)}, b"", "s", version)


def test_half_a_surrogate_pair_is_signed_as_the_question_mark_that_java_writes() -> None:
    assert signed_content({"a": "x\ud800y"}, b"") == b"x?y"


@pytest.mark.parametrize("signature", [{}, {SIGNATURE: ""}, {SIGNATURE: "=="}, {SIGNATURE: "ü\ud800"}])
def test_a_request_without_a_valid_signature_is_not_verified(signature: dict[str, str]) -> None:
    assert not verify({"topic": "T", **signature}, b"", SECRET)


@given(st.dictionaries(st.text(), st.text(), max_size=6), st.binary(max_size=50), st.text(min_size=1))
def test_a_signature_is_verified_and_a_changed_request_is_refused(
    ext: dict[str, str], body: bytes, secret: str
) -> None:
    signed = signed_fields(ext, body, Credentials("me", secret))

    assert verify(signed, body, secret)
    assert not verify(signed, body + b"!", secret)
    assert not verify(signed, body, secret + "!")
    assert not verify({**signed, ACCESS_KEY: "you"}, body, secret)


def test_signing_does_not_change_the_request() -> None:
    ext = {"topic": "T"}

    signed = signed_fields(ext, b"", Credentials("me", SECRET, "token"))

    assert ext == {"topic": "T"}
    assert list(signed) == ["topic", ACCESS_KEY, SECURITY_TOKEN, SIGNATURE]
    assert verify(signed_fields(None, b"", Credentials("me", SECRET)), b"", SECRET)


def test_the_secret_is_not_shown() -> None:
    credentials = Credentials("me", SECRET, "token")

    assert SECRET not in repr(credentials)
    assert "token" not in str(credentials)

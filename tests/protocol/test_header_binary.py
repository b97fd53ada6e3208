"""The binary header: the same bytes as Java, and a clear error for every wrong length."""

import struct

import pytest

from pocketmq.codes import HeaderEncoding, Language, RequestCode
from pocketmq.errors import ProtocolError, UsageError
from pocketmq.protocol.command import Command, decode_command, encode_command
from pocketmq.protocol.fields import MAX_EXT_FIELDS, Header
from pocketmq.protocol.frames import split_frames
from pocketmq.protocol.header_encodings import decode_binary as decode
from pocketmq.protocol.header_encodings import encode_binary as encode

ROUTE_QUERY = bytes.fromhex("000000250100002100690301df0000000100000000000000000000000c0005746f7069630000000154")
WITH_ALL: Header = (310, {"a": "group", "b": "", "": "中文"}, "remark", 2, -5, 479, Language.GO)


def test_the_route_query_for_a_topic_has_the_known_bytes() -> None:
    query = Command(
        RequestCode.GET_ROUTEINFO_BY_TOPIC,
        {"topic": "T"},
        opaque=1,
        version=479,
        language=Language.PYTHON,
        encoding=HeaderEncoding.ROCKETMQ,
    )

    assert encode_command(query) == ROUTE_QUERY
    (frame,) = split_frames(ROUTE_QUERY)
    assert decode_command(frame) == query


def test_any_valid_header_is_preserved() -> None:
    assert decode(encode(WITH_ALL)) == WITH_ALL


def test_codes_wrap_and_empty_values_are_omitted_as_in_java() -> None:
    pop: Header = (RequestCode.POP_MESSAGE, {}, "", 0, 0, 0, Language.JAVA)

    assert decode(encode(pop)) == (3442, None, None, 0, 0, 0, Language.JAVA)


def test_an_unknown_language_is_another() -> None:
    header = bytearray(encode(WITH_ALL))
    for number in (14, 127, 128, 255):
        header[2] = number
        assert decode(bytes(header))[6] is Language.OTHER


def test_a_truncated_or_too_long_header_is_refused() -> None:
    header = encode(WITH_ALL)

    for size in range(len(header)):
        with pytest.raises(ProtocolError, match="binary header: "):
            decode(header[:size])
    with pytest.raises(ProtocolError, match="ext fields of 31 bytes but only 32 bytes are left"):
        decode(header + b"\0")


@pytest.mark.parametrize("size", [-1, -(2**31), 2**31 - 1, 1000])
def test_wrong_lengths_are_refused(size: int) -> None:
    head = struct.pack(">hbhii", 1, 0, 0, 0, 0)
    lying = struct.pack(">i", size)
    one_field = struct.pack(">hc", 1, b"a")

    with pytest.raises(ProtocolError, match=f"a text of {size} bytes"):
        decode(head + lying + b"remark" + bytes(4))
    with pytest.raises(ProtocolError, match=f"ext fields of {size} bytes"):
        decode(head + bytes(4) + lying + one_field)
    with pytest.raises(ProtocolError, match=f"a text of {size} bytes"):
        decode(head + bytes(4) + struct.pack(">i", 8) + one_field + lying + b"v")
    with pytest.raises(ProtocolError, match="a text of -1 bytes"):
        decode(head + bytes(4) + struct.pack(">i", 4) + struct.pack(">h", -1) + b"na")


def test_texts_that_are_not_utf8_are_refused() -> None:
    header = encode((1, None, "remark", 0, 0, 0, Language.JAVA)).replace(b"remark", b"\xff\xfemark")

    with pytest.raises(ProtocolError, match="utf-8"):
        decode(header)


def test_ext_fields_are_limited_in_number() -> None:
    most = {f"n{n}": "v" for n in range(MAX_EXT_FIELDS)}
    assert decode(encode((1, most, None, 0, 0, 0, Language.JAVA)))[1] == most

    with pytest.raises(ProtocolError, match="more than 512 ext fields"):
        decode(encode((1, {**most, "one": "v"}, None, 0, 0, 0, Language.JAVA)))


@pytest.mark.parametrize(
    "header",
    [
        (1, {"n" * 32768: "v"}, None, 0, 0, 0, Language.JAVA),
        (1, None, None, 0, 0, 32768, Language.JAVA),
        (1, None, None, 0, 2**31, 0, Language.JAVA),
    ],
)
def test_too_large_values_are_refused_before_they_are_sent(header: Header) -> None:
    with pytest.raises(UsageError, match="too large for a binary header"):
        encode(header)


@pytest.mark.parametrize(
    "header", [(1, {"key": "\udcff"}, None, 0, 0, 0, Language.JAVA), (1, None, "\ud800", 0, 0, 0, Language.JAVA)]
)
def test_half_of_a_surrogate_pair_is_refused_before_it_is_sent(header: Header) -> None:
    with pytest.raises(UsageError, match="an unpaired surrogate"):
        encode(header)

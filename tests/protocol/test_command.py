"""Commands: the same on both sides of either header encoding; arbitrary bytes are one, or a protocol error."""

from contextlib import suppress

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from pocketmq.codes import VERSION, HeaderEncoding, Language, ResponseCode
from pocketmq.errors import ProtocolError, RemoteError, TopicNotFound
from pocketmq.protocol.command import ONEWAY, RESPONSE, Command, decode_command, encode_command
from pocketmq.protocol.frames import split_frames

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
INT16 = st.integers(-(2**15), 2**15 - 1)
INT32 = st.integers(-(2**31), 2**31 - 1)


def commands(encoding: HeaderEncoding, version: st.SearchStrategy[int]) -> st.SearchStrategy[Command]:
    return st.builds(
        Command,
        code=INT32,
        ext=st.none() | st.dictionaries(TEXTS, TEXTS, max_size=6),
        body=st.binary(max_size=50),
        remark=st.none() | TEXTS,
        flag=INT32,
        opaque=INT32,
        version=version,
        language=st.sampled_from(Language),
        encoding=st.just(encoding),
    )


def sent(command: Command) -> Command:
    """`command` as it arrives at the other side."""
    (frame,) = split_frames(encode_command(command))
    return decode_command(frame)


@given(commands(HeaderEncoding.JSON, INT32))
def test_any_command_is_preserved_as_json(command: Command) -> None:
    assert sent(command) == command


@given(commands(HeaderEncoding.ROCKETMQ, INT16))
def test_a_command_survives_the_binary_header_except_for_its_limits(command: Command) -> None:
    arrived = sent(command)

    assert arrived.code == (command.code + 2**15) % 2**16 - 2**15  # codes wrap at 16 bits, as in Java
    assert arrived.remark == (command.remark or None)  # an empty remark is omitted
    assert arrived.ext == (command.ext or None)  # and so are empty ext fields
    arrived.code, arrived.remark, arrived.ext = command.code, command.remark, command.ext
    assert arrived == command


@given(st.sampled_from(HeaderEncoding), st.binary(max_size=200))
def test_arbitrary_bytes_are_a_command_or_a_protocol_error(encoding: HeaderEncoding, header: bytes) -> None:
    try:
        command = decode_command((encoding, header, b"body"))
    except ProtocolError:
        return

    assert sent(command) == command


@given(commands(HeaderEncoding.JSON, INT32) | commands(HeaderEncoding.ROCKETMQ, INT16), st.data())
def test_a_damaged_header_is_a_command_or_a_protocol_error(command: Command, data: st.DataObject) -> None:
    ((encoding, header, body),) = split_frames(encode_command(command))
    damaged = bytearray(header)
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    assume(damaged != header)

    with suppress(ProtocolError):
        decode_command((encoding, bytes(damaged), body))


def test_unknown_codes_are_preserved() -> None:
    assert sent(Command(987654, {"new": "field"})) == Command(987654, {"new": "field"})


@pytest.mark.parametrize("encoding", HeaderEncoding)
def test_a_reply_has_the_number_and_the_encoding_of_its_request(encoding: HeaderEncoding) -> None:
    request = Command(105, opaque=-7, version=407, language=Language.GO, encoding=encoding)

    reply = request.reply(ResponseCode.TOPIC_NOT_EXIST, "no such topic", {"a": "b"}, b"body")

    assert reply.is_response
    assert not reply.is_oneway
    assert (reply.code, reply.opaque, reply.encoding) == (17, -7, encoding)
    assert (reply.remark, reply.ext, reply.body) == ("no such topic", {"a": "b"}, b"body")
    assert (reply.language, reply.version) == (Language.PYTHON, VERSION)


def test_the_flag_distinguishes_requests_responses_and_one_way_requests() -> None:
    assert not Command(10).is_response
    assert not Command(10).is_oneway
    assert Command(0, flag=RESPONSE).is_response
    assert Command(15, flag=ONEWAY).is_oneway
    assert not Command(15, flag=ONEWAY).is_response


def test_a_response_has_the_error_of_its_code() -> None:
    assert Command(ResponseCode.SUCCESS, flag=RESPONSE).error() is None

    known = Command(ResponseCode.TOPIC_NOT_EXIST, remark="no such topic", flag=RESPONSE).error()
    unknown = Command(4711, flag=RESPONSE).error()

    assert isinstance(known, TopicNotFound)
    assert known.remark == "no such topic"
    assert type(unknown) is RemoteError
    assert unknown.response_code == 4711

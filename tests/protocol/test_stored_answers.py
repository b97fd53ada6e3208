"""The fast decoder for the regular answer of a send has the result of the general one, or leaves it to that."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.golden import captured, needs_golden

from pocketmq.codes import HeaderEncoding, RequestCode
from pocketmq.protocol.command import Command, decode_command, encode_command
from pocketmq.protocol.frames import Frame, split_frames
from pocketmq.protocol.hot_headers import NOT_STORED, SendReplies, StoredAnswer, read_stored

FIELDS = ("msgId", "queueId", "queueOffset", "transactionId", "recallHandle", "MSG_REGION", "TRACE_ON")
SENDS = {RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE}
USUAL = {"msgId": "7F000001", "queueId": "3", "queueOffset": "12", "transactionId": "7F", "TRACE_ON": "true"}


def short_way(frame: Frame) -> StoredAnswer | None:
    try:
        return read_stored(frame[1])
    except NOT_STORED:
        return None


def assert_same(answer: StoredAnswer, command: Command) -> None:
    ext = command.ext or {}
    assert (command.code, command.flag, command.opaque) == (0, 1, answer.opaque)
    assert {name: ext.get(name) for name in FIELDS} == {name: getattr(answer.extFields, name) for name in FIELDS}
    assert command.remark is None


@needs_golden
def test_every_captured_success_answer_to_a_send_is_read_by_the_fast_decoder() -> None:
    frames = [frame for frame in captured("wire/**/*.jsonl") if frame.answers in SENDS]
    usual = [frame for frame in frames if frame.command.code == 0 and frame.command.encoding is HeaderEncoding.JSON]

    for frame in usual:
        (whole,) = split_frames(frame.frame)
        answer = short_way(whole)
        assert answer is not None, frame.name
        assert_same(answer, frame.command)
    assert {frame.name.split("/")[1] for frame in usual} == {"4.9.7", "5.3.3"}
    assert all(short_way(split_frames(frame.frame)[0]) is None for frame in frames if frame not in usual)


def test_answers_of_our_broker_are_read_by_the_fast_decoder() -> None:
    data = SendReplies("DefaultRegion", True).encode(7, b"7F00", 3, 12, "unique")
    (frame,) = split_frames(data)

    answer = short_way(frame)

    assert answer is not None
    assert_same(answer, decode_command(frame))


def written(header: dict[str, Any]) -> Frame:
    return 0, json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode(), b""


values = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(), st.just("5.0"))
exts = st.dictionaries(st.one_of(st.sampled_from(FIELDS), st.text(max_size=5)), values, max_size=8)
changes = st.dictionaries(
    st.sampled_from(["code", "flag", "opaque", "remark", "language", "version", "serializeTypeCurrentRPC", "other"]),
    st.one_of(st.none(), st.integers(-1, 20), st.sampled_from(["0", "1", "JSON", "JAVA", "x"]), st.just(0.0)),
    max_size=3,
)


@given(exts, changes, st.sets(st.sampled_from(FIELDS), max_size=2))
def test_the_fast_decoder_equals_the_general_one(
    ext: dict[str, Any], header: dict[str, Any], without: set[str]
) -> None:
    fields = {name: value for name, value in (USUAL | ext).items() if name not in without}
    frame = written({"code": 0, "flag": 1, "opaque": 7, "language": "JAVA", "extFields": fields} | header)

    answer = short_way(frame)

    if answer is not None:
        assert_same(answer, decode_command(frame))


@given(st.binary(max_size=80), st.integers(0, 200))
def test_damaged_headers_are_left_to_the_general_decoder_or_have_its_result(damage: bytes, at: int) -> None:
    _, header, _ = written({"code": 0, "flag": 1, "opaque": 7, "language": "JAVA", "extFields": USUAL})
    frame: Frame = (0, header[:at] + damage + header[at + len(damage) :], b"")

    answer = short_way(frame)

    if answer is not None:
        assert_same(answer, decode_command(frame))


def test_other_codes_requests_and_unknown_fields_use_the_general_decoder() -> None:
    usual = Command(0, USUAL, flag=1, opaque=7)
    (frame,) = split_frames(encode_command(usual))
    assert short_way(frame) is not None

    for other in (
        Command(10, USUAL, flag=1),
        Command(2, None, remark="busy", flag=1),
        Command(0, USUAL, flag=0),
        Command(0, USUAL, flag=3),
        Command(0, USUAL, remark="something is said", flag=1),
        Command(0, USUAL | {"mine": "1"}, flag=1),
        Command(0, {}, flag=1),
        Command(0, None, flag=1),
    ):
        (frame,) = split_frames(encode_command(other))
        assert short_way(frame) is None, other

"""Hot headers: decoded at once, or not at all. If they are decoded, the result equals the general decoder."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.codes import HeaderEncoding, Language, RequestCode
from pocketmq.protocol.api import request_header
from pocketmq.protocol.api.messages import (
    PullMessage,
    QueryConsumerOffset,
    SendMessage,
    SendMessageV2,
    UpdateConsumerOffset,
)
from pocketmq.protocol.command import ONEWAY, RESPONSE, Command, decode_command, encode_command
from pocketmq.protocol.fields import Fields
from pocketmq.protocol.frames import Frame, split_frames
from pocketmq.protocol.hot_headers import HeartbeatHead, SendV2Head, UpdateOffsetHead, decode_head

SEND = ("PG", "T", "TBW102", 4, 1, 0, 1700000000123, 0, "TAGS\x01A\x02", 0, False, None, False, "broker-a")
PULL = PullMessage("CG", "T", 0, 42, 32, 2, 41, 15000, 7, "*", "TAG", 2**31 - 1)
HOT: dict[RequestCode, Fields] = {
    RequestCode.SEND_MESSAGE: SendMessage(*SEND),
    RequestCode.SEND_MESSAGE_V2: SendMessageV2(*SEND),
    RequestCode.SEND_BATCH_MESSAGE: SendMessageV2(*SEND),
    RequestCode.PULL_MESSAGE: PULL,
    RequestCode.LITE_PULL_MESSAGE: PULL,
    RequestCode.QUERY_CONSUMER_OFFSET: QueryConsumerOffset("CG", "T", 3, set_zero_if_not_found=False),
    RequestCode.UPDATE_CONSUMER_OFFSET: UpdateConsumerOffset("CG", "T", 3, 2**40),
}
NUMBERS_AS_TEXT = st.integers(-(2**33), 2**33).map(str)
JSON_VALUES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()


def frame_of(command: Command) -> Frame:
    (frame,) = split_frames(encode_command(command))
    return frame


def frame_with(header: object) -> Frame:
    return 0, json.dumps(header).encode(), b""


def offset_update(**changes: object) -> Frame:
    ext = HOT[RequestCode.UPDATE_CONSUMER_OFFSET].encode()
    return frame_with({"code": 15, "opaque": 1, "flag": 0, "version": 479, "extFields": ext} | changes)


@pytest.mark.parametrize("code", HOT)
def test_a_hot_request_is_decoded_with_its_ext_fields(code: RequestCode) -> None:
    header = HOT[code]

    head = decode_head(frame_of(Command(code, header.encode(), opaque=-3, version=407)))

    assert head is not None
    assert not isinstance(head, HeartbeatHead)
    assert head.ext == header
    assert type(head.ext) is request_header(code)
    assert (head.code, head.opaque, head.flag, head.version) == (code, -3, 0, 407)


def test_a_heartbeat_has_no_ext_fields_and_has_its_language() -> None:
    signed = Command(RequestCode.HEART_BEAT, {"AccessKey": "a"}, b"{}", opaque=9, language=Language.GO)

    head = decode_head(frame_of(signed))

    assert isinstance(head, HeartbeatHead)
    assert (head.code, head.opaque, head.language) == (34, 9, Language.GO)
    by_number = decode_head(frame_with({"code": 34, "language": 12}))
    assert isinstance(by_number, HeartbeatHead)
    assert by_number.language is Language.RUST


def test_a_one_way_request_has_a_hot_header_too() -> None:
    head = decode_head(offset_update(flag=ONEWAY))

    assert isinstance(head, UpdateOffsetHead)
    assert head.flag == ONEWAY


def test_fields_that_the_header_does_not_declare_are_skipped() -> None:
    ext = HOT[RequestCode.SEND_MESSAGE_V2].encode() | {"AccessKey": "key", "Signature": "…", "ReqT": "0"}

    head = decode_head(frame_of(Command(RequestCode.SEND_MESSAGE_V2, ext)))

    assert isinstance(head, SendV2Head)
    assert head.ext == HOT[RequestCode.SEND_MESSAGE_V2]


@pytest.mark.parametrize(
    "frame",
    [
        offset_update(flag=RESPONSE),
        offset_update(flag=RESPONSE | ONEWAY),
        offset_update(code=16),
        offset_update(code=105),
        offset_update(code=-15),
        offset_update(code=None),
        offset_update(opaque=2**31),
        offset_update(opaque=None),
        offset_update(flag="none"),
        offset_update(version=-(2**31) - 1),
        offset_update(extFields=None),
        offset_update(extFields={}),
        offset_update(extFields={"consumerGroup": "CG", "topic": "T", "queueId": "three", "commitOffset": "1"}),
        offset_update(extFields={"consumerGroup": "CG", "topic": "T", "queueId": "2147483648", "commitOffset": "1"}),
        offset_update(extFields={"consumerGroup": 5, "topic": "T", "queueId": "3", "commitOffset": "1"}),
        (0, b"", b""),
        (0, b"[]", b""),
        (0, b'{"code":15,"extFields":{"topic":"\xff"}}', b""),
        (0, b'{"code":15,"x":' + b"[" * 200_000, b""),
    ],
)
def test_irregular_hot_requests_are_left_to_the_general_decoder(frame: Frame) -> None:
    assert decode_head(frame) is None


def test_binary_headers_are_left_to_the_general_decoder() -> None:
    header = HOT[RequestCode.SEND_MESSAGE_V2]
    command = Command(RequestCode.SEND_MESSAGE_V2, header.encode(), encoding=HeaderEncoding.ROCKETMQ)
    frame = frame_of(command)

    assert decode_head(frame) is None
    assert SendMessageV2.decode(decode_command(frame).ext) == header


@given(
    code=st.sampled_from(sorted(HOT)),
    outer=st.dictionaries(st.sampled_from(["opaque", "flag", "version"]), JSON_VALUES | NUMBERS_AS_TEXT),
    data=st.data(),
)
def test_a_hot_header_equals_the_general_decoding(
    code: RequestCode, outer: dict[str, object], data: st.DataObject
) -> None:
    declared = type(HOT[code])
    ext: dict[str, object] = dict(HOT[code].encode())
    ext |= data.draw(st.dictionaries(st.sampled_from(declared.__struct_encode_fields__), JSON_VALUES, max_size=3))
    frame = frame_with({"code": code, "extFields": ext} | outer)

    head = decode_head(frame)

    if head is not None:
        command = decode_command(frame)
        assert not isinstance(head, HeartbeatHead)
        assert head.ext == declared.decode(command.ext)
        assert (head.opaque, head.flag, head.version) == (command.opaque, command.flag, command.version)
        assert not head.flag & RESPONSE


@given(st.sampled_from([0, 1]), st.binary(max_size=200))
def test_arbitrary_bytes_never_raise(encoding: int, header: bytes) -> None:
    assert decode_head((encoding, header, b"")) is None


@given(st.sampled_from(sorted(HOT)), st.data())
def test_damaged_headers_never_raise(code: RequestCode, data: st.DataObject) -> None:
    encoding, header, body = frame_of(Command(code, HOT[code].encode()))
    damaged = bytearray(header)
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))

    decode_head((encoding, bytes(damaged), body))


@pytest.mark.parametrize("padded", ["0000000012", "+12", "12"])
def test_a_number_with_zeros_before_it_is_read_as_java_reads_it(padded: str) -> None:
    ext = {
        "consumerGroup": "007",
        "topic": "0012",
        "queueId": "0",
        "queueOffset": padded,
        "maxMsgNums": "032",
        "sysFlag": "0",
        "commitOffset": "-07",
        "suspendTimeoutMillis": "0",
        "subVersion": "0",
    }

    header = PullMessage.decode(ext)

    assert (header.consumer_group, header.topic) == ("007", "0012")
    assert (header.queue_offset, header.max_msg_nums, header.commit_offset) == (12, 32, -7)


def test_a_hot_request_with_padded_numbers_stays_hot() -> None:
    header = (
        b'{"code":15,"extFields":{"consumerGroup":"007","topic":"00","queueId":"00","commitOffset":"0000000012"},'
        b'"flag":0,"language":"JAVA","opaque":1,"serializeTypeCurrentRPC":"JSON","version":479}'
    )

    head = decode_head((0, header, b""))

    assert isinstance(head, UpdateOffsetHead)
    assert (head.ext.consumer_group, head.ext.topic, head.ext.queue_id, head.ext.commit_offset) == ("007", "00", 0, 12)

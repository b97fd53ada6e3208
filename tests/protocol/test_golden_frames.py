"""Every frame that the real servers, clients and tools sent: read, written again, and matched with what we declare.

Two kinds of frames are not written again byte for byte, and both are compared by value instead:
- requests that were written by hand (`raw`, language PYTHON, version 0): their keys stand in another order, and some ext
  values are numbers or booleans instead of texts;
- signed sends and pulls of a 5.3.3 client with binary headers: Java writes every field of the header class a second time
  when it adds the signature. Both writings agree, and we keep one.
"""

from collections.abc import Iterator
from functools import cache
from random import Random

from tests.golden import Captured, captured, needs_golden
from tests.protocol.request_tables import (
    BROKER_REQUESTS,
    CLIENT_REQUESTS,
    NAME_SERVER_REQUESTS,
    REPLIES,
    SAME_REPLY,
    rows,
)

from pocketmq.codes import Language, RequestCode, ResponseCode
from pocketmq.errors import HeaderError
from pocketmq.protocol.api import REQUESTS, request_header
from pocketmq.protocol.api.messages import PullReply
from pocketmq.protocol.command import Command, decode_command, encode_command
from pocketmq.protocol.fields import Fields, NoFields
from pocketmq.protocol.frames import Frame, FrameSplitter, split_frames
from pocketmq.protocol.hot_headers import (
    HEARTBEAT_REPLIES,
    OFFSET_UPDATED,
    BatchAckHead,
    HeartbeatHead,
    PullReplies,
    SendReplies,
    decode_head,
    offset_reply,
    with_code,
)

pytestmark = needs_golden

FRAMES_CAPTURED = 6720
SIGNED_TWICE = "wire/5.3.3/binary/acl.jsonl"
GENERIC_FIELDS = frozenset(
    [
        "bname",
        "ns",
        "nsd",
        "lo",
        "oway",
        "ReqT",
        "__ZONE_NAME",
        "__ZONE_MODE",
        "AccessKey",
        "SecurityToken",
        "Signature",
    ]
)
"""What any request may have besides the fields of its header."""
HOT_CODES = frozenset({10, 11, 14, 15, 34, 310, 320, 361, 200050, 200051, 200053, 200151})
NOT_CAPTURED = frozenset({200053, 200151})

WRONG_ON_PURPOSE = frozenset({(105, ""), (310, ""), (14, ""), (11, "topic")})
"""Requests of the `raw` conversations that lack mandatory fields: code, and the fields they do have."""

WITH_RESPONSE_HEADER = frozenset(
    {
        ResponseCode.SUCCESS,
        ResponseCode.PULL_NOT_FOUND,
        ResponseCode.PULL_RETRY_IMMEDIATELY,
        ResponseCode.PULL_OFFSET_MOVED,
    }
)


@cache
def decoded() -> tuple[tuple[Captured, Command], ...]:
    return tuple((frame, frame.command) for frame in captured())


def requests() -> Iterator[tuple[Captured, Command]]:
    return ((frame, command) for frame, command in decoded() if not command.is_response)


def written_by_hand(frame: Captured, command: Command) -> bool:
    return "/raw.jsonl:" in frame.name and command.language == Language.PYTHON


def written_again(header: Fields) -> set[tuple[str, str]]:
    return set(header.encode().items())


def own_fields(header: type[Fields], command: Command) -> set[tuple[str, str]]:
    """The ext fields of a command without the generic ones, unless its header declares them itself."""
    left_out = GENERIC_FIELDS - set(header.__struct_encode_fields__)
    return {(name, value) for name, value in (command.ext or {}).items() if name not in left_out}


def fed(frame: bytes, sizes: Iterator[int]) -> list[Frame]:
    splitter = FrameSplitter()
    frames: list[Frame] = []
    at = 0
    while at < len(frame):
        size = next(sizes)
        frames += splitter.feed(frame[at : at + size])
        at += size
    assert splitter.failure is None
    assert splitter.pending == 0
    return frames


def forever(size: int) -> Iterator[int]:
    while True:
        yield size


def test_all_captured_frames_exist() -> None:
    assert len(decoded()) == FRAMES_CAPTURED


def test_a_decoded_frame_is_encoded_to_the_same_bytes() -> None:
    different = [
        (frame, command)
        for frame, command in decoded()
        if encode_command(command) != frame.frame and not written_by_hand(frame, command)
    ]

    assert {frame.name.partition(":")[0] for frame, _ in different} == {SIGNED_TWICE}
    assert len(different) == 4
    assert {command.code for _, command in different} == {RequestCode.SEND_MESSAGE_V2, RequestCode.PULL_MESSAGE}


def test_frames_with_other_bytes_decode_to_the_same_command() -> None:
    for frame, command in decoded():
        (again,) = split_frames(encode_command(command))
        assert decode_command(again) == command, frame.name


def test_frames_fed_byte_by_byte_are_the_same() -> None:
    for frame, _ in decoded():
        assert fed(frame.frame, forever(1)) == split_frames(frame.frame), frame.name


def test_a_conversation_in_random_pieces_has_the_same_frames() -> None:
    random = Random(3)
    stream = b"".join(frame.frame for frame, _ in decoded())

    frames = fed(stream, iter(lambda: random.choice((1, 7, 100, 1448, 20_000)), 0))

    assert frames == [split_frames(frame.frame)[0] for frame, _ in decoded()]


def test_an_incomplete_frame_waits_for_its_rest() -> None:
    following = decoded()[-1][0].frame
    for frame, _ in decoded():
        splitter = FrameSplitter()

        assert splitter.feed(frame.frame + following[:11]) == split_frames(frame.frame), frame.name
        assert splitter.pending == 11
        assert splitter.feed(following[11:]) == split_frames(following)


def test_every_captured_request_fits_its_declared_header() -> None:
    refused = []
    for frame, command in requests():
        if command.code not in REQUESTS:
            continue
        try:
            header = request_header(command.code).decode(command.ext)
        except HeaderError:
            refused.append((frame, command))
            continue
        assert written_again(header) == own_fields(type(header), command), frame.name

    assert all("/raw.jsonl:" in frame.name for frame, _ in refused)
    assert {(command.code, "".join(command.ext or ())) for _, command in refused} == WRONG_ON_PURPOSE


def test_a_request_without_a_header_has_no_fields_or_is_not_served() -> None:
    served = rows(BROKER_REQUESTS) | rows(NAME_SERVER_REQUESTS) | rows(CLIENT_REQUESTS)
    with_fields = {command.code for _, command in requests() if own_fields(NoFields, command)}

    assert {code for code in with_fields - set(REQUESTS) if code in served} == set()


def test_every_captured_response_fits_the_declared_header_of_its_request() -> None:
    checked = 0
    for frame, command in decoded():
        if not command.is_response or frame.answers not in rows(BROKER_REQUESTS) | rows(NAME_SERVER_REQUESTS):
            continue
        declared = REPLIES.get(SAME_REPLY.get(frame.answers, frame.answers), NoFields)
        assert set(command.ext or ()) <= set(declared.__struct_encode_fields__), frame.name
        if command.code in WITH_RESPONSE_HEADER:
            assert written_again(declared.decode(command.ext)) == own_fields(declared, command), frame.name
            checked += 1

    assert checked > 2500


def test_hot_headers_equal_the_general_decoder() -> None:
    seen = set()
    for frame, command in requests():
        (split,) = split_frames(frame.frame)
        head = decode_head(split)
        if head is None:
            continue
        assert (head.code, head.opaque, head.flag, head.version) == (
            command.code,
            command.opaque,
            command.flag,
            command.version,
        ), frame.name
        if isinstance(head, HeartbeatHead):
            assert head.language == command.language, frame.name
        elif isinstance(head, BatchAckHead):
            assert not own_fields(NoFields, command), frame.name
        else:
            assert head.ext == type(head.ext).decode(command.ext), frame.name
        seen.add(command.code)

    assert seen == HOT_CODES - NOT_CAPTURED


def test_every_well_formed_hot_request_with_a_json_header_has_a_hot_head() -> None:
    for frame, command in requests():
        fields = "".join(command.ext or ())
        hot = command.code in HOT_CODES and not command.encoding and (command.code, fields) not in WRONG_ON_PURPOSE
        (split,) = split_frames(frame.frame)
        assert (decode_head(split) is not None) == hot, frame.name


def test_no_response_has_a_hot_head() -> None:
    for frame, command in decoded():
        if command.is_response:
            (split,) = split_frames(frame.frame)
            assert decode_head(split) is None, frame.name


def composed(frame: Captured, answer: Command) -> bytes | None:
    """The same answer from our templates; None if an answer of that kind has none."""
    ext = answer.ext or {}
    match frame.answers:
        case 10 | 310 | 320 | 325 if "msgId" in ext:
            stored = SendReplies(ext["MSG_REGION"], ext["TRACE_ON"] == "true").encode(
                answer.opaque,
                ext["msgId"].encode(),
                int(ext["queueId"]),
                int(ext["queueOffset"]),
                ext.get("transactionId"),
                ext.get("recallHandle"),
            )
            return with_code(stored, answer.code) if answer.code else stored
        case 11 | 361 if answer.code in WITH_RESPONSE_HEADER:
            replies = PullReplies(answer.code, answer.remark or "", int(ext["suggestWhichBrokerId"]))
            reply = PullReply.decode(ext)
            head = replies.head(
                answer.opaque, reply.next_begin_offset, reply.min_offset, reply.max_offset, len(answer.body)
            )
            return head + answer.body
        case 14 | 29 | 30 | 31 if "offset" in ext:
            return offset_reply(answer.opaque, int(ext["offset"]))
        case 15 if answer.code == ResponseCode.SUCCESS and answer.remark is None:
            return OFFSET_UPDATED.encode(answer.opaque)
        case 34 if ext:
            return HEARTBEAT_REPLIES.encode(answer.opaque)
    return None


def test_our_answers_have_the_captured_fields() -> None:
    seen = set()
    for frame, theirs in decoded():
        frame_bytes = composed(frame, theirs) if theirs.is_response else None
        if frame_bytes is None:
            continue
        ours = Captured("", frame_bytes, None, "", forward=False).command
        bare = {
            name: value for name, value in (theirs.ext or {}).items() if name not in ("topicSysFlag", "groupSysFlag")
        }
        assert (ours.ext or {}) == bare, frame.name
        assert (ours.code, ours.remark, ours.flag, ours.opaque, ours.body) == (
            theirs.code,
            theirs.remark or None,
            theirs.flag,
            theirs.opaque,
            theirs.body,
        ), frame.name
        seen.add(frame.answers)

    assert seen == {10, 11, 14, 15, 29, 30, 31, 34, 310, 320, 325, 361}

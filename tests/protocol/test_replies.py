"""Replies from templates: the same bytes as from the general encoder."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.codes import ResponseCode
from pocketmq.protocol.api.messages import HeartbeatReply, OffsetReply, PopReply, PullReply, SendReply
from pocketmq.protocol.command import RESPONSE, Command, encode_command
from pocketmq.protocol.fields import Fields
from pocketmq.protocol.frames import join_frame
from pocketmq.protocol.hot_headers import (
    HEARTBEAT_REPLIES,
    HEARTBEAT_REPLIES_UNCHANGED,
    OFFSET_UPDATED,
    FixedReplies,
    PullReplies,
    SendReplies,
    offset_reply,
    pop_reply,
    with_code,
)

OPAQUES = st.integers(-(2**31), 2**31 - 1)
OFFSETS = st.integers(-(2**63), 2**63 - 1)
QUEUE_IDS = st.integers(0, 2**31 - 1)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
MSG_IDS = st.lists(st.from_regex(r"[0-9A-F]{32}", fullmatch=True), min_size=1, max_size=40).map(",".join)


def general(opaque: int, header: Fields, code: int = 0, remark: str | None = None, body: bytes = b"") -> bytes:
    return encode_command(Command(code, header.encode(), body, remark, RESPONSE, opaque))


@given(
    region=TEXTS,
    trace_on=st.booleans(),
    opaque=OPAQUES,
    msg_id=MSG_IDS,
    queue_id=QUEUE_IDS,
    queue_offset=OFFSETS,
    transaction_id=st.none() | TEXTS | st.from_regex(r"[0-9A-F]{32}", fullmatch=True),
)
def test_a_send_reply_equals_that_of_the_general_encoder(
    region: str,
    trace_on: bool,
    opaque: int,
    msg_id: str,
    queue_id: int,
    queue_offset: int,
    transaction_id: str | None,
) -> None:
    replies = SendReplies(region, trace_on)
    header = SendReply(msg_id, queue_id, queue_offset, transaction_id, region=region, trace_on=trace_on)

    frame = replies.encode(opaque, msg_id.encode(), queue_id, queue_offset, transaction_id)

    assert frame == general(opaque, header)
    assert replies.encode(opaque, msg_id.encode(), queue_id, queue_offset, transaction_id) == frame


@given(region=TEXTS, opaques=st.lists(OPAQUES, max_size=4), code=st.sampled_from([10, 11, 12]), transaction_id=TEXTS)
def test_an_answer_made_for_success_can_get_another_code(
    region: str, opaques: list[int], code: int, transaction_id: str
) -> None:
    replies = SendReplies(region, True)
    header = SendReply("AB", 2, 3, transaction_id, region=region, trace_on=True)
    made = b"".join(replies.encode(opaque, b"AB", 2, 3, transaction_id) for opaque in opaques)

    assert with_code(made, code) == b"".join(general(opaque, header, code) for opaque in opaques)


@given(region=TEXTS, trace_on=st.booleans())
def test_the_template_of_an_answer_is_the_answer_without_its_values(region: str, trace_on: bool) -> None:
    replies = SendReplies(region, trace_on)
    values = (b"AB", b"2", b"3", b"CD", b"1")

    header = b"".join(part + value for part, value in zip(replies.parts, (*values, b""), strict=True))

    assert join_frame(0, header) == replies.encode(1, b"AB", 2, 3, "CD")


@pytest.mark.parametrize("transaction_id", ['"', "\\", "\n", "\x7f", "é", "中", '","msgId":"forged', "", "null", "a b"])
def test_a_transaction_id_is_escaped_in_its_answer(transaction_id: str) -> None:
    frame = SendReplies("R", True).encode(1, b"AB", 2, 3, transaction_id)

    assert frame == general(1, SendReply("AB", 2, 3, transaction_id, region="R", trace_on=True))


def test_a_batch_reply_may_be_longer_than_others() -> None:
    msg_id = ",".join(["7F00000100004A420000000000002490"] * 64)

    frame = SendReplies("R", False).encode(1, msg_id.encode(), 2, 3, "CD")

    assert frame == general(1, SendReply(msg_id, 2, 3, "CD", region="R", trace_on=False))


@given(
    code=st.sampled_from([0, 19, 20, 21]),
    remark=TEXTS,
    broker_id=st.integers(0, 9),
    opaque=OPAQUES,
    offsets=st.tuples(OFFSETS, OFFSETS, OFFSETS),
    body=st.binary(max_size=100),
)
def test_a_pull_reply_equals_that_of_the_general_encoder(
    code: int, remark: str, broker_id: int, opaque: int, offsets: tuple[int, int, int], body: bytes
) -> None:
    head = PullReplies(code, remark, broker_id).head(opaque, *offsets, body_size=len(body))

    assert head + body == general(opaque, PullReply(broker_id, *offsets), code, remark, body)


def test_the_code_of_a_pull_reply_may_be_named() -> None:
    head = PullReplies(ResponseCode.PULL_NOT_FOUND, "NO_MESSAGE_IN_QUEUE").head(1, 0, 0, 0)

    assert head == general(1, PullReply(0, 0, 0, 0), 19, "NO_MESSAGE_IN_QUEUE")


@given(OPAQUES, OFFSETS)
def test_an_offset_reply_equals_that_of_the_general_encoder(opaque: int, offset: int) -> None:
    assert offset_reply(opaque, offset) == general(opaque, OffsetReply(offset))


@given(st.none() | st.dictionaries(TEXTS | st.just('","opaque":0,'), TEXTS | st.just('","opaque":0,')), OPAQUES)
def test_a_fixed_reply_equals_that_of_the_general_encoder(ext: dict[str, str] | None, opaque: int) -> None:
    assert FixedReplies(ext).encode(opaque) == encode_command(Command(0, ext, flag=RESPONSE, opaque=opaque))


@given(OPAQUES)
def test_offset_updates_and_heartbeats_are_answered_as_by_rocketmq_5(opaque: int) -> None:
    assert OFFSET_UPDATED.encode(opaque) == encode_command(Command(0, {}, flag=RESPONSE, opaque=opaque))
    assert HEARTBEAT_REPLIES.encode(opaque) == general(
        opaque, HeartbeatReply(support_heartbeat_v2=True, sub_change=True)
    )
    assert HEARTBEAT_REPLIES_UNCHANGED.encode(opaque) == general(
        opaque, HeartbeatReply(support_heartbeat_v2=True, sub_change=False)
    )


@given(
    opaque=OPAQUES,
    numbers=st.tuples(OFFSETS, OFFSETS, QUEUE_IDS, OFFSETS),
    starts=st.from_regex(r"[0-2] [0-9] [0-9]{1,9}", fullmatch=True),
    counts=st.none() | st.from_regex(r"0 qo[0-9]%[0-9]{1,9} 1;0 [0-9] 1", fullmatch=True),
    body=st.binary(max_size=40),
)
def test_a_pop_reply_equals_that_of_the_general_encoder(
    opaque: int, numbers: tuple[int, int, int, int], starts: str, counts: str | None, body: bytes
) -> None:
    reply = PopReply(*numbers, starts, f"{starts},7;{starts}", counts)

    assert pop_reply(opaque, reply, len(body)) + body == general(opaque, reply, remark="FOUND", body=body)

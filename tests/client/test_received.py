"""Messages as their receiver gets them."""

import zlib

import pytest
from tests.client.messages import stored

from pocketmq.client.received import is_of_inner_batch, readable, received, split_inner_batches
from pocketmq.codes import SysFlag
from pocketmq.errors import ProtocolError, UnreadableMessage
from pocketmq.model.queue import MessageQueue
from pocketmq.protocol.batch import encode_batch
from pocketmq.protocol.record import encode_message

PACKED = SysFlag.INNER_BATCH | SysFlag.NEED_UNWRAP

QUEUE = MessageQueue("T", "broker-a", 0)


def test_a_plain_message_is_unchanged() -> None:
    message = stored()

    assert readable(message, None) is message
    assert split_inner_batches([message], 1) == [message]


def test_a_compressed_body_is_decompressed_and_the_namespace_removed() -> None:
    seen = readable(stored(0, zlib.compress(b"long"), topic="ns%T", sys_flag=SysFlag.COMPRESSED), "ns")

    assert (seen.body, seen.topic, seen.sys_flag) == (b"long", "T", 0)


def test_an_inner_batch_is_split() -> None:
    body = encode_batch([(7, b"a", b"TAGS\x01A\x02"), (8, b"b", b"TAGS\x01B\x02")])
    packed = stored(10, zlib.compress(body), sys_flag=PACKED | SysFlag.COMPRESSED)

    first, second, third = split_inner_batches([packed, stored(12)], 13)

    assert [(one.queue_offset, one.body, one.flag, one.tags) for one in (first, second)] == [
        (10, b"a", 7, "A"),
        (11, b"b", 8, "B"),
    ]
    assert (first.sys_flag, third.queue_offset) == (0, 12)
    assert is_of_inner_batch(first)
    assert not is_of_inner_batch(third)


TWO = encode_batch([(0, b"a", b""), (0, b"b", b"")])


@pytest.mark.parametrize(
    ("body", "next_offset", "reason"),
    [
        (TWO, 11, "an inner batch of 2 messages, but the broker used its offsets for others"),
        (b"\x00\x00\x00\x01crafted", 11, "is not a valid inner batch: item 0 of the batch"),
        (TWO[:-1], 12, "is not a valid inner batch: item 1 of the batch"),
        (encode_batch([]), 11, "an inner batch of 0 messages"),
    ],
)
def test_an_invalid_inner_batch_stays_one_unreadable_message(body: bytes, next_offset: int, reason: str) -> None:
    packed = stored(10, body, sys_flag=PACKED)

    for messages in (
        split_inner_batches([packed], next_offset),
        split_inner_batches([packed, stored(next_offset)], next_offset + 1),
    ):
        assert messages[0] is packed
    with pytest.raises(UnreadableMessage, match=reason):
        readable(packed, None)


def test_a_damaged_body_affects_one_message() -> None:
    sound, flipped = stored(4, b"sound"), stored(5, b"flipped")
    records = (
        encode_message(sound) + encode_message(flipped).replace(b"flipped", b"fl1pped") + encode_message(stored(6))
    )

    messages, next_offset = received(records, QUEUE, 7)

    assert [one.queue_offset for one in messages] == [4, 5, 6]
    assert readable(messages[0], None).body == b"sound"
    assert {one.queue for one in messages} == {QUEUE}
    with pytest.raises(UnreadableMessage, match="checksum"):
        readable(messages[1], None)
    assert readable(messages[2], None).body == b"body"
    assert next_offset == 7


def test_records_after_an_inconsistent_record_are_ignored() -> None:
    sound = encode_message(stored(4))
    broken = encode_message(stored(5))[:-3]

    messages, next_offset = received(sound + broken, QUEUE, 6)

    assert [one.queue_offset for one in messages] == [4]
    assert next_offset == 5
    with pytest.raises(ProtocolError):
        received(broken, QUEUE, 6)

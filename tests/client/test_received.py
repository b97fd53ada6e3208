"""Messages as their receiver wants them."""

import zlib

from tests.client.messages import stored

from pocketmq.client.received import one_by_one, readable
from pocketmq.model.flags import SysFlag
from pocketmq.protocol.batch import encode_batch

PACKED = SysFlag.INNER_BATCH | SysFlag.NEED_UNWRAP


def test_a_plain_message_is_left_as_it_is() -> None:
    message = stored()

    assert readable(message, None) is message
    assert one_by_one([message]) == [message]


def test_a_compressed_body_is_as_it_was_and_the_namespace_is_gone() -> None:
    seen = readable(stored(0, zlib.compress(b"long"), topic="ns%T", sys_flag=SysFlag.COMPRESSED), "ns")

    assert (seen.body, seen.topic, seen.sys_flag) == (b"long", "T", 0)


def test_a_batch_that_lies_in_the_queue_as_one_comes_apart() -> None:
    body = encode_batch([(7, b"a", b"TAGS\x01A\x02"), (8, b"b", b"TAGS\x01B\x02")])
    packed = stored(10, zlib.compress(body), sys_flag=PACKED | SysFlag.COMPRESSED)

    first, second, third = one_by_one([packed, stored(12)])

    assert [(one.queue_offset, one.body, one.flag, one.tags) for one in (first, second)] == [
        (10, b"a", 7, "A"),
        (11, b"b", 8, "B"),
    ]
    assert (first.sys_flag, third.queue_offset) == (0, 12)

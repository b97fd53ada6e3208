"""The batch body: RocketMQ's bytes, and invalid bytes."""

import struct
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.golden import captured, needs_golden

from pocketmq.codes import RequestCode
from pocketmq.errors import InvalidMessage, ProtocolError
from pocketmq.protocol.batch import MAX_ITEMS, BatchItem, decode_batch, encode_batch

TWO_ITEMS = bytes.fromhex("0000001F000000000000000000000000000000026231000754414753014102" * 2)

items = st.lists(
    st.tuples(st.integers(-(2**31), 2**31 - 1), st.binary(max_size=80), st.binary(max_size=80)), max_size=8
)


def test_two_items_have_the_bytes_of_java() -> None:
    item = (0, b"b1", b"TAGS\x01A\x02")

    assert encode_batch([item, item]) == TWO_ITEMS
    assert decode_batch(TWO_ITEMS) == [item, item]


@needs_golden
def test_every_captured_batch_survives_decoding_and_encoding() -> None:
    bodies = [frame.command.body for frame in captured() if frame.command.code == RequestCode.SEND_BATCH_MESSAGE]

    assert len(bodies) >= 6
    for body in bodies:
        assert encode_batch(decode_batch(body)) == body
    assert {body for _, body, _ in decode_batch(bodies[0])} == {b"batch item 0", b"batch item 1", b"batch item 2"}


def test_an_empty_body_is_an_empty_batch() -> None:
    assert encode_batch([]) == b""
    assert decode_batch(b"") == []


@given(items)
def test_any_items_are_preserved(batch: list[BatchItem]) -> None:
    assert decode_batch(encode_batch(batch)) == batch


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_complete_items_or_a_protocol_error(body: bytes) -> None:
    with suppress(ProtocolError):
        found = decode_batch(body)

        assert len(encode_batch(found)) == len(body)


@given(items.filter(bool), st.data())
def test_one_changed_byte_raises_at_most_a_protocol_error(batch: list[BatchItem], data: st.DataObject) -> None:
    body = bytearray(encode_batch(batch))
    body[data.draw(st.integers(0, len(body) - 1))] ^= data.draw(st.integers(1, 255))

    with suppress(ProtocolError):
        decode_batch(bytes(body))


@pytest.mark.parametrize("kept", range(len(TWO_ITEMS)))
def test_a_truncated_batch_names_the_incomplete_item(kept: int) -> None:
    if kept in (0, 31):
        assert len(decode_batch(TWO_ITEMS[:kept])) == kept // 31
        return

    with pytest.raises(ProtocolError, match=f"item {kept // 31} of the batch, at byte {kept // 31 * 31} of {kept}"):
        decode_batch(TWO_ITEMS[:kept])


@pytest.mark.parametrize(
    ("at", "value", "reason"),
    [
        (0, 0, "size 0 is not between 22 and 31"),
        (0, -1, "size -1 is not between 22 and 31"),
        (0, 21, "size 21 is not between 22 and 31"),
        (0, 32, "size 32 is not between 22 and 31"),
        (0, 2**31 - 1, "size 2147483647 is not between 22 and 31"),
        (0, 30, "properties of 7 bytes, but the item has 6 bytes left"),
        (16, -1, "a body of -1 bytes in an item of 31"),
        (16, 10, "a body of 10 bytes in an item of 31"),
        (16, 2**31 - 1, "a body of 2147483647 bytes in an item of 31"),
        (16, 9, "properties of 16642 bytes, but the item has 0 bytes left"),
    ],
)
def test_an_impossible_size_is_named(at: int, value: int, reason: str) -> None:
    body = bytearray(TWO_ITEMS)
    struct.pack_into(">i", body, 31 + at, value)

    with pytest.raises(ProtocolError) as refused:
        decode_batch(bytes(body))

    assert str(refused.value) == f"item 1 of the batch, at byte 31 of 62: {reason}"


def test_properties_longer_than_a_signed_short_are_refused() -> None:
    sound = struct.pack(">iqiiH", 22 + 32768, 0, 0, 0, 32768) + bytes(32768)

    with pytest.raises(ProtocolError, match="item 0"):
        decode_batch(sound)


def test_items_up_to_the_limit_are_accepted_and_more_are_refused() -> None:
    smallest = encode_batch([(0, b"", b"")])

    assert len(decode_batch(smallest * 3, max_items=3)) == 3
    with pytest.raises(ProtocolError, match="more than 3 items"):
        decode_batch(smallest * 4, max_items=3)
    with pytest.raises(ProtocolError, match=f"more than {MAX_ITEMS} items"):
        decode_batch(smallest * (MAX_ITEMS + 1))


@pytest.mark.parametrize("item", [(2**31, b"a", b""), (-(2**31) - 1, b"a", b""), (0, b"a", bytes(32768))])
def test_an_item_that_does_not_fit_is_refused_by_its_number(item: BatchItem) -> None:
    with pytest.raises(InvalidMessage, match="item 1 of the batch"):
        encode_batch([(0, b"sound", b""), item])


def test_properties_of_the_maximum_length_are_accepted() -> None:
    item = (-1, b"", bytes(32767))

    assert decode_batch(encode_batch([item])) == [item]

"""Zeros in properties that look like the damage of a crash."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.store.open_store import OpenStore

from pocketmq.errors import InvalidMessage
from pocketmq.model.properties import parse_properties
from pocketmq.store.log.log_scan import SECTOR_BYTES, looks_cut, moved_on

TEXTS = st.lists(st.sampled_from([b"name\x01value\x02", b"n\x01a\0b\x02", b"\0", b"x" * 97]), max_size=60).map(b"".join)


@pytest.mark.parametrize(
    ("text", "at", "expected"),
    [
        (b"text", 510, False),
        (b"ab\0cd", 509, True),
        (b"ab\0cd", 508, False),
        (b"ab\0cd", 510, False),
        (b"ab\0", 0, True),
        (b"a" * 600 + b"\0b", SECTOR_BYTES * 2 - 601, True),
    ],
)
def test_a_zero_at_the_end_of_a_sector_or_text_looks_like_a_lost_sector(text: bytes, at: int, expected: bool) -> None:
    assert looks_cut(text, at) is expected


@given(TEXTS, st.integers(0, 5000))
def test_padded_properties_have_the_same_meaning_and_do_not_look_damaged(text: bytes, at: int) -> None:
    longer = moved_on(text, at)

    if longer is None:
        shifts = [b"\x02" * count + text for count in range(1, SECTOR_BYTES)]
        assert all(looks_cut(shifted, at) for shifted in shifts)
    else:
        assert not looks_cut(longer, at)
        assert parse_properties(longer.decode()) == parse_properties(text.decode())


def test_properties_full_of_zeros_cannot_be_padded() -> None:
    assert moved_on(b"n\x01" + bytes(SECTOR_BYTES) + b"x\x02", 0) is None
    assert moved_on(b"n\x01" + bytes(SECTOR_BYTES - 1) + b"x\x02", 0) is not None
    assert moved_on(b"n\x01\0", 0) is None


def test_a_zero_at_any_position_is_accepted_and_survives_a_crash() -> None:
    opened = OpenStore.small(log_file_bytes=64 * 1024, queue_file_entries=1000)
    for number in range(SECTOR_BYTES + 1):
        opened.send(b"%d" % number, properties="KEYS\x01k\x02own\x01a\0b\x02")

    again = opened.crash()

    result = again.store.read("T", 0, SECTOR_BYTES, 1)
    assert result.count == 1
    messages = [again.store.message(at) for at in _log_offsets(again)]
    assert [message.body for message in messages if message] == [b"%d" % n for n in range(SECTOR_BYTES + 1)]
    assert all(message and message.properties == {"KEYS": "k", "own": "a\0b"} for message in messages)
    assert len(again.store.find_by_key("T", "k", 64)) == 64


def test_a_message_at_a_bad_position_of_the_next_file_is_padded_there_too() -> None:
    opened = OpenStore.small()
    properties = "own\x01" + "a\0" * 300 + "b\x02"
    for number in range(60):
        opened.send(b"%d" % number * (number % 7 + 1), properties=properties)
        opened.run_workers()

    again = opened.crash()

    assert len(again.bodies()) == 60


@settings(max_examples=25)
@given(st.lists(TEXTS, min_size=1, max_size=12))
def test_all_accepted_messages_exist_after_a_crash(texts: list[bytes]) -> None:
    opened = OpenStore.small(prepared_files=20, log_file_bytes=8192)
    taken = []
    for number, text in enumerate(texts):
        try:
            opened.send(b"%d" % number, properties=text.decode())
        except InvalidMessage:
            opened.store.abandon_turn()
        else:
            taken.append(b"%d" % number)
        opened.run_workers()

    assert opened.crash().bodies() == taken


def _log_offsets(opened: OpenStore) -> list[int]:
    queue = opened.store.find_queue("T", 0)
    assert queue is not None
    return [log_offset for log_offset, _, _ in queue.entries(0, queue.max_offset)]

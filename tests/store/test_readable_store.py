"""Searches in a store by key, offset and time."""

import logging

import pytest
from tests.store.kit import ROOT
from tests.store.open_store import OpenStore

from pocketmq.codes import BoundaryType
from pocketmq.errors import StoreDamaged
from pocketmq.store.index.index_file import key_hash
from pocketmq.testing.fake_clock import START_MS

HOUR_MS = 3_600_000


# time


def test_store_times_never_decrease() -> None:
    opened = OpenStore.small()
    opened.send(b"one")
    opened.clock.step_ms(-HOUR_MS)
    opened.send(b"two")
    opened.clock.advance_ms(1000)
    opened.send(b"three")

    assert [opened.store.store_ms("T", 0, offset) for offset in range(3)] == [START_MS] * 3
    again = opened.reopen()
    again.send(b"four")
    again.clock.advance_ms(2 * HOUR_MS)
    again.send(b"five")
    assert [again.store.store_ms("T", 0, offset) for offset in (3, 4)] == [START_MS, START_MS + HOUR_MS + 1000]


def test_offsets_are_found_by_time() -> None:
    opened = OpenStore.small()
    for _ in range(3):
        opened.send(b"a", b"b")
        opened.clock.advance_ms(1000)
    at = opened.store.offset_at_time

    assert [at("T", 0, START_MS + ms) for ms in (-1, 0, 1, 1000, 2000, 2001)] == [0, 0, 2, 2, 4, 6]
    assert [at("T", 0, START_MS + ms, BoundaryType.UPPER) for ms in (-1, 0, 999, 1000, 9999)] == [0, 1, 1, 3, 5]
    assert at("unknown", 0, START_MS) == 0
    assert opened.store.store_ms("T", 0, 2) == START_MS + 1000
    assert opened.store.store_ms("T", 0, 6) is None
    assert opened.store.store_ms("unknown", 0, 0) is None


# looking up


def test_messages_are_found_by_their_keys_the_newest_first() -> None:
    opened = OpenStore.small()
    for number in range(3):
        opened.send(b"%d" % number, properties=f"KEYS\x01red k{number}\x02UNIQ_KEY\x01id{number}\x02")
        opened.clock.advance_ms(5000)
    opened.send(b"other", topic="U", properties="KEYS\x01red\x02")
    find = opened.store.find_by_key

    assert [message.body for message in find("T", "red", 10)] == [b"2", b"1", b"0"]
    assert [message.body for message in find("T", "red", 2)] == [b"2", b"1"]
    assert [message.body for message in find("T", "red", 10, START_MS + 1, START_MS + 5000)] == [b"1"]
    assert [message.body for message in find("T", "k1", 10)] == [b"1"]
    assert [message.body for message in find("T", "id1", 10, unique=True)] == [b"1"]
    assert find("T", "id1", 10) == []
    assert find("T", "k1", 10, unique=True) == []
    assert find("T", "nothing", 10) == []
    assert opened.store.index_backlog_bytes == 0


def test_a_message_indexed_twice_is_returned_once() -> None:
    opened = OpenStore.small()
    offsets = opened.send(b"one", b"two", properties="KEYS\x01k\x02")
    opened.tick()
    opened.store._index.indexed_to = -1
    opened.store._index.put([(key_hash("T", "k"), offset, START_MS) for offset in offsets])

    assert [message.body for message in opened.store.find_by_key("T", "k", 32)] == [b"two", b"one"]


def test_messages_are_found_by_log_offset() -> None:
    opened = OpenStore.small()
    one, two = opened.send(b"one", b"two")

    message = opened.store.message(two)

    assert message is not None
    assert (message.body, message.log_offset, message.queue_offset) == (b"two", two, 1)
    record = opened.store.record(one)
    assert record is not None
    assert len(record) == two
    assert [opened.store.message(offset) for offset in (-1, 1, opened.store.end, 2**60)] == [None] * 4


def test_a_damaged_message_is_refused_and_hides_no_other(caplog: pytest.LogCaptureFixture) -> None:
    opened = OpenStore.small()
    one, two = opened.send(b"one body", b"two body", properties="KEYS\x01k\x02")
    log = opened.disk.open(ROOT / "commitlog" / f"{0:020d}")
    log.write_at(one + 90, b"?")

    with pytest.raises(StoreDamaged, match=f"the log is damaged at offset {one}: .*checksum"):
        opened.store.message(one)

    with caplog.at_level(logging.ERROR):
        assert [message.body for message in opened.store.find_by_key("T", "k", 10)] == [b"two body"]
    assert f"damaged at offset {one}" in caplog.text
    assert opened.store.message(two) is not None
    assert opened.store.read("T", 0, 0, 32).count == 2, "a reader gets the bytes as they are, and checks them"

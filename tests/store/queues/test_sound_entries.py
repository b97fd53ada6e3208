"""Entries compared with the log: which are accepted, by Python and by its C twin."""

from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.store.queue_kit import FILE_ENTRIES, Store, code_of
from tests.twins import compiled_or_skip

from pocketmq.errors import QueueDamaged
from pocketmq.protocol.record import encode_record
from pocketmq.store.queues import sound_entries
from pocketmq.store.queues.consume_queue import ENTRY, ENTRY_BYTES, ConsumeQueue, Entry
from pocketmq.store.queues.sound_entries import SoundEntries, points_to_message
from pocketmq.store.settings import GIB

V4, V6 = bytes(8), bytes(20)


@pytest.fixture
def store() -> Store:
    return Store()


def put_all(store: Store, count: int = 12, *, interleaved: bool = True) -> ConsumeQueue:
    """A queue whose entries are in files."""
    queue, other = store.queues.get("T", 0), store.queues.get("S", 0)
    for number in range(count):
        store.put(queue, tag=number % 3)
        if interleaved:
            store.put(other)
    store.end_turn()
    store.queues.flush()
    return queue


def entries_of(queue: ConsumeQueue) -> list[Entry]:
    return list(ENTRY.iter_unpack(queue.read(0, queue.max_offset)))


# what an entry points to


def test_an_entry_must_point_to_its_own_message(store: Store) -> None:
    queue = put_all(store)
    at, size, code = entries_of(queue)[5]

    assert points_to_message(store.log, queue, 5, (at, size, code))
    assert not points_to_message(store.log, queue, 4, (at, size, code))
    for wrong in ((at + 1, size), (at, size + 1), (at, size - 1), (at, 0), (at, -1), (-1, size), (at, 1 << 30)):
        assert not points_to_message(store.log, queue, 5, (*wrong, code))
    assert not points_to_message(store.log, store.queues.get("T", 1), 5, (at, size, code))
    assert not points_to_message(store.log, store.queues.get("U", 0), 5, (at, size, code))


@pytest.mark.parametrize("born_host", [V4, V6])
@pytest.mark.parametrize("store_host", [V4, V6])
@pytest.mark.parametrize("topic", ["T", "L" * 127, "L" * 200])
@pytest.mark.usefixtures("twin")
def test_hosts_and_topics_of_any_length_are_parsed(
    store: Store, born_host: bytes, store_host: bytes, topic: str
) -> None:
    queue = store.queues.get(topic, 3)
    for number in range(2):
        fields = (b"body", b"", 0, 0, 1, born_host, 1, store_host)
        size = len(encode_record(queue.topic_bytes, 3, number, 0, *fields))
        at = store.log.reserve(size)
        store.log.put((encode_record(queue.topic_bytes, 3, number, at, *fields),))
        queue.append(at, size, 0)
        queue.next_offset += 1
    store.log.write()
    store.queues.mark_dirty(queue)
    store.queues.flush()

    assert len(store.sound.read(queue, 0, 9)) == 40
    assert points_to_message(store.log, queue, 1, entries_of(queue)[1])


# reading


@pytest.mark.usefixtures("twin")
def test_entries_in_memory_are_not_compared() -> None:
    store = Store()
    queue = store.queues.get("T", 0)
    queue.append(10**9, 100, 7)

    assert len(store.sound.read(queue, 0, 5)) == ENTRY_BYTES


@pytest.mark.usefixtures("twin")
def test_a_reader_gets_the_entries_before_the_damage() -> None:
    store = Store()
    queue = put_all(store)
    queue.rewrite(7, bytes(ENTRY_BYTES))

    assert len(store.sound.read(queue, 0, 12)) == 7 * ENTRY_BYTES
    with pytest.raises(QueueDamaged, match="consume queue T:0 is damaged at offset 7"):
        store.sound.read(queue, 7, 5)
    assert len(store.sound.read(queue, 8, 12)) == 4 * ENTRY_BYTES


@pytest.mark.usefixtures("twin")
def test_unknown_tags_codes_are_checked_once() -> None:
    store = Store()
    queue = put_all(store)
    wanted = {code_of(1)}
    assert len(store.sound.read(queue, 0, 12, wanted)) == 12 * ENTRY_BYTES
    at, size, code = entries_of(queue)[8]
    queue.rewrite(8, ENTRY.pack(at, size, code ^ 64))

    assert len(store.sound.read(queue, 0, 12, wanted)) == 8 * ENTRY_BYTES
    queue.rewrite(8, ENTRY.pack(at, size, code))
    with patch.object(SoundEntries, "_code_of", side_effect=AssertionError):
        assert len(store.sound.read(queue, 0, 12, wanted)) == 12 * ENTRY_BYTES


@pytest.mark.usefixtures("twin")
def test_a_read_checks_few_unknown_codes_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store()
    queue = store.queues.get("T", 0)
    for number in range(1, 13):
        store.put(queue, tag=number)
    store.end_turn()
    store.queues.flush()
    monkeypatch.setattr(sound_entries, "UNKNOWN_STEP", 5)

    assert len(store.sound.read(queue, 0, 12, {99})) == 5 * ENTRY_BYTES
    assert len(store.sound.read(queue, 0, 12, {99})) == 10 * ENTRY_BYTES


@pytest.mark.usefixtures("twin")
def test_a_message_with_another_offset_is_read_at_its_offset_in_the_log() -> None:
    store = Store()
    queue = put_all(store)
    queue.rewrite(4, ENTRY.pack(*entries_of(queue)[4]))
    queue.irregular_offsets = frozenset({3})
    record = entries_of(queue)[3]
    with store.files.open(store.log.segments.files[0].path) as file:
        file.write_at(record[0] + 20, (99).to_bytes(8, "big"))

    assert len(store.sound.read(queue, 0, 12)) == 12 * ENTRY_BYTES
    queue.irregular_offsets = frozenset()
    assert len(store.sound.read(queue, 0, 12)) == 3 * ENTRY_BYTES


def test_entries_read_ahead_are_compared_only_without_disk_access(store: Store) -> None:
    queue = put_all(store)
    hot = SoundEntries(store.log, store.disk.settings.delay_levels, GIB, None)
    cold = SoundEntries(store.log, store.disk.settings.delay_levels, 0, None)

    assert len(hot.read_ahead(queue, None, 0, 3, 10)) == 10 * ENTRY_BYTES
    assert len(cold.read_ahead(queue, None, 0, 3, 10)) == 3 * ENTRY_BYTES


# the twin


DAMAGE = st.lists(st.tuples(st.integers(0, 11), st.integers(0, ENTRY_BYTES * 8 - 1)), max_size=3)


@given(DAMAGE, st.booleans(), st.none() | st.sets(st.integers(0, 3).map(code_of), max_size=2), st.integers(0, 11))
def test_both_implementations_accept_the_same_entries(
    damage: list[tuple[int, int]], interleaved: bool, wanted: set[int] | None, offset: int
) -> None:
    store = Store()
    queue = put_all(store, interleaved=interleaved)
    for number, bit in damage:
        raw = bytearray(queue.read(number, 1))
        raw[bit // 8] ^= 1 << bit % 8
        queue.rewrite(number, bytes(raw))
    found = []
    for twin in (None, compiled_or_skip()):
        sound = SoundEntries(store.log, store.disk.settings.delay_levels, GIB, twin)
        try:
            found.append(len(sound.read(queue, offset, FILE_ENTRIES * 2, wanted)) // ENTRY_BYTES)
        except QueueDamaged:
            found.append(0)

    assert found[0] == found[1]

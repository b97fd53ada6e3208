"""Damaged consume queues: every message is read, because entries are rebuilt from the log."""

from pathlib import Path

import pytest
from tests.store.kit import ROOT
from tests.store.open_store import OpenStore, numbered

from pocketmq.errors import QueueDamaged
from pocketmq.model.java_hash import java_hash
from pocketmq.protocol.record import decode_records
from pocketmq.store.queues.consume_queue import ENTRY, ENTRY_BYTES, NOTHING_HERE_SIZE

pytestmark = pytest.mark.usefixtures("twin")

QUEUE = ROOT / "consumequeue/T/0"


def file_of(offset: int) -> Path:
    return QUEUE / f"{offset // 10 * 200:020d}"


def damage(opened: OpenStore, offset: int, entry: bytes) -> None:
    """Overwrite entries in a file, as a disk or a person might."""
    with opened.disk.open(file_of(offset)) as file:
        file.write_at(offset % 10 * ENTRY_BYTES, entry)


def entry_in_file(opened: OpenStore, offset: int) -> tuple[int, int, int]:
    at = offset % 10 * ENTRY_BYTES
    found: tuple[int, int, int] = ENTRY.unpack(opened.disk.read(file_of(offset))[at : at + ENTRY_BYTES])
    return found


def flip(opened: OpenStore, offset: int, bit: int) -> None:
    with opened.disk.open(file_of(offset)) as file:
        at = offset % 10 * ENTRY_BYTES + bit // 8
        file.write_at(at, bytes([file.read_at(at, 1)[0] ^ (0x80 >> bit % 8)]))


def stored(count: int = 30, prepared_files: int = 8) -> OpenStore:
    """A store that was closed and opened again: its entries are read from files."""
    opened = OpenStore.small(prepared_files=prepared_files)
    for number, body in enumerate(numbered(count)):
        opened.send(body, properties=f"TAGS\x01{'AB'[number % 2]}\x02")
        opened.send(body, topic="OTHER")
    return opened.reopen()


def tagged(opened: OpenStore, tag: str) -> list[bytes]:
    """The messages of the queue that a group with one tag gets."""
    found: list[bytes] = []
    offset = 0
    while offset < opened.store.max_offset("T", 0):
        result = opened.store.read("T", 0, offset, 4, frozenset({java_hash(tag)}))
        found += [message.body for message in decode_records(result.body())]
        assert result.next_offset > offset
        offset = result.next_offset
    return found


# what is damaged


def test_zeroed_entries_are_rebuilt_from_the_log(caplog: pytest.LogCaptureFixture) -> None:
    opened = stored()
    damage(opened, 12, bytes(6 * ENTRY_BYTES))

    assert opened.bodies() == numbered(30)

    assert "consume queue T:0 does not match the log at offset 12" in caplog.text
    assert "6 entries" in caplog.text
    assert entry_in_file(opened, 15)[1] > 0
    assert opened.store.facts.repaired_entries == 6


@pytest.mark.parametrize("bit", range(ENTRY_BYTES * 8))
def test_a_flipped_bit_of_an_entry_loses_no_message(bit: int) -> None:
    opened = stored(12)
    flip(opened, 5, bit)

    assert opened.bodies() == numbered(12)


@pytest.mark.parametrize("bit", range(ENTRY_BYTES * 8))
def test_a_flipped_bit_of_an_entry_loses_no_message_with_a_tag_filter(bit: int) -> None:
    opened = stored(12)
    flip(opened, 5, bit)

    assert tagged(opened, "B") == numbered(12)[1::2]


def test_a_tag_filter_detects_zeroed_entries() -> None:
    opened = stored()
    damage(opened, 12, bytes(6 * ENTRY_BYTES))

    assert tagged(opened, "A") == numbered(30)[::2]


def test_entries_copied_from_another_position_are_rebuilt() -> None:
    opened = stored()
    older = b"".join(ENTRY.pack(*entry_in_file(opened, offset)) for offset in range(1, 5))
    damage(opened, 22, older)

    assert tagged(opened, "B") == numbered(30)[1::2]
    assert opened.bodies() == numbered(30)


def test_an_entry_of_another_queue_is_rebuilt() -> None:
    opened = stored()
    other = opened.disk.read(ROOT / "consumequeue/OTHER/0" / file_of(0).name)[3 * ENTRY_BYTES : 4 * ENTRY_BYTES]
    damage(opened, 3, other)

    assert opened.bodies() == numbered(30)


@pytest.mark.parametrize("offset", [0, 10, 20])
def test_a_removed_queue_file_is_rebuilt(offset: int) -> None:
    opened = stored()
    opened.disk.unlink(file_of(offset))

    assert opened.bodies() == numbered(30)
    assert opened.disk.status(file_of(offset)).size == 200  # type: ignore[union-attr]


def test_a_truncated_queue_file_gets_its_size_and_entries_back() -> None:
    opened = stored()
    with opened.disk.open(file_of(10)) as file:
        file.truncate(65)

    assert opened.bodies() == numbered(30)
    assert opened.disk.status(file_of(10)).size == 200  # type: ignore[union-attr]


def test_a_removed_queue_folder_is_rebuilt() -> None:
    opened = stored()
    for offset in (0, 10, 20):
        opened.disk.unlink(file_of(offset))
    opened.disk.remove_dir(QUEUE)

    assert opened.bodies() == numbered(30)
    assert opened.reopen().bodies() == numbered(30)


def test_a_file_removed_during_a_write_is_rebuilt() -> None:
    opened = OpenStore.small()
    opened.send(*numbered(5))
    opened.settle()
    opened.disk.unlink(file_of(0))
    for body in numbered(12)[5:]:
        opened.send(body)
    opened.settle()

    assert opened.disk.status(file_of(0)) is not None
    assert opened.bodies() == numbered(12)
    assert opened.reopen().bodies() == numbered(12)


def test_rebuilt_entries_survive_a_power_loss() -> None:
    opened = stored()
    damage(opened, 12, bytes(6 * ENTRY_BYTES))
    opened.bodies()
    opened.settle()

    again = opened.crash("nothing")

    assert again.bodies() == numbered(30)
    assert again.store.facts.repaired_entries == 0


# what is not there


def test_messages_missing_from_the_log_are_skipped_permanently(caplog: pytest.LogCaptureFixture) -> None:
    opened = stored()
    log_offset, size, _ = entry_in_file(opened, 5)
    with opened.disk.open(ROOT / "commitlog" / f"{log_offset // 4096 * 4096:020d}") as file:
        file.write_at(log_offset % 4096, b"\xee" * size)

    assert opened.bodies() == [body for number, body in enumerate(numbered(30)) if number != 5]

    assert entry_in_file(opened, 5)[1] == NOTHING_HERE_SIZE
    assert "1 message is not in the log" in caplog.text
    opened.bodies()
    assert opened.store.facts.repaired_entries == 1


def test_damaged_entries_of_expired_messages_hide_nothing() -> None:
    opened = stored(60, prepared_files=20)
    starts = opened.store.facts.log_files
    damage(opened, 0, bytes(10 * ENTRY_BYTES))
    for _ in range(2):
        opened.store._parts.log.drop_first()
    opened.settle(2)

    bodies = opened.bodies()
    low = opened.store.min_offset("T", 0)
    assert opened.store.facts.log_files == starts - 2
    assert bodies == numbered(60)[low:]
    assert 0 < low < 60


def test_one_flipped_bit_does_not_trim_a_queue_too_far() -> None:
    for offset in range(60):
        opened = stored(60, prepared_files=20)
        if entry_in_file(opened, offset)[0] >= 4096:
            damage(opened, offset, ENTRY.pack(7, *entry_in_file(opened, offset)[1:]))
        opened.store._parts.log.drop_first()
        opened.settle(2)

        bodies = opened.bodies()
        assert bodies == numbered(60)[60 - len(bodies) :]
        assert len(bodies) >= 40


# who asks


def test_damage_does_not_mislead_a_search_by_time() -> None:
    opened = OpenStore.small()
    for body in numbered(30):
        opened.send(body)
        opened.clock.advance_ms(1000)
    opened = opened.reopen()
    first_ms = opened.store.store_ms("T", 0, 0)
    damage(opened, 10, bytes(10 * ENTRY_BYTES))

    assert first_ms is not None
    assert [opened.store.offset_at_time("T", 0, first_ms + 1000 * number) for number in range(30)] == list(range(30))


def test_a_store_time_is_correct_although_its_entry_is_damaged() -> None:
    opened = stored()
    right = opened.store.store_ms("T", 0, 7)
    flip(opened, 7, 60)

    assert opened.store.store_ms("T", 0, 7) == right is not None


def test_returned_entries_match_the_log() -> None:
    opened = stored()
    right = entry_in_file(opened, 7)
    flip(opened, 7, 60)

    queue = opened.store.find_queue("T", 0)
    assert queue is not None
    assert list(opened.store.entries(queue, 6, 3))[1] == right
    assert opened.store.entry(queue, 7) == right


def test_a_light_queue_of_apache_is_not_changed() -> None:
    opened = OpenStore.small()
    opened.send(b"first")
    opened.send(b"for the light queue, too")
    entry = opened.queue().entry(1)
    assert entry is not None
    light = opened.queue("%LMQ%x")
    light.append(*entry)
    opened.store._queues.mark_dirty(light)
    opened = opened.reopen()

    assert opened.store.store_ms("%LMQ%x", 0, 0) is None

    assert opened.queue("%LMQ%x").entry(0) == entry


# how long it takes


def test_a_long_rebuild_runs_in_steps_and_readers_retry(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = stored(60, prepared_files=40)
    damage(opened, 12, bytes(6 * ENTRY_BYTES))
    monkeypatch.setattr("pocketmq.store.recovery.queue_repair.INLINE_S", -1.0)
    monkeypatch.setattr("pocketmq.store.recovery.queue_repair.SLICE_S", -1.0)

    assert opened.store.read("T", 0, 8, 32).next_offset == 12
    with pytest.raises(QueueDamaged, match=r"T:0 is damaged at offset 12.*rebuilt from the log"):
        opened.store.read("T", 0, 12, 32)
    ticks = 0
    while opened.store.facts.repaired_entries == 0:
        opened.tick(10)
        ticks += 1
        assert ticks < 100
    assert ticks > 3
    assert opened.bodies() == numbered(60)


def test_a_rebuild_refused_by_the_disk_is_retried(caplog: pytest.LogCaptureFixture) -> None:
    opened = stored()
    damage(opened, 12, bytes(6 * ENTRY_BYTES))
    opened.disk.fail("open", path="*/commitlog/*", times=1)

    with pytest.raises(QueueDamaged):
        opened.store.read("T", 0, 12, 32)
    opened.tick(10)
    opened.tick(10)

    assert opened.bodies() == numbered(30)


@pytest.mark.parametrize("where", ["log.log_scan.decode_record", "recovery.queue_repair.tags_code_of"])
def test_a_rebuild_that_runs_out_of_memory_restarts(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = stored()
    damage(opened, 12, bytes(6 * ENTRY_BYTES))

    def refuse(*_: object, **__: object) -> None:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(f"pocketmq.store.{where}", refuse)
        with pytest.raises(MemoryError):
            opened.store.read("T", 0, 12, 32)
    opened.tick(10)

    assert opened.bodies() == numbered(30)


def test_a_queue_deleted_during_the_rebuild_is_not_created_again(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = stored()
    damage(opened, 12, bytes(6 * ENTRY_BYTES))
    monkeypatch.setattr("pocketmq.store.recovery.queue_repair.INLINE_S", -1.0)
    with pytest.raises(QueueDamaged):
        opened.store.read("T", 0, 12, 32)

    opened.store.delete_topic("T")
    opened.settle(3)

    assert opened.names("consumequeue") == ["OTHER"]


# stops and starts


@pytest.mark.parametrize("survives", ["everything", "nothing"])
@pytest.mark.parametrize("first", [2, 12, 22])
def test_damage_before_a_crash_loses_nothing(survives: str, first: int) -> None:
    opened = stored(prepared_files=20)
    opened.send(*numbered(3), topic="LATER")
    opened.settle()
    damage(opened, first, bytes(5 * ENTRY_BYTES))

    again = opened.crash(survives)  # type: ignore[arg-type]

    assert again.bodies() == numbered(30)


@pytest.mark.parametrize("first", [2, 12, 22])
def test_damage_after_a_clean_stop_without_a_resume_point_loses_nothing(first: int) -> None:
    opened = stored(prepared_files=20)
    opened.send(*numbered(60), topic="LATER")
    opened.store.close()
    damage(opened, first, bytes(5 * ENTRY_BYTES))
    opened.disk.unlink(ROOT / "config/resume.json")

    again = opened._again(opened.disk)

    assert again.bodies() == numbered(30)

"""The growing index file: what searches see at once, and the order in which it is written to the disk."""

import errno
from pathlib import Path
from random import Random

import pytest

from pocketmq.errors import StoreDamaged
from pocketmq.store.index import growing_index_file
from pocketmq.store.index.growing_index_file import GrowingIndexFile, put_slots_right
from pocketmq.store.index.index_file import ENTRY, HEADER, IndexFile, IndexHeader, IndexShape, KeyEntry, KeyQuery
from pocketmq.testing import FaultyFiles

pytestmark = pytest.mark.usefixtures("twin")

PATH = Path("/index/20260101000000000")
SHAPE = IndexShape(slots=10, entries=100)
NOW_MS = 1_700_000_000_000
FOREVER = 2**62


@pytest.fixture
def files() -> FaultyFiles:
    files = FaultyFiles()
    files.make_dir(PATH.parent)
    files.sync_dir(Path("/"))
    return files


def grow(files: FaultyFiles) -> GrowingIndexFile:
    header = IndexFile(files, PATH, SHAPE).header if files.status(PATH) else IndexHeader()
    return GrowingIndexFile(files, PATH, SHAPE, header)


def keys(*hashes: int, first_offset: int = 0, store_ms: int = NOW_MS) -> list[KeyEntry]:
    """Keys of messages 100 bytes apart, stored a second apart."""
    return [(key, first_offset + at * 100, store_ms + at * 1000) for at, key in enumerate(hashes)]


def found(file: GrowingIndexFile | IndexFile, key_hash: int) -> list[int]:
    query = KeyQuery(key_hash, 0, FOREVER, limit=64, visits=1000)
    file.find(query)
    return query.found


def sync(files: FaultyFiles) -> None:
    with files.open(PATH) as file:
        file.sync()


def flush(file: GrowingIndexFile, log_synced: int, checkpoint_ms: int) -> bool:
    """Make the next step; whether there was one."""
    step = file.next_step(log_synced, checkpoint_ms)
    if step is not None:
        step.now()
    return step is not None


def settle(files: FaultyFiles, file: GrowingIndexFile) -> None:
    while not file.is_settled:
        if flush(file, FOREVER, FOREVER):
            sync(files)


def on_disk(files: FaultyFiles) -> bytes:
    return files.read(PATH)


def test_entries_are_found_before_anything_is_written(files: FaultyFiles) -> None:
    file = grow(files)

    assert file.put(keys(13, 23, 13, 5)) == 4

    assert found(file, 13) == [200, 0]
    assert found(file, 23) == [100]
    assert found(file, 33) == []
    assert not any(on_disk(files))


def test_the_header_contains_the_covered_range(files: FaultyFiles) -> None:
    file = grow(files)

    file.put(keys(13, 23, 13, 5, first_offset=1000))

    assert file.header == IndexHeader(NOW_MS, NOW_MS + 3000, 1000, 1300, used_slots=2, next_number=5)


def test_entries_have_the_layout_of_rocketmq(files: FaultyFiles) -> None:
    file = grow(files)
    file.put(keys(13, 23, 13))

    settle(files, file)

    data = on_disk(files)
    assert len(data) == SHAPE.file_bytes
    assert HEADER.unpack_from(data) == (NOW_MS, NOW_MS + 2000, 0, 200, 1, 4)
    assert data[40 + 3 * 4 : 40 + 4 * 4] == b"\0\0\0\3"
    assert list(ENTRY.iter_unpack(data[SHAPE.entries_at : SHAPE.entries_at + 80])) == [
        (0, 0, 0, 0),
        (13, 0, 0, 0),
        (23, 100, 1, 1),
        (13, 200, 2, 2),
    ]


def test_a_time_before_the_start_of_the_file_counts_as_its_start(files: FaultyFiles) -> None:
    file = grow(files)

    file.put([(1, 0, NOW_MS), (1, 100, NOW_MS - 3_600_000), (1, 200, 2**60)])

    assert [file.entry(number)[2] for number in (1, 2, 3)] == [0, 0, 2**31 - 1]


def test_a_full_file_accepts_no_more_entries(files: FaultyFiles) -> None:
    file = grow(files)

    taken = [(file.put(keys(*range(count))), file.is_full) for count in (98, 3, 1)]

    assert taken == [(98, False), (1, True), (0, True)]
    assert file.header.next_number == SHAPE.entries


def test_the_first_flush_writes_entries_then_slots_then_the_header(files: FaultyFiles) -> None:
    file = grow(files)
    file.put(keys(13, 23))

    steps = [(flush(file, FOREVER, FOREVER), file.is_settled, on_disk(files)) for _ in range(4)]

    assert [step[:2] for step in steps] == [(True, False), (True, False), (True, False), (False, True)]
    after_entries, after_slots, after_header, _ = [data for _, _, data in steps]
    assert any(after_entries[SHAPE.entries_at :])
    assert not any(after_entries[: SHAPE.entries_at])
    assert any(after_slots[40 : SHAPE.entries_at])
    assert not any(after_slots[:40])
    assert any(after_header[:40])
    assert after_header[40:] == after_slots[40:]


def test_a_later_flush_counts_entries_before_slots_point_to_them(files: FaultyFiles) -> None:
    file = grow(files)
    file.put(keys(13, 24))
    settle(files, file)
    before = on_disk(files)
    file.put(keys(13, 35, first_offset=200))

    steps = [(flush(file, FOREVER, FOREVER), file.is_flushing, on_disk(files)) for _ in range(5)]

    assert [step[:2] for step in steps] == [(True, True)] * 4 + [(False, False)]
    after_entries, after_count, after_slots, after_header, _ = [data for _, _, data in steps]
    assert after_entries[: SHAPE.entries_at] == before[: SHAPE.entries_at]
    assert after_count[:40] == HEADER.pack(NOW_MS, NOW_MS + 1000, 0, 100, 2, 5)
    assert after_count[40:] == after_entries[40:]
    assert after_slots[:40] == after_count[:40]
    assert after_slots[40 : SHAPE.entries_at] != before[40 : SHAPE.entries_at]
    assert after_header[:40] == HEADER.pack(NOW_MS, NOW_MS + 1000, 0, 300, 3, 5)
    assert after_header[40:] == after_slots[40:]


def test_keys_of_one_message_on_both_sides_of_an_end_are_not_counted_early(files: FaultyFiles) -> None:
    file = grow(files)
    file.put(keys(13, 24))
    settle(files, file)
    before = on_disk(files)
    file.put([(35, 100, NOW_MS + 1000), (46, 200, NOW_MS + 2000)])

    headers = []
    while not file.is_settled:
        flush(file, FOREVER, FOREVER)
        headers.append(on_disk(files)[:40])

    assert headers[:2] == [before[:40]] * 2
    assert headers[2] == HEADER.pack(NOW_MS, NOW_MS + 2000, 0, 200, 4, 5)


def test_entries_added_during_a_flush_wait_for_the_next(files: FaultyFiles) -> None:
    file = grow(files)
    file.put(keys(13))
    flush(file, FOREVER, FOREVER)

    file.put(keys(13, 23, first_offset=100))
    flush(file, FOREVER, FOREVER)
    flush(file, FOREVER, FOREVER)
    flush(file, FOREVER, FOREVER)

    assert found(IndexFile(files, PATH, SHAPE), 13) == [0]
    assert found(file, 13) == [100, 0]
    assert not file.is_settled
    settle(files, file)
    assert found(IndexFile(files, PATH, SHAPE), 13) == [100, 0]


def test_slots_and_count_wait_for_the_sync_of_the_log(files: FaultyFiles) -> None:
    file = grow(files)
    file.put(keys(13, 13))
    flush(file, 100, FOREVER)

    assert not flush(file, 100, FOREVER)
    assert not any(on_disk(files)[: SHAPE.entries_at])
    assert file.safe_ms == 0
    assert file.is_flushing

    assert flush(file, 101, FOREVER)
    assert any(on_disk(files)[: SHAPE.entries_at])


def test_the_header_waits_for_the_checkpoint(files: FaultyFiles) -> None:
    file = grow(files)
    file.put(keys(13, 13))
    flush(file, FOREVER, NOW_MS + 999)
    flush(file, FOREVER, NOW_MS + 999)

    assert not flush(file, FOREVER, NOW_MS + 999)
    assert not any(on_disk(files)[:40])
    assert file.safe_ms == NOW_MS + 1000

    assert flush(file, FOREVER, NOW_MS + 1000)
    assert any(on_disk(files)[:40])


def test_without_new_entries_no_flush_is_needed(files: FaultyFiles) -> None:
    file = grow(files)

    assert not flush(file, FOREVER, FOREVER)
    file.put(keys(13))
    settle(files, file)
    assert not flush(file, FOREVER, FOREVER)


def test_a_closed_file_continues_at_its_end(files: FaultyFiles) -> None:
    file = grow(files)
    file.put(keys(13, 23))
    settle(files, file)
    file.close()

    again = grow(files)
    again.put(keys(13, first_offset=900))

    assert found(again, 13) == [900, 0]
    assert again.header == IndexHeader(NOW_MS, NOW_MS, 0, 900, used_slots=1, next_number=4)


def test_many_new_entries_are_written_without_a_flush(files: FaultyFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(growing_index_file, "PENDING_BYTES", 100)
    file = grow(files)

    for number in range(20):
        file.put(keys(13, first_offset=number * 100))
        if (surplus := file.surplus()) is not None:
            surplus.now()

    assert any(on_disk(files)[SHAPE.entries_at :])
    assert not any(on_disk(files)[: SHAPE.entries_at])
    assert found(file, 13) == [number * 100 for number in range(19, -1, -1)]


@pytest.mark.parametrize("failing", [1, 2, 3, 4])
def test_a_failed_write_is_repeated_by_the_next_flush(files: FaultyFiles, failing: int) -> None:
    file = grow(files)
    file.put(keys(13))
    settle(files, file)
    file.put(keys(23, first_offset=100))
    files.fail("write", errno.ENOSPC, nth=failing)

    failures = 0
    for _ in range(6):
        try:
            flush(file, FOREVER, FOREVER)
        except OSError:
            failures += 1

    assert failures == 1
    assert file.is_settled
    assert found(IndexFile(files, PATH, SHAPE), 13) == [0]
    assert found(IndexFile(files, PATH, SHAPE), 23) == [100]


def test_a_read_error_while_adding_keys_keeps_the_earlier_ones(files: FaultyFiles) -> None:
    shape = IndexShape(slots=5000, entries=100)
    file = GrowingIndexFile(files, PATH, shape, IndexHeader())
    files.fail("read", errno.EIO, nth=2)
    placed = keys(1, 2, 4000, 3)

    with pytest.raises(OSError, match="Input/output"):
        file.put(placed)

    assert file.header == IndexHeader(NOW_MS, NOW_MS + 1000, 0, 100, used_slots=2, next_number=3)
    assert file.put(placed[2:]) == 2
    assert [file.entry(number)[:2] for number in range(1, 5)] == [(1, 0), (2, 100), (4000, 200), (3, 300)]


def test_a_file_that_cannot_be_created_is_not_left_open(files: FaultyFiles) -> None:
    files.fail("truncate", errno.ENOSPC)

    with pytest.raises(OSError, match="No space"):
        grow(files)
    file = grow(files)

    assert file.put(keys(1)) == 1


def test_after_a_crash_slots_are_reset_to_the_entries_of_the_header(files: FaultyFiles) -> None:
    file = grow(files)
    file.put(keys(13, 25, 13))
    settle(files, file)
    settled = IndexFile(files, PATH, SHAPE).header
    file.put(keys(13, 23, 4, first_offset=300))
    for _ in range(3):
        flush(file, FOREVER, FOREVER)
        sync(files)

    crashed = files.crash(Random(1))
    broken = IndexFile(crashed, PATH, SHAPE)
    assert found(broken, 13) == [300, 200, 0]

    broken.count_back()
    assert broken.header == settled
    assert found(broken, 13) == []
    assert put_slots_right(crashed, broken) == 2
    assert found(broken, 13) == [200, 0]
    assert found(broken, 25) == [100]
    assert found(broken, 4) == []
    assert put_slots_right(crashed.crash(Random(2), survives="nothing"), broken) == 0


def test_a_slot_without_a_valid_chain_is_damage(files: FaultyFiles) -> None:
    file = grow(files)
    file.put(keys(13))
    settle(files, file)

    for number in (50, 1000, -3):
        with files.open(PATH) as raw:
            raw.write_at(40 + 7 * 4, number.to_bytes(4, "big", signed=True))

        with pytest.raises(StoreDamaged, match=f"slot 7 of {PATH} points to entry {number}"):
            put_slots_right(files, IndexFile(files, PATH, SHAPE))


def test_an_unwritten_file_has_no_slots_to_correct(files: FaultyFiles) -> None:
    files.open(PATH, create=True).close()

    assert put_slots_right(files, IndexFile(files, PATH, SHAPE)) == 0

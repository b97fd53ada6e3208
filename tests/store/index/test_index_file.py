"""An index file on the disk: its header, its chains, and what is refused."""

from pathlib import Path

import pytest

from pocketmq.errors import StoreDamaged
from pocketmq.store.index.index_file import ENTRY, HEADER, Entry, IndexFile, IndexHeader, IndexShape, KeyQuery
from pocketmq.testing import FaultyFiles

PATH = Path("/index/20260101000000000")
SHAPE = IndexShape(slots=10, entries=100)
BEGIN_MS = 1_000_000
FOREVER = 2**62


def index_file(
    slots: dict[int, int], entries: dict[int, Entry], header: IndexHeader | None = None, size: int = SHAPE.file_bytes
) -> IndexFile:
    """A file with these slots and entries."""
    data = bytearray(SHAPE.file_bytes)
    data[: HEADER.size] = HEADER.pack(*(header or IndexHeader(BEGIN_MS, BEGIN_MS + 60_000, 0, 5000, 1, 100)))
    for slot, number in slots.items():
        data[40 + slot * 4 : 44 + slot * 4] = number.to_bytes(4, "big", signed=True)
    for number, entry in entries.items():
        at = SHAPE.entries_at + number * 20
        data[at : at + 20] = ENTRY.pack(*entry)
    files = FaultyFiles()
    files.make_dir(PATH.parent)
    with files.open(PATH, create=True) as file:
        file.write_at(0, data)
        file.truncate(size)
    return IndexFile(files, PATH, SHAPE)


def found(file: IndexFile, key_hash: int, begin_ms: int = 0, end_ms: int = FOREVER, limit: int = 64) -> list[int]:
    query = KeyQuery(key_hash, begin_ms, end_ms, limit, visits=1000)
    file.find(query)
    return query.found


def test_files_have_the_size_of_rocketmqs() -> None:
    assert IndexShape(5_000_000, 20_000_000).file_bytes == 420_000_040


def test_a_chain_is_followed_from_the_newest_entry_back() -> None:
    file = index_file({3: 7}, {7: (13, 700, 0, 5), 5: (13, 500, 0, 2), 2: (13, 200, 0, 0)})

    assert found(file, 13) == [700, 500, 200]
    assert found(file, 13, limit=2) == [700, 500]
    assert found(file, 14) == []


def test_other_keys_of_the_same_slot_are_skipped() -> None:
    file = index_file({3: 7}, {7: (23, 700, 0, 5), 5: (13, 500, 0, 2), 2: (23, 200, 0, 0)})

    assert found(file, 13) == [500]


def test_a_message_that_carries_a_key_twice_is_found_once() -> None:
    file = index_file({3: 4}, {4: (13, 500, 0, 3), 3: (13, 500, 0, 2), 2: (13, 200, 0, 0)})

    assert found(file, 13) == [500, 200]


def test_times_are_compared_by_the_second() -> None:
    file = index_file({3: 3}, {3: (13, 300, 30, 2), 2: (13, 200, 20, 1), 1: (13, 100, 10, 0)})

    assert found(file, 13, BEGIN_MS + 20_999) == [300, 200]
    assert found(file, 13, BEGIN_MS + 21_000) == [300]
    assert found(file, 13, end_ms=BEGIN_MS + 20_000) == [200, 100]
    assert found(file, 13, end_ms=BEGIN_MS + 19_999) == [100]
    assert found(file, 13, BEGIN_MS + 31_000) == []


def test_a_long_chain_is_read_in_blocks() -> None:
    entries: dict[int, Entry] = {number: (13, number * 10, 0, number - 1) for number in range(1, 100)}

    assert found(index_file({3: 99}, entries), 13, limit=1000) == [number * 10 for number in range(99, 0, -1)]


@pytest.mark.parametrize("previous", [7, 8, 99, -1])
def test_a_chain_that_does_not_point_backwards_ends(previous: int) -> None:
    file = index_file({3: 7}, {7: (13, 700, 0, previous), 8: (13, 800, 0, 7), 99: (13, 1, 0, 98)})

    assert found(file, 13) == [700]


@pytest.mark.parametrize("number", [100, 2**31 - 1, -5, 0])
def test_a_slot_without_an_entry_finds_nothing(number: int) -> None:
    assert found(index_file({3: number}, {}), 13) == []


def test_a_query_has_a_limit_of_examined_entries() -> None:
    entries: dict[int, Entry] = {number: (13, number * 10, 0, number - 1) for number in range(1, 100)}
    query = KeyQuery(13, 0, FOREVER, limit=64, visits=5)

    index_file({3: 99}, entries).find(query)

    assert query.found == [990, 980, 970, 960, 950]
    assert query.is_over


@pytest.mark.parametrize("size", [SHAPE.file_bytes - 1, SHAPE.file_bytes + 1, 50])
def test_a_file_of_another_size_is_refused(size: int) -> None:
    with pytest.raises(
        StoreDamaged, match=rf"{PATH} has {size} bytes; index files of this store have 2080.*index_slots"
    ):
        index_file({}, {}, size=size)


@pytest.mark.parametrize("size", [0, 40, SHAPE.file_bytes - 1])
def test_a_short_unwritten_file_is_empty(size: int) -> None:
    file = index_file({}, {}, IndexHeader(0, 0, 0, 0, 0, 0), size)

    assert file.header == IndexHeader()
    assert file.header.is_empty
    assert not file.flaw


@pytest.mark.parametrize(
    ("header", "flaw"),
    [
        (IndexHeader(1, 2, 0, 10, 1, 101), "it counts 100 entries in 1 slots"),
        (IndexHeader(1, 2, 0, 10, 1, -1), "it counts -2 entries in 1 slots"),
        (IndexHeader(1, 2, 0, 10, 11, 50), "it counts 49 entries in 11 slots"),
        (IndexHeader(1, 2, 20, 10, 1, 50), "it covers the log from 20 to 10"),
        (IndexHeader(1, 2, -20, 10, 1, 50), "it covers the log from -20 to 10"),
    ],
)
def test_an_impossible_header_counts_as_empty(header: IndexHeader, flaw: str) -> None:
    file = index_file({3: 1}, {1: (13, 100, 0, 0)}, header)

    assert file.flaw == flaw
    assert file.header.is_empty


def test_only_a_full_file_is_full() -> None:
    assert index_file({}, {}, IndexHeader(1, 2, 0, 10, 1, 100)).is_full
    assert not index_file({}, {}, IndexHeader(1, 2, 0, 10, 1, 99)).is_full

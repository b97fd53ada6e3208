"""The slot table: it is loaded from the file, and changes are written to the file."""

from pathlib import Path
from random import Random

import pytest

from pocketmq.files import DiskFiles, File, Files
from pocketmq.store.index.growing_index_file import SlotTable
from pocketmq.store.index.index_file import HEADER_BYTES
from pocketmq.testing import FaultyFiles


@pytest.fixture(params=["disk", "memory"])
def files(request: pytest.FixtureRequest) -> Files:
    return DiskFiles() if request.param == "disk" else FaultyFiles()


def new_file(files: Files, tmp_path: Path, slots: int) -> File:
    files.make_dir(tmp_path)
    file = files.open(tmp_path / "index", create=True)
    file.truncate(HEADER_BYTES + slots * 4 + 100)
    return file


def write(table: SlotTable, file: File) -> list[int]:
    pieces = table.take_dirty()
    for offset, data in pieces:
        file.write_at(offset, data)
    return [len(data) for _, data in pieces]


@pytest.mark.parametrize("slots", [1, 100, 1024, 1025, 300_000])
def test_numbers_are_read_unchanged_from_the_file(files: Files, tmp_path: Path, slots: int) -> None:
    random = Random(slots)
    expected = {random.randrange(slots): random.randrange(2**31) for _ in range(300)}
    with new_file(files, tmp_path, slots) as file:
        table = SlotTable(file, slots)
        for slot, number in expected.items():
            table[slot] = number

        write(table, file)
        again = SlotTable(file, slots)

        assert {slot: again[slot] for slot in range(slots) if again[slot]} == expected
        assert file.read_at(HEADER_BYTES + slots * 4, 100) == bytes(100)


def test_numbers_have_javas_byte_order_in_the_file(files: Files, tmp_path: Path) -> None:
    with new_file(files, tmp_path, 10) as file:
        table = SlotTable(file, 10)
        table[3] = 0x01020304

        write(table, file)

        assert file.read_at(HEADER_BYTES + 3 * 4, 4) == b"\x01\x02\x03\x04"


def test_only_changed_pages_are_returned_and_adjacent_ones_as_one(files: Files, tmp_path: Path) -> None:
    slots = 10 * 1024 + 5
    with new_file(files, tmp_path, slots) as file:
        table = SlotTable(file, slots)
        for slot in (0, 1023, 1024, 5 * 1024, slots - 1):
            table[slot] = 7

        assert write(table, file) == [2 * 4096, 4096, 5 * 4]
        assert write(table, file) == []


def test_returned_pages_do_not_change_with_the_table(files: Files, tmp_path: Path) -> None:
    with new_file(files, tmp_path, 100) as file:
        table = SlotTable(file, 100)
        table[50] = 1
        ((offset, data),) = table.take_dirty()

        table[50] = 2

        assert bytes(data[50 * 4 : 51 * 4]) == b"\0\0\0\1"
        assert offset == HEADER_BYTES


def test_slots_outside_a_range_are_found(files: Files, tmp_path: Path) -> None:
    with new_file(files, tmp_path, 3000) as file:
        table = SlotTable(file, 3000)
        for slot, number in {0: 9, 5: 10, 1023: -1, 1024: 2**31 - 1, 2999: 10, 2998: 1}.items():
            table[slot] = number

        write(table, file)

        assert table.slots_outside(10) == [5, 1023, 1024, 2999]
        assert SlotTable(file, 3000).slots_outside(2**31) == [1023]


def test_only_used_pages_are_in_memory(files: Files, tmp_path: Path) -> None:
    with new_file(files, tmp_path, 5_000_000) as file:
        table = SlotTable(file, 5_000_000)
        table[4_000_000] = 1
        assert table[17] == 0
        write(table, file)

        assert table.slots_outside(1) == [4_000_000]
        assert sum(page is not None for page in table.pages) <= 4

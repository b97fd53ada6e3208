"""Queues as they are found on the disk, after any kind of stop."""

from pathlib import Path
from random import Random

import pytest
from tests.golden import needs_golden
from tests.store.golden_store import restore
from tests.store.kit import ROOT
from tests.store.queue_kit import (
    FILE_BYTES,
    FILE_ENTRIES,
    NOTHING_HERE,
    bounds,
    entries_of,
    fill,
    filled,
    loaded,
    put_file,
    queues_on,
)

from pocketmq.errors import StoreDamaged
from pocketmq.files import DiskFiles
from pocketmq.store.queues.queues import Queues
from pocketmq.store.settings import StoreSettings
from pocketmq.testing import FaultyFiles

FOLDER = ROOT / "consumequeue"


@pytest.mark.parametrize("count", [0, 1, 9, 10, 11, 19, 20, 21, 30])
def test_loading_finds_the_end_of_each_queue(disk: FaultyFiles, queues: Queues, count: int) -> None:
    disk.make_dir(FOLDER / "T" / "0")
    queue = filled(queues, "T", 0, count)

    again = loaded(disk)

    found = again.get("T", 0)
    assert bounds(again) == {("T", 0): (0, count)}
    assert found.next_offset == count
    assert found.read(0, 100) == queue.read(0, 100)


@pytest.mark.parametrize(("begin", "count"), [(7, 1), (7, 3), (7, 4), (10, 5), (25, 20), (39, 1)])
def test_loading_finds_the_start_of_a_queue(disk: FaultyFiles, queues: Queues, begin: int, count: int) -> None:
    queues.get("T", 0).begin_anew(begin)
    filled(queues, "T", 0, count)

    assert bounds(loaded(disk)) == {("T", 0): (begin, begin + count)}


def test_a_hole_near_the_beginning_is_not_mistaken_for_a_filled_head(disk: FaultyFiles, queues: Queues) -> None:
    queue = queues.get("T", 0)
    queue.begin_anew(2)
    fill(queue, 1)
    assert queue.skip_to(8, 9000)
    filled(queues, "T", 0, 1)

    assert bounds(loaded(disk)) == {("T", 0): (2, 9)}


def test_a_queue_with_only_a_filled_head_is_empty_and_continues_there(disk: FaultyFiles, queues: Queues) -> None:
    queue = queues.get("T", 0)
    queue.begin_anew(7)
    filled(queues, "T", 0, 1)
    queue.cut(7)
    queues.zero_behind(queue)

    assert entries_of(disk, queue) == [*[NOTHING_HERE] * 7, *[(0, 0, 0)] * 3]
    assert bounds(loaded(disk)) == {("T", 0): (7, 7)}


def test_empty_files_after_the_last_entry_are_ignored(disk: FaultyFiles, queues: Queues) -> None:
    queue = filled(queues, "T", 0, 10)
    for number in (1, 2):
        put_file(disk, queue.file_of(number * FILE_ENTRIES), bytes(FILE_BYTES))

    assert bounds(loaded(disk)) == {("T", 0): (0, 10)}


def test_a_queue_whose_only_file_is_empty_continues_with_its_first_offset(disk: FaultyFiles, queues: Queues) -> None:
    put_file(disk, queues.get("T", 0).file_of(30), bytes(FILE_BYTES))

    assert bounds(loaded(disk)) == {("T", 0): (30, 30)}


def test_a_queue_ends_before_a_missing_file(disk: FaultyFiles, queues: Queues) -> None:
    queue = filled(queues, "T", 0, 35)
    disk.unlink(queue.file_of(20))

    again = queues_on(disk)
    (found, starts), *_ = again.scan()

    assert starts == [0, FILE_BYTES, 3 * FILE_BYTES]
    assert again.span_files(found, starts) == [0, FILE_BYTES]
    assert bounds(again) == {("T", 0): (0, 20)}


def test_loading_returns_the_queues_with_a_missing_file(disk: FaultyFiles, queues: Queues) -> None:
    for queue_id in range(4):
        filled(queues, "T", queue_id, 35)
    for queue_id, missing in ((0, 0), (1, 10), (2, 20), (3, 30)):
        disk.unlink(queues.get("T", queue_id).file_of(missing))

    again = queues_on(disk)

    assert again.load() == {("T", 1): 35, ("T", 2): 35}
    assert bounds(again) == {("T", 0): (10, 35), ("T", 1): (0, 10), ("T", 2): (0, 20), ("T", 3): (0, 30)}


def test_foreign_files_and_folders_are_listed_and_not_changed(disk: FaultyFiles, queues: Queues) -> None:
    filled(queues, "T", 0, 5)
    foreign = [
        put_file(disk, FOLDER / "README", b"a file where topics should be"),
        put_file(disk, FOLDER / "T" / "0" / "00000000000000000000.bak", b"?"),
        put_file(disk, FOLDER / "T" / "0" / ("9" * 20), b"?"),
        put_file(disk, FOLDER / "T" / "0" / ("٣" * 20), b"?"),
        put_file(disk, FOLDER / "T" / "1", b"a file where a queue should be"),
    ]
    folders = [FOLDER / "not.a.topic", FOLDER / "T" / "007", FOLDER / "T" / "x", FOLDER / "T" / "٣"]
    folders += [FOLDER / "T" / "99999999999", FOLDER / "T" / "0" / f"{FILE_BYTES:020d}"]
    for folder in folders:
        disk.make_dir(folder)

    again = loaded(disk)

    assert sorted(again.foreign) == sorted(foreign + folders)
    assert bounds(again) == {("T", 0): (0, 5)}
    again.delete_topic("T")
    assert all(disk.status(path) is not None for path in foreign + folders)
    assert disk.status(again.folder / "T" / "0" / f"{0:020d}") is None


def test_a_second_scan_lists_foreign_files_once(disk: FaultyFiles, queues: Queues) -> None:
    filled(queues, "T", 0, 25)
    put_file(disk, FOLDER / "T" / "0" / "notes")

    again = loaded(disk)
    again.load()
    again.zero_behind(again.get("T", 0))
    again.follow(again.get("T", 0), 10_000)

    assert again.foreign == [FOLDER / "T" / "0" / "notes"]


def test_a_store_without_queues_has_none(queues: Queues) -> None:
    queues.load()

    assert len(queues) == 0
    assert queues.foreign == []


@pytest.mark.parametrize("size", [20, FILE_BYTES + 1, 2 * FILE_BYTES])
def test_a_file_of_another_size_is_damage_and_named(disk: FaultyFiles, queues: Queues, size: int) -> None:
    path = put_file(disk, FOLDER / "T" / "0" / f"{FILE_BYTES:020d}", bytes(size))

    with pytest.raises(StoreDamaged, match=rf"{path} has {size} bytes.* have {FILE_BYTES}.*queue_file_entries"):
        queues.load()

    status = disk.status(path)
    assert status is not None
    assert status.size == size


def test_a_file_with_an_unexpected_name_is_damage_and_named(disk: FaultyFiles, queues: Queues) -> None:
    path = put_file(disk, FOLDER / "T" / "0" / f"{FILE_BYTES + 20:020d}", bytes(FILE_BYTES))

    with pytest.raises(StoreDamaged, match=rf"{path} begins at {FILE_BYTES + 20}.*{FILE_BYTES}"):
        queues.load()


@pytest.mark.parametrize("entries", [19, 21, 300_000])
@needs_golden
def test_a_real_store_opened_with_another_file_size_is_refused(entries: int, tmp_path: Path) -> None:
    settings = restore("5.3.3", "clean", tmp_path)
    wrong = StoreSettings(folder=settings.folder, queue_file_entries=entries)

    with pytest.raises(StoreDamaged, match="consumequeue"):
        Queues(wrong, DiskFiles()).load()


def test_an_empty_file_gets_its_size(disk: FaultyFiles, queues: Queues) -> None:
    filled(queues, "T", 0, 10)
    path = put_file(disk, FOLDER / "T" / "0" / f"{FILE_BYTES:020d}")

    again = loaded(disk)

    assert bounds(again) == {("T", 0): (0, 10)}
    assert disk.read(path) == bytes(FILE_BYTES)


@pytest.mark.parametrize("size", [0, 1, 20, 27, FILE_BYTES - 1])
def test_after_a_crash_a_file_that_lost_its_size_gets_it_back(disk: FaultyFiles, queues: Queues, size: int) -> None:
    queue = filled(queues, "T", 0, 15)
    for folder in (queue.folder, *queue.folder.parents):
        disk.sync_dir(folder)
    with disk.open(queue.file_of(10)) as file:
        file.truncate(size)

    again = queues_on(disk)
    found = list(again.scan())

    assert [starts for _, starts in found] == [[0, FILE_BYTES]]
    survived = entries_of(disk.crash(Random(0), survives="nothing"), queue, 1)
    assert len(survived) == FILE_ENTRIES
    assert survived[: size // 20] == entries_of(disk, queue, 1)[: size // 20]


@pytest.mark.parametrize("seed", range(30))
def test_after_any_power_loss_the_queues_can_be_scanned(seed: int) -> None:
    disk = FaultyFiles()
    queues = queues_on(disk)
    for number in (1, 5, 14, 30):
        for queue_id in range(3):
            filled(queues, "T", queue_id, number)

    found = disk.crash(Random(seed), tear_bytes=True)
    again = queues_on(found)
    for queue, starts in again.scan():
        if starts:
            again.span_files(queue, starts)
            queue.cut(queue.first_at_or_beyond(0))
            again.zero_behind(queue)

    assert again.foreign == []
    assert bounds(loaded(found)).keys() == bounds(again).keys()

"""The folders below consumequeue/, and whether they can be queues. The tests of queues check the rest."""

from pathlib import Path

import pytest

from pocketmq.errors import StoreDamaged
from pocketmq.store.queues.queues import QueueFolders, file_name
from pocketmq.testing import FaultyFiles

FOLDER = Path("/store/consumequeue")
FILE_BYTES = 200


@pytest.fixture
def disk() -> FaultyFiles:
    return FaultyFiles()


@pytest.fixture
def folders(disk: FaultyFiles) -> QueueFolders:
    return QueueFolders(disk, FOLDER, FILE_BYTES)


def put_file(disk: FaultyFiles, name: str, size: int = FILE_BYTES) -> None:
    path = FOLDER / name
    disk.make_dir(path.parent)
    with disk.open(path, create=True) as file:
        file.truncate(size)


def test_every_queue_is_found_with_its_files_in_order(disk: FaultyFiles, folders: QueueFolders) -> None:
    for name in ("B/0/" + file_name(0), "A/10/" + file_name(400), "A/10/" + file_name(200), "A/2/" + file_name(0)):
        put_file(disk, name)
    disk.make_dir(FOLDER / "C" / "0")

    before = disk.position

    found = list(folders.scan(mend=True))

    assert disk.position == before
    assert found == [("A", 10, [200, 400]), ("A", 2, [0]), ("B", 0, [0]), ("C", 0, [])]
    assert folders.foreign == []


@pytest.mark.parametrize("queue_id", ["0", "7", "2147483647"])
def test_only_a_folder_named_by_an_id_is_a_queue(disk: FaultyFiles, folders: QueueFolders, queue_id: str) -> None:
    put_file(disk, f"T/{queue_id}/{file_name(0)}")

    assert list(folders.scan(mend=False)) == [("T", int(queue_id), [0])]


@pytest.mark.parametrize("name", ["00", "-1", "1.5", "x", "2147483648", "1" * 5000, "٣", "²"])
def test_a_folder_of_another_name_is_foreign(disk: FaultyFiles, folders: QueueFolders, name: str) -> None:
    put_file(disk, f"T/{name}/{file_name(0)}")

    assert list(folders.scan(mend=True)) == []
    assert folders.foreign == [FOLDER / "T" / name]


def test_retry_and_dead_letter_topics_are_topics(disk: FaultyFiles, folders: QueueFolders) -> None:
    put_file(disk, f"%RETRY%group/0/{file_name(0)}")
    put_file(disk, f"%DLQ%group/0/{file_name(0)}")

    assert [topic for topic, _, _ in folders.scan(mend=False)] == ["%DLQ%group", "%RETRY%group"]


@pytest.mark.parametrize("mend", [False, True])
@pytest.mark.parametrize(("start", "size"), [(0, FILE_BYTES + 1), (100, FILE_BYTES), (FILE_BYTES + 1, 0)])
def test_files_that_no_crash_can_leave_are_damage(
    disk: FaultyFiles, folders: QueueFolders, start: int, size: int, mend: bool
) -> None:
    put_file(disk, f"T/0/{file_name(start)}", size)

    with pytest.raises(StoreDamaged, match=file_name(start)):
        list(folders.scan(mend=mend))
    assert folders.starts(FOLDER / "T" / "0") == []


def test_possible_queue_files_are_reported_without_touching_them(disk: FaultyFiles, folders: QueueFolders) -> None:
    for name, size in ((file_name(0), FILE_BYTES), (file_name(200), 3), (file_name(400), FILE_BYTES + 1), ("notes", 1)):
        put_file(disk, f"T/0/{name}", size)
    before = disk.position

    assert folders.starts(FOLDER / "T" / "0") == [0, 200]
    assert folders.starts(FOLDER / "T" / "1") == []
    assert disk.position == before
    assert folders.foreign == []


def test_a_file_truncated_after_a_clean_stop_gets_its_size_back_and_its_queue_is_damaged(
    disk: FaultyFiles, folders: QueueFolders
) -> None:
    put_file(disk, f"T/0/{file_name(200)}", 120)
    put_file(disk, f"T/1/{file_name(0)}")

    assert list(folders.scan(mend=False)) == [("T", 0, [200]), ("T", 1, [0])]

    assert folders.damaged == {("T", 0): 200}
    status = disk.status(FOLDER / "T" / "0" / file_name(200))
    assert status is not None
    assert status.size == FILE_BYTES


@pytest.mark.parametrize("size", [119, 121])
def test_a_file_that_ends_inside_an_entry_is_truncated_for_any_settings(
    disk: FaultyFiles, folders: QueueFolders, size: int
) -> None:
    put_file(disk, f"T/0/{file_name(0)}", size)

    assert list(folders.scan(mend=False)) == [("T", 0, [0])]
    assert folders.damaged == {("T", 0): 0}


def test_files_of_another_equal_size_reveal_wrong_settings(disk: FaultyFiles, folders: QueueFolders) -> None:
    put_file(disk, f"T/0/{file_name(0)}", 100)
    put_file(disk, f"T/1/{file_name(0)}", 100)
    put_file(disk, "notes/x", 1)

    with pytest.raises(StoreDamaged, match="Set queue_file_entries"):
        list(folders.scan(mend=False))

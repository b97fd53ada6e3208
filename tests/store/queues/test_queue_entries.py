from pathlib import Path

import pytest
from tests.store.made_store import QUEUE_FILE_ENTRIES, ROOT, MadeStore

from pocketmq.store.queues.queue_entries import QueueEntries, list_queue_files, list_queue_ids

FOLDER = ROOT / "consumequeue" / "Orders"


@pytest.fixture
def store() -> MadeStore:
    return MadeStore().fill()


def test_entries_are_read_from_all_files_in_any_order(store: MadeStore) -> None:
    files = list_queue_files(store.files, FOLDER / "0")
    all_bytes = b"".join(store.files.read(file.path) for file in files)
    entries = QueueEntries(store.files, FOLDER / "0", QUEUE_FILE_ENTRIES)

    for offset in [*range(15), 3, 14, 0]:
        assert entries.raw(offset) == all_bytes[offset * 20 : offset * 20 + 20]


def test_no_entries_exist_after_the_last_file(store: MadeStore) -> None:
    entries = QueueEntries(store.files, FOLDER / "0", QUEUE_FILE_ENTRIES)

    assert entries.raw(15) == bytes(20)
    assert entries.raw(16) == b""


def test_a_truncated_file_returns_less_than_an_entry(store: MadeStore) -> None:
    store.truncate(store.queue_path("Orders", 0, 4)[0], 30)
    entries = QueueEntries(store.files, FOLDER / "0", QUEUE_FILE_ENTRIES)

    assert [len(entries.raw(offset)) for offset in range(4, 7)] == [20, 10, 0]


def test_read_entries_can_be_dropped_and_read_again(store: MadeStore) -> None:
    entries = QueueEntries(store.files, FOLDER / "0", QUEUE_FILE_ENTRIES)
    first = entries.raw(0)

    entries.forget()

    assert entries.raw(0) == first


def test_an_entry_has_one_position(store: MadeStore) -> None:
    entries = QueueEntries(store.files, FOLDER / "0", QUEUE_FILE_ENTRIES)

    assert entries.position_of(6) == (FOLDER / "0" / f"{80:020d}", 40)


def test_queues_are_folders_named_by_their_number(store: MadeStore) -> None:
    for name in ("01", "x", "-1"):
        store.files.make_dir(FOLDER / name)

    assert list_queue_ids(store.files, FOLDER) == [0, 1]
    assert list_queue_ids(store.files, FOLDER / "missing") == []
    assert list_queue_ids(store.files, ROOT / "checkpoint") == []


def test_queue_files_are_named_by_twenty_digits(store: MadeStore) -> None:
    store.write("consumequeue/Orders/0/readme", b"x")

    assert [file.first for file in list_queue_files(store.files, FOLDER / "0")] == [0, 80, 160, 240]
    assert list_queue_files(store.files, Path("/store/checkpoint")) == []

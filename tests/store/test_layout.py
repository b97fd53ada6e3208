"""Finding the layout of a store, and clear errors for wrong arguments."""

from pathlib import Path

import pytest
from tests.golden import needs_golden
from tests.store.golden_store import STORES, restore
from tests.store.made_store import INDEX_ENTRIES, INDEX_SLOTS, LOG_FILE_BYTES, QUEUE_FILE_ENTRIES, ROOT, MadeStore

from pocketmq.errors import InvalidSetting, StoreError
from pocketmq.files import DiskFiles
from pocketmq.model.delay import DELAY_LEVELS, DelayLevels
from pocketmq.store.index.index_file import IndexShape
from pocketmq.store.layout import KnownSizes, find_layout, find_log_file_bytes
from pocketmq.testing import FaultyFiles

NOTHING = KnownSizes()


@pytest.fixture
def store() -> MadeStore:
    return MadeStore().fill()


@needs_golden
@pytest.mark.parametrize(("version", "kind"), STORES)
def test_the_layout_of_a_real_store_is_found_in_its_files(version: str, kind: str, tmp_path: Path) -> None:
    restore(version, kind, tmp_path)

    layout = find_layout(DiskFiles(), tmp_path, NOTHING)

    assert (layout.log_file_bytes, layout.queue_file_entries) == (32 * 1024, 20)
    assert layout.index_shape == IndexShape(100, 400)


def test_the_files_reveal_their_sizes(store: MadeStore) -> None:
    layout = store.layout(NOTHING)

    assert (layout.log_file_bytes, layout.queue_file_entries) == (LOG_FILE_BYTES, QUEUE_FILE_ENTRIES)
    assert layout.index_shape == IndexShape(INDEX_SLOTS, INDEX_ENTRIES)
    assert layout.delay_levels is DELAY_LEVELS
    assert layout.log_start == 0


def test_a_store_without_files_has_default_sizes() -> None:
    layout = MadeStore().layout(NOTHING)

    assert (layout.log_file_bytes, layout.queue_file_entries) == (1024**3, 300_000)
    assert layout.index_shape == IndexShape(5_000_000, 20_000_000)


def test_one_truncated_file_does_not_change_the_found_size(store: MadeStore) -> None:
    store.truncate(store.log_path(0), 1000)
    store.truncate(store.queue_path("Orders", 0, 0)[0], 40)

    layout = store.layout(NOTHING)

    assert (layout.log_file_bytes, layout.queue_file_entries) == (LOG_FILE_BYTES, QUEUE_FILE_ENTRIES)


def test_the_size_of_log_files_is_found_without_other_checks(store: MadeStore, tmp_path: Path) -> None:
    assert find_log_file_bytes(store.files, ROOT) == LOG_FILE_BYTES
    assert find_log_file_bytes(DiskFiles(), tmp_path) is None
    assert find_log_file_bytes(DiskFiles(), tmp_path / "missing") is None


def test_a_file_instead_of_the_folder_is_reported(tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("milk, eggs")

    with pytest.raises(
        StoreError, match=r"the store folder .*notes/broker-a cannot be used: it, or a folder above it, is a file"
    ):
        find_log_file_bytes(DiskFiles(), tmp_path / "notes" / "broker-a")


def test_of_two_log_file_sizes_the_names_decide() -> None:
    store = MadeStore()
    store.write_log(0, b"")
    store.write_log(LOG_FILE_BYTES, b"")

    store.truncate(store.log_path(LOG_FILE_BYTES), 3 * LOG_FILE_BYTES)

    assert store.layout(NOTHING).log_file_bytes == LOG_FILE_BYTES


def test_arguments_override_broker_conf(store: MadeStore) -> None:
    store.write(
        "broker.conf",
        b"# a comment\nmaxHashSlotNum=51\r\n maxIndexNum = 7\nmessageDelayLevel=2s 1m\nmappedFileSizeConsumeQueue=61\n",
    )
    for path in store.index_paths:
        store.unlink(path)
    store.remove_tree("consumequeue")

    from_conf = store.layout(NOTHING)
    given = store.layout(KnownSizes(index_slots=9, delay_levels=DelayLevels("5s")))

    assert (from_conf.index_shape, from_conf.queue_file_entries) == (IndexShape(51, 7), 4)
    assert from_conf.delay_levels.ms(2) == 60_000
    assert given.index_shape == IndexShape(9, 7)
    assert given.delay_levels.ms(1) == 5_000


def test_a_broker_conf_that_matches_no_file_is_ignored(store: MadeStore) -> None:
    store.write(
        "broker.conf",
        b"mappedFileSizeCommitLog=1073741824\nmappedFileSizeConsumeQueue=100\nmaxHashSlotNum=3\nmaxIndexNum=3",
    )

    layout = store.layout(NOTHING)

    assert (layout.log_file_bytes, layout.queue_file_entries) == (LOG_FILE_BYTES, QUEUE_FILE_ENTRIES)
    assert layout.index_shape == IndexShape(INDEX_SLOTS, INDEX_ENTRIES)


def test_a_broker_conf_without_numbers_is_ignored(store: MadeStore) -> None:
    store.write("broker.conf", b"mappedFileSizeCommitLog=lots\nmaxIndexNum=0\n")

    assert store.layout(NOTHING).log_file_bytes == LOG_FILE_BYTES


@pytest.mark.parametrize(
    ("known", "words"),
    [
        (KnownSizes(log_file_bytes=5000), "no log file of this store has 5000 bytes; .* has 4096"),
        (KnownSizes(queue_file_entries=5), "no queue file of this store has 100 bytes; .* has 80"),
        (KnownSizes(index_slots=7, index_entries=7), "which 7 slots and 7 entries do not match"),
        (KnownSizes(index_slots=INDEX_SLOTS + 1), "Set both to the values of the broker"),
        (KnownSizes(index_entries=10**6), "do not match"),
    ],
)
def test_sizes_that_match_no_file_are_refused(store: MadeStore, known: KnownSizes, words: str) -> None:
    with pytest.raises(InvalidSetting, match=words):
        store.layout(known)


def test_one_number_of_the_index_determines_the_other(store: MadeStore) -> None:
    assert store.layout(KnownSizes(index_slots=INDEX_SLOTS)).index_shape == IndexShape(INDEX_SLOTS, INDEX_ENTRIES)
    assert store.layout(KnownSizes(index_entries=INDEX_ENTRIES)).index_shape == IndexShape(INDEX_SLOTS, INDEX_ENTRIES)


def test_a_missing_folder_is_an_error() -> None:
    with pytest.raises(StoreError, match="there is no folder /nowhere"):
        find_layout(FaultyFiles(), Path("/nowhere"), NOTHING)


def test_a_file_is_not_a_store(store: MadeStore) -> None:
    with pytest.raises(StoreError, match="/store/checkpoint is a file; give the folder that contains commitlog/"):
        find_layout(store.files, ROOT / "checkpoint", NOTHING)


def test_a_folder_that_is_not_a_store_is_an_error_with_a_hint(store: MadeStore) -> None:
    store.files.make_dir(Path("/data/empty"))

    with pytest.raises(StoreError, match=r"it has none of commitlog, consumequeue, checkpoint$"):
        find_layout(store.files, Path("/data"), NOTHING)
    with pytest.raises(StoreError, match=r"There is one in /store$"):
        find_layout(store.files, Path("/"), NOTHING)


def test_paths_are_below_the_folder(store: MadeStore) -> None:
    assert store.layout().name_of(ROOT / "config" / "topics.json") == "config/topics.json"

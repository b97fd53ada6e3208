import pytest
from tests.store.made_store import INDEX_ENTRIES, INDEX_SLOTS, ROOT, MadeStore

from pocketmq.store.index.index_file import IndexShape, find_shape, list_index_files

SHAPE = IndexShape(INDEX_SLOTS, INDEX_ENTRIES)
USUAL = IndexShape(5_000_000, 20_000_000)


@pytest.fixture
def store() -> MadeStore:
    return MadeStore().fill()


def shape_of(store: MadeStore) -> IndexShape | None:
    paths = list_index_files(store.files, ROOT / "index")
    return find_shape(store.files, paths, store.layout().log_files, slots=None, entries=None, hinted=USUAL)


def test_the_first_entry_reveals_the_shape(store: MadeStore) -> None:
    assert shape_of(store) == SHAPE


def test_a_file_without_its_shape_is_skipped_for_the_next(store: MadeStore) -> None:
    store.write(store.index_paths[0], bytes(40))
    store.truncate(store.index_paths[1], 100)

    assert shape_of(store) == SHAPE


def test_without_records_the_shape_is_unknown(store: MadeStore) -> None:
    for at in (0, 4096, 8192):
        store.unlink(store.log_path(at))

    assert shape_of(store) is None


def test_a_damaged_record_and_one_without_keys_reveal_no_shape(store: MadeStore) -> None:
    for path in store.index_paths[1:]:
        store.unlink(path)
    first = next(iter(store.records))

    store.flip(store.log_path(first), first + 4)

    assert shape_of(store) is None


def test_a_default_size_has_the_default_shape(store: MadeStore) -> None:
    for path in store.index_paths:
        store.write(path, bytes(40))

    paths = list_index_files(store.files, ROOT / "index")

    assert find_shape(store.files, paths, [], slots=None, entries=None, hinted=SHAPE) == SHAPE


def test_an_index_of_keys_alone_also_reveals_the_shape() -> None:
    store = MadeStore()
    store.append(keys=" only these ", properties="UNIQ_KEY\x01\x02")
    store.derive()

    assert shape_of(store) == SHAPE


def test_only_names_of_seventeen_digits_are_index_files(store: MadeStore) -> None:
    known = list_index_files(store.files, ROOT / "index")

    store.write("index/2026", b"x")
    store.write("index/2026111509343428x", b"x")
    store.files.make_dir(ROOT / "index" / "20261115093434288")

    assert list_index_files(store.files, ROOT / "index") == known

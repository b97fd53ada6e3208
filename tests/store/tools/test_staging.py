import pytest
from tests.store.made_store import ROOT, MadeStore

from pocketmq.errors import StoreError
from pocketmq.store.tools.rebuild import Staging


@pytest.fixture
def store() -> MadeStore:
    return MadeStore().fill()


def test_new_queue_files_replace_old_ones(store: MadeStore) -> None:
    staging = Staging(store.files, store.layout())
    store.write("rebuild/consumequeue/Orders/0/00000000000000000080", b"new")

    removed = staging.move_queue("Orders", 0)

    assert removed == 3
    assert store.files.list(ROOT / "consumequeue/Orders/0") == ["00000000000000000080"]
    assert store.read("consumequeue/Orders/0/00000000000000000080") == b"new"


def test_new_index_files_replace_old_ones(store: MadeStore) -> None:
    staging = Staging(store.files, store.layout())
    store.write("rebuild/index/20990101000000000", b"new")
    store.write("index/readme", b"mine")

    assert staging.move_index() == 1

    assert store.files.list(ROOT / "index") == ["20990101000000000", "readme"]


def test_remains_of_an_earlier_rebuild_are_removed(store: MadeStore) -> None:
    staging = Staging(store.files, store.layout())
    store.write("rebuild/consumequeue/Orders/0/00000000000000000080", b"new")
    store.write("rebuild/index/20990101000000000", b"new")

    staging.clear()
    staging.clear()

    assert store.files.status(ROOT / "rebuild") is None


@pytest.mark.parametrize("name", ["rebuild/x", "rebuild/index/x", "rebuild/consumequeue/T/0/x", "rebuild/consumequeue"])
def test_foreign_files_are_never_removed(store: MadeStore, name: str) -> None:
    staging = Staging(store.files, store.layout())
    store.write(name, b"mine")

    with pytest.raises(StoreError, match="no rebuild created it"):
        staging.clear()
    staging.discard()

    assert store.read(name) == b"mine"

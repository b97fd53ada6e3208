"""The key index while allocations fail: later entries are the same as without the failure.

Each sweep lets the first, the second, … allocation fail, until the work needs no more than that.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from tests.store.test_turns_without_memory import failing_allocation

from pocketmq.files import DiskFiles
from pocketmq.store.index.growing_index_file import PackedKeys
from pocketmq.store.index.index_file import KeyEntry
from pocketmq.store.index.key_index import KeyIndex
from pocketmq.store.settings import StoreSettings
from pocketmq.testing import FakeClock

pytestmark = pytest.mark.usefixtures("twin")

MOST_ALLOCATIONS = 400
NOW_MS = 1_700_000_000_000
SLOTS = 3_000
"""Three pages of slots."""
FIRST: list[KeyEntry] = [(7, 100, NOW_MS), (2_500, 200, NOW_MS)]
LATER: list[KeyEntry] = [(number * 517 % 5_000, 1_000 + number * 100, NOW_MS + number * 500) for number in range(60)]
"""Some of them share a slot."""


def new_index(folder: Path) -> KeyIndex:
    settings = StoreSettings(folder=folder, index_slots=SLOTS, index_entries=200)
    index = KeyIndex(settings, DiskFiles(), FakeClock())
    index.folder.mkdir(parents=True)
    index.put(FIRST)
    flush(index)
    return index


def flush(index: KeyIndex) -> None:
    while index.flush(1 << 40, 1 << 60):
        pass


def meets_failure(work: Callable[[], object], number: int) -> bool:
    """Do the work with this allocation failing; when it does, do the work again."""
    try:
        with failing_allocation(number):
            work()
    except MemoryError:
        work()
        return True
    return False


def content(index: KeyIndex) -> bytes:
    (path,) = index.folder.iterdir()
    return path.read_bytes()


@pytest.mark.parametrize("step", ["put", "flush"])
def test_a_failed_allocation_keeps_slots_and_entries_consistent(tmp_path: Path, step: str) -> None:
    expected = new_index(tmp_path / "expected")
    expected.put(PackedKeys.of(LATER))
    flush(expected)
    keys = PackedKeys.of(LATER)
    failures = 0
    for number in range(MOST_ALLOCATIONS):
        index = new_index(tmp_path / str(number))
        if step == "put":
            failures += meets_failure(partial(index.put, keys), number)
            flush(index)
        else:
            index.put(keys)
            failures += meets_failure(partial(flush, index), number)
        assert content(index) == content(expected), f"allocation {number} failed"
        index.close()
    expected.close()

    assert failures > 10

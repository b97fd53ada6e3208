"""What a power loss may do to a disk, and what it must not do."""

from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.files import write_atomically
from pocketmq.testing import FaultyFiles
from pocketmq.testing.disk.drive import FaultyFile
from pocketmq.testing.disk.model import SECTOR

STORE = Path("/store")
LOG = STORE / "log"


@pytest.fixture
def disk() -> FaultyFiles:
    return fresh_disk()


def fresh_disk() -> FaultyFiles:
    """A disk on which the folder /store is safe."""
    files = FaultyFiles()
    files.make_dir(STORE)
    files.sync_dir(Path("/"))
    return files


def safe_file(disk: FaultyFiles, data: bytes = b"", path: Path = LOG) -> FaultyFile:
    """An open file whose name and bytes are safe."""
    file = disk.open(path, create=True)
    file.write_at(0, data)
    file.sync()
    disk.sync_dir(path.parent)
    return file


def crashes(disk: FaultyFiles, count: int = 200, *, tear_bytes: bool = False) -> Iterator[FaultyFiles]:
    for seed in range(count):
        yield disk.crash(Random(seed), tear_bytes=tear_bytes)


def outcomes(disk: FaultyFiles, look: Callable[[FaultyFiles], object], count: int = 200) -> set[object]:
    return {look(found) for found in crashes(disk, count)}


def content(path: Path) -> Callable[[FaultyFiles], object]:
    """The bytes at `path`, or None when the name is not there."""
    return lambda files: files.read(path) if files.status(path) else None


def names(files: FaultyFiles) -> object:
    return tuple(files.list(STORE))


def test_synced_bytes_always_exist(disk: FaultyFiles) -> None:
    safe_file(disk, b"safe" * 500)

    assert outcomes(disk, content(LOG)) == {b"safe" * 500}


def test_unsynced_bytes_exist_in_some_states_and_not_in_others(disk: FaultyFiles) -> None:
    file = safe_file(disk, b"safe")

    file.write_at(0, b"UNSAFE")

    found = outcomes(disk, content(LOG))
    assert {b"safe", b"UNSAFE"} <= found
    assert all(isinstance(data, bytes) and len(data) in (4, 6) for data in found)


def test_a_file_may_have_grown_without_its_data(disk: FaultyFiles) -> None:
    file = safe_file(disk, b"safe")

    file.write_at(4, b"more")

    assert b"safe\0\0\0\0" in outcomes(disk, content(LOG))


def test_a_write_is_torn_between_sectors_only(disk: FaultyFiles) -> None:
    old, new = b"o" * 5 * SECTOR, b"n" * 5 * SECTOR
    file = safe_file(disk, old)

    file.write_at(0, new)

    found = outcomes(disk, content(LOG))
    assert {old, new} < found
    for data in found:
        assert isinstance(data, bytes)
        assert all(data[at : at + SECTOR] in (old[:SECTOR], new[:SECTOR]) for at in range(0, len(data), SECTOR))


def test_a_write_is_torn_inside_a_sector_if_requested(disk: FaultyFiles) -> None:
    file = safe_file(disk, b"o" * SECTOR)

    file.write_at(0, b"n" * SECTOR)

    found = {bytes(files.read(LOG)) for files in crashes(disk, tear_bytes=True)}
    torn = found - {b"o" * SECTOR, b"n" * SECTOR}
    assert len(torn) > 10
    assert all(data == b"n" * data.count(b"n") + b"o" * data.count(b"o") for data in torn)


def test_writes_reach_the_disk_in_any_order(disk: FaultyFiles) -> None:
    file = safe_file(disk, bytes(3 * SECTOR))

    for number in range(3):
        file.write_at(number * SECTOR, b"x" * SECTOR)

    def landed(files: FaultyFiles) -> object:
        data = files.read(LOG)
        return tuple(data[number * SECTOR] for number in range(3))

    x = ord("x")
    assert outcomes(disk, landed) == {(a, b, c) for a in (0, x) for b in (0, x) for c in (0, x)}


def test_a_truncation_that_was_not_synced_may_not_have_happened(disk: FaultyFiles) -> None:
    file = safe_file(disk, b"a" * 100)

    file.truncate(10)
    file.write_at(10, b"b" * 10)

    found = outcomes(disk, content(LOG))
    assert {b"a" * 100, b"a" * 10 + b"b" * 10, b"a" * 10 + b"b" * 10 + b"a" * 80} <= found


def test_allocated_space_reads_as_zeros(disk: FaultyFiles) -> None:
    file = safe_file(disk, b"head")

    file.allocate(5000)

    assert outcomes(disk, content(LOG)) == {b"head", b"head" + bytes(4996)}
    file.sync()
    assert outcomes(disk, content(LOG)) == {b"head" + bytes(4996)}


def test_a_synced_file_may_lose_its_name_until_the_folder_is_synced(disk: FaultyFiles) -> None:
    with disk.open(LOG, create=True) as file:
        file.write_at(0, b"data")
        file.sync()

    assert outcomes(disk, content(LOG)) == {None, b"data"}
    disk.sync_dir(STORE)
    assert outcomes(disk, content(LOG)) == {b"data"}


def test_a_safe_name_does_not_make_the_bytes_safe(disk: FaultyFiles) -> None:
    with disk.open(LOG, create=True) as file:
        file.write_at(0, b"data")
    disk.sync_dir(STORE)

    found = outcomes(disk, content(LOG))
    assert {b"", b"data", bytes(4)} == found


def test_names_in_a_folder_are_lost_with_the_folder(disk: FaultyFiles) -> None:
    topic = STORE / "queue" / "Orders"
    disk.make_dir(topic)
    safe_file(disk, b"entries", topic / "0")

    assert outcomes(disk, content(topic / "0")) == {None, b"entries"}
    disk.sync_dir(STORE / "queue")
    disk.sync_dir(STORE)
    assert outcomes(disk, content(topic / "0")) == {b"entries"}


def test_an_unlinked_file_may_return_until_the_folder_is_synced(disk: FaultyFiles) -> None:
    safe_file(disk, b"old")

    disk.unlink(LOG)

    assert outcomes(disk, content(LOG)) == {None, b"old"}
    disk.sync_dir(STORE)
    assert outcomes(disk, content(LOG)) == {None}


def test_names_are_lost_in_any_order(disk: FaultyFiles) -> None:
    for name in ("a", "b"):
        disk.open(STORE / name, create=True).close()

    assert outcomes(disk, names) == {(), ("a",), ("b",), ("a", "b")}


def test_replace_is_old_or_new_and_never_missing(disk: FaultyFiles) -> None:
    safe_file(disk, b"old", STORE / "table")
    safe_file(disk, b"new", STORE / "table.tmp")

    disk.replace(STORE / "table.tmp", STORE / "table")

    def state(files: FaultyFiles) -> object:
        return names(files), files.read(STORE / "table")

    assert outcomes(disk, state) == {(("table", "table.tmp"), b"old"), (("table",), b"new")}
    disk.sync_dir(STORE)
    assert outcomes(disk, state) == {(("table",), b"new")}


def test_a_replace_across_folders_loses_nothing(disk: FaultyFiles) -> None:
    safe_file(disk, b"data")
    disk.make_dir(STORE / "archive" / "2024")

    disk.replace(LOG, STORE / "archive" / "2024" / "log")

    def places(files: FaultyFiles) -> object:
        return content(LOG)(files), content(STORE / "archive" / "2024" / "log")(files)

    assert outcomes(disk, places) == {(b"data", None), (None, b"data")}
    disk.sync_dir(STORE / "archive" / "2024")
    assert outcomes(disk, places) == {(None, b"data")}


def test_a_file_moved_out_of_a_removed_folder_is_not_lost(disk: FaultyFiles) -> None:
    disk.make_dir(STORE / "old")
    disk.sync_dir(STORE)
    safe_file(disk, b"data", STORE / "old" / "log")

    disk.replace(STORE / "old" / "log", LOG)
    disk.remove_dir(STORE / "old")

    def found(files: FaultyFiles) -> object:
        return content(LOG)(files) or content(STORE / "old" / "log")(files)

    assert outcomes(disk, found) == {b"data"}


def test_changes_to_one_name_keep_their_order(disk: FaultyFiles) -> None:
    safe_file(disk, b"current", STORE / "table")
    safe_file(disk, b"next", STORE / "table.tmp")

    disk.replace(STORE / "table", STORE / "table.bak")
    disk.replace(STORE / "table.tmp", STORE / "table")

    def state(files: FaultyFiles) -> object:
        return content(STORE / "table")(files), content(STORE / "table.bak")(files)

    assert outcomes(disk, state) == {(b"current", None), (None, b"current"), (b"next", b"current")}


def test_an_atomic_write_is_old_or_new_at_every_moment(disk: FaultyFiles) -> None:
    write_atomically(disk, STORE / "table", b"old" * 1000)
    done = disk.position

    write_atomically(disk, STORE / "table", b"new" * 1000)

    for point in disk.crash_points(seed=1, states=20):
        if point.position >= done:
            data = point.files.read(STORE / "table")
            assert data in (b"old" * 1000, b"new" * 1000)
            assert point.position < disk.position or data == b"new" * 1000


def test_a_failed_sync_leaves_its_bytes_unsafe_forever(disk: FaultyFiles) -> None:
    file = safe_file(disk, b"safe")
    file.write_at(4, b"DOUBT")
    disk.fail("sync")
    with pytest.raises(OSError, match="Input/output"):
        file.sync()

    file.write_at(9, b"later")
    file.sync()

    assert file.read_at(0, 20) == b"safeDOUBTlater"
    assert outcomes(disk, content(LOG)) == {b"safeDOUBTlater", b"safe\0\0\0\0\0later"}


def test_bytes_that_are_written_again_after_a_failed_sync_become_safe(disk: FaultyFiles) -> None:
    file = safe_file(disk, b"safe")
    file.write_at(4, b"DOUBT")
    disk.fail("sync")
    with pytest.raises(OSError, match="Input/output"):
        file.sync()

    file.write_at(4, b"again")
    file.sync()

    assert outcomes(disk, content(LOG)) == {b"safeagain"}


def test_an_uncertain_truncation_becomes_safe_with_the_next_successful_sync(disk: FaultyFiles) -> None:
    file = safe_file(disk, b"a" * 100)
    file.truncate(10)
    disk.fail("sync")
    with pytest.raises(OSError, match="Input/output"):
        file.sync()
    assert outcomes(disk, content(LOG)) == {b"a" * 100, b"a" * 10}

    file.sync()

    assert outcomes(disk, content(LOG)) == {b"a" * 10}


def test_names_with_a_failed_sync_stay_unsafe(disk: FaultyFiles) -> None:
    disk.open(STORE / "a", create=True).close()
    disk.fail("sync_dir")
    with pytest.raises(OSError, match="Input/output"):
        disk.sync_dir(STORE)
    disk.open(STORE / "b", create=True).close()

    disk.sync_dir(STORE)

    assert outcomes(disk, names) == {("b",), ("a", "b")}


def test_a_killed_process_loses_nothing_and_the_worst_case_everything_unsafe(disk: FaultyFiles) -> None:
    file = safe_file(disk, b"safe")
    file.write_at(4, b"more")
    disk.open(STORE / "new", create=True).close()

    killed = disk.crash(Random(0), survives="everything")
    worst = disk.crash(Random(0), survives="nothing")

    assert (killed.read(LOG), names(killed)) == (b"safemore", ("log", "new"))
    assert (worst.read(LOG), names(worst)) == (b"safe", ("log",))


def test_the_state_after_a_crash_is_safe_on_the_new_disk(disk: FaultyFiles) -> None:
    file = safe_file(disk, b"o" * 4000)
    file.write_at(0, b"n" * 4000)
    disk.open(STORE / "new", create=True).close()

    found = disk.crash(Random(3))

    assert outcomes(found, content(LOG)) == {found.read(LOG)}
    assert outcomes(found, names) == {names(found)}


def test_a_crash_releases_locks_and_does_not_affect_the_running_disk(disk: FaultyFiles) -> None:
    file = safe_file(disk, b"safe")
    assert file.lock()

    found = disk.crash(Random(0))
    with found.open(LOG) as again:
        assert again.lock()
        again.write_at(0, b"CHANGED")

    assert file.read_at(0, 9) == b"safe"
    assert not disk.open(LOG).lock()


def test_the_same_seed_and_operations_give_the_same_state() -> None:
    def state(seed: int) -> object:
        disk = fresh_disk()
        for number in range(5):
            with disk.open(STORE / f"{number}", create=True) as file:
                file.write_at(0, bytes([number]) * 3000)
        found = disk.crash(Random(seed), tear_bytes=True)
        return [(name, found.read(STORE / name)) for name in found.list(STORE)]

    assert [state(seed) for seed in range(20)] == [state(seed) for seed in range(20)]
    assert len({repr(state(seed)) for seed in range(20)}) > 10


Write = tuple[int, bytes]
WRITES = st.lists(st.tuples(st.integers(0, 6000), st.binary(min_size=1, max_size=3000)), max_size=8)


@given(safe=WRITES, unsafe=WRITES, seed=st.integers(0, 10_000), tear_bytes=st.booleans())
def test_every_byte_after_a_crash_is_safe_or_was_written_there(
    safe: list[Write], unsafe: list[Write], seed: int, tear_bytes: bool
) -> None:
    disk = fresh_disk()
    file = safe_file(disk)
    for offset, data in safe:
        file.write_at(offset, data)
    file.sync()
    kept = disk.read(LOG)
    possible = [{byte} for byte in kept]
    for offset, data in unsafe:
        file.write_at(offset, data)
        possible += [{0} for _ in range(offset + len(data) - len(possible))]
        for at, byte in enumerate(data, offset):
            possible[at].add(byte)

    found = disk.crash(Random(seed), tear_bytes=tear_bytes).read(LOG)

    assert len(kept) <= len(found) <= len(possible)
    assert all(byte in possible[at] for at, byte in enumerate(found))


@given(before=WRITES, after=WRITES, seed=st.integers(0, 10_000))
def test_a_synced_write_exists_whatever_later_writes_do(before: list[Write], after: list[Write], seed: int) -> None:
    disk = fresh_disk()
    file = safe_file(disk)
    for offset, data in before:
        file.write_at(offset, data)
    file.sync()
    kept = disk.read(LOG)
    for offset, data in after:
        file.write_at(len(kept) + offset, data)

    found = disk.crash(Random(seed)).read(LOG)

    assert found[: len(kept)] == kept

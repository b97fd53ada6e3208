"""Every operation in order, and the way back to any moment."""

from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.errors import UsageError
from pocketmq.files import files_below, write_atomically
from pocketmq.testing import FakeClock, FaultyFiles

LOG = Path("/log")


def everything(files: FaultyFiles) -> dict[str, bytes]:
    return {str(path): files.read(path) for path in files_below(files, Path("/"))}


def test_every_change_is_recorded_in_order() -> None:
    clock = FakeClock(start_ms=1000)
    disk = FaultyFiles(clock=clock)
    with disk.open(LOG, create=True) as file:
        file.allocate(100)
        clock.advance_ms(5)
        file.write_at(7, b"data")
        file.truncate(50)
        file.sync()
    disk.make_dir(Path("/folder"))
    disk.replace(LOG, Path("/folder/log"))
    disk.sync_dir(Path("/folder"))
    disk.unlink(Path("/folder/log"))
    disk.remove_dir(Path("/folder"))

    kinds = [operation.kind for operation in disk.operations]
    write = disk.operations[2]

    assert kinds == [
        "create",
        "allocate",
        "write",
        "truncate",
        "sync",
        "make_dir",
        "replace",
        "sync_dir",
        "unlink",
        "remove_dir",
    ]
    assert (write.path, write.offset, write.data, write.at_ms, write.failed) == ("/log", 7, b"data", 1005, False)
    assert disk.operations[6].target == "/folder/log"
    assert disk.position == 10


def test_reading_and_refused_calls_are_not_recorded() -> None:
    disk = FaultyFiles()
    disk.open(LOG, create=True).close()
    before = disk.position

    disk.read(LOG)
    disk.list(Path("/"))
    with pytest.raises(FileNotFoundError):
        disk.unlink(Path("/missing"))

    assert disk.position == before


def test_a_failed_call_is_recorded_as_failed() -> None:
    disk = FaultyFiles()
    disk.fail("sync")
    with disk.open(LOG, create=True) as file, pytest.raises(OSError, match="Input/output"):
        file.sync()

    assert disk.operations[-1].kind == "sync"
    assert disk.operations[-1].failed


def test_the_disk_can_be_restored_to_any_moment() -> None:
    disk = FaultyFiles()
    states = [everything(disk)]
    for turn in range(4):
        with disk.open(Path(f"/{turn}"), create=True) as file:
            states.append(everything(disk))
            file.write_at(turn, b"data" * turn or b"first")
            states.append(everything(disk))
        if turn == 2:
            disk.replace(Path("/0"), Path("/1"))
            states.append(everything(disk))

    assert [everything(disk.state_at(position)) for position in range(disk.position + 1)] == states


def test_an_earlier_state_has_its_unsafe_changes_in_flight() -> None:
    disk = FaultyFiles()
    with disk.open(LOG, create=True) as file:
        disk.sync_dir(Path("/"))
        file.write_at(0, b"data")
        unsafe = disk.position
        file.sync()

    before = {disk.state_at(unsafe).crash(Random(seed)).read(LOG) for seed in range(50)}
    after = {disk.state_at(unsafe + 1).crash(Random(seed)).read(LOG) for seed in range(50)}

    assert {b"", b"data"} <= before
    assert after == {b"data"}


def test_going_back_does_not_change_the_disk() -> None:
    disk = FaultyFiles()
    with disk.open(LOG, create=True) as file:
        file.write_at(0, b"data")

    with disk.state_at(1).open(LOG) as earlier:
        earlier.write_at(0, b"other history")

    assert disk.read(LOG) == b"data"
    assert disk.position == 2


def test_an_unlinked_open_file_does_not_prevent_a_restore() -> None:
    disk = FaultyFiles()
    with disk.open(LOG, create=True) as file:
        disk.unlink(LOG)
        disk.sync_dir(Path("/"))
        file.write_at(0, b"into nowhere")
        file.sync()

        assert file.read_at(0, 4) == b"into"
    assert everything(disk.state_at(disk.position)) == {}


def test_crash_points_cover_every_boundary_and_are_reproducible_from_their_seed() -> None:
    disk = FaultyFiles()
    write_atomically(disk, Path("/table"), b"one" * 500)
    write_atomically(disk, Path("/table"), b"two" * 500)

    points = list(disk.crash_points(seed=4, states=3))

    assert [point.position for point in points] == [n for n in range(disk.position + 1) for _ in range(3)]
    assert [point.last for point in points[3::3]] == list(disk.operations)
    assert points[0].last is None
    for point in points:
        again = disk.state_at(point.position).crash(Random(point.seed))
        assert everything(again) == everything(point.files)


def test_operations_during_the_iteration_are_not_part_of_it() -> None:
    disk = FaultyFiles()
    disk.open(LOG, create=True).close()
    points = disk.crash_points(seed=0)
    next(points)

    disk.unlink(LOG)

    assert [point.position for point in points] == [1]


def test_a_crash_starts_a_new_journal() -> None:
    disk = FaultyFiles()
    with disk.open(LOG, create=True) as file:
        file.write_at(0, b"data")
    found = disk.crash(Random(0), survives="everything")

    with found.open(LOG) as file:
        file.write_at(4, b"!")

    assert found.position == 1
    assert found.state_at(0).read(LOG) == b"data"
    assert found.state_at(1).read(LOG) == b"data!"


def test_a_full_journal_drops_its_start_and_reports_it() -> None:
    disk = FaultyFiles(journal_max=10)
    with disk.open(LOG, create=True) as file:
        for number in range(40):
            file.write_at(number, b"x")

    kept = disk.position - len(disk.operations)

    assert disk.position == 41
    assert len(disk.operations) <= 10
    assert disk.state_at(kept).read(LOG) == b"x" * (kept - 1)
    assert disk.state_at(41).read(LOG) == b"x" * 40
    with pytest.raises(UsageError, match="journal_max"):
        disk.state_at(kept - 1)
    with pytest.raises(UsageError, match="no state at 42"):
        disk.state_at(42)


def test_a_journal_needs_a_size() -> None:
    with pytest.raises(UsageError, match="at least 1"):
        FaultyFiles(journal_max=0)


@given(st.integers(0, 100_000))
def test_the_journal_replays_random_operations(seed: int) -> None:
    random = Random(seed)
    disk = FaultyFiles(journal_max=random.choice((3, 1000)))
    for _ in range(30):
        act_at_random(disk, random)

    replayed = disk.state_at(disk.position)

    assert everything(replayed) == everything(disk)
    for fate in range(5):
        assert everything(replayed.crash(Random(fate))) == everything(disk.crash(Random(fate)))


def act_at_random(disk: FaultyFiles, random: Random) -> None:
    path, other = (Path(random.choice(("/a", "/b", "/d/a", "/d/b"))) for _ in range(2))
    disk.make_dir(path.parent)
    disk.make_dir(other.parent)
    if random.random() < 0.1:
        disk.fail(random.choice(("sync", "write", "sync_dir")))
    try:
        with disk.open(path, create=True) as file:
            file.write_at(random.randrange(3000), random.randbytes(random.randrange(2000)))
            if random.random() < 0.2:
                file.truncate(random.randrange(3000))
            if random.random() < 0.3:
                disk.replace(path, other)
            if random.random() < 0.3:
                file.sync()
            if random.random() < 0.3:
                disk.unlink(path)
        if random.random() < 0.3:
            disk.sync_dir(path.parent)
    except OSError:
        pass

"""Calls that fail, calls that stall, and a disk that is full."""

import asyncio
import errno
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Any, cast

import pytest

from pocketmq.errors import Stuck, UsageError
from pocketmq.testing import FaultyFiles, VirtualLoop, run

A = Path("/a")
B = Path("/b")
KIB = 1024


@pytest.fixture
def disk() -> FaultyFiles:
    files = FaultyFiles()
    for path in (A, B):
        files.open(path, create=True).close()
    return files


def write(disk: FaultyFiles, path: Path, data: bytes = b"x") -> None:
    with disk.open(path) as file:
        file.write_at(0, data)


def fails(call: Callable[[], object]) -> bool:
    try:
        call()
    except OSError:
        return True
    return False


def test_the_nth_call_fails_the_given_number_of_times(disk: FaultyFiles) -> None:
    fault = disk.fail("write", errno.ENOSPC, nth=3, times=2)

    assert [fails(lambda: write(disk, A)) for _ in range(6)] == [False, False, True, True, False, False]
    assert fault.hits == 2


def test_a_fault_lasts_until_it_is_healed(disk: FaultyFiles) -> None:
    fault = disk.fail("sync_dir", times=None)
    assert [fails(lambda: disk.sync_dir(Path("/"))) for _ in range(3)] == [True, True, True]

    fault.heal()

    assert not fails(lambda: disk.sync_dir(Path("/")))


def test_a_fault_ends_with_its_block(disk: FaultyFiles) -> None:
    with disk.fail("write", times=None):
        assert fails(lambda: write(disk, A))

    assert not fails(lambda: write(disk, A))


def test_a_fault_affects_only_matching_paths(disk: FaultyFiles) -> None:
    disk.fail("write", path="/b*", times=None)

    assert not fails(lambda: write(disk, A))
    assert fails(lambda: write(disk, B))


def test_the_error_has_the_requested_number_and_names_the_path(disk: FaultyFiles) -> None:
    disk.fail("write", errno.EDQUOT)

    with pytest.raises(OSError, match="/a") as caught:
        write(disk, A)

    assert caught.value.errno == errno.EDQUOT


CALLS: list[tuple[str, Callable[[FaultyFiles], object]]] = [
    ("open", lambda disk: disk.open(A)),
    ("create", lambda disk: disk.open(Path("/new"), create=True)),
    ("read", lambda disk: disk.read(A)),
    ("read", lambda disk: disk.open(A).read_at(0, 1)),
    ("write", lambda disk: write(disk, A)),
    ("truncate", lambda disk: disk.open(A).truncate(5)),
    ("allocate", lambda disk: disk.open(A).allocate(5)),
    ("sync", lambda disk: disk.open(A).sync()),
    ("make_dir", lambda disk: disk.make_dir(Path("/folder"))),
    ("remove_dir", lambda disk: disk.remove_dir(Path("/empty"))),
    ("replace", lambda disk: disk.replace(A, B)),
    ("unlink", lambda disk: disk.unlink(A)),
    ("sync_dir", lambda disk: disk.sync_dir(Path("/"))),
]


@pytest.mark.parametrize(("call", "act"), CALLS)
def test_every_call_can_fail_and_then_changes_no_name_and_no_size(
    disk: FaultyFiles, call: str, act: Callable[[FaultyFiles], object]
) -> None:
    disk.make_dir(Path("/empty"))
    disk.fail(cast("Any", call))

    with pytest.raises(OSError, match="Input/output error"):
        act(disk)

    assert disk.list(Path("/")) == ["a", "b", "empty"]
    if call != "write":
        assert disk.read(A) == b""
    act(disk)


def test_opening_an_existing_file_does_not_count_as_creating(disk: FaultyFiles) -> None:
    fault = disk.fail("create")

    disk.open(A, create=True).close()

    assert fault.hits == 0


def test_a_failed_write_is_partial_depending_on_the_seed() -> None:
    def arrived(seed: int) -> bytes:
        disk = FaultyFiles(seed=seed)
        disk.fail("write")
        with disk.open(A, create=True) as file, pytest.raises(OSError, match="Input/output error"):
            file.write_at(0, bytes(range(100)))
        return disk.read(A)

    found = [arrived(seed) for seed in range(20)]

    assert found == [arrived(seed) for seed in range(20)]
    assert len(set(found)) > 5
    assert all(data == bytes(range(len(data))) for data in found)


def test_unknown_calls_and_impossible_counts_are_refused(disk: FaultyFiles) -> None:
    with pytest.raises(UsageError, match="unknown call"):
        disk.fail(cast("Any", "fsync"))
    with pytest.raises(UsageError, match="both must be at least 1"):
        disk.fail("sync", nth=0)
    with pytest.raises(UsageError, match="both must be at least 1"):
        disk.stall("sync", times=0)


def test_a_stalled_call_waits_until_released(disk: FaultyFiles) -> None:
    stall = disk.stall("write", "/a")

    with ThreadPoolExecutor() as pool:
        blocked = pool.submit(write, disk, A, b"late")
        stall.wait_until_reached()
        write(disk, B, b"meanwhile")

        assert (disk.stalled(), stall.waiting, blocked.done()) == (1, 1, False)
        assert (disk.read(A), disk.read(B)) == (b"", b"meanwhile")

        stall.release()
        blocked.result(5)
    assert disk.read(A) == b"late"
    assert disk.stalled() == 0


def test_several_calls_can_be_stalled_at_once(disk: FaultyFiles) -> None:
    with ThreadPoolExecutor() as pool:
        with disk.stall("write", times=None) as stall:
            blocked = [pool.submit(write, disk, path) for path in (A, B)]
            stall.wait_until_reached(2)
        for future in blocked:
            future.result(5)

    assert not fails(lambda: write(disk, A))


def test_a_running_sync_covers_only_bytes_written_before_its_start(disk: FaultyFiles) -> None:
    disk.sync_dir(Path("/"))
    with disk.open(A) as file, ThreadPoolExecutor() as pool:
        file.write_at(0, b"before")
        with disk.stall("sync") as stall:
            syncing = pool.submit(file.sync)
            stall.wait_until_reached()
            file.write_at(6, b"after")
            during = disk.crash(Random(0), survives="nothing")
        syncing.result(5)
        done = disk.crash(Random(0), survives="nothing")

    assert during.read(A) == b""
    assert done.read(A) == b"before"


def test_a_running_sync_of_a_folder_covers_only_earlier_names(disk: FaultyFiles) -> None:
    with ThreadPoolExecutor() as pool:
        with disk.stall("sync_dir") as stall:
            syncing = pool.submit(disk.sync_dir, Path("/"))
            stall.wait_until_reached()
            disk.open(Path("/later"), create=True).close()
        syncing.result(5)

    assert disk.crash(Random(0), survives="nothing").list(Path("/")) == ["a", "b"]


def test_a_call_stalled_just_before_the_release_does_not_wait(disk: FaultyFiles) -> None:
    stall = disk.stall("write")

    stall.release()
    stall.block()

    assert (stall.waiting, disk.stalled()) == (0, 0)


def test_stalls_can_be_used_one_after_another(disk: FaultyFiles) -> None:
    for text in (b"1", b"2"):
        with ThreadPoolExecutor() as pool, disk.stall("write") as stall:
            blocked = pool.submit(write, disk, A, text)
            stall.wait_until_reached()
            assert disk.stalled() == 1
            stall.release()
            blocked.result(5)

        assert disk.read(A) == text


def test_heal_releases_stalls_and_ends_faults(disk: FaultyFiles) -> None:
    stall = disk.stall("write", "/a")
    disk.fail("write", path="/b", times=None)

    with ThreadPoolExecutor() as pool:
        blocked = pool.submit(write, disk, A)
        stall.wait_until_reached()
        disk.heal()
        blocked.result(5)

    assert not fails(lambda: write(disk, B))


def test_waiting_for_an_unreached_stall_has_a_deadline(disk: FaultyFiles) -> None:
    with pytest.raises(Stuck, match="0 of 1 calls of sync"):
        disk.stall("sync").wait_until_reached(deadline_s=0.01)


def test_a_stalled_call_without_release_fails_after_a_limit(disk: FaultyFiles) -> None:
    stall = disk.stall("write", longest_s=0.01)

    with pytest.raises(Stuck, match="not released"):
        write(disk, A)

    assert stall.waiting == 0


def test_virtual_time_passes_a_stalled_sync_and_waits_for_a_released_one(disk: FaultyFiles) -> None:
    async def main() -> list[tuple[str, float]]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        loop.count_stalled(disk.stalled)
        seen: list[tuple[str, float]] = []
        with disk.open(A) as file, disk.stall("sync") as stall:
            syncing = asyncio.create_task(asyncio.to_thread(file.sync))
            await asyncio.sleep(60)
            seen.append(("still stalled", loop.time()))
            stall.release()
            await syncing
            seen.append(("synced", loop.time()))
        return seen

    assert run(main()) == [("still stalled", 60.0), ("synced", 60.0)]


def test_a_full_disk_rejects_writes_and_recovers_after_an_unlink() -> None:
    disk = FaultyFiles(capacity=64 * KIB)
    with disk.open(A, create=True) as file:
        file.write_at(0, bytes(60 * KIB))

    with disk.open(B, create=True) as file:
        with pytest.raises(OSError, match="No space left"):
            file.write_at(0, b"b" * 8 * KIB)
        assert file.size() == 4 * KIB
        assert disk.usage(B).free == 0

        disk.unlink(A)
        file.write_at(0, b"b" * 8 * KIB)

    assert disk.usage(B) == (64 * KIB, 56 * KIB)


def test_truncate_releases_space() -> None:
    disk = FaultyFiles(capacity=8 * KIB)
    with disk.open(A, create=True) as file:
        file.write_at(0, bytes(8 * KIB))
        file.truncate(100)

    assert disk.usage(A).free == 4 * KIB


def test_an_unlinked_file_keeps_its_space_until_it_is_closed() -> None:
    disk = FaultyFiles(capacity=8 * KIB)
    with disk.open(A, create=True) as file:
        file.write_at(0, bytes(8 * KIB))
        disk.unlink(A)

        assert disk.usage(Path("/")).free == 0
    assert disk.usage(Path("/")).free == 8 * KIB


def test_a_replaced_file_releases_its_space() -> None:
    disk = FaultyFiles()
    for path in (A, B):
        with disk.open(path, create=True) as file:
            file.write_at(0, bytes(4 * KIB))
    taken = disk.usage(A).free

    disk.replace(B, A)

    assert disk.usage(A).free == taken + 4 * KIB


def test_reserved_space_is_kept_for_its_file() -> None:
    disk = FaultyFiles(capacity=16 * KIB)
    with disk.open(A, create=True) as reserved, disk.open(B, create=True) as other:
        reserved.allocate(12 * KIB)
        other.write_at(0, bytes(4 * KIB))

        reserved.write_at(0, bytes(12 * KIB))

        assert disk.usage(A).free == 0
        with pytest.raises(OSError, match="No space left"):
            reserved.allocate(16 * KIB)
        assert reserved.size() == 12 * KIB


def test_holes_use_no_space() -> None:
    disk = FaultyFiles(capacity=8 * KIB)
    with disk.open(A, create=True) as file:
        file.truncate(1 << 30)
        file.write_at(1 << 29, b"x")

    assert disk.usage(A).free == 4 * KIB


def test_a_disk_can_be_enlarged_and_a_crash_keeps_its_capacity() -> None:
    disk = FaultyFiles(capacity=4 * KIB)
    with disk.open(A, create=True) as file:
        assert fails(lambda: file.write_at(0, bytes(8 * KIB)))
        disk.resize(8 * KIB)
        file.write_at(0, bytes(8 * KIB))

    assert disk.crash(Random(0), survives="everything").usage(Path("/")) == (8 * KIB, 0)


def test_threads_share_a_disk_without_losing_anything() -> None:
    disk = FaultyFiles()
    start = threading.Barrier(4)

    def work(number: int) -> None:
        path = Path(f"/{number}")
        start.wait(5)
        with disk.open(path, create=True) as file:
            for at in range(200):
                file.write_at(at, bytes([number]))
                if at % 20 == 0:
                    file.sync()
                    disk.sync_dir(Path("/"))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))

    assert [disk.read(Path(f"/{number}")) for number in range(4)] == [bytes([number]) * 200 for number in range(4)]
    assert disk.position == 4 * (1 + 200 + 20)

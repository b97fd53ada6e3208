"""The files of a log: dropped, cut, recovered, and any history of them."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.store.kit import LOG_FILE_BYTES, ROOT, SMALLEST, LogOnDisk, record_of, walk

from pocketmq.errors import StoreDamaged, StoreError, SyncFailed, WrongState
from pocketmq.protocol.record import BLANK_SIZE
from pocketmq.store.log.commit_log import CommitLog
from pocketmq.store.settings import StoreSettings
from pocketmq.testing import FaultyFiles

MOST = LOG_FILE_BYTES - BLANK_SIZE


@pytest.fixture
def disk() -> LogOnDisk:
    return LogOnDisk().begin()


def bytes_of(disk: LogOnDisk, first: int = 0) -> bytes:
    return disk.files.read(ROOT / "commitlog" / f"{first:020d}")


def reopened(files: FaultyFiles, file_bytes: int = LOG_FILE_BYTES) -> CommitLog:
    """The log as it is found by the next start, before anything is cut."""
    log = CommitLog(StoreSettings(folder=ROOT, log_file_bytes=file_bytes), files)
    log.load()
    return log


def test_the_oldest_file_is_dropped_only_when_safe_and_not_the_newest(disk: LogOnDisk) -> None:
    disk.turn(MOST)
    assert disk.log.droppable == 0
    with pytest.raises(WrongState, match="cannot be dropped"):
        disk.log.drop_first()
    disk.turn(MOST)
    with pytest.raises(WrongState, match="not yet synced"):
        disk.log.drop_first()

    disk.tick(after_ms=10_000)

    assert disk.log.droppable == 1
    disk.log.drop_first()
    assert disk.log.first_offsets == [LOG_FILE_BYTES]
    assert disk.turn(100) == [2 * LOG_FILE_BYTES]


def test_the_age_of_a_file_is_its_last_write(disk: LogOnDisk) -> None:
    files = FaultyFiles(clock=disk.clock)
    disk = LogOnDisk(files).begin()
    disk.turn(MOST)
    disk.turn(100)

    assert [(first, status.size) for first, status in disk.log.file_statuses()] == [(0, 4096), (4096, 4096)]
    assert {status.modified_ms for _, status in disk.log.file_statuses()} == {1_700_000_000_000}


def test_a_truncation_zeroes_the_rest_and_removes_later_files(disk: LogOnDisk) -> None:
    disk.turn(1000)
    disk.turn(1000)
    disk.turn(MOST)
    disk.log.close()
    log = reopened(disk.files)

    dropped = log.cut(1000)

    assert dropped == 1008 + MOST
    assert (log.start, log.synced, log.written, log.end) == (0, 1000, 1000, 1000)
    assert disk.files.list(ROOT / "commitlog") == [f"{0:020d}"]
    assert bytes_of(disk) == record_of(1000, 0, store_ms=disk.clock.now_ms()) + bytes(LOG_FILE_BYTES - 1000)
    assert log.cut(1000) == 0


@pytest.mark.parametrize("call", ["unlink", "write", "sync", "sync_dir"])
def test_a_truncation_that_the_disk_rejects_raises_and_can_be_repeated(disk: LogOnDisk, call: str) -> None:
    disk.turn(1000, 1000, MOST)
    disk.log.close()
    log = reopened(disk.files)
    disk.files.fail(call)  # type: ignore[arg-type]

    with pytest.raises(StoreError, match="cannot truncate the log at offset 1000"):
        log.cut(1000)
    again = reopened(disk.files)
    again.cut(1000)

    assert len(list(walk(again))) == 1


def test_a_truncation_at_the_start_of_a_file_keeps_the_empty_file(disk: LogOnDisk) -> None:
    disk.turn(MOST)
    disk.turn(100)
    disk.log.close()
    log = reopened(disk.files)

    assert log.cut(LOG_FILE_BYTES) == 100

    assert log.first_offsets == [0, LOG_FILE_BYTES]
    assert bytes_of(disk, LOG_FILE_BYTES) == bytes(LOG_FILE_BYTES)


def test_a_truncation_is_safe_when_it_returns_and_harmless_if_interrupted(disk: LogOnDisk) -> None:
    disk.turn(1000)
    disk.turn(1000)
    disk.turn(MOST)
    disk.tick(after_ms=10_000)
    log, begun = reopened(disk.files), disk.files.position

    log.cut(1000)

    for point in disk.files.crash_points(seed=5, states=5):
        if point.position >= begun:
            again = reopened(point.files)
            assert next(walk(again)) == (0, record_of(1000, 0, store_ms=disk.clock.now_ms() - 10_000))
            again.cut(1000)
            assert len(list(walk(again))) == 1
    safe = reopened(disk.files.crash(Random(0), survives="nothing"))
    assert len(list(walk(safe))) == 1


def test_a_file_in_preparation_is_removed_by_the_truncation() -> None:
    files = FaultyFiles()
    files.make_dir(ROOT / "commitlog")
    files.open(ROOT / "commitlog" / f"{0:020d}", create=True).close()
    log = reopened(files)

    assert log.cut(0) == 0

    assert files.list(ROOT / "commitlog") == []


def test_a_recovered_log_is_synced_before_the_next_write(disk: LogOnDisk) -> None:
    disk.turn(1000)
    disk.turn(MOST)
    log = reopened(disk.files)
    log.cut(LOG_FILE_BYTES + MOST)

    log.sync_from(0)

    safe = reopened(disk.files.crash(Random(0), survives="nothing"))
    assert len(list(walk(safe))) == 2
    disk.files.fail("sync")
    with pytest.raises(SyncFailed, match="cannot sync the recovered log"):
        log.sync_from(0)


def test_a_log_of_another_file_size_is_not_touched(disk: LogOnDisk) -> None:
    disk.turn(1000)
    log = CommitLog(StoreSettings(folder=ROOT, log_file_bytes=2 * LOG_FILE_BYTES), disk.files)

    with pytest.raises(StoreDamaged, match="has 4096 bytes, expected 8192"):
        log.load()


@given(st.lists(st.lists(st.integers(SMALLEST, MOST), min_size=1, max_size=6), max_size=12), st.randoms())
def test_any_turns_with_failures_and_restarts_keep_exactly_the_accepted_messages(
    turns: list[list[int]], random: Random
) -> None:
    disk = LogOnDisk(FaultyFiles(seed=random.randrange(1000)), prepared_files=8).begin()
    accepted: list[int] = []
    for sizes in turns:
        if random.random() < 0.3:
            disk.files.fail("write", nth=random.randint(1, 3))
        try:
            accepted += disk.turn(*sizes)
        except StoreError:
            disk.files.heal()
        disk.tick()
        if random.random() < 0.2:
            disk.log.close()
            disk = resumed(disk)

    assert [at for at, _ in walk(disk.log)] == accepted


def resumed(disk: LogOnDisk) -> LogOnDisk:
    files = disk.files
    files.heal()
    again = LogOnDisk(files, prepared_files=8)
    records = list(walk(again.log))
    again.log.cut(records[-1][0] + len(records[-1][1]) if records else 0)
    return again.begin()

"""A log that refuses a turn: its error, what it rolls back, and the remains of a failed write."""

import errno
from contextlib import suppress

import pytest
from tests.store.kit import LOG_FILE_BYTES, ROOT, LogOnDisk, walk

from pocketmq.errors import (
    PocketMQError,
    StoreBusy,
    StoreError,
    StoreFull,
    SyncFailed,
    WrongState,
)
from pocketmq.protocol.record import BLANK_SIZE, decode_record
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


# refusing


def test_a_log_accepts_messages_only_while_it_is_open_for_writing() -> None:
    disk = LogOnDisk()
    disk.log.tick()
    with pytest.raises(WrongState, match="not open for writing"):
        disk.log.reserve(100)

    disk.begin()
    disk.turn(100)
    disk.log.close()

    with pytest.raises(WrongState, match="closed"):
        disk.log.reserve(100)
    disk.log.close()


def test_closing_rolls_back_the_turn_and_removes_unused_files(disk: LogOnDisk) -> None:
    disk.turn(100)
    disk.append(100)

    disk.log.close()

    assert disk.log.end == 100
    assert disk.files.list(ROOT / "commitlog") == [f"{0:020d}"]


def test_a_halted_log_refuses_with_the_cause_and_can_be_read(disk: LogOnDisk) -> None:
    disk.turn(100)
    cause = SyncFailed("the disk is gone")

    disk.log.halt(cause)

    for _ in range(2):
        with pytest.raises(SyncFailed, match="the disk is gone") as caught:
            disk.log.reserve(100)
        assert caught.value.__cause__ is cause
    assert disk.log.record(0) is not None
    disk.log.close()
    with pytest.raises(SyncFailed):
        disk.log.reserve(100)


def test_without_a_prepared_file_a_roll_is_refused_and_smaller_records_still_fit() -> None:
    disk = LogOnDisk(prepared_files=1).begin()
    disk.turn(MOST - 500)

    for _ in range(2):
        with pytest.raises(StoreBusy, match="offset 4096 is still being created"):
            disk.append(1000)
    assert disk.turn(300) == [MOST - 500]

    disk.making.run()
    assert disk.turn(1000) == [LOG_FILE_BYTES]
    assert disk.preparer.starved == 2
    assert len(list(walk(disk.log))) == 3


def test_a_turn_refused_without_a_prepared_file_keeps_its_staged_messages() -> None:
    disk = LogOnDisk(prepared_files=1).begin()

    assert disk.append(MOST) == [0]
    disk.making.run()
    assert disk.append(MOST) == [LOG_FILE_BYTES]
    with pytest.raises(StoreBusy):
        disk.append(MOST)
    disk.log.write()

    assert [at for at, _ in walk(disk.log)] == [0, LOG_FILE_BYTES]


# giving back


def test_a_discarded_turn_has_no_effect(disk: LogOnDisk) -> None:
    disk.turn(100)
    begun = disk.files.position

    disk.append(200, MOST)
    disk.log.discard()
    disk.log.write()

    assert disk.files.position == begun
    assert disk.turn(300) == [100]


def test_a_rolled_back_roll_is_repeated_into_the_same_file() -> None:
    disk = LogOnDisk(prepared_files=1).begin()
    disk.turn(1000)
    disk.making.run()
    disk.append(MOST)
    disk.log.discard()

    assert disk.turn(500, MOST) == [1000, LOG_FILE_BYTES]
    assert [at for at, _ in walk(disk.log)] == [0, 1000, LOG_FILE_BYTES]


def test_a_reservation_without_a_record_is_returned(disk: LogOnDisk) -> None:
    disk.append(100)

    disk.log.unreserve(disk.log.reserve(200))

    assert disk.turn(300) == [100]
    assert [len(raw) for _, raw in walk(disk.log)] == [100, 300]


def test_a_roll_remains_when_its_reservation_is_returned(disk: LogOnDisk) -> None:
    disk.append(100)

    disk.log.unreserve(disk.log.reserve(MOST))
    disk.log.write()

    assert disk.log.written == LOG_FILE_BYTES
    assert disk.turn(300) == [LOG_FILE_BYTES]
    assert [len(raw) for _, raw in walk(disk.log)] == [100, 300]


def test_a_reservation_without_its_record_is_never_written(disk: LogOnDisk) -> None:
    disk.log.reserve(100)

    with pytest.raises(AssertionError, match="every reservation was put"):
        disk.log.write()


# writes that fail


@pytest.mark.parametrize(
    ("code", "kind"), [(errno.ENOSPC, StoreFull), (errno.EDQUOT, StoreFull), (errno.EIO, StoreError)]
)
def test_a_failed_write_rolls_back_the_turn_with_the_reason(disk: LogOnDisk, code: int, kind: type[StoreError]) -> None:
    disk.turn(100)
    disk.files.fail("write", code)

    with pytest.raises(kind, match="writing to the log at offset 100 failed") as caught:
        disk.turn(200, 300)

    assert isinstance(caught.value.__cause__, OSError)
    assert (disk.log.written, disk.log.end) == (100, 100)
    assert [at for at, _ in walk(disk.log)] == [0]


def test_after_a_failed_write_nothing_is_accepted_until_its_remains_are_removed(disk: LogOnDisk) -> None:
    disk.files.fail("write", errno.ENOSPC)
    with pytest.raises(StoreFull):
        disk.turn(100, 200)

    with pytest.raises(StoreFull, match="offset 0 failed"):
        disk.append(100)
    disk.tick()

    assert disk.log.stale == []
    assert disk.turn(150) == [0]
    assert bytes_of(disk)[150:] == bytes(LOG_FILE_BYTES - 150)


def test_complete_records_of_a_failed_write_are_removed() -> None:
    disk = LogOnDisk(FaultyFiles(capacity=2 * LOG_FILE_BYTES)).begin()
    disk.turn(1000)
    disk.files.resize(0)
    disk.append(500, 500, 1500, 1500, topic="Refused")
    with pytest.raises(StoreFull):
        disk.log.write()
    remains = [raw for _, raw in walk(reopened(disk.files))]
    assert [decode_record(raw).topic for raw in remains] == ["T", "Refused", "Refused", "Refused"]

    disk.tick()
    disk.files.resize(None)
    disk.turn(500)

    assert [decode_record(raw).topic for _, raw in walk(reopened(disk.files))] == ["T", "T"]
    assert bytes_of(disk)[1500:] == bytes(LOG_FILE_BYTES - 1500)


def test_remains_are_removed_although_the_disk_is_full() -> None:
    disk = LogOnDisk(FaultyFiles(), log_file_bytes=1 << 20).begin()
    disk.turn(1000)
    disk.making.run()
    disk.files.resize(3 * 4096)

    for _ in range(2):
        with pytest.raises(StoreFull):
            disk.turn(*[1000] * 20, topic="Refused")
        assert len(list(walk(reopened(disk.files, disk.log.segments.file_bytes)))) > 5
        disk.tick()
        assert disk.log.stale == []
        assert len(list(walk(reopened(disk.files, disk.log.segments.file_bytes)))) == 1
    assert disk.turn(1000) == [1000]


def test_a_write_that_fails_in_the_second_file_cleans_both() -> None:
    disk = LogOnDisk(prepared_files=3).begin()
    disk.turn(1000)
    disk.files.fail("write", path=f"*{LOG_FILE_BYTES}")
    disk.files.fail("write", path=f"*{LOG_FILE_BYTES}", nth=2)

    with pytest.raises(StoreError):
        disk.turn(1000, 2500, topic="Refused")
    assert disk.log.end == 1000
    with pytest.raises(StoreError):
        disk.append(100)
    disk.tick()
    disk.tick()

    assert bytes_of(disk)[1000:] == bytes(LOG_FILE_BYTES - 1000)
    assert bytes_of(disk, LOG_FILE_BYTES) == bytes(LOG_FILE_BYTES)
    assert disk.turn(500, MOST) == [1000, LOG_FILE_BYTES]
    assert [decode_record(raw).topic for _, raw in walk(reopened(disk.files))] == ["T", "T", "T"]


def test_a_broken_disk_is_retried_at_every_tick_until_it_works(disk: LogOnDisk) -> None:
    fault = disk.files.fail("write", errno.EIO, times=None)
    with pytest.raises(StoreError):
        disk.turn(1000)
    for _ in range(3):
        disk.tick()
        with suppress(PocketMQError):
            disk.turn(100)

    fault.heal()
    disk.tick()

    assert disk.turn(100) == [0]


def test_remains_that_cannot_be_removed_and_synced_end_all_writing(disk: LogOnDisk) -> None:
    disk.files.fail("write")
    disk.files.fail("sync", path=f"*{0:020d}")
    with pytest.raises(StoreError):
        disk.turn(1000)

    disk.tick()

    with pytest.raises(SyncFailed):
        disk.append(100)


@pytest.mark.parametrize("seed", range(20))
def test_no_power_loss_mixes_records_of_a_refused_turn_with_later_ones(seed: int) -> None:
    disk = LogOnDisk(FaultyFiles(seed=seed), prepared_files=3).begin()
    disk.turn(1000)
    disk.files.fail("write", nth=1 + seed % 2)
    with pytest.raises(StoreError):
        disk.turn(*[700] * 8, topic="Refused")
    disk.tick()
    repaired = disk.files.position
    disk.turn(700, 700)
    disk.turn(*[700] * 8)

    accepted = [raw for _, raw in walk(disk.log)]
    assert len(accepted) == 11
    for point in disk.files.crash_points(seed, states=3):
        if point.position >= repaired:
            found = [raw for _, raw in walk(reopened(point.files))]
            assert found == accepted[: len(found)]

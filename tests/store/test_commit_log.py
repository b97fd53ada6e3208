"""The commit log: where records go, what a failed write leaves, what readers see."""

import errno
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.golden import GOLDEN, needs_golden, store_file
from tests.store.kit import HOST, LOG_FILE_BYTES, ROOT, SMALLEST, LogOnDisk, record_of, walk

from pocketmq.clock import SystemClock
from pocketmq.errors import (
    InvalidMessage,
    PocketMQError,
    StoreBusy,
    StoreDamaged,
    StoreError,
    StoreFull,
    SyncFailed,
    WrongState,
)
from pocketmq.files import DiskFiles
from pocketmq.model.flags import SysFlag
from pocketmq.protocol.record import BLANK_SIZE, MAGIC_BLANK, decode_record, encode_record
from pocketmq.store.commit_log import CommitLog
from pocketmq.store.preparing import FilePreparer
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


# where records go


def test_records_follow_each_other_from_offset_zero(disk: LogOnDisk) -> None:
    assert disk.turn(100, 200) == [0, 100]
    assert disk.turn(300) == [300]

    assert (disk.log.start, disk.log.written, disk.log.end) == (0, 600, 600)
    assert [(at, len(raw)) for at, raw in walk(disk.log)] == [(0, 100), (100, 200), (300, 300)]


def test_nothing_of_a_turn_is_readable_before_it_is_written(disk: LogOnDisk) -> None:
    disk.append(100)

    assert (disk.log.written, disk.log.end) == (0, 100)
    assert disk.log.record(0) is None
    assert bytes_of(disk) == bytes(LOG_FILE_BYTES)
    disk.log.write()
    assert disk.log.record(0) == record_of(100, 0, store_ms=disk.clock.now_ms())


def test_a_turn_is_one_write_for_each_file_it_touches(disk: LogOnDisk) -> None:
    begun = disk.files.position

    disk.turn(*[250] * 8)
    disk.turn(*[250] * 12)

    writes = [operation for operation in disk.files.operations[begun:] if operation.kind == "write"]
    assert [(int(Path(write.path).name), write.offset, len(write.data)) for write in writes] == [
        (0, 0, 2000),
        (0, 2000, 2008),
        (LOG_FILE_BYTES, 0, 1000),
    ]


def test_an_empty_turn_writes_nothing(disk: LogOnDisk) -> None:
    begun = disk.files.position

    disk.log.write()

    assert disk.files.position == begun


@pytest.mark.parametrize(("size", "rolls"), [(MOST - 1000, False), (MOST - 999, True), (MOST, True)])
def test_a_record_that_leaves_no_room_for_a_filler_begins_the_next_file(
    disk: LogOnDisk, size: int, rolls: bool
) -> None:
    disk.turn(1000)

    assert disk.turn(size) == [LOG_FILE_BYTES if rolls else 1000]

    raw = bytes_of(disk)
    if rolls:
        assert raw[1000:1008] == (LOG_FILE_BYTES - 1000).to_bytes(4, "big") + MAGIC_BLANK.to_bytes(4, "big")
        assert raw[1008:] == bytes(LOG_FILE_BYTES - 1008)
    assert [len(found) for _, found in walk(disk.log)] == [1000, size]


def test_a_record_that_fills_a_file_leaves_just_the_fillers_head(disk: LogOnDisk) -> None:
    disk.turn(MOST)
    disk.turn(SMALLEST)

    assert bytes_of(disk)[MOST:] == BLANK_SIZE.to_bytes(4, "big") + MAGIC_BLANK.to_bytes(4, "big")
    assert [at for at, _ in walk(disk.log)] == [0, LOG_FILE_BYTES]


def test_one_turn_may_roll_over_several_files() -> None:
    disk = LogOnDisk(prepared_files=4).begin()

    offsets = disk.turn(*[MOST] * 3, 100)

    assert offsets == [0, LOG_FILE_BYTES, 2 * LOG_FILE_BYTES, 3 * LOG_FILE_BYTES]
    assert [at for at, _ in walk(disk.log)] == offsets


@pytest.mark.parametrize("size", [MOST + 1, LOG_FILE_BYTES, 1 << 30])
def test_a_record_larger_than_a_file_is_refused_and_leaves_no_trace(disk: LogOnDisk, size: int) -> None:
    disk.append(100)

    with pytest.raises(InvalidMessage, match=f"record of {size} bytes does not fit into a log file of 4096"):
        disk.log.reserve(size)

    assert disk.turn(100) == [100]


def test_records_that_fit_into_the_file_are_taken_together(disk: LogOnDisk) -> None:
    disk.turn(1000)
    records = [record_of(300, 1000), record_of(400, 1300)]

    assert disk.log.put_run([records[0][:50], records[0][50:], records[1]], 1700)
    disk.log.write()

    assert [raw for _, raw in walk(disk.log)][1:] == records
    assert disk.turn(200) == [1700]


def test_records_that_do_not_fit_into_the_file_are_not_taken_together(disk: LogOnDisk) -> None:
    disk.turn(1000)

    assert not disk.log.put_run([record_of(3089, 1000)], 4089)
    assert disk.log.end == 1000
    assert disk.log.put_run([record_of(3088, 1000)], 4088)
    disk.log.discard()

    assert disk.turn(200) == [1000]


def test_a_log_that_is_not_open_takes_no_records_together() -> None:
    assert not LogOnDisk().log.put_run([record_of(200, 0)], 200)


@needs_golden
@pytest.mark.parametrize(
    "store", sorted(GOLDEN.glob("store/*/*/commitlog")), ids=lambda path: "/".join(path.parts[-3:-1])
)
def test_the_real_brokers_records_fall_where_it_put_them_and_make_the_same_files(store: Path) -> None:
    theirs = {path.name: store_file(path) for path in sorted(store.iterdir())}
    disk = LogOnDisk(log_file_bytes=32 * 1024).begin()

    for raw in records_of(theirs):
        assert disk.log.reserve(len(raw)) == decode_record(raw).log_offset
        disk.log.put((raw,))
        disk.log.write()
        disk.making.run()

    assert disk.log.end > 64_000 or "4.9" in str(store)
    for name, bytes_there in theirs.items():
        assert disk.files.read(ROOT / "commitlog" / name) == bytes_there


def records_of(files: dict[str, bytes]) -> Iterator[bytes]:
    for raw in files.values():
        at = 0
        while size := int.from_bytes(raw[at : at + 4], "big"):
            if int.from_bytes(raw[at + 4 : at + 8], "big") == MAGIC_BLANK:
                assert at + size == len(raw)
                break
            yield raw[at : at + size]
            at += size


@needs_golden
def test_a_log_of_the_real_broker_is_read_and_continued(tmp_path: Path) -> None:
    store = GOLDEN / "store/5.3.3/clean/commitlog"
    (tmp_path / "commitlog").mkdir()
    for path in store.iterdir():
        (tmp_path / "commitlog" / path.name).write_bytes(store_file(path))
    settings = StoreSettings(folder=tmp_path, log_file_bytes=32 * 1024)
    log = CommitLog(settings, DiskFiles())
    log.load()

    records = list(walk(log))
    end = records[-1][0] + len(records[-1][1])
    assert log.cut(end) == 0
    log.begin(FilePreparer(settings, DiskFiles(), SystemClock(), log.segments))
    assert log.reserve(200) == end
    log.put((record_of(200, end),))
    log.write()

    assert len(records) > 100
    for at, raw in records:
        assert log.store_ms_at(at) == decode_record(raw).store_ms
    assert [raw for _, raw in walk(log)] == [raw for _, raw in records] + [record_of(200, end)]
    log.close()


# refusing


def test_a_log_takes_nothing_before_it_is_opened_for_writing_and_after_it_is_closed() -> None:
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


def test_closing_gives_back_the_turn_and_the_unused_files(disk: LogOnDisk) -> None:
    disk.turn(100)
    disk.append(100)

    disk.log.close()

    assert disk.log.end == 100
    assert disk.files.list(ROOT / "commitlog") == [f"{0:020d}"]


def test_a_halted_log_refuses_with_the_cause_and_can_still_be_read(disk: LogOnDisk) -> None:
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
        with pytest.raises(StoreBusy, match="offset 4096 is still being made"):
            disk.append(1000)
    assert disk.turn(300) == [MOST - 500]

    disk.making.run()
    assert disk.turn(1000) == [LOG_FILE_BYTES]
    assert disk.preparer.starved == 2
    assert len(list(walk(disk.log))) == 3


def test_a_turn_refused_for_lack_of_a_file_keeps_what_it_had_staged() -> None:
    disk = LogOnDisk(prepared_files=1).begin()

    assert disk.append(MOST) == [0]
    disk.making.run()
    assert disk.append(MOST) == [LOG_FILE_BYTES]
    with pytest.raises(StoreBusy):
        disk.append(MOST)
    disk.log.write()

    assert [at for at, _ in walk(disk.log)] == [0, LOG_FILE_BYTES]


# giving back


def test_a_discarded_turn_leaves_no_trace(disk: LogOnDisk) -> None:
    disk.turn(100)
    begun = disk.files.position

    disk.append(200, MOST)
    disk.log.discard()
    disk.log.write()

    assert disk.files.position == begun
    assert disk.turn(300) == [100]


def test_a_roll_that_was_given_back_is_done_again_into_the_same_file() -> None:
    disk = LogOnDisk(prepared_files=1).begin()
    disk.turn(1000)
    disk.making.run()
    disk.append(MOST)
    disk.log.discard()

    assert disk.turn(500, MOST) == [1000, LOG_FILE_BYTES]
    assert [at for at, _ in walk(disk.log)] == [0, 1000, LOG_FILE_BYTES]


def test_a_reservation_for_which_no_record_could_be_made_is_given_back(disk: LogOnDisk) -> None:
    disk.append(100)

    disk.log.reserve(200)
    disk.log.unreserve(200)

    assert disk.turn(300) == [100]
    assert [len(raw) for _, raw in walk(disk.log)] == [100, 300]


def test_a_roll_stays_when_its_reservation_is_given_back(disk: LogOnDisk) -> None:
    disk.append(100)

    disk.log.reserve(MOST)
    disk.log.unreserve(MOST)
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
def test_a_failed_write_gives_the_turn_back_and_says_why(disk: LogOnDisk, code: int, kind: type[StoreError]) -> None:
    disk.turn(100)
    disk.files.fail("write", code)

    with pytest.raises(kind, match="writing to the log at offset 100 failed") as caught:
        disk.turn(200, 300)

    assert isinstance(caught.value.__cause__, OSError)
    assert (disk.log.written, disk.log.end) == (100, 100)
    assert [at for at, _ in walk(disk.log)] == [0]


def test_after_a_failed_write_nothing_is_taken_until_its_remains_are_gone(disk: LogOnDisk) -> None:
    disk.files.fail("write", errno.ENOSPC)
    with pytest.raises(StoreFull):
        disk.turn(100, 200)

    with pytest.raises(StoreFull, match="offset 0 failed"):
        disk.append(100)
    disk.tick()

    assert disk.log.stale == []
    assert disk.turn(150) == [0]
    assert bytes_of(disk)[150:] == bytes(LOG_FILE_BYTES - 150)


def test_whole_records_left_by_a_failed_write_never_come_back() -> None:
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


def test_the_remains_go_even_while_the_disk_is_still_full() -> None:
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


def test_a_write_that_fails_in_the_second_file_gives_back_both_and_cleans_both() -> None:
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


def test_a_disk_that_stays_broken_is_asked_again_at_every_tick_and_heals_by_itself(disk: LogOnDisk) -> None:
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


def test_remains_that_cannot_be_synced_away_end_all_writing(disk: LogOnDisk) -> None:
    disk.files.fail("write")
    disk.files.fail("sync", path=f"*{0:020d}")
    with pytest.raises(StoreError):
        disk.turn(1000)

    disk.tick()

    with pytest.raises(SyncFailed):
        disk.append(100)


@pytest.mark.parametrize("seed", range(20))
def test_no_power_loss_mixes_the_records_of_a_refused_turn_with_later_ones(seed: int) -> None:
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


# reading


def test_views_are_read_only_and_see_only_what_is_written(disk: LogOnDisk) -> None:
    disk.turn(100, 200)
    disk.append(300)

    view = disk.log.view(100, 200)

    assert view.readonly
    assert bytes(view) == record_of(200, 100, store_ms=disk.clock.now_ms())
    for offset, size in ((-1, 10), (250, 51), (300, 1), (300, 300), (10_000, 1)):
        with pytest.raises(StoreError, match=rf"not {size} bytes at {offset}$"):
            disk.log.view(offset, size)


def test_a_view_never_spans_files(disk: LogOnDisk) -> None:
    disk.turn(100, MOST)

    with pytest.raises(StoreError, match="in files of 4096"):
        disk.log.view(LOG_FILE_BYTES - 10, 20)


def test_a_view_lives_on_when_its_file_is_dropped(disk: LogOnDisk) -> None:
    disk.turn(1000)
    disk.turn(MOST)
    view = disk.log.view(0, 1000)
    disk.tick(after_ms=10_000)

    disk.log.drop_first()
    disk.making.run()

    assert disk.log.start == LOG_FILE_BYTES
    assert disk.files.status(ROOT / "commitlog" / f"{0:020d}") is None
    assert bytes(view) == record_of(1000, 0, store_ms=disk.clock.now_ms() - 10_000)
    with pytest.raises(StoreError, match="holds offsets 4096 to"):
        disk.log.view(0, 1000)
    assert disk.log.record(0) is None
    assert disk.log.record(LOG_FILE_BYTES) is not None


@pytest.mark.parametrize("offset", [-1, 1, 99, 100, 300, 308, LOG_FILE_BYTES - 4, LOG_FILE_BYTES + 91, 1 << 40])
def test_there_is_a_record_only_where_one_begins(disk: LogOnDisk, offset: int) -> None:
    disk.turn(100)
    disk.turn(200)
    disk.turn(MOST)

    found = disk.log.record(offset)

    assert (found is not None) == (offset == 100)


@pytest.mark.parametrize("size", [0, 8, 90, 301, MOST + 9, 0x7FFFFFFF, 0xFFFFFFFF])
def test_a_size_that_cannot_be_true_makes_no_record(disk: LogOnDisk, size: int) -> None:
    disk.turn(300)
    with disk.files.open(ROOT / "commitlog" / f"{0:020d}") as file:
        file.write_at(0, size.to_bytes(4, "big"))

    assert disk.log.record(0) is None


@pytest.mark.parametrize("born_v6", [False, True])
@pytest.mark.parametrize("store_v6", [False, True])
def test_the_store_time_is_found_whatever_the_hosts_are(disk: LogOnDisk, born_v6: bool, store_v6: bool) -> None:
    flags = SysFlag.BORN_HOST_V6 * born_v6 | SysFlag.STORE_HOST_V6 * store_v6
    hosts = [HOST + bytes(12) * v6 for v6 in (born_v6, store_v6)]
    raw = encode_record(b"T", 0, 0, 0, b"body", b"", 0, flags, 111, hosts[0], 1_700_000_000_123, hosts[1])
    disk.log.reserve(len(raw))
    disk.log.put((raw,))
    disk.log.write()

    assert disk.log.store_ms_at(0) == 1_700_000_000_123


# files


def test_the_oldest_file_is_dropped_only_when_safe_and_not_the_newest(disk: LogOnDisk) -> None:
    disk.turn(MOST)
    assert disk.log.droppable == 0
    with pytest.raises(WrongState, match="may not be dropped"):
        disk.log.drop_first()
    disk.turn(MOST)
    with pytest.raises(WrongState, match="not yet safe"):
        disk.log.drop_first()

    disk.tick(after_ms=10_000)

    assert disk.log.droppable == 1
    disk.log.drop_first()
    assert disk.log.first_offsets == [LOG_FILE_BYTES]
    assert disk.turn(100) == [2 * LOG_FILE_BYTES]


def test_the_age_of_files_is_when_they_were_last_written(disk: LogOnDisk) -> None:
    files = FaultyFiles(clock=disk.clock)
    disk = LogOnDisk(files).begin()
    disk.turn(MOST)
    disk.turn(100)

    assert [(first, status.size) for first, status in disk.log.file_statuses()] == [(0, 4096), (4096, 4096)]
    assert {status.modified_ms for _, status in disk.log.file_statuses()} == {1_700_000_000_000}


def test_a_cut_zeroes_what_follows_and_removes_later_files(disk: LogOnDisk) -> None:
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
def test_a_cut_that_the_disk_refuses_says_so_and_can_be_made_again(disk: LogOnDisk, call: str) -> None:
    disk.turn(1000, 1000, MOST)
    disk.log.close()
    log = reopened(disk.files)
    disk.files.fail(call)  # type: ignore[arg-type]

    with pytest.raises(StoreError, match="cutting the log at offset 1000 failed"):
        log.cut(1000)
    again = reopened(disk.files)
    again.cut(1000)

    assert len(list(walk(again))) == 1


def test_a_cut_at_the_start_of_a_file_keeps_the_file_empty(disk: LogOnDisk) -> None:
    disk.turn(MOST)
    disk.turn(100)
    disk.log.close()
    log = reopened(disk.files)

    assert log.cut(LOG_FILE_BYTES) == 100

    assert log.first_offsets == [0, LOG_FILE_BYTES]
    assert bytes_of(disk, LOG_FILE_BYTES) == bytes(LOG_FILE_BYTES)


def test_a_cut_is_safe_when_it_returns_and_harmless_when_it_is_interrupted(disk: LogOnDisk) -> None:
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


def test_a_file_that_was_being_made_goes_with_the_cut() -> None:
    files = FaultyFiles()
    files.make_dir(ROOT / "commitlog")
    files.open(ROOT / "commitlog" / f"{0:020d}", create=True).close()
    log = reopened(files)

    assert log.cut(0) == 0

    assert files.list(ROOT / "commitlog") == []


def test_a_recovered_log_is_synced_before_it_goes_on(disk: LogOnDisk) -> None:
    disk.turn(1000)
    disk.turn(MOST)
    log = reopened(disk.files)
    log.cut(LOG_FILE_BYTES + MOST)

    log.sync_from(0)

    safe = reopened(disk.files.crash(Random(0), survives="nothing"))
    assert len(list(walk(safe))) == 2
    disk.files.fail("sync")
    with pytest.raises(SyncFailed, match="syncing the recovered log failed"):
        log.sync_from(0)


def test_a_log_of_another_file_size_is_not_touched(disk: LogOnDisk) -> None:
    disk.turn(1000)
    log = CommitLog(StoreSettings(folder=ROOT, log_file_bytes=2 * LOG_FILE_BYTES), disk.files)

    with pytest.raises(StoreDamaged, match="has 4096 bytes, expected 8192"):
        log.load()


@given(st.lists(st.lists(st.integers(SMALLEST, MOST), min_size=1, max_size=6), max_size=12), st.randoms())
def test_any_turns_with_failures_and_restarts_leave_exactly_what_was_accepted(
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

"""The transient pool: acknowledged from memory, written later, never lost while the process runs."""

import errno
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.store.kit import LOG_FILE_BYTES, ROOT, LogOnDisk, OwnerThread, record_of, walk

from pocketmq.clock import SystemClock
from pocketmq.errors import InvalidMessage, StoreBusy, StoreError, StoreFull, WrongState
from pocketmq.files import DiskFiles
from pocketmq.store.log.commit_log import CommitLog
from pocketmq.store.log.flushing import Flusher
from pocketmq.store.log.preparing import FilePreparer
from pocketmq.store.log.transient_pool import TransientPool
from pocketmq.store.settings import StoreSettings
from pocketmq.store.worker import Worker
from pocketmq.testing import FaultyFiles

CAPACITY = 4096


@pytest.fixture
def disk() -> LogOnDisk:
    return LogOnDisk(transient_pool=True, prepared_files=8).begin()


def pool_of(disk: LogOnDisk) -> TransientPool:
    assert disk.pool is not None
    return disk.pool


def test_a_turn_is_acknowledged_from_memory_and_readable_after_the_write(disk: LogOnDisk) -> None:
    offsets = disk.turn(100, 200)

    assert offsets == [0, 100]
    assert (disk.log.written, disk.log.end) == (0, 300)
    assert disk.log.record(0) is None
    disk.writing.run()
    assert disk.log.written == 300
    assert [at for at, _ in walk(disk.log)] == [0, 100]
    assert disk.written_to == [300]


def test_waiting_turns_become_one_write(disk: LogOnDisk) -> None:
    disk.turn(100)
    begun = disk.files.position

    for _ in range(5):
        disk.turn(100)
    disk.writing.run()

    writes = [operation for operation in disk.files.operations[begun:] if operation.kind == "write"]
    assert [(write.offset, len(write.data)) for write in writes] == [(0, 100), (100, 500)]
    assert disk.written_to == [100, 600]


def test_a_write_has_at_most_the_size_of_a_buffer(disk: LogOnDisk) -> None:
    disk.turn(1000)
    disk.turn(2500)

    disk.writing.run()

    writes = [operation for operation in disk.files.operations if operation.kind == "write"]
    assert [len(write.data) for write in writes] == [1000, 24, 1024, 1024, 428]
    assert disk.log.record(1000) == record_of(2500, 1000, store_ms=disk.clock.now_ms())


def test_buffers_are_reused_in_a_ring(disk: LogOnDisk) -> None:
    for _ in range(20):
        disk.turn(700)
        disk.writing.run()
        disk.making.run()

    assert len(list(walk(disk.log))) == 20
    pool = pool_of(disk)
    assert pool.filled_bytes == pool.written_bytes == 20 * 700 + 8 * (disk.log.end // LOG_FILE_BYTES)


def test_an_empty_pool_refuses_and_accepts_again_after_a_write(disk: LogOnDisk) -> None:
    disk.turn(3000)
    assert pool_of(disk).free_buffers == 1

    with pytest.raises(StoreBusy, match="transient pool has 1096 bytes left, a record of 1100"):
        disk.append(1100)
    disk.append(500)
    with pytest.raises(StoreBusy, match="transient pool has 596 bytes left"):
        disk.append(600)
    disk.log.write()
    disk.writing.run()

    assert disk.turn(500) == [3500]


def test_staged_bytes_count_when_a_write_ends_during_a_turn() -> None:
    disk = LogOnDisk(transient_pool=True, log_file_bytes=1 << 20).begin()
    disk.turn(1000)
    disk.append(3000)

    disk.writing.run()

    assert disk.append(1000) == [4000]
    with pytest.raises(StoreBusy, match="96 bytes left"):
        disk.append(100)
    disk.log.write()
    disk.writing.run()
    assert disk.log.written == 5000


def test_a_full_pool_is_detected_before_a_file_is_started(disk: LogOnDisk) -> None:
    disk.turn(3500)

    with pytest.raises(StoreBusy, match="596 bytes left"):
        disk.append(590)
    assert disk.turn(500) == [3500]

    disk.writing.run()
    assert disk.turn(590) == [LOG_FILE_BYTES]


def test_a_roll_to_the_next_file_writes_its_filler_through_the_pool(disk: LogOnDisk) -> None:
    disk.turn(2000)
    disk.writing.run()
    disk.turn(1000, 1500)

    disk.writing.run()

    assert disk.log.written == LOG_FILE_BYTES + 1500
    assert [at for at, _ in walk(disk.log)] == [0, 2000, LOG_FILE_BYTES]
    assert disk.written_to == [2000, LOG_FILE_BYTES + 1500]


def test_a_record_larger_than_the_pool_is_refused() -> None:
    disk = LogOnDisk(transient_pool=True, pool_buffers=1).begin()

    with pytest.raises(InvalidMessage, match="record of 1017 bytes does not fit into the transient pool of 1024"):
        disk.log.reserve(1017)

    assert disk.turn(1016) == [0]


def test_a_discarded_turn_uses_no_buffers(disk: LogOnDisk) -> None:
    disk.append(3000)

    disk.log.discard()

    assert pool_of(disk).free_bytes == CAPACITY
    assert disk.turn(3000) == [0]


@pytest.mark.parametrize(
    ("code", "kind"), [(errno.ENOSPC, StoreFull), (errno.EIO, StoreError)], ids=["no space", "i/o error"]
)
def test_after_a_failed_write_nothing_is_acknowledged_and_acknowledged_bytes_are_kept(
    disk: LogOnDisk, code: int, kind: type[StoreError]
) -> None:
    fault = disk.files.fail("write", code, times=None)
    disk.turn(100)
    disk.turn(200)
    disk.writing.run()

    for _ in range(3):
        with pytest.raises(kind, match="300 acknowledged bytes are only in memory"):
            disk.append(100)
        disk.tick(after_ms=500)
    assert disk.log.written == 0

    fault.heal()
    disk.tick(after_ms=499)
    with pytest.raises(kind):
        disk.append(100)
    disk.tick(after_ms=1)
    assert disk.log.written == 300
    assert disk.turn(100) == [300]
    disk.writing.run()
    assert [at for at, _ in walk(disk.log)] == [0, 100, 300]


def test_bytes_written_before_the_error_are_readable(disk: LogOnDisk) -> None:
    disk.turn(1000)
    disk.turn(2500, 500)
    disk.files.fail("write", nth=2, path=f"*{LOG_FILE_BYTES}")
    disk.files.fail("write", path=f"*{0:020d}", nth=3)

    disk.writing.run(1)
    assert disk.log.written == 1000
    disk.writing.run()
    assert disk.log.written == 1000
    assert disk.log.end == 4000
    disk.tick(after_ms=500)

    assert disk.log.written == 4000
    assert len(list(walk(disk.log))) == 3


def test_a_roll_with_only_its_first_file_written_ends_with_that_file(disk: LogOnDisk) -> None:
    disk.turn(2000)
    disk.writing.run()
    disk.files.fail("write", path=f"*{LOG_FILE_BYTES}")
    disk.turn(1000, 1500)

    disk.writing.run()

    assert (disk.log.written, disk.log.end) == (LOG_FILE_BYTES, LOG_FILE_BYTES + 1500)
    disk.tick(after_ms=500)
    assert disk.log.written == disk.log.end


def test_a_turn_reserved_before_the_failure_is_kept(disk: LogOnDisk) -> None:
    disk.files.fail("write", errno.ENOSPC)
    disk.turn(100)
    disk.append(200)
    disk.writing.run()

    disk.log.write()
    assert not disk.writing.busy
    disk.tick(after_ms=500)

    assert disk.log.written == 300


def test_an_unexpected_error_is_logged_and_retried_like_others(
    disk: LogOnDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk.turn(100)
    with monkeypatch.context() as patch:
        patch.setattr(pool_of(disk), "_slices", lambda *_: 1 // 0)
        disk.writing.run()

    with pytest.raises(StoreError, match="by zero"):
        disk.append(100)
    disk.tick(after_ms=500)
    disk.writing.run()

    assert disk.log.written == 100


def test_closing_writes_the_remaining_bytes(disk: LogOnDisk) -> None:
    disk.turn(100)
    disk.turn(200)

    disk.log.close()

    assert disk.log.written == 300
    assert disk.written_to[-1] == 300
    assert disk.files.read(ROOT / "commitlog" / f"{0:020d}")[:100] == record_of(100, 0, store_ms=disk.clock.now_ms())


def test_closing_retries_a_full_disk_once_and_reports_the_lost_bytes(disk: LogOnDisk) -> None:
    fault = disk.files.fail("write", errno.ENOSPC, times=None)
    disk.turn(100)
    disk.writing.run()

    with pytest.raises(StoreFull, match="100 acknowledged bytes are only in memory"):
        disk.log.close()

    assert fault.hits == 2
    disk.log.close()


def test_closing_writes_when_the_disk_accepts_writes_again(disk: LogOnDisk) -> None:
    disk.files.fail("write", errno.ENOSPC)
    disk.turn(100)
    disk.writing.run()
    assert pool_of(disk).waiting_bytes == 100

    disk.log.close()

    assert disk.log.written == 100


@given(st.lists(st.lists(st.integers(96, 1500), min_size=1, max_size=4), max_size=30), st.data())
def test_acknowledged_bytes_reach_the_files_in_order(turns: list[list[int]], data: st.DataObject) -> None:
    disk = LogOnDisk(FaultyFiles(), transient_pool=True, prepared_files=64).begin()
    acknowledged: list[int] = []
    for sizes in turns:
        try:
            offsets = disk.append(*sizes)
        except StoreError:
            disk.log.discard()
        else:
            disk.log.write()
            acknowledged += offsets
        what = data.draw(st.sampled_from(["nothing", "write", "fail"]))
        if what == "fail":
            disk.files.fail("write")
        if what != "nothing":
            disk.tick(after_ms=500)
        assert disk.log.start <= disk.log.written <= disk.log.end

    disk.files.heal()
    disk.log.end_writing()

    assert [at for at, _ in walk(disk.log)] == acknowledged
    assert disk.written_to == sorted(set(disk.written_to))


def test_a_thread_writes_to_a_real_disk(tmp_path: Path) -> None:
    owner, written = OwnerThread(), list[int]()
    settings = StoreSettings(
        folder=tmp_path, log_file_bytes=1 << 20, transient_pool=True, pool_buffers=3, pool_buffer_bytes=2000
    )
    log = CommitLog(settings, DiskFiles(), on_written=written.append)
    pool = TransientPool(settings, SystemClock(), owner.post, log.written_behind)
    log.begin(FilePreparer(settings, DiskFiles(), SystemClock(), log.segments), pool)

    for _ in range(200):
        owner.run_until(lambda: pool.free_bytes >= 1000)
        at = log.reserve(1000)
        log.put((record_of(1000, at),))
        log.write()
    owner.run_until(lambda: log.written == log.end)

    assert [at for at, _ in walk(log)] == list(range(0, 200_000, 1000))
    assert written[-1] == 200_000
    log.close()
    assert not pool.busy


def test_three_threads_keep_the_order_over_many_files(tmp_path: Path) -> None:
    owner, told = OwnerThread(), list[bool]()
    settings = StoreSettings(
        folder=tmp_path, log_file_bytes=8192, transient_pool=True, pool_buffers=4, pool_buffer_bytes=1500
    )
    files, clock = DiskFiles(), SystemClock()
    log = CommitLog(settings, files, on_written=lambda upto: flusher.mark_written(upto, 0))
    preparer = FilePreparer(settings, files, clock, log.segments, Worker("files", owner.post))
    pool = TransientPool(settings, clock, owner.post, log.written_behind)
    flusher = Flusher(settings, clock, owner.post, files, log)
    log.begin(preparer, pool)
    flusher.begin(0)

    for number in range(300):
        size = 100 + number * 7 % 900
        owner.run_until(lambda: preparer.ready > 0 and pool.free_bytes > 2000)
        log.put((record_of(size, log.reserve(size)),))
        log.write()
        flusher.when_synced(log.end, told.append)
    owner.run_until(lambda: len(told) == 300)

    assert all(told)
    assert len(list(walk(log))) == 300
    assert log.synced == log.written == log.end
    log.end_writing()
    flusher.close()
    log.close()
    assert len(list((tmp_path / "commitlog").iterdir())) == len(log.first_offsets)


def test_a_stalled_disk_fills_the_pool_and_never_blocks_the_owner() -> None:
    owner, files = OwnerThread(), FaultyFiles()
    files.make_dir(ROOT)
    settings = StoreSettings(
        folder=ROOT, log_file_bytes=1 << 20, transient_pool=True, pool_buffers=2, pool_buffer_bytes=1024
    )
    log = CommitLog(settings, files)
    pool = TransientPool(settings, SystemClock(), owner.post, log.written_behind)
    log.begin(FilePreparer(settings, files, SystemClock(), log.segments), pool)
    stall = files.stall("write")

    log.put((record_of(1000, log.reserve(1000)),))
    log.write()
    stall.wait_until_reached()
    log.put((record_of(1000, log.reserve(1000)),))
    log.write()
    with pytest.raises(StoreBusy, match="48 bytes left"):
        log.reserve(100)

    stall.release()
    owner.run_until(lambda: log.written == 2000)
    assert log.reserve(100) == 2000
    log.close()


def test_closing_does_not_wait_for_a_disk_that_does_not_answer() -> None:
    files = FaultyFiles()
    files.make_dir(ROOT)
    settings = StoreSettings(folder=ROOT, log_file_bytes=1 << 20, transient_pool=True, close_timeout_ms=10)
    log = CommitLog(settings, files)
    pool = TransientPool(settings, SystemClock(), OwnerThread().post, log.written_behind)
    log.begin(FilePreparer(settings, files, SystemClock(), log.segments), pool)
    with files.stall("write") as stall:
        log.put((record_of(1000, log.reserve(1000)),))
        log.write()
        stall.wait_until_reached()

        with pytest.raises(StoreError, match="1000 acknowledged bytes are lost: the disk does not respond"):
            log.close()
        with pytest.raises(WrongState):
            log.reserve(100)
    log.close()

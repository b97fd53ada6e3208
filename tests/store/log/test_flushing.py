"""Flushing: which bytes are safe at which time, which callers are notified, and disks that fail or hang."""

import errno
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random

import pytest
from tests.store.kit import LOG_FILE_BYTES, ROOT, LogOnDisk, OwnerThread, record_of, walk

from pocketmq.clock import SystemClock
from pocketmq.errors import StoreError, SyncFailed
from pocketmq.files import DiskFiles
from pocketmq.store.log.commit_log import CommitLog
from pocketmq.store.log.flushing import Flusher
from pocketmq.store.log.preparing import FilePreparer
from pocketmq.store.settings import StoreSettings
from pocketmq.testing import FakeClock, FaultyFiles

MOST = LOG_FILE_BYTES - 8
LOG_FILE = ROOT / "commitlog" / f"{0:020d}"


@pytest.fixture
def disk() -> LogOnDisk:
    return LogOnDisk(log_file_bytes=1 << 20).begin()


def safe_records(disk: LogOnDisk) -> int:
    """How many records are there after the worst power loss."""
    log = CommitLog(disk.settings, disk.files.crash(Random(0), survives="nothing"))
    log.load()
    return len(list(walk(log)))


def syncs_of(disk: LogOnDisk, begun: int = 0) -> list[str]:
    return [Path(operation.path).name for operation in disk.files.operations[begun:] if operation.kind == "sync"]


# group commit


def test_a_send_is_notified_when_its_sync_is_done(disk: LogOnDisk) -> None:
    told: list[bool] = []
    disk.turn(100)

    disk.flusher.when_synced(disk.log.end, told.append)

    assert told == []
    assert safe_records(disk) == 0
    disk.syncing.run()
    assert told == [True]
    assert safe_records(disk) == 1
    assert (disk.flusher.synced, disk.log.written) == (100, 100)
    assert disk.flusher.synced_ms == disk.clock.now_ms()


def test_synced_bytes_are_reported_at_once(disk: LogOnDisk) -> None:
    told: list[bool] = []
    disk.turn(100)
    disk.flusher.when_synced(100, lambda _: None)
    disk.syncing.run()

    disk.flusher.when_synced(100, told.append)

    assert told == [True]
    assert not disk.flusher.busy


def test_turns_during_a_sync_share_the_next_one(disk: LogOnDisk) -> None:
    told: list[tuple[int, bool]] = []
    disk.turn(100)
    disk.flusher.when_synced(100, lambda safe: told.append((0, safe)))
    for number in range(1, 51):
        disk.turn(100)
        disk.flusher.when_synced(disk.log.end, partial(lambda number, safe: told.append((number, safe)), number))

    disk.syncing.run(1)
    assert told == [(0, True)]
    disk.syncing.run()

    assert told == [(number, True) for number in range(51)]
    assert disk.flusher.syncs == 2


def test_a_sync_covers_only_bytes_written_before_its_start(disk: LogOnDisk) -> None:
    disk.turn(100)
    first_ms = disk.clock.now_ms()
    disk.flusher.when_synced(100, lambda _: None)
    disk.clock.advance_ms(5)
    disk.turn(200)

    disk.syncing.run(1)

    assert disk.flusher.synced == 100
    assert disk.flusher.synced_ms == first_ms
    assert disk.log.written - disk.log.synced == 200


def test_a_waiter_covered_by_a_running_sync_needs_no_other(disk: LogOnDisk) -> None:
    told: list[bool] = []
    disk.turn(100, 100)
    disk.flusher.when_synced(100, told.append)
    disk.flusher.when_synced(200, told.append)
    disk.turn(300)

    disk.syncing.run()

    assert told == [True, True]
    assert disk.flusher.syncs == 1
    assert disk.flusher.synced == 200


def test_a_turn_across_files_syncs_the_old_file_too() -> None:
    disk = LogOnDisk().begin()
    begun = disk.files.position
    disk.turn(1000)
    disk.turn(2000, 2000)

    disk.flusher.when_synced(disk.log.end, lambda _: None)
    disk.syncing.run()
    disk.turn(100)
    disk.flusher.when_synced(disk.log.end, lambda _: None)
    disk.syncing.run()

    names = [f"{0:020d}", f"{LOG_FILE_BYTES:020d}", f"{LOG_FILE_BYTES:020d}"]
    assert syncs_of(disk, begun) == names
    assert safe_records(disk) == 4


def test_a_send_that_waits_too_long_gets_a_timeout_and_the_sync_continues(disk: LogOnDisk) -> None:
    told: list[tuple[str, bool]] = []
    disk.turn(100)
    disk.flusher.when_synced(100, lambda safe: told.append(("first", safe)))
    disk.clock.advance_ms(4_000)
    disk.turn(100)
    disk.flusher.when_synced(200, lambda safe: told.append(("second", safe)))

    disk.clock.advance_ms(999)
    disk.flusher.tick(disk.clock.monotonic())
    assert told == []
    disk.clock.advance_ms(1)
    disk.flusher.tick(disk.clock.monotonic())
    assert told == [("first", False)]

    disk.syncing.run()
    assert told == [("first", False), ("second", True)]
    assert disk.flusher.synced == 200


def test_waiters_for_bytes_in_the_pool_wait_for_their_write_first() -> None:
    disk = LogOnDisk(transient_pool=True).begin()
    told: list[bool] = []
    disk.turn(100)
    disk.flusher.when_synced(disk.log.end, told.append)
    disk.syncing.run()
    assert told == []

    disk.writing.run()
    disk.flusher.mark_written(disk.log.written, 0)
    disk.syncing.run()

    assert told == [True]


# the async policy


def test_enough_new_pages_are_synced_after_the_interval(disk: LogOnDisk) -> None:
    disk.turn(4 * 4096)

    disk.tick(after_ms=499)
    assert disk.flusher.syncs == 0
    disk.tick(after_ms=1)

    assert disk.flusher.syncs == 1
    assert disk.log.written == disk.log.synced


def test_a_few_new_pages_wait_for_the_thorough_interval(disk: LogOnDisk) -> None:
    disk.turn(4 * 4096 - 1)

    disk.tick(after_ms=9_999)
    assert disk.flusher.syncs == 0
    disk.tick(after_ms=1)

    assert disk.flusher.syncs == 1


def test_an_idle_log_is_not_synced_and_its_idle_time_does_not_count(disk: LogOnDisk) -> None:
    disk.tick(after_ms=60_000)
    assert disk.flusher.syncs == 0

    disk.turn(100)
    disk.tick(after_ms=9_999)

    assert disk.flusher.syncs == 0


def test_syncs_do_not_accumulate_on_a_slow_disk(disk: LogOnDisk) -> None:
    for _ in range(5):
        disk.turn(5 * 4096)
        disk.clock.advance_ms(500)
        disk.flusher.tick(disk.clock.monotonic())

    assert len(disk.syncing.jobs) == 1
    disk.syncing.run(1)
    disk.tick(after_ms=500)
    assert disk.log.written == disk.log.synced
    assert disk.flusher.syncs == 2


# derived files


def derived(disk: LogOnDisk, *names: str) -> list[Path]:
    paths = [ROOT / name for name in names]
    for path in paths:
        with disk.files.open(path, create=True) as file:
            file.write_at(0, path.name.encode())
    return paths


def test_derived_files_are_synced_in_order_before_their_callback(disk: LogOnDisk) -> None:
    done: list[str] = []
    begun = disk.files.position

    disk.flusher.sync_files(derived(disk, "a", "b"), lambda: done.append("first"))
    disk.flusher.sync_files(derived(disk, "c"), lambda: done.append("second"))
    disk.syncing.run(1)
    assert done == ["first"]
    disk.syncing.run()

    assert done == ["first", "second"]
    assert syncs_of(disk, begun) == ["a", "b", "c"]


def test_files_are_reported_in_order(disk: LogOnDisk) -> None:
    done: list[str] = []

    disk.flusher.sync_files([], lambda: done.append("nothing"))
    assert done == ["nothing"]
    disk.flusher.sync_files(derived(disk, "a"), lambda: done.append("a"))
    disk.flusher.sync_files([], lambda: done.append("nothing again"))
    assert done == ["nothing"]
    disk.syncing.run()

    assert done == ["nothing", "a", "nothing again"]


def test_a_deleted_file_needs_no_sync(disk: LogOnDisk) -> None:
    done: list[None] = []
    paths = derived(disk, "a", "b")
    disk.flusher.sync_files(paths, lambda: done.append(None))

    disk.files.unlink(paths[0])
    disk.syncing.run()

    assert done == [None]


def test_a_sync_of_a_folder_covers_its_names(disk: LogOnDisk) -> None:
    done: list[None] = []
    path = ROOT / "queue" / "a"
    disk.files.make_dir(path.parent)
    disk.files.sync_dir(ROOT)
    disk.files.open(path, create=True).close()

    disk.flusher.sync_files([path.parent], lambda: done.append(None))
    disk.syncing.run()

    assert done == [None]
    assert disk.files.crash(Random(0), survives="nothing").status(path) is not None


def test_the_log_is_synced_before_each_derived_file(disk: LogOnDisk) -> None:
    done: list[str] = []
    begun = disk.files.position
    disk.flusher.sync_files(derived(disk, "a", "b", "c"), lambda: done.append("derived"))
    disk.turn(100)
    disk.flusher.when_synced(100, lambda _: done.append("log"))

    disk.syncing.run()

    assert syncs_of(disk, begun) == ["a", LOG_FILE.name, "b", "c"]
    assert done == ["log", "derived"]


def test_a_file_that_cannot_be_opened_is_retried_at_the_next_tick(disk: LogOnDisk) -> None:
    done: list[None] = []
    disk.flusher.sync_files(derived(disk, "a", "b"), lambda: done.append(None))
    disk.files.fail("open", errno.EMFILE, path="*b")

    disk.syncing.run()
    assert done == []
    assert disk.flusher.failed is None
    disk.tick()

    assert done == [None]


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EACCES, errno.EINTR])
def test_a_folder_that_cannot_be_opened_is_not_a_failed_sync(disk: LogOnDisk, code: int) -> None:
    done: list[None] = []
    disk.flusher.sync_files([*derived(disk, "a"), disk.settings.folder], lambda: done.append(None))
    disk.files.fail("open_dir", code, path=str(disk.settings.folder), times=3)

    for _ in range(3):
        disk.tick()
        assert (done, disk.flusher.failed) == ([], None)
        disk.turn(100)
    disk.tick()

    assert done == [None]


def test_a_failed_sync_of_a_folder_ends_writing(disk: LogOnDisk) -> None:
    disk.flusher.sync_files([disk.settings.folder], lambda: None)
    disk.files.fail("sync_dir", path=str(disk.settings.folder))

    disk.syncing.run()

    assert isinstance(disk.flusher.failed, SyncFailed)


def test_a_failed_sync_of_a_derived_file_ends_writing(disk: LogOnDisk) -> None:
    done: list[None] = []
    disk.flusher.sync_files(derived(disk, "a"), lambda: done.append(None))
    disk.files.fail("sync", path="*a")

    disk.syncing.run()

    assert done == []
    assert isinstance(disk.flusher.failed, SyncFailed)
    with pytest.raises(SyncFailed):
        disk.append(100)


# a failed sync


def test_a_failed_sync_ends_writing_and_is_not_retried(disk: LogOnDisk) -> None:
    told: list[bool] = []
    disk.turn(100)
    disk.flusher.when_synced(100, told.append)
    disk.files.fail("sync", errno.EIO)

    disk.syncing.run()

    assert told == [False]
    assert disk.flusher.synced == 0
    with pytest.raises(
        SyncFailed, match="after log offset 0 may be lost; the store accepts no messages until a restart"
    ):
        disk.append(100)
    disk.tick(after_ms=60_000)
    assert disk.flusher.syncs == 0
    assert not disk.flusher.busy
    assert disk.log.record(0) is not None


def test_after_a_failed_sync_a_running_turn_is_reported_as_unsafe(disk: LogOnDisk) -> None:
    told: list[bool] = []
    disk.turn(100)
    disk.flusher.when_synced(100, told.append)
    disk.files.fail("sync", errno.EIO)
    disk.append(100)
    disk.syncing.run()

    disk.log.write()
    disk.flusher.mark_written(disk.log.written, 0)
    disk.flusher.when_synced(200, told.append)

    assert told == [False, False]


def test_closing_after_a_failed_sync_raises_and_syncs_nothing(disk: LogOnDisk) -> None:
    disk.turn(100)
    disk.files.fail("sync", errno.EIO, path=str(LOG_FILE))
    disk.tick(after_ms=10_000)

    with pytest.raises(SyncFailed, match="Input/output error"):
        disk.flusher.close()

    assert safe_records(disk) == 0


# remains of a failed write


def test_remains_of_a_failed_write_are_removed_before_other_work(disk: LogOnDisk) -> None:
    disk.turn(100)
    disk.files.fail("write")
    with pytest.raises(StoreError):
        disk.turn(1000, 1000)
    disk.making.run()
    derived_paths = derived(disk, "a")
    begun = disk.files.position

    disk.flusher.sync_files(derived_paths, lambda: None)
    disk.tick(after_ms=10_000)

    assert disk.log.stale == []
    assert [operation.kind for operation in disk.files.operations[begun:]][-4:] == ["write", "sync", "sync", "sync"]
    assert syncs_of(disk, begun) == [LOG_FILE.name, LOG_FILE.name, "a"]


def test_removing_remains_is_tried_once_per_tick_logged_once_and_blocks_no_sync(
    disk: LogOnDisk, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[bool] = []
    disk.turn(100)
    fault = disk.files.fail("write", times=None)
    with pytest.raises(StoreError):
        disk.turn(1000)

    disk.flusher.when_synced(100, told.append)
    disk.syncing.run()
    assert told == [True]
    hits = fault.hits
    disk.flusher.sync_files([], lambda: None)
    disk.syncing.run()
    assert fault.hits == hits
    for _ in range(3):
        disk.tick()
    assert fault.hits == hits + 3
    assert caplog.text.count("cannot overwrite the rest of a failed log write yet") == 1


# closing


def test_closing_syncs_the_log_and_the_derived_files_and_notifies_all_waiters(disk: LogOnDisk) -> None:
    told: list[object] = []
    disk.turn(100)
    disk.flusher.when_synced(100, told.append)
    disk.turn(100)
    disk.flusher.sync_files(derived(disk, "a"), lambda: told.append("a"))

    disk.flusher.close()

    assert told == [True, "a"]
    assert safe_records(disk) == 2
    disk.flusher.close()


def test_closing_notifies_waiters_of_unwritten_bytes(disk: LogOnDisk) -> None:
    told: list[bool] = []
    disk.flusher.when_synced(100, told.append)

    disk.flusher.close()

    assert told == [False]


def test_closing_with_a_file_that_cannot_be_opened_raises(disk: LogOnDisk) -> None:
    disk.files.fail("open", errno.EMFILE, path="*a", nth=2, times=None)
    disk.flusher.sync_files(derived(disk, "a"), lambda: None)

    with pytest.raises(SyncFailed, match="Too many open files"):
        disk.flusher.close()


# with its thread


class Running:
    """A log with real threads; the test is its owner."""

    def __init__(self, files: FaultyFiles | DiskFiles, folder: Path, close_timeout_ms: int = 10_000) -> None:
        self.owner = OwnerThread()
        self.settings = StoreSettings(folder=folder, log_file_bytes=1 << 20, close_timeout_ms=close_timeout_ms)
        self.clock = FakeClock()
        self.log = CommitLog(self.settings, files)
        files.make_dir(folder)
        self.log.begin(FilePreparer(self.settings, files, self.clock, self.log.segments))
        self.flusher = Flusher(self.settings, self.clock, self.owner.post, files, self.log)
        self.flusher.begin(0)

    def turn(self, told: Callable[[bool], None]) -> None:
        self.log.put((record_of(200, self.log.reserve(200)),))
        self.log.write()
        self.flusher.mark_written(self.log.written, 0)
        self.flusher.when_synced(self.log.end, told)


def test_sends_are_notified_in_order_on_the_thread_of_the_owner(tmp_path: Path) -> None:
    running = Running(DiskFiles(), tmp_path)
    told: list[int] = []

    for number in range(300):
        running.turn(partial(lambda number, safe: told.append(number if safe else -1), number))
        if number % 40 == 0:
            running.owner.run_until(lambda number=number: len(told) > number)  # type: ignore[misc]
    running.owner.run_until(lambda: len(told) == 300)

    assert told == list(range(300))
    assert 8 <= running.flusher.syncs <= 300
    running.log.end_writing()
    running.flusher.close()
    running.log.close()


def test_a_hanging_sync_blocks_neither_appends_nor_reads_nor_timeouts() -> None:
    files = FaultyFiles()
    running = Running(files, ROOT)
    told: list[bool] = []
    stall = files.stall("sync", path=str(LOG_FILE))

    running.turn(told.append)
    stall.wait_until_reached()
    running.turn(told.append)
    assert len(list(walk(running.log))) == 2
    running.clock.advance_ms(5_000)
    running.flusher.tick(running.clock.monotonic())
    assert told == [False, False]
    assert running.flusher.busy

    stall.release()
    running.owner.run_until(lambda: running.flusher.synced == 200)
    running.flusher.close()
    assert running.flusher.synced == 400
    running.log.close()


def test_closing_does_not_wait_for_a_hanging_sync() -> None:
    files = FaultyFiles()
    running = Running(files, ROOT, close_timeout_ms=10)
    told: list[bool] = []
    with files.stall("sync", path=str(LOG_FILE)) as stall:
        running.turn(told.append)
        stall.wait_until_reached()

        with pytest.raises(SyncFailed, match=r"the disk did not respond within 0.01 s"):
            running.flusher.close()

        assert told == [False]
        assert running.flusher.synced == 0
    running.log.close()


def test_flushing_works_with_the_system_clock(tmp_path: Path) -> None:
    settings = StoreSettings(folder=tmp_path, log_file_bytes=LOG_FILE_BYTES)
    log = CommitLog(settings, DiskFiles())
    log.begin(FilePreparer(settings, DiskFiles(), SystemClock(), log.segments))
    flusher = Flusher(settings, SystemClock(), OwnerThread().post, DiskFiles(), log)
    flusher.begin(0)

    flusher.tick(SystemClock().monotonic())
    flusher.close()
    log.close()

    assert flusher.syncs == 0

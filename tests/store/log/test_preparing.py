"""Prepared files: on time, in order, safe; and what happens if that fails."""

import errno
from pathlib import Path
from random import Random

import pytest
from tests.store.kit import LOG_FILE_BYTES, ROOT, HandWorker

from pocketmq.clock import SystemClock
from pocketmq.errors import InvalidSetting, StoreBusy, StoreDamaged, StoreError, StoreFull
from pocketmq.files import DiskFiles
from pocketmq.store.log.preparing import FilePreparer
from pocketmq.store.log.segments import Segments
from pocketmq.store.settings import StoreSettings
from pocketmq.testing import FakeClock, FaultyFiles

FOLDER = ROOT / "commitlog"


class Bench:
    """A preparer whose thread the test runs by hand."""

    def __init__(
        self, files: FaultyFiles | None = None, *, prepared_files: int = 2, allocate_files: bool = False
    ) -> None:
        self.files = files or FaultyFiles()
        self.files.make_dir(ROOT)
        self.files.sync_dir(ROOT.parent)
        settings = StoreSettings(
            folder=ROOT,
            log_file_bytes=LOG_FILE_BYTES,
            prepared_files=prepared_files,
            allocate_files=allocate_files,
            retry_ms=500,
        )
        self.clock = FakeClock()
        self.segments = Segments(self.files, FOLDER, LOG_FILE_BYTES)
        self.segments.load()
        self.worker = HandWorker()
        self.preparer = FilePreparer(settings, self.files, self.clock, self.segments, self.worker)

    def begin(self) -> "Bench":
        self.preparer.begin()
        self.worker.run()
        return self

    def names(self) -> list[int]:
        return [int(name) // LOG_FILE_BYTES for name in self.files.list(FOLDER)]


def test_the_first_file_exists_when_begin_returns() -> None:
    bench = Bench()

    bench.preparer.begin()

    assert bench.preparer.take().first == 0


def test_files_are_created_ahead_up_to_the_limit() -> None:
    bench = Bench(prepared_files=3).begin()

    assert bench.preparer.ready == 3
    assert bench.names() == [0, 1, 2]
    for name in bench.files.list(FOLDER):
        assert bench.files.read(FOLDER / name) == bytes(LOG_FILE_BYTES)


def test_a_used_file_joins_the_log_and_another_is_created() -> None:
    bench = Bench().begin()

    taken = [bench.preparer.take()]
    bench.worker.run()
    taken.append(bench.preparer.take())
    bench.worker.run()

    assert [segment.first for segment in taken] == [0, LOG_FILE_BYTES]
    assert bench.segments.files == taken
    assert bench.names() == [0, 1, 2, 3]
    taken[1].file.write_at(0, b"x")


def test_an_existing_log_continues_after_its_last_file() -> None:
    bench = Bench().begin()
    for _ in range(2):
        bench.preparer.take()
    bench.worker.run()
    bench.preparer.close()

    again = Bench(bench.files).begin()

    assert again.preparer.take().first == 2 * LOG_FILE_BYTES


def test_a_missing_prepared_file_is_refused_counted_and_timed() -> None:
    bench = Bench(prepared_files=1).begin()
    bench.preparer.take()
    bench.clock.advance_ms(1_000)

    for _ in range(3):
        with pytest.raises(StoreBusy, match=f"log file for offset {LOG_FILE_BYTES} is still being created"):
            bench.preparer.take()
        bench.clock.advance_ms(70)

    assert (bench.preparer.starved, bench.preparer.starved_since) == (3, 1.0)
    bench.worker.run()
    assert (bench.preparer.starved, bench.preparer.starved_since) == (3, None)
    assert bench.preparer.take().first == LOG_FILE_BYTES


def test_allocated_files_use_their_space_at_once_and_sparse_ones_do_not() -> None:
    for allocate, used in ((True, 2 * LOG_FILE_BYTES), (False, 0)):
        files = FaultyFiles(capacity=1 << 20)

        Bench(files, allocate_files=allocate).begin()

        usage = files.usage(ROOT)
        assert usage.total - usage.free == used


def test_a_full_disk_is_detected_before_the_space_is_needed() -> None:
    files = FaultyFiles(capacity=LOG_FILE_BYTES)
    bench = Bench(files, allocate_files=True).begin()
    assert bench.preparer.ready == 1
    bench.preparer.take()

    with pytest.raises(StoreFull, match=r"cannot create the next log file.*No space left"):
        bench.preparer.take()
    assert bench.names() == [0]

    files.resize(4 * LOG_FILE_BYTES)
    bench.preparer.tick()
    assert not bench.worker.busy
    bench.clock.advance_ms(500)
    bench.preparer.tick()
    bench.worker.run()
    assert bench.preparer.failure is None
    assert bench.preparer.take().first == LOG_FILE_BYTES


@pytest.mark.parametrize("call", ["open", "create", "truncate", "sync", "sync_dir"])
def test_a_failed_step_is_retried_after_a_pause(call: str) -> None:
    bench = Bench(prepared_files=1).begin()
    bench.preparer.take()
    bench.files.fail(call, errno.EIO, f"{FOLDER}*", times=2)  # type: ignore[arg-type]

    for _ in range(2):
        bench.worker.run()
        assert isinstance(bench.preparer.failure, StoreError)
        with pytest.raises(StoreError, match="cannot create the next log file"):
            bench.preparer.take()
        bench.clock.advance_ms(500)
        bench.preparer.tick()
    bench.worker.run()

    assert bench.preparer.take().first == LOG_FILE_BYTES


def test_remains_of_a_failed_attempt_are_used_by_the_next() -> None:
    bench = Bench(prepared_files=1).begin()
    bench.preparer.take()
    bench.files.fail("sync_dir")
    bench.files.fail("unlink")

    bench.worker.run()
    bench.clock.advance_ms(500)
    bench.preparer.tick()
    bench.worker.run()

    assert bench.preparer.take().first == LOG_FILE_BYTES


def test_an_existing_file_is_not_overwritten() -> None:
    bench = Bench(prepared_files=1).begin()
    stranger = FOLDER / f"{LOG_FILE_BYTES:020d}"
    with bench.files.open(stranger, create=True) as file:
        file.write_at(0, b"somebody's")
    bench.preparer.take()

    bench.worker.run()

    assert bench.files.read(stranger) == b"somebody's"
    with pytest.raises(StoreError, match="already exists"):
        bench.preparer.take()


def test_a_removed_ready_file_is_created_again_before_it_is_written(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench(prepared_files=3).begin()
    bench.preparer.take()
    for number in (1, 2):
        bench.files.unlink(FOLDER / f"{number * LOG_FILE_BYTES:020d}")

    with pytest.raises(StoreBusy, match=f"offset {LOG_FILE_BYTES} is missing because another program removed it"):
        bench.preparer.take()
    bench.worker.run()
    with pytest.raises(StoreBusy, match=f"offset {LOG_FILE_BYTES} is still being created"):
        bench.preparer.take()
    bench.worker.run()

    assert [bench.preparer.take().first for _ in range(2)] == [LOG_FILE_BYTES, 2 * LOG_FILE_BYTES]
    assert bench.names() == [0, 1, 2, 3]
    assert "another program removed" in caplog.text


def test_a_failure_to_create_the_first_file_is_raised_at_once() -> None:
    bench = Bench()
    bench.files.fail("create", errno.ENOSPC)

    with pytest.raises(StoreFull, match="cannot create the first log file"):
        bench.preparer.begin()


def test_an_existing_first_file_is_damage() -> None:
    bench = Bench()
    bench.files.make_dir(FOLDER)
    with bench.files.open(FOLDER / f"{0:020d}", create=True) as file:
        file.write_at(0, b"x")

    with pytest.raises(StoreDamaged, match="already exists"):
        bench.preparer.begin()


@pytest.mark.parametrize("allocate", [False, True])
def test_no_crash_while_files_are_created_leaves_damage(allocate: bool) -> None:
    bench = Bench(allocate_files=allocate).begin()
    for _ in range(4):
        bench.preparer.take().file.write_at(0, b"record")
        bench.worker.run()

    for point in bench.files.crash_points(seed=2, states=4):
        found = Segments(point.files, FOLDER, LOG_FILE_BYTES)
        found.load()
        for segment in found.files:
            assert not any(segment.map[6:])


def test_a_used_file_survives_any_crash() -> None:
    bench = Bench().begin()

    bench.preparer.take()

    for state in range(20):
        crashed = bench.files.crash(Random(state), survives="any")
        assert crashed.status(FOLDER / f"{0:020d}") is not None


def test_old_files_are_unlinked_in_order_each_safe_before_the_next() -> None:
    bench = Bench().begin()
    for _ in range(3):
        bench.preparer.take()
        bench.worker.run()
    begun = bench.files.position

    for _ in range(2):
        bench.preparer.remove(bench.segments.forget_first())
    assert bench.names() == [0, 1, 2, 3, 4]
    bench.worker.run()

    assert bench.names() == [2, 3, 4]
    assert [operation.kind for operation in bench.files.operations[begun:]] == ["unlink", "sync_dir"] * 2


def test_a_file_that_cannot_be_unlinked_is_retried_before_any_newer_one() -> None:
    bench = Bench().begin()
    for _ in range(3):
        bench.preparer.take()
        bench.worker.run()
    bench.files.fail("unlink", times=2)

    for _ in range(2):
        bench.preparer.remove(bench.segments.forget_first())
    bench.worker.run()
    assert bench.names() == [0, 1, 2, 3, 4]
    assert isinstance(bench.preparer.removal_failure, StoreError)
    bench.preparer.take()
    bench.preparer.tick()
    bench.worker.run()
    assert bench.preparer.ready == 2

    for _ in range(2):
        bench.clock.advance_ms(500)
        bench.preparer.tick()
        bench.worker.run()
    assert bench.names() == [2, 3, 4, 5]
    assert bench.preparer.removal_failure is None


def test_closing_removes_unused_files_and_may_be_repeated() -> None:
    bench = Bench().begin()
    bench.preparer.take()

    bench.preparer.close()
    bench.preparer.close()

    assert bench.names() == [0]


def test_an_unused_file_that_cannot_be_removed_is_harmless(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench().begin()
    bench.preparer.take()
    bench.worker.run()
    bench.files.fail("unlink")

    bench.preparer.close()

    assert "cannot remove unused log files" in caplog.text
    again = Bench(bench.files)
    assert again.segments.end_of_files == 3 * LOG_FILE_BYTES


def test_at_least_one_file_must_be_kept_ready() -> None:
    with pytest.raises(InvalidSetting, match="prepared_files"):
        StoreSettings(folder=ROOT, prepared_files=0)


def test_a_thread_creates_files_on_a_real_disk(tmp_path: Path) -> None:
    settings = StoreSettings(folder=tmp_path, log_file_bytes=LOG_FILE_BYTES, prepared_files=2, allocate_files=True)
    segments = Segments(DiskFiles(), tmp_path / "commitlog", LOG_FILE_BYTES)
    preparer = FilePreparer(settings, DiskFiles(), SystemClock(), segments)
    preparer.begin()

    preparer.take()
    preparer.close()

    assert [(path.name, path.stat().st_size) for path in (tmp_path / "commitlog").iterdir()] == [("0" * 20, 4096)]


def test_a_stalled_disk_leaves_the_log_without_files_but_does_not_block_it() -> None:
    files = FaultyFiles()
    files.make_dir(ROOT)
    settings = StoreSettings(folder=ROOT, log_file_bytes=LOG_FILE_BYTES, prepared_files=1, close_timeout_ms=10_000)
    preparer = FilePreparer(settings, files, FakeClock(), Segments(files, FOLDER, LOG_FILE_BYTES))
    stall = files.stall("sync", nth=2)
    preparer.begin()

    preparer.take()
    stall.wait_until_reached()
    with pytest.raises(StoreBusy):
        preparer.take()

    stall.release()
    preparer.close()
    assert not preparer.busy
    assert files.list(FOLDER) == ["0" * 20]


def test_closing_does_not_wait_for_a_thread_in_a_stalled_call(caplog: pytest.LogCaptureFixture) -> None:
    files = FaultyFiles()
    files.make_dir(ROOT)
    settings = StoreSettings(folder=ROOT, log_file_bytes=LOG_FILE_BYTES, prepared_files=2, close_timeout_ms=10)
    segments = Segments(files, FOLDER, LOG_FILE_BYTES)
    preparer = FilePreparer(settings, files, FakeClock(), segments)
    with files.stall("sync", nth=3) as stall:
        preparer.begin()
        preparer.take()
        stall.wait_until_reached()

        preparer.close()

        assert "closing without waiting for its thread" in caplog.text
    segments.load()
    assert segments.end_of_files == 3 * LOG_FILE_BYTES

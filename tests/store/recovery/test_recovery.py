"""Opening a store after any kind of stop: what is scanned, truncated, rebuilt, and unchanged."""

import errno
import logging
from contextlib import suppress
from pathlib import Path
from random import Random

import msgspec
import pytest
from tests.store.kit import HOST, ROOT
from tests.store.open_store import OpenStore, numbered, remove_all

from pocketmq.errors import StoreDamaged, StoreError, StoreFull
from pocketmq.files import files_below
from pocketmq.protocol.record import encode_record
from pocketmq.store.checkpoint import Checkpoint
from pocketmq.store.queues.consume_queue import ENTRY
from pocketmq.store.recovery.queue_recovery import RecoveryReport
from pocketmq.store.resume import ResumeFile, ResumePoint
from pocketmq.testing import FaultyFiles
from pocketmq.testing.disk.drive import FaultyFile
from pocketmq.testing.disk.faults import Call
from pocketmq.testing.disk.model import Survives

LOG = ROOT / "commitlog"
QUEUES = ROOT / "consumequeue"
RESUME = ROOT / "config" / "resume.json"


def log_file(number: int) -> Path:
    return LOG / f"{number * 4096:020d}"


def filled(queue_file_entries: int = 10) -> OpenStore:
    """A store with thirty messages in two queues, over several log files, all of it safe."""
    opened = OpenStore.small(queue_file_entries=queue_file_entries)
    for body in numbered(30, size=300):
        opened.send(body, topic="T" if int(body.split(b":")[0]) % 3 else "U")
        opened.clock.advance_ms(2000)
    opened.settle()
    return opened


def bodies_of(opened: OpenStore) -> tuple[list[bytes], list[bytes]]:
    return opened.bodies("T"), opened.bodies("U")


ALL = (
    [body for number, body in enumerate(numbered(30, size=300)) if number % 3],
    numbered(30, size=300)[::3],
)


def overwrite(disk: FaultyFiles, path: Path, at: int, data: bytes) -> None:
    with disk.open(path) as file:
        file.write_at(at, data)
        file.sync()


# clean stops


def test_after_a_clean_stop_nothing_is_scanned() -> None:
    again = filled().reopen()

    assert (again.report.clean, again.report.records, again.report.cut) == (True, 0, "")
    assert again.report.scanned_from == again.report.log_end
    assert bodies_of(again) == ALL
    again.send(b"more")
    assert again.store.max_offset("T", 0) == 21


def test_a_clean_store_changed_by_another_program_is_scanned_from_the_end_of_its_queues() -> None:
    opened = filled()
    opened.store.close()
    checkpoint = Checkpoint(opened.disk, ROOT).load()
    checkpoint.index_ms += 1
    checkpoint.save()

    again = OpenStore(opened.settings, opened.clock, opened.disk)

    assert again.report.clean
    assert 0 < again.report.records < 30
    assert bodies_of(again) == ALL
    point = ResumeFile(opened.disk, ROOT).load()
    assert point == ResumePoint(clean=False), "what does not fit is not believed later either"


@pytest.mark.parametrize("damage", [b"", b"{", b'{"crc":1,"point":{}}'])
def test_a_damaged_resume_point_costs_only_a_scan(damage: bytes) -> None:
    opened = filled()
    opened.store.close()
    with opened.disk.open(RESUME) as file:
        file.truncate(0)
        file.write_at(0, damage)

    again = OpenStore(opened.settings, opened.clock, opened.disk)

    assert again.report.clean
    assert bodies_of(again) == ALL


def test_a_resume_point_with_an_invalid_topic_is_not_used() -> None:
    opened = filled()
    opened.store.close()
    resume = ResumeFile(opened.disk, ROOT)
    point = resume.load()
    assert point is not None
    resume.save(msgspec.structs.replace(point, queues={**point.queues, ("../../escape", 0): (0, 5)}))

    again = OpenStore(opened.settings, opened.clock, opened.disk)

    assert again.store.find_queue("../../escape", 0) is None
    assert bodies_of(again) == ALL


def test_a_queue_deleted_by_hand_after_a_clean_stop_is_rebuilt() -> None:
    opened = filled()
    opened.store.close()
    remove_all(opened.disk, files_below(opened.disk, QUEUES / "U"))

    again = OpenStore(opened.settings, opened.clock, opened.disk)

    assert again.report.rebuilt_queues == ["U:0"]
    assert bodies_of(again) == ALL
    assert bodies_of(again.reopen()) == ALL


def test_old_files_removed_by_another_program_are_not_counted_by_the_resume_point() -> None:
    opened = filled()
    opened.store.close()
    for number in range(2):
        opened.disk.unlink(log_file(number))
    opened.disk.unlink(QUEUES / "T" / "0" / f"{0:020d}")

    again = OpenStore(opened.settings, opened.clock, opened.disk)

    first = again.store.min_offset("T", 0)
    assert first >= 10
    assert bodies_of(again) == (ALL[0][first:], ALL[1][again.store.min_offset("U", 0) :])


def test_a_missing_file_in_the_middle_of_a_queue_is_rebuilt() -> None:
    opened = filled()
    opened.store.close()
    opened.disk.unlink(QUEUES / "T" / "0" / f"{0:020d}")
    opened.disk.unlink(RESUME)

    again = OpenStore(opened.settings, opened.clock, opened.disk)

    assert bodies_of(again.crash()) == bodies_of(again)
    assert bodies_of(again)[1] == ALL[1]


# crashes


@pytest.mark.parametrize("survives", ["everything", "nothing"])
def test_after_a_crash_the_scan_starts_where_everything_was_safe(survives: Survives) -> None:
    opened = filled()

    again = opened.crash(survives)

    assert not again.report.clean
    assert again.report.scanned_from == 3 * 4096 - 4096
    assert 0 < again.report.records < 15
    assert bodies_of(again) == ALL


@pytest.mark.parametrize("damage", ["missing", "short", "zeros", "nonsense"])
def test_without_a_checkpoint_the_complete_log_is_scanned(damage: str) -> None:
    opened = filled()
    path = ROOT / "checkpoint"
    if damage == "missing":
        opened.disk.unlink(path)
    else:
        with opened.disk.open(path) as file:
            file.truncate(3 if damage == "short" else 4096)
            file.write_at(0, bytes(24) if damage == "zeros" else b"\xff" * 24 if damage == "nonsense" else b"")

    again = opened.crash()

    assert (again.report.scanned_from, again.report.records) == (0, 30)
    assert bodies_of(again) == ALL


def test_queues_deleted_by_hand_are_all_rebuilt() -> None:
    opened = filled()
    remove_all(opened.disk, files_below(opened.disk, QUEUES))

    again = opened.crash()

    assert again.report.records == 30
    assert bodies_of(again) == ALL


def test_a_queue_deleted_by_hand_is_missing_at_its_resume_point_and_rebuilt() -> None:
    opened = OpenStore.small(resume_interval_ms=1000)
    opened.send(*numbered(20), topic="Old")
    for _ in range(20):
        opened.clock.advance_ms(5000)
        opened.send(bytes(2000), topic="New")
        opened.tick()
    opened.settle(100)
    remove_all(opened.disk, files_below(opened.disk, QUEUES / "Old"))

    again = opened.crash()

    assert again.report.rebuilt_queues == ["Old:0"]
    assert again.bodies("Old") == numbered(20)
    assert again.crash("nothing").bodies("Old") == numbered(20)


def test_an_interrupted_rebuild_of_a_queue_is_repeated() -> None:
    opened = filled()
    resume = ResumeFile(opened.disk, ROOT)
    resume.save(ResumePoint(clean=False, queues={("T", 0): (0, 20)}, unfinished=[("T", 0)]))
    overwrite(opened.disk, QUEUES / "T" / "0" / f"{0:020d}", 0, bytes(60))

    again = opened.crash()

    assert again.report.rebuilt_queues == ["T:0"]
    assert bodies_of(again) == ALL
    point = resume.load()
    assert point is not None
    finished = ResumeFile(again.disk, ROOT).load()
    assert finished is not None
    assert finished.unfinished == []


def test_a_queue_without_remaining_messages_keeps_its_offset() -> None:
    opened = filled()
    ResumeFile(opened.disk, ROOT).save(ResumePoint(clean=False, queues={("Gone", 3): (7, 7)}))

    again = opened.crash()

    assert again.store.max_offset("Gone", 3) == 7
    assert again.stage(topic="Gone", queue_id=3)[0] == 7
    assert again.report.rebuilt_queues == []


def test_queue_files_after_a_gap_are_skipped() -> None:
    """Retention unlinks old files without waiting: after a crash, any of them may be there again."""
    opened = filled(queue_file_entries=2)
    folder = QUEUES / "T" / "0"
    old = opened.disk.read(folder / f"{0:020d}")
    opened.clock.advance_ms(100 * 3_600_000)
    opened.store.drop_expired()
    opened.settle()
    first = opened.store.min_offset("T", 0)
    assert first >= 4
    with opened.disk.open(folder / f"{0:020d}", create=True) as file:
        file.write_at(0, old)

    again = opened.crash()

    assert again.store.max_offset("T", 0) == 20
    assert again.bodies("T") == ALL[0][first:]
    assert again.report.rebuilt_queues == []


@pytest.mark.parametrize("clean", [False, True])
@pytest.mark.parametrize("missing", [(0,), (4,), (0, 4), (0, 4, 8)])
def test_missing_queue_files_are_rebuilt_while_the_log_has_their_messages(
    missing: tuple[int, ...], clean: bool
) -> None:
    opened = filled(queue_file_entries=4)
    if clean:
        opened.store.close()
        opened.disk.unlink(ResumeFile(opened.disk, ROOT).path)  # as in a store of RocketMQ
    for offset in missing:
        opened.disk.unlink(QUEUES / "T" / "0" / f"{offset * 20:020d}")

    again = opened._again(opened.disk) if clean else opened.crash()

    assert bodies_of(again) == ALL
    assert again.report.rebuilt_queues == ["T:0"]


def test_a_file_after_missing_ones_does_not_start_a_queue_in_the_middle() -> None:
    opened = OpenStore.small()
    opened.send(*numbered(31))
    opened.settle()
    remove_all(opened.disk, [QUEUES / "T" / "0" / name for name in opened.names("consumequeue/T/0")])
    opened.send(*numbered(34)[31:])
    opened.settle()

    again = opened.crash()

    assert again.report.scanned_from > 0
    assert again.bodies() == numbered(34)


def test_stale_queue_entries_beyond_the_log_are_removed() -> None:
    opened = OpenStore.small(queue_least_pages=0)
    opened.send(b"one")
    opened.settle()
    opened.send(*numbered(25))
    for path in opened.store._queues.flush():
        with opened.disk.open(path) as file:
            file.sync()
    for folder in opened.store._queues.take_new_folders():
        opened.disk.sync_dir(folder)

    again = opened.crash("nothing")

    assert again.bodies() == [b"one"]
    assert again.names("consumequeue/T/0") == [f"{0:020d}"]
    entries = list(ENTRY.iter_unpack(again.disk.read(QUEUES / "T" / "0" / f"{0:020d}")))
    assert entries[1:] == [(0, 0, 0)] * 9


# cuts


def test_the_log_is_truncated_at_the_first_bad_record_and_this_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    opened = OpenStore.small()
    offsets = opened.send(*numbered(5))
    overwrite(opened.disk, log_file(0), offsets[2] + 95, b"?")

    with caplog.at_level(logging.WARNING):
        again = opened.crash()

    assert again.bodies() == numbered(2)
    assert again.report.cut == f"at log offset {offsets[2]}: a wrong body checksum"
    assert again.report.cut_bytes == 3 * offsets[1] - len("\0\0"), "the last record ends in zeros: it has no properties"
    assert f"cut at log offset {offsets[2]}" in caplog.text
    assert again.store.end == offsets[2]
    assert not any(again.disk.read(log_file(0))[offsets[2] :])
    assert again.crash().report.cut == ""


def test_nothing_after_a_gap_survives() -> None:
    opened = OpenStore.small()
    offsets = opened.send(*numbered(60, size=200))
    hole = next(offset for offset in offsets if offset > 4096)
    overwrite(opened.disk, log_file(1), hole - 4096, bytes(300))

    again = opened.crash()

    assert again.store.end == hole
    assert len(again.bodies()) == offsets.index(hole)
    assert again.report.cut == f"at log offset {hole}: nothing was written there, but there are bytes after it"
    assert again.report.cut_bytes > 8192
    assert not any(any(again.disk.read(LOG / name)) for name in again.names("commitlog")[2:])


@pytest.mark.parametrize("length", [600, 1500])
def test_a_record_with_a_lost_sector_of_properties_is_truncated(length: int) -> None:
    opened = OpenStore.small()
    opened.send(b"before")
    (offset,) = opened.send(b"body", properties="name\x01" + "x" * length + "\x02")
    opened.send(b"behind")
    overwrite(opened.disk, log_file(0), 512, bytes(512))

    again = opened.crash()

    assert again.bodies() == [b"before"]
    assert again.report.cut == f"at log offset {offset}: a part of the record is lost"


def test_a_record_known_to_be_safe_is_not_checked() -> None:
    opened = OpenStore.small()
    opened.send(b"body", properties="name\x01value\x02")
    opened.clock.advance_ms(5000)
    opened.send(b"later")
    opened.settle()
    end_of_first = len(opened.store.record(0) or b"")
    overwrite(opened.disk, log_file(0), end_of_first - 1, b"\0")

    assert opened.crash().bodies() == [b"body", b"later"]


def test_a_truncation_removes_later_and_unfinished_files() -> None:
    opened = filled()
    newest = opened.names("commitlog")[-1]
    with opened.disk.open(LOG / newest) as file:
        file.truncate(0)

    again = opened.crash()

    assert bodies_of(again) == ALL
    assert again.disk.status(LOG / newest) is None or again.disk.read(LOG / newest) == bytes(4096)


def test_a_store_without_a_log_starts_with_an_empty_one() -> None:
    opened = filled()
    opened.store.close()
    remove_all(opened.disk, files_below(opened.disk, LOG))

    again = OpenStore(opened.settings, opened.clock, opened.disk)
    again.run_workers()

    assert (again.store.end, len(again.store._queues)) == (0, 0)
    assert list(files_below(again.disk, QUEUES)) == []
    assert again.stage()[0] == 0
    again.store.end_turn()
    assert again.crash().store.max_offset("U", 0) == 0, "an old resume point does not count"


def test_a_checkpoint_ahead_of_the_log_is_lowered() -> None:
    """Derived files may be safe before their messages are. When those are lost and the clock went back, others with
    they are replaced by earlier times, for which the old checkpoint must not be valid.
    """
    opened = OpenStore.small(flush_thorough_ms=10**9, flush_interval_ms=10**9)
    opened.send(b"first")
    opened.store.when_synced(opened.store.end, lambda _: None)
    opened.run_workers()
    opened.clock.advance_ms(100_000)
    opened.send(b"lost")
    opened.settle()
    known = Checkpoint(opened.disk, ROOT).load()
    assert known.logics_ms > known.physic_ms

    again = opened.crash("nothing")

    assert again.bodies() == [b"first"]
    newest_ms = again.store.store_ms("T", 0, 0)
    lowered = Checkpoint(again.disk.crash(Random(0), survives="nothing"), ROOT).load()
    assert lowered.logics_ms == lowered.physic_ms == newest_ms


# records that fit into no queue


@pytest.mark.parametrize(
    ("topic", "queue_id", "queue_offset"),
    [("../../escape", 0, 0), ("", 0, 0), ("a\0b", 0, 0), ("T", -1, 0), ("T", 0, -7), ("T", 0, 2**62)],
)
def test_a_record_with_an_impossible_queue_is_in_no_queue_and_no_folder(
    topic: str, queue_id: int, queue_offset: int
) -> None:
    opened = OpenStore.small()
    opened.send(b"one")
    end = opened.store.end
    record = encode_record(
        topic.encode(), queue_id, queue_offset, end, b"hostile", b"", 0, 0, 0, HOST, opened.clock.now_ms(), HOST
    )
    overwrite(opened.disk, log_file(0), end, record)

    again = opened.crash()

    assert again.report.unplaced == 1
    assert "1 records belong to no queue" in str(again.report)
    assert again.bodies() == [b"one"]
    assert again.store.end == end + len(record)
    assert again.names("consumequeue") == ["T"]
    assert [name for name in again.disk.list(Path("/")) if name != "store"] == []
    assert again.send(b"two") == [end + len(record)]
    assert again.crash().bodies() == [b"one", b"two"]


# files that are not as they should be


@pytest.mark.parametrize("size", [4095, 1, 8192])
def test_a_log_file_of_a_wrong_size_is_named(size: int) -> None:
    opened = filled()
    opened.store.close()
    with opened.disk.open(log_file(1)) as file:
        file.truncate(size)

    with pytest.raises(StoreDamaged, match=rf"{log_file(1)} has {size} bytes, expected 4096"):
        OpenStore(opened.settings, opened.clock, opened.disk)


def test_a_missing_log_file_is_named() -> None:
    opened = filled()
    opened.store.close()
    opened.disk.unlink(log_file(1))

    with pytest.raises(StoreDamaged, match=r"begins at 8192, but the file before it ends at 4096"):
        OpenStore(opened.settings, opened.clock, opened.disk)


def test_a_queue_file_of_a_wrong_size_is_named() -> None:
    opened = filled()
    with opened.disk.open(QUEUES / "T" / "0" / f"{0:020d}") as file:
        file.truncate(500)

    with pytest.raises(StoreDamaged, match=r"consumequeue/T/0/0{20} has 500 bytes; .* have 200"):
        opened.crash()


def test_an_index_file_beyond_the_checkpoint_of_a_clean_stop_survives_a_crash() -> None:
    opened = OpenStore.small()
    opened.send(properties="UNIQ_KEY\x01A\x02")
    opened.store.close()
    checkpoint = Checkpoint(opened.disk, ROOT).load()
    newest_ms, checkpoint.index_ms = checkpoint.index_ms, 0
    checkpoint.save()

    again = OpenStore.small(opened.disk, opened.clock)

    assert Checkpoint(again.disk, ROOT).load().index_ms == newest_ms
    assert again.crash("nothing").report.discarded_index_files == 0


def test_an_index_file_of_a_wrong_size_is_named() -> None:
    opened = OpenStore.small()
    opened.send(properties="KEYS\x01k\x02")
    opened.store.close()
    (name,) = opened.names("index")
    with opened.disk.open(ROOT / "index" / name) as file:
        file.truncate(5000)

    with pytest.raises(StoreDamaged, match=rf"{name} has 5000 bytes"):
        OpenStore(opened.settings, opened.clock, opened.disk)
    opened.disk.unlink(ROOT / "index" / name)
    assert OpenStore(opened.settings, opened.clock, opened.disk).store.find_by_key("T", "k", 1)


@pytest.mark.parametrize("crashed", [True, False])
def test_foreign_files_are_not_changed_in_any_folder(crashed: bool) -> None:
    opened = filled()
    foreign = [
        ROOT / "README",
        LOG / "notes.txt",
        LOG / "00000000000000000abc",
        QUEUES / "file",
        QUEUES / "not a topic" / "x",
        QUEUES / "T" / "zero" / f"{0:020d}",
        QUEUES / "T" / "0" / "backup",
        ROOT / "index" / "old.index",
        ROOT / "config" / "mine.json",
    ]
    for path in foreign:
        opened.disk.make_dir(path.parent)
        with opened.disk.open(path, create=True) as file:
            file.write_at(0, b"mine")

    if not crashed:
        opened.store.close()
        opened.disk.unlink(RESUME)
        again = OpenStore(opened.settings, opened.clock, opened.disk)
    else:
        again = opened.crash()
    again.store.delete_topic("T")
    again.settle()
    again.store.close()

    assert [again.disk.read(path) for path in foreign] == [b"mine"] * len(foreign)
    reported = {path.relative_to(ROOT).parts[0] for path in again.report.foreign}
    assert reported == {"commitlog", "consumequeue", "index"}
    assert "unknown files left alone" in str(again.report)


# disks that refuse while a store is opened


@pytest.mark.parametrize("call", ["write", "sync", "sync_dir", "open", "read"])
def test_a_disk_that_rejects_calls_during_recovery_only_delays_it(call: Call) -> None:
    opened = filled()
    overwrite(opened.disk, log_file(0), 4096 - 1000, b"?")
    opened.disk.unlink(ROOT / "checkpoint")
    broken = opened.disk.crash(Random(0), survives="everything")
    code = errno.EIO if "sync" in call or call == "read" else errno.ENOSPC
    for nth in range(1, 40):
        with broken.fail(call, code, "/store*", nth=nth), suppress(StoreError):
            OpenStore(opened.settings, opened.clock, broken).store._parts.close(clean=False)

    assert OpenStore(opened.settings, opened.clock, broken).bodies("T") == opened.crash().bodies("T")


def test_a_repeated_recovery_has_the_same_result() -> None:
    opened = filled()
    overwrite(opened.disk, log_file(2), 100, b"?")
    once = opened.crash()
    twice = once.crash()

    assert bodies_of(once) == bodies_of(twice)
    assert (twice.report.cut, twice.report.trimmed_queues, twice.report.rebuilt_queues) == ("", 0, [])


# the report


def test_a_report_is_a_sentence() -> None:
    report = RecoveryReport(
        clean=False,
        scanned_from=4096,
        log_end=9000,
        records=12,
        cut="at log offset 9000: a wrong body checksum",
        cut_bytes=400,
        rebuilt_queues=["T:0"],
        trimmed_queues=3,
        discarded_index_files=1,
        unplaced=2,
        foreign=[Path("x")],
    )

    assert str(report) == (
        "after a crash: scanned 12 records from log offset 4096, the log ends at 9000; "
        "cut at log offset 9000: a wrong body checksum (400 bytes dropped); 1 queues rebuilt; "
        "3 queues trimmed; 1 index files to rebuild; 2 records belong to no queue; 1 unknown files left alone"
    )
    assert (
        str(RecoveryReport(clean=True)) == "after a clean stop: scanned 0 records from log offset 0, the log ends at 0"
    )


def test_without_space_for_repairs_the_error_has_advice() -> None:
    opened = filled()
    broken = opened.disk.crash(Random(0), survives="everything")
    broken.fail("write", errno.ENOSPC, "*/consumequeue/*")

    with pytest.raises(StoreFull, match="free it, then open the store again"):
        OpenStore(opened.settings, opened.clock, broken)


# a full file system in memory


@pytest.mark.parametrize("clean", [True, False])
def test_no_part_of_the_log_is_mapped_before_its_end_is_known(monkeypatch: pytest.MonkeyPatch, clean: bool) -> None:
    """To read a hole through a map takes memory on tmpfs; without any, the process is killed."""
    opened = OpenStore.small()
    opened.send(*numbered(60))
    opened.settle()
    if clean:
        opened.store.close()
        opened.disk.unlink(ROOT / "config/resume.json")
    disk = opened.disk if clean else opened.disk.crash(Random(0), survives="everything")
    mapped: list[Path] = []
    map_file = FaultyFile.map

    def noted_map(file: FaultyFile, size: int) -> memoryview:
        mapped.append(file.path)
        return map_file(file, size)

    monkeypatch.setattr(FaultyFile, "map", noted_map)

    again = OpenStore.small(disk)

    assert mapped == []
    assert again.bodies() == numbered(60)
    assert mapped

"""Rebuilds: the same files as Apache's broker, nothing else touched, and harmless if interrupted at any point."""

import errno
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from tests.golden import needs_golden
from tests.store.golden_store import STORES, restore
from tests.store.made_store import LOG_FILE_BYTES, ROOT, SIZES, MadeStore

from pocketmq.clock import SystemClock
from pocketmq.errors import InvalidSetting, StoreError, StoreLocked
from pocketmq.files import DiskFiles, Files, files_below
from pocketmq.store.layout import KnownSizes, find_layout
from pocketmq.store.message_store import MessageStore
from pocketmq.store.resume import ResumeFile, ResumePoint
from pocketmq.store.settings import StoreSettings
from pocketmq.store.tools.dump import Skipped
from pocketmq.store.tools.findings import Finding, Progress, Severity
from pocketmq.store.tools.rebuild import Rebuild, RebuildReport, plan_rebuild
from pocketmq.store.tools.verify import Verification
from pocketmq.testing import FakeClock, FaultyFiles

UNTOUCHED = ("commitlog", "config")


@pytest.fixture
def store() -> MadeStore:
    return MadeStore().fill()


def rebuild(files: Files, folder: Path = ROOT, known: KnownSizes = SIZES) -> tuple[RebuildReport, list[str]]:
    """Rebuild a store; returns the report and what was skipped."""
    work = Rebuild(files, FakeClock(), find_layout(files, folder, known))
    skipped = [event.text for event in work.run() if isinstance(event, Skipped)]
    return work.report, skipped


def contents(files: Files, folder: Path, *below: str) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): files.read(path)
        for name in below
        for path in files_below(files, folder / name)
    }


def worst(files: Files, folder: Path, known: KnownSizes) -> Severity:
    verification = Verification(files, find_layout(files, folder, known))
    for _ in verification.run():
        pass
    return verification.summary.worst


# the real broker's stores


@needs_golden
@pytest.mark.parametrize(("version", "kind"), STORES)
def test_rebuilt_queues_and_index_equal_apaches(version: str, kind: str, tmp_path: Path) -> None:
    restore(version, kind, tmp_path)
    files = DiskFiles()
    before = contents(files, tmp_path, "consumequeue", "index", *UNTOUCHED)

    rebuild(files, tmp_path, KnownSizes())

    after = contents(files, tmp_path, "consumequeue", "index", *UNTOUCHED)
    [(old_index, old_bytes)] = [(name, data) for name, data in before.items() if name.startswith("index/")]
    [(new_index, new_bytes)] = [(name, data) for name, data in after.items() if name.startswith("index/")]
    assert new_bytes == old_bytes
    assert {**after, old_index: old_bytes} == {**before, new_index: new_bytes}
    assert not (tmp_path / "rebuild").exists()
    assert (tmp_path / "abort").exists() == (kind == "live")


@needs_golden
@pytest.mark.parametrize("lost", [["consumequeue"], ["index"], ["consumequeue", "index", "checkpoint"]])
def test_a_store_that_lost_its_derived_files_is_sound_again(lost: list[str], tmp_path: Path) -> None:
    restore("5.3.3", "clean", tmp_path)
    files = DiskFiles()
    before = contents(files, tmp_path, "consumequeue")
    known = KnownSizes(queue_file_entries=20, index_slots=100, index_entries=400)
    for name in lost:
        for path in [*files_below(files, tmp_path / name)] if name != "checkpoint" else [tmp_path / name]:
            path.unlink()

    rebuild(files, tmp_path, known)

    assert contents(files, tmp_path, "consumequeue") == before
    assert worst(files, tmp_path, known) is Severity.NOTE


@needs_golden
def test_the_store_opens_after_a_rebuild_and_has_every_message(tmp_path: Path) -> None:
    settings = restore("5.3.3", "clean", tmp_path)

    rebuild(DiskFiles(), tmp_path, KnownSizes())

    with MessageStore(settings, store_host=bytes(8), post=lambda callback: callback()) as store:
        assert store.max_offset("StoreA", 0) == 20
        assert store.max_offset("RMQ_SYS_TRANS_HALF_TOPIC", 0) == 33
        [message] = store.find_by_key("StoreA", "a16", 10)
        assert message.body == b"store a 16"


# what it repairs


@pytest.mark.parametrize("offset", [0, 7, 14])
def test_a_damaged_queue_entry_is_rebuilt(store: MadeStore, offset: int) -> None:
    before = contents(store.files, ROOT, "consumequeue", *UNTOUCHED)
    path, begin = store.queue_path("Orders", 0, offset)
    store.flip(path, begin + 5)

    report, skipped = rebuild(store.files)

    assert contents(store.files, ROOT, "consumequeue", *UNTOUCHED) == before
    assert store.findings() == []
    assert skipped == []
    assert (report.messages, report.queues, report.queue_entries) == (46, 4, 43)


def test_stale_entries_and_files_after_the_end_are_removed(store: MadeStore) -> None:
    path, begin = store.queue_path("Orders", 0, 15)
    store.write(path, store.read(path)[:20], begin)
    store.write("consumequeue/Orders/0/00000000000000000320", b"x" * 80)

    report, _ = rebuild(store.files)

    assert store.findings() == []
    assert report.removed_files == 1


def test_queues_without_messages_in_the_log_are_removed(store: MadeStore) -> None:
    store.write("consumequeue/Ghosts/3/00000000000000000000", b"\1" * 80)

    report, _ = rebuild(store.files)

    assert store.findings() == []
    assert report.removed_files == 1


def test_a_queue_with_only_expired_messages_keeps_its_last_offset(store: MadeStore) -> None:
    store = MadeStore()
    for _ in range(6):
        store.append("Once")
    store.fill()
    store.unlink(store.log_path(0))
    path, begin = store.queue_path("Once", 0, 6)
    before = store.read(path)
    store.write(path, b"\1" * 20, begin)

    rebuild(store.files)

    assert store.findings() == []
    assert store.read(path) == before


def test_the_checkpoint_is_rebuilt_after_a_clean_stop(store: MadeStore) -> None:
    store.write("checkpoint", b"\xff" * 5000)

    rebuild(store.files)

    assert store.findings() == []
    assert len(store.read("checkpoint")) == 4096


def test_after_a_crash_abort_file_and_checkpoint_are_kept(store: MadeStore) -> None:
    store.crash()
    before = store.read("checkpoint")[:40]

    rebuild(store.files)

    assert store.files.status(ROOT / "abort") is not None
    assert store.read("checkpoint")[:40] == before


def test_after_a_rebuild_the_resume_point_is_not_used(store: MadeStore) -> None:
    resume = ResumeFile(store.files, ROOT)
    resume.save(ResumePoint(clean=True, log_end=1, queues={("Orders", 0): (0, 99), ("Gone", 0): (2, 5)}))

    rebuild(store.files)

    point = resume.load()
    assert point is not None
    assert not point.clean
    assert point.queues["Orders", 0] == (0, 15)
    assert point.queues["Gone", 0] == (2, 5)


def test_a_store_of_rocketmq_gets_no_resume_point(store: MadeStore) -> None:
    rebuild(store.files)

    assert store.files.status(ROOT / "config" / "resume.json") is None


# what it does not touch


def test_log_tables_and_foreign_files_are_not_changed(store: MadeStore) -> None:
    for name in ("notes.txt", "consumequeue/readme", "consumequeue/Orders/0/x", "index/2026", "config/mine.yaml"):
        store.write(name, b"mine")
    store.write("consumequeue/%LMQ%light/0/00000000000000000000", b"\1" * 80)
    before = contents(store.files, ROOT, *UNTOUCHED)

    rebuild(store.files)

    assert contents(store.files, ROOT, *UNTOUCHED) == before
    for name in ("notes.txt", "consumequeue/readme", "consumequeue/Orders/0/x", "index/2026"):
        assert store.read(name) == b"mine"
    assert store.read("consumequeue/%LMQ%light/0/00000000000000000000") == b"\1" * 80


def test_queues_of_batches_are_not_changed() -> None:
    store = MadeStore()
    store.append("Orders")
    store.append("Batches", sys_flag=0x80)
    store.derive()
    store.write("consumequeue/Batches/0/00000000000000000000", b"\1" * 46)

    report, _ = rebuild(store.files)

    assert report.kept_queues == ["Batches/0"]
    assert store.read("consumequeue/Batches/0/00000000000000000000") == b"\1" * 46


def test_deleted_topics_get_no_queues(store: MadeStore) -> None:
    store.remove_tree("consumequeue/Bills")
    store.write("config/topics.json", b'{"topicConfigTable":{"Orders":{}}}', size=34)

    report, _ = rebuild(store.files)

    assert report.deleted_topics == ["Bills"]
    assert store.files.list(ROOT / "consumequeue") == ["Orders", "SCHEDULE_TOPIC_XXXX"]


def test_a_foreign_folder_of_the_same_name_is_refused(store: MadeStore) -> None:
    store.write("rebuild/photos/cat.jpg", b"mine")
    before = contents(store.files, ROOT, ".")

    with pytest.raises(StoreError, match=r"cat\.jpg is in .* no rebuild created it"):
        rebuild(store.files)

    assert contents(store.files, ROOT, ".") == before


def test_a_store_in_use_is_refused(store: MadeStore) -> None:
    store.write("lock", b"lock")
    before = contents(store.files, ROOT, ".")

    with store.files.open(ROOT / "lock") as lock:
        assert lock.lock()
        with pytest.raises(StoreLocked):
            rebuild(store.files)

    assert contents(store.files, ROOT, ".") == before


# a damaged log


def test_messages_after_damage_keep_their_offsets(store: MadeStore) -> None:
    at, following = list(store.records)[6:8]
    store.flip(store.log_path(at), at + 90)
    before = contents(store.files, ROOT, *UNTOUCHED)

    report, skipped = rebuild(store.files)

    assert skipped == [f"no valid record from log offset {at} to {following}: a wrong body checksum"]
    assert (report.gaps, report.queue_entries) == (1, 42)
    assert contents(store.files, ROOT, *UNTOUCHED) == before
    assert [kind for kind, *_ in store.told()] == ["log-record"]


def test_a_record_with_a_wrong_offset_is_corrected(store: MadeStore) -> None:
    before = contents(store.files, ROOT, "consumequeue")
    at = list(store.records)[6]
    store.flip(store.log_path(at), at + 27, bit=1)

    _, skipped = rebuild(store.files)

    assert contents(store.files, ROOT, "consumequeue") == before
    assert skipped == [f"the record at log offset {at} has a wrong queue offset; its neighbours show its own"]


def test_a_record_outside_all_queues_is_skipped(store: MadeStore) -> None:
    at = list(store.records)[6]
    store.flip(store.log_path(at), at + 14)

    _, skipped = rebuild(store.files)

    assert skipped == [f"the record at log offset {at} fits into no queue and was skipped"]


def test_without_a_log_nothing_is_rebuilt(store: MadeStore) -> None:
    store.remove_tree("commitlog")

    with pytest.raises(StoreError, match="there is nothing to rebuild from"):
        plan_rebuild(store.files, store.layout())


def test_without_the_shape_of_the_index_nothing_is_rebuilt(store: MadeStore) -> None:
    for path in store.index_paths:
        store.write(path, b"\1" * 40)

    with pytest.raises(InvalidSetting, match="Set index_slots and index_entries"):
        plan_rebuild(store.files, store.layout(KnownSizes()))


def test_the_plan_lists_the_files_to_replace(store: MadeStore) -> None:
    store.write("consumequeue/%LMQ%light/0/00000000000000000000", b"\1" * 80)

    plan = plan_rebuild(store.files, store.layout())

    assert len(plan.queue_files) == 4 + 4 + 3 + 1
    assert [f"index/{path.name}" for path in plan.index_files] == store.index_paths
    assert plan.log_bytes == 3 * LOG_FILE_BYTES


def test_progress_reaches_its_total(store: MadeStore) -> None:
    work = Rebuild(store.files, FakeClock(), store.layout())

    progress = [event for event in work.run() if isinstance(event, Progress)]

    assert progress[-1].done == progress[-1].total == 3 * LOG_FILE_BYTES


def test_memory_is_released_when_index_files_are_full(store: MadeStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pocketmq.store.tools.rebuild.SETTLE_MESSAGES", 5)
    monkeypatch.setattr("pocketmq.store.tools.rebuild.PUT_KEYS", 2)
    monkeypatch.setattr("pocketmq.store.tools.rebuild.FLUSH_BYTES", 40)

    rebuild(store.files)

    assert store.findings() == []


# ends in the middle


def damaged() -> MadeStore:
    store = MadeStore().fill()
    store.flip(store.queue_path("Orders", 0, 3)[0], 65)
    store.unlink(store.queue_path("Bills", 0, 4)[0])
    store.flip(store.index_paths[1], 300)
    return store


def crashed_rebuilds(states: int) -> Iterator[tuple[MadeStore, FaultyFiles, str]]:
    """A damaged store, and how a power loss may leave it at every moment of a rebuild."""
    store = damaged()
    clean = store.files.crash(Random(0), survives="everything")
    begin = clean.position
    rebuild(clean)
    for point in clean.crash_points(seed=5, states=states):
        if point.position >= begin:
            yield store, point.files, f"position {point.position}, seed {point.seed}, after {point.last}"


def test_after_a_power_loss_at_any_moment_nothing_is_lost_and_another_rebuild_completes_it() -> None:
    moments = 0
    for store, files, moment in crashed_rebuilds(states=2):
        moments += 1
        assert contents(files, ROOT, *UNTOUCHED) == contents(store.files, ROOT, *UNTOUCHED), moment
        missing = {name for name in contents(store.files, ROOT, "consumequeue") if files.status(ROOT / name) is None}
        assert missing == set(), moment

        rebuild(files)

        assert worst(files, ROOT, SIZES) is Severity.NOTE, moment
        assert files.status(ROOT / "rebuild") is None, moment
    assert moments > 100


def test_after_a_power_loss_at_any_moment_the_store_opens_with_every_message() -> None:
    settings = StoreSettings(
        folder=ROOT,
        log_file_bytes=LOG_FILE_BYTES,
        queue_file_entries=4,
        index_slots=50,
        index_entries=30,
    )
    for number, (store, files, moment) in enumerate(crashed_rebuilds(states=1)):
        if number % 10:
            continue
        with MessageStore(
            settings, store_host=bytes(8), post=lambda callback: callback(), files=files, clock=FakeClock()
        ) as opened:
            for (topic, queue_id), end in store.next_offsets.items():
                assert opened.max_offset(topic, queue_id) == end, moment


def test_a_full_disk_does_not_change_the_store() -> None:
    store = damaged()
    before = contents(store.files, ROOT, ".")
    store.files.fail("write", errno.ENOSPC, path="*/rebuild/*", nth=3, times=None)

    with pytest.raises(OSError, match="No space left"):
        rebuild(store.files)
    store.files.heal()

    assert contents(store.files, ROOT, ".") == before
    assert store.files.status(ROOT / "rebuild") is None


def test_a_failure_while_files_are_replaced_leaves_the_abort_file() -> None:
    store = damaged()
    store.files.fail("replace", errno.EIO, nth=3)

    with pytest.raises(OSError, match="error"):
        rebuild(store.files)

    assert store.files.status(ROOT / "abort") is not None
    rebuild(store.files)
    assert [finding.kind.value for finding in store.findings()] == ["crashed"]


def test_an_abandoned_rebuild_releases_the_store(store: MadeStore) -> None:
    work = Rebuild(store.files, FakeClock(), store.layout()).run()
    next(work)

    work.close()  # type: ignore[attr-defined]

    assert store.files.status(ROOT / "abort") is None
    assert store.files.status(ROOT / "rebuild") is None
    assert store.findings() == []


def test_a_rebuild_works_on_a_real_disk(tmp_path: Path) -> None:
    store = damaged()
    store.files.materialise(tmp_path)
    folder = tmp_path / "store"

    work = Rebuild(DiskFiles(), SystemClock(), find_layout(DiskFiles(), folder, SIZES))
    for _ in work.run():
        pass

    assert worst(DiskFiles(), folder, SIZES) is Severity.NOTE
    findings = Verification(DiskFiles(), find_layout(DiskFiles(), folder, SIZES)).run()
    assert [event for event in findings if isinstance(event, Finding)] == []

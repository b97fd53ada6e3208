"""What a store does in the background: in which order, and how often."""

from itertools import count, pairwise
from random import Random
from typing import Any

import pytest
from tests.store.kit import ROOT, SteppingClock
from tests.store.open_store import OpenStore, numbered
from tests.store.rocketmq_index import RocketMQIndex

from pocketmq.store import upkeep
from pocketmq.store.checkpoint import Checkpoint
from pocketmq.store.index.index_file import IndexShape, key_hash
from pocketmq.store.resume import ResumeFile, ResumePoint
from pocketmq.store.upkeep import INDEX_STEP
from pocketmq.testing.fake_clock import START_MS


def on_disk(opened: OpenStore) -> Checkpoint:
    return Checkpoint(opened.disk, ROOT).load()


def operations(opened: OpenStore, since: int) -> list[tuple[str, str]]:
    """The operations on the disk: the kind, and the path below the folder of the store."""
    done = opened.disk.operations[since:]
    return [(operation.kind, operation.path.removeprefix("/store/")) for operation in done]


# queues and checkpoint


def test_the_checkpoint_covers_queue_entries_after_the_sync_of_files_and_names() -> None:
    opened = OpenStore.small()
    opened.send()
    opened.tick(1000)
    since = opened.disk.position

    opened.settle(12)

    done = operations(opened, since)
    entry = done.index(("write", f"consumequeue/T/0/{0:020d}"))
    synced = done.index(("sync", f"consumequeue/T/0/{0:020d}"))
    names = [done.index(("sync_dir", f"consumequeue{below}")) for below in ("/T/0", "/T", "")]
    told = next(at for at in range(len(done)) if at > synced and done[at] == ("write", "checkpoint"))
    assert entry < synced < min(names)
    assert max(names) < told
    assert on_disk(opened).logics_ms == START_MS


def test_the_checkpoint_does_not_cover_an_unsynced_flush() -> None:
    opened = OpenStore.small()
    opened.send()

    for _ in range(15):
        opened.clock.advance_ms(1000)
        opened.store.tick()

    assert on_disk(opened).logics_ms == 0
    opened.run_workers()
    opened.settle(2)
    assert on_disk(opened).logics_ms == START_MS


def test_entries_entered_during_a_flush_wait_for_the_next_one() -> None:
    opened = OpenStore.small()
    opened.send()
    opened.clock.advance_ms(10_000)
    opened.store.tick()
    opened.send()

    opened.run_workers()
    opened.settle(2)

    assert on_disk(opened).logics_ms == START_MS


def test_the_checkpoint_covers_queues_after_the_index_has_the_same_messages() -> None:
    opened = OpenStore.small(queue_thorough_ms=700, flush_thorough_ms=500)
    shape = IndexShape(opened.settings.index_slots, opened.settings.index_entries)
    sent: dict[int, int] = {}
    told: list[int] = []

    for number in range(150):
        [log_offset] = opened.send(properties=f"UNIQ_KEY\x01{number}\x02")
        sent[log_offset] = number
        opened.tick(100)
        checkpoint = on_disk(opened)
        theirs = RocketMQIndex(opened.disk, ROOT / "index", shape, checkpoint.index_ms)
        told = [at for at in sent if opened.store._log.store_ms_at(at) <= checkpoint.logics_ms]
        assert [at for at in told if at not in theirs.find(key_hash("T", str(sent[at])))] == []

    assert len(told) > 100


def test_queues_without_keys_do_not_wait_for_the_index() -> None:
    opened = OpenStore.small(queue_thorough_ms=700, flush_thorough_ms=500)
    opened.send(properties="UNIQ_KEY\x01A\x02")
    opened.settle(5)

    for _ in range(50):
        opened.send()
        opened.tick(100)

    assert opened.clock.now_ms() - on_disk(opened).logics_ms < 2500


def test_the_checkpoint_covers_the_synced_log() -> None:
    opened = OpenStore.small(flush_interval_ms=10**9, flush_thorough_ms=10**9)
    opened.send()
    opened.store.when_synced(opened.store.end, lambda _: None)
    opened.run_workers()
    opened.clock.advance_ms(5000)
    opened.send()

    opened.tick(1000)

    assert on_disk(opened).physic_ms == START_MS


def test_an_abandoned_turn_changes_no_time() -> None:
    opened = OpenStore.small()
    opened.send()
    opened.clock.step_ms(86_400_000)
    opened.stage()
    opened.store.abandon_turn()
    opened.clock.step_ms(-86_400_000)

    opened.store.close()

    assert on_disk(opened).physic_ms == on_disk(opened).logics_ms == START_MS


def test_an_unchanged_checkpoint_is_not_written() -> None:
    opened = OpenStore.small()
    opened.send()
    opened.settle(40)
    since = opened.disk.position

    opened.settle(40)

    assert ("write", "checkpoint") not in operations(opened, since)


def test_many_pending_entries_are_written_with_the_next_tick() -> None:
    opened = OpenStore.small(queue_least_pages=0)
    since = opened.disk.position

    opened.send()
    opened.tick()

    assert ("write", f"consumequeue/T/0/{0:020d}") in operations(opened, since)


def test_entries_of_many_queues_are_written_over_several_ticks() -> None:
    clock = SteppingClock()
    opened = OpenStore.small(clock=clock)
    for queue_id in range(100):
        opened.send(queue_id=queue_id)
    opened.clock.advance_ms(10_000)
    clock.slow = True
    written: list[int] = []

    while opened.store._parts.checkpoint.logics_ms == 0 and len(written) < 1000:
        since = opened.disk.position
        opened.tick()
        written.append(
            sum(path.startswith("consumequeue") for kind, path in operations(opened, since) if kind == "write")
        )

    assert sum(written) == 100
    assert max(written) <= 3
    assert opened.crash("nothing").store.max_offset("T", 99) == 1


def test_a_store_reports_unwritten_entries_until_all_are_written() -> None:
    clock = SteppingClock()
    opened = OpenStore.small(clock=clock)
    for queue_id in range(20):
        opened.send(queue_id=queue_id)
    opened.clock.advance_ms(10_000)
    clock.slow = True

    flushing = [opened.store.is_flushing]
    for _ in range(200):
        opened.tick()
        flushing.append(opened.store.is_flushing)

    assert (flushing[0], flushing[1], flushing[-1]) == (False, True, False)
    assert len(opened.disk.list(ROOT / "consumequeue" / "T")) == 20


def test_queues_are_flushed_less_often_when_many_are_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep, "FLUSHED_QUEUES_PER_S", 2)
    opened = OpenStore.small()
    flushes: list[int] = []

    for second in range(60):
        if second < 20:
            for queue_id in range(20):
                opened.send(queue_id=queue_id)
        since = opened.disk.position
        opened.tick(1000)
        if any(path.startswith("consumequeue") for kind, path in operations(opened, since) if kind == "write"):
            flushes.append(second + 1)

    assert flushes == [10, 30], "of twenty queues ten seconds later than of one"


def test_a_flush_over_several_ticks_covers_only_entries_added_before_it() -> None:
    clock = SteppingClock()
    opened = OpenStore.small(clock=clock, queue_thorough_ms=5000)
    for queue_id in range(50):
        opened.send(queue_id=queue_id)
    entered_ms = opened.clock.now_ms()
    opened.clock.advance_ms(5000)
    clock.slow = True
    opened.tick()
    late = opened.send(b"late")

    while opened.store._parts.checkpoint.logics_ms == 0:
        opened.tick()

    assert opened.store._parts.checkpoint.logics_ms == entered_ms
    clock.slow = False
    assert opened.store.message(late[0]) is not None
    assert opened.crash("everything").bodies() == [b"body", b"late"]


def test_a_topic_may_be_deleted_while_its_entries_are_written() -> None:
    clock = SteppingClock()
    opened = OpenStore.small(clock=clock)
    for queue_id in range(30):
        opened.send(queue_id=queue_id)
    opened.clock.advance_ms(10_000)
    clock.slow = True
    opened.tick()
    opened.store.delete_topic("T")
    clock.slow = False

    opened.settle(15)

    assert opened.names("consumequeue") == []
    assert opened.store._parts.checkpoint.logics_ms > 0


def test_a_store_may_close_while_its_entries_are_written() -> None:
    clock = SteppingClock()
    opened = OpenStore.small(clock=clock)
    for queue_id in range(30):
        opened.send(queue_id=queue_id)
    opened.clock.advance_ms(10_000)
    clock.slow = True
    opened.tick()
    clock.slow = False
    opened.store.close()

    again = OpenStore(opened.settings, clock, opened.disk.crash(Random(0), survives="nothing"))

    assert again.report.clean
    assert all(again.bodies(queue_id=queue_id) == [b"body"] for queue_id in range(30))


# index


def test_the_index_is_completed_and_written_in_the_background() -> None:
    opened = OpenStore.small()
    opened.send(*numbered(10), properties="KEYS\x01k\x02")
    assert opened.store.index_backlog_bytes > 0

    opened.tick()
    assert opened.store.index_backlog_bytes == 0
    opened.settle(60)

    assert on_disk(opened).index_ms == START_MS
    again = opened.crash("nothing")
    assert again.report.discarded_index_files == 0
    assert again.store._index.indexed_to > 0


def stepping(**changes: Any) -> OpenStore:
    """A store for thousands of messages; each read of its clock takes a millisecond."""
    clock = SteppingClock()
    opened = OpenStore.small(
        clock=clock, log_file_bytes=1024 * 1024, index_entries=100_000, queue_file_entries=100_000, **changes
    )
    clock.slow = True
    return opened


def indexed_by(opened: OpenStore) -> int:
    """How many messages the next tick enters into the index."""
    before = opened.store._index._growing[-1].header.next_number if opened.store._index._growing else 1
    opened.store.tick()
    opened.run_workers("queues")
    return opened.store._index._growing[-1].header.next_number - before


def make_file(opened: OpenStore) -> None:
    """The thread makes the first file of the index; that reads the clock, too."""
    opened.store.tick()
    opened.run_workers("queues")


def keep_busy(opened: OpenStore) -> None:
    opened.send(properties="KEYS\x01k\x02")


def test_while_messages_arrive_a_small_backlog_uses_one_step_of_a_tick() -> None:
    opened = stepping()
    opened.send(*numbered(2000), properties="KEYS\x01k\x02")

    steps = []
    for _ in range(3):
        keep_busy(opened)
        steps.append(indexed_by(opened))

    assert steps == [INDEX_STEP] * 3


def test_while_messages_arrive_a_tick_uses_time_in_proportion_to_the_backlog() -> None:
    opened = stepping(index_backlog_bytes=1_000_000)
    opened.send(*numbered(4500), properties="KEYS\x01k\x02")
    assert 850_000 < opened.store.index_backlog_bytes < 1_000_000
    make_file(opened)

    steps = []
    while opened.store.index_backlog_bytes > 20_000:
        keep_busy(opened)
        steps.append(indexed_by(opened) // INDEX_STEP)

    assert steps[0] == 5
    assert steps == sorted(steps, reverse=True)
    assert steps[-1] == 1


def test_without_new_messages_a_tick_uses_its_full_time_slice() -> None:
    opened = stepping()
    opened.send(*numbered(2000), properties="KEYS\x01k\x02")
    make_file(opened)

    assert indexed_by(opened) == 5 * INDEX_STEP


def test_after_a_search_ticks_index_although_messages_arrive() -> None:
    opened = stepping()
    opened.send(*numbered(3000), properties="KEYS\x01k\x02")
    keep_busy(opened)
    make_file(opened)

    opened.store.hurry_index()
    keep_busy(opened)
    assert indexed_by(opened) == 10 * INDEX_STEP
    opened.clock.advance_ms(1000)
    keep_busy(opened)
    assert indexed_by(opened) == INDEX_STEP


@pytest.mark.parametrize("turn", [1, 10])
def test_a_full_backlog_is_reduced_by_turns_as_fast_as_they_write(turn: int) -> None:
    without = OpenStore.small(log_file_bytes=1024 * 1024, index_entries=100_000, index_enabled=False)
    without.send(*numbered(1000), properties="KEYS\x01k\x02")
    opened = without.reopen(index_enabled=True, index_backlog_bytes=100_000)
    record_bytes = opened.store.end // 1000
    opened.send(properties="KEYS\x01k\x02")
    opened.run_workers("queues")  # make the file
    backlogs = [opened.store.index_backlog_bytes]

    while backlogs[-1] > 100_000:
        opened.send(*numbered(turn), properties="KEYS\x01k\x02")
        backlogs.append(opened.store.index_backlog_bytes)

    assert {before - after for before, after in pairwise(backlogs)} == {turn * record_bytes}


def test_without_an_index_nothing_is_indexed() -> None:
    opened = OpenStore.small(index_enabled=False)
    opened.send(properties="KEYS\x01k\x02")

    opened.settle()

    assert opened.store.find_by_key("T", "k", 1) == []
    assert opened.names("index") == []


def test_without_an_index_no_backlog_exists(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = OpenStore.small(index_enabled=False, index_backlog_bytes=0)
    monkeypatch.setattr(opened.store._upkeep, "_guarded", None)

    opened.send(*numbered(20))

    assert opened.bodies() == numbered(20)


# the resume point


def resume_point(opened: OpenStore) -> ResumePoint | None:
    return ResumeFile(opened.disk, ROOT).load()


def test_the_resume_point_of_a_running_store_covers_only_safe_data() -> None:
    opened = OpenStore.small(resume_interval_ms=1000)
    opened.send(*numbered(3))
    opened.send(topic="U")

    opened.settle(25)
    opened.send()

    assert resume_point(opened) == ResumePoint(clean=False, queues={("T", 0): (0, 3), ("U", 0): (0, 1)})


def test_the_resume_point_waits_for_the_log() -> None:
    opened = OpenStore.small(resume_interval_ms=1000, flush_interval_ms=10**9, flush_thorough_ms=10**9)
    opened.send()

    opened.settle(60)
    assert resume_point(opened) is None
    opened.store.when_synced(opened.store.end, lambda _: None)
    opened.settle(5)

    assert resume_point(opened) is not None


def test_the_resume_point_is_written_when_queues_were_added_only() -> None:
    opened = OpenStore.small(resume_interval_ms=1000)
    opened.send()
    opened.settle(25)
    since = opened.disk.position

    opened.send()
    opened.settle(60)
    assert not any("resume" in path for _, path in operations(opened, since))
    opened.send(queue_id=1)
    opened.settle(25)

    point = resume_point(opened)
    assert point is not None
    assert point.queues == {("T", 0): (0, 2), ("T", 1): (0, 1)}


def test_writing_the_resume_point_blocks_no_request() -> None:
    opened = OpenStore.small(resume_interval_ms=1000)
    opened.send()
    since = opened.disk.position

    for _ in range(30):
        opened.clock.advance_ms(1000)
        opened.store.tick()
        own = [kind for kind, _ in operations(opened, since) if kind.startswith("sync")]
        assert own == [] or own == ["sync_dir"], "but for the name of the new folder"
        opened.run_workers()
        since = opened.disk.position

    assert resume_point(opened) is not None


def test_a_deleted_topic_leaves_the_resume_point_before_its_files_are_deleted() -> None:
    opened = OpenStore.small(resume_interval_ms=1000)
    opened.send(*numbered(3))
    opened.send(topic="U")
    opened.settle(25)
    since = opened.disk.position

    opened.store.delete_topic("T")

    done = operations(opened, since)
    assert done.index(("sync_dir", "config")) < done.index(("unlink", f"consumequeue/T/0/{0:020d}"))
    point = resume_point(opened)
    assert point is not None
    assert point.queues == {("U", 0): (0, 1)}
    assert point.deleted == {"T": opened.store.end}


@pytest.mark.parametrize("stop_after", range(8))
def test_a_topic_deleted_during_the_write_of_the_resume_point_is_not_in_it(stop_after: int) -> None:
    opened = OpenStore.small(resume_interval_ms=1000)
    opened.send()
    opened.send(topic="U")
    steps = count()
    while next(steps) < 15 or (opened.workers["sync"].jobs and next(steps) < 15 + stop_after):
        opened.clock.advance_ms(1000)
        opened.store.tick()
        opened.workers["sync"].run(stop_after)
    opened.store.delete_topic("T")

    opened.settle()

    point = resume_point(opened)
    assert point is not None
    assert ("T", 0) not in point.queues
    assert "T" in point.deleted


def test_marks_of_deleted_topics_are_removed_with_their_messages() -> None:
    opened = OpenStore.small(retention_hours=1, disk_clean_ratio=0.0001)
    opened.disk.resize(1024 * 1024)
    opened.send(b"old")
    opened.store.delete_topic("T")
    opened.send(bytes(3900), bytes(3900), topic="U")
    opened.settle()
    opened.tick(3_600_000)

    opened.store.delete_topic("V")

    point = resume_point(opened)
    assert point is not None
    assert list(point.deleted) == ["V"]

"""Retention: log files with their queues and index are deleted, readers are not disturbed, and writes work again."""

import errno
from pathlib import Path
from typing import Final

import pytest
from tests.store.kit import ROOT
from tests.store.open_store import OpenStore, numbered
from tests.twins import BOTH, using

from pocketmq.errors import StoreFull
from pocketmq.store import upkeep
from pocketmq.store.reading import ReadStatus
from pocketmq.testing import FakeClock, FaultyFiles

HOUR_MS: Final = 3_600_000
CAPACITY: Final = 4 * 1024 * 1024


def filled(messages: int = 40, **changes: object) -> OpenStore:
    """A store with one message in each log file, all of it safe, on a disk that is almost empty."""
    clock = FakeClock()
    settings = {
        "retention_hours": 1,
        "disk_clean_ratio": 0.0001,
        "prepared_files": 2,
        "queue_file_entries": 5,
    } | changes
    opened = OpenStore.small(FaultyFiles(capacity=CAPACITY, clock=clock), clock, **settings)
    for number in range(messages):
        opened.send(b"%d:" % number + bytes(3000), properties=f"UNIQ_KEY\x01id{number}\x02")
        opened.run_workers()
    opened.settle()
    return opened


def fill_disk(opened: OpenStore, ratio: float) -> None:
    """Put something else on the disk, so that so much of it is in use."""
    path = Path("/ballast")
    if opened.disk.status(path) is not None:
        opened.disk.unlink(path)
    usage = opened.disk.usage(ROOT)
    with opened.disk.open(path, create=True) as ballast:
        ballast.allocate(int(usage.total * ratio) - (usage.total - usage.free))


def test_old_files_are_deleted_a_few_at_a_time_and_derived_files_follow() -> None:
    opened = filled()

    opened.tick(2 * HOUR_MS)

    store = opened.store
    assert opened.names("commitlog")[0] == f"{10 * 4096:020d}"
    assert store.min_offset("T", 0) == 10
    assert store.max_offset("T", 0) == 40
    assert opened.names("consumequeue/T/0")[0] == f"{10 * 20:020d}"
    assert store.read("T", 0, 9, 1).status is ReadStatus.OFFSET_TOO_SMALL
    assert store.read("T", 0, 10, 1).count == 1
    assert store.find_by_key("T", "id9", 1, unique=True) == []
    assert len(store.find_by_key("T", "id10", 1, unique=True)) == 1
    assert opened.bodies() == [b"%d:" % number + bytes(3000) for number in range(10, 40)]
    assert opened.crash("nothing").bodies() == opened.bodies()


def test_retention_frees_the_disk_although_messages_of_the_broker_cannot_be_written(
    caplog: pytest.LogCaptureFixture,
) -> None:
    opened = filled(slow_write_ms=0)
    fault = opened.disk.fail("write", errno.ENOSPC, "*/commitlog/*", times=None)
    opened.send(b"delayed before")  # as good as stored: it is tried again until the disk takes it
    opened.run_workers()

    opened.tick(2 * HOUR_MS)  # tries again
    for _ in range(5):
        opened.tick(10)

    assert opened.store.min_offset("T", 0) == 10
    fault.heal()
    opened.settle(2)
    assert opened.bodies()[-1] == b"delayed before"
    assert caplog.text.count("commit log write of the broker's own messages failed; retrying") == 1


def test_the_newest_file_is_kept_at_any_age() -> None:
    opened = filled(messages=5)

    for _ in range(3):
        opened.tick(2 * HOUR_MS)

    assert opened.store.min_offset("T", 0) == 4
    assert len(opened.bodies()) == 1


def test_index_files_are_deleted_with_their_last_message() -> None:
    opened = filled(index_entries=10)
    before = opened.names("index")

    opened.tick(2 * HOUR_MS)

    assert opened.names("index") == before[1:]


def test_young_files_are_kept_until_the_disk_is_almost_full() -> None:
    opened = filled(retention_hours=1000)

    fill_disk(opened, 0.80)
    opened.tick(10_000)
    assert opened.store.min_offset("T", 0) == 0
    fill_disk(opened, 0.87)
    opened.tick(10_000)

    assert opened.store.min_offset("T", 0) > 0
    opened.send(b"accepted")


def test_above_the_highest_ratio_writes_are_refused_until_retention_made_space() -> None:
    opened = filled(retention_hours=1000)
    fill_disk(opened, 0.91)

    opened.tick(10_000)
    with pytest.raises(StoreFull):
        opened.send(b"refused")
    for _ in range(10):
        opened.tick(10_000)

    opened.send(b"accepted again")


def test_a_reader_keeps_its_data_when_the_file_is_deleted() -> None:
    opened = filled()
    result = opened.store.read("T", 0, 0, 1)

    opened.tick(2 * HOUR_MS)

    assert opened.store.min_offset("T", 0) == 10
    assert b"0:" in result.body()


def test_unsynced_files_are_not_deleted() -> None:
    opened = filled(messages=3, flush_thorough_ms=10**12, flush_interval_ms=10**12)
    opened.store._parts.log.synced = 0

    opened.tick(2 * HOUR_MS)

    assert opened.store.min_offset("T", 0) == 0


def test_many_queues_are_trimmed_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep, "FOLLOW_STEP", 2)
    opened = OpenStore.small(retention_hours=1, disk_clean_ratio=0.0001)
    opened.disk.resize(CAPACITY)
    for queue_id in range(5):
        opened.send(b"old", queue_id=queue_id)
    opened.send(bytes(3900))
    opened.settle()

    def minima() -> list[int]:
        return [queue.min_offset for queue in opened.store._queues]

    opened.tick(2 * HOUR_MS)
    assert sum(minima()) == 2
    opened.tick()
    opened.tick()
    assert minima() == [1] * 5


@pytest.mark.parametrize("twin", BOTH)
def test_a_reader_of_an_untrimmed_queue_skips_only_deleted_messages(monkeypatch: pytest.MonkeyPatch, twin: str) -> None:
    monkeypatch.setattr(upkeep, "FOLLOW_STEP", 0)
    with using(twin):
        opened = filled()

    opened.tick(2 * HOUR_MS)

    found = opened.store.read("T", 0, 8, 32)
    assert (found.status, found.next_offset, found.min_offset) == (ReadStatus.OFFSET_TOO_SMALL, 10, 10)
    assert opened.store.min_offset("T", 0) == 10
    monkeypatch.setattr(upkeep, "FOLLOW_STEP", 100)
    opened.tick()
    assert opened.names("consumequeue/T/0")[0] == f"{10 * 20:020d}", "its files go all the same"


def test_closing_trims_all_queues(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep, "FOLLOW_STEP", 1)
    opened = OpenStore.small(retention_hours=1, disk_clean_ratio=0.0001)
    opened.disk.resize(CAPACITY)
    for queue_id in range(5):
        opened.send(b"old", queue_id=queue_id)
    opened.send(bytes(3900))
    opened.settle()
    opened.tick(2 * HOUR_MS)

    again = opened.reopen()

    assert again.report.clean
    assert [again.store.min_offset("T", queue_id) for queue_id in range(5)] == [1] * 5


def test_a_recreated_topic_is_not_affected_by_trimming_the_old_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep, "FOLLOW_STEP", 0)
    opened = filled()
    opened.tick(2 * HOUR_MS)
    assert opened.store._upkeep._followers
    opened.store.delete_topic("T")
    for _ in range(12):
        opened.send(b"new")
    opened.settle()
    monkeypatch.setattr(upkeep, "FOLLOW_STEP", 100)

    opened.tick()

    assert opened.bodies() == [b"new"] * 12


def test_with_all_messages_deleted_offsets_continue() -> None:
    opened = OpenStore.small(retention_hours=1, disk_clean_ratio=0.0001)
    opened.disk.resize(CAPACITY)
    opened.send(*numbered(7), topic="Quiet")
    for _ in range(3):
        opened.send(bytes(3900), topic="Busy")
        opened.run_workers()
    opened.settle()

    opened.tick(2 * HOUR_MS)

    assert (opened.store.min_offset("Quiet", 0), opened.store.max_offset("Quiet", 0)) == (7, 7)
    for again in (opened.crash(), opened.crash("nothing"), opened.reopen()):
        assert again.store.max_offset("Quiet", 0) == 7
        assert again.stage(topic="Quiet")[0] == 7


@pytest.mark.parametrize("place", ["*/consumequeue/*", "*/commitlog/*", "*/index/*"])
def test_a_failed_deletion_is_retried(place: str) -> None:
    opened = filled()
    with opened.disk.fail("unlink", errno.EIO, place, times=None):
        opened.tick(2 * HOUR_MS)
        opened.send(b"more")
    opened.settle()

    assert opened.store.min_offset("T", 0) >= 10
    assert opened.bodies()[-1] == b"more"
    assert opened.crash("nothing").bodies() == opened.bodies()

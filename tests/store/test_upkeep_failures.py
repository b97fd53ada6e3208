"""Upkeep on disks that refuse, and at a stop."""

import errno
import logging
from pathlib import Path
from random import Random

import pytest
from tests.store.kit import SteppingClock
from tests.store.open_store import OpenStore, numbered

from pocketmq.errors import StoreError
from pocketmq.files import FileStatus
from pocketmq.testing.disk.faults import Call

# disks that refuse


@pytest.mark.parametrize("call", ["open", "create", "read", "write", "truncate", "make_dir", "unlink", "replace"])
def test_a_tick_never_raises_for_any_disk_error(call: Call) -> None:
    opened = OpenStore.small(resume_interval_ms=500, queue_thorough_ms=500, checkpoint_interval_ms=100)
    opened.send(*numbered(3), properties="KEYS\x01k\x02")

    for nth in range(1, 30):
        with opened.disk.fail(call, errno.EIO, nth=nth, times=2):
            opened.tick(700)
            try:
                opened.send(topic=f"T{nth}", properties="KEYS\x01k\x02")
            except StoreError:
                opened.store.abandon_turn()
    opened.settle()

    opened.send(b"well again")
    again = opened.crash("everything")
    assert again.bodies()[:3] == numbered(3)
    assert again.bodies()[-1] == b"well again"


def test_failures_and_their_ends_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    opened = OpenStore.small()
    opened.send()
    with (
        caplog.at_level(logging.WARNING, "pocketmq.store"),
        opened.disk.fail("write", path="*/consumequeue/*", times=None),
    ):
        opened.settle(20)
        assert caplog.text.count("queues: disk error, retrying") == 1
    with caplog.at_level(logging.WARNING, "pocketmq.store"):
        opened.settle(20)

    assert caplog.text.count("queues: the disk accepts writes again") == 1


def test_a_working_part_does_not_hide_a_failing_one() -> None:
    opened = OpenStore.small()
    opened.send()
    opened.disk.fail("write", errno.ENOSPC, "*/consumequeue/*", times=None)

    opened.settle(20)

    assert opened.store._upkeep.derived_failure is not None


def test_writable_queues_do_not_hide_one_that_cannot_be_written() -> None:
    clock = SteppingClock()
    opened = OpenStore.small(clock=clock, queue_least_pages=0)
    opened.disk.fail("write", errno.ENOSPC, "*/T/19/*", times=None)
    for queue_id in range(20):
        opened.stage(queue_id=queue_id)
    opened.disk.fail("write", errno.ENOSPC, "*/T/0/*")
    opened.store.end_turn()
    opened.tick()
    clock.slow = True

    for _ in range(20):
        assert opened.store._upkeep.derived_failure is not None
        opened.tick()
    opened.disk.heal()
    for _ in range(20):
        opened.tick()

    assert opened.store._upkeep.derived_failure is None


def test_only_files_that_may_be_deleted_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = OpenStore.small(prepared_files=40, max_deletes_per_run=2)
    opened.send(*numbered(30, size=3900))
    opened.settle(10)
    looked: list[str] = []
    status = opened.disk.status

    def counted(path: Path) -> FileStatus | None:
        looked.append(str(path))
        return status(path)

    monkeypatch.setattr(opened.disk, "status", counted)
    opened.tick(10_000)

    assert sum("commitlog" in path for path in looked) == 3


# stopping


def test_a_clean_stop_syncs_everything() -> None:
    opened = OpenStore.small()
    opened.send(*numbered(25), properties="KEYS\x01k\x02")
    opened.store.close()

    again = OpenStore(opened.settings, opened.clock, opened.disk.crash(Random(0), survives="nothing"))

    assert again.report.clean
    assert again.bodies() == numbered(25)
    assert len(again.store.find_by_key("T", "k", 64)) == 25


def test_a_topic_deleted_before_the_stop_does_not_block_the_stop() -> None:
    opened = OpenStore.small(queue_least_pages=0)
    opened.send()
    opened.store.delete_topic("T")

    assert opened.reopen().report.clean

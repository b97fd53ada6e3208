"""Timed messages in files that are due for retention: after a suspend, a long stop, or with a full disk."""

import logging

import pytest
from tests.broker.life import Life, life_with
from tests.store.kit import ROOT

from pocketmq.model.names import TIMER_TOPIC
from pocketmq.testing.fake_clock import START_MS

HOUR_MS = 3_600_000
FIRST_FILE = f"{0:020d}"


def sleepy_life(**store: object) -> Life:
    """Retention deletes what is older than three hours, at any hour; the first log file has a message that is due
    after nine.
    """
    life = life_with(None, None, retention_hours=3, disk_clean_ratio=1e-9, log_file_bytes=4096, **store)
    life.send(b"waits", TIMER_DELAY_SEC=9 * 3600)
    for number in range(4):
        life.send(b"%d" % number + bytes(3900), "Other")
    life.run()
    life.sync()
    life.save()
    return life


def first_file(life: Life) -> str:
    return life.opened.names("commitlog")[0]


def wait_until(life: Life, hours: int) -> None:
    """Let time pass, as for a running broker."""
    while life.clock.now_ms() < START_MS + hours * HOUR_MS + 1000:
        life.pass_ms(HOUR_MS // 2)
        life.sync()


@pytest.mark.parametrize("sleep_hours", [4, 30])
def test_after_a_suspend_longer_than_retention_timed_messages_are_delivered(sleep_hours: int) -> None:
    life = sleepy_life()

    life.opened.tick(sleep_hours * HOUR_MS)
    assert first_file(life) == FIRST_FILE
    life.run()
    life.sync()
    life.opened.tick(20_000)

    assert first_file(life) > FIRST_FILE
    wait_until(life, 9)
    assert life.bodies() == [b"waits"]
    assert life.store.facts.dropped_needed_files == 0


def test_after_a_stop_longer_than_retention_timed_messages_are_delivered() -> None:
    life = sleepy_life()
    life.clock.advance_ms(5 * HOUR_MS)

    life = life.restart()
    life.opened.tick(20_000)
    assert first_file(life) == FIRST_FILE
    wait_until(life, 9)

    assert life.bodies() == [b"waits"]
    assert first_file(life) > FIRST_FILE


def test_a_file_is_kept_until_the_copies_of_its_messages_are_synced() -> None:
    life = sleepy_life(flush_interval_ms=10**9, flush_thorough_ms=10**9)
    life.opened.tick(5 * HOUR_MS)
    life.run()
    assert life.timers.rolled == 1
    life.opened.tick(20_000)
    assert first_file(life) == FIRST_FILE

    life = life.crash("nothing")
    wait_until(life, 9)

    assert life.bodies() == [b"waits"]


def test_files_without_waiting_messages_are_deleted_before_later_kept_files() -> None:
    life = life_with(retention_hours=3, disk_clean_ratio=1e-9)
    life.send(bytes(3900), "Other")
    life.send(bytes(3900), "Other")
    life.send(b"waits", TIMER_DELAY_SEC=9 * 3600)
    life.send(bytes(3900), "Other")
    life.run()
    life.sync()

    life.opened.tick(5 * HOUR_MS)

    assert first_file(life) == f"{2 * 4096:020d}"
    assert life.store.min_offset(TIMER_TOPIC, 0) == 0


def test_without_timed_messages_no_file_is_kept() -> None:
    life = sleepy_life()
    wait_until(life, 9)
    for _ in range(4):
        life.send(bytes(3900), "Other")
    life.sync()

    life.opened.tick(4 * HOUR_MS)

    assert len(life.opened.disk.list(ROOT / "consumequeue" / TIMER_TOPIC / "0")) == 1
    assert life.store.facts.log_start > life.store.facts.log_end - 3 * 4096


def test_a_full_disk_deletes_kept_files_and_logs_it(caplog: pytest.LogCaptureFixture) -> None:
    life = sleepy_life(disk_force_ratio=1e-9, disk_full_ratio=1.0)

    with caplog.at_level(logging.WARNING, "pocketmq.store"):
        life.opened.tick(20_000)

    assert first_file(life) > FIRST_FILE
    assert life.store.facts.dropped_needed_files >= 1
    assert "had undelivered delayed messages: the disk is" in caplog.text

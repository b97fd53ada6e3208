"""Delayed messages that a start must keep: with files due for retention, a removed level, or a deleted log."""

from tests.broker.life import Life, life_with

from pocketmq.model.delay import DelayLevels
from pocketmq.protocol.bodies.topics import DelayOffsets

HOUR_MS = 3_600_000


def test_after_a_suspend_longer_than_retention_delayed_messages_are_delivered() -> None:
    life = life_with(retention_hours=3, disk_clean_ratio=1e-9)
    life.send(b"delayed", DELAY=18)
    for _ in range(4):
        life.send(bytes(3900), "Other")
    life.sync()

    life.opened.tick(5 * HOUR_MS)
    assert life.opened.names("commitlog")[0] == f"{0:020d}"
    life.run()
    life.sync()
    life.opened.tick(20_000)

    assert life.bodies() == [b"delayed"]
    assert life.opened.names("commitlog")[0] > f"{0:020d}"


def test_a_file_is_kept_until_the_deliveries_from_it_are_synced() -> None:
    life = life_with(retention_hours=3, disk_clean_ratio=1e-9, flush_interval_ms=10**9, flush_thorough_ms=10**9)
    life.send(b"delayed", DELAY=18)
    for _ in range(4):
        life.send(bytes(3900), "Other")
    life.sync()
    life.opened.tick(5 * HOUR_MS)
    life.run()
    assert life.bodies() == [b"delayed"]
    life.opened.tick(20_000)

    life = life.crash("nothing")
    life.run()

    assert life.bodies() == [b"delayed"]


def test_an_undelivered_level_that_is_removed_from_the_table_is_still_emptied() -> None:
    life = Life()
    life.send(b"delayed", DELAY=5)
    life.sync()
    life.save()
    assert life.saved == {}

    life = Life(life.opened.reopen(delay_levels=DelayLevels("1s 5s")), life.saved)
    life.pass_ms(60_000)

    assert life.bodies() == [b"delayed"]


def test_progress_of_a_deleted_log_is_removed_permanently() -> None:
    life = Life(saved={"delayOffset.json": DelayOffsets(offset_table={1: 1_000, 18: 1_000}).encode()})
    assert life.delays.is_changed
    life.save()
    life.send(b"soon", DELAY=1)
    life.send(b"late", DELAY=18)

    life = life.crash()
    life.pass_ms(2 * HOUR_MS)

    assert life.bodies() == [b"soon", b"late"]

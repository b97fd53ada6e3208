"""Delayed messages whose files retention would take, on a machine that slept."""

from tests.broker.life import life_with

HOUR_MS = 3_600_000


def test_a_machine_that_slept_for_longer_than_retention_delivers_what_was_delayed() -> None:
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


def test_a_file_is_held_until_what_was_delivered_from_it_is_safe() -> None:
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

"""Which times of queues the checkpoint may contain, and when."""

from math import inf

from pocketmq.store.recovery.resume_upkeep import QueueTimes


def test_a_time_is_reported_once_when_its_messages_and_keys_are_safe() -> None:
    times = QueueTimes()
    times.synced(log_offset=1000, store_ms=50)

    told = [times.take_covered(*keys) for keys in [(999, inf), (1000, 49), (1000, 50), (2000, inf)]]

    assert told == [None, None, 50, None]


def test_the_newest_reliable_time_is_used() -> None:
    times = QueueTimes()
    times.synced(1000, 50)
    times.synced(2000, 60)

    assert times.take_covered(2000, 60) == 60


def test_the_oldest_time_does_not_wait_for_later_ones() -> None:
    times = QueueTimes()
    for second in range(1, 100):
        times.synced(second * 1000, second * 10)

    assert times.take_covered(5000, 70) == 10
    assert times.take_covered(99_000, 990) == 990

"""Flow limits: one below, at, and one above each."""

from typing import Any

import pytest
from tests.client.messages import process_queue, run_of, stored

from pocketmq.client.consumer.flow_limits import PAUSE_MS, PauseCause, PauseCounts, QueueLimits, pause_cause
from pocketmq.client.consumer.process_queue import ProcessQueue
from pocketmq.client.consumer.settings import LitePullSettings, PushSettings

NOW = 1000.0
MIB = 1024 * 1024


def limits(owned: int = 1, **options: Any) -> QueueLimits:
    return PushSettings(group="G", **options).limits_of_queue(owned)


def holding(count: int, *, is_orderly: bool = False) -> ProcessQueue:
    queue = process_queue(NOW, is_orderly=is_orderly)
    queue.put(run_of(0, count))
    return queue


@pytest.mark.parametrize(("count", "cause"), [(999, None), (1000, None), (1001, PauseCause.MESSAGES)])
def test_a_queue_pauses_above_a_thousand_messages(count: int, cause: PauseCause | None) -> None:
    assert pause_cause(limits(4), holding(count), NOW) == cause


@pytest.mark.parametrize(("size", "cause"), [(99, None), (100, None), (101, PauseCause.BYTES)])
def test_a_queue_pauses_above_its_bytes(size: int, cause: PauseCause | None) -> None:
    queue = process_queue(NOW)
    queue.put([stored(0, bytes(size))])

    assert pause_cause(limits(1, max_queue_bytes=100), queue, NOW) == cause


@pytest.mark.parametrize(("last", "cause"), [(1999, None), (2000, None), (2001, PauseCause.SPAN)])
def test_a_queue_pauses_when_its_span_is_too_long(last: int, cause: PauseCause | None) -> None:
    queue = process_queue(NOW)
    queue.put([stored(0), stored(last)])

    assert pause_cause(limits(), queue, NOW) == cause


def test_an_ordered_queue_is_limited_by_its_lock_and_not_by_its_span() -> None:
    queue = process_queue(NOW, is_orderly=True)
    queue.put([stored(0), stored(9000)])
    ours = limits()

    assert pause_cause(ours, queue, NOW) is PauseCause.UNLOCKED

    queue.lock(NOW)
    assert pause_cause(ours, queue, NOW) is None
    assert pause_cause(ours, queue, NOW + 31) is PauseCause.UNLOCKED


@pytest.mark.parametrize(("held", "cause"), [(9999, None), (10_000, None), (10_001, PauseCause.ALL_MESSAGES)])
def test_a_lite_consumer_also_counts_the_messages_of_all_queues(held: int, cause: PauseCause | None) -> None:
    ours = LitePullSettings(group="G").limits_of_queue(1)

    assert pause_cause(ours, holding(1), NOW, all_messages=held) == cause
    assert pause_cause(limits(), holding(1), NOW, all_messages=held) is None


def test_a_paused_consumer_pulls_nothing() -> None:
    assert pause_cause(limits(), holding(2000), NOW, is_paused=True) is PauseCause.PAUSED


@pytest.mark.parametrize(
    ("options", "owned", "expected"),
    [
        ({}, 4, QueueLimits(1000, 100 * MIB, 2000)),
        ({"max_topic_messages": 1000}, 4, QueueLimits(250, 100 * MIB, 2000)),
        ({"max_topic_messages": 1000}, 3, QueueLimits(333, 100 * MIB, 2000)),
        ({"max_topic_messages": 9000}, 2, QueueLimits(4500, 100 * MIB, 2000)),
        ({"max_topic_messages": 3}, 4, QueueLimits(1, 100 * MIB, 2000)),
        ({"max_topic_messages": 500}, 0, QueueLimits(1000, 100 * MIB, 2000)),
        ({"max_topic_bytes": 8 * MIB}, 4, QueueLimits(1000, 2 * MIB, 2000)),
        ({"max_span": 7}, 4, QueueLimits(1000, 100 * MIB, 7)),
    ],
)
def test_the_limit_of_a_topic_is_divided_among_the_owned_queues(
    options: dict[str, int], owned: int, expected: QueueLimits
) -> None:
    assert limits(owned, **options) == expected


def test_pauses_are_counted_by_their_cause() -> None:
    counts = PauseCounts()

    waits = [counts.count(cause) for cause in (PauseCause.SPAN, PauseCause.SPAN, PauseCause.PAUSED)]

    assert waits == [50, 50, 1000]
    assert counts[PauseCause.SPAN] == 2
    assert counts.snapshot() == dict.fromkeys(PauseCause, 0) | {PauseCause.SPAN: 2, PauseCause.PAUSED: 1}
    assert PAUSE_MS.keys() == set(PauseCause)

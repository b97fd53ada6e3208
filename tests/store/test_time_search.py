"""The offset of a queue at a time."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.store.kit import LOG_FILE_BYTES
from tests.store.queue_kit import Store

from pocketmq.codes import BoundaryType
from pocketmq.store.queues.consume_queue import ConsumeQueue
from pocketmq.store.reading import offset_at_time, store_ms_of

LOWER, UPPER = BoundaryType.LOWER, BoundaryType.UPPER


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def queue(store: Store) -> ConsumeQueue:
    return store.queues.get("T", 0)


def fill(store: Store, queue: ConsumeQueue, *times_ms: int, size: int = 100) -> None:
    for store_ms in times_ms:
        store.put(queue, size, store_ms=store_ms)
    store.end_turn()


def both(store: Store, queue: ConsumeQueue, when_ms: int) -> tuple[int, int]:
    """The lower and the upper bound."""
    return (offset_at_time(queue, store.sound, when_ms, LOWER), offset_at_time(queue, store.sound, when_ms, UPPER))


@pytest.mark.parametrize(
    ("when_ms", "lower", "upper"),
    [
        (0, 0, 0),
        (99, 0, 0),
        (100, 0, 0),
        (101, 1, 0),
        (199, 1, 0),
        (200, 1, 3),
        (201, 4, 3),
        (299, 4, 3),
        (300, 4, 5),
        (301, 6, 5),
        (1 << 50, 6, 5),
    ],
)
def test_lower_is_the_first_at_or_after_and_upper_the_last_at_or_before(
    store: Store, queue: ConsumeQueue, when_ms: int, lower: int, upper: int
) -> None:
    fill(store, queue, 100, 200, 200, 200, 300, 300)

    assert both(store, queue, when_ms) == (lower, upper)


def test_the_default_boundary_is_lower(store: Store, queue: ConsumeQueue) -> None:
    fill(store, queue, 100, 200)

    assert offset_at_time(queue, store.sound, 150) == 1


@pytest.mark.parametrize("when_ms", [0, 99, 100, 101])
def test_an_empty_queue_returns_its_end(store: Store, queue: ConsumeQueue, when_ms: int) -> None:
    assert both(store, queue, when_ms) == (0, 0)

    queue.begin_anew(7)

    assert both(store, queue, when_ms) == (7, 7)


@pytest.mark.parametrize(("when_ms", "found"), [(99, (0, 0)), (100, (0, 24)), (101, (25, 24))])
def test_all_messages_may_have_the_same_time(
    store: Store, queue: ConsumeQueue, when_ms: int, found: tuple[int, int]
) -> None:
    fill(store, queue, *[100] * 12)
    store.queues.flush()
    fill(store, queue, *[100] * 13)

    assert both(store, queue, when_ms) == found


def test_a_queue_that_starts_late_returns_its_first_offset(store: Store, queue: ConsumeQueue) -> None:
    queue.begin_anew(7)
    fill(store, queue, 100, 200)
    store.queues.flush()

    assert [both(store, queue, when_ms) for when_ms in (50, 100, 150, 200, 250)] == [
        (7, 7),
        (7, 7),
        (8, 7),
        (8, 8),
        (9, 8),
    ]


def test_messages_of_deleted_log_files_are_ignored(store: Store, queue: ConsumeQueue) -> None:
    fill(store, queue, *range(100, 110), size=1000)
    store.drop_first_log_file()
    (first, *_) = [offset for offset in range(10) if store_ms_of(queue, store.sound, offset) is not None]
    assert (first, queue.min_offset) == (4, 0)

    assert offset_at_time(queue, store.sound, 0) == offset_at_time(queue, store.sound, 101) == 4
    assert offset_at_time(queue, store.sound, 105) == 5
    queue.raise_min(store.log.start)
    assert [both(store, queue, when_ms) for when_ms in (0, 101, 104, 105, 999)] == [
        (4, 4),
        (4, 4),
        (4, 4),
        (5, 5),
        (10, 9),
    ]


def test_a_queue_with_only_deleted_messages_returns_its_end(store: Store, queue: ConsumeQueue) -> None:
    fill(store, queue, 100, 200, 300, size=1000)
    fill(store, store.queues.get("Other", 0), 400, size=LOG_FILE_BYTES - 8)
    store.drop_first_log_file()
    queue.raise_min(store.log.start)

    assert queue.min_offset == 3
    assert both(store, queue, 0) == both(store, queue, 150) == both(store, queue, 999) == (3, 3)


def test_an_entry_that_points_beyond_the_log_has_no_time(store: Store, queue: ConsumeQueue) -> None:
    fill(store, queue, 100, 200)
    queue.append(store.log.written, 100, 0)

    assert store_ms_of(queue, store.sound, 2) is None
    assert both(store, queue, 150) == (1, 0)


def test_a_gap_does_not_mislead_the_search(store: Store, queue: ConsumeQueue) -> None:
    fill(store, queue, 100, 200)
    assert queue.skip_to(12, store.log.end)
    fill(store, queue, 300, 400)

    assert [offset_at_time(queue, store.sound, when_ms) for when_ms in (100, 200, 400, 401)] == [0, 1, 13, 14]
    assert 2 <= offset_at_time(queue, store.sound, 300) <= 12


def test_the_store_time_of_a_message_is_found(store: Store, queue: ConsumeQueue) -> None:
    queue.begin_anew(1)
    fill(store, queue, 100)
    assert queue.skip_to(3, store.log.end)
    fill(store, queue, 200)

    assert [store_ms_of(queue, store.sound, offset) for offset in range(-1, 5)] == [None, None, 100, None, 200, None]


@given(
    steps=st.lists(st.integers(0, 2), max_size=40),
    flushed=st.integers(0, 40),
    begin=st.integers(0, 12),
    expired=st.integers(0, 5),
)
def test_bisection_finds_the_same_as_a_linear_search(steps: list[int], flushed: int, begin: int, expired: int) -> None:
    store = Store()
    queue = store.queues.get("T", 0)
    queue.begin_anew(begin)
    times = [1000 + sum(steps[: number + 1]) for number in range(len(steps))]
    for number, store_ms in enumerate(times):
        fill(store, queue, store_ms)
        if number == flushed:
            store.queues.flush()
    queue.min_offset = low = min(begin + expired, queue.max_offset)
    kept = dict(zip(range(low, queue.max_offset), times[low - begin :], strict=True))

    for when_ms in range(998, (times or [1000])[-1] + 3):
        later = [offset for offset, store_ms in kept.items() if store_ms >= when_ms]
        earlier = [offset for offset, store_ms in kept.items() if store_ms <= when_ms]
        assert both(store, queue, when_ms) == (
            later[0] if later else queue.max_offset,
            earlier[-1] if earlier else low,
        )

"""The ends of a queue: a late start, gaps, after a truncation, and of a deleted topic."""

import errno

import pytest
from tests.store.consume_queue_kit import Fixture
from tests.store.queue_kit import FILE_BYTES, FILE_ENTRIES, NOTHING_HERE, fill

EMPTY = (0, 0, 0)


@pytest.fixture
def box() -> Fixture:
    return Fixture()


# beginning later


def test_a_queue_that_starts_late_has_a_filled_head_in_its_first_file(box: Fixture) -> None:
    box.queue.begin_anew(23)
    entries = fill(box.queue, 9)

    box.queue.flush()

    assert (box.queue.min_offset, box.queue.max_offset) == (23, 32)
    assert box.files() == [f"{2 * FILE_BYTES:020d}", f"{3 * FILE_BYTES:020d}"]
    assert box.file(2) == [*[NOTHING_HERE] * 3, *entries[:7]]
    assert box.file(3) == [*entries[7:], *[EMPTY] * 8]


def test_a_queue_that_starts_with_a_file_needs_no_filled_head(box: Fixture) -> None:
    box.queue.begin_anew(20)
    entries = fill(box.queue, 2)

    box.queue.flush()

    assert box.file(2) == [*entries, *[EMPTY] * 8]


def test_the_head_is_filled_only_once(box: Fixture) -> None:
    box.queue.begin_anew(5)
    fill(box.queue, 1)
    box.queue.flush()
    before = box.disk.position

    fill(box.queue, 1)
    box.queue.flush()

    assert [operation.offset for operation in box.disk.operations[before:]] == [6 * 20]


@pytest.mark.parametrize("nth", [1, 2])
def test_a_head_that_could_not_be_filled_is_filled_later(box: Fixture, nth: int) -> None:
    box.queue.begin_anew(5)
    entries = fill(box.queue, 2)
    box.disk.fail("write", errno.ENOSPC, nth=nth)
    with pytest.raises(OSError, match="No space"):
        box.queue.flush()

    box.queue.flush()

    assert box.file(0) == [*[NOTHING_HERE] * 5, *entries, *[EMPTY] * 3]


def test_a_queue_with_deleted_files_continues_with_a_filled_head(box: Fixture) -> None:
    queue = box.reopened(7, 7)
    entries = fill(queue, 1)

    queue.flush()

    assert box.file(0) == [*[NOTHING_HERE] * 7, *entries, EMPTY, EMPTY]


def test_expired_entries_replace_a_filled_head(box: Fixture) -> None:
    entries = fill(box.queue, 7)
    box.queue.flush()
    box.queue.min_offset = 7

    entries += fill(box.queue, 1)
    box.queue.flush()

    assert box.file(0) == [*entries, EMPTY, EMPTY]


def test_a_restart_of_a_queue_drops_pending_entries(box: Fixture) -> None:
    fill(box.queue, 4)

    box.queue.begin_anew(100)

    assert (box.queue.min_offset, box.queue.max_offset, box.queue.next_offset) == (100, 100, 100)
    assert box.queue.flushed_offset == 100
    box.queue.begin_anew()
    assert (box.queue.min_offset, box.queue.max_offset, box.queue.next_offset) == (0, 0, 0)


# holes in the middle


def test_offsets_without_a_message_are_skipped(box: Fixture) -> None:
    entries = fill(box.queue, 3)

    assert box.queue.skip_to(5, 9000)
    later = fill(box.queue, 1, start=9000)

    hole = (0, 0x7FFFFFFF, 9000)
    assert list(box.queue.entries(0, 10)) == [*entries, hole, hole, *later]
    assert (box.queue.max_offset, box.queue.next_offset) == (6, 6)


def test_the_next_offset_needs_no_empty_entries(box: Fixture) -> None:
    fill(box.queue, 3)

    assert box.queue.skip_to(3, 9000)
    assert box.queue.skip_to(2, 9000)

    assert (box.queue.max_offset, box.queue.next_offset) == (3, 3)


@pytest.mark.parametrize(("missing", "believed"), [(FILE_ENTRIES, True), (FILE_ENTRIES + 1, False), (1 << 60, False)])
def test_at_most_a_file_of_entries_can_be_missing(box: Fixture, missing: int, believed: bool) -> None:
    fill(box.queue, 3)

    assert box.queue.skip_to(3 + missing, 9000) is believed

    assert box.queue.max_offset == box.queue.next_offset == (3 + missing if believed else 3)


# cutting


@pytest.mark.parametrize("flushed", [0, 4, 10, 17, 25])
@pytest.mark.parametrize("end", [0, 1, 4, 9, 10, 11, 17, 24, 25, 26])
def test_a_truncation_drops_the_entries_after_it(box: Fixture, flushed: int, end: int) -> None:
    entries = fill(box.queue, flushed)
    box.queue.flush()
    entries += fill(box.queue, 25 - flushed)

    box.queue.cut(end)

    kept = min(end, 25)
    assert (box.queue.max_offset, box.queue.next_offset) == (kept, kept)
    assert box.queue.flushed_offset == min(flushed, kept)
    assert list(box.queue.entries(0, 100)) == entries[:kept]
    entries[kept:] = fill(box.queue, 7, start=70_000)
    box.queue.flush()
    assert list(box.queue.entries(0, 100)) == entries


def test_a_truncation_before_the_first_message_leaves_an_empty_queue(box: Fixture) -> None:
    box.queue.begin_anew(15)
    fill(box.queue, 5)

    box.queue.cut(12)

    assert (box.queue.min_offset, box.queue.max_offset) == (12, 12)


# bounds


def test_the_first_entry_at_or_after_a_log_offset_is_found(box: Fixture) -> None:
    fill(box.queue, 17, start=1000, size=100)
    box.queue.flush()
    fill(box.queue, 8, start=2700, size=100)

    asked = {0: 0, 999: 0, 1000: 0, 1001: 1, 1899: 9, 1900: 9, 1901: 10, 2650: 17, 3400: 24, 3401: 25, 9999: 25}
    assert {at: box.queue.first_at_or_beyond(at) for at in asked} == asked


def test_a_filled_head_precedes_all_messages_in_a_search(box: Fixture) -> None:
    box.queue.begin_anew(7)
    fill(box.queue, 2, start=0)
    box.queue.flush()
    queue = box.reopened(0, 9)

    assert [queue.first_at_or_beyond(at) for at in (0, 1, 100, 101)] == [7, 8, 8, 9]


def test_zeros_after_the_last_entry_follow_all_messages_in_a_search(box: Fixture) -> None:
    fill(box.queue, 13)
    box.queue.flush()
    queue = box.reopened(0, 20)

    assert [queue.first_at_or_beyond(at) for at in (1000, 2200, 2201, 9999)] == [0, 12, 13, 13]


def test_an_empty_entry_counts_as_the_position_of_the_next_message(box: Fixture) -> None:
    fill(box.queue, 3, start=1000)
    assert box.queue.skip_to(12, 5000)
    fill(box.queue, 2, start=5000)

    assert [box.queue.first_at_or_beyond(at) for at in (1000, 1200, 1201, 5000, 5001, 5101)] == [0, 2, 3, 3, 13, 14]


def test_of_equal_log_offsets_the_first_entry_is_found(box: Fixture) -> None:
    for log_offset in (10, 20, 20, 20, 30):
        box.queue.append(log_offset, 5, 0)

    assert [box.queue.first_at_or_beyond(at) for at in (10, 11, 20, 21, 31)] == [0, 1, 1, 4, 5]


def test_an_empty_queue_has_no_message_at_or_after_an_offset(box: Fixture) -> None:
    assert box.queue.first_at_or_beyond(0) == 0
    box.queue.begin_anew(30)
    assert box.queue.first_at_or_beyond(0) == 30


def test_the_first_message_follows_the_start_of_the_log(box: Fixture) -> None:
    fill(box.queue, 13)
    box.queue.flush()
    fill(box.queue, 4, start=2300)

    for log_start, low in ((0, 0), (1000, 0), (1001, 1), (2300, 13), (2650, 17), (2300, 17)):
        box.queue.raise_min(log_start)
        assert box.queue.min_offset == low


# a deleted topic


def test_entries_of_a_deleted_topic_are_dropped(box: Fixture) -> None:
    fill(box.queue, 3)

    box.queue.abandon()
    fill(box.queue, 3)
    box.queue.flush()

    assert box.files() == []
    assert not box.queue.pending

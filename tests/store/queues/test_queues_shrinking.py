"""Queues that lose entries: truncated, trimmed after the log, deleted."""

from random import Random

import pytest
from tests.store.kit import ROOT
from tests.store.queue_kit import (
    FILE_BYTES,
    FILE_ENTRIES,
    bounds,
    entries_of,
    fill,
    filled,
    loaded,
    put_file,
    queues_on,
)

from pocketmq.store.queues.queues import Queues
from pocketmq.testing import FaultyFiles

FOLDER = ROOT / "consumequeue"


# cutting


@pytest.mark.parametrize("end", [0, 1, 9, 10, 11, 20, 24, 25])
def test_only_stale_entries_and_later_files_are_removed(disk: FaultyFiles, queues: Queues, end: int) -> None:
    queue = filled(queues, "T", 0, 35)
    entries = list(queue.entries(0, 100))
    other = filled(queues, "T", 1, 35)
    queue.cut(end)

    changed = queues.zero_behind(queue)

    last = max(0, (end - 1) // FILE_ENTRIES)
    assert disk.list(queue.folder) == [f"{number * FILE_BYTES:020d}" for number in range(last + 1)]
    on_disk = [entry for number in range(last + 1) for entry in entries_of(disk, queue, number)]
    assert on_disk == entries[:end] + [(0, 0, 0)] * (len(on_disk) - end)
    assert set(changed) == {
        queue.file_of(number * FILE_ENTRIES) for number in range(4) if (number + 1) * FILE_ENTRIES > end
    }
    assert len(list(other.entries(0, 100))) == 35
    assert queues.zero_behind(queue) == []
    assert bounds(loaded(disk)) == {("T", 0): (0, end), ("T", 1): (0, 35)}


def test_truncated_entries_do_not_return_after_a_power_loss(disk: FaultyFiles, queues: Queues) -> None:
    queue = filled(queues, "T", 0, 35)
    for path in queue.folder, *queue.folder.parents:
        disk.sync_dir(path)
    for name in disk.list(queue.folder):
        with disk.open(queue.folder / name) as file:
            file.sync()
    queue.cut(12)

    queues.zero_behind(queue)

    assert bounds(loaded(disk.crash(Random(0), survives="nothing"))) == {("T", 0): (0, 12)}


def test_pending_entries_survive_a_trim(disk: FaultyFiles, queues: Queues) -> None:
    queue = filled(queues, "T", 0, 5)
    entries = list(queue.entries(0, 5)) + fill(queue, 20)

    assert queues.zero_behind(queue) == []

    queue.flush()
    assert list(queue.entries(0, 100)) == entries


def test_the_first_empty_file_is_kept_because_its_name_is_the_next_offset(disk: FaultyFiles, queues: Queues) -> None:
    queue = queues.get("T", 0)
    queue.begin_anew(30)
    filled(queues, "T", 0, 15)
    queue.cut(30)

    queues.zero_behind(queue)

    assert disk.list(queue.folder) == [f"{3 * FILE_BYTES:020d}"]
    assert bounds(loaded(disk)) == {("T", 0): (30, 30)}


# following the log


def test_files_before_the_first_message_are_removed_after_retention(disk: FaultyFiles, queues: Queues) -> None:
    queue = filled(queues, "T", 0, 45)
    log_offsets = [entry[0] for entry in queue.entries(0, 45)]

    assert queues.follow(queue, log_offsets[0]) == 0
    assert queues.follow(queue, log_offsets[9] + 1) == 1
    assert queue.min_offset == 10
    assert queues.follow(queue, log_offsets[9] + 1) == 0
    assert queues.follow(queue, log_offsets[39]) == 2

    assert queue.min_offset == 39
    assert disk.list(queue.folder) == [f"{number * FILE_BYTES:020d}" for number in (3, 4)]
    assert [entry[0] for entry in queue.entries(39, 10)] == log_offsets[39:]


@pytest.mark.parametrize(("count", "newest"), [(15, 1), (20, 1), (21, 2)])
def test_the_newest_file_is_kept_when_all_messages_are_deleted(
    disk: FaultyFiles, queues: Queues, count: int, newest: int
) -> None:
    queue = filled(queues, "T", 0, count)

    queues.follow(queue, 10**9)

    assert (queue.min_offset, queue.max_offset) == (count, count)
    assert disk.list(queue.folder) == [f"{newest * FILE_BYTES:020d}"]
    assert loaded(disk).get("T", 0).max_offset == count


def test_a_queue_is_trimmed_by_positions_not_by_sizes(queues: Queues) -> None:
    queue = queues.get("T", 0)
    fill(queue, 3, start=0, size=100)

    queues.follow(queue, 50)

    assert queue.min_offset == 1


def test_a_file_is_kept_until_later_entries_are_in_a_file(disk: FaultyFiles, queues: Queues) -> None:
    queue = filled(queues, "T", 0, 10)
    fill(queue, 5)

    queues.follow(queue, 10**9)

    assert queue.min_offset == 15
    assert loaded(disk).get("T", 0).max_offset == 10


def test_trimming_a_queue_again_does_not_list_its_files(
    disk: FaultyFiles, queues: Queues, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = filled(queues, "T", 0, 5)
    monkeypatch.setattr(disk, "list", None)

    assert queues.follow(queue, 10**9) == 0
    assert queues.follow(queue, 10**9) == 0


def test_removed_names_are_reported_to_be_synced(disk: FaultyFiles, queues: Queues) -> None:
    queue = filled(queues, "T", 0, 25)
    queues.take_new_folders()

    queues.follow(queue, 10**9)

    assert queue.folder in queues.take_new_folders()


# deleting


def test_deleting_a_topic_removes_only_its_queues(disk: FaultyFiles, queues: Queues) -> None:
    for queue_id in range(3):
        filled(queues, "Gone", queue_id, 25)
    kept = filled(queues, "Gone2", 0, 25)
    fill(queues.get("Gone", 1), 3)
    queues.mark_dirty(queues.get("Gone", 1))

    queues.delete_topic("Gone")

    assert [queue.key for queue in queues] == [("Gone2", 0)]
    assert disk.list(FOLDER) == ["Gone2"]
    assert queues.dirty_count == 0
    assert len(list(kept.entries(0, 100))) == 25
    queues.delete_topic("Never")


def test_a_deleted_topic_restarts_at_zero_during_any_operation(disk: FaultyFiles, queues: Queues) -> None:
    old = filled(queues, "T", 0, 25)
    queues.delete_topic("T")
    fill(old, 500)

    queues.mark_dirty(old)
    queues.entered({old})
    queues.flush()
    assert disk.list(FOLDER) == []

    new = filled(queues, "T", 0, 3)
    assert new is not old
    assert bounds(loaded(disk)) == {("T", 0): (0, 3)}


def test_wiping_removes_all_queues_and_no_foreign_files(disk: FaultyFiles, queues: Queues) -> None:
    filled(queues, "A", 0, 25)
    filled(queues, "B", 7, 5)
    notes = put_file(disk, FOLDER / "B" / "7" / "notes")

    again = queues_on(disk)
    again.wipe()

    assert len(again) == 0
    assert disk.list(FOLDER) == ["B"]
    assert disk.list(FOLDER / "B" / "7") == ["notes"]
    assert again.foreign == [notes]


def test_a_queue_with_removed_files_can_be_created_again(disk: FaultyFiles, queues: Queues) -> None:
    queue = filled(queues, "T", 0, 25)

    queues.remove_files(queue)
    queue.begin_anew(12)
    filled(queues, "T", 0, 1)

    assert bounds(loaded(disk)) == {("T", 0): (12, 13)}


def test_dropping_all_queues_keeps_their_files(disk: FaultyFiles, queues: Queues) -> None:
    queue = filled(queues, "T", 0, 25)
    queues.mark_dirty(queue)

    queues.forget_all()

    assert (len(queues), queues.dirty_count) == (0, 0)
    queues.load()
    assert bounds(queues) == {("T", 0): (0, 25)}


def test_the_existence_of_the_files_of_two_entries_can_be_checked(queues: Queues) -> None:
    queue = filled(queues, "T", 0, 15)
    places = [(0, 14), (0, 0), (14, 19), (0, 20), (20, 14)]

    assert [queues.has_entry_files(queue, first, last) for first, last in places] == [True, True, True, False, False]

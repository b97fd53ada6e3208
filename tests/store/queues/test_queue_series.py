"""Rebuilding a queue from records: the result of each series of offsets."""

import pytest
from tests.store.made_store import ROOT

from pocketmq.files import Files
from pocketmq.store.queues.consume_queue import NOTHING_HERE_SIZE
from pocketmq.store.queues.queue_entries import Placing, QueueSeries
from pocketmq.store.queues.queues import Queues
from pocketmq.store.settings import StoreSettings
from pocketmq.testing import FaultyFiles


def placed(files: Files, *offsets: int) -> tuple[list[int | None], QueueSeries]:
    """The record of each offset of the queue, from its first one on; None for none."""
    queues = Queues(StoreSettings(folder=ROOT, queue_file_entries=4), files)
    series = QueueSeries(queues)
    queue = queues.get("T", 0)
    for number, offset in enumerate(offsets):
        series.assign(queue, Placing(offset, number, 100, 0))
        queue.flush()
    series.finish()
    entries = queue.entries(queue.min_offset, queue.max_offset)
    return [None if size == NOTHING_HERE_SIZE else at for at, size, _ in entries], series


@pytest.mark.parametrize(
    ("offsets", "records"),
    [
        ([0, 1, 2], [0, 1, 2]),
        ([5, 6, 7], [0, 1, 2]),
        ([0, 1, 4, 5], [0, 1, None, None, 2, 3]),
        ([0, 1, 4], [0, 1, None, None, 2]),
        ([0, 1, 9, 3, 4], [0, 1, 2, 3, 4]),
        ([0, 1, 9, 2, 3], [0, 1, 3, 4]),
        ([0, 1, 0, 2, 3], [0, 1, 3, 4]),
        ([0, 1, 2, 0, 1], [3, 4]),
        ([0, 0, 1], [1, 2]),
        ([0, 1, 2, 0], [3]),
        ([0, 1, 2, 1], [0, 1, 2]),
        ([0, 1, 2**40], [0, 1]),
        ([0, 1, 2**40, 2], [0, 1, 3]),
        ([0, 1, 2**40, 3], [0, 1, 2, 3]),
    ],
)
def test_offsets_of_a_queue_become_entries(offsets: list[int], records: list[int | None]) -> None:
    assert placed(FaultyFiles(), *offsets)[0] == records


def test_skipped_corrected_and_missing_offsets_are_counted() -> None:
    _, series = placed(FaultyFiles(), 0, 9, 2, 3, 0, 4, 7, 8)

    assert series.corrected == [1]
    assert series.misplaced == [4]
    assert series.gaps == 2
    assert series.entries == 7


def test_a_restarted_queue_leaves_no_older_files() -> None:
    files = FaultyFiles()

    placed(files, 0, 1, 2, 3, 4, 5, 0, 1)

    assert files.list(ROOT / "consumequeue" / "T" / "0") == [f"{0:020d}"]

"""All consume queues of a store: the content of Apache's, and how they are written."""

import errno
import tracemalloc
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest
from tests.golden import needs_golden
from tests.store.golden_store import STORES, read_log, restore
from tests.store.kit import ROOT
from tests.store.queue_kit import FILE_BYTES, bounds, fill, filled, loaded, queues_on

from pocketmq.files import DiskFiles
from pocketmq.model.delay import DELAY_LEVELS
from pocketmq.store.log.log_scan import RecoveryScan
from pocketmq.store.queues.consume_queue import ENTRY_BYTES, ConsumeQueue, Entry, enters_queue, tags_code_of
from pocketmq.store.queues.queues import QueueKey, Queues
from pocketmq.store.settings import StoreSettings
from pocketmq.testing import FaultyFiles

FOLDER = ROOT / "consumequeue"


def entered(queues: Queues, touched: set[ConsumeQueue]) -> None:
    """Add entries to these queues, as a turn does."""
    for queue in touched:
        queues.mark_dirty(queue)
    queues.entered(touched)


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


# the stores of Apache RocketMQ


def entries_of_log(settings: StoreSettings) -> dict[QueueKey, dict[int, Entry]]:
    """What the consume queues of a store must hold, from its log alone: queue offset to entry."""
    folder, file_bytes = settings.folder, settings.log_file_bytes
    last = max(int(path.name) for path in (folder / "commitlog").iterdir())
    walk = RecoveryScan(
        lambda offset, size: read_log(folder, file_bytes, offset, size), file_bytes, 0, last + file_bytes
    )
    expected: dict[QueueKey, dict[int, Entry]] = defaultdict(dict)
    for log_offset, message in walk:
        if enters_queue(message.sys_flag):
            code = tags_code_of(
                message.raw_properties, message.topic == "SCHEDULE_TOPIC_XXXX", message.store_ms, DELAY_LEVELS
            )
            queue = expected[message.topic, message.queue_id]
            assert message.queue_offset not in queue
            queue[message.queue_offset] = (log_offset, message.size, code)
    return expected


@needs_golden
@pytest.mark.parametrize(("version", "kind"), STORES)
def test_apaches_queues_equal_those_computed_from_its_log(version: str, kind: str, tmp_path: Path) -> None:
    settings = restore(version, kind, tmp_path)
    queues = Queues(settings, DiskFiles())

    queues.load()

    expected = entries_of_log(settings)
    assert bounds(queues) == {key: (0, len(entries)) for key, entries in expected.items()}
    for queue in queues:
        assert dict(enumerate(queue.entries(0, queue.max_offset))) == expected[queue.key]
    assert queues.foreign == []
    assert len(expected) >= 8
    assert sum(map(len, expected.values())) >= 70
    queues.close()


@needs_golden
@pytest.mark.parametrize(("version", "kind"), STORES)
def test_queue_files_built_from_the_log_equal_apaches(version: str, kind: str, tmp_path: Path) -> None:
    settings = restore(version, kind, tmp_path / "theirs")
    ours = StoreSettings(folder=tmp_path / "ours", queue_file_entries=settings.queue_file_entries)
    queues = Queues(ours, DiskFiles())

    for (topic, queue_id), entries in entries_of_log(settings).items():
        queue = queues.get(topic, queue_id)
        for _, entry in sorted(entries.items()):
            queue.append(*entry)
        queues.mark_dirty(queue)
    queues.flush()
    queues.close()

    theirs = {path.relative_to(settings.folder): path for path in (settings.folder / "consumequeue").rglob("0*0")}
    made = {path.relative_to(ours.folder): path for path in (ours.folder / "consumequeue").rglob("0*0")}
    files = {name for name, path in theirs.items() if path.is_file()}
    assert {name for name, path in made.items() if path.is_file()} == files
    for name in files:
        assert made[name].read_bytes() == theirs[name].read_bytes(), name


# the table


def test_a_queue_is_created_at_its_first_use(queues: Queues, disk: FaultyFiles) -> None:
    assert queues.find("T", 3) is None

    queue = queues.get("T", 3)

    assert queues.find("T", 3) is queues.get("T", 3) is queue
    assert list(queues) == [queue]
    assert len(queues) == 1
    assert queue.folder == FOLDER / "T" / "3"
    assert disk.list(ROOT) == []


# writing


@pytest.mark.parametrize(("count", "full"), [(409, False), (410, True)])
def test_a_queue_is_full_when_two_pages_of_entries_are_pending(disk: FaultyFiles, count: int, full: bool) -> None:
    queues = queues_on(disk, queue_file_entries=1000)
    queue = queues.get("T", 0)
    fill(queue, count)

    entered(queues, {queue})

    assert queues.full() == ([queue] if full else [])
    assert (len(queue.pending), queues.pending_bytes) == (count * 20, count * 20)
    assert queues.dirty_count == 1
    queues.flush()
    assert (queues.full(), queues.pending_bytes, queues.dirty_count) == ([], 0, 0)


def test_a_queue_with_new_entries_is_written_after_those_that_wait(queues: Queues) -> None:
    busy, waits = queues.get("T", 0), queues.get("T", 1)
    for queue in (busy, waits):
        fill(queue, 1000)
        entered(queues, {queue})
    assert queues.full() == [busy, waits]

    queues.written(busy)  # as much came meanwhile

    assert queues.full() == [waits, busy]


def test_a_flush_writes_everything_pending_in_the_order_of_the_names(disk: FaultyFiles, queues: Queues) -> None:
    touched = {queues.get("B", 1), queues.get("A", 2), queues.get("A", 0)}
    for queue in touched:
        fill(queue, 12)
    entered(queues, touched)

    paths = queues.flush()

    assert paths == [
        FOLDER / topic / queue_id / f"{start:020d}"
        for topic, queue_id in (("A", "0"), ("A", "2"), ("B", "1"))
        for start in (0, FILE_BYTES)
    ]
    assert queues.dirty_count == 0
    assert queues.flush() == []


def test_a_failed_flush_keeps_the_other_queues_and_their_paths(disk: FaultyFiles, queues: Queues) -> None:
    all_queues = [queues.get("T", queue_id) for queue_id in range(3)]
    for queue in all_queues:
        fill(queue, 5)
        queues.mark_dirty(queue)
    disk.fail("write", errno.ENOSPC, "*/T/1/*")

    with pytest.raises(OSError, match="No space"):
        queues.flush()
    assert queues.dirty_count == 2

    assert queues.flush() == [queue.file_of(0) for queue in all_queues]
    assert bounds(loaded(disk)) == {("T", 0): (0, 5), ("T", 1): (0, 5), ("T", 2): (0, 5)}


def test_new_names_are_safe_after_the_sync_of_the_reported_folders(disk: FaultyFiles, queues: Queues) -> None:
    disk.make_dir(ROOT)
    disk.sync_dir(ROOT.parent)
    queue = filled(queues, "T", 1, 12)

    folders = queues.take_new_folders()
    for folder in folders:
        disk.sync_dir(folder)

    assert folders == [FOLDER / "T" / "1", FOLDER / "T", FOLDER, ROOT]
    assert disk.crash(Random(0), survives="nothing").list(queue.folder) == [f"{0:020d}", f"{FILE_BYTES:020d}"]
    assert queues.take_new_folders() == []


def test_files_found_after_a_crash_count_as_new_until_their_names_are_synced(disk: FaultyFiles, queues: Queues) -> None:
    filled(queues, "T", 1, 5)
    again = loaded(disk)

    again.doubt_names(True)
    filled(again, "T", 1, 1)
    assert again.take_new_folders() == [FOLDER / "T" / "1", FOLDER / "T", FOLDER, ROOT]

    again.doubt_names(False)
    filled(again, "T", 1, 1)
    assert again.take_new_folders() == []


def test_deleted_folders_need_no_sync(disk: FaultyFiles, queues: Queues) -> None:
    filled(queues, "T", 1, 1)
    queues.delete_topic("T")

    assert queues.take_new_folders() == [FOLDER, ROOT]


def test_the_number_of_open_files_is_limited(tmp_path: Path) -> None:
    open_before = open_descriptors()
    queues = Queues(StoreSettings(folder=tmp_path, queue_file_entries=10, max_open_queue_files=16), DiskFiles())
    for queue_id in range(100):
        fill(queues.get("T", queue_id), 25)
        queues.mark_dirty(queues.get("T", queue_id))

    queues.flush()
    found = [list(queue.entries(0, 100)) for queue in queues]

    assert open_descriptors() - open_before <= 16
    assert all(len(entries) == 25 for entries in found)
    queues.close()
    assert open_descriptors() == open_before


@contextmanager
def traced() -> Iterator[Callable[[], int]]:
    """The memory growth of the store, without allocations of other threads of this process."""
    own = [tracemalloc.Filter(True, place) for place in ("*/pocketmq/store/*", __file__)]
    tracemalloc.start()
    try:
        yield lambda: sum(trace.size for trace in tracemalloc.take_snapshot().filter_traces(own).traces)
    finally:
        tracemalloc.stop()


def test_an_idle_queue_needs_less_than_a_kilobyte(disk: FaultyFiles) -> None:
    queues = queues_on(disk)

    with traced() as taken:
        for number in range(2500):
            for queue_id in range(4):
                queue = queues.get(f"SomeTopicOfOrdinaryLength-{number}", queue_id)
                queue.min_offset, queue.max_offset, queue.next_offset = 10**9, 10**10, 10**10

        each = taken() / len(queues)
    assert len(queues) == 10_000
    assert 100 < each < 1024


def test_a_busy_queue_releases_its_memory_at_the_flush(tmp_path: Path) -> None:
    queues = Queues(StoreSettings(folder=tmp_path, max_open_queue_files=4), DiskFiles())
    table = [queues.get("T", queue_id) for queue_id in range(50)]
    for queue in table:
        fill(queue, 1)
    entered(queues, set(table))
    queues.flush()

    with traced() as taken:
        for queue in table:
            fill(queue, 400)
        held = taken() / len(table)
        entered(queues, set(table))
        queues.flush()
        each = taken() / len(table)

    queues.close()
    assert held > 400 * ENTRY_BYTES
    assert each < 1024

"""All consume queues of a store: what is found, written, cut and deleted."""

import errno
import tracemalloc
from collections import defaultdict
from pathlib import Path
from random import Random

import pytest
from tests.golden import needs_golden
from tests.store.golden_store import STORES, read_log, restore
from tests.store.kit import ROOT
from tests.store.queue_kit import FILE_BYTES, FILE_ENTRIES, NOTHING_HERE, entries_of, fill, queues_on

from pocketmq.errors import StoreDamaged
from pocketmq.files import DiskFiles
from pocketmq.model.delay import DELAY_LEVELS
from pocketmq.protocol.record import encode_record
from pocketmq.store.consume_queue import ConsumeQueue, Entry
from pocketmq.store.dispatch import enters_queue, tags_code_of
from pocketmq.store.log_walk import LogWalk
from pocketmq.store.queues import QueueKey, Queues, entry_points_to
from pocketmq.store.settings import StoreSettings
from pocketmq.testing import FaultyFiles

FOLDER = ROOT / "consumequeue"
HOST = bytes(8)


@pytest.fixture
def disk() -> FaultyFiles:
    return FaultyFiles()


@pytest.fixture
def queues(disk: FaultyFiles) -> Queues:
    return queues_on(disk)


def loaded(disk: FaultyFiles) -> Queues:
    """The queues as the next start finds them."""
    queues = queues_on(disk)
    queues.load()
    return queues


def bounds(queues: Queues) -> dict[QueueKey, tuple[int, int]]:
    return {queue.key: (queue.min_offset, queue.max_offset) for queue in queues}


def filled(queues: Queues, topic: str, queue_id: int, count: int) -> ConsumeQueue:
    """A queue with `count` entries in files."""
    queue = queues.get(topic, queue_id)
    fill(queue, count)
    queues.note_dirty(queue)
    queues.flush()
    return queue


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def put_file(disk: FaultyFiles, path: Path, data: bytes = b"") -> Path:
    disk.make_dir(path.parent)
    with disk.open(path, create=True) as file:
        file.write_at(0, data)
    return path


# the stores of Apache RocketMQ


def entries_of_log(settings: StoreSettings) -> dict[QueueKey, dict[int, Entry]]:
    """What the consume queues of a store must hold, from its log alone: queue offset to entry."""
    folder, file_bytes = settings.folder, settings.log_file_bytes
    last = max(int(path.name) for path in (folder / "commitlog").iterdir())
    walk = LogWalk(lambda offset, size: read_log(folder, file_bytes, offset, size), file_bytes, 0, last + file_bytes)
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
def test_the_queues_of_the_real_broker_hold_what_dispatch_computes_from_its_log(
    version: str, kind: str, tmp_path: Path
) -> None:
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
def test_queue_files_made_from_the_log_are_those_of_the_real_broker(version: str, kind: str, tmp_path: Path) -> None:
    settings = restore(version, kind, tmp_path / "theirs")
    ours = StoreSettings(folder=tmp_path / "ours", queue_file_entries=settings.queue_file_entries)
    queues = Queues(ours, DiskFiles())

    for (topic, queue_id), entries in entries_of_log(settings).items():
        queue = queues.get(topic, queue_id)
        for _, entry in sorted(entries.items()):
            queue.append(*entry)
        queues.note_dirty(queue)
    queues.flush()
    queues.close()

    theirs = {path.relative_to(settings.folder): path for path in (settings.folder / "consumequeue").rglob("0*0")}
    made = {path.relative_to(ours.folder): path for path in (ours.folder / "consumequeue").rglob("0*0")}
    files = {name for name, path in theirs.items() if path.is_file()}
    assert {name for name, path in made.items() if path.is_file()} == files
    for name in files:
        assert made[name].read_bytes() == theirs[name].read_bytes(), name


# the table


def test_a_queue_is_made_when_first_asked_for(queues: Queues, disk: FaultyFiles) -> None:
    assert queues.find("T", 3) is None

    queue = queues.get("T", 3)

    assert queues.find("T", 3) is queues.get("T", 3) is queue
    assert list(queues) == [queue]
    assert len(queues) == 1
    assert queue.folder == FOLDER / "T" / "3"
    assert disk.list(ROOT) == []


# writing


@pytest.mark.parametrize(("count", "written"), [(409, False), (410, True)])
def test_entries_are_written_when_two_pages_of_them_are_pending(disk: FaultyFiles, count: int, written: bool) -> None:
    queues = queues_on(disk, queue_file_entries=1000)
    queue = queues.get("T", 0)
    fill(queue, count)

    paths = queues.entered({queue})

    assert paths == ([queue.file_of(0)] if written else [])
    assert len(queue.pending) == (0 if written else count * 20)
    assert queues.dirty_count == 1


def test_a_flush_writes_everything_pending_in_the_order_of_the_names(disk: FaultyFiles, queues: Queues) -> None:
    touched = {queues.get("B", 1), queues.get("A", 2), queues.get("A", 0)}
    for queue in touched:
        fill(queue, 12)
    assert queues.entered(touched) == []

    paths = queues.flush()

    assert paths == [
        FOLDER / topic / queue_id / f"{start:020d}"
        for topic, queue_id in (("A", "0"), ("A", "2"), ("B", "1"))
        for start in (0, FILE_BYTES)
    ]
    assert queues.dirty_count == 0
    assert queues.flush() == []


def test_a_flush_that_fails_leaves_the_rest_dirty_and_forgets_no_path(disk: FaultyFiles, queues: Queues) -> None:
    all_queues = [queues.get("T", queue_id) for queue_id in range(3)]
    for queue in all_queues:
        fill(queue, 5)
        queues.note_dirty(queue)
    disk.fail("write", errno.ENOSPC, "*/T/1/*")

    with pytest.raises(OSError, match="No space"):
        queues.flush()
    assert queues.dirty_count == 2

    assert queues.flush() == [queue.file_of(0) for queue in all_queues]
    assert bounds(loaded(disk)) == {("T", 0): (0, 5), ("T", 1): (0, 5), ("T", 2): (0, 5)}


def test_a_full_disk_while_entering_forgets_nothing(disk: FaultyFiles) -> None:
    queues = queues_on(disk, queue_least_pages=0)
    queue = queues.get("T", 0)
    entries = fill(queue, 15)
    disk.fail("write", errno.ENOSPC, nth=2)

    with pytest.raises(OSError, match="No space"):
        queues.entered({queue})

    entries += fill(queue, 1)
    assert queues.entered({queue}) == [queue.file_of(0), queue.file_of(10)]
    assert list(queue.entries(0, 100)) == entries


def test_new_names_are_safe_once_the_folders_told_are_synced(disk: FaultyFiles, queues: Queues) -> None:
    disk.make_dir(ROOT)
    disk.sync_dir(ROOT.parent)
    queue = filled(queues, "T", 1, 12)

    folders = queues.take_new_folders()
    for folder in folders:
        disk.sync_dir(folder)

    assert folders == [FOLDER / "T" / "1", FOLDER / "T", FOLDER, ROOT]
    assert disk.crash(Random(0), survives="nothing").list(queue.folder) == [f"{0:020d}", f"{FILE_BYTES:020d}"]
    assert queues.take_new_folders() == []


def test_files_found_after_a_crash_count_as_new_while_their_names_are_in_doubt(
    disk: FaultyFiles, queues: Queues
) -> None:
    filled(queues, "T", 1, 5)
    again = loaded(disk)

    again.doubt_names(True)
    filled(again, "T", 1, 1)
    assert again.take_new_folders() == [FOLDER / "T" / "1", FOLDER / "T", FOLDER, ROOT]

    again.doubt_names(False)
    filled(again, "T", 1, 1)
    assert again.take_new_folders() == []


def test_folders_that_are_gone_by_then_need_no_sync(disk: FaultyFiles, queues: Queues) -> None:
    filled(queues, "T", 1, 1)
    queues.delete_topic("T")

    assert queues.take_new_folders() == [FOLDER, ROOT]


def test_no_more_files_are_open_than_the_settings_say(tmp_path: Path) -> None:
    open_before = open_descriptors()
    queues = Queues(StoreSettings(folder=tmp_path, queue_file_entries=10, max_open_queue_files=16), DiskFiles())
    for queue_id in range(100):
        fill(queues.get("T", queue_id), 25)
        queues.note_dirty(queues.get("T", queue_id))

    queues.flush()
    found = [list(queue.entries(0, 100)) for queue in queues]

    assert open_descriptors() - open_before <= 16
    assert all(len(entries) == 25 for entries in found)
    queues.close()
    assert open_descriptors() == open_before


def test_an_idle_queue_takes_less_than_three_kilobytes(disk: FaultyFiles) -> None:
    queues = queues_on(disk)
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()

    for number in range(2500):
        for queue_id in range(4):
            queue = queues.get(f"SomeTopicOfOrdinaryLength-{number}", queue_id)
            queue.min_offset, queue.max_offset, queue.next_offset = 10**9, 10**10, 10**10

    each = (tracemalloc.get_traced_memory()[0] - before) / len(queues)
    tracemalloc.stop()
    assert len(queues) == 10_000
    assert each < 1024


def test_a_queue_that_was_busy_gives_its_memory_back_when_flushed(tmp_path: Path) -> None:
    queues = Queues(StoreSettings(folder=tmp_path, max_open_queue_files=4), DiskFiles())
    table = [queues.get("T", queue_id) for queue_id in range(50)]
    for queue in table:
        fill(queue, 1)
    queues.entered(set(table))
    queues.flush()
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()

    for queue in table:
        fill(queue, 400)
    queues.entered(set(table))
    queues.flush()

    each = (tracemalloc.get_traced_memory()[0] - before) / len(table)
    tracemalloc.stop()
    queues.close()
    assert each < 1024


# finding


@pytest.mark.parametrize("count", [0, 1, 9, 10, 11, 19, 20, 21, 30])
def test_loading_finds_where_each_queue_ends(disk: FaultyFiles, queues: Queues, count: int) -> None:
    disk.make_dir(FOLDER / "T" / "0")
    queue = filled(queues, "T", 0, count)

    again = loaded(disk)

    found = again.get("T", 0)
    assert bounds(again) == {("T", 0): (0, count)}
    assert found.next_offset == count
    assert found.read(0, 100) == queue.read(0, 100)


@pytest.mark.parametrize(("begin", "count"), [(7, 1), (7, 3), (7, 4), (10, 5), (25, 20), (39, 1)])
def test_loading_finds_where_a_queue_begins(disk: FaultyFiles, queues: Queues, begin: int, count: int) -> None:
    queues.get("T", 0).begin_anew(begin)
    filled(queues, "T", 0, count)

    assert bounds(loaded(disk)) == {("T", 0): (begin, begin + count)}


def test_a_hole_near_the_beginning_is_not_taken_for_a_filled_head(disk: FaultyFiles, queues: Queues) -> None:
    queue = queues.get("T", 0)
    queue.begin_anew(2)
    fill(queue, 1)
    assert queue.skip_to(8, 9000)
    filled(queues, "T", 0, 1)

    assert bounds(loaded(disk)) == {("T", 0): (2, 9)}


def test_a_queue_with_nothing_but_a_head_is_empty_and_goes_on_there(disk: FaultyFiles, queues: Queues) -> None:
    queue = queues.get("T", 0)
    queue.begin_anew(7)
    filled(queues, "T", 0, 1)
    queue.cut(7)
    queues.zero_behind(queue)

    assert entries_of(disk, queue) == [*[NOTHING_HERE] * 7, *[(0, 0, 0)] * 3]
    assert bounds(loaded(disk)) == {("T", 0): (7, 7)}


def test_empty_files_behind_the_last_entry_do_not_matter(disk: FaultyFiles, queues: Queues) -> None:
    queue = filled(queues, "T", 0, 10)
    for number in (1, 2):
        put_file(disk, queue.file_of(number * FILE_ENTRIES), bytes(FILE_BYTES))

    assert bounds(loaded(disk)) == {("T", 0): (0, 10)}


def test_a_queue_whose_only_file_is_empty_goes_on_with_its_first_offset(disk: FaultyFiles, queues: Queues) -> None:
    put_file(disk, queues.get("T", 0).file_of(30), bytes(FILE_BYTES))

    assert bounds(loaded(disk)) == {("T", 0): (30, 30)}


def test_a_queue_ends_where_a_file_is_missing(disk: FaultyFiles, queues: Queues) -> None:
    queue = filled(queues, "T", 0, 35)
    disk.unlink(queue.file_of(20))

    again = queues_on(disk)
    (found, starts), *_ = again.scan()

    assert starts == [0, FILE_BYTES, 3 * FILE_BYTES]
    assert again.span_files(found, starts) == [0, FILE_BYTES]
    assert bounds(again) == {("T", 0): (0, 20)}


def test_loading_tells_the_queues_of_which_a_file_is_missing(disk: FaultyFiles, queues: Queues) -> None:
    for queue_id in range(4):
        filled(queues, "T", queue_id, 35)
    for queue_id, missing in ((0, 0), (1, 10), (2, 20), (3, 30)):
        disk.unlink(queues.get("T", queue_id).file_of(missing))

    again = queues_on(disk)

    assert again.load() == {("T", 1): 30, ("T", 2): 30}
    assert bounds(again) == {("T", 0): (10, 35), ("T", 1): (0, 10), ("T", 2): (0, 20), ("T", 3): (0, 30)}


def test_foreign_files_and_folders_are_listed_and_left_alone(disk: FaultyFiles, queues: Queues) -> None:
    filled(queues, "T", 0, 5)
    foreign = [
        put_file(disk, FOLDER / "README", b"a file where topics should be"),
        put_file(disk, FOLDER / "T" / "0" / "00000000000000000000.bak", b"?"),
        put_file(disk, FOLDER / "T" / "0" / ("9" * 20), b"?"),
        put_file(disk, FOLDER / "T" / "0" / ("٣" * 20), b"?"),
        put_file(disk, FOLDER / "T" / "1", b"a file where a queue should be"),
    ]
    folders = [FOLDER / "not.a.topic", FOLDER / "T" / "007", FOLDER / "T" / "x", FOLDER / "T" / "٣"]
    folders += [FOLDER / "T" / "99999999999", FOLDER / "T" / "0" / f"{FILE_BYTES:020d}"]
    for folder in folders:
        disk.make_dir(folder)

    again = loaded(disk)

    assert sorted(again.foreign) == sorted(foreign + folders)
    assert bounds(again) == {("T", 0): (0, 5)}
    again.delete_topic("T")
    assert all(disk.status(path) is not None for path in foreign + folders)
    assert disk.status(again.folder / "T" / "0" / f"{0:020d}") is None


def test_scanning_again_does_not_list_foreign_things_twice(disk: FaultyFiles, queues: Queues) -> None:
    filled(queues, "T", 0, 25)
    put_file(disk, FOLDER / "T" / "0" / "notes")

    again = loaded(disk)
    again.load()
    again.zero_behind(again.get("T", 0))
    again.follow(again.get("T", 0), 10_000)

    assert again.foreign == [FOLDER / "T" / "0" / "notes"]


def test_a_store_without_queues_has_none(queues: Queues) -> None:
    queues.load()

    assert len(queues) == 0
    assert queues.foreign == []


@pytest.mark.parametrize("size", [1, 20, FILE_BYTES - 1, FILE_BYTES + 1, 2 * FILE_BYTES])
def test_a_file_of_another_size_is_damage_and_named(disk: FaultyFiles, queues: Queues, size: int) -> None:
    path = put_file(disk, FOLDER / "T" / "0" / f"{FILE_BYTES:020d}", bytes(size))

    with pytest.raises(StoreDamaged, match=rf"{path} has {size} bytes.* have {FILE_BYTES}.*queue_file_entries"):
        queues.load()

    status = disk.status(path)
    assert status is not None
    assert status.size == size


def test_a_file_whose_name_does_not_fit_is_damage_and_named(disk: FaultyFiles, queues: Queues) -> None:
    path = put_file(disk, FOLDER / "T" / "0" / f"{FILE_BYTES + 20:020d}", bytes(FILE_BYTES))

    with pytest.raises(StoreDamaged, match=rf"{path} begins at {FILE_BYTES + 20}.*{FILE_BYTES}"):
        queues.load()


@pytest.mark.parametrize("entries", [19, 21, 300_000])
@needs_golden
def test_a_real_store_opened_with_another_file_size_is_refused(entries: int, tmp_path: Path) -> None:
    settings = restore("5.3.3", "clean", tmp_path)
    wrong = StoreSettings(folder=settings.folder, queue_file_entries=entries)

    with pytest.raises(StoreDamaged, match="consumequeue"):
        Queues(wrong, DiskFiles()).load()


def test_an_empty_file_gets_its_size(disk: FaultyFiles, queues: Queues) -> None:
    filled(queues, "T", 0, 10)
    path = put_file(disk, FOLDER / "T" / "0" / f"{FILE_BYTES:020d}")

    again = loaded(disk)

    assert bounds(again) == {("T", 0): (0, 10)}
    assert disk.read(path) == bytes(FILE_BYTES)


@pytest.mark.parametrize("size", [0, 1, 20, 27, FILE_BYTES - 1])
def test_after_a_crash_a_file_that_lost_its_size_gets_it_back(disk: FaultyFiles, queues: Queues, size: int) -> None:
    queue = filled(queues, "T", 0, 15)
    for folder in (queue.folder, *queue.folder.parents):
        disk.sync_dir(folder)
    with disk.open(queue.file_of(10)) as file:
        file.truncate(size)

    again = queues_on(disk)
    found = list(again.scan())

    assert [starts for _, starts in found] == [[0, FILE_BYTES]]
    survived = entries_of(disk.crash(Random(0), survives="nothing"), queue, 1)
    assert len(survived) == FILE_ENTRIES
    assert survived[: size // 20] == entries_of(disk, queue, 1)[: size // 20]


@pytest.mark.parametrize("seed", range(30))
def test_after_any_power_loss_the_queues_can_be_scanned(seed: int) -> None:
    disk = FaultyFiles()
    queues = queues_on(disk)
    for number in (1, 5, 14, 30):
        for queue_id in range(3):
            filled(queues, "T", queue_id, number)

    found = disk.crash(Random(seed), tear_bytes=True)
    again = queues_on(found)
    for queue, starts in again.scan():
        if starts:
            again.span_files(queue, starts)
            queue.cut(queue.first_at_or_beyond(0))
            again.zero_behind(queue)

    assert again.foreign == []
    assert bounds(loaded(found)).keys() == bounds(again).keys()


# cutting


@pytest.mark.parametrize("end", [0, 1, 9, 10, 11, 20, 24, 25])
def test_stale_entries_and_later_files_go_and_nothing_else(disk: FaultyFiles, queues: Queues, end: int) -> None:
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


def test_what_was_cut_does_not_come_back_after_a_power_loss(disk: FaultyFiles, queues: Queues) -> None:
    queue = filled(queues, "T", 0, 35)
    for path in queue.folder, *queue.folder.parents:
        disk.sync_dir(path)
    for name in disk.list(queue.folder):
        with disk.open(queue.folder / name) as file:
            file.sync()
    queue.cut(12)

    queues.zero_behind(queue)

    assert bounds(loaded(disk.crash(Random(0), survives="nothing"))) == {("T", 0): (0, 12)}


def test_entries_that_are_still_pending_survive_a_trim(disk: FaultyFiles, queues: Queues) -> None:
    queue = filled(queues, "T", 0, 5)
    entries = list(queue.entries(0, 5)) + fill(queue, 20)

    assert queues.zero_behind(queue) == []

    queue.flush()
    assert list(queue.entries(0, 100)) == entries


def test_the_first_file_stays_though_it_is_empty_as_it_tells_the_next_offset(disk: FaultyFiles, queues: Queues) -> None:
    queue = queues.get("T", 0)
    queue.begin_anew(30)
    filled(queues, "T", 0, 15)
    queue.cut(30)

    queues.zero_behind(queue)

    assert disk.list(queue.folder) == [f"{3 * FILE_BYTES:020d}"]
    assert bounds(loaded(disk)) == {("T", 0): (30, 30)}


# following the log


def test_files_before_the_first_message_go_when_the_log_has_moved_on(disk: FaultyFiles, queues: Queues) -> None:
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
def test_the_newest_file_stays_when_all_messages_are_gone(
    disk: FaultyFiles, queues: Queues, count: int, newest: int
) -> None:
    queue = filled(queues, "T", 0, count)

    queues.follow(queue, 10**9)

    assert (queue.min_offset, queue.max_offset) == (count, count)
    assert disk.list(queue.folder) == [f"{newest * FILE_BYTES:020d}"]
    assert loaded(disk).get("T", 0).max_offset == count


def test_a_queue_follows_where_messages_lie_and_not_how_large_they_are(queues: Queues) -> None:
    queue = queues.get("T", 0)
    fill(queue, 3, start=0, size=100)

    queues.follow(queue, 50)

    assert queue.min_offset == 1


def test_a_file_stays_until_the_entries_behind_it_are_in_a_file(disk: FaultyFiles, queues: Queues) -> None:
    queue = filled(queues, "T", 0, 10)
    fill(queue, 5)

    queues.follow(queue, 10**9)

    assert queue.min_offset == 15
    assert loaded(disk).get("T", 0).max_offset == 10


def test_a_queue_that_has_followed_before_is_looked_at_without_listing_its_files(
    disk: FaultyFiles, queues: Queues, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = filled(queues, "T", 0, 5)
    monkeypatch.setattr(disk, "list", None)

    assert queues.follow(queue, 10**9) == 0
    assert queues.follow(queue, 10**9) == 0


def test_expired_names_are_told_to_be_synced(disk: FaultyFiles, queues: Queues) -> None:
    queue = filled(queues, "T", 0, 25)
    queues.take_new_folders()

    queues.follow(queue, 10**9)

    assert queue.folder in queues.take_new_folders()


# deleting


def test_deleting_a_topic_removes_its_queues_and_nothing_else(disk: FaultyFiles, queues: Queues) -> None:
    for queue_id in range(3):
        filled(queues, "Gone", queue_id, 25)
    kept = filled(queues, "Gone2", 0, 25)
    fill(queues.get("Gone", 1), 3)
    queues.note_dirty(queues.get("Gone", 1))

    queues.delete_topic("Gone")

    assert [queue.key for queue in queues] == [("Gone2", 0)]
    assert disk.list(FOLDER) == ["Gone2"]
    assert queues.dirty_count == 0
    assert len(list(kept.entries(0, 100))) == 25
    queues.delete_topic("Never")


def test_a_deleted_topic_begins_again_at_zero_whatever_was_under_way(disk: FaultyFiles, queues: Queues) -> None:
    old = filled(queues, "T", 0, 25)
    queues.delete_topic("T")
    fill(old, 500)

    queues.entered({old})
    queues.flush()
    assert disk.list(FOLDER) == []

    new = filled(queues, "T", 0, 3)
    assert new is not old
    assert bounds(loaded(disk)) == {("T", 0): (0, 3)}


def test_wiping_removes_every_queue_but_nothing_foreign(disk: FaultyFiles, queues: Queues) -> None:
    filled(queues, "A", 0, 25)
    filled(queues, "B", 7, 5)
    notes = put_file(disk, FOLDER / "B" / "7" / "notes")

    again = queues_on(disk)
    again.wipe()

    assert len(again) == 0
    assert disk.list(FOLDER) == ["B"]
    assert disk.list(FOLDER / "B" / "7") == ["notes"]
    assert again.foreign == [notes]


def test_removing_the_files_of_a_queue_lets_it_be_made_anew(disk: FaultyFiles, queues: Queues) -> None:
    queue = filled(queues, "T", 0, 25)

    queues.remove_files(queue)
    queue.begin_anew(12)
    filled(queues, "T", 0, 1)

    assert bounds(loaded(disk)) == {("T", 0): (12, 13)}


def test_forgetting_all_leaves_the_files(disk: FaultyFiles, queues: Queues) -> None:
    queue = filled(queues, "T", 0, 25)
    queues.note_dirty(queue)

    queues.forget_all()

    assert (len(queues), queues.dirty_count) == (0, 0)
    queues.load()
    assert bounds(queues) == {("T", 0): (0, 25)}


def test_whether_the_files_of_two_entries_are_there(queues: Queues) -> None:
    queue = filled(queues, "T", 0, 15)
    places = [(0, 14), (0, 0), (14, 19), (0, 20), (20, 14)]

    assert [queues.has_entry_files(queue, first, last) for first, last in places] == [True, True, True, False, False]


# what an entry points to


def record(topic: str = "T", queue_id: int = 2, queue_offset: int = 5, log_offset: int = 700) -> bytes:
    return encode_record(topic.encode(), queue_id, queue_offset, log_offset, b"T", b"", 0, 0, 1, HOST, 1, HOST)


def test_an_entry_must_point_to_its_own_message(queues: Queues) -> None:
    queue = queues.get("T", 2)
    raw = record()
    entry = (700, len(raw), 0)

    assert entry_points_to(raw, queue, 5, entry)
    assert not entry_points_to(None, queue, 5, entry)
    assert not entry_points_to(raw, queue, 4, entry)
    assert not entry_points_to(raw, queue, 5, (701, len(raw), 0))
    assert not entry_points_to(raw, queue, 5, (700, len(raw) + 1, 0))
    assert not entry_points_to(raw[:-1], queue, 5, (700, len(raw) - 1, 0))
    assert not entry_points_to(bytes(len(raw)), queue, 5, entry)


@pytest.mark.parametrize("changes", [{"topic": "S"}, {"queue_id": 3}, {"queue_offset": 6}, {"log_offset": 1}])
def test_another_message_of_the_same_size_is_not_meant(queues: Queues, changes: dict[str, object]) -> None:
    raw = record(**changes)  # type: ignore[arg-type]

    assert not entry_points_to(raw, queues.get("T", 2), 5, (700, len(raw), 0))

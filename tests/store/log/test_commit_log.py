"""The commit log: the positions of records, and what readers see."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.golden import GOLDEN, needs_golden, store_file
from tests.store.kit import HOST, LOG_FILE_BYTES, ROOT, SMALLEST, LogOnDisk, record_of, walk

from pocketmq.clock import SystemClock
from pocketmq.codes import SysFlag
from pocketmq.errors import InvalidMessage, StoreError
from pocketmq.files import DiskFiles
from pocketmq.protocol.record import BLANK_SIZE, MAGIC_BLANK, decode_record, encode_record
from pocketmq.store.log.commit_log import CommitLog
from pocketmq.store.log.preparing import FilePreparer
from pocketmq.store.settings import StoreSettings

MOST = LOG_FILE_BYTES - BLANK_SIZE


@pytest.fixture
def disk() -> LogOnDisk:
    return LogOnDisk().begin()


def bytes_of(disk: LogOnDisk, first: int = 0) -> bytes:
    return disk.files.read(ROOT / "commitlog" / f"{first:020d}")


# where records go


def test_records_follow_each_other_from_offset_zero(disk: LogOnDisk) -> None:
    assert disk.turn(100, 200) == [0, 100]
    assert disk.turn(300) == [300]

    assert (disk.log.start, disk.log.written, disk.log.end) == (0, 600, 600)
    assert [(at, len(raw)) for at, raw in walk(disk.log)] == [(0, 100), (100, 200), (300, 300)]


def test_messages_of_a_turn_are_not_readable_before_the_write(disk: LogOnDisk) -> None:
    disk.append(100)

    assert (disk.log.written, disk.log.end) == (0, 100)
    assert disk.log.record(0) is None
    assert bytes_of(disk) == bytes(LOG_FILE_BYTES)
    disk.log.write()
    assert disk.log.record(0) == record_of(100, 0, store_ms=disk.clock.now_ms())


def test_a_turn_is_one_write_for_each_file(disk: LogOnDisk) -> None:
    begun = disk.files.position

    disk.turn(*[250] * 8)
    disk.turn(*[250] * 12)

    writes = [operation for operation in disk.files.operations[begun:] if operation.kind == "write"]
    assert [(int(Path(write.path).name), write.offset, len(write.data)) for write in writes] == [
        (0, 0, 2000),
        (0, 2000, 2008),
        (LOG_FILE_BYTES, 0, 1000),
    ]


def test_an_empty_turn_writes_nothing(disk: LogOnDisk) -> None:
    begun = disk.files.position

    disk.log.write()

    assert disk.files.position == begun


@pytest.mark.parametrize(("size", "rolls"), [(MOST - 1000, False), (MOST - 999, True), (MOST, True)])
def test_a_record_without_space_for_a_filler_starts_the_next_file(disk: LogOnDisk, size: int, rolls: bool) -> None:
    disk.turn(1000)

    assert disk.turn(size) == [LOG_FILE_BYTES if rolls else 1000]

    raw = bytes_of(disk)
    if rolls:
        assert raw[1000:1008] == (LOG_FILE_BYTES - 1000).to_bytes(4, "big") + MAGIC_BLANK.to_bytes(4, "big")
        assert raw[1008:] == bytes(LOG_FILE_BYTES - 1008)
    assert [len(found) for _, found in walk(disk.log)] == [1000, size]


def test_a_record_that_fills_a_file_leaves_only_the_head_of_the_filler(disk: LogOnDisk) -> None:
    disk.turn(MOST)
    disk.turn(SMALLEST)

    assert bytes_of(disk)[MOST:] == BLANK_SIZE.to_bytes(4, "big") + MAGIC_BLANK.to_bytes(4, "big")
    assert [at for at, _ in walk(disk.log)] == [0, LOG_FILE_BYTES]


def test_one_turn_may_roll_over_several_files() -> None:
    disk = LogOnDisk(prepared_files=4).begin()

    offsets = disk.turn(*[MOST] * 3, 100)

    assert offsets == [0, LOG_FILE_BYTES, 2 * LOG_FILE_BYTES, 3 * LOG_FILE_BYTES]
    assert [at for at, _ in walk(disk.log)] == offsets


@pytest.mark.parametrize("size", [MOST + 1, LOG_FILE_BYTES, 1 << 30])
def test_a_record_larger_than_a_file_is_refused_without_effect(disk: LogOnDisk, size: int) -> None:
    disk.append(100)

    with pytest.raises(InvalidMessage, match=f"record of {size} bytes does not fit into a log file of 4096"):
        disk.log.reserve(size)

    assert disk.turn(100) == [100]


def test_records_that_fit_into_the_file_are_staged_together(disk: LogOnDisk) -> None:
    disk.turn(1000)
    records = [record_of(300, 1000), record_of(400, 1300)]

    disk.log.put_run(b"".join(records), 1700)
    disk.log.write()

    assert [raw for _, raw in walk(disk.log)][1:] == records
    assert disk.turn(200) == [1700]


def test_records_are_staged_together_up_to_the_limit(disk: LogOnDisk) -> None:
    disk.turn(1000)

    with pytest.raises(AssertionError):
        disk.log.put_run(record_of(3089, 1000), 4089)
    assert disk.log.end == 1000
    disk.log.put_run(record_of(3088, 1000), 4088)
    disk.log.discard()

    assert disk.turn(200) == [1000]


def test_a_closed_log_stages_no_records() -> None:
    with pytest.raises(AssertionError):
        LogOnDisk().log.put_run(record_of(200, 0), 200)


@pytest.mark.parametrize("sizes", [(300, 400), (3000, 300)])
def test_everything_staged_after_a_mark_is_rolled_back_across_files(disk: LogOnDisk, sizes: tuple[int, ...]) -> None:
    disk.turn(1000)
    first = record_of(200, disk.log.reserve(200))
    disk.log.put((first,))
    mark = disk.log.mark()
    for size in sizes:
        disk.log.put((record_of(size, disk.log.reserve(size)),))
    disk.log.reserve(300)

    disk.log.take_back(mark)
    behind = record_of(250, disk.log.reserve(250))
    disk.log.put((behind,))
    disk.log.write()

    assert [raw for _, raw in walk(disk.log)][1:] == [first, behind]
    assert disk.turn(3000) == [4096]


@needs_golden
@pytest.mark.parametrize(
    "store", sorted(GOLDEN.glob("store/*/*/commitlog")), ids=lambda path: "/".join(path.parts[-3:-1])
)
def test_the_same_records_give_the_same_files_as_apache(store: Path) -> None:
    theirs = {path.name: store_file(path) for path in sorted(store.iterdir())}
    disk = LogOnDisk(log_file_bytes=32 * 1024).begin()

    for raw in records_of(theirs):
        assert disk.log.reserve(len(raw)) == decode_record(raw).log_offset
        disk.log.put((raw,))
        disk.log.write()
        disk.making.run()

    assert disk.log.end > 64_000 or "4.9" in str(store)
    for name, bytes_there in theirs.items():
        assert disk.files.read(ROOT / "commitlog" / name) == bytes_there


def records_of(files: dict[str, bytes]) -> Iterator[bytes]:
    for raw in files.values():
        at = 0
        while size := int.from_bytes(raw[at : at + 4], "big"):
            if int.from_bytes(raw[at + 4 : at + 8], "big") == MAGIC_BLANK:
                assert at + size == len(raw)
                break
            yield raw[at : at + size]
            at += size


@needs_golden
def test_a_log_of_apaches_broker_is_read_and_continued(tmp_path: Path) -> None:
    store = GOLDEN / "store/5.3.3/clean/commitlog"
    (tmp_path / "commitlog").mkdir()
    for path in store.iterdir():
        (tmp_path / "commitlog" / path.name).write_bytes(store_file(path))
    settings = StoreSettings(folder=tmp_path, log_file_bytes=32 * 1024)
    log = CommitLog(settings, DiskFiles())
    log.load()

    records = list(walk(log))
    end = records[-1][0] + len(records[-1][1])
    assert log.cut(end) == 0
    log.begin(FilePreparer(settings, DiskFiles(), SystemClock(), log.segments))
    assert log.reserve(200) == end
    log.put((record_of(200, end),))
    log.write()

    assert len(records) > 100
    for at, raw in records:
        assert log.store_ms_at(at) == decode_record(raw).store_ms
    assert [raw for _, raw in walk(log)] == [raw for _, raw in records] + [record_of(200, end)]
    log.close()


# reading


def test_views_are_read_only_and_show_only_written_bytes(disk: LogOnDisk) -> None:
    disk.turn(100, 200)
    disk.append(300)

    view = disk.log.view(100, 200)

    assert view.readonly
    assert bytes(view) == record_of(200, 100, store_ms=disk.clock.now_ms())
    for offset, size in ((-1, 10), (250, 51), (300, 1), (300, 300), (10_000, 1)):
        with pytest.raises(StoreError, match=rf"not {size} bytes at {offset}$"):
            disk.log.view(offset, size)


def test_a_view_never_spans_files(disk: LogOnDisk) -> None:
    disk.turn(100, MOST)

    with pytest.raises(StoreError, match="in files of 4096"):
        disk.log.view(LOG_FILE_BYTES - 10, 20)


def test_a_view_stays_valid_after_its_file_is_deleted(disk: LogOnDisk) -> None:
    disk.turn(1000)
    disk.turn(MOST)
    view = disk.log.view(0, 1000)
    disk.tick(after_ms=10_000)

    disk.log.drop_first()
    disk.making.run()

    assert disk.log.start == LOG_FILE_BYTES
    assert disk.files.status(ROOT / "commitlog" / f"{0:020d}") is None
    assert bytes(view) == record_of(1000, 0, store_ms=disk.clock.now_ms() - 10_000)
    with pytest.raises(StoreError, match="holds offsets 4096 to"):
        disk.log.view(0, 1000)
    assert disk.log.record(0) is None
    assert disk.log.record(LOG_FILE_BYTES) is not None


@pytest.mark.parametrize("offset", [-1, 1, 99, 100, 300, 308, LOG_FILE_BYTES - 4, LOG_FILE_BYTES + 91, 1 << 40])
def test_only_the_start_of_a_record_is_a_record(disk: LogOnDisk, offset: int) -> None:
    disk.turn(100)
    disk.turn(200)
    disk.turn(MOST)

    found = disk.log.record(offset)

    assert (found is not None) == (offset == 100)


@pytest.mark.parametrize("size", [0, 8, 90, 301, MOST + 9, 0x7FFFFFFF, 0xFFFFFFFF])
def test_an_impossible_size_is_not_a_record(disk: LogOnDisk, size: int) -> None:
    disk.turn(300)
    with disk.files.open(ROOT / "commitlog" / f"{0:020d}") as file:
        file.write_at(0, size.to_bytes(4, "big"))

    assert disk.log.record(0) is None


@pytest.mark.parametrize("born_v6", [False, True])
@pytest.mark.parametrize("store_v6", [False, True])
def test_the_store_time_is_found_with_any_size_of_hosts(disk: LogOnDisk, born_v6: bool, store_v6: bool) -> None:
    flags = SysFlag.BORN_HOST_V6 * born_v6 | SysFlag.STORE_HOST_V6 * store_v6
    hosts = [HOST + bytes(12) * v6 for v6 in (born_v6, store_v6)]
    raw = encode_record(b"T", 0, 0, 0, b"body", b"", 0, flags, 111, hosts[0], 1_700_000_000_123, hosts[1])
    disk.log.reserve(len(raw))
    disk.log.put((raw,))
    disk.log.write()

    assert disk.log.store_ms_at(0) == 1_700_000_000_123

"""The log scan: every record up to the first invalid one, and its fault."""

from itertools import count, takewhile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.golden import needs_golden
from tests.store.golden_store import STORES, read_log, restore
from tests.store.kit import SMALLEST, LogOnDisk

from pocketmq.codes import SysFlag
from pocketmq.protocol.record import BLANK_SIZE, MAGIC_BLANK, encode_blank, encode_record, record_size
from pocketmq.store.log import log_scan
from pocketmq.store.log.log_scan import RecoveryScan, ScanEnd

FILE_BYTES = 2048
V4, V6 = bytes(8), bytes(20)
SMALLEST_CHUNK = 128


def record(
    at: int, size: int, *, topic: bytes = b"Topic", sys_flag: int = 0, properties: bytes = b"K\x01v\x02"
) -> bytes:
    """A record of `size` bytes at position `at`."""
    born = V6 if sys_flag & SysFlag.BORN_HOST_V6 else V4
    store = V6 if sys_flag & SysFlag.STORE_HOST_V6 else V4
    body_size = size - record_size(len(topic), 0, len(properties), sys_flag)
    body = (bytes(range(1, 201)) * (body_size // 200 + 1))[:body_size]
    return encode_record(topic, 1, 2, at, body, properties, 0, sys_flag, 3, born, 4, store)


def log_of(*sizes: int, sys_flag: int = 0) -> bytearray:
    """Records of these sizes in files of FILE_BYTES, with filler where one does not fit; the rest is zeros."""
    log = bytearray()
    for size in sizes:
        room = FILE_BYTES - len(log) % FILE_BYTES
        if size + BLANK_SIZE > room:
            log += encode_blank(room).ljust(room, b"?")
        log += record(len(log), size, sys_flag=sys_flag)
    return log + bytes(-len(log) % FILE_BYTES)


class Reads:
    """A log for a scan; it records how far it was read."""

    def __init__(self, log: bytes | bytearray, missing: int = 0, file_bytes: int = FILE_BYTES) -> None:
        self.log = bytes(log)
        self.missing = missing
        self.file_bytes = file_bytes
        self.reads: list[tuple[int, int]] = []

    def __call__(self, offset: int, size: int) -> bytes:
        assert size > 0
        assert offset // self.file_bytes == (offset + size - 1) // self.file_bytes, "a read stays in one file"
        self.reads.append((offset, size))
        return self.log[offset : min(offset + size, len(self.log) - self.missing)]


def walked(log: bytes | bytearray, *, start: int = 0, check_crc: bool = True) -> RecoveryScan:
    """A completed scan."""
    walk = RecoveryScan(Reads(log), FILE_BYTES, start, len(log), check_crc=check_crc)
    offsets = [offset for offset, message in walk if message.log_offset == offset]
    assert len(offsets) == walk.records
    return walk


def found(log: bytes | bytearray, start: int = 0) -> list[tuple[int, int]]:
    """Offset and size of every record."""
    return [(offset, message.size) for offset, message in RecoveryScan(Reads(log), FILE_BYTES, start, len(log))]


@pytest.fixture(params=[SMALLEST_CHUNK, 200, 333, 1024 * 1024])
def chunk_bytes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Scan with chunks of this size."""
    monkeypatch.setattr(log_scan, "CHUNK_BYTES", request.param)
    size: int = request.param
    return size


# sound logs


def test_an_empty_log_has_no_records() -> None:
    walk = RecoveryScan(Reads(b""), FILE_BYTES, 0, 0)

    assert list(walk) == []
    assert (walk.end, walk.ending, walk.reason, walk.records) == (0, ScanEnd.NO_MORE, "", 0)


def test_records_are_returned_in_order_up_to_the_first_unwritten_byte(chunk_bytes: int) -> None:
    log = log_of(100, 300, 150)

    walk = walked(log)

    assert found(log) == [(0, 100), (100, 300), (400, 150)]
    assert (walk.end, walk.ending, walk.reason) == (550, ScanEnd.NO_MORE, "")


def test_filler_continues_in_the_next_file(chunk_bytes: int) -> None:
    log = log_of(900, 900, 900, 500, 1500)

    assert found(log) == [(0, 900), (900, 900), (2048, 900), (2948, 500), (4096, 1500)]
    assert walked(log).end == 5596


def test_the_smallest_filler_is_its_head(chunk_bytes: int) -> None:
    log = log_of(FILE_BYTES - BLANK_SIZE, 100)

    assert found(log) == [(0, FILE_BYTES - BLANK_SIZE), (FILE_BYTES, 100)]


def test_a_log_may_end_with_filler(chunk_bytes: int) -> None:
    log = log_of(1500)
    log[1500:1508] = encode_blank(FILE_BYTES - 1500)

    walk = walked(log)

    assert (walk.end, walk.ending, walk.records) == (FILE_BYTES, ScanEnd.NO_MORE, 1)
    assert walked(log + bytes(FILE_BYTES)).end == FILE_BYTES


@pytest.mark.parametrize("sys_flag", [0, SysFlag.BORN_HOST_V6, SysFlag.STORE_HOST_V6, 0x30])
def test_records_may_be_larger_than_a_chunk_and_cross_chunks(chunk_bytes: int, sys_flag: int) -> None:
    sizes = [150, 1000, 131, 300, 1800, 129, 130, 500, 2040]

    log = log_of(*sizes, sys_flag=sys_flag)

    assert [size for _, size in found(log)] == sizes
    assert walked(log).ending is ScanEnd.NO_MORE


def test_long_topics_and_properties_are_valid(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_scan, "CHUNK_BYTES", SMALLEST_CHUNK)
    log = record(0, 1500, topic=b"t" * 250, properties=b"P\x01" + b"v" * 1100 + b"\x02").ljust(FILE_BYTES, b"\0")

    assert found(log) == [(0, 1500)]


@given(sizes=st.lists(st.integers(110, FILE_BYTES - BLANK_SIZE), max_size=20), chunk=st.integers(SMALLEST_CHUNK, 3000))
def test_any_log_is_scanned_completely(sizes: list[int], chunk: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log_scan, "CHUNK_BYTES", chunk)
        log = log_of(*sizes)

        walk = walked(log)

        assert [size for _, size in found(log)] == sizes
        assert (walk.ending, walk.records) == (ScanEnd.NO_MORE, len(sizes))


def test_a_scan_may_start_at_any_record() -> None:
    log = log_of(100, 300, 1700, 200)

    assert found(log, 100) == [(100, 300), (2048, 1700), (2048 + 1700, 200)]
    assert found(log, 2048) == [(2048, 1700), (2048 + 1700, 200)]


@pytest.mark.parametrize("stop", [400, 550, 2048, 2048 + 1600])
def test_a_scan_ends_at_the_given_offset(stop: int) -> None:
    log = log_of(100, 300, 150, 1600, 200)
    walk = RecoveryScan(Reads(log), FILE_BYTES, 0, stop)

    offsets = [offset for offset, _ in walk]

    assert offsets == [offset for offset, _ in found(log) if offset < stop]
    assert (walk.ending, walk.end) == (ScanEnd.NO_MORE, stop)


def test_an_interrupted_scan_knows_the_end_of_the_returned_records() -> None:
    walk = RecoveryScan(Reads(log_of(100, 300, 150)), FILE_BYTES, 0, FILE_BYTES)

    for offset, _ in walk:
        if offset == 100:
            break

    assert (walk.end, walk.records) == (400, 2)


# damage


FIELDS = {
    "size": (0, 4),
    "magic": (4, 8),
    "checksum": (8, 12),
    "log offset": (28, 36),
    "body length": (84, 88),
    "body": (88, 288),
    "topic length": (288, 289),
    "properties length": (294, 296),
}
"""Where a record of 300 bytes has what must be right."""


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("flip", [0x01, 0x04, 0x80, 0xFF])
def test_a_flipped_bit_is_detected_and_ends_the_scan(chunk_bytes: int, field: str, flip: int) -> None:
    log = log_of(100, 300, 150, 1800)
    begin, end = FIELDS[field]

    for at in range(begin, end, max(1, (end - begin) // 8)):
        damaged = log.copy()
        damaged[100 + at] ^= flip
        walk = walked(damaged)

        assert (walk.end, walk.records, walk.ending) == (100, 1, ScanEnd.DAMAGE), at
        assert walk.reason.startswith("at log offset 100: ")


@pytest.mark.parametrize(
    ("at", "flip", "reason"),
    [
        (2, 0x04, "size 1324, but its fields end after 300 of 1948 bytes"),
        (5, 0xFF, "magic 0xda5c20a7"),
        (10, 0x04, "a wrong body checksum"),
        (35, 0x04, "the record contains log offset 96"),
        (86, 0x04, "size 300, but its fields end after 1315 of 1948 bytes"),
        (84, 0x04, "only 1948 bytes"),
        (100, 0x04, "a wrong body checksum"),
        (288, 0x80, "size 300, but its fields end after 424 of 1948 bytes"),
        (294, 0x04, "size 300, but its fields end after 1324 of 1948 bytes"),
    ],
)
def test_the_reason_for_the_end_names_the_problem(at: int, flip: int, reason: str) -> None:
    log = log_of(100, 300)
    log[100 + at] ^= flip

    assert walked(log).reason == f"at log offset 100: {reason}"


def test_a_topic_that_is_not_utf8_is_damage() -> None:
    log = log_of(100, 300)
    log[389] = 0xFF

    walk = walked(log)

    assert (walk.end, walk.reason) == (100, "at log offset 100: a topic that is not UTF-8")


def test_a_record_with_another_log_offset_is_damage() -> None:
    log = log_of(100, 300)
    log[400:600] = record(0, 200)

    walk = walked(log)

    assert (walk.end, walk.ending) == (400, ScanEnd.DAMAGE)
    assert walk.reason == "at log offset 400: the record contains log offset 0"


def test_without_checksums_only_the_structure_is_checked() -> None:
    log = log_of(100, 300, 150)
    log[200] ^= 0xFF

    assert walked(log).end == 100
    assert walked(log, check_crc=False).end == 550


@pytest.mark.parametrize("room", [FILE_BYTES - 551, FILE_BYTES - 549, 0, 0xFFFFFFFF])
def test_filler_that_does_not_reach_the_end_of_its_file_is_damage(chunk_bytes: int, room: int) -> None:
    log = log_of(100, 300, 150, 1800)
    log[550:558] = encode_blank(room)

    walk = walked(log)

    assert (walk.end, walk.ending) == (550, ScanEnd.DAMAGE)
    assert walk.reason == f"at log offset 550: magic {MAGIC_BLANK:#010x}"


def test_nothing_after_a_gap_is_returned(chunk_bytes: int) -> None:
    log = log_of(100, 300, 150, 200, 1500)
    log[100:400] = bytes(300)

    walk = walked(log)

    assert (walk.end, walk.records, walk.ending, walk.reason) == (100, 1, ScanEnd.NO_MORE, "")


@pytest.mark.parametrize("lost", [(104, 512), (112, 400), (250, 300), (101, 104)])
def test_a_torn_record_is_damage(chunk_bytes: int, lost: tuple[int, int]) -> None:
    log = log_of(100, 300)
    log[slice(*lost)] = bytes(lost[1] - lost[0])

    walk = walked(log)

    assert (walk.end, walk.records, walk.ending) == (100, 1, ScanEnd.DAMAGE)


def test_the_next_file_is_not_read_when_the_log_ends_in_this_one() -> None:
    log = log_of(100, 1900, 300)
    log[5] ^= 0xFF
    reads = Reads(log)

    assert list(RecoveryScan(reads, FILE_BYTES, 0, len(log))) == []

    assert all(offset + size <= FILE_BYTES for offset, size in reads.reads)


@pytest.mark.parametrize("sys_flag", [0, SysFlag.BORN_HOST_V6, SysFlag.STORE_HOST_V6, 0x30])
@pytest.mark.parametrize(("more", "worth_reading"), [(0, True), (1, False), (100_000, False), (0xF0000000, False)])
def test_an_impossible_size_is_not_read(
    monkeypatch: pytest.MonkeyPatch, sys_flag: int, more: int, worth_reading: bool
) -> None:
    monkeypatch.setattr(log_scan, "CHUNK_BYTES", SMALLEST_CHUNK)
    largest = record_size(0xFFFF, 200_000, 0xFFFF, sys_flag)
    body_and_head = record_size(len(b"Topic"), 200_000, len(b"K\x01v\x02"), sys_flag)
    log = bytearray(record(0, body_and_head, sys_flag=sys_flag).ljust(2**20, b"\0"))
    log[0:4] = (largest + more).to_bytes(4, "big")
    reads = Reads(log, file_bytes=len(log))
    walk = RecoveryScan(reads, len(log), 0, len(log))

    assert list(walk) == []

    assert (walk.end, walk.ending) == (0, ScanEnd.DAMAGE)
    assert reads.reads == [(0, SMALLEST_CHUNK)] + ([(0, largest)] if worth_reading else [])


@pytest.mark.parametrize("sys_flag", [0, SysFlag.BORN_HOST_V6, SysFlag.STORE_HOST_V6, 0x30])
def test_a_record_larger_than_a_chunk_is_read_again_completely(sys_flag: int) -> None:
    log = record(0, 1_500_000, sys_flag=sys_flag)
    log = (log + record(len(log), 200, sys_flag=sys_flag)).ljust(2**21, b"\0")
    reads = Reads(log, file_bytes=len(log))

    sizes = [message.size for _, message in RecoveryScan(reads, len(log), 0, len(log))]

    assert sizes == [1_500_000, 200]
    rest = 2**21 - 1_500_000
    assert reads.reads == [(0, 2**20), (0, 1_500_000), (1_500_000, rest)]


@pytest.mark.parametrize("missing", [1, FILE_BYTES - 551, FILE_BYTES - 550, FILE_BYTES - 549, FILE_BYTES - 101, 2000])
def test_a_too_short_file_ends_the_scan(chunk_bytes: int, missing: int) -> None:
    log = log_of(100, 300, 150)
    walk = RecoveryScan(Reads(log, missing), FILE_BYTES, 0, len(log))

    offsets = [offset for offset, _ in walk]

    whole = [(0, 100), (100, 300), (400, 150)]
    expected = [offset for offset, size in whole if offset + size <= len(log) - missing]
    assert offsets == expected
    assert walk.end == sum(size for _, size in whole[: len(expected)])


def test_random_bytes_are_never_a_record(chunk_bytes: int) -> None:
    log = log_of(100)
    log[100:] = bytes((index * 37 + 11) % 256 for index in range(FILE_BYTES - 100))

    walk = walked(log)

    assert (walk.end, walk.ending) == (100, ScanEnd.DAMAGE)


def test_the_caller_of_a_scan_may_reject_the_returned_record() -> None:
    walk = RecoveryScan(Reads(log_of(100, 300, 150)), FILE_BYTES, 0, FILE_BYTES)

    for offset, _ in walk:
        if offset == 100:
            walk.refuse(offset, "it is not wanted")
            break

    assert (walk.end, walk.records, walk.ending) == (100, 1, ScanEnd.DAMAGE)
    assert walk.reason == "at log offset 100: it is not wanted"


# logs that were really written


def test_a_log_of_the_store_is_scanned_in_order() -> None:
    disk = LogOnDisk(prepared_files=4).begin()
    written = disk.turn(100, 2000, 3000, 500) + disk.turn(4000, SMALLEST)
    log = disk.log

    walk = RecoveryScan(lambda at, size: bytes(log.view(at, size)), log.segments.file_bytes, log.start, log.written)

    assert [offset for offset, _ in walk] == written
    assert (walk.end, walk.ending) == (log.written, ScanEnd.NO_MORE)


def walk_of(folder: Path, file_bytes: int) -> RecoveryScan:
    def read(offset: int, size: int) -> bytes:
        return read_log(folder, file_bytes, offset, size)

    files = takewhile(lambda first: (folder / "commitlog" / f"{first:020d}").exists(), count(0, file_bytes))
    return RecoveryScan(read, file_bytes, 0, max(files) + file_bytes)


@needs_golden
@pytest.mark.parametrize(("version", "kind"), STORES)
def test_the_log_of_apaches_broker_is_scanned_to_its_end(
    version: str, kind: str, tmp_path: Path, chunk_bytes: int
) -> None:
    settings = restore(version, kind, tmp_path)
    in_use = {int(path.name): path.read_bytes().rstrip(b"\0") for path in (tmp_path / "commitlog").iterdir()}
    last_byte = max(first + len(data) for first, data in in_use.items() if data)

    walk = walk_of(tmp_path, settings.log_file_bytes)
    messages = [message for _, message in walk]

    assert (walk.ending, walk.reason) == (ScanEnd.NO_MORE, "")
    assert walk.end == last_byte
    assert {message.topic for message in messages} >= {
        "StoreA",
        "StoreB",
        "SCHEDULE_TOPIC_XXXX",
        "RMQ_SYS_TRANS_HALF_TOPIC",
    }


def flip_byte(path: Path, at: int) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        (old,) = file.read(1)
        file.seek(at)
        file.write(bytes([old ^ 0x10]))


@needs_golden
@pytest.mark.parametrize("at", [4, 10, 30, 86, 90])
@pytest.mark.parametrize("number", [0, 20, 60])
def test_damage_in_the_log_of_apaches_broker_is_found_at_its_record(tmp_path: Path, number: int, at: int) -> None:
    settings = restore("5.3.3", "clean", tmp_path)
    records = list(walk_of(tmp_path, settings.log_file_bytes))
    offset, _ = records[number]
    first = offset // settings.log_file_bytes * settings.log_file_bytes
    flip_byte(tmp_path / "commitlog" / f"{first:020d}", offset - first + at)

    walk = walk_of(tmp_path, settings.log_file_bytes)

    assert [at for at, _ in walk] == [at for at, _ in records[:number]]
    assert (walk.ending, walk.end) == (ScanEnd.DAMAGE, offset)

"""The index builder: every message of the log is indexed, in slices."""

import errno
from collections.abc import Callable
from functools import partial
from pathlib import Path

import msgspec
import pytest
from tests.golden import needs_golden
from tests.store.golden_store import STORES, read_log, restore

from pocketmq.clock import SystemClock
from pocketmq.codes import SysFlag
from pocketmq.files import DiskFiles
from pocketmq.protocol.record import encode_blank, encode_record
from pocketmq.store.index import index_builder
from pocketmq.store.index.index_builder import IndexBuilder
from pocketmq.store.index.key_index import KeyIndex
from pocketmq.store.log.log_scan import RecoveryScan
from pocketmq.store.settings import StoreSettings
from pocketmq.testing import FakeClock, FaultyFiles
from pocketmq.testing.fake_clock import START_MS

pytestmark = pytest.mark.usefixtures("twin")

ROOT = Path("/store")
FILE_BYTES = 4096
FOREVER = 2**62
V4, V6 = bytes(8), bytes(20)


class Log:
    """A log in memory with a builder behind it."""

    def __init__(self, **changes: int) -> None:
        settings = StoreSettings(folder=ROOT, index_slots=100, index_entries=1000)
        self.files = FaultyFiles()
        self.files.make_dir(ROOT)
        self.index = KeyIndex(msgspec.structs.replace(settings, **changes), self.files, FakeClock())
        self.index.load()
        self.data = bytearray()
        self.start = 0
        self.builder = IndexBuilder(self.index, self.read, FILE_BYTES)

    def read(self, offset: int, size: int) -> memoryview:
        assert self.start <= offset
        assert offset // FILE_BYTES == (offset + size - 1) // FILE_BYTES, "not beyond one file"
        assert offset + size <= len(self.data)
        return memoryview(bytes(self.data))[offset : offset + size]

    def append(
        self,
        keys: str,
        *,
        body: bytes = b"body",
        topic: str = "T",
        sys_flag: int = 0,
        born: bytes = V4,
        store: bytes = V4,
    ) -> int:
        at = len(self.data)
        properties = f"KEYS\x01{keys}\x02".encode()
        record = encode_record(
            topic.encode(), 0, 0, at, body, properties, 0, sys_flag, START_MS, born, START_MS + at, store
        )
        room = FILE_BYTES - at % FILE_BYTES
        if len(record) + 8 > room:
            self.data += encode_blank(room).ljust(room, b"\xee")
            return self.append(keys, body=body, topic=topic, sys_flag=sys_flag, born=born, store=store)
        self.data += record
        return at

    def work(self, budget: int = 1000) -> bool:
        more = self.builder.work(self.start, len(self.data), budget)
        while self.index.write_next():
            more = self.builder.work(self.start, len(self.data), budget)
        return more

    def found(self, key: str, topic: str = "T") -> list[int]:
        return self.index.find(topic, key, 0, FOREVER, 64)


@pytest.fixture
def log() -> Log:
    return Log()


def test_messages_are_found_by_key_after_the_builder_ran(log: Log) -> None:
    offsets = [log.append("a"), log.append("b"), log.append("a b")]

    assert log.found("a") == []
    assert not log.work()

    assert log.found("a") == [offsets[2], offsets[0]]
    assert log.found("b") == [offsets[2], offsets[1]]
    assert log.builder.indexed_to == len(log.data)


def test_a_time_slice_ends_with_its_budget(log: Log) -> None:
    offsets = [log.append("a") for _ in range(10)]

    more = [log.work(4), log.work(4), log.work(4), log.work(4)]

    assert more == [True, True, False, False]
    assert log.found("a") == offsets[::-1]


def test_the_backlog_is_the_written_and_unindexed_log(log: Log) -> None:
    offsets = [log.append("a") for _ in range(3)]
    log.work(1)

    assert log.builder.backlog_bytes(len(log.data)) == len(log.data) - offsets[1]
    log.work()
    assert log.builder.backlog_bytes(len(log.data)) == 0
    assert log.builder.backlog_bytes(0) == 0


def test_filler_at_the_end_of_a_file_is_skipped(log: Log) -> None:
    offsets = [log.append("a", body=bytes(1000)) for _ in range(12)]

    assert not log.work()

    assert log.found("a") == offsets[::-1]
    assert log.builder.skipped_bytes == 0


def test_the_smallest_filler_is_skipped(log: Log) -> None:
    first = log.append("a")
    log.append("b", body=bytes(FILE_BYTES - 8 - 2 * log.builder.backlog_bytes(len(log.data)) + 4))
    assert len(log.data) == FILE_BYTES - 8
    last = log.append("a")

    log.work()

    assert log.found("a") == [last, first]


def test_a_record_larger_than_a_chunk_is_indexed(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_builder, "CHUNK_BYTES", 300)
    offsets = [log.append("a", body=bytes(size)) for size in (10, 1000, 100, 299, 200, 3000, 5)]

    assert log.work(5)
    assert not log.work(5)

    assert log.found("a") == offsets[::-1]


@pytest.mark.parametrize(
    ("flags", "born", "store"),
    [
        (SysFlag.BORN_HOST_V6, V6, V4),
        (SysFlag.STORE_HOST_V6, V4, V6),
        (SysFlag.BORN_HOST_V6 | SysFlag.STORE_HOST_V6, V6, V6),
    ],
)
def test_records_with_long_addresses_and_long_topics_are_indexed(
    log: Log, flags: int, born: bytes, store: bytes
) -> None:
    topic = "%RETRY%" + "g" * 140
    first = log.append("a", sys_flag=flags, born=born, store=store)
    second = log.append("a", sys_flag=flags, born=born, store=store, topic=topic)

    log.work()

    assert log.found("a") == [first]
    assert log.found("a", topic) == [second]
    assert log.index.find("T", "a", START_MS + first, START_MS + first, 1) == [first]


def test_rolled_back_messages_are_skipped(log: Log) -> None:
    log.append("a", sys_flag=SysFlag.TRANSACTION_ROLLBACK)
    kept = log.append("a")

    log.work()

    assert log.found("a") == [kept]


def test_indexing_starts_at_the_start_of_the_log(log: Log) -> None:
    offsets = [log.append("a", body=bytes(1500)) for _ in range(6)]
    log.start = FILE_BYTES

    log.work()

    assert log.found("a") == [offset for offset in offsets[::-1] if offset >= FILE_BYTES]


@pytest.mark.parametrize("damage", [b"\0" * 40, b"\xff" * 40, b"\0\0\x10\0"])
def test_damage_ends_the_indexing_of_its_file_and_is_logged(
    log: Log, damage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    offsets = [log.append("a", body=bytes(500)) for _ in range(12)]
    log.data[offsets[3] : offsets[3] + len(damage)] = damage

    assert not log.work()

    assert log.found("a") == [offset for offset in offsets[::-1] if not offsets[3] <= offset < FILE_BYTES]
    assert log.builder.skipped_bytes == FILE_BYTES - offsets[3]
    assert (
        f"no valid record at log offset {offsets[3]}; keys of messages from there to {FILE_BYTES} are not"
        in caplog.text
    )


@pytest.mark.parametrize("at", [84, 85, 88 + 4, 88 + 5 + 1])
def test_a_record_with_inconsistent_lengths_is_damage(log: Log, at: int) -> None:
    log.append("a")
    log.data[at] ^= 0xFF

    assert not log.work()

    assert log.found("a") == []
    assert log.builder.skipped_bytes == len(log.data)


def test_after_a_restart_indexing_continues_at_the_end_of_the_index(log: Log) -> None:
    offsets = [log.append("a b") for _ in range(5)]
    log.work(3)
    log.index.settle(FOREVER, lambda _: None)

    log.index.close()
    log.index.load()
    log.builder = IndexBuilder(log.index, log.read, FILE_BYTES)

    assert log.builder.indexed_to == offsets[2]
    assert not log.work()
    assert log.found("b") == offsets[::-1]
    log.index.settle(FOREVER, lambda _: None)
    assert [file.header.next_number for file in log.index._table] == [11]


def test_a_full_disk_pauses_indexing_and_loses_nothing() -> None:
    log = Log(index_entries=6)
    offsets = [log.append("a b c") for _ in range(8)]
    fault = log.files.fail("create", errno.ENOSPC, nth=3, times=None)

    for _ in range(2):
        with pytest.raises(OSError, match="No space"):
            log.work()
    fault.heal()

    assert not log.work()
    assert log.found("b") == offsets[::-1]
    assert sum(file.header.next_number - 1 for file in log.index._table) == 24


@needs_golden
@pytest.mark.parametrize(("version", "kind"), STORES)
def test_the_index_built_from_a_captured_log_equals_the_captured_index(version: str, kind: str, tmp_path: Path) -> None:
    settings = restore(version, kind, tmp_path / "theirs")
    read = partial(read_log, settings.folder, settings.log_file_bytes)
    log_end = end_of_log(settings, read)
    index = KeyIndex(msgspec.structs.replace(settings, folder=tmp_path), DiskFiles(), SystemClock())
    index.load()

    builder = IndexBuilder(index, read, settings.log_file_bytes)
    while builder.work(0, log_end, 7):
        index.write_next()
    index.settle(log_end, lambda _: None)

    assert files_in(index.folder) == files_in(settings.folder / "index")
    assert builder.skipped_bytes == 0


@needs_golden
@pytest.mark.parametrize(("version", "kind"), STORES)
def test_a_captured_index_finds_every_message_by_its_keys(version: str, kind: str, tmp_path: Path) -> None:
    settings = restore(version, kind, tmp_path)
    read = partial(read_log, settings.folder, settings.log_file_bytes)
    walk = RecoveryScan(read, settings.log_file_bytes, 0, 4 * settings.log_file_bytes)
    index = KeyIndex(settings, DiskFiles(), SystemClock())
    index.load()

    for offset, message in walk:
        keys = {*message.properties.get("KEYS", "").split(" "), message.properties.get("UNIQ_KEY", "")} - {""}
        for key in keys:
            assert offset in index.find(message.topic, key, message.store_ms, message.store_ms, 64)
    assert walk.records > 70


def end_of_log(settings: StoreSettings, read: Callable[[int, int], bytes]) -> int:
    files = len(list((settings.folder / "commitlog").iterdir()))
    walk = RecoveryScan(read, settings.log_file_bytes, 0, files * settings.log_file_bytes)
    for _ in walk:
        pass
    assert not walk.reason
    return walk.end


def files_in(folder: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted(folder.iterdir())]

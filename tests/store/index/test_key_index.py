"""The key index: what is found, in which files, and which files are used after a stop."""

import errno
import logging
from datetime import datetime
from pathlib import Path
from random import Random

import msgspec
import pytest

from pocketmq.codes import SysFlag
from pocketmq.errors import InvalidSetting, StoreDamaged
from pocketmq.model.properties import raw_property
from pocketmq.store.index import key_index
from pocketmq.store.index.index_file import HEADER, IndexFile, IndexShape, key_hash
from pocketmq.store.index.key_index import MAX_FOUND, KeyIndex
from pocketmq.store.settings import StoreSettings
from pocketmq.testing import FakeClock, FaultyFiles
from pocketmq.testing.fake_clock import START_MS

pytestmark = pytest.mark.usefixtures("twin")

ROOT = Path("/store")
FOREVER = 2**62
SETTINGS = StoreSettings(folder=ROOT, index_slots=10, index_entries=11)
"""Ten entries a file."""


class Place:
    """A disk with an index, and messages 100 bytes apart that are stored a second apart."""

    def __init__(self, files: FaultyFiles | None = None) -> None:
        self.files = files or FaultyFiles()
        self.clock = FakeClock()
        self.files.make_dir(ROOT)
        self.files.sync_dir(ROOT.parent)
        self.index = self.open()
        self.saved_ms: list[int] = []

    def open(self, settings: StoreSettings = SETTINGS) -> KeyIndex:
        self.index = KeyIndex(settings, self.files, self.clock)
        self.index.load()
        return self.index

    def message(self, number: int, keys: str = "", *, unique: str = "", topic: str = "T", sys_flag: int = 0) -> None:
        properties = f"TAGS\x01a\x02KEYS\x01{keys}\x02UNIQ_KEY\x01{unique}\x02"
        stored_ms = START_MS + number * 1000
        self.index.put(self.index.keys_of(topic.encode(), properties.encode(), sys_flag, number * 100, stored_ms))

    def messages(self, count: int, keys: str = "k", first: int = 0) -> None:
        for number in range(first, first + count):
            self.message(number, keys)

    def settle(self) -> None:
        self.index.settle(FOREVER, self.saved_ms.append)

    def found(self, key: str, begin_ms: int = 0, end_ms: int = FOREVER, limit: int = 64, topic: str = "T") -> list[int]:
        return self.index.find(topic, key, begin_ms, end_ms, limit)

    @property
    def names(self) -> list[str]:
        return self.files.list(self.index.folder)

    def entry_counts(self) -> list[int]:
        shape = IndexShape(SETTINGS.index_slots, SETTINGS.index_entries)
        paths = [self.index.folder / name for name in self.names]
        return [IndexFile(self.files, path, shape).header.next_number - 1 for path in paths]


@pytest.fixture
def place() -> Place:
    return Place()


def test_a_message_is_found_by_its_unique_key_and_by_each_of_its_keys(place: Place) -> None:
    place.message(1, "red  green", unique="7F0001")
    place.message(2, "green")

    assert place.found("7F0001") == [100]
    assert place.found("red") == [100]
    assert place.found("green") == [200, 100]
    assert place.found("") == []
    assert place.found("red", topic="Other") == []


def test_a_message_without_keys_is_not_indexed(place: Place) -> None:
    place.message(1)

    assert place.index.indexed_to == -1
    assert place.names == []


def test_a_rolled_back_message_is_not_indexed(place: Place) -> None:
    place.message(1, "k", sys_flag=SysFlag.TRANSACTION_ROLLBACK)
    place.message(2, "k", sys_flag=SysFlag.TRANSACTION_COMMIT)
    place.message(3, "k", sys_flag=SysFlag.TRANSACTION_PREPARED)

    assert place.found("k") == [300, 200]


def test_of_two_unique_keys_the_last_is_used_as_in_rocketmq_5(place: Place) -> None:
    properties = b"UNIQ_KEY\x01item\x02TAGS\x01a\x02UNIQ_KEY\x01batch\x02"
    place.index.put(place.index.keys_of(b"T", properties, 0, 100, START_MS))

    assert place.found("batch") == [100]
    assert place.found("item") == []


def test_keys_are_read_from_the_properties_with_any_characters(place: Place) -> None:
    pieces = [b"UNIQ_KEY\x01", b"KEYS\x01", b"X", b"\x01", b"\x02", b"\x02", b"a b", b" ", b"other"]
    random = Random(1)

    for _ in range(5000):
        raw = b"".join(random.choices(pieces, k=random.randrange(9)))
        unique, keys = raw_property(raw, b"UNIQ_KEY"), raw_property(raw, b"KEYS")
        expected = [key for key in (unique, *(keys or b"").split(b" ")) if key]
        hashes = [key_hash("T", key.decode()) for key in expected]
        assert place.index.keys_of(b"T", raw, 0, 7, START_MS) == [(found, 7, START_MS) for found in hashes]


def test_keys_with_the_same_hash_are_found_together(place: Place) -> None:
    assert key_hash("T", "Aa") == key_hash("T", "BB")
    place.message(1, "Aa")
    place.message(2, "BB")

    assert place.found("Aa") == [200, 100]


def test_a_full_file_is_followed_by_another(place: Place) -> None:
    place.messages(25)

    assert len(place.names) == 3
    assert place.found("k") == [number * 100 for number in range(24, -1, -1)]
    place.settle()
    assert place.entry_counts() == [10, 10, 5]
    assert place.found("k") == [number * 100 for number in range(24, -1, -1)]


def test_keys_of_one_message_may_be_in_two_files(place: Place) -> None:
    place.messages(8)
    place.message(8, "a b c d")
    place.settle()

    assert place.entry_counts() == [10, 2]
    assert [place.found(key) for key in "abcd"] == [[800]] * 4


def test_at_most_64_and_at_most_the_requested_number_are_found(place: Place) -> None:
    place.messages(100)

    assert place.found("k", limit=5) == [9900, 9800, 9700, 9600, 9500]
    assert len(place.found("k", limit=1000)) == MAX_FOUND == 64
    assert place.found("k", limit=0) == []
    assert place.found("k", limit=-1) == []


def test_a_time_range_is_searched_over_all_files(place: Place) -> None:
    place.messages(40)

    inside = place.found("k", START_MS + 12_000, START_MS + 17_000)

    assert [offset // 100 for offset in inside] == [17, 16, 15, 14, 13, 12]
    assert place.found("k", START_MS + 40_000) == []
    assert place.found("k", end_ms=START_MS - 1) == []


def test_files_outside_the_time_range_are_not_opened(place: Place) -> None:
    place.messages(40)
    place.settle()
    for name in place.names[1:]:
        place.files.unlink(place.index.folder / name)

    assert place.found("k", end_ms=START_MS + 2_000) == [200, 100, 0]


def test_a_query_that_reads_too_much_returns_a_partial_result_and_logs_it(
    place: Place, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(key_index, "MAX_VISITED", 15)
    place.messages(40)

    assert len(place.found("k")) == 15
    assert "query of key 'k' of T stopped after 15 index entries" in caplog.text


def test_indexed_messages_are_skipped(place: Place) -> None:
    place.messages(12, "a b")

    place.messages(14, "a b")
    place.settle()

    assert place.entry_counts() == [10, 10, 8]
    assert place.found("b") == [number * 100 for number in range(13, -1, -1)]


def test_files_are_named_by_their_creation_time(place: Place) -> None:
    place.clock.advance_ms(7)
    place.messages(1)

    assert place.names == [f"{datetime.fromtimestamp(START_MS // 1000):%Y%m%d%H%M%S}007"]


def test_file_names_increase_even_if_the_clock_goes_back(place: Place) -> None:
    place.messages(11)
    place.clock.step_ms(-3_600_000)
    place.messages(10, first=11)
    place.clock.step_ms(7_200_000)
    place.messages(10, first=21)

    numbers = [int(name) for name in place.names]
    assert numbers[1] == numbers[0] + 1
    assert numbers[2] == numbers[0] + 2
    assert numbers[3] > numbers[0] + 3
    assert place.found("k", limit=3) == [3000, 2900, 2800]


def test_an_existing_file_name_is_not_used(place: Place) -> None:
    place.messages(1)
    (name,) = place.names
    other = Place()
    other.files.make_dir(other.index.folder / name)
    other.open()

    other.messages(1)

    assert other.names == [name, str(int(name) + 1)]
    assert other.index.foreign == [other.index.folder / name]


def test_foreign_files_are_listed_and_not_changed(place: Place) -> None:
    strange = ["20260101", "20269901000000000", "2026010100000000x", "notes.txt"]
    for name in strange:
        place.files.open(place.index.folder / name, create=True).close()

    place.open()
    place.messages(1)

    assert [path.name for path in place.index.foreign] == sorted(strange)
    assert set(strange) < set(place.names)


@pytest.mark.parametrize(("slots", "entries"), [(0, 100), (100, 1), (100, 0)])
def test_an_index_without_entries_is_refused(slots: int, entries: int) -> None:
    settings = msgspec.structs.replace(SETTINGS, index_slots=slots, index_entries=entries)

    with pytest.raises(InvalidSetting, match="index_slots must be at least 1, and index_entries at least 2"):
        KeyIndex(settings, FaultyFiles(), FakeClock())


@pytest.mark.parametrize(("slots", "entries"), [(2**29, 100), (100, 2**63 - 1)])
def test_an_index_above_the_file_size_limit_is_refused(slots: int, entries: int) -> None:
    settings = msgspec.structs.replace(SETTINGS, index_slots=slots, index_entries=entries)

    with pytest.raises(InvalidSetting, match="the limit is 2147483647"):
        KeyIndex(settings, FaultyFiles(), FakeClock())


def test_a_file_with_other_settings_is_refused(place: Place) -> None:
    place.messages(1)
    place.settle()

    with pytest.raises(
        StoreDamaged, match="Set index_slots and index_entries to the values that the file was created with"
    ):
        place.open(msgspec.structs.replace(SETTINGS, index_entries=12))


# to the disk


def test_a_closed_index_is_the_same_after_a_restart(place: Place) -> None:
    place.messages(25, "a b")
    place.settle()
    before = {name: place.files.read(place.index.folder / name) for name in place.names}
    place.index.close()

    place.open()

    assert place.index.indexed_to == 2400
    assert place.index.newest_ms == START_MS + 24_000
    assert place.found("b", limit=3) == [2400, 2300, 2200]
    place.messages(26, "a b")
    place.settle()
    assert place.found("b", limit=3) == [2500, 2400, 2300]
    assert all(place.files.read(place.index.folder / name) == before[name] for name in list(before)[:-1])


def test_a_flush_syncs_one_file_at_a_time_and_new_names(place: Place) -> None:
    place.messages(15)
    first, second = (place.index.folder / name for name in place.names)

    asked = [place.index.flush(FOREVER, FOREVER) for _ in range(7)]

    assert asked == [[first, place.index.folder], [first], [first], [second], [second], [second], []]


def test_the_checkpoint_covers_only_written_keys(place: Place) -> None:
    place.messages(3)

    times = []
    for _ in range(3):
        place.index.flush(FOREVER, 0)
        times.append(place.index.newest_ms)

    assert times == [0, 0, START_MS + 2000]
    assert place.index.flush(FOREVER, 0) == []
    assert place.index.flush(FOREVER, START_MS + 2000)


def test_a_clean_stop_saves_the_checkpoint_before_it_writes_headers(place: Place) -> None:
    place.messages(15)

    place.settle()

    assert place.saved_ms == [START_MS + 9000, START_MS + 14_000]
    assert place.entry_counts() == [10, 5]
    lost = place.files.crash(Random(1), survives="nothing")
    assert Place(lost).found("k", limit=1) == [1400]


def test_a_full_disk_loses_nothing(place: Place) -> None:
    place.messages(9)
    fault = place.files.fail("create", errno.ENOSPC, times=None)

    for _ in range(2):
        with pytest.raises(OSError, match="No space"):
            place.message(9, "a b c")
    fault.heal()
    place.message(9, "a b c")
    place.messages(3, first=10)
    place.settle()

    assert place.entry_counts() == [10, 5]
    assert [place.found(key) for key in "abc"] == [[900]] * 3


def test_a_temporarily_unreadable_disk_loses_nothing(place: Place) -> None:
    place.open(msgspec.structs.replace(SETTINGS, index_slots=5000, index_entries=100))
    place.message(0, "a b")
    keys = [f"key{number**5}" for number in range(40)]
    place.files.fail("read", errno.EIO, nth=2)

    with pytest.raises(OSError, match="Input/output"):
        place.message(1, " ".join(keys))
    place.message(1, " ".join(keys))
    place.message(2, " ".join(keys))

    assert [place.found(key) for key in keys] == [[200, 100]] * 40
    assert sum(file.header.next_number - 1 for file in place.index._table) == 82


def test_retention_removes_files_of_deleted_messages(place: Place) -> None:
    place.messages(35)
    place.settle()
    names = place.names

    assert place.index.drop_before(900) == 0
    assert place.index.drop_before(901) == 1
    assert place.index.drop_before(FOREVER) == 2
    assert place.names == names[3:]
    assert place.found("k") == [3400, 3300, 3200, 3100, 3000]


def test_an_unsynced_file_is_not_deleted(place: Place) -> None:
    place.messages(15)

    assert place.index.drop_before(FOREVER) == 0


# after a stop


def recovered(place: Place, log_end: int = FOREVER, crashed_at_ms: int | None = None) -> int:
    place.index = KeyIndex(SETTINGS, place.files, place.clock)
    return place.index.recover(0, log_end, crashed_at_ms=crashed_at_ms)


def test_after_a_clean_stop_all_files_are_kept(place: Place) -> None:
    place.messages(25)
    place.settle()

    assert recovered(place) == 0
    assert place.index.indexed_to == 2400


def test_after_a_crash_files_newer_than_the_checkpoint_are_discarded(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    place.messages(35)
    place.settle()
    names = place.names

    assert recovered(place, crashed_at_ms=START_MS + 19_000) == 2

    assert place.names == names[:2]
    assert place.index.indexed_to == 1900
    assert (
        f"removed 2 index files that may be wrong, from {place.index.folder / names[2]} on; rebuilding them from the log"
        in caplog.text
    )


def test_files_with_entries_beyond_the_log_are_discarded(place: Place) -> None:
    place.messages(25)
    place.settle()

    assert recovered(place, log_end=1900) == 2
    assert place.index.indexed_to == 900
    assert recovered(place, log_end=901) == 0
    assert recovered(place, log_end=0) == 1
    assert place.names == []


@pytest.mark.parametrize("crashed_at_ms", [None, FOREVER])
def test_a_damaged_header_is_detected_and_its_file_rebuilt(
    place: Place, crashed_at_ms: int | None, caplog: pytest.LogCaptureFixture
) -> None:
    place.messages(25)
    place.settle()
    damaged = place.index.folder / place.names[1]
    with place.files.open(damaged) as file:
        file.write_at(0, HEADER.pack(1, 2, 3, 4, 5, 2**30))

    assert recovered(place, crashed_at_ms=crashed_at_ms) == 2

    assert f"invalid header of {damaged}: it counts {2**30 - 1} entries in 5 slots" in caplog.text
    assert place.index.indexed_to == 900
    place.messages(25)
    assert place.found("k") == [number * 100 for number in range(24, -1, -1)]


def test_a_file_with_invalid_slots_is_rebuilt_after_a_crash(place: Place) -> None:
    place.messages(5)
    place.settle()
    with place.files.open(place.index.folder / place.names[0]) as file:
        file.write_at(40, b"\0\0\0\x09" * 10)

    assert recovered(place, crashed_at_ms=FOREVER) == 1
    assert place.names == []


def test_a_file_left_short_by_a_crash_is_used(place: Place) -> None:
    place.messages(12)
    place.index.close()
    with place.files.open(place.index.folder / place.names[-1]) as file:
        file.truncate(0)

    assert recovered(place, crashed_at_ms=0) == 0
    place.messages(12)
    place.settle()

    assert sum(place.entry_counts()) == 12
    assert place.found("k") == [number * 100 for number in range(11, -1, -1)]


def test_files_before_the_start_of_the_log_are_removed_by_recovery(place: Place) -> None:
    place.messages(25)
    place.settle()
    place.index = KeyIndex(SETTINGS, place.files, place.clock)

    assert place.index.recover(1500, FOREVER, crashed_at_ms=None) == 0
    assert len(place.names) == 2


def test_a_clean_recovery_logs_nothing(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    place.messages(25)
    place.settle()
    caplog.set_level(logging.DEBUG)

    recovered(place, crashed_at_ms=FOREVER)

    assert caplog.text == ""

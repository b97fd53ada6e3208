"""The scan: finds every valid record, with any bytes between them."""

from random import Random

import pytest
from tests.store.made_store import LOG_FILE_BYTES, ROOT, MadeStore

from pocketmq.model.message import StoredMessage
from pocketmq.protocol.record import encode_record
from pocketmq.store.log.log_scan import LogScan, Tail, Unreadable, list_log_files, nonzero_range, written_bytes

LOG = ROOT / "commitlog"


def scan(store: MadeStore) -> tuple[list[int], list[Unreadable], LogScan]:
    """Offsets of the records, what is unreadable, and the scan itself."""
    scan = LogScan(store.files, list_log_files(store.files, LOG), LOG_FILE_BYTES)
    found = list(scan)
    records = [item.log_offset for item in found if isinstance(item, StoredMessage)]
    return records, [item for item in found if isinstance(item, Unreadable)], scan


@pytest.fixture
def store() -> MadeStore:
    return MadeStore().fill()


def test_a_valid_log_is_scanned_as_its_records(store: MadeStore) -> None:
    records, holes, done = scan(store)

    assert records == list(store.records)
    assert holes == []
    assert (done.end, done.ending, done.tails) == (store.end, "only zeros", [])


def test_an_empty_log_ends_at_its_start() -> None:
    store = MadeStore()

    assert scan(store)[:2] == ([], [])
    store.write_log(5 * LOG_FILE_BYTES, b"")
    assert scan(store)[2].end == 5 * LOG_FILE_BYTES


def test_every_record_except_the_damaged_one_is_found_for_any_damaged_byte(store: MadeStore) -> None:
    random = Random(3)
    whole = store.read(store.log_path(0))
    in_file = [at for at in store.records if at < LOG_FILE_BYTES]
    for at in random.sample(in_file[:-1], 5):
        store.write(store.log_path(0), random.randbytes(4), at + 4)

        records, holes, _ = scan(store)

        following = min(offset for offset in store.records if offset > at)
        assert records == [offset for offset in store.records if offset != at]
        assert [(hole.begin, hole.end) for hole in holes] == [(at, following)]
        store.write(store.log_path(0), whole)


def test_a_copy_of_a_record_at_another_offset_is_not_a_record(store: MadeStore) -> None:
    at, second = list(store.records)[:2]
    inner = encode_record(b"T", 0, 0, at + 1, b"", b"", 0, 0, 0, bytes(8), 0, bytes(8))
    store.write(store.log_path(0), bytes(8), at)
    store.write(store.log_path(0), inner, at + 20)

    records, [hole], _ = scan(store)

    assert (hole.begin, hole.end) == (at, second)
    assert at + 20 not in records


def test_the_rest_of_a_file_is_lost_if_a_later_file_has_records(store: MadeStore) -> None:
    at = [at for at in store.records if at < LOG_FILE_BYTES][-3]
    store.write(store.log_path(0), bytes(LOG_FILE_BYTES - at), at)

    records, [hole], _ = scan(store)

    assert hole == Unreadable(at, LOG_FILE_BYTES, "only zeros", LOG / f"{0:020d}")
    assert records == [offset for offset in store.records if offset < at or offset >= LOG_FILE_BYTES]


def test_a_missing_file_is_a_gap_without_a_path(store: MadeStore) -> None:
    store.unlink(store.log_path(LOG_FILE_BYTES))

    _, holes, _ = scan(store)

    assert holes == [Unreadable(LOG_FILE_BYTES, 2 * LOG_FILE_BYTES, "its file is missing", None)]


def test_a_short_file_is_read_to_its_end(store: MadeStore) -> None:
    at = [at for at in store.records if at < LOG_FILE_BYTES][-1]
    store.truncate(store.log_path(0), at)

    records, [hole], _ = scan(store)

    assert records == [offset for offset in store.records if offset != at]
    assert (hole.begin, hole.end, hole.reason) == (at, LOG_FILE_BYTES, "the file ends here")


def test_a_file_truncated_in_its_filler_is_complete(store: MadeStore) -> None:
    filler = max(at + len(raw) for at, raw in store.records.items() if at < LOG_FILE_BYTES)
    store.truncate(store.log_path(0), filler + 8)

    records, holes, _ = scan(store)

    assert records == list(store.records)
    assert holes == []


def test_bytes_after_the_end_are_reported_with_their_range(store: MadeStore) -> None:
    later = store.log_path(store.end + LOG_FILE_BYTES)
    store.write(store.log_path(store.end), b"\0\0xyz\0", store.end % LOG_FILE_BYTES + 100)
    store.write(later, b"more", 7, LOG_FILE_BYTES)

    _, holes, done = scan(store)

    at = store.end % LOG_FILE_BYTES
    assert holes == []
    assert done.end == store.end
    assert done.tails == [Tail(ROOT / store.log_path(store.end), at + 102, at + 105), Tail(ROOT / later, 7, 11)]


def test_a_torn_last_record_is_the_end_and_its_reason(store: MadeStore) -> None:
    at = max(store.records)
    store.flip(store.log_path(at), at % LOG_FILE_BYTES + 9)

    records, holes, done = scan(store)

    assert (records[-1] < at, holes) == (True, [])
    assert (done.end, done.ending) == (at, "a wrong body checksum")


def test_prepared_empty_files_are_not_part_of_the_log(store: MadeStore) -> None:
    store.write(store.log_path(5 * LOG_FILE_BYTES), b"", size=LOG_FILE_BYTES)

    files = list_log_files(store.files, LOG)

    assert (
        written_bytes(store.files, files) == len([file for file in files if file.first <= store.end]) * LOG_FILE_BYTES
    )


def test_only_names_of_twenty_digits_are_log_files(store: MadeStore) -> None:
    for name in ("x", "0" * 19, "9" * 20, "٠" * 20):
        store.write(f"commitlog/{name}", b"x")
    store.files.make_dir(LOG / f"{9 * LOG_FILE_BYTES:020d}")

    assert all(file.first <= store.end for file in list_log_files(store.files, LOG))


def test_the_range_of_nonzero_bytes_is_found(store: MadeStore) -> None:
    store.write("notes", b"\0\0a\0\0b\0\0")
    with store.files.open(ROOT / "notes") as file:
        assert nonzero_range(file, 0, 8) == (2, 6)
        assert nonzero_range(file, 3, 8) == (5, 6)
        assert nonzero_range(file, 3, 5) is None
        assert nonzero_range(file, 6, 100) is None

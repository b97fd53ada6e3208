"""What a verification finds in a log that is damaged."""

import pytest
from tests.store.made_store import LOG_FILE_BYTES, MadeStore

from pocketmq.store.tools.findings import Kind


@pytest.fixture
def store() -> MadeStore:
    return MadeStore().fill()


def a_record(store: MadeStore, number: int = 6) -> tuple[int, int]:
    """The start and end of a record in the middle."""
    at = list(store.records)[number]
    return at, at + len(store.records[at])


@pytest.mark.parametrize(
    ("field", "at"),
    [("size", 3), ("magic", 5), ("checksum", 9), ("log offset", 35), ("body length", 87), ("body", 100)],
)
def test_a_flipped_bit_in_a_record_is_damage_from_its_start_to_the_next_record(
    store: MadeStore, field: str, at: int
) -> None:
    begin, end = a_record(store)

    store.flip(store.log_path(begin), begin + at)

    assert store.told() == [("log-record", store.log_path(begin), begin, end)], field


def test_a_flipped_bit_in_the_last_record_is_damage_because_its_queue_has_an_entry(store: MadeStore) -> None:
    begin, end = a_record(store, -1)

    store.flip(store.log_path(begin), begin % LOG_FILE_BYTES + 100)

    first = begin // LOG_FILE_BYTES * LOG_FILE_BYTES
    assert store.told() == [("log-record", store.log_path(begin), begin - first, end - first)]


def test_a_flipped_bit_in_filler_is_damage_up_to_the_end_of_the_file(store: MadeStore) -> None:
    filler = max(at + len(raw) for at, raw in store.records.items() if at < LOG_FILE_BYTES)

    store.flip(store.log_path(0), filler + 5)

    assert store.told() == [("log-record", store.log_path(0), filler, LOG_FILE_BYTES)]


def test_bytes_after_the_head_of_filler_are_ignored(store: MadeStore) -> None:
    filler = max(at + len(raw) for at, raw in store.records.items() if at < LOG_FILE_BYTES)

    store.write(store.log_path(0), b"anything", filler + 8)

    assert store.findings() == []


def test_a_flipped_queue_offset_is_detected_by_the_queue(store: MadeStore) -> None:
    begin, end = a_record(store)

    store.flip(store.log_path(begin), begin + 27, bit=3)

    [finding] = store.findings()
    assert (finding.kind, finding.begin, finding.end) == (Kind.LOG_ORDER, begin, end)
    assert "it says that it is message" in finding.text


def test_a_flipped_queue_id_is_detected_by_the_queue(store: MadeStore) -> None:
    begin, end = a_record(store)

    store.flip(store.log_path(begin), begin + 14, bit=3)

    assert store.told() == [("log-order", store.log_path(begin), begin, end)]


def test_a_flipped_key_is_detected_by_the_index(store: MadeStore) -> None:
    begin, _ = a_record(store)
    key = store.records[begin].index(b"KEYS\x01k") + 5

    store.flip(store.log_path(begin), begin + key)

    assert store.told() == [("log-changed", store.log_path(begin), begin, None)]


def test_a_wrong_checksum_of_the_complete_record_is_damage() -> None:
    store = MadeStore()
    at = store.append(properties="__CRC32#\x010123456789\x02")
    store.derive()

    assert store.told() == [("log-record", store.log_path(at), at, store.end)]


def test_zeros_in_the_middle_of_the_log_are_damage(store: MadeStore) -> None:
    begin, _ = a_record(store, 3)
    _, end = a_record(store, 6)

    store.write(store.log_path(begin), bytes(end - begin), begin)

    [finding] = store.findings()
    assert (finding.kind, finding.begin, finding.end) == (Kind.LOG_RECORD, begin, end)
    assert finding.text.endswith("only zeros")


def test_a_truncated_log_file_is_one_finding(store: MadeStore) -> None:
    store.truncate(store.log_path(0), 3000)

    [finding] = store.findings()
    assert (finding.kind, finding.path, finding.begin, finding.end) == (
        Kind.LOG_FILE_SIZE,
        store.log_path(0),
        0,
        3000,
    )
    assert "3000 bytes instead of 4096, so the log has nothing from 3000 to 4096" in finding.text


def test_a_newest_log_file_truncated_after_the_end_is_one_finding(store: MadeStore) -> None:
    store.truncate(store.log_path(store.end), store.end % LOG_FILE_BYTES)

    assert [finding.kind for finding in store.findings()] == [Kind.LOG_FILE_SIZE]


def test_a_missing_log_file_is_one_finding(store: MadeStore) -> None:
    store.unlink(store.log_path(LOG_FILE_BYTES))

    assert store.told() == [("log-file-missing", store.log_path(LOG_FILE_BYTES), None, None)]


def test_an_empty_newest_log_file_is_a_note(store: MadeStore) -> None:
    store.write(store.log_path(3 * LOG_FILE_BYTES), b"")

    assert store.told() == [("log-file-unfinished", store.log_path(3 * LOG_FILE_BYTES), None, None)]


def test_a_log_without_its_last_records_is_damage_because_queues_have_entries(store: MadeStore) -> None:
    begin, _ = a_record(store, -2)
    first = begin // LOG_FILE_BYTES * LOG_FILE_BYTES

    store.write(store.log_path(begin), bytes(store.end - begin), begin - first)

    assert store.told() == [("log-lost-tail", store.log_path(begin), begin - first, None)]


def test_a_log_without_files_is_damage_if_the_checkpoint_covers_messages(store: MadeStore) -> None:
    store.remove_tree("commitlog")
    store.remove_tree("consumequeue")

    assert ("log-lost-tail", "commitlog", 0, None) in store.told()


def test_a_log_shorter_than_the_checkpoint_is_damage_also_after_a_crash(store: MadeStore) -> None:
    begin, _ = a_record(store, -1)
    first = begin // LOG_FILE_BYTES * LOG_FILE_BYTES
    store.write("abort", b"1")

    store.write(store.log_path(begin), bytes(store.end - begin), begin - first)

    assert ("log-lost-tail", store.log_path(begin), begin - first, None) in store.told()


def test_unknown_bytes_after_the_end_are_a_note_with_their_range(store: MadeStore) -> None:
    first = store.end // LOG_FILE_BYTES * LOG_FILE_BYTES

    store.write(store.log_path(store.end), b"rest of a torn write", store.end - first + 32)

    assert store.told() == [
        ("log-stale-bytes", store.log_path(store.end), store.end - first + 32, store.end - first + 52)
    ]


def test_a_clock_that_was_set_back_is_a_note() -> None:
    store = MadeStore()
    store.append()
    at = store.append(store_ms=store.store_ms - 3_600_000)
    store.append(store_ms=store.store_ms + 3_700_000)
    store.derive()

    assert [(kind, begin) for kind, _, begin, _ in store.told()] == [("log-time", at)]


def test_a_missing_message_between_others_is_damage() -> None:
    store = MadeStore()
    store.append()
    at = store.append(queue_offset=3)
    store.derive()

    [finding] = store.findings()
    assert (finding.kind, finding.begin) == (Kind.LOG_GAP, at)
    assert "the log does not have messages 1 to 2 of that queue before it" in finding.text


def test_a_topic_that_cannot_be_a_folder_is_a_note() -> None:
    store = MadeStore()
    store.append("Orders")
    at = store.append("../etc")
    store.append("../etc")
    del store.next_offsets["../etc", 0]
    store.derive()

    [finding] = store.findings()
    assert (finding.kind, finding.begin) == (Kind.LOG_TOPIC, at)

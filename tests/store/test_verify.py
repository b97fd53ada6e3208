"""Whole stores: those of the real broker are sound, and every kind of damage is found where it is, with nothing else."""

from pathlib import Path
from random import Random

import pytest
from tests.golden import needs_golden
from tests.store.golden_store import STORES, restore
from tests.store.made_store import HOST, INDEX_ENTRIES, INDEX_SLOTS, LOG_FILE_BYTES, ROOT, SIZES, MadeStore

from pocketmq.files import DiskFiles, walk
from pocketmq.model.names import TopicName
from pocketmq.store.checks.findings import Finding, Kind, Progress, Severity
from pocketmq.store.layout import KnownSizes, find_layout
from pocketmq.store.message_store import MessageStore
from pocketmq.store.settings import StoreSettings
from pocketmq.store.verify import Verification

ENTRIES_AT = 40 + 4 * INDEX_SLOTS


@pytest.fixture
def store() -> MadeStore:
    return MadeStore().fill()


def verify(folder: Path) -> tuple[list[Finding], Verification]:
    files = DiskFiles()
    verification = Verification(files, find_layout(files, folder, KnownSizes()))
    return [event for event in verification.run() if isinstance(event, Finding)], verification


# stores of the real broker


@needs_golden
@pytest.mark.parametrize(("version", "kind"), STORES)
def test_a_store_of_the_real_broker_is_sound(version: str, kind: str, tmp_path: Path) -> None:
    restore(version, kind, tmp_path)

    findings, verification = verify(tmp_path)

    # A copy of a running broker's files looks like what a crash leaves; all else is as it should be.
    assert [finding.kind for finding in findings] == ([Kind.CRASHED] if kind == "live" else [])
    assert verification.summary.worst is Severity.NOTE


@needs_golden
def test_what_was_looked_at_is_counted(tmp_path: Path) -> None:
    restore("5.3.3", "clean", tmp_path)

    _, verification = verify(tmp_path)

    summary = verification.summary
    assert (summary.log_files, summary.log_start, summary.log_end) == (3, 0, 75563)
    assert (summary.messages, summary.queues) == (104, 9)
    assert (summary.index_files, summary.index_entries, summary.tables) == (1, 224, 8)


@needs_golden
def test_verification_changes_nothing(tmp_path: Path) -> None:
    restore("5.3.3", "live", tmp_path)
    files = DiskFiles()
    before = {path: (files.status(path), files.read(path)) for path in walk(files, tmp_path)}

    verify(tmp_path)

    assert {path: (files.status(path), files.read(path)) for path in walk(files, tmp_path)} == before


@needs_golden
@pytest.mark.parametrize("folder", ["consumequeue", "index"])
def test_every_flipped_bit_of_a_derived_file_of_the_real_broker_is_one_finding(folder: str, tmp_path: Path) -> None:
    restore("5.3.3", "clean", tmp_path)
    entry_0 = range(440, 460)  # of the index file: nobody ever reads it
    places = [
        (path, at)
        for path in walk(DiskFiles(), tmp_path / folder)
        for at in range(len(path.read_bytes().rstrip(b"\0")))
        if folder != "index" or at not in entry_0
    ]

    for path, at in Random(7).sample(places, 60):
        data = path.read_bytes()
        with path.open("r+b") as file:
            file.seek(at)
            file.write(bytes([data[at] ^ 1 << at % 8]))
        findings, _ = verify(tmp_path)
        path.write_bytes(data)

        assert len(findings) == 1, (path, at, findings)
        [finding] = findings
        assert finding.severity is Severity.REPAIRABLE
        assert finding.path == path.relative_to(tmp_path).as_posix()
        assert finding.begin is not None
        assert finding.end is not None
        assert finding.begin <= at < finding.end


# a sound store


def test_a_store_made_by_hand_is_sound(store: MadeStore) -> None:
    assert store.findings() == []
    assert len(store.index_paths) > 1


def test_an_empty_store_is_sound() -> None:
    assert MadeStore().findings() == []


def test_a_store_whose_oldest_log_files_expired_is_sound(store: MadeStore) -> None:
    store.unlink(store.log_path(0))

    assert store.findings() == []


def test_a_store_that_began_later_has_filled_heads_and_is_sound() -> None:
    store = MadeStore(log_start=LOG_FILE_BYTES)
    store.next_offsets["Orders", 0] = 6

    assert store.fill().findings() == []
    assert store.read("consumequeue/Orders/0/00000000000000000080")[:4] == bytes(4)


def test_progress_goes_to_the_end(store: MadeStore) -> None:
    verification = Verification(store.files, store.layout())

    progress = [event for event in verification.run() if isinstance(event, Progress)]

    assert progress[-1].done == progress[-1].total == store.end // LOG_FILE_BYTES * LOG_FILE_BYTES + LOG_FILE_BYTES


# damage in the log


def a_record(store: MadeStore, number: int = 6) -> tuple[int, int]:
    """Where a record in the middle begins and ends."""
    at = list(store.records)[number]
    return at, at + len(store.records[at])


@pytest.mark.parametrize(
    ("field", "at"),
    [("size", 3), ("magic", 5), ("checksum", 9), ("log offset", 35), ("body length", 87), ("body", 100)],
)
def test_a_flipped_bit_in_a_record_is_damage_from_its_begin_to_the_next_record(
    store: MadeStore, field: str, at: int
) -> None:
    begin, end = a_record(store)

    store.flip(store.log_path(begin), begin + at)

    assert store.told() == [("log-record", store.log_path(begin), begin, end)], field


def test_a_flipped_bit_in_the_last_record_is_damage_because_its_queue_knows_it(store: MadeStore) -> None:
    begin, end = a_record(store, -1)

    store.flip(store.log_path(begin), begin % LOG_FILE_BYTES + 100)

    first = begin // LOG_FILE_BYTES * LOG_FILE_BYTES
    assert store.told() == [("log-record", store.log_path(begin), begin - first, end - first)]


def test_a_flipped_bit_in_filler_is_damage_up_to_the_end_of_the_file(store: MadeStore) -> None:
    filler = max(at + len(raw) for at, raw in store.records.items() if at < LOG_FILE_BYTES)

    store.flip(store.log_path(0), filler + 5)

    assert store.told() == [("log-record", store.log_path(0), filler, LOG_FILE_BYTES)]


def test_what_follows_the_head_of_filler_does_not_matter(store: MadeStore) -> None:
    filler = max(at + len(raw) for at, raw in store.records.items() if at < LOG_FILE_BYTES)

    store.write(store.log_path(0), b"anything", filler + 8)

    assert store.findings() == []


def test_a_flipped_queue_offset_is_told_by_the_queue(store: MadeStore) -> None:
    begin, end = a_record(store)

    store.flip(store.log_path(begin), begin + 27, bit=3)

    [finding] = store.findings()
    assert (finding.kind, finding.begin, finding.end) == (Kind.LOG_ORDER, begin, end)
    assert "it says that it is message" in finding.text


def test_a_flipped_queue_id_is_told_by_the_queue(store: MadeStore) -> None:
    begin, end = a_record(store)

    store.flip(store.log_path(begin), begin + 14, bit=3)

    assert store.told() == [("log-order", store.log_path(begin), begin, end)]


def test_a_flipped_key_is_told_by_the_index(store: MadeStore) -> None:
    begin, _ = a_record(store)
    key = store.records[begin].index(b"KEYS\x01k") + 5

    store.flip(store.log_path(begin), begin + key)

    assert store.told() == [("log-changed", store.log_path(begin), begin, None)]


def test_a_wrong_checksum_of_the_whole_record_is_damage() -> None:
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
    assert finding.text.endswith("nothing but zeros")


def test_a_log_file_that_is_cut_off_is_one_finding(store: MadeStore) -> None:
    store.truncate(store.log_path(0), 3000)

    [finding] = store.findings()
    assert (finding.kind, finding.path, finding.begin, finding.end) == (
        Kind.LOG_FILE_SIZE,
        store.log_path(0),
        0,
        3000,
    )
    assert "3000 bytes instead of 4096, so the log has nothing from 3000 to 4096" in finding.text


def test_the_newest_log_file_cut_off_behind_the_end_is_one_finding(store: MadeStore) -> None:
    store.truncate(store.log_path(store.end), store.end % LOG_FILE_BYTES)

    assert [finding.kind for finding in store.findings()] == [Kind.LOG_FILE_SIZE]


def test_a_missing_log_file_is_one_finding(store: MadeStore) -> None:
    store.unlink(store.log_path(LOG_FILE_BYTES))

    assert store.told() == [("log-file-missing", store.log_path(LOG_FILE_BYTES), None, None)]


def test_an_empty_newest_log_file_is_a_note(store: MadeStore) -> None:
    store.write(store.log_path(3 * LOG_FILE_BYTES), b"")

    assert store.told() == [("log-file-unfinished", store.log_path(3 * LOG_FILE_BYTES), None, None)]


def test_a_log_that_lost_its_last_records_is_damage_because_queues_know_them(store: MadeStore) -> None:
    begin, _ = a_record(store, -2)
    first = begin // LOG_FILE_BYTES * LOG_FILE_BYTES

    store.write(store.log_path(begin), bytes(store.end - begin), begin - first)

    assert store.told() == [("log-lost-tail", store.log_path(begin), begin - first, None)]


def test_a_log_without_any_file_is_damage_when_the_checkpoint_knows_of_messages(store: MadeStore) -> None:
    store.remove_tree("commitlog")
    store.remove_tree("consumequeue")

    assert ("log-lost-tail", "commitlog", 0, None) in store.told()


def test_a_log_that_lost_what_the_checkpoint_vouches_for_is_damage_after_a_crash_too(store: MadeStore) -> None:
    begin, _ = a_record(store, -1)
    first = begin // LOG_FILE_BYTES * LOG_FILE_BYTES
    store.write("abort", b"1")

    store.write(store.log_path(begin), bytes(store.end - begin), begin - first)

    assert ("log-lost-tail", store.log_path(begin), begin - first, None) in store.told()


def test_bytes_behind_the_end_that_nobody_knows_are_a_note_with_their_range(store: MadeStore) -> None:
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


def test_a_message_that_is_missing_between_others_is_damage() -> None:
    store = MadeStore()
    store.append()
    at = store.append(queue_offset=3)
    store.derive()

    [finding] = store.findings()
    assert (finding.kind, finding.begin) == (Kind.LOG_GAP, at)
    assert "messages 1 to 2 of that queue cannot be found before it" in finding.text


def test_a_topic_that_can_be_no_folder_is_a_note() -> None:
    store = MadeStore()
    store.append("Orders")
    at = store.append("../etc")
    store.append("../etc")
    del store.next_offsets["../etc", 0]
    store.derive()

    [finding] = store.findings()
    assert (finding.kind, finding.begin) == (Kind.LOG_TOPIC, at)


# damage in derived files


@pytest.mark.parametrize(("field", "at"), [("log offset", 7), ("size", 11), ("tags code", 19)])
def test_a_flipped_bit_in_a_queue_entry_is_that_entry(store: MadeStore, field: str, at: int) -> None:
    path, begin = store.queue_path("Orders", 1, 6)

    store.flip(path, begin + at)

    [finding] = store.findings()
    assert (finding.kind, finding.path, finding.begin, finding.end) == (
        Kind.QUEUE_ENTRY_WRONG,
        path,
        begin,
        begin + 20,
    )
    assert finding.text.startswith("entry 6 of Orders/1: the file has"), field


def test_two_entries_that_changed_places_are_one_run(store: MadeStore) -> None:
    path, begin = store.queue_path("Orders", 0, 4)
    data = store.read(path)

    store.write(path, data[20:40] + data[:20], begin)

    [finding] = store.findings()
    assert (finding.kind, finding.path, finding.begin, finding.end) == (Kind.QUEUE_ENTRY_WRONG, path, 0, 40)
    assert finding.text.startswith("entries 4 to 5 of Orders/0: of the first,")


def test_entries_that_were_zeroed_are_missing(store: MadeStore) -> None:
    path, begin = store.queue_path("Bills", 0, 5)

    store.write(path, bytes(40), begin)

    assert store.told() == [("queue-entry-missing", path, begin, begin + 40)]


def test_an_entry_behind_the_last_message_is_stale(store: MadeStore) -> None:
    path, begin = store.queue_path("Orders", 0, 15)
    before, at = store.queue_path("Orders", 0, 14)

    store.write(path, store.read(before)[at : at + 20], begin)

    assert store.told() == [("queue-entry-stale", path, begin, begin + 20)]


def test_a_queue_that_the_log_has_no_message_of_is_stale(store: MadeStore) -> None:
    path = "consumequeue/Ghosts/3/00000000000000000000"

    store.write(path, store.read(store.queue_path("Orders", 0, 0)[0]))

    assert store.told() == [("queue-entry-stale", path, 0, 80)]


def test_a_filled_head_that_was_flipped_is_wrong() -> None:
    store = MadeStore(log_start=LOG_FILE_BYTES)
    store.next_offsets["Orders", 0] = 6
    store.fill()

    store.flip("consumequeue/Orders/0/00000000000000000080", 26)

    [finding] = store.findings()
    assert (finding.kind, finding.begin, finding.end) == (Kind.QUEUE_ENTRY_WRONG, 20, 40)
    assert "before the first message that the log has" in finding.text


def test_a_missing_queue_file_is_its_entries(store: MadeStore) -> None:
    path, _ = store.queue_path("Orders", 0, 4)

    store.unlink(path)

    assert store.told() == [("queue-missing", path, 0, 80)]


def test_a_queue_file_of_another_size_is_one_finding(store: MadeStore) -> None:
    path, _ = store.queue_path("Orders", 0, 4)

    store.truncate(path, 50)

    assert store.told() == [("queue-file-size", path, 0, 50)]


def test_a_missing_queue_is_one_finding(store: MadeStore) -> None:
    store.remove_tree("consumequeue/Orders/1")

    assert store.told() == [("queue-missing", "consumequeue/Orders/1", None, None)]


def test_without_any_queue_there_is_one_finding(store: MadeStore) -> None:
    store.remove_tree("consumequeue")

    [finding] = store.findings()
    assert (finding.kind, finding.path) == (Kind.QUEUE_MISSING, "consumequeue")


def test_a_missing_queue_of_a_topic_that_is_in_no_table_is_a_note(store: MadeStore) -> None:
    store.remove_tree("consumequeue/Orders")
    store.write("config/topics.json", b'{"topicConfigTable":{"Bills":{}}}', size=33)

    assert store.told() == [
        ("queue-deleted", "consumequeue/Orders/0", None, None),
        ("queue-deleted", "consumequeue/Orders/1", None, None),
    ]


def test_a_topic_that_was_deleted_and_made_again_is_a_note() -> None:
    store = MadeStore()
    for _ in range(7):
        store.append("Orders")
    store.next_offsets["Orders", 0] = 0
    for _ in range(3):
        store.append("Orders")
    store.derive()

    assert store.told() == [("queue-deleted", "consumequeue/Orders/0", None, None)]


@pytest.mark.parametrize(
    ("field", "at"),
    [("begin ms", 7), ("end ms", 15), ("begin offset", 23), ("end offset", 31), ("slots", 35), ("count", 39)],
)
@pytest.mark.parametrize("bit", [0, 3])
def test_a_flipped_bit_in_the_header_of_an_index_file_is_that_header(
    store: MadeStore, field: str, at: int, bit: int
) -> None:
    path = store.index_paths[1]

    store.flip(path, at, bit)

    assert store.told() == [("index-header", path, 0, 40)], field


def test_a_flipped_slot_of_the_index_is_that_slot(store: MadeStore) -> None:
    path = store.index_paths[0]

    store.flip(path, 40 + 4 * 17 + 2)

    assert store.told() == [("index-slot", path, 40 + 4 * 17, 40 + 4 * 18)]


@pytest.mark.parametrize(("field", "at"), [("hash", 1), ("log offset", 10), ("second", 15), ("previous", 19)])
@pytest.mark.parametrize("number", [1, 2, 13, INDEX_ENTRIES - 1])
def test_a_flipped_bit_in_an_index_entry_is_that_entry(store: MadeStore, field: str, at: int, number: int) -> None:
    path, begin = store.index_paths[1], ENTRIES_AT + 20 * number

    store.flip(path, begin + at, bit=4)

    assert store.told() == [("index-entry", path, begin, begin + 20)], field


def test_index_entries_that_changed_places_are_one_run(store: MadeStore) -> None:
    path, begin = store.index_paths[1], ENTRIES_AT + 20 * 9
    data = store.read(path)

    store.write(path, data[begin + 20 : begin + 40] + data[begin : begin + 20], begin)

    assert store.told() == [("index-entry", path, begin, begin + 40)]


def test_index_entries_that_were_zeroed_are_one_run(store: MadeStore) -> None:
    path, begin = store.index_paths[1], ENTRIES_AT + 20 * 9

    store.write(path, bytes(100), begin)

    assert store.told() == [("index-entry", path, begin, begin + 100)]


def test_a_missing_index_file_in_the_middle_is_its_keys(store: MadeStore) -> None:
    store.unlink(store.index_paths[1])

    [finding] = store.findings()
    assert finding.kind is Kind.INDEX_KEY_MISSING
    assert "are not in the index" in finding.text


def test_the_newest_index_file_missing_is_its_keys_when_the_checkpoint_vouches_for_them(store: MadeStore) -> None:
    store.unlink(store.index_paths[-1])

    [finding] = store.findings()
    assert (finding.kind, finding.severity) == (Kind.INDEX_KEY_MISSING, Severity.REPAIRABLE)


def test_without_any_index_there_is_one_finding(store: MadeStore) -> None:
    store.remove_tree("index")

    assert [finding.kind for finding in store.findings()] == [Kind.INDEX_KEY_MISSING]


def test_an_index_file_of_another_size_is_one_finding(store: MadeStore) -> None:
    path = store.index_paths[1]

    store.truncate(path, 300)

    assert store.told() == [("index-file-size", path, 0, 300)]


def test_an_index_of_unknown_shape_is_said_not_to_be_checked(store: MadeStore) -> None:
    for path in store.index_paths:
        store.write(path, b"\x01" * 40)  # headers that lead nowhere

    findings = store.findings(KnownSizes())

    assert [finding.kind for finding in findings] == [Kind.INDEX_UNCHECKED]


def test_the_index_can_be_left_out(store: MadeStore) -> None:
    store.remove_tree("index")
    verification = Verification(store.files, store.layout(), with_index=False)

    assert [event for event in verification.run() if isinstance(event, Finding)] == []


# checkpoint, tables, folder


def test_a_missing_checkpoint_is_repairable(store: MadeStore) -> None:
    store.unlink("checkpoint")

    assert store.told() == [("checkpoint", "checkpoint", 0, 24)]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "has only 0 bytes"),
        (bytes(4096), "nothing but zeros"),
        (b"\xff" * 24 + bytes(4072), "before 1970"),
        (b"\x7f" * 24 + bytes(4072), "the newest message is of"),
    ],
)
def test_a_damaged_checkpoint_is_repairable(store: MadeStore, data: bytes, words: str) -> None:
    store.write("checkpoint", data, size=len(data))

    [finding] = store.findings()
    assert (finding.kind, finding.severity) == (Kind.CHECKPOINT, Severity.REPAIRABLE)
    assert words in finding.text


def test_a_checkpoint_of_another_size_is_repairable(store: MadeStore) -> None:
    store.truncate("checkpoint", 100)

    [finding] = store.findings()
    assert "has 100 bytes instead of 4096" in finding.text


def test_a_damaged_table_is_damage(store: MadeStore) -> None:
    store.write("config/consumerOffset.json", b'{"offsetTable":{')

    assert store.told() == [("table-damaged", "config/consumerOffset.json", None, None)]


def test_a_foreign_file_anywhere_is_a_note(store: MadeStore) -> None:
    names = [
        "notes.txt",
        "commitlog/old.bak",
        "consumequeue/Orders/0/x",
        "consumequeue/a b",
        "index/1",
        "config/x.yaml",
    ]
    for name in names:
        store.write(name, b"mine")

    assert sorted(store.told()) == sorted(("foreign", name, None, None) for name in names)


def test_what_rocketmq_keeps_beside_the_store_is_not_foreign(store: MadeStore) -> None:
    for name in ["timerwheel", "timerwheel.123", "timerlog/00000000000000000000", "abort.bak", "config/timercheck"]:
        store.write(name, b"x")

    assert store.findings() == []


# crashed, in use


def test_after_a_crash_what_was_not_safe_may_be_missing(store: MadeStore) -> None:
    path, begin = store.queue_path("Orders", 0, 14)
    store.write(path, bytes(20), begin)
    store.unlink(store.index_paths[-1])

    store.crash()

    assert [(kind, path, begin) for kind, path, begin, _ in store.told()] == [
        ("crashed", "abort", None),
        ("queue-behind", path, begin),
        ("index-behind", "index", None),
    ]


def test_after_a_crash_what_was_safe_must_be_there(store: MadeStore) -> None:
    path, begin = store.queue_path("Orders", 0, 14)
    store.write(path, bytes(20), begin)

    store.write("abort", b"4711")

    assert [kind for kind, *_ in store.told()] == ["crashed", "queue-entry-missing"]


def test_after_a_crash_queue_entries_may_be_ahead_of_the_log(store: MadeStore) -> None:
    begin, _ = a_record(store, -1)
    store.crash()

    store.write(store.log_path(begin), bytes(store.end - begin), begin % LOG_FILE_BYTES)

    assert [kind for kind, *_ in store.told()] == ["crashed", "queue-ahead"]


def test_a_store_in_use_is_said_to_be_and_its_tails_may_move(store: MadeStore) -> None:
    store.write("lock", b"lock")
    store.crash()
    path, begin = store.queue_path("Orders", 0, 14)
    store.write(path, bytes(20), begin)

    with store.files.open(ROOT / "lock") as lock:
        assert lock.lock()
        findings = store.findings()

    assert [finding.kind for finding in findings] == [Kind.IN_USE, Kind.QUEUE_BEHIND]
    assert "in use by process 4711" in findings[0].text


def test_queue_entries_of_records_that_came_later_do_not_disturb_in_a_store_in_use(store: MadeStore) -> None:
    begin, _ = a_record(store, -1)
    store.write("lock", b"lock")
    store.write(store.log_path(begin), bytes(store.end - begin), begin % LOG_FILE_BYTES)

    with store.files.open(ROOT / "lock") as lock:
        assert lock.lock()

        assert [finding.kind for finding in store.findings()] == [Kind.IN_USE]


def test_files_that_a_broker_removes_meanwhile_are_no_error(store: MadeStore) -> None:
    store.write("lock", b"lock")
    verification = Verification(store.files, store.layout())
    with store.files.open(ROOT / "lock") as lock:
        assert lock.lock()
        events = verification.run()
        first = next(events)
        for path in (store.log_path(0), store.queue_path("Orders", 0, 0)[0], *store.index_paths[1:]):
            store.unlink(path)

        findings = [first, *(event for event in events if isinstance(event, Finding))]

    kinds = [finding.kind for finding in findings if isinstance(finding, Finding)]
    assert kinds[0] is Kind.IN_USE
    assert Kind.LOG_RECORD not in kinds
    assert Kind.LOG_GAP not in kinds


# bounds


def test_many_scattered_differences_are_listed_up_to_a_bound_and_counted_beyond(
    store: MadeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pocketmq.store.checks.runs.MAX_RUNS", 2)
    for offset in (0, 2, 4, 6, 8):
        path, begin = store.queue_path("Orders", 0, offset)
        store.flip(path, begin + 7)

    texts = [finding.text for finding in store.findings()]

    assert len(texts) == 3
    assert texts[-1] == "3 more entries of Orders/0 are missing, wrong or stale"


def test_the_worst_finding_is_remembered(store: MadeStore) -> None:
    store.write("notes.txt", b"mine")
    store.flip(*store.queue_path("Orders", 0, 0))
    verification = Verification(store.files, store.layout(SIZES))

    for _ in verification.run():
        pass

    assert verification.summary.worst is Severity.REPAIRABLE
    assert verification.summary.findings == {Kind.FOREIGN: 1, Kind.QUEUE_ENTRY_WRONG: 1}


# a store of our own


def test_a_store_that_is_being_written_is_sound_and_stays_so_when_it_is_closed(tmp_path: Path) -> None:
    settings = StoreSettings(folder=tmp_path, log_file_bytes=16_384, queue_file_entries=20, index_slots=50)
    store = MessageStore(settings, store_host=HOST, post=lambda callback: callback())
    store.open()
    for number in range(40):
        queue = store.queue(TopicName("Orders"), number % 3)
        properties = f"UNIQ_KEY\x01id{number}\x02KEYS\x01a b\x02TAGS\x01t{number % 2}\x02".encode()
        store.stage(queue, b"body", properties, 0, 0, 1_700_000_000_000, HOST)
        store.end_turn()

    while_open, _ = verify(tmp_path)
    store.close()
    closed, verification = verify(tmp_path)

    assert while_open[0].kind is Kind.IN_USE
    assert {finding.severity for finding in while_open} == {Severity.NOTE}
    assert {finding.severity for finding in closed} <= {Severity.NOTE}
    assert verification.summary.messages == 40

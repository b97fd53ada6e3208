"""Complete stores: those of Apache's broker are sound, and every kind of damage is found at its position alone."""

from pathlib import Path
from random import Random

import pytest
from tests.golden import needs_golden
from tests.store.golden_store import STORES, restore
from tests.store.made_store import HOST, LOG_FILE_BYTES, ROOT, SIZES, MadeStore

from pocketmq.files import DiskFiles, files_below
from pocketmq.model.names import TopicName
from pocketmq.store.layout import KnownSizes, find_layout
from pocketmq.store.message_store import MessageStore
from pocketmq.store.settings import StoreSettings
from pocketmq.store.tools.findings import Finding, Kind, Progress, Severity
from pocketmq.store.tools.verify import Verification


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
def test_checked_items_are_counted(tmp_path: Path) -> None:
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
    before = {path: (files.status(path), files.read(path)) for path in files_below(files, tmp_path)}

    verify(tmp_path)

    assert {path: (files.status(path), files.read(path)) for path in files_below(files, tmp_path)} == before


@needs_golden
@pytest.mark.parametrize("folder", ["consumequeue", "index"])
def test_a_flipped_bit_of_a_derived_file_of_apache_is_one_finding(folder: str, tmp_path: Path) -> None:
    restore("5.3.3", "clean", tmp_path)
    entry_0 = range(440, 460)  # of the index file: it is never read
    places = [
        (path, at)
        for path in files_below(DiskFiles(), tmp_path / folder)
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


def test_a_store_written_by_the_test_is_sound(store: MadeStore) -> None:
    assert store.findings() == []
    assert len(store.index_paths) > 1


def test_an_empty_store_is_sound() -> None:
    assert MadeStore().findings() == []


def test_a_store_with_expired_log_files_is_sound(store: MadeStore) -> None:
    store.unlink(store.log_path(0))

    assert store.findings() == []


def test_a_store_that_starts_late_has_filled_heads_and_is_sound() -> None:
    store = MadeStore(log_start=LOG_FILE_BYTES)
    store.next_offsets["Orders", 0] = 6

    assert store.fill().findings() == []
    assert store.read("consumequeue/Orders/0/00000000000000000080")[:4] == bytes(4)


def test_progress_reaches_its_total(store: MadeStore) -> None:
    verification = Verification(store.files, store.layout())

    progress = [event for event in verification.run() if isinstance(event, Progress)]

    assert progress[-1].done == progress[-1].total == store.end // LOG_FILE_BYTES * LOG_FILE_BYTES + LOG_FILE_BYTES


def a_record(store: MadeStore, number: int = 6) -> tuple[int, int]:
    """The start and end of a record in the middle."""
    at = list(store.records)[number]
    return at, at + len(store.records[at])


# checkpoint, tables, folder


def test_a_missing_checkpoint_is_repairable(store: MadeStore) -> None:
    store.unlink("checkpoint")

    assert store.told() == [("checkpoint", "checkpoint", 0, 24)]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "has only 0 bytes"),
        (bytes(4096), "only zeros"),
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


def test_other_files_of_rocketmq_are_not_foreign(store: MadeStore) -> None:
    for name in ["timerwheel", "timerwheel.123", "timerlog/00000000000000000000", "abort.bak", "config/timercheck"]:
        store.write(name, b"x")

    assert store.findings() == []


# crashed, in use


def test_after_a_crash_unsafe_data_may_be_missing(store: MadeStore) -> None:
    path, begin = store.queue_path("Orders", 0, 14)
    store.write(path, bytes(20), begin)
    store.unlink(store.index_paths[-1])

    store.crash()

    assert [(kind, path, begin) for kind, path, begin, _ in store.told()] == [
        ("crashed", "abort", None),
        ("queue-behind", path, begin),
        ("index-behind", "index", None),
    ]


def test_after_a_crash_safe_data_must_exist(store: MadeStore) -> None:
    path, begin = store.queue_path("Orders", 0, 14)
    store.write(path, bytes(20), begin)

    store.write("abort", b"4711")

    assert [kind for kind, *_ in store.told()] == ["crashed", "queue-entry-missing"]


def test_after_a_crash_queue_entries_may_be_ahead_of_the_log(store: MadeStore) -> None:
    begin, _ = a_record(store, -1)
    store.crash()

    store.write(store.log_path(begin), bytes(store.end - begin), begin % LOG_FILE_BYTES)

    assert [kind for kind, *_ in store.told()] == ["crashed", "queue-ahead"]


def test_a_store_in_use_is_reported_and_its_ends_may_move(store: MadeStore) -> None:
    store.write("lock", b"lock")
    store.crash()
    path, begin = store.queue_path("Orders", 0, 14)
    store.write(path, bytes(20), begin)

    with store.files.open(ROOT / "lock") as lock:
        assert lock.lock()
        findings = store.findings()

    assert [finding.kind for finding in findings] == [Kind.IN_USE, Kind.QUEUE_BEHIND]
    assert "in use by process 4711" in findings[0].text


def test_queue_entries_of_newer_records_are_ignored_in_a_store_in_use(store: MadeStore) -> None:
    begin, _ = a_record(store, -1)
    store.write("lock", b"lock")
    store.write(store.log_path(begin), bytes(store.end - begin), begin % LOG_FILE_BYTES)

    with store.files.open(ROOT / "lock") as lock:
        assert lock.lock()

        assert [finding.kind for finding in store.findings()] == [Kind.IN_USE]


def test_files_removed_by_a_broker_during_the_check_are_no_error(store: MadeStore) -> None:
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


def test_scattered_differences_are_listed_up_to_a_limit_and_then_counted(
    store: MadeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pocketmq.store.tools.findings.MAX_RUNS", 2)
    for offset in (0, 2, 4, 6, 8):
        path, begin = store.queue_path("Orders", 0, offset)
        store.flip(path, begin + 7)

    texts = [finding.text for finding in store.findings()]

    assert len(texts) == 3
    assert texts[-1] == "3 more entries of Orders/0 are missing, wrong or stale"


def test_the_worst_finding_decides_the_verdict(store: MadeStore) -> None:
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

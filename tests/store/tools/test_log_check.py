import pytest
from tests.store.made_store import LOG_FILE_BYTES, ROOT, MadeStore

from pocketmq.store.layout import KnownSizes
from pocketmq.store.tools.findings import Kind, LogFacts
from pocketmq.store.tools.folder_check import look_at
from pocketmq.store.tools.log_check import LogCheck


@pytest.fixture
def store() -> MadeStore:
    return MadeStore().fill()


def log_check(store: MadeStore) -> LogCheck:
    layout = store.layout(KnownSizes())
    return LogCheck(store.files, layout, look_at(store.files, ROOT), LogFacts(layout.log_start))


def told(store: MadeStore) -> list[tuple[Kind, str, str]]:
    return [(finding.kind, finding.path, finding.text) for finding in log_check(store).check_files()]


def test_valid_files_have_no_findings(store: MadeStore) -> None:
    assert told(store) == []


def test_several_missing_files_are_one_finding(store: MadeStore) -> None:
    store.write_log(6 * LOG_FILE_BYTES, b"")

    [(kind, path, text)] = told(store)

    assert (kind, path) == (Kind.LOG_FILE_MISSING, store.log_path(3 * LOG_FILE_BYTES))
    assert text == f"3 files are missing: the log has no bytes from {3 * LOG_FILE_BYTES} to {6 * LOG_FILE_BYTES}"


def test_a_too_long_file_is_reported(store: MadeStore) -> None:
    store.truncate(store.log_path(0), LOG_FILE_BYTES + 1)

    assert told(store) == [(Kind.LOG_FILE_SIZE, store.log_path(0), "the file has 4097 bytes instead of 4096")]


def test_an_empty_file_in_the_middle_is_damage(store: MadeStore) -> None:
    store.truncate(store.log_path(LOG_FILE_BYTES), 0)

    assert [kind for kind, *_ in told(store)] == [Kind.LOG_FILE_SIZE]


def test_overlapping_files_and_unexpected_names_are_reported(store: MadeStore) -> None:
    store.write(f"commitlog/{3 * LOG_FILE_BYTES - 96:020d}", b"", size=LOG_FILE_BYTES)

    [(kind, _, text)] = told(store)

    assert kind is Kind.LOG_FILE_SIZE
    assert text == "the file begins at 12192, but the one before it ends at 12288"


def test_an_unexpected_name_of_the_first_file_is_reported(store: MadeStore) -> None:
    lone = MadeStore()
    lone.write(f"commitlog/{100:020d}", b"", size=LOG_FILE_BYTES)

    [(_, _, text)] = told(lone)

    assert text == "the file begins at 100, which is not a multiple of the file size 4096"


def test_a_record_is_recognised_by_its_magic_and_its_offset(store: MadeStore) -> None:
    check = log_check(store)
    second = list(store.records)[1]

    assert check.begins_record(second)
    assert not check.begins_record(second + 1)
    assert not check.begins_record(10**9)
    assert not check.begins_record(-1)

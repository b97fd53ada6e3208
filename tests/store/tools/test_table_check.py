import pytest
from tests.store.made_store import ROOT, MadeStore

from pocketmq.store.resume import ResumeFile, ResumePoint
from pocketmq.store.tools.findings import Finding, Kind
from pocketmq.store.tools.folder_check import TableCheck


@pytest.fixture
def store() -> MadeStore:
    return MadeStore()


def check(store: MadeStore) -> tuple[list[Finding], TableCheck]:
    tables = TableCheck(store.files, ROOT)
    return list(tables.run()), tables


def test_tables_in_the_json_of_rocketmq_are_sound(store: MadeStore) -> None:
    store.write("config/consumerOffset.json", b'{"offsetTable":{"T@G":{0:12,1:7}}}')
    store.write("config/timermetrics", b"{}")

    findings, tables = check(store)

    assert findings == []
    assert tables.tables == 2


@pytest.mark.parametrize("data", [b"", b"{", b"null", b"\xff\xfe"])
def test_an_unreadable_table_is_damage_with_any_backup(store: MadeStore, data: bytes) -> None:
    store.write("config/topics.json", data)
    store.write("config/topics.json.bak", b"{}")

    [finding], _ = check(store)

    assert (finding.kind, finding.path) == (Kind.TABLE_DAMAGED, "config/topics.json")
    assert finding.text.endswith("topics.json.bak is used instead")


def test_damage_without_a_backup_is_reported_as_such(store: MadeStore) -> None:
    store.write("config/topics.json", b"{")

    [finding], _ = check(store)

    assert finding.text.endswith("there is no topics.json.bak to use instead")


def test_a_table_that_only_exists_as_its_backup_is_a_note(store: MadeStore) -> None:
    store.write("config/topics.json.bak", b"{}")

    [finding], _ = check(store)

    assert (finding.kind, finding.path) == (Kind.TABLE_BACKUP, "config/topics.json")


def test_a_damaged_backup_is_a_note_while_the_table_exists(store: MadeStore) -> None:
    store.write("config/topics.json.bak", b"{")

    [alone], _ = check(store)
    store.write("config/topics.json", b"{}")
    [beside], _ = check(store)

    assert (alone.kind, beside.kind) == (Kind.TABLE_DAMAGED, Kind.TABLE_BACKUP)
    assert beside.path == "config/topics.json.bak"


def test_topics_are_read_from_the_table_or_its_backup(store: MadeStore) -> None:
    assert check(store)[1].topics is None

    store.write("config/topics.json.bak", b'{"topicConfigTable":{"A":{}}}')
    assert check(store)[1].topics == frozenset({"A"})

    store.write("config/topics.json", b'{"topicConfigTable":{"B":{}}}')
    assert check(store)[1].topics == frozenset({"B"})

    store.write("config/topics.json", b"[1]                          ")
    assert check(store)[1].topics is None


def test_an_unusable_resume_point_is_a_note(store: MadeStore) -> None:
    ResumeFile(store.files, ROOT).save(ResumePoint(clean=True))
    assert check(store)[0] == []

    store.truncate("config/resume.json", 5)

    [finding], tables = check(store)
    assert (finding.kind, tables.tables) == (Kind.RESUME, 0)

"""Tables: the old or the new one after any failure, and never a damaged one without a log message."""

import errno
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests.golden import GOLDEN, needs_golden

from pocketmq.errors import BodyError, InvalidName, StoreDamaged, StoreError, StoreFull
from pocketmq.files import DiskFiles
from pocketmq.protocol.java_json import Body
from pocketmq.store.tables import Tables
from pocketmq.testing import FaultyFiles

FOLDER = Path("/store/config")
NAME = "topics.json"
DAMAGED = [b"", b"\0" * 100, b'{"a":', b"null", b"\xff\xfe{}", b'{"a":1}}']


@pytest.fixture
def files() -> FaultyFiles:
    files = FaultyFiles()
    files.make_dir(FOLDER.parent)
    files.sync_dir(Path("/"))
    return files


def table(version: int) -> bytes:
    """A table that spans several sectors."""
    return b'{"version":%d,"text":"%s"}' % (version, b"%d" % version * 1000)


def version_of(tables: Tables) -> int | None:
    value = tables.load(NAME)
    return None if value is None else value["version"]


def failure_of(tables: Tables, version: int) -> list[StoreError]:
    try:
        tables.save(NAME, table(version))
    except StoreError as error:
        return [error]
    return []


def write(files: FaultyFiles, name: str, data: bytes) -> None:
    files.make_dir(FOLDER)
    with files.open(FOLDER / name, create=True) as file:
        file.truncate(0)
        file.write_at(0, data)
        file.sync()
    files.sync_dir(FOLDER)
    files.sync_dir(FOLDER.parent)


def test_a_table_that_was_never_saved_is_none(files: FaultyFiles) -> None:
    assert Tables(files, FOLDER).load(NAME) is None


def test_a_saved_table_is_loaded(files: FaultyFiles) -> None:
    Tables(files, FOLDER).save(NAME, b'{"offsetTable":{"T@g":{0:12,1:7}}}')

    assert Tables(files, FOLDER).load(NAME) == {"offsetTable": {"T@g": {"0": 12, "1": 7}}}


def test_the_previous_table_is_kept_as_backup(files: FaultyFiles) -> None:
    tables = Tables(files, FOLDER)

    for version in (1, 2, 3):
        tables.save(NAME, table(version))

    assert files.list(FOLDER) == [NAME, f"{NAME}.bak"]
    assert files.read(FOLDER / NAME) == table(3)
    assert files.read(FOLDER / f"{NAME}.bak") == table(2)


def test_a_table_may_be_read_as_a_type(files: FaultyFiles) -> None:
    class Topics(Body, frozen=True):
        version: int

    tables = Tables(files, FOLDER)
    tables.save(NAME, b'{"version":1}')
    tables.save(NAME, b'{"version":"x"}')

    topics = tables.load(NAME, Topics.decode)

    assert topics == Topics(1)
    with pytest.raises(BodyError):
        Topics.decode(b'{"version":"x"}')


@pytest.mark.parametrize("data", DAMAGED)
def test_a_damaged_table_is_replaced_by_its_backup_and_logged_once(
    files: FaultyFiles, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    write(files, NAME, data)
    write(files, f"{NAME}.bak", table(1))
    tables = Tables(files, FOLDER)

    assert version_of(tables) == 1
    assert version_of(tables) == 1

    (flaw,) = tables.flaws
    assert flaw.startswith(f"{FOLDER / NAME} is damaged (")
    assert flaw.endswith(f"; {NAME}.bak, the previous version, is used instead")
    assert caplog.text.count("is used instead") == 1


def test_a_missing_table_is_replaced_by_its_backup(files: FaultyFiles) -> None:
    write(files, f"{NAME}.bak", table(1))
    tables = Tables(files, FOLDER)

    assert version_of(tables) == 1
    assert tables.flaws[0].startswith(f"{FOLDER / NAME} is missing; {NAME}.bak")


def test_an_unreadable_table_is_replaced_by_its_backup(files: FaultyFiles) -> None:
    write(files, NAME, table(2))
    write(files, f"{NAME}.bak", table(1))
    files.fail("read", errno.EIO, path=f"*{NAME}")

    assert version_of(Tables(files, FOLDER)) == 1


@pytest.mark.parametrize("data", DAMAGED)
def test_damage_to_both_is_an_error_that_names_both(files: FaultyFiles, data: bytes) -> None:
    write(files, NAME, data)
    write(files, f"{NAME}.bak", data)

    with pytest.raises(StoreDamaged) as caught:
        Tables(files, FOLDER).load(NAME)

    assert f"{FOLDER / NAME} is damaged" in str(caught.value)
    assert f"{FOLDER / NAME}.bak is damaged" in str(caught.value)
    assert "Restore a valid copy" in str(caught.value)


def test_damage_without_a_backup_is_an_error(files: FaultyFiles) -> None:
    write(files, NAME, b"")

    with pytest.raises(StoreDamaged, match=rf"{NAME} is damaged .*, and there is no {NAME}\.bak"):
        Tables(files, FOLDER).load(NAME)


@pytest.mark.parametrize("loaded", [True, False])
def test_a_damaged_table_is_moved_aside_and_never_becomes_the_backup(files: FaultyFiles, loaded: bool) -> None:
    write(files, NAME, b"half a ta")
    write(files, f"{NAME}.bak", table(1))
    tables = Tables(files, FOLDER)
    if loaded:
        tables.load(NAME)

    tables.save(NAME, table(2))

    assert files.read(FOLDER / NAME) == table(2)
    assert files.read(FOLDER / f"{NAME}.bak") == table(1)
    assert files.read(FOLDER / f"{NAME}.damaged") == b"half a ta"
    assert f"keeping it as {NAME}.damaged" in tables.flaws[-1]


def test_the_folder_is_created_when_it_is_missing() -> None:
    files = FaultyFiles()
    files.make_dir(FOLDER.parent)
    files.sync_dir(Path("/"))

    Tables(files, FOLDER).save(NAME, table(1))

    assert version_of(Tables(files.crash(Random(1), survives="nothing"), FOLDER)) == 1


@pytest.mark.parametrize("name", ["", "../topics.json", "a/b", "/etc/passwd", ".."])
def test_a_name_that_is_a_path_is_refused(files: FaultyFiles, name: str) -> None:
    with pytest.raises(InvalidName, match="invalid table name"):
        Tables(files, FOLDER).load(name)
    with pytest.raises(InvalidName, match="invalid table name"):
        Tables(files, FOLDER).save(name, b"{}")


@pytest.mark.parametrize(
    ("call", "code", "kind"),
    [
        ("open", errno.EACCES, StoreError),
        ("write", errno.ENOSPC, StoreFull),
        ("sync", errno.EIO, StoreError),
        ("replace", errno.EIO, StoreError),
        ("sync_dir", errno.EDQUOT, StoreFull),
    ],
)
@pytest.mark.parametrize("nth", [1, 2])
def test_a_failed_save_leaves_the_old_or_the_new_table(
    files: FaultyFiles, call: Any, code: int, kind: type[StoreError], nth: int
) -> None:
    tables = Tables(files, FOLDER)
    tables.save(NAME, table(1))
    files.fail(call, code, nth=nth)

    failures = []
    for version in (2, 3):
        before = version_of(Tables(files, FOLDER))
        failures += failure_of(tables, version)
        assert version_of(Tables(files, FOLDER)) in (before, version)

    (failure,) = failures
    assert type(failure) is kind
    assert f"{FOLDER / NAME} cannot be saved" in str(failure)
    files.heal()
    tables.save(NAME, table(4))
    assert version_of(Tables(files, FOLDER)) == 4


def test_after_any_power_loss_the_last_or_the_new_table_exists(files: FaultyFiles) -> None:
    safe_from: list[int] = []
    tables = Tables(files, FOLDER)
    for version in range(1, 5):
        tables.save(NAME, table(version))
        safe_from.append(files.position)

    states = 0
    for point in files.crash_points(7, states=30, tear_bytes=True):
        safe = sum(position <= point.position for position in safe_from)
        found = version_of(Tables(point.files, FOLDER)) or 0
        assert found in (safe, safe + 1), f"crash point {point.seed}"
        states += 1
    assert states > 500


def test_after_a_power_loss_while_replacing_a_damaged_table_a_valid_one_exists(files: FaultyFiles) -> None:
    write(files, NAME, b"")
    write(files, f"{NAME}.bak", table(1))
    before = files.position

    Tables(files, FOLDER).save(NAME, table(2))

    for point in files.crash_points(7, states=30):
        if point.position >= before:
            assert version_of(Tables(point.files, FOLDER)) in (1, 2), f"crash point {point.seed}"


def test_a_table_survives_two_successive_power_losses(files: FaultyFiles) -> None:
    for seed in range(200):
        random = Random(seed)
        disk = files.crash(random)
        tables = Tables(disk, FOLDER)
        for version in (1, 2):
            tables.save(NAME, table(version))
        safe = 2
        for version in (3, 4):
            before = disk.position
            Tables(disk, FOLDER).save(NAME, table(version))
            disk = disk.state_at(random.randint(before, disk.position)).crash(random)
            found = version_of(Tables(disk, FOLDER))
            assert found in (safe, version), f"seed {seed}"
            safe = found


@needs_golden
def test_captured_tables_are_read() -> None:
    read = 0
    for folder in sorted(GOLDEN.glob("store/*/*/config")):
        tables = Tables(DiskFiles(), folder)
        for path in sorted(folder.glob("*.json")):
            assert isinstance(tables.load(path.name), dict)
            read += 1
        assert tables.flaws == []
        assert (tables.load("topics.json") or {}).keys() == {"dataVersion", "topicConfigTable"}
    assert read > 15

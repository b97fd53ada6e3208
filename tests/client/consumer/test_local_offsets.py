"""Local offsets: the file of a broadcasting consumer, as Java writes it."""

import errno
from pathlib import Path
from random import Random

import pytest

from pocketmq.client.consumer.offsets import FILE, LocalOffsetFile, offsets_folder
from pocketmq.errors import InvalidSetting, StoreDamaged, StoreError
from pocketmq.files import DiskFiles
from pocketmq.model.queue import MessageQueue
from pocketmq.testing import FaultyFiles

FOLDER = Path("/home/user/.rocketmq_offsets/10.0.0.1@DEFAULT/shop")
Q3 = MessageQueue("Orders", "broker-a", 3)
Q1 = MessageQueue("Orders", "broker-a", 1)
JAVA_TEXT = b'{\n\t"offsetTable":{{\n\t\t\t"brokerName":"broker-a",\n\t\t\t"queueId":3,\n\t\t\t"topic":"Orders"\n\t\t}:12\n\t}\n}'
JAVA_TEXT_OF_TWO = JAVA_TEXT.replace(
    b"}:12", b'}:12,{\n\t\t\t"brokerName":"broker-a",\n\t\t\t"queueId":1,\n\t\t\t"topic":"Orders"\n\t\t}:7'
)


@pytest.fixture
def files() -> FaultyFiles:
    return FaultyFiles()


def write(files: FaultyFiles, name: str, data: bytes) -> None:
    files.make_dir(FOLDER)
    with files.open(FOLDER / name, create=True) as file:
        file.truncate(0)
        file.write_at(0, data)


def test_the_file_has_the_path_of_javas_client() -> None:
    root = Path("/home/user/.rocketmq_offsets")

    assert offsets_folder(root, "10.0.0.1@DEFAULT", "shop") == FOLDER


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "../x", "a\0b"])
def test_a_name_that_would_change_the_folder_is_refused(name: str) -> None:
    with pytest.raises(InvalidSetting, match="client id"):
        offsets_folder(Path("/root"), name, "shop")
    with pytest.raises(InvalidSetting, match="group"):
        offsets_folder(Path("/root"), "10.0.0.1@x", name)


def test_a_missing_file_has_no_offsets(files: FaultyFiles) -> None:
    assert LocalOffsetFile(files, FOLDER).load().offset_table == {}


def test_the_file_has_the_form_of_javas_client(files: FaultyFiles) -> None:
    LocalOffsetFile(files, FOLDER).save({Q3: 12})

    assert files.read(FOLDER / FILE) == JAVA_TEXT


@pytest.mark.parametrize(
    "text",
    [
        JAVA_TEXT_OF_TWO,
        b'{"offsetTable":{{"topic":"Orders","brokerName":"broker-a","queueId":3}:12,{"brokerName":"broker-a","queueId":1,"topic":"Orders"}:7}}',
    ],
)
def test_a_file_of_javas_client_can_be_read(files: FaultyFiles, text: bytes) -> None:
    write(files, FILE, text)

    assert LocalOffsetFile(files, FOLDER).load().offset_table == {Q3: 12, Q1: 7}


def test_a_save_keeps_the_queues_of_other_members(files: FaultyFiles) -> None:
    LocalOffsetFile(files, FOLDER).save({Q3: 12})
    LocalOffsetFile(files, FOLDER).save({Q1: 7})
    LocalOffsetFile(files, FOLDER).save({Q3: 13})
    LocalOffsetFile(files, FOLDER).save({})

    assert LocalOffsetFile(files, FOLDER).load().offset_table == {Q3: 13, Q1: 7}


@pytest.mark.parametrize("damage", [b"", b"\0\0\0", b'{"offsetTable":{{', b'{"offsetTable":7}'])
def test_a_damaged_file_is_replaced_by_its_backup(files: FaultyFiles, damage: bytes) -> None:
    file = LocalOffsetFile(files, FOLDER)
    file.save({Q3: 12})
    file.save({Q3: 15})
    write(files, FILE, damage)

    assert LocalOffsetFile(files, FOLDER).load().offset_table == {Q3: 12}

    LocalOffsetFile(files, FOLDER).save({Q1: 1})
    assert LocalOffsetFile(files, FOLDER).load().offset_table == {Q3: 12, Q1: 1}


def test_damage_to_file_and_backup_is_an_error_and_not_overwritten(files: FaultyFiles) -> None:
    write(files, FILE, b"{")
    write(files, FILE + ".bak", b"{")

    with pytest.raises(StoreDamaged, match=r"offsets\.json"):
        LocalOffsetFile(files, FOLDER).load()
    with pytest.raises(StoreDamaged, match=r"offsets\.json"):
        LocalOffsetFile(files, FOLDER).save({Q3: 1})
    assert files.read(FOLDER / FILE) == b"{"


def test_a_folder_that_cannot_be_created_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")

    with pytest.raises(StoreError):
        LocalOffsetFile(DiskFiles(), tmp_path / "file" / "client" / "shop").save({Q3: 1})


def test_a_full_disk_keeps_the_saved_offsets(files: FaultyFiles) -> None:
    file = LocalOffsetFile(files, FOLDER)
    file.save({Q3: 12})
    files.fail("write", errno.ENOSPC)

    with pytest.raises(StoreError):
        file.save({Q3: 13})

    assert LocalOffsetFile(files, FOLDER).load().offset_table == {Q3: 12}


def test_saved_offsets_survive_a_power_loss_even_the_first_ones(files: FaultyFiles) -> None:
    LocalOffsetFile(files, FOLDER).save({Q3: 12})

    for seed in range(20):
        assert LocalOffsetFile(files.crash(Random(seed)), FOLDER).load().offset_table == {Q3: 12}


def test_local_offsets_work_on_a_real_disk(tmp_path: Path) -> None:
    folder = offsets_folder(tmp_path, "10.0.0.1@DEFAULT", "shop")
    LocalOffsetFile(DiskFiles(), folder).save({Q3: 12, Q1: 7})

    assert LocalOffsetFile(DiskFiles(), folder).load().offset_table == {Q3: 12, Q1: 7}

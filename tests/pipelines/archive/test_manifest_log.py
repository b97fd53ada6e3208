"""The manifest on disk: complete after every power loss, one writer at a time."""

from pathlib import Path
from random import Random

import pytest
from tests.pipelines.archive.made_files import QUEUE, commit, data_file, stretch

from pocketmq.errors import StoreDamaged, StoreLocked
from pocketmq.pipelines.archive.manifest import COMMITS_UNTIL_WHOLE, ManifestLog, read_manifest
from pocketmq.testing.faulty_files import FaultyFiles

LAKE = Path("/lake")


def add(log: ManifestLog, number: int) -> None:
    place = stretch(number - 1, number)
    log.commit(commit(number, data_file(f"{number:010}-a", place), ends=(place,)))


def test_commits_are_read_unchanged() -> None:
    files = FaultyFiles()
    with ManifestLog(LAKE, files) as log:
        add(log, 1)
        add(log, 2)

    manifest = read_manifest(LAKE, files)

    assert (manifest.number, manifest.rows, manifest.ends()) == (2, 2, {QUEUE: 2})
    assert read_manifest(Path("/elsewhere"), files).number == 0


def test_many_commits_become_one_file_and_the_last_is_kept() -> None:
    files = FaultyFiles()
    with ManifestLog(LAKE, files) as log:
        for number in range(1, COMMITS_UNTIL_WHOLE + 2):
            add(log, number)

    with ManifestLog(LAKE, files) as log:
        last = log.last()
        assert last is not None
        assert last.number == log.manifest.number == COMMITS_UNTIL_WHOLE + 1
        assert log.manifest.rows == COMMITS_UNTIL_WHOLE + 1
    assert [name for name in files.list(LAKE / "_manifest") if name != "lock"] == [
        "0000000100.json",
        "0000000100.whole.json",
        "0000000101.json",
    ]


def test_after_a_power_loss_a_commit_exists_completely_or_not_at_all() -> None:
    files = FaultyFiles()
    with ManifestLog(LAKE, files) as log:
        add(log, 1)
        files.sync_dir(LAKE)
        files.sync_dir(Path("/"))
        begin = files.position
        add(log, 2)

    found = set()
    for position in range(begin, files.position + 1):
        for seed in range(5):
            found.add(read_manifest(LAKE, files.state_at(position).crash(Random(seed))).number)

    assert found == {1, 2}


def test_a_full_disk_does_not_change_the_manifest() -> None:
    files = FaultyFiles()
    with ManifestLog(LAKE, files) as log:
        add(log, 1)
        files.resize(0)

        with pytest.raises(OSError, match="No space"):
            add(log, 2)

        assert log.manifest.number == read_manifest(LAKE, files).number == 1


def test_a_second_writer_is_refused_and_a_damaged_file_is_reported() -> None:
    files = FaultyFiles()
    with ManifestLog(LAKE, files) as log:
        add(log, 1)
        with pytest.raises(StoreLocked, match="one archive at a time"):
            ManifestLog(LAKE, files)

    with files.open(LAKE / "_manifest" / "0000000001.json") as file:
        file.write_at(0, b"?")
    with pytest.raises(StoreDamaged, match=r"0000000001\.json"):
        ManifestLog(LAKE, files)
    with pytest.raises(StoreDamaged):  # and not StoreLocked: the first attempt released the lock
        ManifestLog(LAKE, files)

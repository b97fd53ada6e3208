"""A bounded set of open files."""

import errno
from pathlib import Path

import pytest

from pocketmq.files import DiskFiles
from pocketmq.store.log.segments import OpenFiles
from pocketmq.testing import FaultyFiles

NAMES = [f"/queues/{number}" for number in range(5)]


@pytest.fixture
def disk() -> FaultyFiles:
    return FaultyFiles()


@pytest.fixture
def some(disk: FaultyFiles) -> OpenFiles:
    return OpenFiles(disk, 3)


def test_a_new_file_has_its_full_size_of_zeros(disk: FaultyFiles, some: OpenFiles) -> None:
    file = some.make(NAMES[0], 400)

    assert file.size() == 400
    assert disk.read(Path(NAMES[0])) == bytes(400)


def test_an_existing_file_keeps_its_bytes(disk: FaultyFiles, some: OpenFiles) -> None:
    some.make(NAMES[0], 400).write_at(0, b"entry")
    some.close()
    again = OpenFiles(disk, 3)

    assert again.make(NAMES[0], 400).read_at(0, 5) == b"entry"
    assert again.take_renamed() == []


def test_only_an_existing_file_can_be_opened(some: OpenFiles) -> None:
    with pytest.raises(FileNotFoundError):
        some.get(NAMES[0])


def test_a_file_is_opened_only_once(some: OpenFiles) -> None:
    made = some.make(NAMES[0], 400)

    assert some.get(NAMES[0]) is made
    assert some.make(NAMES[0], 400) is made
    assert len(some) == 1


def test_above_the_limit_the_least_recently_used_file_is_closed(some: OpenFiles) -> None:
    first, second, third = (some.make(name, 400) for name in NAMES[:3])
    some.get(NAMES[0])

    some.make(NAMES[3], 400)

    assert len(some) == 3
    with pytest.raises(OSError, match="Bad file descriptor"):
        second.size()
    assert first.size() == third.size() == 400


def test_a_closed_file_is_opened_again_when_needed(some: OpenFiles) -> None:
    for number, name in enumerate(NAMES):
        some.make(name, 400).write_at(0, bytes([number]))

    assert [some.get(name).read_at(0, 1)[0] for name in NAMES] == [0, 1, 2, 3, 4]
    assert len(some) == 3


def test_at_least_one_file_may_be_open(disk: FaultyFiles) -> None:
    some = OpenFiles(disk, 0)

    assert some.make(NAMES[0], 400).size() == 400
    assert some.make(NAMES[1], 400).size() == 400
    assert len(some) == 1


def test_a_file_size_that_failed_is_set_by_the_next_attempt(disk: FaultyFiles, some: OpenFiles) -> None:
    disk.fail("truncate", errno.ENOSPC)
    with pytest.raises(OSError, match="No space"):
        some.make(NAMES[0], 400)
    assert len(some) == 0

    assert some.make(NAMES[0], 400).size() == 400
    assert some.take_renamed() == [Path(NAMES[0])]


def test_a_file_whose_size_cannot_be_set_is_closed(tmp_path: Path) -> None:
    some = OpenFiles(DiskFiles(), 3)
    open_before = len(list(Path("/proc/self/fd").iterdir()))

    with pytest.raises(OSError, match=r"File too large|Invalid argument"):
        some.make(str(tmp_path / "0"), 2**63 - 1)

    assert len(list(Path("/proc/self/fd").iterdir())) == open_before


def test_a_file_left_too_short_by_a_crash_gets_its_size(disk: FaultyFiles, some: OpenFiles) -> None:
    disk.make_dir(Path("/queues"))
    with disk.open(Path(NAMES[0]), create=True) as file:
        file.write_at(0, b"torn")

    assert some.make(NAMES[0], 400).read_at(0, 400) == b"torn" + bytes(396)


def test_written_files_are_reported_once_even_if_a_later_file_fails(disk: FaultyFiles, some: OpenFiles) -> None:
    some.make(NAMES[1], 400)
    disk.fail("create", errno.ENOSPC)
    with pytest.raises(OSError, match="No space"):
        some.make(NAMES[0], 400)

    assert some.take_written() == [Path(NAMES[0]), Path(NAMES[1])]
    assert some.take_written() == []


def test_created_and_removed_names_are_unsafe_until_their_sync(disk: FaultyFiles, some: OpenFiles) -> None:
    some.make(NAMES[0], 400)
    some.make(NAMES[1], 400)
    assert some.take_renamed() == [Path(NAMES[0]), Path(NAMES[1])]

    some.make(NAMES[1], 400)
    some.unlink(NAMES[0])

    assert some.take_renamed() == [Path(NAMES[0])]
    assert some.take_renamed() == []


def test_an_uncertain_name_is_reported_although_the_file_exists(disk: FaultyFiles, some: OpenFiles) -> None:
    some.make(NAMES[0], 400)
    some.take_renamed()

    some.doubts_names = True
    some.make(NAMES[0], 400)

    assert some.take_renamed() == [Path(NAMES[0])]


def test_an_unlinked_file_is_closed_and_needs_no_sync(disk: FaultyFiles, some: OpenFiles) -> None:
    file = some.make(NAMES[0], 400)

    some.unlink(NAMES[0])

    assert disk.status(Path(NAMES[0])) is None
    assert len(some) == 0
    assert some.take_written() == []
    with pytest.raises(OSError, match="Bad file descriptor"):
        file.size()


def test_unlinking_a_missing_file_is_harmless(some: OpenFiles) -> None:
    some.unlink(NAMES[0])

    assert len(some) == 0


def test_closing_closes_all_files_and_may_be_repeated(some: OpenFiles) -> None:
    files = [some.make(name, 400) for name in NAMES[:3]]

    some.close()
    some.close()

    for file in files:
        with pytest.raises(OSError, match="Bad file descriptor"):
            file.size()

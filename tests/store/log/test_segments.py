"""A sequence of files: what belongs to it, what is damage, and that no crash leaves a gap."""

import errno
from pathlib import Path

import pytest

from pocketmq.errors import StoreDamaged, StoreError, StoreFull
from pocketmq.files import DiskFiles
from pocketmq.store.log.segments import Segments, disk_error, zero_from
from pocketmq.testing import FaultyFiles

FOLDER = Path("/log")
SIZE = 100


def name_of(first: int) -> str:
    return f"{first:020d}"


def disk_with(files: dict[str, int]) -> FaultyFiles:
    """A disk whose log folder holds files of these sizes; everything on it is safe."""
    disk = FaultyFiles()
    disk.make_dir(FOLDER)
    for name, size in files.items():
        with disk.open(FOLDER / name, create=True) as file:
            file.truncate(size)
            file.sync()
    disk.sync_dir(FOLDER)
    disk.sync_dir(FOLDER.parent)
    return disk


def run_of(*firsts: int) -> FaultyFiles:
    return disk_with({name_of(first): SIZE for first in firsts})


def loaded(disk: FaultyFiles) -> Segments:
    segments = Segments(disk, FOLDER, SIZE)
    segments.load()
    return segments


def test_segments_are_found_in_order_and_may_start_anywhere() -> None:
    segments = loaded(run_of(300, 200, 400))

    assert [segment.first for segment in segments.files] == [200, 300, 400]
    assert (segments.start, segments.end_of_files) == (200, 500)
    assert segments.foreign == []


@pytest.mark.parametrize("disk", [FaultyFiles(), run_of()], ids=["no folder", "empty folder"])
def test_without_files_the_list_of_segments_is_empty(disk: FaultyFiles) -> None:
    segments = loaded(disk)

    assert (segments.files, segments.start, segments.end_of_files) == ([], 0, 0)
    assert segments.file_at(0) is None


@pytest.mark.parametrize(("offset", "first"), [(200, 200), (299, 200), (300, 300), (399, 300)])
def test_an_offset_is_in_the_file_that_contains_it(offset: int, first: int) -> None:
    found = loaded(run_of(200, 300)).file_at(offset)

    assert found is not None
    assert (found.first, found.end) == (first, first + SIZE)


@pytest.mark.parametrize("offset", [-1, 0, 199, 400, 1000])
def test_an_offset_outside_the_files_is_in_no_file(offset: int) -> None:
    assert loaded(run_of(200, 300)).file_at(offset) is None


@pytest.mark.parametrize(
    ("start", "end", "firsts"),
    [
        (200, 200, []),
        (200, 201, [200]),
        (299, 300, [200]),
        (299, 301, [200, 300]),
        (300, 400, [300]),
        (0, 900, [200, 300, 400]),
    ],
)
def test_a_range_lists_the_files_that_contain_its_bytes(start: int, end: int, firsts: list[int]) -> None:
    segments = loaded(run_of(200, 300, 400))

    assert [segment.first for segment in segments.between(start, end)] == firsts


@pytest.mark.parametrize("size", [1, 99, 101, 0])
def test_a_file_of_the_wrong_size_is_damage_that_names_both_sizes(size: int) -> None:
    disk = disk_with({name_of(0): SIZE, name_of(100): size, name_of(200): SIZE})

    with pytest.raises(StoreDamaged, match=f"{name_of(100)} has {size} bytes, expected 100"):
        loaded(disk)


def test_an_empty_newest_file_is_not_damage() -> None:
    segments = loaded(disk_with({name_of(0): SIZE, name_of(100): 0}))

    assert segments.end_of_files == 100
    assert segments.unfinished == FOLDER / name_of(100)


def test_a_gap_between_files_is_damage() -> None:
    with pytest.raises(StoreDamaged, match=f"{name_of(200)} begins at 200, but the file before it ends at 100"):
        loaded(run_of(0, 200))


def test_a_file_that_starts_inside_another_is_damage() -> None:
    with pytest.raises(StoreDamaged, match="begins at 50, which is not a multiple"):
        loaded(run_of(50))


def test_files_with_other_names_are_listed_and_not_changed() -> None:
    names = ["lost+found", "0" * 19, "0" * 21, "00000000000000000a00", "٠" * 20, "9" * 20]
    disk = disk_with({name_of(0): SIZE} | dict.fromkeys(names, 7))
    disk.make_dir(FOLDER / name_of(100))

    segments = loaded(disk)
    segments.drop_after(0)

    assert [segment.first for segment in segments.files] == [0]
    assert sorted(path.name for path in segments.foreign) == sorted([*names, name_of(100)])
    assert len(disk.list(FOLDER)) == 8


def test_loading_again_finds_the_current_files() -> None:
    disk = disk_with({name_of(0): SIZE, name_of(100): 0, "foreign": 1})
    segments = loaded(disk)

    disk.unlink(FOLDER / "foreign")
    with disk.open(FOLDER / name_of(100)) as file:
        file.truncate(SIZE)
    segments.load()

    assert (segments.end_of_files, segments.foreign, segments.unfinished) == (200, [], None)


def test_a_file_starts_at_the_end_of_the_last_one() -> None:
    disk = run_of(0)
    segments = loaded(disk)

    with pytest.raises(AssertionError, match="no gaps"):
        segments.add(200, disk.open(FOLDER / name_of(200), create=True))
    segments.add(100, disk.open(FOLDER / name_of(100), create=True))

    assert segments.end_of_files == 200


def test_files_are_opened_when_used_and_again_after_closing() -> None:
    disk = run_of(0, 100)
    segments = loaded(disk)
    opening = disk.fail("open")

    with pytest.raises(OSError, match="Input/output"):
        _ = segments.files[0].file
    segments.files[0].file.write_at(3, b"x")
    segments.close()

    assert opening.hits == 1
    assert bytes(segments.files[0].map[2:5]) == b"\0x\0"
    segments.close()


def test_segments_opened_for_reading_cannot_be_written() -> None:
    segments = Segments(run_of(0), FOLDER, SIZE, writable=False)
    segments.load()

    with pytest.raises(OSError, match="Bad file"):
        segments.files[0].file.write_at(0, b"x")

    assert len(segments.files[0].map) == SIZE


def test_views_stay_valid_after_their_file_is_deleted(tmp_path: Path) -> None:
    for first in (0, 100):
        (tmp_path / name_of(first)).write_bytes(bytes([first + 1]) * SIZE)
    segments = Segments(DiskFiles(), tmp_path, SIZE)
    segments.load()
    view = segments.files[0].map[10:20]

    segments.drop_first()
    segments.close()

    assert bytes(view) == b"\x01" * 10
    assert [path.name for path in tmp_path.iterdir()] == [name_of(100)]
    assert segments.start == 100


def test_truncation_keeps_the_file_of_the_offset_and_removes_later_ones() -> None:
    disk = disk_with({name_of(first): SIZE for first in (0, 100, 200, 300)} | {name_of(400): 0})
    segments = loaded(disk)

    segments.drop_after(150)

    assert disk.list(FOLDER) == [name_of(0), name_of(100)]
    assert (segments.end_of_files, segments.unfinished) == (200, None)
    segments.drop_after(100)
    assert segments.end_of_files == 200


def test_no_crash_during_a_deletion_leaves_a_gap() -> None:
    disk = disk_with({name_of(first): SIZE for first in range(0, 800, 100)} | {name_of(800): 0})
    segments, begun = loaded(disk), disk.position

    for _ in range(3):
        segments.drop_first()
    segments.drop_after(450)

    states = [point.files for point in disk.crash_points(seed=1, states=5) if point.position >= begun]
    assert len(states) > 50
    for state in states:
        firsts = [segment.first for segment in loaded(state).files]
        assert set(range(300, 500, 100)) <= set(firsts)
    assert [segment.first for segment in loaded(disk).files] == [300, 400]


def test_a_deleted_file_can_still_be_removed_from_the_list() -> None:
    disk = run_of(0, 100)
    segments = loaded(disk)
    disk.unlink(FOLDER / name_of(0))

    segments.drop_first()

    assert segments.start == 100


@pytest.mark.parametrize(
    ("code", "kind"), [(errno.ENOSPC, StoreFull), (errno.EDQUOT, StoreFull), (errno.EIO, StoreError)]
)
def test_an_error_of_the_disk_is_classified_as_full_or_other(code: int, kind: type[StoreError]) -> None:
    found = disk_error("writing failed", OSError(code, "because"))

    assert type(found) is kind
    assert "writing failed: [Errno" in str(found)


def test_nonzero_bytes_after_an_offset_are_overwritten(tmp_path: Path) -> None:
    with DiskFiles().open(tmp_path / "log", create=True) as file:
        file.truncate(4 << 20)
        file.write_at(0, b"kept" * 1024)
        file.write_at((3 << 20) - 10, b"stale" * 100)

        assert zero_from(file, 4096, 4 << 20)

        assert file.read_at(0, 4 << 20) == b"kept" * 1024 + bytes((4 << 20) - 4096)
        assert not zero_from(file, 4096, 4 << 20)


def test_zeroing_ends_at_its_limit_and_at_the_end_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"x" * 100)

    with DiskFiles().open(tmp_path / "log") as file:
        assert zero_from(file, 10, 20)
        assert file.read_at(0, 100) == b"x" * 10 + bytes(10) + b"x" * 80
        assert zero_from(file, 90, 1000)
        assert file.size() == 100

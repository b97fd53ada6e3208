"""The disk in memory behaves like a real one: every test here runs with both."""

import errno
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pocketmq.files import DiskFiles, File, Files, files_below, write_atomically
from pocketmq.testing import FaultyFiles


@dataclass
class Place:
    """A folder on some disk."""

    files: Files
    root: Path

    def write(self, name: str, data: bytes) -> Path:
        path = self.root / name
        with self.files.open(path, create=True) as file:
            file.write_at(0, data)
        return path


@pytest.fixture(params=["disk", "memory"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return Place(DiskFiles(), tmp_path) if request.param == "disk" else memory_place()


def memory_place() -> Place:
    files = FaultyFiles()
    files.make_dir(Path("/store"))
    return Place(files, Path("/store"))


def assert_fails(code: int, call: Callable[[], object]) -> None:
    with pytest.raises(OSError, match=re.escape(os.strerror(code))):
        call()


def test_bytes_are_read_where_they_were_written(place: Place) -> None:
    with place.files.open(place.root / "log", create=True) as file:
        file.write_at(0, b"hello")
        file.write_at(10_000, bytearray(b"far"))
        file.write_at(2, memoryview(b"LL"))

        assert file.read_at(0, 6) == b"heLLo\0"
        assert file.read_at(9_999, 100) == b"\0far"
        assert file.read_at(20_000, 5) == b""
        assert file.size() == 10_003
        assert file.path == place.root / "log"
    assert place.files.read(place.root / "log")[:5] == b"heLLo"


def test_an_empty_write_changes_nothing(place: Place) -> None:
    with place.files.open(place.root / "log", create=True) as file:
        file.write_at(100, b"")

        assert file.size() == 0


def test_opening_creates_a_file_only_with_create(place: Place) -> None:
    path = place.root / "log"

    assert_fails(errno.ENOENT, lambda: place.files.open(path))
    place.files.open(path, create=True).close()

    with place.files.open(path) as file:
        assert file.size() == 0
    place.write("log", b"kept")
    with place.files.open(path, create=True) as file:
        assert file.read_at(0, 9) == b"kept"


def test_opening_fails_as_the_system_does(place: Place) -> None:
    place.write("file", b"x")

    assert_fails(errno.ENOENT, lambda: place.files.open(place.root / "missing" / "log", create=True))
    assert_fails(errno.ENOTDIR, lambda: place.files.open(place.root / "file" / "log", create=True))
    assert_fails(errno.EISDIR, lambda: place.files.open(place.root))
    assert_fails(errno.ENOENT, lambda: place.files.read(place.root / "missing"))
    assert_fails(errno.EISDIR, lambda: place.files.read(place.root))


def test_a_file_opened_for_reading_refuses_changes(place: Place) -> None:
    place.write("log", b"abc")

    with place.files.open(place.root / "log", write=False) as file:
        assert file.read_at(0, 3) == b"abc"
        assert_fails(errno.EBADF, lambda: file.write_at(0, b"x"))
        assert_fails(errno.EINVAL, lambda: file.truncate(0))
        assert_fails(errno.EBADF, lambda: file.allocate(10))
        file.sync()


def test_a_closed_file_refuses_everything(place: Place) -> None:
    file = place.files.open(place.root / "log", create=True)
    file.close()
    file.close()

    calls: list[Callable[[], object]] = [
        lambda: file.read_at(0, 1),
        lambda: file.write_at(0, b"x"),
        lambda: file.truncate(1),
        lambda: file.allocate(1),
        file.size,
        file.sync,
        file.lock,
    ]
    for call in calls:
        with pytest.raises((OSError, ValueError), match="descriptor"):
            call()


def test_truncate_cuts_and_extends_with_zeros(place: Place) -> None:
    with place.files.open(place.root / "log", create=True) as file:
        file.write_at(0, b"a" * 9000)

        file.truncate(5000)
        file.truncate(8000)

        assert file.size() == 8000
        assert file.read_at(4990, 20) == b"a" * 10 + b"\0" * 10
        assert file.read_at(5000, 9000) == bytes(3000)


def test_allocate_extends_with_zeros_and_never_cuts(place: Place) -> None:
    with place.files.open(place.root / "log", create=True) as file:
        file.write_at(0, b"abc")
        file.allocate(5000)
        file.allocate(2)

        assert file.size() == 5000
        assert file.read_at(0, 6000) == b"abc" + bytes(4997)
        assert_fails(errno.EINVAL, lambda: file.allocate(0))


def test_impossible_numbers_are_refused(place: Place) -> None:
    with place.files.open(place.root / "log", create=True) as file:
        assert_fails(errno.EINVAL, lambda: file.write_at(-1, b"x"))
        assert_fails(errno.EINVAL, lambda: file.read_at(-1, 1))
        assert_fails(errno.EINVAL, lambda: file.truncate(-1))


def test_next_data_skips_holes(place: Place) -> None:
    with place.files.open(place.root / "log", create=True) as file:
        file.truncate(1 << 20)
        file.write_at(1 << 18, b"x")

        assert file.next_data(0) == 1 << 18
        assert file.next_data((1 << 18) + 1) == (1 << 18) + 1
        assert file.next_data(1 << 19) is None
        assert file.next_data(1 << 21) is None


def test_a_map_shows_later_writes_and_is_read_only(place: Place) -> None:
    with place.files.open(place.root / "log", create=True) as file:
        file.truncate(8192)
        view = file.map(8192)

        file.write_at(4000, b"x" * 200)

        assert bytes(view[3999:4201]) == b"\0" + b"x" * 200 + b"\0"
        assert view.readonly
        assert len(view) == 8192
        assert len(file.map(0)) == 0


def test_a_map_shows_earlier_writes(place: Place) -> None:
    place.write("log", b"before")

    with place.files.open(place.root / "log", write=False) as file:
        assert bytes(file.map(4)) == b"befo"


def test_a_map_stays_valid_without_its_file(place: Place) -> None:
    path = place.write("log", b"alive" * 1000)
    with place.files.open(path) as file:
        view = file.map(5000)

    place.files.unlink(path)

    assert bytes(view[4990:]) == b"alivealive"


def test_a_map_beyond_the_end_is_refused(place: Place) -> None:
    with place.files.open(place.root / "log", create=True) as file:
        file.write_at(0, b"abc")

        with pytest.raises(ValueError, match="map"):
            file.map(4)


def test_an_open_file_exists_after_its_unlink(place: Place) -> None:
    path = place.write("log", b"old")

    with place.files.open(path) as file:
        place.files.unlink(path)
        place.write("log", b"new")
        file.write_at(3, b"er")

        assert file.read_at(0, 9) == b"older"
        file.sync()
    assert place.files.read(path) == b"new"


def test_a_lock_is_for_one_opening_and_freed_by_close(place: Place) -> None:
    path = place.write("lock", b"")
    first, second = place.files.open(path), place.files.open(path)

    assert first.lock()
    assert first.lock()
    assert not second.lock()
    first.close()
    assert second.lock()
    second.close()


def test_folders_are_created_with_their_parents(place: Place) -> None:
    place.files.make_dir(place.root / "a" / "b" / "c")
    place.files.make_dir(place.root / "a" / "b" / "c")
    place.write("a/b/file", b"x")

    assert place.files.list(place.root / "a" / "b") == ["c", "file"]
    assert place.files.list(place.root / "missing") == []
    assert_fails(errno.EEXIST, lambda: place.files.make_dir(place.root / "a" / "b" / "file"))
    assert_fails(errno.ENOTDIR, lambda: place.files.make_dir(place.root / "a" / "b" / "file" / "below"))
    assert_fails(errno.ENOTDIR, lambda: place.files.list(place.root / "a" / "b" / "file"))


def test_only_empty_folders_are_removed(place: Place) -> None:
    place.files.make_dir(place.root / "a" / "b")
    place.write("file", b"x")

    assert_fails(errno.ENOTEMPTY, lambda: place.files.remove_dir(place.root / "a"))
    assert_fails(errno.ENOTDIR, lambda: place.files.remove_dir(place.root / "file"))
    assert_fails(errno.ENOENT, lambda: place.files.remove_dir(place.root / "missing"))
    place.files.remove_dir(place.root / "a" / "b")
    place.files.remove_dir(place.root / "a")

    assert place.files.list(place.root) == ["file"]


def test_status_distinguishes_files_folders_and_missing_paths(place: Place) -> None:
    path = place.write("log", b"12345")

    found, folder = place.files.status(path), place.files.status(place.root)

    assert found is not None
    assert (found.size, found.is_dir) == (5, False)
    assert found.modified_ms > 1_600_000_000_000
    assert folder is not None
    assert folder.is_dir
    assert place.files.status(place.root / "missing") is None
    assert place.files.status(path / "below") is None


def test_replace_overwrites_an_existing_file(place: Place) -> None:
    new, old = place.write("new", b"new"), place.write("old", b"old")
    place.files.make_dir(place.root / "folder")

    place.files.replace(new, old)
    place.files.replace(old, old)
    place.files.replace(old, place.root / "folder" / "moved")

    assert [path.name for path in files_below(place.files, place.root)] == ["moved"]
    assert place.files.read(place.root / "folder" / "moved") == b"new"


def test_replace_fails_as_the_system_does(place: Place) -> None:
    file = place.write("file", b"x")
    place.files.make_dir(place.root / "full" / "inner")
    place.files.make_dir(place.root / "empty")

    assert_fails(errno.ENOENT, lambda: place.files.replace(place.root / "missing", file))
    assert_fails(errno.ENOENT, lambda: place.files.replace(file, place.root / "missing" / "x"))
    assert_fails(errno.EISDIR, lambda: place.files.replace(file, place.root / "empty"))
    assert_fails(errno.ENOTDIR, lambda: place.files.replace(place.root / "empty", file))
    assert_fails(errno.ENOTEMPTY, lambda: place.files.replace(place.root / "empty", place.root / "full"))
    assert_fails(errno.EINVAL, lambda: place.files.replace(place.root / "full", place.root / "full" / "inner" / "x"))
    place.files.replace(place.root / "full", place.root / "empty")

    assert place.files.list(place.root) == ["empty", "file"]
    assert place.files.list(place.root / "empty") == ["inner"]


def test_unlink_removes_files_only(place: Place) -> None:
    path = place.write("log", b"x")
    place.files.make_dir(place.root / "folder")

    place.files.unlink(path)

    assert place.files.list(place.root) == ["folder"]
    assert_fails(errno.ENOENT, lambda: place.files.unlink(path))
    assert_fails(errno.EISDIR, lambda: place.files.unlink(place.root / "folder"))


def test_only_folders_are_synced_as_folders(place: Place) -> None:
    path = place.write("log", b"x")

    place.files.sync_dir(place.root)

    assert_fails(errno.ENOTDIR, lambda: place.files.sync_dir(path))
    assert_fails(errno.ENOENT, lambda: place.files.sync_dir(place.root / "missing"))


def test_usage_needs_a_path_that_exists(place: Place) -> None:
    usage = place.files.usage(place.root)

    assert 0 < usage.free <= usage.total
    assert_fails(errno.ENOENT, lambda: place.files.usage(place.root / "missing"))


def test_an_atomic_write_leaves_one_file(place: Place) -> None:
    write_atomically(place.files, place.root / "table", b"first")
    write_atomically(place.files, place.root / "table", b"2nd")

    assert place.files.list(place.root) == ["table"]
    assert place.files.read(place.root / "table") == b"2nd"


NAMES = st.sampled_from(["a", "b", "d", "d/a", "d/e", "d/e/a"])
OFFSETS = st.integers(0, 9000)
STEPS = st.one_of(
    st.tuples(st.just("write"), NAMES, OFFSETS, st.binary(max_size=6000)),
    st.tuples(st.just("truncate"), NAMES, OFFSETS),
    st.tuples(st.just("allocate"), NAMES, OFFSETS),
    st.tuples(st.just("read"), NAMES, OFFSETS, OFFSETS),
    st.tuples(st.just("make_dir"), NAMES),
    st.tuples(st.just("remove_dir"), NAMES),
    st.tuples(st.just("replace"), NAMES, NAMES),
    st.tuples(st.just("unlink"), NAMES),
    st.tuples(st.just("sync_dir"), NAMES),
    st.tuples(st.just("list"), NAMES),
)


@settings(max_examples=150)
@given(st.lists(STEPS, max_size=25))
def test_random_operations_have_the_same_result_on_both_disks(steps: list[tuple[object, ...]]) -> None:
    with TemporaryDirectory() as folder:
        real, memory = Place(DiskFiles(), Path(folder)), memory_place()

        for step in steps:
            assert outcome(real, *step) == outcome(memory, *step)

        assert tree(real) == tree(memory)


def outcome(place: Place, verb: object, name: object, *rest: object) -> object:
    """What a call gave, or the number of the error it raised."""
    path = place.root / str(name)
    try:
        if verb in ("write", "truncate", "allocate", "read"):
            with place.files.open(path, create=True) as file:
                return change(file, verb, *rest)
        if verb == "replace":
            place.files.replace(path, place.root / str(rest[0]))
            return None
        return getattr(place.files, str(verb))(path)
    except OSError as error:
        return error.errno


def change(file: File, verb: object, *rest: object) -> object:
    match verb, rest:
        case "write", (int(offset), bytes(data)):
            file.write_at(offset, data)
        case "truncate", (int(size),):
            file.truncate(size)
        case "allocate", (int(size),):
            file.allocate(size)
        case "read", (int(offset), int(size)):
            return file.read_at(offset, size), file.map(file.size()).tobytes()
    return file.size()


def tree(place: Place) -> dict[str, bytes]:
    return {str(path.relative_to(place.root)): place.files.read(path) for path in files_below(place.files, place.root)}

"""Access to the disk: the guarantees of the operating system's files."""

import errno
import itertools
import os
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.files import (
    DiskFile,
    DiskFiles,
    DiskUsage,
    File,
    Files,
    FileStatus,
    captured_errors,
    diverted_errors,
    files_below,
    make_executable,
    may_write_in,
    remove_whole,
    temporary_folder,
    write_atomically,
)


@pytest.fixture
def files() -> DiskFiles:
    return DiskFiles()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log"


def test_files_on_disk_have_the_interface(files: DiskFiles, path: Path) -> None:
    door: Files = files

    with door.open(path, create=True) as file:
        opened: File = file

        assert opened.path == path


def test_written_bytes_are_read_at_any_offset(files: DiskFiles, path: Path) -> None:
    with files.open(path, create=True) as file:
        file.write_at(0, b"hello")
        file.write_at(8, memoryview(b"world"))
        file.write_at(5, bytearray(b"..."))

        assert file.read_at(0, 13) == b"hello...world"
        assert file.read_at(5, 4) == b"...w"
        assert file.size() == 13


def test_a_read_is_short_only_at_the_end_of_the_file(files: DiskFiles, path: Path) -> None:
    with files.open(path, create=True) as file:
        file.write_at(0, b"hello")

        assert file.read_at(3, 100) == b"lo"
        assert file.read_at(5, 1) == b""
        assert file.read_at(500, 1) == b""


@given(st.binary(min_size=1, max_size=200), st.lists(st.integers(1, 50), min_size=1, max_size=20))
def test_short_reads_and_writes_of_the_system_are_continued(data: bytes, steps: list[int]) -> None:
    disk = bytearray(len(data))
    turns = itertools.cycle(steps)

    def pwrite(fd: int, piece: bytes, offset: int) -> int:
        part = bytes(piece[: next(turns)])
        disk[offset : offset + len(part)] = part
        return len(part)

    def pread(fd: int, size: int, offset: int) -> bytes:
        return bytes(disk[offset : offset + min(size, next(turns))])

    file = DiskFile(Path(os.devnull), os.O_RDWR)
    with pytest.MonkeyPatch.context() as patch, file:
        patch.setattr(os, "pwrite", pwrite)
        patch.setattr(os, "pread", pread)
        file.write_at(0, data)

        assert disk == data
        assert file.read_at(0, len(data) + 10) == data


def test_a_disk_that_writes_nothing_is_full(files: DiskFiles, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with files.open(path, create=True) as file:
        monkeypatch.setattr(os, "pwrite", lambda fd, data, offset: 0)

        with pytest.raises(OSError, match="No space left") as caught:
            file.write_at(0, b"hello")

    assert caught.value.errno == errno.ENOSPC


def test_a_nonblocking_write_fails_if_the_disk_would_block(
    files: DiskFiles, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def blocks(*_: object) -> int:
        raise BlockingIOError(errno.EAGAIN, "busy")

    monkeypatch.setattr(os, "RWF_NOWAIT", 8, raising=False)  # a Python for old kernels, such as uv's, does not have it
    with files.open(path, create=True) as file:
        monkeypatch.setattr(os, "pwritev", blocks)
        with pytest.raises(BlockingIOError):
            file.write_at(0, b"abc", wait=False)
        monkeypatch.setattr(os, "pwritev", lambda *_: 2)
        with pytest.raises(BlockingIOError, match="2 of 3 bytes"):
            file.write_at(0, b"abc", wait=False)
        file.write_at(0, b"abc")

        assert file.read_at(0, 10) == b"abc"


def test_on_a_file_system_without_nonblocking_writes_every_write_waits(
    files: DiskFiles, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def unsupported(*_: object) -> int:
        asked.append(1)
        raise OSError(errno.EOPNOTSUPP, "not supported")

    monkeypatch.setattr(os, "RWF_NOWAIT", 8, raising=False)
    monkeypatch.setattr(os, "pwritev", unsupported)
    with files.open(path, create=True) as file:
        for at in range(3):
            file.write_at(at, b"x", wait=False)

        assert file.read_at(0, 10) == b"xxx"
    assert len(asked) == 1


def test_a_missing_file_is_created_only_with_create(files: DiskFiles, path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        files.open(path)
    assert files.status(path) is None

    files.open(path, create=True).close()

    assert files.read(path) == b""


def test_opening_with_create_keeps_existing_bytes(files: DiskFiles, path: Path) -> None:
    path.write_bytes(b"old")

    with files.open(path, create=True) as file:
        assert file.read_at(0, 3) == b"old"


def test_a_file_opened_for_reading_refuses_writes(files: DiskFiles, path: Path) -> None:
    path.write_bytes(b"old")

    with files.open(path, write=False) as file, pytest.raises(OSError, match="Bad file descriptor"):
        file.write_at(0, b"new")


def test_truncate_cuts_and_extends_with_zeros(files: DiskFiles, path: Path) -> None:
    with files.open(path, create=True) as file:
        file.write_at(0, b"hello")
        file.truncate(2)
        file.truncate(4)

        assert file.read_at(0, 10) == b"he\0\0"


def test_allocate_reserves_blocks_and_never_shrinks(files: DiskFiles, path: Path) -> None:
    with files.open(path, create=True) as file:
        file.allocate(64 * 1024)
        file.allocate(1024)

        assert file.size() == 64 * 1024
        assert path.stat().st_blocks * 512 >= 64 * 1024


def test_sync_waits_for_bytes_and_for_names(files: DiskFiles, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    for name in ("fdatasync", "fsync"):
        monkeypatch.setattr(os, name, lambda fd, name=name: synced.append(name))

    with files.open(path, create=True) as file:
        file.sync()
    files.sync_dir(path.parent)

    assert synced == ["fdatasync", "fsync"]


def test_later_writes_are_visible_in_a_map(files: DiskFiles, path: Path) -> None:
    with files.open(path, create=True) as file:
        file.truncate(10)
        view = file.map(10)
        file.write_at(4, b"new")

    assert bytes(view) == b"\0\0\0\0new\0\0\0"
    assert view.readonly


def test_a_map_stays_valid_after_unlink_and_close(files: DiskFiles, path: Path) -> None:
    path.write_bytes(b"hello")
    with files.open(path) as file:
        view = file.map(5)

    files.unlink(path)

    assert files.status(path) is None
    assert bytes(view) == b"hello"


def test_a_map_covers_the_requested_bytes_even_if_none(files: DiskFiles, path: Path) -> None:
    path.write_bytes(b"hello")

    with files.open(path) as file:
        assert bytes(file.map(2)) == b"he"
        assert bytes(file.map(0)) == b""


def test_closing_twice_is_harmless_and_never_closes_another_file(files: DiskFiles, path: Path) -> None:
    first = files.open(path, create=True)
    first.close()
    with files.open(path) as second:
        first.close()

        assert second.size() == 0
    with pytest.raises(OSError, match="Bad file descriptor"):
        first.size()


def test_holes_are_skipped_in_search_of_data(files: DiskFiles, path: Path) -> None:
    with files.open(path, create=True) as file:
        file.truncate(1 << 20)
        file.write_at(1 << 19, b"x" * 4096)

        assert file.next_data(0) == 1 << 19
        assert file.next_data((1 << 19) + 1) == (1 << 19) + 1
        assert file.next_data((1 << 19) + 4096) is None
        assert file.next_data(1 << 21) is None


def test_a_search_for_data_in_a_closed_file_fails(files: DiskFiles, path: Path) -> None:
    file = files.open(path, create=True)
    file.close()

    with pytest.raises(OSError, match="Bad file descriptor"):
        file.next_data(0)


LOCK_ELSEWHERE = """
import sys
from pathlib import Path
from types import SimpleNamespace
from pocketmq.files import DiskFiles
with DiskFiles().open(Path(sys.argv[1])) as file:
    print(file.lock())
"""


def lock_in_another_process(path: Path) -> bool:
    done = subprocess.run(
        [sys.executable, "-c", LOCK_ELSEWHERE, str(path)], capture_output=True, text=True, check=True, timeout=60
    )
    return done.stdout.strip() == "True"


def test_a_lock_excludes_other_processes_until_it_is_closed(files: DiskFiles, path: Path) -> None:
    with files.open(path, create=True) as file:
        assert file.lock()
        assert file.lock()

        assert not lock_in_another_process(path)

    assert lock_in_another_process(path)


def test_a_lock_can_be_queried_without_taking_it(files: DiskFiles, path: Path) -> None:
    path.write_bytes(b"lock")

    with files.open(path) as owner, files.open(path, write=False) as other:
        assert not other.is_locked()
        assert owner.lock()
        assert other.is_locked()
        assert not owner.is_locked()
    with files.open(path, write=False) as later:
        assert not later.is_locked()


def test_a_lock_excludes_a_second_opening_in_the_same_process(files: DiskFiles, path: Path) -> None:
    with files.open(path, create=True) as first, files.open(path) as second:
        assert first.lock()
        assert not second.lock()


def test_status_reports_size_age_kind_and_mode(files: DiskFiles, path: Path) -> None:
    path.write_bytes(b"hello")
    path.chmod(0o640)
    os.utime(path, ns=(0, 1_700_000_000_123_456_789))
    path.chmod(0o640)

    assert files.status(path) == FileStatus(5, 1_700_000_000_123, is_dir=False, mode=0o640)
    folder = files.status(path.parent)
    assert folder is not None
    assert folder.is_dir


def test_paths_below_a_plain_file_have_no_status(files: DiskFiles, path: Path) -> None:
    path.write_bytes(b"")

    assert files.status(path / "below") is None


def test_names_in_a_folder_are_sorted_and_a_missing_folder_has_none(files: DiskFiles, tmp_path: Path) -> None:
    for name in ("00000000000001073741824", "00000000000000000000", "abort"):
        (tmp_path / name).touch()

    assert files.list(tmp_path) == ["00000000000000000000", "00000000000001073741824", "abort"]
    assert files.list(tmp_path / "missing") == []


def test_folders_are_created_with_their_parents_and_removed_when_empty(files: DiskFiles, tmp_path: Path) -> None:
    folder = tmp_path / "consumequeue" / "T" / "0"

    files.make_dir(folder)
    files.make_dir(folder)
    files.remove_dir(folder)

    assert files.list(folder.parent) == []
    with pytest.raises(OSError, match="not empty"):
        files.remove_dir(tmp_path / "consumequeue")


def test_replace_gives_the_new_file_the_name_of_the_old_one(files: DiskFiles, tmp_path: Path) -> None:
    (tmp_path / "new").write_bytes(b"new")
    (tmp_path / "old").write_bytes(b"old")

    files.replace(tmp_path / "new", tmp_path / "old")

    assert files.read(tmp_path / "old") == b"new"
    assert files.list(tmp_path) == ["old"]


def test_usage_reports_the_used_part_of_the_disk(files: DiskFiles, tmp_path: Path) -> None:
    usage = files.usage(tmp_path)

    assert 0 <= usage.free <= usage.total
    assert 0 <= usage.used_ratio <= 1


def test_space_reserved_for_the_administrator_is_neither_used_nor_free(
    files: DiskFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocks = SimpleNamespace(f_frsize=4096, f_blocks=1000, f_bfree=800, f_bavail=200)
    monkeypatch.setattr(os, "statvfs", lambda _: blocks)

    usage = files.usage(tmp_path)

    assert usage == (400 * 4096, 200 * 4096)
    assert usage.used_ratio == 0.5, "as df says, and Apache's broker"


def test_a_disk_of_size_zero_counts_as_full() -> None:
    assert DiskUsage(total=0, free=0).used_ratio == 1
    assert DiskUsage(total=100, free=25).used_ratio == 0.75


@pytest.mark.parametrize("old", [None, b"", b"a much longer old table"])
def test_an_atomic_write_leaves_only_the_new_table(files: DiskFiles, tmp_path: Path, old: bytes | None) -> None:
    table = tmp_path / "topics.json"
    if old is not None:
        table.write_bytes(old)

    write_atomically(files, table, b"{}")

    assert files.read(table) == b"{}"
    assert files.list(tmp_path) == ["topics.json"]


def test_an_atomic_write_overwrites_remains_of_a_crash(files: DiskFiles, tmp_path: Path) -> None:
    (tmp_path / "topics.json.tmp").write_bytes(b"half of an older, longer table")

    write_atomically(files, tmp_path / "topics.json", b"{}")

    assert files.read(tmp_path / "topics.json") == b"{}"


def test_an_atomic_write_that_fails_leaves_the_old_table(
    files: DiskFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = tmp_path / "topics.json"
    table.write_bytes(b"old")

    def refuse(fd: int) -> None:
        raise OSError(errno.EIO, "sync failed")

    monkeypatch.setattr(os, "fdatasync", refuse)
    with pytest.raises(OSError, match="sync failed"):
        write_atomically(files, table, b"new")

    assert files.read(table) == b"old"


def test_an_atomic_write_syncs_the_bytes_then_renames_then_syncs_the_name(
    files: DiskFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []

    def record(owner: object, name: str) -> None:
        real = getattr(owner, name)

        def recorded(*args: object) -> object:
            steps.append(name)
            return real(*args)

        monkeypatch.setattr(owner, name, recorded)

    for name in ("pwrite", "fdatasync", "fsync"):
        record(os, name)
    record(files, "replace")

    write_atomically(files, tmp_path / "topics.json", b"{}")

    assert steps == ["pwrite", "fdatasync", "replace", "fsync"]


def test_every_file_below_a_folder_is_listed_in_name_order(files: DiskFiles, tmp_path: Path) -> None:
    for name in ("b/2", "b/1", "a", "c/d/e"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()

    assert [str(found.relative_to(tmp_path)) for found in files_below(files, tmp_path)] == ["a", "b/1", "b/2", "c/d/e"]
    assert list(files_below(files, tmp_path / "missing")) == []


def test_removing_a_folder_removes_its_content_but_not_the_targets_of_links(tmp_path: Path) -> None:
    outside, folder = tmp_path / "outside", tmp_path / "folder"
    (folder / "deep").mkdir(parents=True)
    outside.mkdir()
    (outside / "kept").touch()
    (folder / "deep" / "file").touch()
    for link, target in (("to folder", outside), ("to file", outside / "kept"), ("to nothing", tmp_path / "nothing")):
        (folder / "deep" / link).symlink_to(target)
        (tmp_path / link).symlink_to(target)
        remove_whole(tmp_path / link)

    remove_whole(folder)

    assert [path.name for path in tmp_path.iterdir()] == ["outside"]
    assert [path.name for path in outside.iterdir()] == ["kept"]
    remove_whole(outside / "kept")
    assert list(outside.iterdir()) == []


def test_a_temporary_folder_is_private_and_removed_with_its_content() -> None:
    with temporary_folder("pocketmq-") as folder:
        (folder / "a").mkdir()
        (folder / "a" / "b").write_bytes(b"x")
        mode = folder.stat().st_mode

    assert mode & 0o077 == 0
    assert folder.name.startswith("pocketmq-")
    assert not folder.exists()


def test_the_error_stream_can_be_redirected_to_a_file(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "log"
    with diverted_errors(log) as errors:
        os.write(2, b"of this process\n")
        subprocess.run(["/bin/sh", "-c", "echo of a child >&2"], check=True)
        errors.write("as before\n")
    os.write(2, b"afterwards\n")

    assert log.read_text() == "of this process\nof a child\n"
    assert capfd.readouterr().err == "as before\nafterwards\n"


def test_redirected_output_of_the_error_stream_is_also_read_later(
    capfd: pytest.CaptureFixture[str],
) -> None:
    heard: list[str] = []
    told = threading.Event()

    def hear(line: str) -> None:
        heard.append(line)
        if line == "late":
            told.set()

    with captured_errors(hear):
        os.write(2, b"of this process\n")
        child = subprocess.Popen(["/bin/sh", "-c", "read line; echo late >&2"], stdin=subprocess.PIPE)
    os.write(2, b"afterwards\n")
    child.communicate(b"go\n")

    assert told.wait(30)
    assert heard == ["of this process", "late"]
    assert capfd.readouterr().err == "afterwards\n"


def test_the_last_output_of_a_failure_is_read_before_the_error() -> None:
    heard: list[str] = []

    with pytest.raises(subprocess.CalledProcessError), captured_errors(heard.append):
        subprocess.run(["/bin/sh", "-c", "echo no room >&2; exit 1"], check=True)

    assert heard == ["no room"]


def test_a_file_can_be_made_executable(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_bytes(b"#!/bin/sh\n")
    program.chmod(0o640)

    make_executable(program)

    assert program.stat().st_mode & 0o777 == 0o750


# who may read


def test_only_its_owner_can_read_a_new_file(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        DiskFiles().make_dir(tmp_path / "a" / "b")
        DiskFiles().open(tmp_path / "a" / "b" / "file", create=True).close()
        write_atomically(DiskFiles(), tmp_path / "table", b"{}")
        DiskFiles(shared=True).make_dir(tmp_path / "shared")
        DiskFiles(shared=True).open(tmp_path / "shared" / "file", create=True).close()
    finally:
        os.umask(before)

    found = {str(path.relative_to(tmp_path)): path.stat().st_mode & 0o777 for path in tmp_path.rglob("*")}
    assert found == {
        "a": 0o700,
        "a/b": 0o700,
        "a/b/file": 0o600,
        "table": 0o600,
        "shared": 0o777,
        "shared/file": 0o666,
    }


def test_a_temporary_folder_is_removed_only_by_the_process_that_created_it() -> None:
    program = """
import os, sys
from pocketmq.files import temporary_folder
kept = temporary_folder("pocketmq-test-")
folder = kept.__enter__()
if (child := os.fork()) == 0:
    sys.exit(0)
os.waitpid(child, 0)
print(folder, folder.exists())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)

    folder, was_there = done.stdout.split()
    assert was_there == "True"
    assert not Path(folder).exists()


def test_a_folder_is_writable_if_files_can_be_created_in_it(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", "utf-8")

    assert may_write_in(tmp_path)
    assert may_write_in(tmp_path / "new" / "folder")
    assert not may_write_in(tmp_path / "file" / "folder")
    assert not may_write_in(Path("/proc/nope")), "also for root"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]

"""One owner per store, and how it is known whether the last one stopped cleanly."""

import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest
from tests.golden import needs_golden
from tests.store.golden_store import STORES, restore

from pocketmq.errors import StoreError, StoreLocked, WrongState
from pocketmq.files import DiskFiles, Files
from pocketmq.store.owner import Owner
from pocketmq.testing import FaultyFiles

PROGRAM = """
import sys
from pathlib import Path
from pocketmq.files import DiskFiles
from pocketmq.store.owner import Owner

Owner(DiskFiles(), Path(sys.argv[1])).take()
print("taken", flush=True)
sys.stdin.read()
"""


@contextmanager
def other_process(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that owns the store in `folder`."""
    command = [sys.executable, "-c", PROGRAM, str(folder)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "taken\n"
            yield process
        finally:
            process.kill()


@pytest.fixture(params=["disk", "memory"])
def files(request: pytest.FixtureRequest) -> Files:
    return DiskFiles() if request.param == "disk" else FaultyFiles()


def test_a_new_folder_is_created_and_counts_as_stopped_cleanly(files: Files, tmp_path: Path) -> None:
    folder = tmp_path / "a" / "store"

    assert Owner(files, folder).take()

    assert files.read(folder / "lock") == b"lock"
    assert files.read(folder / "abort") == str(os.getpid()).encode()


def test_after_a_clean_release_the_next_start_is_clean(files: Files, tmp_path: Path) -> None:
    owner = Owner(files, tmp_path)
    owner.take()
    owner.release(clean=True)

    assert files.list(tmp_path) == ["lock"]
    assert owner.take()


def test_after_an_unclean_release_the_next_start_detects_a_crash(files: Files, tmp_path: Path) -> None:
    owner = Owner(files, tmp_path)
    owner.take()
    owner.release(clean=False)

    assert not owner.take()


def test_releasing_twice_is_harmless(files: Files, tmp_path: Path) -> None:
    owner = Owner(files, tmp_path)
    owner.release(clean=True)
    owner.take()
    files.unlink(tmp_path / "abort")

    owner.release(clean=True)
    owner.release(clean=True)


def test_a_second_owner_gets_the_process_id_of_the_first(files: Files, tmp_path: Path) -> None:
    owner = Owner(files, tmp_path)
    owner.take()

    with pytest.raises(StoreLocked, match=rf"store in {tmp_path} is in use by process {os.getpid()}\. Stop it first"):
        Owner(files, tmp_path).take()
    owner.release(clean=True)
    assert Owner(files, tmp_path).take()


def test_an_owner_without_a_process_id_is_reported_as_another_process(files: Files, tmp_path: Path) -> None:
    Owner(files, tmp_path).take()
    files.unlink(tmp_path / "abort")

    with pytest.raises(StoreLocked, match="is in use by another process"):
        Owner(files, tmp_path).take()


def test_locking_twice_is_an_error(files: Files, tmp_path: Path) -> None:
    owner = Owner(files, tmp_path)
    owner.take()

    with pytest.raises(WrongState, match="already open in this process"):
        owner.take()


def test_another_process_is_refused_until_the_owner_is_killed(tmp_path: Path) -> None:
    with other_process(tmp_path) as process:
        with pytest.raises(StoreLocked, match=f"is in use by process {process.pid}"):
            Owner(DiskFiles(), tmp_path).take()
        process.kill()
        process.wait()

        assert not Owner(DiskFiles(), tmp_path).take()


def test_a_folder_that_is_a_file_is_refused(files: Files, tmp_path: Path) -> None:
    files.make_dir(tmp_path)
    files.open(tmp_path / "store", create=True).close()

    with pytest.raises(StoreError, match=r"store folder .*store cannot be used: .*It must be a folder that"):
        Owner(files, tmp_path / "store").take()


@pytest.mark.parametrize("call", ["open", "make_dir", "write", "sync", "sync_dir"])
def test_a_folder_that_cannot_be_written_is_refused_and_not_locked(call: str) -> None:
    files = FaultyFiles()
    files.fail(call, errno.EROFS)  # type: ignore[arg-type]

    with pytest.raises(StoreError, match=r"store folder /store cannot be used: Read-only file system\."):
        Owner(files, Path("/store")).take()
    Owner(files, Path("/store")).take()


@pytest.mark.skipif(os.geteuid() == 0, reason="the administrator may write everywhere")
def test_a_folder_without_write_permission_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o555)

    with pytest.raises(StoreError, match="cannot be used: Permission denied"):
        Owner(DiskFiles(), tmp_path).take()


def test_an_abort_file_that_cannot_be_removed_is_reported_and_the_store_is_free() -> None:
    files = FaultyFiles()
    owner = Owner(files, Path("/store"))
    owner.take()
    files.fail("unlink", errno.EIO)

    with pytest.raises(StoreError, match="/store/abort could not be removed: Input/output error"):
        owner.release(clean=True)
    assert not Owner(files, Path("/store")).take()


def test_a_power_loss_after_opening_the_store_is_detected_as_a_crash() -> None:
    files = FaultyFiles()
    files.make_dir(Path("/store"))
    files.sync_dir(Path("/"))
    Owner(files, Path("/store")).take()

    assert not Owner(files.crash(Random(1), survives="nothing"), Path("/store")).take()


def test_a_power_loss_after_a_clean_release_is_detected_as_a_stop() -> None:
    files = FaultyFiles()
    files.make_dir(Path("/store"))
    files.sync_dir(Path("/"))
    owner = Owner(files, Path("/store"))
    owner.take()
    owner.release(clean=True)

    assert Owner(files.crash(Random(1), survives="nothing"), Path("/store")).take()


@needs_golden
@pytest.mark.parametrize(("version", "kind"), STORES)
def test_captured_stores_show_how_they_were_stopped(version: str, kind: str, tmp_path: Path) -> None:
    restore(version, kind, tmp_path)

    assert Owner(DiskFiles(), tmp_path).take() == (kind == "clean")


def test_a_second_owner_is_refused_although_the_lock_file_was_removed(files: Files, tmp_path: Path) -> None:
    owner = Owner(files, tmp_path)
    owner.take()
    files.unlink(tmp_path / "lock")

    with pytest.raises(StoreLocked, match=f"is in use by process {os.getpid()}"):
        Owner(files, tmp_path).take()
    owner.release(clean=True)
    assert Owner(files, tmp_path).take()


def test_another_process_is_refused_although_the_lock_file_was_removed(tmp_path: Path) -> None:
    with other_process(tmp_path) as process:
        (tmp_path / "lock").unlink()

        with pytest.raises(StoreLocked, match=f"is in use by process {process.pid}"):
            Owner(DiskFiles(), tmp_path).take()


FORKING = """
import os, sys, time
from pathlib import Path
from pocketmq.files import DiskFiles
from pocketmq.store.owner import Owner

owner = Owner(DiskFiles(), Path(sys.argv[1]))
owner.take()
if os.fork() == 0:
    print("forked", flush=True)  # and has closed what a child must not keep
    sys.stdin.read()
    os._exit(0)
time.sleep(600)
"""


def test_a_forked_child_does_not_keep_the_lock_of_its_killed_parent(tmp_path: Path) -> None:
    command = [sys.executable, "-c", FORKING, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "forked\n"
        process.kill()
        process.wait()

        assert not Owner(DiskFiles(), tmp_path).take()
        assert process.stdin is not None
        process.stdin.close()  # which ends the child


def test_only_a_running_process_is_named_as_the_owner(tmp_path: Path) -> None:
    with other_process(tmp_path) as process:
        (tmp_path / "abort").write_text("999999999")

        with pytest.raises(StoreLocked, match=f"is in use by process {process.pid}"):
            Owner(DiskFiles(), tmp_path).take()


def test_only_its_owner_can_read_a_new_folder(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "store"

    Owner(DiskFiles(), folder).take()

    modes = [path.stat().st_mode & 0o777 for path in (folder.parent, folder, folder / "lock", folder / "abort")]
    assert modes == [0o700, 0o700, 0o600, 0o600]


def test_a_folder_that_others_may_read_is_reported_with_the_command_that_closes_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "my store"
    folder.mkdir(mode=0o755)
    folder.chmod(0o755)

    Owner(DiskFiles(), folder).take()

    assert "has mode 0755" in caplog.text
    assert f"chmod -R go= '{folder}'" in caplog.text

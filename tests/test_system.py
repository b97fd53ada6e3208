"""What replaces calls of Linux where they are missing. `make portable` runs the core of the tests without all of them."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.bare_system import MAC, ROOT, VARIABLE, WINDOWS

from pocketmq import system
from pocketmq.files import DiskFiles


@pytest.mark.parametrize("lacking", [MAC, WINDOWS])
def test_files_keep_their_guarantees_without_what_another_system_lacks(lacking: str) -> None:
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "tests.bare_system",
        "-p",
        "no:cacheprovider",
        "-q",
        "tests/test_files.py",
    ]

    done = subprocess.run(
        command, cwd=ROOT, env=os.environ | {VARIABLE: lacking}, capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stdout[-3000:]


def test_without_pread_bytes_are_read_and_written_at_an_offset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "pread")
    monkeypatch.delattr(os, "pwrite")

    with DiskFiles().open(tmp_path / "log", create=True) as file:
        file.write_at(4, b"world")
        file.write_at(0, b"good")

        assert file.read_at(2, 5) == b"odwor"


def test_without_fallocate_zeros_reserve_the_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "posix_fallocate")
    path = tmp_path / "log"

    with DiskFiles().open(path, create=True) as file:
        file.write_at(0, b"kept")
        file.allocate(3 * 1024 * 1024)
        file.allocate(1024)

        assert file.size() == 3 * 1024 * 1024
        assert file.read_at(0, 6) == b"kept\0\0"
        assert path.stat().st_blocks * 512 >= 3 * 1024 * 1024


def test_without_fdatasync_the_file_is_synced_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.delattr(os, "fdatasync")
    monkeypatch.setattr(os, "fsync", synced.append)

    with DiskFiles().open(tmp_path / "log", create=True) as file:
        file.sync()

    assert len(synced) == 1


def test_on_macos_a_sync_also_empties_the_cache_of_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.delattr(os, "fdatasync")
    monkeypatch.setattr(system, "_FULL_SYNC", 51)
    monkeypatch.setattr(system.fcntl, "fcntl", lambda fd, request: asked.append(request))

    with DiskFiles().open(tmp_path / "log", create=True) as file:
        file.sync()

    assert asked == [51]


def test_a_lock_of_the_process_excludes_both_kinds_of_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system, "_OFD_SET", None)
    monkeypatch.setattr(system, "_OFD_GET", None)
    path = tmp_path / "lock"
    files = DiskFiles()
    code = f"from pocketmq.files import *; print(DiskFiles().open(__import__('pathlib').Path({str(path)!r})).lock())"

    def lock_elsewhere() -> str:
        return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()

    with files.open(path, create=True) as owner, files.open(path) as other:
        assert owner.lock()
        assert owner.lock()
        assert not other.lock()
        assert other.is_locked()
        assert not owner.is_locked()
        assert lock_elsewhere() == "False"
    assert lock_elsewhere() == "True"


def test_a_lock_of_another_process_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "lock"
    path.touch()
    code = f"import fcntl; file = open({str(path)!r}, 'r+'); fcntl.lockf(file, fcntl.LOCK_EX, 1); print(1, flush=True); input()"
    monkeypatch.setattr(system, "_OFD_SET", None)
    monkeypatch.setattr(system, "_OFD_GET", None)

    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        with DiskFiles().open(path, write=False) as file:
            assert file.is_locked()
            assert file.lock_holder() in (None, process.pid)
        process.communicate(b"\n")
    with DiskFiles().open(path, write=False) as file:
        assert not file.is_locked()


def test_a_loop_without_signals_is_woken_by_a_handler() -> None:
    def refuse(*_: object) -> None:
        raise NotImplementedError

    class Loop(asyncio.SelectorEventLoop):
        add_signal_handler: Any = refuse
        remove_signal_handler: Any = refuse

    async def main() -> str:
        loop = asyncio.get_running_loop()
        stopped: asyncio.Future[str] = loop.create_future()
        system.add_signal_handler(loop, signal.SIGTERM, stopped.set_result, "stopped")
        signal.raise_signal(signal.SIGTERM)
        try:
            return await stopped
        finally:
            system.remove_signal_handler(loop, signal.SIGTERM)

    before = signal.getsignal(signal.SIGTERM)
    try:
        with asyncio.Runner(loop_factory=Loop) as runner:
            assert runner.run(main()) == "stopped"
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_process_that_has_ended_is_not_running() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        assert system.is_running(process.pid)
        process.communicate(b"\n")

    assert not system.is_running(process.pid)


def test_without_their_calls_memory_processors_and_time_are_estimated(monkeypatch: pytest.MonkeyPatch) -> None:
    assert system.memory_bytes() > 100_000_000
    assert system.processor_s() > 0
    for name in ("sysconf", "sched_getaffinity"):
        monkeypatch.delattr(os, name)
    monkeypatch.setattr(system, "resource", None)

    assert system.memory_bytes() == 4 * 1024**3
    assert system.usable_cores() == os.cpu_count()
    assert system.processor_s() > 0

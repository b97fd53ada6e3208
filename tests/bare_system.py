"""A plugin of pytest that takes away what other operating systems lack, before PocketMQ is imported: `make portable`.

python -m tests.bare_system                     the core of the tests as on macOS, then as on Windows: some minutes
python -m tests.bare_system windows tests/store  some of it

It cannot show how those systems behave; only that PocketMQ does without the calls. `pocketmq.system` lists what replaces them.
"""

import asyncio
import fcntl
import mmap
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, Final, NoReturn

import pytest
import uvloop  # noqa: F401  tests/net use it, and it needs the calls when it is imported

ROOT: Final = Path(__file__).parents[1]
VARIABLE: Final = "POCKETMQ_TESTED_WITHOUT"
MAC: Final = "macos"
WINDOWS: Final = "windows"
LINUX_ONLY: Final[dict[ModuleType, str]] = {
    os: "fdatasync posix_fallocate pwritev RWF_NOWAIT sched_getaffinity",
    fcntl: "F_OFD_SETLK F_OFD_GETLK F_OFD_SETLKW",
    time: "CLOCK_BOOTTIME",
    socket: "SO_REUSEPORT",
}
UNIX_ONLY: Final[dict[ModuleType, str]] = {
    os: "pread pwrite preadv statvfs register_at_fork fork SEEK_DATA SEEK_HOLE O_DIRECTORY O_CLOEXEC sysconf",
    signal: "siginterrupt SIGHUP SIGKILL",
    select: "poll epoll",
    mmap: "MAP_PRIVATE MAP_ANONYMOUS",
    time: "clock_gettime clock_gettime_ns CLOCK_MONOTONIC",
}
MISSING_MODULES: Final = ("fcntl", "resource")
TESTS: Final = (
    "tests/test_files.py",
    "tests/test_system.py",
    "tests/test_embedded.py",
    "tests/net",
    "tests/store",
    "tests/broker",
)


PATCHES: Final = "it replaces a call that is taken away"
LEFT_OUT: Final = {
    "test_a_nonblocking_write_fails_if_the_disk_would_block": PATCHES,
    "test_on_a_file_system_without_nonblocking_writes_every_write_waits": PATCHES,
    "test_sync_waits_for_bytes_and_for_names": PATCHES,
    "test_an_atomic_write_that_fails_leaves_the_old_table": PATCHES,
    "test_an_atomic_write_syncs_the_bytes_then_renames_then_syncs_the_name": PATCHES,
}
LEFT_OUT_ON_WINDOWS: Final = {
    "test_short_reads_and_writes_of_the_system_are_continued": PATCHES,
    "test_a_disk_that_writes_nothing_is_full": PATCHES,
    "test_usage_reports_the_used_part_of_the_disk": "it compares with statvfs",
    "test_space_reserved_for_the_administrator_is_neither_used_nor_free": PATCHES,
    "test_holes_are_skipped_in_search_of_data": "every byte may hold data",
    "test_a_forked_child_leaves_server_and_data_to_its_parent": "it forks",
    "test_a_lock_excludes_other_processes_until_it_is_closed": "msvcrt, which locks there, is not here",
}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    left_out = LEFT_OUT | (LEFT_OUT_ON_WINDOWS if os.environ.get(VARIABLE) == WINDOWS else {})
    gone = [item for item in items if getattr(item, "originalname", item.name) in left_out]
    config.hook.pytest_deselected(items=gone)
    items[:] = [item for item in items if item not in gone]


def take_away(system: str) -> None:
    """For the rest of the process. Modules of Python that were imported before keep what they need."""
    statvfs = os.statvfs
    lacking = [LINUX_ONLY] if system == MAC else [LINUX_ONLY, UNIX_ONLY]
    for calls in lacking:
        for module, names in calls.items():
            for name in names.split():
                vars(module).pop(name, None)
    if system == WINDOWS:
        for name in MISSING_MODULES:
            sys.modules[name] = None  # type: ignore[assignment]
        loop: Any = asyncio.SelectorEventLoop
        loop.add_signal_handler = loop.remove_signal_handler = _not_implemented
        shutil.disk_usage = lambda path: _usage(statvfs(path))  # there it asks another call


def _usage(found: os.statvfs_result) -> Any:
    total, free = found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize
    return SimpleNamespace(total=total, used=total - free, free=free)


def _not_implemented(*_: object) -> NoReturn:
    raise NotImplementedError


def main(arguments: list[str]) -> int:
    systems = [arguments[0]] if arguments[:1] in ([MAC], [WINDOWS]) else [MAC, WINDOWS]
    given = arguments[1:] if len(systems) == 1 else arguments
    codes = []
    for system in systems:
        sys.stdout.write(f"without what {system} lacks\n")
        sys.stdout.flush()
        command = [sys.executable, "-m", "pytest", "-p", "tests.bare_system", "-q", *(given or TESTS)]
        codes.append(subprocess.run(command, cwd=ROOT, env=os.environ | {VARIABLE: system}, check=False).returncode)
    return max(codes)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
elif VARIABLE in os.environ:
    take_away(os.environ[VARIABLE])

"""Faults in a real process: the driver's side of `inject.c`, which is preloaded into the process.

    with injector.fault("write", "stall", 4_000, path="commitlog", times=1) as fault:
        ...                              # the process runs on; its next write to the log takes four seconds
    assert fault.hits

The layout of the control file is that of `struct control` there.
"""

import errno
import mmap
import os
import shutil
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Self

SOURCE: Final = Path(__file__).with_name("inject.c")
OPERATIONS: Final = {"write": 1, "sync": 2, "open": 3, "rename": 4, "allocate": 5, "thread": 6}
ACTIONS: Final = {"fail": 1, "stall": 2, "half": 3, "short": 4, "kill": 5, "half-kill": 6}
_RULE: Final = struct.Struct("6q80s")
_CLOCK: Final = struct.Struct("q")
_RULES: Final = 8
_HITS: Final = struct.Struct("q"), 5 * 8
FOREVER: Final = -1


class Fault:
    """One rule of the control file."""

    def __init__(self, control: mmap.mmap, at: int) -> None:
        self._control = control
        self._at = at

    @property
    def hits(self) -> int:
        """How often it has acted."""
        form, offset = _HITS
        return int(form.unpack_from(self._control, self._at + offset)[0])


class Injector:
    """The control file and the library that reads it. `environment` is for the process that is to fail."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._library = folder / "inject.so"
        compile_library(self._library)
        path = folder / "control"
        path.write_bytes(bytes(_CLOCK.size + _RULES * _RULE.size))
        with path.open("r+b") as file:
            self._control = mmap.mmap(file.fileno(), 0)
        self._used = [False] * _RULES
        self.environment = {"LD_PRELOAD": str(self._library), "ASSAULT_CONTROL": str(path)}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._control.close()

    @contextmanager
    def fault(
        self,
        operation: str,
        action: str,
        argument: int = errno.EIO,
        *,
        path: str = "",
        skip: int = 0,
        times: int = FOREVER,
    ) -> Iterator[Fault]:
        """Until the end of the block, `operation` fails as `action` describes on files whose path contains `path`.

        `argument` is an errno, or for a stall its milliseconds; `skip` calls pass first, and it acts `times` times.
        """
        index = self._used.index(False)
        self._used[index] = True
        at = _CLOCK.size + index * _RULE.size
        rule = OPERATIONS[operation], ACTIONS[action], argument, skip, times, 0, path.encode()
        _RULE.pack_into(self._control, at, *rule)
        try:
            yield Fault(self._control, at)
        finally:
            _CLOCK.pack_into(self._control, at, 0)  # no operation; the hits stay readable
            self._used[index] = False

    @contextmanager
    def clock_step(self, ms: int) -> Iterator[None]:
        """Until the end of the block, the wall clock of the process is ahead by `ms`."""
        _CLOCK.pack_into(self._control, 0, ms)
        try:
            yield
        finally:
            _CLOCK.pack_into(self._control, 0, 0)


def compile_library(target: Path) -> None:
    """Build `inject.c`; `unavailable()` reports beforehand whether that is possible."""
    command = ["cc", "-O1", "-Wall", "-Werror", "-shared", "-fPIC", "-o", str(target), str(SOURCE), "-ldl", "-lpthread"]
    subprocess.run(command, check=True)


def unavailable() -> str | None:
    """Why faults cannot be injected on this machine; None when they can."""
    if os.uname().sysname != "Linux":
        return "faults are injected by LD_PRELOAD, which needs Linux"
    return None if shutil.which("cc") else "faults are injected by a C library, which needs a compiler (cc)"

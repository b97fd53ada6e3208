"""Spark's own program, and all that it starts: Java, the Python that defines a pipeline, Java once more, workers. They end together.

    started ──► its lines ──► ends by itself ────────────────────────────────────┐
                 └─ ctrl-C, SIGTERM, SIGHUP ──► asked to end ── in time ─────────┼──► nothing of it is alive
                                                   └─ not in time, or once more ─┴─ killed

They are a session of their own, by which they are found: workers of Spark leave the group of their parents, and never the session. So
a terminal tells them nothing, and signals come by way of us.
"""

import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from types import FrameType, TracebackType
from typing import Final, Self

from pocketmq.clock import SystemClock
from pocketmq.files import DiskFiles

STOP_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
GRACE_S: Final = 15.0
"""How long Java may take to end when it is asked to, and the others when it has ended."""
LOOK_S: Final = 0.02
_PROCESSES: Final = Path("/proc")


class SparkProgram:
    """Use it as `with SparkProgram(…) as program:`; when that is left, nothing of it is alive. KeyboardInterrupt if a signal ended it.

    Only the main thread hears signals; elsewhere they are left to whom they belong.
    """

    def __init__(self, command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> None:
        self._command = command
        self._folder = folder
        self._environment = environment
        self._clock = SystemClock()
        self._signals = 0
        self._before: dict[signal.Signals, object] = {}
        self._late: threading.Timer | None = None
        self._started: subprocess.Popen[str] | None = None

    @property
    def code(self) -> int:
        """Its exit status, when it has ended."""
        assert self._started is not None
        return self._started.returncode

    def lines(self) -> Iterator[str]:
        """What it says, on both streams."""
        assert self._started is not None
        assert self._started.stdout is not None
        for line in self._started.stdout:
            yield line.rstrip("\n")

    def __enter__(self) -> Self:
        self._hear_signals()
        with ExitStack() as undo:
            undo.callback(self._hear_no_more)
            self._started = subprocess.Popen(  # noqa: S603 the program is Spark's own
                self._command,
                cwd=self._folder,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                start_new_session=True,
            )
            undo.pop_all()
        if self._signals:
            self._ask_to_end()  # signalled while it was being started
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        assert self._started is not None
        assert self._started.stdout is not None
        try:
            if kind is not None:
                self._ask_to_end()
            self._started.stdout.close()
            self._wait_for_the_end()
        finally:
            self._hear_no_more()
            if self._late is not None:
                self._late.cancel()
                self._late.join()
        self._started.wait()  # last of all: until it is reaped nobody else gets its number, by which the others are found
        if self._signals and kind is None:
            raise KeyboardInterrupt

    # signals

    def _hear_signals(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        for number in STOP_SIGNALS:
            if (before := signal.getsignal(number)) is not signal.SIG_IGN:  # as `nohup` wants it
                self._before[number] = before
                signal.signal(number, self._signalled)

    def _hear_no_more(self) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)  # type: ignore[arg-type]

    def _signalled(self, number: int, frame: FrameType | None) -> None:
        self._signals += 1
        if self._started is None:
            return
        if self._signals == 1:
            self._ask_to_end()
        else:
            self._kill()

    # ending

    def _ask_to_end(self) -> None:
        assert self._started is not None
        with suppress(ProcessLookupError):
            os.kill(-self._started.pid, signal.SIGTERM)
        if self._late is None:
            # Who waits for its next line would wait for ever if it did not hear.
            self._late = threading.Timer(GRACE_S, self._kill)
            self._late.daemon = True
            self._late.start()

    def _wait_for_the_end(self) -> None:
        """Of the program, and then of what it started."""
        assert self._started is not None
        deadline: float | None = None
        while living := self._living():
            now = self._clock.monotonic()
            if deadline is None and self._started.pid not in living:
                deadline = now + GRACE_S
            if deadline is not None and now >= deadline:
                self._kill()
            time.sleep(LOOK_S)

    def _kill(self) -> None:
        for pid in self._living():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _living(self) -> list[int]:
        """What is alive of it, as `kill` names it: its processes, or all of its group where they cannot be told."""
        assert self._started is not None
        leader = self._started.pid
        files = DiskFiles()
        if files.status(_PROCESSES / "self" / "stat") is not None:
            return [int(name) for name in files.list(_PROCESSES) if name.isdigit() and _session(files, name) == leader]
        if self._started.poll() is None:
            return [leader]
        try:
            os.kill(-leader, 0)
        except (ProcessLookupError, PermissionError):
            return []
        return [-leader]


def _session(files: DiskFiles, pid: str) -> int | None:
    """The session of a process; None when it has ended, though its parent may not have noticed."""
    try:
        told = files.read(_PROCESSES / pid / "stat")
    except OSError:
        return None
    # pid (name) state parent group session …; a name may have anything in it.
    state, _, _, session = told[told.rindex(b")") + 1 :].split()[:4]
    return None if state in (b"Z", b"X") else int(session)

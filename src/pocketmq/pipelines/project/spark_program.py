"""Spark's program and all processes that it starts: Java, the Python that defines a pipeline, workers. They end together.

    started ──► its lines ──► exits ─────────────────────────────────────────────────┐
                 └─ ctrl-C, SIGTERM, SIGHUP ──► SIGTERM ── exits in time ────────────┼──► all processes have ended
                                                   └─ timeout, or second signal ─────┴─ killed

They form a session of their own, by which they are found: Spark's workers leave the process group of their parents, but never the session.
So the terminal does not signal them, and this class forwards signals.
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

from pocketmq import system
from pocketmq.clock import SystemClock
from pocketmq.files import DiskFiles

GRACE_S: Final = 15.0
"""Time for Java to end after SIGTERM, and for the others after Java has ended."""
POLL_S: Final = 0.02
_PROCESSES: Final = Path("/proc")


class SparkProgram:
    """A context: `with SparkProgram(…) as program:`. On exit all processes have ended; KeyboardInterrupt if a signal ended them.

    It handles signals only in the main thread.
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
        """The exit status, after the end."""
        assert self._started is not None
        return self._started.returncode

    def lines(self) -> Iterator[str]:
        """The output, from both streams."""
        assert self._started is not None
        assert self._started.stdout is not None
        for line in self._started.stdout:
            yield line.rstrip("\n")

    def __enter__(self) -> Self:
        self._handle_signals()
        with ExitStack() as undo:
            undo.callback(self._restore_handlers)
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
            self._terminate()  # a signal arrived during the start
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        assert self._started is not None
        assert self._started.stdout is not None
        try:
            if kind is not None:
                self._terminate()
            self._started.stdout.close()
            self._wait_for_all()
        finally:
            self._restore_handlers()
            if self._late is not None:
                self._late.cancel()
                self._late.join()
        self._started.wait()  # last: until it is reaped, its pid, by which the others are found, is not reused
        if self._signals and kind is None:
            raise KeyboardInterrupt

    # signals

    def _handle_signals(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        for number in system.SESSION_SIGNALS:
            if (before := signal.getsignal(number)) is not signal.SIG_IGN:  # `nohup` ignores SIGHUP
                self._before[number] = before
                signal.signal(number, self._signalled)

    def _restore_handlers(self) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)  # type: ignore[arg-type]

    def _signalled(self, number: int, frame: FrameType | None) -> None:
        self._signals += 1
        if self._started is None:
            return
        if self._signals == 1:
            self._terminate()
        else:
            self._kill()

    # ending

    def _terminate(self) -> None:
        assert self._started is not None
        with suppress(ProcessLookupError):
            os.kill(-self._started.pid, signal.SIGTERM)
        if self._late is None:
            # A caller that waits for the next line would wait forever if the program ignored the signal.
            self._late = threading.Timer(GRACE_S, self._kill)
            self._late.daemon = True
            self._late.start()

    def _wait_for_all(self) -> None:
        """Wait for the program, then for the processes that it started."""
        assert self._started is not None
        deadline: float | None = None
        while living := self._living():
            now = self._clock.monotonic()
            if deadline is None and self._started.pid not in living:
                deadline = now + GRACE_S
            if deadline is not None and now >= deadline:
                self._kill()
            time.sleep(POLL_S)

    def _kill(self) -> None:
        for pid in self._living():
            with suppress(ProcessLookupError):
                os.kill(pid, system.KILL)

    def _living(self) -> list[int]:
        """Process ids that are alive; the negative process group if processes cannot be listed."""
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
    """The session of a process; None if it has ended, even if it is not reaped yet."""
    try:
        stat = files.read(_PROCESSES / pid / "stat")
    except OSError:
        return None
    # pid (name) state parent group session …; the name may contain any character.
    state, _, _, session = stat[stat.rindex(b")") + 1 :].split()[:4]

    return None if state in (b"Z", b"X") else int(session)

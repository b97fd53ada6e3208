"""Processes of a test: their output is read at once, conditions have a deadline, and all end with the test."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Condition, Thread
from time import monotonic
from typing import Any

ROOT = Path(__file__).parents[2]
PATIENCE_S = 60.0
LOOK_S = 0.1
"""The interval at which a condition is checked for which there is no event."""


class Child:
    """A process, the lines that it printed, and the lines on its standard input."""

    def __init__(self, command: list[str], log: Path, told: Condition, env: Mapping[str, str]) -> None:
        self.said: list[str] = []
        self.log = log
        self._told = told
        with log.open("w") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", *command],
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": str(ROOT / "src"), **env},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                process_group=0,
            )
        self._reader = Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def code(self) -> int | None:
        """How it ended; None while it runs."""
        return self._process.poll()

    def tell(self, line: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()

    def leave(self) -> int:
        """Close its input, so that clients stop cleanly, and return its exit code."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        return self._ended()

    def terminate(self, patience_s: float = PATIENCE_S) -> int:
        """Ask it to stop by SIGTERM; its exit code."""
        if self.code is None:
            self._process.terminate()
        return self._ended(patience_s)

    def kill(self) -> int:
        """Kill it by SIGKILL, with its forks. Afterwards `said` contains all its output."""
        if self.code is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        return self._ended()

    def close(self) -> None:
        """After its end."""
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            with suppress(BrokenPipeError):  # it was killed before it read its input
                stream.close()

    def _ended(self, patience_s: float = PATIENCE_S) -> int:
        code = self._process.wait(patience_s)
        self._reader.join(PATIENCE_S)
        return code

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.endswith("\n"):  # else it was killed in the middle of it
                self.said.append(line[:-1])
                with self._told:
                    self._told.notify_all()


class Children:
    """All processes of a test; `folder` contains their logs and the data of servers."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.all: list[Child] = []
        self._told = Condition()

    def start(self, *command: object, env: Mapping[str, str] | None = None) -> Child:
        log = self.folder / f"process-{len(self.all)}.log"
        child = Child([str(word) for word in command], log, self._told, env or {})
        self.all.append(child)
        return child

    def client(self, program: str, *args: object) -> Child:
        """One of `client_programs`."""
        return self.start("tests.client.client_programs", program, *args)

    def server(self, command: str, *args: object, env: Mapping[str, str] | None = None) -> tuple[Child, dict[str, Any]]:
        """`pocketmq command …` when it is ready, and the JSON line that it printed."""
        child = self.start("pocketmq", command, "--json", *args, env=env)
        self.until_ready(child)
        return child, json.loads(child.said[0])

    def until_ready(self, *children: Child) -> None:
        """Each process has printed its first line."""
        self.until(lambda: all(child.said for child in children), "the start of all processes")

    def until(self, condition: Callable[[], object], what: str, patience_s: float = PATIENCE_S) -> None:
        """Return when `condition()` is true; otherwise the test fails at the deadline, with the logs."""
        give_up_at = monotonic() + patience_s
        while not condition():
            with self._told:
                self._told.wait(LOOK_S)
            if monotonic() > give_up_at:
                raise AssertionError(f"{what} did not come within {patience_s} s\n{self._logs()}")

    def _logs(self) -> str:
        texts = [(child, child.log.read_text()[-2000:]) for child in self.all]
        return "\n".join(f"{child.log.name} (exit code {child.code}):\n{text}" for child, text in texts if text)


@contextmanager
def processes(folder: Path) -> Iterator[Children]:
    """Whatever still runs at the end is killed."""
    children = Children(folder)
    try:
        yield children
    finally:
        for child in children.all:
            child.kill()
        for child in children.all:
            child.close()

"""Programs that a test starts and kills."""

import os
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Condition, Thread

ROOT = Path(__file__).parents[2]
PATIENCE_S = 60.0


class Program:
    """A process and what it printed. It has a process group of its own."""

    def __init__(self, command: list[str], folder: Path) -> None:
        self._said: deque[str] = deque()
        self._told = Condition()
        self._process = subprocess.Popen(
            command,
            cwd=folder,
            env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{folder}"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            process_group=0,
        )
        self._reader = Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def said(self) -> str:
        with self._told:
            return "".join(self._said)

    def wait_for(self, text: str, times: int = 1) -> None:
        """Wait until it has printed `text` so often."""
        with self._told:
            found = self._told.wait_for(
                lambda: "".join(self._said).count(text) >= times or not self._reader.is_alive(), PATIENCE_S
            )
            said = "".join(self._said)
        assert found and said.count(text) >= times, f"it did not print {text!r}:\n{said}"  # noqa: PT018

    def kill(self) -> None:
        """Kill it with all its children, as a power failure would."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(PATIENCE_S)

    def wait(self) -> int:
        return self._process.wait(PATIENCE_S)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with self._told:
                self._said.append(line)
                self._told.notify_all()
        with self._told:
            self._told.notify_all()

    def close(self) -> None:
        self.kill()
        self._reader.join(PATIENCE_S)
        assert self._process.stdout is not None
        self._process.stdout.close()


@contextmanager
def started(command: list[str], folder: Path) -> Iterator[Program]:
    running = Program(command, folder)
    try:
        yield running
    finally:
        running.close()


@contextmanager
def program(text: str, folder: Path, *arguments: str) -> Iterator[Program]:
    """A Python program from its text."""
    path = folder / "program.py"
    path.write_text(text, "utf-8")
    with started([sys.executable, "-W", "error", str(path), *arguments], folder) as running:
        yield running

"""The screen: where tables and progress go, and how wide they may be."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Timer

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, TaskID, TextColumn, TimeRemainingColumn
from rich.progress import Progress as ProgressBar
from rich.text import Text

from pocketmq.clock import Clock

PATIENCE_S = 2.0
"""Work that takes no longer needs no progress bar."""
FILE_COLUMNS = 200
"""How wide a table is that goes into a file or a pipe, where nothing tells."""


def screen() -> Console:
    """Where results go."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=FILE_COLUMNS, soft_wrap=True)


class LateBar:
    """A progress bar that appears when the work turns out to take its time. On the error stream, and only on a terminal."""

    def __init__(self, clock: Clock, label: str, *, in_bytes: bool = True) -> None:
        self._clock = clock
        self._in_bytes = in_bytes
        self._label = label
        self._show_at = clock.monotonic() + PATIENCE_S
        self._console = Console(stderr=True)
        self._bar: ProgressBar | None = None
        self._task = TaskID(0)

    def update(self, done: int, total: int) -> None:
        if self._bar is None and self._console.is_terminal and self._clock.monotonic() >= self._show_at:
            self._bar = ProgressBar(
                TextColumn("{task.description}"),
                BarColumn(),
                DownloadColumn(binary_units=True) if self._in_bytes else MofNCompleteColumn(),
                TimeRemainingColumn(),
                console=self._console,
                transient=True,
            )
            self._bar.start()
            self._task = self._bar.add_task(self._label, total=total)
        if self._bar is not None:
            self._bar.update(self._task, completed=done, total=total)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


@contextmanager
def late_bar(clock: Clock, label: str, *, in_bytes: bool = True) -> Iterator[LateBar]:
    bar = LateBar(clock, label, in_bytes=in_bytes)
    try:
        yield bar
    finally:
        bar.close()


@contextmanager
def late_line(text: str, patience_s: float = PATIENCE_S) -> Iterator[None]:
    """A line that tells what is being waited for, when it takes its time. On the error stream, and only on a terminal."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield
        return
    status = console.status(Text(f"{text} …"))
    timer = Timer(patience_s, status.start)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        status.stop()


def count(number: int, noun: str) -> str:
    """`1 message`, `2,000 messages`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"

"""What is seen while the shop is open: a line for each who works, and how long it will still take.

On a terminal it is a table that changes, elsewhere some words now and then.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from pocketmq.clock import Clock

RATE_S: Final = 4.0
"""Rates are those of the last seconds."""
LINE_S: Final = 5.0
"""Between two lines where no table can be."""


class Line(NamedTuple):
    """One who works: what is done, of how many if that is known, how fast, and how many messages wait."""

    who: str
    done: int
    of: int | None = None
    per_s: float | None = None
    behind: int | None = None
    note: str = ""


class View(NamedTuple):
    """What is seen at a moment. `share` is that of the whole, 0 to 1."""

    stage: str
    share: float
    eta_s: float | None
    lines: Sequence[Line]


class Rate:
    """How fast a count grows."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()

    def at(self, now_s: float, count: int) -> float:
        self._seen.append((now_s, count))
        while self._seen[0][0] < now_s - RATE_S:
            self._seen.popleft()
        first_s, first = self._seen[0]
        return (count - first) / (now_s - first_s) if now_s > first_s else 0.0


class LiveScreen:
    """Shows lines while the block lasts. A quiet one shows nothing."""

    def __init__(self, clock: Clock, console: Console, *, is_quiet: bool = False) -> None:
        self._clock = clock
        self._console = console
        self._is_quiet = is_quiet
        self._view: Callable[[], View] | None = None
        self._live: Live | None = None
        self._next_line_s = 0.0

    def __enter__(self) -> Self:
        if self._console.is_terminal and not self._is_quiet:
            self._live = Live(console=self._console, get_renderable=self._render, transient=True)
            self._live.start()
        return self

    def __exit__(self, *exc: object) -> None:
        if self._live is not None:
            self._live.stop()

    def tell(self, text: str) -> None:
        """A sentence that stays."""
        if not self._is_quiet:
            self._console.print(Text(text))

    def show(self, view: Callable[[], View]) -> None:
        """How far all are. On a terminal it is asked again and again, so that numbers move also while the caller waits."""
        self._view = view
        if self._is_quiet or self._live is not None or self._clock.monotonic() < self._next_line_s:
            return
        self._next_line_s = self._clock.monotonic() + LINE_S
        seen = view()
        self._console.print(
            Text(f"{seen.stage}, {seen.share:.0%}: " + "; ".join(map(words, seen.lines))), soft_wrap=True
        )

    def _render(self) -> RenderableType:
        if self._view is None:
            return Text()
        seen = self._view()
        return Group(table(seen.lines), _bar(seen.stage, seen.share, seen.eta_s))


def table(lines: Sequence[Line]) -> Table:
    made = Table(box=None, pad_edge=False, header_style="bold")
    made.add_column("who", no_wrap=True)
    for name in ("done", "of", "per s", "behind"):
        made.add_column(name, justify="right", no_wrap=True)
    made.add_column("", overflow="fold")
    for line in lines:
        made.add_row(
            Text(line.who), f"{line.done:,}", _known(line.of), _known(line.per_s), _known(line.behind), Text(line.note)
        )
    return made


def words(line: Line) -> str:
    """`till 4,000 of 9,000`."""
    of = "" if line.of is None else f" of {line.of:,}"
    behind = "" if not line.behind else f", {line.behind:,} behind"
    return f"{line.who} {line.done:,}{of}{behind}"


def _bar(stage: str, share: float, eta_s: float | None) -> RenderableType:
    left = "" if eta_s is None else f"about {max(1, round(eta_s))} s to go"
    row = Table.grid(padding=(0, 1))
    row.add_row(Text(stage, style="bold"), ProgressBar(total=1, completed=share, width=30), f"{share:.0%}", Text(left))
    return row


def _known(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f}"

"""The live display: a line for each part of the shop, and the remaining time. On a terminal it is a table that changes, elsewhere a
line of text every few seconds.

Also the chart of revenue by hour and city, as SVG, and as text for the terminal.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from html import escape
from typing import Final, NamedTuple, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from pocketmq.clock import Clock
from pocketmq.model.human import short_number

RATE_S: Final = 4.0
"""Rates cover this period."""
LINE_S: Final = 5.0
"""Interval between lines where no table is shown."""


class Line(NamedTuple):
    """A part of the shop: its name, what it did, of how many, its rate, and its backlog."""

    who: str
    done: int
    of: int | None = None
    per_s: float | None = None
    behind: int | None = None
    detail: str = ""


class View(NamedTuple):
    """The state at one moment. `share` is the finished part of the whole, 0 to 1."""

    stage: str
    share: float
    eta_s: float | None
    lines: Sequence[Line]


class Rate:
    """The rate of a growing count."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()

    def at(self, now_s: float, count: int) -> float:
        self._seen.append((now_s, count))
        while self._seen[0][0] < now_s - RATE_S:
            self._seen.popleft()
        first_s, first = self._seen[0]
        return (count - first) / (now_s - first_s) if now_s > first_s else 0.0


class LiveScreen:
    """Shows lines during its context. A quiet one shows nothing."""

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

    def print(self, text: str) -> None:
        """Print a permanent line."""
        if not self._is_quiet:
            self._console.print(Text(text))

    def show(self, view: Callable[[], View]) -> None:
        """Show the state. On a terminal `view` is called repeatedly, so that numbers change while the caller waits."""
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
            Text(line.who),
            f"{line.done:,}",
            _known(line.of),
            _known(line.per_s),
            _known(line.behind),
            Text(line.detail),
        )
    return made


def words(line: Line) -> str:
    """`till 4,000 of 9,000`."""
    of = "" if line.of is None else f" of {line.of:,}"
    behind = "" if not line.behind else f", {line.behind:,} behind"
    return f"{line.who} {line.done:,}{of}{behind}"


def _bar(stage: str, share: float, eta_s: float | None) -> RenderableType:
    left = "" if eta_s is None else f"about {max(1, round(eta_s))} s left"
    row = Table.grid(padding=(0, 1))
    row.add_row(Text(stage, style="bold"), ProgressBar(total=1, completed=share, width=30), f"{share:.0%}", Text(left))
    return row


def _known(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f}"


WIDTH: Final = 900
HEIGHT: Final = 420
MARGIN: Final = 60
LEGEND: Final = 150
GRID_LINES: Final = 4
COLOURS: Final = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377")
"""Colours that people with colour blindness can distinguish."""
BLOCKS: Final = " ▁▂▃▄▅▆▇█"


class Window(NamedTuple):
    """The orders of a city in an hour."""

    city: str
    begin_ms: int
    orders: int
    amount_cents: int


def chart(windows: Iterable[Window], title: str) -> str:
    """An SVG: hours from left to right, the cities of an hour stacked."""
    hours = by_hour(windows)
    cities = _cities(hours)
    floor = HEIGHT - MARGIN
    highest = max((sum(amounts.values()) for amounts in hours.values()), default=0) or 1
    step = (WIDTH - MARGIN - LEGEND) / max(1, len(hours))
    parts = [_text(MARGIN, 32, title, size=18), *_grid(highest, floor)]
    for number, (begin_ms, amounts) in enumerate(hours.items()):
        left = MARGIN + int(number * step)
        parts += _bar_of_hour(amounts, cities, left, max(1, int(step) - 3), floor, (floor - MARGIN) / highest)
        if number % 3 == 0:
            parts.append(_text(left, floor + 18, f"{begin_ms // 3_600_000 % 24:02}"))
    for number, city in enumerate(cities):
        top = MARGIN + number * 24
        parts += [
            _rectangle(WIDTH - LEGEND + 16, top, 12, 12, _colour(number)),
            _text(WIDTH - LEGEND + 36, top + 11, city),
        ]
    drawn = "\n".join(parts)
    # No style and no script, so that it works with a strict content security policy.
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        f'font-family="sans-serif">\n{_rectangle(0, 0, WIDTH, HEIGHT, "white")}\n{drawn}\n</svg>\n'
    )


def sparkline(windows: Iterable[Window], width: int = 48) -> Text:
    """A line for each city: its hours as blocks, and its sum."""
    hours = by_hour(windows)
    cities = _cities(hours)
    highest = max((cents for parts in hours.values() for cents in parts.values()), default=0) or 1
    text = Text()
    for number, city in enumerate(cities):
        sold = [parts.get(city, 0) for parts in hours.values()][-width:]
        text.append(f"{city:<8}")
        blocks = "".join(BLOCKS[-(-cents * (len(BLOCKS) - 1) // highest)] for cents in sold)
        text.append(blocks, style=_colour(number))
        text.append(f" {sum(sold) / 100:>14,.2f}\n")
    text.rstrip()
    return text


def by_hour(windows: Iterable[Window]) -> dict[int, dict[str, int]]:
    """Cents by hour and city, sorted by time."""
    hours: dict[int, dict[str, int]] = defaultdict(dict)
    for window in windows:
        hours[window.begin_ms][window.city] = window.amount_cents
    return dict(sorted(hours.items()))


def _cities(hours: Mapping[int, Mapping[str, int]]) -> list[str]:
    return sorted({city for amounts in hours.values() for city in amounts})


def _grid(highest: int, floor: int) -> Iterator[str]:
    for line in range(GRID_LINES + 1):
        level = floor - (floor - MARGIN) * line // GRID_LINES
        yield _rectangle(MARGIN, level, WIDTH - MARGIN - LEGEND, 1, "#e1e1e1" if line else "#464646")
        yield _text(MARGIN - 8, level + 4, short_number(highest * line / GRID_LINES / 100), anchor="end")


def _bar_of_hour(
    amounts: Mapping[str, int], cities: Sequence[str], left: int, width: int, floor: int, scale: float
) -> Iterator[str]:
    below = 0
    for number, city in enumerate(cities):
        above = below + amounts.get(city, 0)
        upper, lower = floor - int(above * scale), floor - int(below * scale)
        yield _rectangle(left, upper, width, lower - upper, _colour(number))
        below = above


def _rectangle(left: int, top: int, width: int, height: int, colour: str) -> str:
    return f'<rect x="{left}" y="{top}" width="{width}" height="{height}" fill="{colour}"/>'


def _text(left: int, base: int, text: str, *, size: int = 12, anchor: str = "start") -> str:
    return f'<text x="{left}" y="{base}" font-size="{size}" fill="#464646" text-anchor="{anchor}">{escape(text)}</text>'


def _colour(number: int) -> str:
    return COLOURS[number % len(COLOURS)]

"""Revenue by hour and city: a bar for each hour, as a picture and as text for the terminal."""

from collections import defaultdict
from collections.abc import Iterable
from typing import Final, NamedTuple

from rich.text import Text

from pocketmq.demo.png import Colour, Picture, text_width

WIDTH: Final = 900
HEIGHT: Final = 420
MARGIN: Final = 60
LEGEND: Final = 150
LINES: Final = 4
INK, PALE = 1, 2
_GROUND: Final[tuple[Colour, ...]] = ((255, 255, 255), (70, 70, 70), (225, 225, 225))
PALETTE: Final[tuple[Colour, ...]] = (
    (68, 119, 170),
    (238, 102, 119),
    (34, 136, 51),
    (204, 187, 68),
    (102, 204, 238),
    (170, 51, 119),
)
"""Colours that people who see colours differently can tell apart."""
BLOCKS: Final = " ▁▂▃▄▅▆▇█"


class Window(NamedTuple):
    """What a city bought in an hour."""

    city: str
    begin_ms: int
    orders: int
    amount_cents: int


def draw(windows: Iterable[Window], title: str) -> bytes:
    """A PNG: hours from left to right, cities on top of one another."""
    hours = by_hour(windows)
    cities = sorted({city for parts in hours.values() for city in parts})
    picture = Picture(WIDTH, HEIGHT, (*_GROUND, *PALETTE))
    picture.write(MARGIN, 14, title, INK, scale=3)
    top, floor = MARGIN, HEIGHT - MARGIN
    highest = max((sum(parts.values()) for parts in hours.values()), default=0) or 1
    _lines(picture, highest, top, floor)
    room = WIDTH - MARGIN - LEGEND
    step = room / max(1, len(hours))
    for place, (begin_ms, parts) in enumerate(hours.items()):
        left = MARGIN + int(place * step)
        _bar(picture, parts, cities, left, max(1, int(step) - 3), floor, (floor - top) / highest)
        if place % 3 == 0:
            picture.write(left, floor + 8, f"{begin_ms // 3_600_000 % 24:02}", INK)
    for place, city in enumerate(cities):
        line = MARGIN + place * 24
        picture.fill(WIDTH - LEGEND + 16, line, 12, 12, _colour(place))
        picture.write(WIDTH - LEGEND + 36, line + 1, city, INK)
    return picture.png()


def sparkline(windows: Iterable[Window], width: int = 48) -> Text:
    """A line for each city: its hours as blocks of different height, and its sum."""
    hours = by_hour(windows)
    cities = sorted({city for parts in hours.values() for city in parts})
    highest = max((cents for parts in hours.values() for cents in parts.values()), default=0) or 1
    text = Text()
    for place, city in enumerate(cities):
        sold = [parts.get(city, 0) for parts in hours.values()][-width:]
        red, green, blue = PALETTE[place % len(PALETTE)]
        text.append(f"{city:<8}")
        blocks = "".join(BLOCKS[-(-cents * (len(BLOCKS) - 1) // highest)] for cents in sold)
        text.append(blocks, style=f"rgb({red},{green},{blue})")
        text.append(f" {sum(sold) / 100:>14,.2f}\n")
    text.rstrip()
    return text


def by_hour(windows: Iterable[Window]) -> dict[int, dict[str, int]]:
    """Cents by hour and city, in the order of time."""
    hours: dict[int, dict[str, int]] = defaultdict(dict)
    for window in windows:
        hours[window.begin_ms][window.city] = window.amount_cents
    return dict(sorted(hours.items()))


def _lines(picture: Picture, highest: int, top: int, floor: int) -> None:
    for line in range(LINES + 1):
        level = floor - (floor - top) * line // LINES
        picture.fill(MARGIN, level, WIDTH - MARGIN - LEGEND, 1, PALE if line else INK)
        label = _short(highest * line // LINES)
        picture.write(MARGIN - 8 - text_width(label), level - 5, label, INK)


def _bar(
    picture: Picture, parts: dict[str, int], cities: list[str], left: int, width: int, floor: int, scale: float
) -> None:
    below = 0
    for place, city in enumerate(cities):
        above = below + parts.get(city, 0)
        upper, lower = floor - int(above * scale), floor - int(below * scale)
        picture.fill(left, upper, width, lower - upper, _colour(place))
        below = above


def _colour(place: int) -> int:
    return len(_GROUND) + place % len(PALETTE)


def _short(cents: int) -> str:
    """`0`, `950`, `12.5k`, `3.1m`."""
    whole = cents / 100
    if whole >= 1_000_000:
        return f"{whole / 1_000_000:.1f}m"
    return f"{whole / 1_000:.1f}k" if whole >= 1_000 else f"{whole:.0f}"

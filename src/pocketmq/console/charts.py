"""Charts as inline SVG, without scripts, libraries or style attributes, which the content security policy forbids.

1,200 ┤        ╭─╮            one path for each range without a gap,
      ┤   ╭────╯ ╰──╮         one scale for all lines of a chart,
    0 ┼───────────────         the last hour from left to right
"""

import math
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from markupsafe import Markup, escape

from pocketmq.console.snapshot import SPAN_S, Sample
from pocketmq.model.human import duration

WIDTH: Final = 600
HEIGHT: Final = 120
TOP: Final = 8
MAX_POINTS: Final = 240
"""Per line: one point for every few pixels. With more samples, a point is the maximum of its neighbours."""
SPANS_S: Final = (300.0, 900.0, SPAN_S)
"""A chart with little data shows only the last minutes."""
GAP_S: Final = 60.0
"""Samples further apart are not connected."""


class Line(NamedTuple):
    """One line of a chart."""

    name: str
    value: Callable[[Sample], float | None]


def chart(title: str, samples: Sequence[Sample], lines: Sequence[Line], format_value: Callable[[float], str]) -> Markup:
    """A chart of the last hour. `format_value` formats numbers for the scale and for screen readers."""
    now = samples[-1].at if samples else 0.0
    values = [value for line in lines for sample in samples if (value := line.value(sample)) is not None]
    top = _round_up(max(values, default=0.0))
    age_s = now - samples[0].at if samples else 0.0
    span_s = next((span_s for span_s in SPANS_S if age_s <= span_s), SPAN_S)
    drawn = Markup("").join(_line(number, line, samples, now, top, span_s) for number, line in enumerate(lines))
    grid = Markup("").join(
        Markup('<line class="grid" x1="0" x2="{}" y1="{}" y2="{}"/>').format(WIDTH, y, y)
        for y in (TOP, (HEIGHT + TOP) // 2, HEIGHT)
    )
    picture = Markup(
        '<svg viewBox="0 0 {} {}" preserveAspectRatio="none" role="img" aria-label="{}">{}{}</svg>'
    ).format(WIDTH, HEIGHT + 2, _description(title, samples, lines, format_value), grid, drawn)
    return Markup(
        '<div class="chart" data-points="{}"><span class="scale">{}</span>{}'
        '<span class="axis" aria-hidden="true"><span>{} ago</span><span>now</span></span></div>'
    ).format(len(values), escape(format_value(top)), picture, duration(span_s * 1000))


def _line(number: int, line: Line, samples: Sequence[Sample], now: float, top: float, span_s: float) -> Markup:
    ranges: list[list[tuple[float, float]]] = []
    before: float | None = None
    for at, value in _thinned([(sample.at, line.value(sample)) for sample in samples]):
        if value is None:
            before = None
            continue
        if before is None or at - before > GAP_S:
            ranges.append([])
        before = at
        x = WIDTH * (1 - (now - at) / span_s)
        y = HEIGHT - (HEIGHT - TOP) * (value / top if top else 0)
        ranges[-1].append((x, y))
    paths = [_path(points) for points in ranges]
    return Markup('<path class="line line-{}" d="{}"/>').format(number, " ".join(paths))


def _path(points: Sequence[tuple[float, float]]) -> str:
    """The path of a range. A single point becomes a short dash."""
    if len(points) == 1:
        x, y = points[0]
        points = [(x - 1, y), (x, y)]
    return "M" + " L".join(f"{x:.1f} {y:.1f}" for x, y in points)


def _thinned(points: Sequence[tuple[float, float | None]]) -> list[tuple[float, float | None]]:
    step = math.ceil(len(points) / MAX_POINTS)
    if step <= 1:
        return list(points)
    parts = [points[at : at + step] for at in range(0, len(points), step)]
    return [(part[-1][0], max((v for _, v in part if v is not None), default=None)) for part in parts]


def _round_up(value: float) -> float:
    """The top of a scale: 1, 2 or 5 times a power of ten."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(power * step for step in (1, 2, 5, 10) if value <= power * step * 1.000_001)


def _description(
    title: str, samples: Sequence[Sample], lines: Sequence[Line], format_value: Callable[[float], str]
) -> str:
    if not samples:
        return f"{title}: no data yet"
    words = []
    for line in lines:
        known = [value for sample in samples if (value := line.value(sample)) is not None]
        words.append(
            f"{line.name} {format_value(known[-1])}, at most {format_value(max(known))}"
            if known
            else f"{line.name} unknown"
        )
    return f"{title}, the last hour: {'; '.join(words)}"

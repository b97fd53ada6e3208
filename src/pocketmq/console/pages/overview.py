"""The overview: rates, lag, disk, rejected requests by cause, charts of the last hour, and an optional picture.

Charts are inline SVG, without scripts, libraries or style attributes, which the content security policy forbids.

1,200 ┤        ╭─╮            one path for each range without a gap,
      ┤   ╭────╯ ╰──╮         one scale for all lines of a chart,
    0 ┼───────────────         the last hour from left to right
"""

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple

from markupsafe import Markup, escape

from pocketmq.console.settings import ConsoleSettings
from pocketmq.console.site import Page, Site, Visit
from pocketmq.console.snapshot import SPAN_S, Sample
from pocketmq.errors import NotFound
from pocketmq.files import DiskFiles
from pocketmq.model.human import duration, percent, short_number

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


MAX_PICTURE_BYTES: Final = 8 * 1024 * 1024
SVG: Final = b"<svg "


def picture_name(settings: ConsoleSettings) -> str | None:
    """The title of the picture; None if the file does not exist or is too large."""
    if settings.picture is None:
        return None
    status = DiskFiles().status(settings.picture)
    return settings.picture.stem if status is not None and status.size <= MAX_PICTURE_BYTES else None


async def picture(site: Site, visit: Visit) -> bytes:
    """The SVG; NotFound if the file is not an SVG."""
    path = site.settings.picture
    if path is None or picture_name(site.settings) is None:
        raise NotFound("no picture is configured, or the file does not exist yet")
    body = DiskFiles().read(path)
    if not body.startswith(SVG):
        raise NotFound(f"{path.name} is not an SVG")
    return body


PICTURES: Final = {"/picture": picture}


LARGEST_LAGS: Final = 5
REJECTIONS: Final = {
    "Unsigned": "unsigned request",
    "UnknownAccessKey": "unknown access key",
    "WrongSource": "address not allowed for this account",
    "WrongSignature": "wrong signature",
    "NoRight": "no permission for the topic or group",
    "SendTimeout": "sends that waited too long (broker busy)",
    "SendLogBusy": "sends during a slow disk write (page cache busy)",
    "SendRejected": "sends during a long disk stall (rejected at once)",
    "SendOverload": "sends beyond the queue capacity",
    "PullTimeout": "pulls that waited too long",
    "PullOverload": "pulls beyond the queue capacity",
}


async def overview(site: Site, visit: Visit) -> Mapping[str, Any]:
    snapshot, samples = site.collector.snapshot, site.collector.ring.samples()
    newest = samples[-1] if samples else None
    return {
        "newest": newest,
        "picture": picture_name(site.settings),
        "charts": [
            ("Messages per second", ["in", "out"], _rates_chart(samples)),
            ("Lag of all groups", ["messages"], _lag_chart(samples)),
            ("Disk", ["used"], _disk_chart(samples)),
            ("Rejected requests per second", ["requests"], _rejections_chart(samples)),
        ],
        "lagging": [
            (group, many, snapshot.times.get(group)) for group, many in islice(snapshot.lagging.items(), LARGEST_LAGS)
        ],
        "rejections": [(name, REJECTIONS.get(name, name), many) for name, many in snapshot.rejections.items()],
        "letters": sum(snapshot.letters.values()) if "letters" in snapshot.updated_ms else None,
        "topic_count": len(snapshot.user_topics) if "tables" in snapshot.updated_ms else None,
    }


def _rates_chart(samples: Sequence[Sample]) -> Markup:
    lines = [Line("in", lambda sample: sample.put_per_s), Line("out", lambda sample: sample.got_per_s)]
    return chart("Messages per second", samples, lines, short_number)


def _lag_chart(samples: Sequence[Sample]) -> Markup:
    return chart("Lag in messages", samples, [Line("lag", lambda sample: sample.lag)], short_number)


def _disk_chart(samples: Sequence[Sample]) -> Markup:
    return chart("Disk used", samples, [Line("used", lambda sample: sample.disk_used)], percent)


def _rejections_chart(samples: Sequence[Sample]) -> Markup:
    return chart(
        "Rejected requests per second", samples, [Line("rejected", lambda sample: sample.rejected_per_s)], short_number
    )


PAGES: Final = [Page("/", "overview", overview, "overview")]

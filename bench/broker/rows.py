"""The loads that are measured, what we want to reach in them, and how they are shown beside each other."""

from collections.abc import Sequence
from typing import NamedTuple

from bench.broker.contest import Outcome
from bench.broker.servers import APACHE, OURS
from bench.broker.sheets import Sheet, verdict
from bench.broker.shots import Result, Shape

BODIES = (100, 1024)
IN_FLIGHT = ((1, 1), (16, 1), (1, 64), (1, 512), (16, 64))
CPU_SHARE = 0.25
"""Of the Apache broker's CPU per message, at most, where there is an aim."""
MISSING = "–"


class Aim(NamedTuple):
    """What a load should reach with asynchronous flush: times the rate of the Apache broker, and messages a second."""

    times: float | None = None
    rate: float | None = None


AIMS = {
    Shape("send", 1, 1, 100): Aim(rate=10_000),
    Shape("send", 16, 1, 100): Aim(rate=40_000),
    Shape("send", 1, 64, 100): Aim(times=3),
    Shape("send", 1, 512, 100): Aim(rate=160_000),
    Shape("send", 16, 64, 100): Aim(times=3),
    Shape("batch", 1, 8, 100, 32): Aim(times=1.5, rate=280_000),
    Shape("pull", 1, 8, 100, 32): Aim(times=2, rate=1_000_000),
}


def all_shapes() -> list[Shape]:
    return [shape for body_bytes in BODIES for shape in shapes_of(body_bytes)]


def shapes_of(body_bytes: int) -> list[Shape]:
    sends = [Shape("send", connections, window, body_bytes) for connections, window in IN_FLIGHT]
    pulls = [Shape("pull", 1, window, body_bytes, 32) for window in (1, 8)]
    return [*sends, Shape("batch", 1, 8, body_bytes, 32), *pulls, Shape("oneway", 1, 1, body_bytes)]


def sync_shapes() -> list[Shape]:
    """Reading does not care how writing is flushed, nor does a sender who wants no answer."""
    small = [shape for shape in shapes_of(100) if shape.mode in ("send", "batch")]
    large = [Shape("send", 16, 64, 1024), Shape("batch", 1, 8, 1024, 32)]
    return [*small, *large]


def few_shapes() -> list[Shape]:
    wanted = ((16, 1), (1, 64), (16, 64))
    sends = [Shape("send", connections, window, 100) for connections, window in wanted]
    return [*sends, Shape("batch", 1, 8, 100, 32), Shape("pull", 1, 8, 100, 32)]


def rate_sheet(title: str, outcomes: Sequence[Outcome], *, has_aims: bool) -> Sheet:
    """Messages a second and CPU per message beside the Apache broker's."""
    headings = ["load", "msg/s", "Apache", "times", "CPU us/msg", "Apache", "share"] + ["goals"] * has_aims
    rows = []
    for shape, results, _ in outcomes:
        ours, theirs = results.get(OURS), results.get(APACHE)
        cells = [str(shape), *_pair(ours, theirs)]
        rows.append([*cells, aims_cell(AIMS.get(shape), ours, theirs)] if has_aims else cells)
    return Sheet(title, headings, rows, [note for outcome in outcomes for note in outcome.notes])


def latency_sheet(title: str, outcomes: Sequence[Outcome]) -> Sheet:
    """Half, 99 and 99.9 of 100 answers came within so many microseconds."""
    headings = ["load", "p50 us", "p99", "p99.9", "Apache p50", "p99", "p99.9"]
    rows = []
    for shape, results, _ in outcomes:
        if shape.mode != "oneway":
            rows.append([str(shape), *_latencies(results.get(OURS)), *_latencies(results.get(APACHE))])
    return Sheet(title, headings, rows)


def aims_cell(aim: Aim | None, ours: Result | None, theirs: Result | None) -> str:
    """Each aim and whether it is met; an aim beside an Apache broker that is not there is not judged."""
    if aim is None or ours is None:
        return ""
    said = []
    if aim.times is not None and theirs is not None:
        said.append(f"≥ {aim.times:g} times: {verdict(ours.rate >= aim.times * theirs.rate)}")
        said.append(f"CPU ≤ 1/4: {verdict(ours.server_us <= CPU_SHARE * theirs.server_us)}")
    if aim.rate is not None:
        said.append(f"≥ {aim.rate:,.0f}/s: {verdict(ours.rate >= aim.rate)}")
    return ", ".join(said)


def _pair(ours: Result | None, theirs: Result | None) -> list[str]:
    rates = [f"{one.rate:,.0f}" if one else MISSING for one in (ours, theirs)]
    costs = [f"{one.server_us:.2f}" if one else MISSING for one in (ours, theirs)]
    if ours is None or theirs is None or not theirs.rate or not theirs.server_us:
        return [*rates, "", *costs, ""]
    return [*rates, f"{ours.rate / theirs.rate:.2f}", *costs, f"{ours.server_us / theirs.server_us:.2f}"]


def _latencies(result: Result | None) -> list[str]:
    if result is None:
        return [MISSING] * 3
    return [f"{value:,.0f}" for value in (result.p50_us, result.p99_us, result.p999_us)]

"""Sections: the broker under each load beside Apache's, with either way of flushing."""

import statistics
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import partial

from bench.broker.afterwards import afterwards_sheet
from bench.broker.budget import UsedUp
from bench.broker.contest import Outcome
from bench.broker.rows import latency_sheet, rate_sheet
from bench.broker.sections import Bench, until_quiet
from bench.broker.servers import Target
from bench.broker.sheets import Sheet
from bench.broker.shots import NotMeasured, Shape

BUSY = 0.2
BUSY_WORDS = ": rates of such a run say little, CPU per message says a little more"


def async_sheets(bench: Bench) -> Iterator[Sheet]:
    with ExitStack() as stack:
        targets, notes = _brokers(bench, stack, "async", with_apache=True)
        left_over = [afterwards_sheet(bench, targets)] if bench.scale.later_shapes else []
        outcomes = _outcomes(bench, targets, bench.scale.shapes, "async", notes)
        yield _with(rate_sheet("asynchronous flush", outcomes, has_aims=True), notes)
        yield latency_sheet("asynchronous flush, time to the answer", outcomes)
        yield from left_over


def sync_sheets(bench: Bench) -> Iterator[Sheet]:
    with ExitStack() as stack:
        targets, notes = _brokers(bench, stack, "sync", with_apache=bench.scale.is_sync_beside_apache)
        outcomes = _outcomes(bench, targets, bench.scale.sync_shapes, "sync", notes)
        yield _with(rate_sheet("synchronous flush", outcomes, has_aims=False), notes)
        yield latency_sheet("synchronous flush, time to the answer", outcomes)


def _brokers(bench: Bench, stack: ExitStack, flush: str, *, with_apache: bool) -> tuple[list[Target], list[str]]:
    """Ours, and Apache's where that is possible, until `stack` ends; and what is to be said about that."""
    ours = bench.ours(stack, flush)
    if not with_apache:
        return [ours], ["without the Apache broker, to be quick"]
    try:
        return [ours, bench.apache_beside(stack, ours, flush)], []
    except NotMeasured as reason:
        return [ours], [f"without the Apache broker: {reason}"]


def _outcomes(
    bench: Bench, targets: Sequence[Target], shapes: Sequence[Shape], title: str, notes: list[str]
) -> list[Outcome]:
    """Every load for which there is time; `notes` get what is to be said about them."""
    contest = bench.contest(*targets)
    for body_bytes in sorted({shape.body_bytes for shape in shapes if shape.mode == "pull"}):
        for target in targets:
            contest.alone(target, partial(bench.fill, target, body_bytes))
    outcomes = []
    for shape in shapes:
        if shape.mode == "pull":
            for target in targets:
                contest.alone(target, partial(until_quiet, target))
        try:
            outcomes.append(contest.run(shape, title=f"{title}, {shape}"))
        except UsedUp as reason:
            notes.append(f"without {shape} and what comes after it: {reason}")
            break
    notes.append(disturbance(outcomes))
    return outcomes


def disturbance(outcomes: Sequence[Outcome]) -> str:
    """How quiet the machine was."""
    shares = [result.disturbed for outcome in outcomes for result in outcome.results.values()]
    counts = [result.shots for outcome in outcomes for result in outcome.results.values()]
    if not shares:
        return "nothing was measured"
    least, most = min(counts), max(counts)
    shots = f"{most}" if least == most else f"{least} to {most}"
    median, worst = statistics.median(shares), max(shares)
    return (
        f"{f'medians of {shots} measurements' if most > 1 else 'one measurement each'}; other programs used {median:.0%} of the machine "
        f"during the median one, {worst:.0%} during the worst row{'' if median < BUSY else BUSY_WORDS}"
    )


def _with(sheet: Sheet, notes: Sequence[str]) -> Sheet:
    return sheet._replace(notes=[*notes, *sheet.notes])

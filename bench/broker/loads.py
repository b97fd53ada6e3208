"""Sections: the broker under each load beside Apache's, with either way of flushing; and what the machine could do at most."""

import statistics
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import partial

from bench.broker.budget import UsedUp
from bench.broker.contest import Outcome
from bench.broker.generators import our_generator
from bench.broker.rows import latency_sheet, rate_sheet
from bench.broker.sections import Bench
from bench.broker.servers import NULL, compiled, null_server
from bench.broker.sheets import Sheet
from bench.broker.shots import NotMeasured, Shape


def async_sheets(bench: Bench) -> Iterator[Sheet]:
    outcomes, notes = _beside(bench, "async", bench.scale.shapes, with_apache=True)
    yield _with(rate_sheet("asynchronous flush", outcomes, has_aims=True), notes)
    yield latency_sheet("asynchronous flush, time to the answer", outcomes)


def sync_sheets(bench: Bench) -> Iterator[Sheet]:
    shapes, with_apache = bench.scale.sync_shapes, bench.scale.is_sync_beside_apache
    outcomes, notes = _beside(bench, "sync", shapes, with_apache=with_apache)
    yield _with(rate_sheet("synchronous flush", outcomes, has_aims=False), notes)
    yield latency_sheet("synchronous flush, time to the answer", outcomes)


def null_sheets(bench: Bench) -> Iterator[Sheet]:
    """The ceiling: a server that does nothing but split frames."""
    title = "ceiling: a server in C that answers every frame with the same words"
    headings = ["load", "msg/s", "p50 us", "p99", "CPU us/msg", "generator, cores"]
    try:
        program = compiled("nullserver", bench.programs)
    except NotMeasured as reason:
        yield Sheet(title, headings, [], [f"not measured: {reason}"])
        return
    rows, notes = [], []
    unchecked = {NULL: ("--no-create", "--no-verify")}
    bench = bench._replace(scale=bench.scale._replace(shots=1))
    with null_server(bench.folder / "null", program) as target:
        contest = bench.contest(target)
        shapes = [shape for shape in bench.scale.shapes if shape.mode == "send"]
        ours = bench._replace(generator=our_generator()).contest(target)
        last = Shape("send", 16, 64, 100)
        runs = [(contest, shape, f"null, {shape}") for shape in shapes]
        for by, shape, name in [*runs, (ours, last, f"{last}, by {our_generator().name}")]:
            outcome = by.run(shape, unchecked, name)
            notes += outcome.notes
            if (found := outcome.results.get(NULL)) is not None:
                cells = (f"{found.rate:,.0f}", f"{found.p50_us:,.0f}", f"{found.p99_us:,.0f}", f"{found.server_us:.2f}")
                rows.append([name.removeprefix("null, "), *cells, f"{found.generator_cpu:.2f}"])
    yield Sheet(title, headings, rows, notes)


def _beside(bench: Bench, flush: str, shapes: Sequence[Shape], *, with_apache: bool) -> tuple[list[Outcome], list[str]]:
    """Every load on both brokers, and what is to be said about that."""
    with ExitStack() as stack:
        targets = [bench.ours(stack, flush)]
        notes = []
        if with_apache:
            try:
                targets.append(bench.apache_beside(stack, targets[0], flush))
            except NotMeasured as reason:
                notes.append(f"without the Apache broker: {reason}")
        else:
            notes.append("without the Apache broker, to be quick")
        contest = bench.contest(*targets)
        for body_bytes in sorted({shape.body_bytes for shape in shapes if shape.mode == "pull"}):
            for target in targets:
                contest.alone(target, partial(bench.fill, target, body_bytes))
        outcomes = []
        for shape in shapes:
            try:
                outcomes.append(contest.run(shape, title=f"{flush}, {shape}"))
            except UsedUp as reason:
                notes.append(f"without {shape} and what comes after it: {reason}")
                break
    return outcomes, [*notes, disturbance(outcomes)]


def disturbance(outcomes: Sequence[Outcome]) -> str:
    """How quiet the machine was."""
    shares = [result.disturbed for outcome in outcomes for result in outcome.results.values()]
    counts = [result.shots for outcome in outcomes for result in outcome.results.values()]
    if not shares:
        return "nothing was measured"
    least, most = min(counts), max(counts)
    shots = f"{most}" if least == most else f"{least} to {most}"
    return (
        f"{f'medians of {shots} shots' if most > 1 else 'one shot each'}; others had {statistics.median(shares):.0%} of the machine during the median shot, "
        f"{max(shares):.0%} during the worst row"
    )


def _with(sheet: Sheet, notes: Sequence[str]) -> Sheet:
    return sheet._replace(notes=[*notes, *sheet.notes])

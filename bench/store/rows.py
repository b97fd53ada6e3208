"""One line of the report, and how the lines are printed. All numbers are costs: less is better."""

import statistics
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rich.table import Table

from bench.method import Subject, Timing, machine, measure


class Pace(NamedTuple):
    """How long things are measured."""

    rounds: int
    round_ms: float


class Row(NamedTuple):
    """What one candidate needs for one thing."""

    subject: str
    candidate: str
    median: float
    least: float | None
    """None when it was measured once."""
    unit: str
    ours: bool = True
    aim: float | None = None
    note: str = ""

    @property
    def is_met(self) -> bool:
        return self.aim is None or self.median <= self.aim


def rows_of(subject: Subject, pace: Pace, unit: str = "us", notes: Sequence[str] = ()) -> Iterator[Row]:
    """Measure a subject; the aim is for its first candidate."""
    for number, timing in enumerate(measure(subject, pace.rounds, pace.round_ms)):
        note = notes[number] if number < len(notes) else ""
        yield row_of(subject, timing, unit, note, aim=None if number else subject.aim_us)


def row_of(subject: Subject, timing: Timing, unit: str, note: str, aim: float | None) -> Row:
    candidate = timing.candidate
    return Row(subject.name, candidate.name, timing.median_us, timing.min_us, unit, candidate.ours, aim, note)


def seconds_row(
    subject: str, candidate: str, seconds: Sequence[float], *, aim: float | None = None, note: str = ""
) -> Row:
    least = min(seconds) if len(seconds) > 1 else None
    return Row(subject, candidate, statistics.median(seconds), least, "s", aim=aim, note=note)


def table_of(rows: Sequence[Row], title: str, pace: Pace) -> Table:
    table = Table(
        title=f"{title} · {machine()}",
        caption=(
            f"median and least of {pace.rounds} rounds of {pace.round_ms:g} ms each, candidates interleaved, where the unit is us; "
            "× ours: by medians, of the first candidate"
        ),
    )
    table.add_column("subject", no_wrap=True)
    table.add_column("candidate", no_wrap=True)
    for heading in ("median", "least"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("unit", no_wrap=True)
    for heading in ("× ours", "goal"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    table.add_column("note")
    first = None
    for number, row in enumerate(rows):
        first = row if first is None or row.subject != first.subject else first
        is_last = number + 1 == len(rows) or rows[number + 1].subject != row.subject
        _add(table, row, first, is_last)
    return table


def _add(table: Table, row: Row, first: Row, is_last: bool) -> None:
    compared = row is not first and row.unit == first.unit and first.median
    table.add_row(
        row.subject if row is first else "",
        f"[bold]{row.candidate}[/]" if row.ours else row.candidate,
        shown(row.median),
        shown(row.least),
        row.unit,
        f"{row.median / first.median:.2f}" if compared else "",
        "" if row.aim is None else f"≤ {row.aim:g}",
        "" if row.aim is None else verdict(row),
        row.note,
        end_section=is_last,
    )


def shown(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.1f}" if value >= 100 else f"{value:.2f}"


def verdict(row: Row) -> str:
    return "[green]ok[/]" if row.is_met else "[red]over[/]"

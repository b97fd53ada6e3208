"""What `pocketmq pipeline` shows: a plan, progress while it runs, and what it did. As JSON, each is an object on a line."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import click
import msgspec
from rich.console import Console
from rich.live import Live
from rich.text import Text

import pocketmq
from pocketmq.cli.rows_screen import Column, show_facts, show_json, show_rows, tell
from pocketmq.cli.words import number, span

if TYPE_CHECKING:
    from pocketmq.pipelines.plan import Plan
    from pocketmq.pipelines.progress import Progress
    from pocketmq.pipelines.running import Summary

_QUEUES = (
    Column("topic"),
    Column("broker"),
    Column("queue", told=number),
    Column("start", told=number),
    Column("end", told=number),
    Column("messages", told=number),
)
_UNITS = (("GB", 10**9), ("MB", 10**6), ("KB", 10**3))
MAX_QUEUES_SHOWN = 20


class RunScreen:
    """Progress while a pipeline runs: a live table on a terminal, else a line for each batch. JSON goes to the output."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._console = Console(stderr=True, highlight=False)
        self._rows: dict[str, Progress] = {}
        self._live: Live | None = None

    def __enter__(self) -> Self:
        if self._console.is_terminal and not self._as_json:
            self._live = Live(console=self._console, refresh_per_second=4, transient=True)
            self._live.start()
        return self

    def __exit__(self, *exc: object) -> None:
        if self._live is not None:
            self._live.stop()

    def tell(self, text: str) -> None:
        """A line about what is being done."""
        if self._live is not None:
            self._live.update(Text(f"{text} …"))
        elif not self._as_json:
            click.echo(text, err=True)

    def show(self, progress: "Progress") -> None:
        if self._as_json:
            show_json([{"kind": "progress", **msgspec.to_builtins(progress)}])
            return
        self._rows[progress.query] = progress
        if self._live is not None:
            self._live.update(pocketmq.pipelines.progress_table(self._rows.values()))
        else:
            click.echo(_line(progress), err=True)


def _line(progress: "Progress") -> str:
    behind = "" if progress.behind is None else f", {progress.behind:,} behind"
    late = f", {progress.late:,} late rows" if progress.late else ""
    if progress.outage is not None:
        return f"{progress.query}: waits for brokers, which do not answer: {progress.outage}"
    took = span(progress.took_ms)
    return (
        f"{progress.query}: batch {progress.batch} in {took}, {progress.messages:,} messages so far, "
        f"{progress.per_s:,.0f} a second{behind}{late}"
    )


def show_plan(plan: "Plan", *, as_json: bool) -> None:
    """A dry run."""
    if as_json:
        show_json([{"kind": "plan", **plan.to_json()}])
        return
    rows = [{**msgspec.to_builtins(queue), "messages": queue.messages} for queue in plan.queues]
    show_facts(
        {
            "pipeline": plan.pipeline,
            "reads": plan.source,
            **({"begins": plan.begins} if plan.begins else {}),
            "writes": plan.sink,
            **(_cost(plan) if rows else {}),
        }
    )
    if rows:
        tell("")
        show_rows(rows[:MAX_QUEUES_SHOWN], _QUEUES, as_json=False, empty="")
    if len(rows) > MAX_QUEUES_SHOWN:
        tell(f"and {len(rows) - MAX_QUEUES_SHOWN:,} more queues: --json shows all")
    if plan.options:
        tell("")
        show_facts({name: str(value) for name, value in plan.options.items()})
    for note in plan.notes:
        tell(f"\nNote: {note}")
    tell("\nNothing was started or changed.")


def _cost(plan: "Plan") -> dict[str, str]:
    return {
        "messages": f"{plan.messages:,} in {len(plan.queues):,} queues now, about {byte_words(plan.bytes)}",
        "takes": f"about {span(max(1_000, round(plan.seconds * 1000)))} at {plan.messages_per_s:,} a second, "
        "and some seconds for Spark to start",
    }


def show_summary(summary: "Summary", *, as_json: bool) -> None:
    """What a run did."""
    if as_json:
        show_json([{"kind": "summary", **msgspec.to_builtins(summary), "per_s": summary.per_s}])
        return
    batches = "1 batch" if summary.batches == 1 else f"{summary.batches:,} batches"
    took = span(summary.took_ms)
    show_facts(
        {
            "pipeline": f"{summary.pipeline}, {summary.ended}",
            **(
                {"messages": f"{summary.messages:,} in {batches} and {took}: {summary.per_s:,.0f} a second"}
                if summary.batches
                else {"took": took}
            ),
            **({"late rows": f"{summary.late:,}"} if summary.late else {}),
            **({"duplicates left out": f"{summary.duplicates:,}"} if summary.duplicates else {}),
            **{name.replace("_", " "): _fact(value) for name, value in summary.facts.items()},
        }
    )
    tables: Mapping[str, Sequence[Mapping[str, Any]]] = {
        **summary.tables,
        **({"lost ranges, gone before they were read": summary.lost} if summary.lost else {}),
    }
    for title, rows in tables.items():
        tell(f"\n{title}")
        names = list(rows[0]) if rows else []
        columns = [Column(name, told=number) if _is_number(name, rows) else Column(name) for name in names]
        show_rows(rows, columns, as_json=False, empty="none")


def byte_words(many: int) -> str:
    """`512 B`, `1.5 MB`."""
    for unit, size in _UNITS:
        if many >= size:
            return f"{many / size:,.1f} {unit}"
    return f"{many} B"


def _fact(value: Any) -> str:
    return number(value) if isinstance(value, int | float) and not isinstance(value, bool) else str(value)


def _is_number(name: str, rows: Sequence[Mapping[str, Any]]) -> bool:
    values = [row.get(name) for row in rows if row.get(name) is not None]
    return bool(values) and all(isinstance(value, int | float) for value in values)

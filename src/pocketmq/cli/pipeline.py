"""`pocketmq pipeline`: a command for each ready pipeline, made from what the pipeline says about itself.

Job ── its settings ──► flags, and keys of the file of --config
    ├─ check ─────────► what cannot be, told before Spark starts
    ├─ --dry-run ─────► plan: what it would do
    └─ run ───────────► progress on the error stream, then what it did

Spark is heavy, so all of it is loaded by the first command of this group, and not by the others.

What `pocketmq pipeline` shows: a plan, progress while it runs, and what it did. As JSON, each is an object on a line.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import click
import msgspec
from rich.console import Console
from rich.live import Live
from rich.text import Text

import pocketmq
from pocketmq.cli.commands import ErrorTellingGroup, ExitCode, parsed
from pocketmq.cli.pipeline_lake import lake_command
from pocketmq.cli.pipeline_project import new, run
from pocketmq.cli.screen import Column, numbers, show_facts, show_json, show_rows, tell, texts
from pocketmq.clock import SystemClock
from pocketmq.files import DiskFiles
from pocketmq.model.human import duration, number, parse_pair, size

if TYPE_CHECKING:
    from pocketmq.pipelines.core.job_file import Setting
    from pocketmq.pipelines.core.plan import Plan
    from pocketmq.pipelines.core.progress import Progress
    from pocketmq.pipelines.core.running import Summary
    from pocketmq.pipelines.core.settings import Job, JobSettings

_QUEUES = (*texts("topic", "broker"), *numbers("queue", "start", "end", "messages"))
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
    took = duration(progress.took_ms)
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
        "messages": f"{plan.messages:,} in {len(plan.queues):,} queues now, about {size(plan.bytes)}",
        "takes": f"about {duration(max(1_000, round(plan.seconds * 1000)))} at {plan.messages_per_s:,} a second, "
        "and some seconds for Spark to start",
    }


def show_summary(summary: "Summary", *, as_json: bool) -> None:
    """What a run did."""
    if as_json:
        show_json([{"kind": "summary", **msgspec.to_builtins(summary), "per_s": summary.per_s}])
        return
    batches = "1 batch" if summary.batches == 1 else f"{summary.batches:,} batches"
    took = duration(summary.took_ms)
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


def _fact(value: Any) -> str:
    return number(value) if isinstance(value, int | float) and not isinstance(value, bool) else str(value)


def _is_number(name: str, rows: Sequence[Mapping[str, Any]]) -> bool:
    values = [row.get(name) for row in rows if row.get(name) is not None]
    return bool(values) and all(isinstance(value, int | float) for value in values)


class PipelineGroup(ErrorTellingGroup):
    """The commands of all ready pipelines, besides those that are written here."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*sorted(pocketmq.pipelines.JOBS), *super().list_commands(ctx)]

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        own = super().get_command(ctx, name)
        if own is not None:
            return own
        job = pocketmq.pipelines.JOBS.get(name)
        return None if job is None else job_command(job)


@click.group("pipeline", cls=PipelineGroup)
def pipeline_commands() -> None:
    """Pipelines on Spark: topics to a lake and back, checked, mirrored, measured."""


pipeline_commands.add_command(new)
pipeline_commands.add_command(run)


pipeline_commands.add_command(lake_command)


def job_command(job: "Job[Any]") -> click.Command:
    """The command of a pipeline."""
    settings = pocketmq.pipelines.settings_of(job.settings)
    return click.Command(
        job.name,
        params=[
            click.Option(
                ["--config", "-c", "path"],
                type=click.Path(path_type=Path),
                metavar="FILE",
                help="The settings (TOML): each flag below is a key of it, and flags win.",
            ),
            *(flag(setting) for setting in settings if setting.is_flag),
            click.Option(["--dry-run"], is_flag=True, help="Show what would happen, and stop."),
            click.Option(
                ["--json", "as_json"], is_flag=True, help="JSON, one object per line: progress, then the summary."
            ),
        ],
        callback=_callback(job),
        help="\n\n".join(part for part in (job.summary, job.description, _EXIT_CODES) if part),
        short_help=job.summary,
    )


_EXIT_CODES = """\
\b
Exit code: 0    done
           3    failed; run again, it goes on where it was
           64   a setting that cannot be
           130  stopped before it was done"""


def flag(setting: "Setting") -> click.Option:
    """The flag of a setting. What it was given is text, read together with the file."""
    names = [*([setting.extra["short"]] if "short" in setting.extra else []), f"--{setting.flag}", setting.name]
    more = ""
    if setting.is_required:
        more = "  [required]"
    elif setting.default not in (None, "", False, (), {}) and not setting.is_list:
        more = f"  [default: {getattr(setting.default, 'text', setting.default)}]"
    shown: dict[str, Any] = {"help": setting.description + more, "default": None}
    if setting.is_switch:
        names[-2] = f"--{setting.flag}/--{setting.extra.get('off', 'no-' + setting.flag)}"
        return click.Option(names, **shown)
    shown["metavar"] = setting.word
    if setting.is_table:
        return click.Option(names, multiple=True, type=parsed(parse_pair), callback=_pairs, **shown)
    if setting.is_list:
        return click.Option(
            names, multiple=True, callback=_words if setting.extra.get("split", True) else _texts, **shown
        )
    return click.Option(names, envvar=setting.extra.get("variable"), show_envvar=True, **shown)


def _pairs(ctx: click.Context, param: click.Parameter, given: tuple[tuple[str, str], ...]) -> dict[str, str] | None:
    return dict(given) or None


def _words(ctx: click.Context, param: click.Parameter, given: tuple[str, ...]) -> list[str] | None:
    return [word.strip() for text in given for word in text.split(",") if word.strip()] or None


def _texts(ctx: click.Context, param: click.Parameter, given: tuple[str, ...]) -> list[str] | None:
    return list(given) or None


def _callback(job: "Job[Any]") -> Callable[..., int]:
    def command(path: Path | None, dry_run: bool, as_json: bool, **flags: Any) -> int:
        told = pocketmq.pipelines.read_job(
            job.name,
            job.settings,
            path=path,
            flags={name: value for name, value in flags.items() if value is not None},
            files=DiskFiles(),
            now_ms=SystemClock().now_ms(),
        )
        pocketmq.pipelines.check_master(told.master, told.remote)
        job.check(told)
        if dry_run:
            show_plan(job.plan(told), as_json=as_json)
            return ExitCode.OK
        return _run(job, told, as_json=as_json)

    return command


def _run(job: "Job[Any]", settings: "JobSettings", *, as_json: bool) -> int:
    pipelines = pocketmq.pipelines
    is_once = not getattr(settings, "continuous", False)
    with RunScreen(as_json=as_json) as screen:
        run = pipelines.Run(once=is_once, every_ms=getattr(settings, "every", 5_000), report=screen.show)
        screen.tell(f"starting Spark on {settings.remote or settings.master or 'this machine'}")
        with (
            pipelines.metrics_served(getattr(settings, "metrics_port", None), run),
            pipelines.session(
                f"pocketmq {job.name}", settings.master, settings.remote, settings.spark, is_quiet=True
            ) as spark,
            pipelines.stopped_by_signals(run),
            pipelines.told_failures(),
        ):
            screen.tell(f"{job.name} runs" + ("" if is_once else "; ctrl-C ends it"))
            summary = msgspec.structs.replace(job.run(spark, settings, run), pipeline=job.name)
    show_summary(summary, as_json=as_json)
    sys.stdout.flush()
    return ExitCode.INTERRUPTED if is_once and summary.ended == "stopped" else ExitCode.OK

"""`pocketmq pipeline`: one command for each ready pipeline, generated from the settings of the job.

    Job ── settings ──► options, and keys of the --config file
        ├─ check ─────► errors that can be found before Spark starts
        ├─ --dry-run ─► plan: what the run would do
        └─ run ───────► progress on stderr, then a summary

Spark is imported with the first command of this group, so that other commands start fast.
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
from pocketmq.cli.commands import CommandGroup, ExitCode, current_ms, parsed
from pocketmq.cli.output import Column, numbers, show_facts, show_json, show_rows, show_text, texts
from pocketmq.cli.pipeline_lake import lake_command
from pocketmq.cli.pipeline_project import new, run
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
    """Progress of a running pipeline: a live table on a terminal, otherwise a line for each batch. JSON goes to stdout."""

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

    def show_text(self, text: str) -> None:
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
    behind = "" if progress.behind is None else f", lag {progress.behind:,}"
    late = f", {progress.late:,} late rows" if progress.late else ""
    if progress.outage is not None:
        return f"{progress.query}: waiting for brokers: {progress.outage}"
    took = duration(progress.took_ms)
    return (
        f"{progress.query}: batch {progress.batch} in {took}, {progress.messages:,} messages so far, "
        f"{progress.per_s:,.0f}/s{behind}{late}"
    )


def show_plan(plan: "Plan", *, as_json: bool) -> None:
    """Show the plan of a dry run."""
    if as_json:
        show_json([{"kind": "plan", **plan.to_json()}])
        return
    rows = [{**msgspec.to_builtins(queue), "messages": queue.messages} for queue in plan.queues]
    show_facts(
        {
            "pipeline": plan.pipeline,
            "reads": plan.source,
            **({"starts at": plan.begins} if plan.begins else {}),
            "writes": plan.sink,
            **(_cost(plan) if rows else {}),
        }
    )
    if rows:
        show_text("")
        show_rows(rows[:MAX_QUEUES_SHOWN], _QUEUES, as_json=False, empty="")
    if len(rows) > MAX_QUEUES_SHOWN:
        show_text(f"and {len(rows) - MAX_QUEUES_SHOWN:,} more queues: --json shows all")
    if plan.options:
        show_text("")
        show_facts({name: str(value) for name, value in plan.options.items()})
    for remark in plan.remarks:
        show_text(f"\nNote: {remark}")
    show_text("\nNothing changed.")


def _cost(plan: "Plan") -> dict[str, str]:
    return {
        "messages": f"{plan.messages:,} in {len(plan.queues):,} queues now, about {size(plan.bytes)}",
        "duration": f"about {duration(max(1_000, round(plan.seconds * 1000)))} at {plan.messages_per_s:,} messages/s, "
        "and some seconds for the start of Spark",
    }


def show_summary(summary: "Summary", *, as_json: bool) -> None:
    """Show the summary of a run."""
    if as_json:
        show_json([{"kind": "summary", **msgspec.to_builtins(summary), "per_s": summary.per_s}])
        return
    batches = "1 batch" if summary.batches == 1 else f"{summary.batches:,} batches"
    took = duration(summary.took_ms)
    show_facts(
        {
            "pipeline": f"{summary.pipeline}, {summary.ended}",
            **(
                {"messages": f"{summary.messages:,} in {batches} in {took}: {summary.per_s:,.0f}/s"}
                if summary.batches
                else {"duration": took}
            ),
            **({"late rows": f"{summary.late:,}"} if summary.late else {}),
            **({"duplicates removed": f"{summary.duplicates:,}"} if summary.duplicates else {}),
            **{name.replace("_", " "): _fact(value) for name, value in summary.facts.items()},
        }
    )
    tables: Mapping[str, Sequence[Mapping[str, Any]]] = {
        **summary.tables,
        **({"lost ranges, deleted before they were read": summary.lost} if summary.lost else {}),
    }
    for title, rows in tables.items():
        show_text(f"\n{title}")
        names = list(rows[0]) if rows else []
        columns = [Column(name, shown_as=number) if _is_number(name, rows) else Column(name) for name in names]
        show_rows(rows, columns, as_json=False, empty="none")


def _fact(value: Any) -> str:
    return number(value) if isinstance(value, int | float) and not isinstance(value, bool) else str(value)


def _is_number(name: str, rows: Sequence[Mapping[str, Any]]) -> bool:
    values = [row.get(name) for row in rows if row.get(name) is not None]
    return bool(values) and all(isinstance(value, int | float) for value in values)


class PipelineGroup(CommandGroup):
    """The commands of all ready pipelines, and `new`, `run` and `lake`."""

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
    """Pipelines on Spark: archive topics to a lake, replay, check and mirror them."""


pipeline_commands.add_command(new)
pipeline_commands.add_command(run)


pipeline_commands.add_command(lake_command)


def job_command(job: "Job[Any]") -> click.Command:
    settings = pocketmq.pipelines.settings_of(job.settings)
    return click.Command(
        job.name,
        params=[
            click.Option(
                ["--config", "-c", "path"],
                type=click.Path(path_type=Path),
                metavar="FILE",
                help="A file with settings (TOML). Each option below is a key; options override the file.",
            ),
            *(flag(setting) for setting in settings if setting.is_flag),
            click.Option(["--dry-run"], is_flag=True, help="Show the plan, and exit."),
            click.Option(
                ["--json", "as_json"], is_flag=True, help="Print JSON, one object per line: progress, then the summary."
            ),
        ],
        callback=_callback(job),
        help="\n\n".join(part for part in (job.summary, job.description, _EXIT_CODES) if part),
        short_help=job.summary,
    )


_EXIT_CODES = """\
\b
Exit code: 0    success
           3    failed; run it again to continue
           64   invalid setting
           130  interrupted; run it again to continue"""


def flag(setting: "Setting") -> click.Option:
    """The option of a setting. Its value stays text until it is parsed together with the file."""
    short = [setting.extra["short"]] if "short" in setting.extra else []
    more_names = [f"--{name}" for name in setting.extra.get("more", ())]
    names = [*short, *more_names, f"--{setting.flag}", setting.name]
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
            names, multiple=True, callback=_split_texts if setting.extra.get("split", True) else _texts, **shown
        )
    return click.Option(names, envvar=setting.extra.get("variable"), show_envvar=True, **shown)


def _pairs(ctx: click.Context, param: click.Parameter, values: tuple[tuple[str, str], ...]) -> dict[str, str] | None:
    return dict(values) or None


def _split_texts(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> list[str] | None:
    return [word.strip() for text in values for word in text.split(",") if word.strip()] or None


def _texts(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> list[str] | None:
    return list(values) or None


def _callback(job: "Job[Any]") -> Callable[..., int]:
    def command(path: Path | None, dry_run: bool, as_json: bool, **flags: Any) -> int:
        settings = pocketmq.pipelines.read_job(
            job.name,
            job.settings,
            path=path,
            flags={name: value for name, value in flags.items() if value is not None},
            files=DiskFiles(),
            now_ms=current_ms(),
        )
        pocketmq.pipelines.check_master(settings.master, settings.remote)
        job.check(settings)
        if dry_run:
            show_plan(_examined(job, settings, job.plan(settings)), as_json=as_json)
            return ExitCode.OK
        return _run(job, settings, as_json=as_json)

    return command


def _examined(job: "Job[Any]", settings: "JobSettings", plan: "Plan") -> "Plan":
    """A plan with the remarks of the checks that need Spark, if there are any."""
    examine = job.examine(settings)
    if examine is None:
        return plan
    pipelines = pocketmq.pipelines
    with (
        pipelines.session(
            f"pocketmq {job.name} dry run", settings.master, settings.remote, settings.session, is_quiet=True
        ) as spark,
        pipelines.pipeline_failures(),
    ):
        return msgspec.structs.replace(plan, remarks=(*plan.remarks, *examine(spark)))


def _run(job: "Job[Any]", settings: "JobSettings", *, as_json: bool) -> int:
    pipelines = pocketmq.pipelines
    is_once = not getattr(settings, "continuous", False)
    with RunScreen(as_json=as_json) as screen:
        run = pipelines.Run(once=is_once, every_ms=getattr(settings, "every", 5_000), report=screen.show)
        screen.show_text(f"starting Spark on {settings.remote or settings.master or 'this machine'}")
        with (
            pipelines.metrics_served(getattr(settings, "metrics_port", None), run),
            pipelines.session(
                f"pocketmq {job.name}", settings.master, settings.remote, settings.session, is_quiet=True
            ) as spark,
            pipelines.stopped_by_signals(run),
            pipelines.lineage_reported(job.name, settings),
            pipelines.pipeline_failures(),
        ):
            screen.show_text(f"running {job.name}" + ("" if is_once else "; press ctrl-C to stop"))
            summary = msgspec.structs.replace(job.run(spark, settings, run), pipeline=job.name)
    show_summary(summary, as_json=as_json)
    sys.stdout.flush()
    return ExitCode.INTERRUPTED if is_once and summary.ended == "stopped" else ExitCode.OK

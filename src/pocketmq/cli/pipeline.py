"""`pocketmq pipeline`: a command for each ready pipeline, made from what the pipeline says about itself.

Job ── its settings ──► flags, and keys of the file of --config
    ├─ check ─────────► what cannot be, told before Spark starts
    ├─ --dry-run ─────► plan: what it would do
    └─ run ───────────► progress on the error stream, then what it did

Spark is heavy, so all of it is loaded by the first command of this group, and not by the others.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

import pocketmq
from pocketmq.cli.commands import ErrorTellingGroup, ExitCode
from pocketmq.cli.pipeline_lake import lake_command
from pocketmq.cli.pipeline_project import new, run
from pocketmq.cli.pipeline_screen import RunScreen, show_plan, show_summary
from pocketmq.cli.words import pair_word
from pocketmq.clock import SystemClock
from pocketmq.files import DiskFiles

if TYPE_CHECKING:
    from pocketmq.pipelines.job import Job
    from pocketmq.pipelines.job_file import Setting
    from pocketmq.pipelines.settings import JobSettings


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
        return click.Option(names, multiple=True, callback=_pairs, **shown)
    if setting.is_list:
        return click.Option(
            names, multiple=True, callback=_words if setting.extra.get("split", True) else _texts, **shown
        )
    return click.Option(names, envvar=setting.extra.get("variable"), show_envvar=True, **shown)


def _pairs(ctx: click.Context, param: click.Parameter, given: tuple[str, ...]) -> dict[str, str] | None:
    return dict(map(pair_word, given)) or None


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

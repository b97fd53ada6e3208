"""`pocketmq doctor`: find out why messages do not arrive."""

from typing import TYPE_CHECKING, Any, Final

import click
from rich.text import Text

import pocketmq
from pocketmq.cli.cluster_options import Cluster, cluster_options, complete_group, complete_topic
from pocketmq.cli.commands import ExitCode, text_option
from pocketmq.cli.output import json_option, one_line, screen, show_json, show_text

if TYPE_CHECKING:
    from pocketmq.doctor import Report, Step

_MARKS: Final = {
    "ok": ("✓", "green"),
    "info": ("-", "none"),
    "warning": ("!", "yellow"),
    "broken": ("✗", "bold red"),
    "unknown": ("?", "yellow"),
    "skipped": ("·", "dim"),
}
_NAME_WIDTH: Final = 13


@click.command("doctor")
@cluster_options
@text_option("--topic", "The topic to examine.", shell_complete=complete_topic, metavar="NAME")
@text_option("--group", "The consumer group to examine.", shell_complete=complete_group, metavar="NAME")
@json_option
def doctor(cluster: Cluster, topic: str | None, group: str | None, as_json: bool) -> int:
    """Find out why messages do not arrive: check every step from the address to the message handler.

    The last line names the first problem and how to fix it. The command changes nothing: it sends no message and joins no
    group. --json prints one line per step and one for the whole report.

    \b
    Exit code: 0  no problem found
               3  a step is broken, or could not be examined
    """
    report = pocketmq.doctor.examine(
        cluster.name_servers,
        topic=topic,
        group=group,
        on_step=(lambda step: show_json([_row(step)])) if as_json else _show,
        **cluster.options,
    )
    if as_json:
        show_json([_summary(report)])
    else:
        show_text("")
        show_text(one_line(report.sentence))
    return ExitCode.OK if report.is_healthy else ExitCode.REFUSED


def _show(step: "Step") -> None:
    mark, style = _MARKS[step.verdict.value]
    line = Text(f"{mark} ", style=style).append(
        f"{step.name:<{_NAME_WIDTH}}", style="bold" if style != "dim" else "dim"
    )
    shown = step.finding.text if step.verdict.value != "skipped" else f"skipped: {step.finding.text}"
    console = screen()
    console.print(line.append(one_line(shown), style="not bold"))
    if step.verdict.value == "warning":
        console.print(Text(f"{'':<{_NAME_WIDTH + 2}}{one_line(step.finding.fix)}"))
    for hint in step.finding.hints:
        console.print(Text(f"{'':<{_NAME_WIDTH + 2}}! {one_line(hint)}", style="yellow"))


def _row(step: "Step") -> dict[str, Any]:
    return {
        "step": step.name,
        "verdict": step.verdict.value,
        "finding": step.finding.text,
        "fix": step.finding.fix,
        "hints": step.finding.hints,
    }


def _summary(report: "Report") -> dict[str, Any]:
    broken = report.first_broken
    return {
        "name_servers": report.name_servers,
        "topic": report.topic,
        "group": report.group,
        "at_ms": report.at_ms,
        "is_healthy": report.is_healthy,
        "first_broken": None if broken is None else broken.name,
        "sentence": report.sentence,
    }

"""What `store rebuild` shows: the plan, a question, progress, and what came of it."""

import click
from rich.text import Text

from pocketmq.cli.commands import ExitCode
from pocketmq.cli.screen import count, late_bar, screen
from pocketmq.clock import Clock
from pocketmq.store.dump import Skipped
from pocketmq.store.layout import StoreLayout
from pocketmq.store.rebuild import Rebuild, RebuildReport
from pocketmq.store.rebuild_plan import RebuildPlan


def show_plan(layout: StoreLayout, plan: RebuildPlan, *, dry_run: bool) -> None:
    console = screen()
    verb = "Would make new" if dry_run else "To be made new"
    queues = {file.path.parent for file in plan.queue_files}
    console.print(
        Text(
            f"{verb}, from {plan.log_bytes:,} bytes of log in {layout.folder}: "
            f"{count(len(plan.queue_files), 'file')} of {count(len(queues), 'consume queue')} and "
            f"{count(len(plan.index_files), 'index file')}. "
            "Log and tables stay as they are."
        )
    )
    if dry_run:
        for path in [*(file.path for file in plan.queue_files), *plan.index_files]:
            console.print(Text(f"  {layout.name_of(path)}"))


def confirm() -> bool:
    """Ask. Where nobody can answer, the answer is no."""
    try:
        if click.confirm("Replace these files?"):
            return True
    except click.Abort:
        click.echo(err=True)
    click.echo("Nothing was changed. With --yes it does not ask.", err=True)
    return False


def show_rebuild(rebuild: Rebuild, clock: Clock) -> ExitCode:
    skipped = 0
    with late_bar(clock, "reading the log") as bar:
        for event in rebuild.run():
            if isinstance(event, Skipped):
                skipped += 1
                click.echo(f"skipped: {event.text}", err=True)
            else:
                bar.update(event.done, event.total)
    screen().print(Text(_told(rebuild.report)))
    return ExitCode.DAMAGE if skipped else ExitCode.OK


def _told(report: RebuildReport) -> str:
    queues = f"{count(report.queues, 'consume queue')} with {report.queue_entries:,} entries"
    lines = [
        f"Rebuilt {queues} and {count(report.index_files, 'index file')} from {count(report.messages, 'message')}."
    ]
    if report.gaps:
        lines.append(f"Missing in the log, between others: {count(report.gaps, 'message')}. Their offsets stay empty.")
    if report.removed_files:
        lines.append(f"Removed {count(report.removed_files, 'queue file')} that the log has no messages for.")
    if report.deleted_topics:
        lines.append(f"No queues for topics that were deleted: {', '.join(report.deleted_topics)}.")
    if report.kept_queues:
        lines.append(f"Left as they were, because they hold batches: {', '.join(report.kept_queues)}.")
    return "\n".join(lines)

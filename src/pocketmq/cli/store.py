"""`pocketmq store`: look into the files of a store, and make the derived ones new.

What `store verify` shows: findings, what was looked at, and one sentence that says it all.

What `store rebuild` shows: the plan, a question, progress, and what came of it.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import click
import msgspec
from rich import box
from rich.table import Table
from rich.text import Text

from pocketmq.cli.asking import confirm, yes_option
from pocketmq.cli.commands import ErrorTellingGroup, ExitCode, options
from pocketmq.cli.screen import FIELD_NAMES, choose_fields, late_bar, screen, show_json, show_messages
from pocketmq.clock import Clock, SystemClock
from pocketmq.files import DiskFiles
from pocketmq.model.delay import DelayLevels
from pocketmq.model.human import count
from pocketmq.store.layout import KnownSizes, StoreLayout, find_layout
from pocketmq.store.tools.dump import Order, Selection, Skipped, dump
from pocketmq.store.tools.findings import Finding, Severity
from pocketmq.store.tools.message_fields import BodyForm
from pocketmq.store.tools.rebuild import Rebuild, RebuildPlan, RebuildReport, plan_rebuild
from pocketmq.store.tools.verify import Summary, Verification

MAX_LISTED: Final = 200
"""Findings of each severity that a table shows; JSON lines have them all."""

_STYLES: Final = {Severity.NOTE: "cyan", Severity.REPAIRABLE: "yellow", Severity.DAMAGE: "bold red"}
_WORDS: Final = {Severity.NOTE: "sound", Severity.REPAIRABLE: "repairable", Severity.DAMAGE: "damaged"}
_EXIT_CODES: Final = {
    Severity.NOTE: ExitCode.OK,
    Severity.REPAIRABLE: ExitCode.REPAIRABLE,
    Severity.DAMAGE: ExitCode.DAMAGE,
}


class VerifyScreen:
    def __init__(self, clock: Clock, folder: Path, *, as_json: bool) -> None:
        self._clock = clock
        self._folder = folder
        self._as_json = as_json
        self._listed: dict[Severity, list[Finding]] = {severity: [] for severity in Severity}
        self._counts = dict.fromkeys(Severity, 0)

    def show(self, verification: Verification) -> ExitCode:
        """Run a verification and show it; the exit code that goes with what was found."""
        with late_bar(self._clock, "reading the log") as bar:
            for event in verification.run():
                if isinstance(event, Finding):
                    self._take(event)
                else:
                    bar.update(event.done, event.total)
        summary = verification.summary
        if self._as_json:
            show_json([{"type": "summary", "verdict": _WORDS[summary.worst], **_summary_fields(summary)}])
        else:
            self._show_all(summary)
        return _EXIT_CODES[summary.worst]

    def _take(self, finding: Finding) -> None:
        self._counts[finding.severity] += 1
        if self._as_json:
            show_json(
                [{"type": "finding", "severity": finding.severity.name.lower(), **msgspec.structs.asdict(finding)}]
            )
        elif len(self._listed[finding.severity]) < MAX_LISTED:
            self._listed[finding.severity].append(finding)

    def _show_all(self, summary: Summary) -> None:
        console = screen()
        found = [finding for severity in reversed(Severity) for finding in self._listed[severity]]
        if found:
            table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
            table.add_column("severity")
            table.add_column("where", overflow="fold")
            table.add_column("what", overflow="fold")
            for finding in found:
                style = _STYLES[finding.severity]
                table.add_row(
                    Text(finding.severity.name.lower(), style),
                    Text(_where(finding)),
                    Text(f"{finding.kind}: {finding.text}"),
                )
            console.print(table)
        unlisted = sum(self._counts.values()) - len(found)
        if unlisted:
            console.print(Text(f"{unlisted} more findings; --json lists them all"))
        console.print(Text(_looked_at(summary)))
        console.print(Text(self._verdict(summary.worst), _STYLES[summary.worst] if summary.worst else "bold green"))

    def _verdict(self, worst: Severity) -> str:
        if worst is Severity.NOTE:
            notes = self._counts[Severity.NOTE]
            told = f" ({notes} {'note' if notes == 1 else 'notes'})" if notes else ""
            return f"Sound: log, queues, index and tables agree{told}."
        if worst is Severity.REPAIRABLE:
            return (
                "Repairable: nothing is lost, but derived files differ from the log. "
                f"`pocketmq store rebuild {self._folder}` makes them new."
            )
        return (
            "Damaged: the log or a table is not what was written. Keep a copy of the folder before a broker starts on it: "
            "a start may cut the log at the first damage."
        )


def _where(finding: Finding) -> str:
    if finding.begin is None:
        return finding.path
    end = "" if finding.end is None else f" to {finding.end}"
    return f"{finding.path}\nbytes {finding.begin}{end}" if end else f"{finding.path}\nfrom byte {finding.begin}"


def _looked_at(summary: Summary) -> str:
    parts = [
        f"{count(summary.log_files, 'log file')} (log offset {summary.log_start} to {summary.log_end})",
        f"{count(summary.messages, 'message')} of {count(summary.queues, 'queue')}",
        f"{count(summary.index_files, 'index file')} with {count(summary.index_entries, 'key')}",
        count(summary.tables, "table"),
    ]
    return "Looked at " + ", ".join(parts) + "."


def _summary_fields(summary: Summary) -> dict[str, object]:
    fields = msgspec.structs.asdict(summary)
    return fields | {"worst": summary.worst.name.lower(), "exit_code": int(_EXIT_CODES[summary.worst])}


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


FILES = DiskFiles()


@click.group("store", cls=ErrorTellingGroup)
def store_commands() -> None:
    """Look into a store's files, or make the derived ones new.

    Works on the folder of PocketMQ and on that of Apache RocketMQ 4.9 and 5.x (its storePathRootDir).
    """


def _size_option(flag: str, what: str, key: str, found_out: str, least: int = 1) -> Callable[..., Any]:
    return click.option(
        flag, type=click.IntRange(least), metavar="N", help=f"{what} ({key}). Found out from the files {found_out}."
    )


on_a_store: Final = options(
    click.argument("folder", metavar="DIR", type=click.Path(path_type=Path)),
    _size_option("--log-file-bytes", "Size of log files", "mappedFileSizeCommitLog", "when not given"),
    _size_option(
        "--queue-file-entries", "Entries of a queue file", "mappedFileSizeConsumeQueue ÷ 20", "when not given"
    ),
    _size_option("--index-slots", "Slots of an index file", "maxHashSlotNum", "where they tell"),
    _size_option("--index-entries", "Entries of an index file", "maxIndexNum", "where they tell", least=2),
    click.option(
        "--delay-levels",
        metavar="TEXT",
        help="The broker's messageDelayLevel, such as '1s 5s 10s', if it is not RocketMQ's usual one.",
    ),
)
"""The folder, and what may have to be said about its files."""


def _layout(folder: Path, sizes: dict[str, Any]) -> StoreLayout:
    levels = sizes.pop("delay_levels")
    return find_layout(FILES, folder, KnownSizes(delay_levels=DelayLevels(levels) if levels else None, **sizes))


@store_commands.command()
@on_a_store
@click.option("--no-index", is_flag=True, help="Leave the key index out.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line: each finding, then a summary.")
def verify(folder: Path, no_index: bool, as_json: bool, **sizes: Any) -> int:
    """Say what is right and what is not, with exact offsets. Changes nothing.

    Reads the whole log, and compares queues, index, checkpoint and tables with it. A store may be in use meanwhile.

    \b
    Exit code: 0  sound
               1  repairable: derived files differ from the log, `store rebuild` makes them new
               2  damage in the log or in tables
               3  cannot be read
    """
    verification = Verification(FILES, _layout(folder, sizes), with_index=not no_index)
    return VerifyScreen(SystemClock(), folder, as_json=as_json).show(verification)


@store_commands.command("dump")
@on_a_store
@click.option("--topic", metavar="NAME", help="Only this topic, in the order of its queues.")
@click.option("--queue", "queue_id", type=click.IntRange(0), metavar="N", help="Only this queue.")
@click.option(
    "--order",
    type=click.Choice([order.value for order in Order]),
    help="By the log, or queue by queue. Without it: queue when --topic is given, else log.",
)
@click.option("--from-offset", type=click.IntRange(0), default=0, metavar="N", help="First offset, of log or queue.")
@click.option("--to-offset", type=click.IntRange(0), metavar="N", help="End before this offset, of log or queue.")
@click.option("--limit", type=click.IntRange(0), metavar="N", help="At most so many messages.")
@click.option("--key", "--keys", "key", metavar="KEY", help="Only messages with this key, or this unique key.")
@click.option("--tag", metavar="TAG", help="Only messages with this tag.")
@click.option(
    "--body",
    type=click.Choice([form.value for form in BodyForm]),
    default=BodyForm.TEXT.value,
    show_default=True,
    help="How bodies are shown; compressed ones are decompressed.",
)
@click.option("--fields", metavar="NAME,…", help=f"What to show of: {', '.join(FIELD_NAMES)}.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line.")
def dump_command(
    folder: Path,
    topic: str | None,
    queue_id: int | None,
    order: str | None,
    from_offset: int,
    to_offset: int | None,
    limit: int | None,
    key: str | None,
    tag: str | None,
    body: str,
    fields: str | None,
    as_json: bool,
    **sizes: Any,
) -> int:
    """Print messages, as a table or as JSON lines. Changes nothing.

    In log order everything is there that the log holds: also half messages of transactions, and messages of topics that
    were deleted. What cannot be read is told on the error stream, and the next message follows.
    """
    selection = Selection(topic=topic, queue_id=queue_id, begin=from_offset, end=to_offset, key=key, tag=tag)
    chosen = choose_fields(fields, as_json=as_json)
    in_order = Order(order) if order else Order.LOG if topic is None else Order.QUEUE
    messages = dump(FILES, _layout(folder, sizes), in_order, selection)
    return show_messages(messages, chosen, BodyForm(body), limit=limit, as_json=as_json)


@store_commands.command()
@on_a_store
@yes_option
@click.option("--dry-run", is_flag=True, help="Say which files would be replaced, and stop.")
def rebuild(folder: Path, yes: bool, dry_run: bool, **sizes: Any) -> int:
    """Make consume queues and key index new, from the log alone.

    Log and tables are only read. The new files are made beside the old ones and then take their places, so it may be
    interrupted at any time and run again. Refused while a broker uses the store.

    \b
    Exit code: 0  done
               1  not confirmed, nothing was changed
               2  done, but parts of the log could not be read
               3  cannot be done
    """
    layout = _layout(folder, sizes)
    show_plan(layout, plan_rebuild(FILES, layout), dry_run=dry_run)
    if dry_run:
        return ExitCode.OK
    confirm("Replace these files?", yes=yes)
    return show_rebuild(Rebuild(FILES, SystemClock(), layout), SystemClock())

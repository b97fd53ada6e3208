"""`pocketmq store`: verify and dump the files of a store, and rebuild the derived ones."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import click
import msgspec
from rich import box
from rich.table import Table
from rich.text import Text

from pocketmq.cli.commands import (
    CommandGroup,
    ExitCode,
    choice_option,
    flag,
    number_option,
    options,
    text_option,
    yes_option,
)
from pocketmq.cli.output import FIELD_NAMES, choose_fields, confirm, late_bar, screen, show_json, show_messages
from pocketmq.clock import Clock, SystemClock
from pocketmq.files import DiskFiles
from pocketmq.model import DelayLevels
from pocketmq.model.human import count
from pocketmq.store.layout import KnownSizes, StoreLayout, find_layout
from pocketmq.store.tools.dump import Order, Selection, Skipped, dump
from pocketmq.store.tools.findings import Finding, Severity
from pocketmq.store.tools.message_fields import BodyForm
from pocketmq.store.tools.rebuild import Rebuild, RebuildPlan, RebuildReport, plan_rebuild
from pocketmq.store.tools.verify import Summary, Verification

MAX_LISTED: Final = 200
"""The most findings of each severity in a table; JSON has them all."""

_STYLES: Final = {Severity.NOTE: "cyan", Severity.REPAIRABLE: "yellow", Severity.DAMAGE: "bold red"}
_VERDICTS: Final = {Severity.NOTE: "sound", Severity.REPAIRABLE: "repairable", Severity.DAMAGE: "damaged"}
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
        """Run a verification, show its findings, and return the exit code."""
        with late_bar("reading the log") as bar:
            for event in verification.run():
                if isinstance(event, Finding):
                    self._add(event)
                else:
                    bar.update(event.done, event.total)
        summary = verification.summary
        if self._as_json:
            show_json([{"type": "summary", "verdict": _VERDICTS[summary.worst], **_summary_fields(summary)}])
        else:
            self._show_all(summary)
        return _EXIT_CODES[summary.worst]

    def _add(self, finding: Finding) -> None:
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
            console.print(Text(f"{unlisted} more findings; --json shows all"))
        console.print(Text(_scanned(summary)))
        console.print(Text(self._verdict(summary.worst), _STYLES[summary.worst] if summary.worst else "bold green"))

    def _verdict(self, worst: Severity) -> str:
        if worst is Severity.NOTE:
            notes = self._counts[Severity.NOTE]
            suffix = f" ({count(notes, 'note')})" if notes else ""
            return f"Sound: log, queues, index and tables agree{suffix}."
        if worst is Severity.REPAIRABLE:
            return (
                "Repairable: no message is lost, but derived files differ from the log. "
                f"`pocketmq store rebuild {self._folder}` rebuilds them."
            )
        return (
            "Damaged: the log or a table is corrupt. Copy the folder before you start a broker on it: "
            "the start may truncate the log at the first damage."
        )


def _where(finding: Finding) -> str:
    if finding.begin is None:
        return finding.path
    end = "" if finding.end is None else f" to {finding.end}"
    return f"{finding.path}\nbytes {finding.begin}{end}" if end else f"{finding.path}\nfrom byte {finding.begin}"


def _scanned(summary: Summary) -> str:
    parts = [
        f"{count(summary.log_files, 'log file')} (log offset {summary.log_start} to {summary.log_end})",
        f"{count(summary.messages, 'message')} of {count(summary.queues, 'queue')}",
        f"{count(summary.index_files, 'index file')} with {count(summary.index_entries, 'key')}",
        count(summary.tables, "table"),
    ]
    return "Verified " + ", ".join(parts) + "."


def _summary_fields(summary: Summary) -> dict[str, object]:
    fields = msgspec.structs.asdict(summary)
    return fields | {"worst": summary.worst.name.lower(), "exit_code": int(_EXIT_CODES[summary.worst])}


def show_plan(layout: StoreLayout, plan: RebuildPlan, *, dry_run: bool) -> None:
    console = screen()
    verb = "Would rebuild" if dry_run else "Will rebuild"
    queues = {file.path.parent for file in plan.queue_files}
    console.print(
        Text(
            f"{verb} {count(len(plan.queue_files), 'file')} of {count(len(queues), 'consume queue')} and "
            f"{count(len(plan.index_files), 'index file')} from {plan.log_bytes:,} bytes of log in {layout.folder}. "
            "Log and tables do not change."
        )
    )
    if dry_run:
        for path in [*(file.path for file in plan.queue_files), *plan.index_files]:
            console.print(Text(f"  {layout.name_of(path)}"))


def show_rebuild(rebuild: Rebuild, clock: Clock) -> ExitCode:
    skipped = 0
    with late_bar("reading the log") as bar:
        for event in rebuild.run():
            if isinstance(event, Skipped):
                skipped += 1
                click.echo(f"skipped: {event.text}", err=True)
            else:
                bar.update(event.done, event.total)
    screen().print(Text(_report_text(rebuild.report)))
    return ExitCode.DAMAGE if skipped else ExitCode.OK


def _report_text(report: RebuildReport) -> str:
    queues = f"{count(report.queues, 'consume queue')} with {report.queue_entries:,} entries"
    lines = [
        f"Rebuilt {queues} and {count(report.index_files, 'index file')} from {count(report.messages, 'message')}."
    ]
    if report.gaps:
        lines.append(f"{count(report.gaps, 'message')} missing in the log; their queue offsets stay empty.")
    if report.removed_files:
        lines.append(f"Removed {count(report.removed_files, 'queue file')} without messages in the log.")
    if report.deleted_topics:
        lines.append(f"Skipped deleted topics: {', '.join(report.deleted_topics)}.")
    if report.kept_queues:
        lines.append(f"Not rebuilt, since they contain batches: {', '.join(report.kept_queues)}.")
    return "\n".join(lines)


FILES = DiskFiles()


@click.group("store", cls=CommandGroup)
def store_commands() -> None:
    """Verify and dump the files of a store, and rebuild the derived ones.

    The store may be of PocketMQ or of Apache RocketMQ 4.9 and 5.x (its storePathRootDir).
    """


def _size_option(flag: str, text: str, key: str, default: str, least: int = 1) -> Callable[..., Any]:
    return number_option(flag, f"{text} ({key}).  [default: {default}]", least=least)


on_a_store: Final = options(
    click.argument("folder", metavar="DIR", type=click.Path(path_type=Path)),
    _size_option("--log-file-bytes", "Size of log files", "mappedFileSizeCommitLog", "as in the files"),
    _size_option(
        "--queue-file-entries", "Entries of a queue file", "mappedFileSizeConsumeQueue ÷ 20", "as in the files"
    ),
    _size_option("--index-slots", "Slots of an index file", "maxHashSlotNum", "as in the files"),
    _size_option("--index-entries", "Entries of an index file", "maxIndexNum", "as in the files", least=2),
    text_option(
        "--delay-levels",
        "The broker's messageDelayLevel, such as '1s 5s 10s', if it is not the default.",
        metavar="TEXT",
    ),
)
"""The folder, and the sizes of its files."""


def _layout(folder: Path, sizes: dict[str, Any]) -> StoreLayout:
    levels = sizes.pop("delay_levels")
    return find_layout(FILES, folder, KnownSizes(delay_levels=DelayLevels(levels) if levels else None, **sizes))


@store_commands.command()
@on_a_store
@flag("--no-index", "Skip the key index.")
@flag("--json", "as_json", "Print JSON, one object per line: each finding, then a summary.")
def verify(folder: Path, no_index: bool, as_json: bool, **sizes: Any) -> int:
    """Verify a store, and report damage with exact offsets. Changes nothing.

    The command reads the whole log and compares queues, index, checkpoint and tables with it. A broker may use the store
    meanwhile.

    \b
    Exit code: 0  sound
               1  repairable: derived files differ from the log; `store rebuild` rebuilds them
               2  the log or a table is damaged
               3  the store is not readable
    """
    verification = Verification(FILES, _layout(folder, sizes), with_index=not no_index)
    return VerifyScreen(SystemClock(), folder, as_json=as_json).show(verification)


@store_commands.command("dump")
@on_a_store
@text_option("--topic", "Only this topic, queue by queue.", metavar="NAME")
@number_option("--queue", "queue_id", "Only this queue.", least=0)
@choice_option(
    "--order", "In the order of the log, or queue by queue.  [default: queue with --topic, otherwise log]", of=Order
)
@number_option("--from-offset", "The first offset, of the log or the queue.", least=0, default=0)
@number_option("--to-offset", "The offset to stop at (exclusive), of the log or the queue.", least=0)
@number_option("--limit", "Print at most N messages.", least=0)
@text_option("--key", "--keys", "key", "Only messages with this key or unique key.", metavar="KEY")
@text_option("--tag", "Only messages with this tag.", metavar="TAG")
@choice_option(
    "--body", "The format of bodies; compressed ones are decompressed.", of=BodyForm, default=BodyForm.TEXT.value
)
@text_option("--fields", f"The fields to print: {', '.join(FIELD_NAMES)}.", metavar="NAME,…")
@flag("--json", "as_json", "Print JSON, one object per line.")
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
    """Print messages as a table or as JSON lines. Changes nothing.

    Log order includes everything in the log: half messages of transactions and messages of deleted topics too. Unreadable
    ranges are reported on stderr and skipped.
    """
    selection = Selection(topic=topic, queue_id=queue_id, begin=from_offset, end=to_offset, key=key, tag=tag)
    chosen = choose_fields(fields, as_json=as_json)
    in_order = Order(order) if order else Order.LOG if topic is None else Order.QUEUE
    messages = dump(FILES, _layout(folder, sizes), in_order, selection)
    return show_messages(messages, chosen, BodyForm(body), limit=limit, as_json=as_json)


@store_commands.command()
@on_a_store
@yes_option
@flag("--dry-run", "Show which files would be replaced, and exit.")
def rebuild(folder: Path, yes: bool, dry_run: bool, **sizes: Any) -> int:
    """Rebuild consume queues and key index from the log.

    The command only reads the log and the tables. It creates the new files beside the old ones and then replaces them, so
    you can interrupt it at any time and run it again. It fails while a broker uses the store.

    \b
    Exit code: 0  success
               1  not confirmed, nothing changed
               2  success, but parts of the log were not readable
               3  failed
    """
    layout = _layout(folder, sizes)
    show_plan(layout, plan_rebuild(FILES, layout), dry_run=dry_run)
    if dry_run:
        return ExitCode.OK
    confirm("Replace these files?", yes=yes)
    return show_rebuild(Rebuild(FILES, SystemClock(), layout), SystemClock())

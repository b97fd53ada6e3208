"""What `store verify` shows: findings, what was looked at, and one sentence that says it all."""

import sys
from pathlib import Path
from typing import Final

import msgspec
from rich import box
from rich.table import Table
from rich.text import Text

from pocketmq.cli.commands import ExitCode
from pocketmq.cli.screen import count, late_bar, screen
from pocketmq.clock import Clock
from pocketmq.store.checks.findings import Finding, Severity
from pocketmq.store.verify import Summary, Verification

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
            _write_line({"type": "summary", "verdict": _WORDS[summary.worst], **_summary_fields(summary)})
        else:
            self._show_all(summary)
        return _EXIT_CODES[summary.worst]

    def _take(self, finding: Finding) -> None:
        self._counts[finding.severity] += 1
        if self._as_json:
            _write_line(
                {"type": "finding", "severity": finding.severity.name.lower(), **msgspec.structs.asdict(finding)}
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


def _write_line(fields: dict[str, object]) -> None:
    sys.stdout.write(msgspec.json.encode(fields).decode() + "\n")

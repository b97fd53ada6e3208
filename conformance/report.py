"""The results of the checks for each version: as progress, as a table, and as a page of the documentation.

    Scenario ── its checks are the rows of the table ── run with each version: a Trial
    Trial.expect(check, flaws)      no flaw: pass; any: fail, with the first of them as the note
    Trial.differ(check, why)        different on purpose

If a trial raises an exception, its current check fails and the following checks are skipped.
"""

import re
import traceback
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

Say = Callable[[str], None]
"""Prints progress."""

MAX_FLAWS: Final = 3
"""The flaws of one check that its note lists."""

MAX_FLAW_LETTERS: Final = 240
"""Of each."""

LAST_HEADING: Final = "What differs, and why"
"""Not a table: text written by a person about all of them."""

_STYLES: Final = {"pass": "green", "fail": "bold red", "differs": "cyan", "skipped": "yellow"}


class Verdict(StrEnum):
    PASS = "pass"
    FAIL = "fail"
    DIFFERS = "differs"
    """On purpose; the note says why."""
    SKIPPED = "skipped"


class Outcome(NamedTuple):
    scenario: str
    check: str
    version: str
    verdict: Verdict
    note: str = ""


class Scenario(NamedTuple):
    """A run with one or more checks. `run` reports them in this order."""

    name: str
    checks: Sequence[str]
    run: "Callable[[Trial], None]"
    versions: Sequence[str] = ()
    """Those that it is for; none: all."""

    def is_for(self, version: str) -> bool:
        return not self.versions or version in self.versions


class Trial:
    """One scenario with one version: where it may put its files, and where it reports."""

    def __init__(self, scenario: Scenario, version: str, folder: Path, say: Say) -> None:
        self.version = version
        self.folder = folder
        self._scenario = scenario
        self._say = say
        self._outcomes: dict[str, Outcome] = {}

    def say(self, text: str) -> None:
        self._say(f"{self.version} {self._scenario.name}: {text}")

    def expect(self, check: str, flaws: Iterable[str], *, measured: str = "") -> None:
        """The check passes if there are no flaws. `measured` is added to its note."""
        assert check in self._scenario.checks, f"{check!r} is not a check of {self._scenario.name!r}"
        found = list(flaws)
        more = f" (and {len(found) - MAX_FLAWS} more)" if len(found) > MAX_FLAWS else ""
        verdict = Verdict.FAIL if found else Verdict.PASS
        notes = [*map(_shortened, found[:MAX_FLAWS]), *filter(None, [measured])]
        self._note(check, verdict, "; ".join(notes) + more)
        for flaw in found[MAX_FLAWS : 4 * MAX_FLAWS]:
            self.say(f"  {flaw}")

    def differ(self, check: str, why: str) -> None:
        self._note(check, Verdict.DIFFERS, why)

    def skip(self, check: str, why: str) -> None:
        self._note(check, Verdict.SKIPPED, why)

    def _note(self, check: str, verdict: Verdict, note: str) -> None:
        self._outcomes[check] = Outcome(self._scenario.name, check, self.version, verdict, note)
        self.say(f"{verdict.upper()}  {check}{f': {note}' if note else ''}")

    def run(self) -> list[Outcome]:
        """Run the scenario; one outcome for each of its checks."""
        try:
            self._scenario.run(self)
        except Exception as error:  # the other trials continue, and the table shows the error
            traceback.print_exc()
            self._fail_at(error)
        else:
            self._fail_at(AssertionError("the scenario ended before this check"))
        return [self._outcomes[check] for check in self._scenario.checks]

    def _fail_at(self, error: Exception) -> None:
        rest = [check for check in self._scenario.checks if check not in self._outcomes]
        if rest:
            self._note(rest[0], Verdict.FAIL, f"{type(error).__name__}: {error}")
        for check in rest[1:]:
            self.skip(check, f"not reached, as “{rest[0]}” failed")


def _shortened(flaw: str) -> str:
    return flaw if len(flaw) <= MAX_FLAW_LETTERS else f"{flaw[:MAX_FLAW_LETTERS]} …"


def skipped(scenario: Scenario, version: str, why: str) -> list[Outcome]:
    return [Outcome(scenario.name, check, version, Verdict.SKIPPED, why) for check in scenario.checks]


class Grid(msgspec.Struct):
    """Outcomes as a table: rows are checks, columns are versions; notes are numbered below it."""

    outcomes: list[Outcome]

    @property
    def versions(self) -> list[str]:
        return list(dict.fromkeys(outcome.version for outcome in self.outcomes))

    @property
    def rows(self) -> list[tuple[str, str]]:
        return list(dict.fromkeys((outcome.scenario, outcome.check) for outcome in self.outcomes))

    @property
    def notes(self) -> list[str]:
        return list(dict.fromkeys(outcome.note for outcome in self.outcomes if outcome.note))

    def cell(self, row: tuple[str, str], version: str) -> tuple[str, str]:
        """The verdict and a mark that leads to its note."""
        for outcome in self.outcomes:
            if (outcome.scenario, outcome.check, outcome.version) == (*row, version):
                return outcome.verdict, f" [{self.notes.index(outcome.note) + 1}]" if outcome.note else ""
        return "", ""

    def count(self, verdict: Verdict) -> int:
        return sum(outcome.verdict is verdict for outcome in self.outcomes)


def show(grid: Grid, title: str) -> None:
    """The table on the screen."""
    table = Table(title=title)
    table.add_column("scenario", no_wrap=True)
    table.add_column("check", overflow="fold")
    for version in grid.versions:
        table.add_column(version, no_wrap=True)
    last = ""
    for row in grid.rows:
        cells = [grid.cell(row, version) for version in grid.versions]
        texts = [Text(verdict + mark, _STYLES.get(verdict, "")) for verdict, mark in cells]
        table.add_row(row[0] if row[0] != last else "", row[1], *texts)
        last = row[0]
    console = Console(width=118)
    console.print(table)
    for number, note in enumerate(grid.notes, 1):
        console.print(Text(f"[{number}] {note}"))
    counts = ", ".join(f"{grid.count(verdict)} {verdict}" for verdict in Verdict)
    console.print(Text(f"{len(grid.outcomes)} cells: {counts}."))


def write_section(page: Path, heading: str, text: str) -> None:
    """Replace a section of a page, or put it at its end, before the last words; the rest of the page stays as it is."""
    section = f"## {heading}\n\n{text.strip()}\n"
    old = page.read_text("utf-8")
    pattern = re.compile(rf"^## {re.escape(heading)}\n.*?(?=^## |\Z)", re.MULTILINE | re.DOTALL)
    if pattern.search(old):
        new = pattern.sub(lambda found: section + ("\n" if found.end() < len(old) else ""), old)
    elif (at := old.find(f"## {LAST_HEADING}\n")) >= 0:
        new = f"{old[:at]}{section}\n{old[at:]}"
    else:
        new = f"{old.rstrip()}\n\n{section}"
    page.write_text(new, "utf-8")


def as_markdown(grid: Grid) -> str:
    """The table for the docs."""
    lines = [
        f"| scenario | check | {' | '.join(grid.versions)} |",
        f"| --- | --- |{' --- |' * len(grid.versions)}",
    ]
    last = ""
    for row in grid.rows:
        cells = ["".join(grid.cell(row, version)) for version in grid.versions]
        lines.append(f"| {row[0] if row[0] != last else ''} | {_as_text(row[1])} | {' | '.join(cells)} |")
        last = row[0]
    lines += ["", *(f"[{number}] {_as_text(note)}  " for number, note in enumerate(grid.notes, 1))]
    return "\n".join(lines)


def _as_text(text: str) -> str:
    """Command lines hold signs that mean something else in Markdown."""
    return text.replace("<", "&lt;").replace("*", "\\*")

"""docs/generated/compatibility.md, read back: a part may be run with one column alone, and the others stay as they were found, with their dates.

## Heading
Checked on 2026-11-15 (5.3.3), 2026-11-12 (4.9.7) by `make conformance`: …
| scenario | check | 5.3.3 | 4.9.7 |
| small files | Apache serves … | pass | fail [1] |
[1] why
"""

import re
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Final, NamedTuple

from conformance.report import Grid, Outcome, Verdict, as_markdown, write_section

_SECTION: Final = re.compile(r"^## (.+)\n((?:(?!^## ).*\n?)*)", re.MULTILINE)
_NOTE: Final = re.compile(r"^\[(\d+)\] (.*?) *$", re.MULTILINE)
_CELL: Final = re.compile(r"([a-z]+)(?: \[(\d+)\])?")
_DATED: Final = re.compile(r"(\d{4}-\d\d-\d\d) \((.+?)\)(?=, \d{4}-| by )")


class Section(NamedTuple):
    """A table of the page, and when each of its columns was found so."""

    outcomes: list[Outcome]
    dates: dict[str, str]


def read_page(page: Path) -> dict[str, Section]:
    """All tables, by their headings."""
    found = {heading: _read(body) for heading, body in _SECTION.findall(page.read_text("utf-8"))}
    return {heading: section for heading, section in found.items() if section.outcomes}


def write_part(page: Path, heading: str, columns: Sequence[str], outcomes: Sequence[Outcome]) -> None:
    """Put what was found into the page. Columns that were not run stay; those that the part has no more go.

    Nor does a column go in which nothing could be run here, when the page knows more.
    """
    old = read_page(page).get(heading, Section([], {}))
    seen = {outcome.version for outcome in outcomes if outcome.verdict is not Verdict.SKIPPED}
    known = {outcome.version for outcome in old.outcomes}
    outcomes = [outcome for outcome in outcomes if outcome.version in seen or outcome.version not in known]
    fresh = {outcome.version for outcome in outcomes}
    kept = [outcome for outcome in old.outcomes if outcome.version not in fresh]
    every = sorted(
        (*outcomes, *kept), key=lambda outcome: columns.index(outcome.version) if outcome.version in columns else -1
    )
    grid = Grid([outcome for outcome in every if outcome.version in columns])
    dates = {**old.dates, **dict.fromkeys(fresh, str(date.today()))}
    write_section(page, heading, _text(grid, dates))


def _text(grid: Grid, dates: dict[str, str]) -> str:
    dated = ", ".join(f"{dates.get(column, date.today())} ({column})" for column in grid.versions)
    counts = f"{grid.count(Verdict.PASS)} of {len(grid.outcomes)} checks pass"
    for verdict, words in (
        (Verdict.DIFFERS, "differ on purpose"),
        (Verdict.SKIPPED, "could not be run"),
        (Verdict.FAIL, "fail"),
    ):
        if count := grid.count(verdict):
            counts += f", {count} {words}"
    return f"Checked on {dated} by `make conformance`: {counts}.\n\n{as_markdown(grid)}"


def _read(body: str) -> Section:
    rows = [
        [cell.strip() for cell in line.strip("|").split(" | ")] for line in body.splitlines() if line.startswith("|")
    ]
    if not rows or rows[0][:2] != ["scenario", "check"]:
        return Section([], {})
    notes = dict(_NOTE.findall(body))
    outcomes, scenario = [], ""
    for row in rows[2:]:
        scenario = row[0] or scenario
        for column, cell in zip(rows[0][2:], row[2:], strict=True):
            if found := _CELL.fullmatch(cell):
                note = _plain(notes.get(found[2] or "", ""))
                outcomes.append(Outcome(scenario, _plain(row[1]), column, Verdict(found[1]), note))
    return Section(outcomes, {column: day for day, column in _DATED.findall(body)})


def _plain(text: str) -> str:
    """What `report.as_markdown` did to it, undone."""
    return text.replace("&lt;", "<").replace("\\*", "*")

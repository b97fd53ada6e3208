"""The table of features, at the top of docs/generated/compatibility.md: made of the tables below it, as they stand on the page.

A part may be run alone, so what others found is read back from the page. `features.FEATURES` says which checks belong to a feature.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from conformance.features import COLUMNS, FEATURES, Column, Feature, Where
from conformance.page import read_page
from conformance.report import Outcome, Verdict, write_section

HEADING: Final = "Features"
NOTHING: Final = "–"

Sections = Mapping[str, Sequence[Outcome]]
"""Tables of the page, by their headings."""
_ORDER: Final = (Verdict.FAIL, Verdict.DIFFERS, Verdict.SKIPPED, Verdict.PASS)
"""The first of these that a check of a feature has is the feature's."""


def write_summary(page: Path) -> None:
    sections = {heading: section.outcomes for heading, section in read_page(page).items()}
    if sections:
        write_section(page, HEADING, _text(sections))


def _text(sections: Sections) -> str:
    everything = [outcome for outcomes in sections.values() for outcome in outcomes]
    notes: list[str] = []
    rows = [[feature.name, *(_cell(feature, column, sections, notes) for column in COLUMNS)] for feature in FEATURES]
    return "\n".join(
        [
            _counted("All tables of this page together", everything) + " The reasons are below each table.",
            "",
            "| table | pass | differ on purpose | could not be run | fail |",
            "| --- | --- | --- | --- | --- |",
            *(f"| {heading} | {' | '.join(map(str, _counts(outcomes)))} |" for heading, outcomes in sections.items()),
            "",
            f"A feature has the result of its worst check. {NOTHING}: no check exists, and the note has the reason.",
            "",
            f"| feature | {' | '.join(column.title for column in COLUMNS)} |",
            f"| --- |{' --- |' * len(COLUMNS)}",
            *(f"| {' | '.join(row)} |" for row in rows),
            "",
            *(f"[{number}] {note}  " for number, note in enumerate(notes, 1)),
        ]
    )


def _counts(outcomes: Sequence[Outcome]) -> list[int]:
    order = (Verdict.PASS, Verdict.DIFFERS, Verdict.SKIPPED, Verdict.FAIL)
    return [sum(outcome.verdict is verdict for outcome in outcomes) for verdict in order]


def _counted(what: str, outcomes: Sequence[Outcome]) -> str:
    passed, differ, skipped, failed = _counts(outcomes)
    return (
        f"{what}: {passed} of {len(outcomes)} checks pass ({100 * passed / len(outcomes):.1f} %), {differ} differ on "
        f"purpose, {skipped} could not be run, {failed} fail."
    )


def _cell(feature: Feature, column: Column, sections: Sections, notes: list[str]) -> str:
    place = feature.checks.get(column.title) or feature.checks.get(column.kind)
    if isinstance(place, str):
        place = Where(column.section, column.name, place)
    found = [] if place is None else _found(sections.get(place.section, ()), place)
    verdict = next((one for one in _ORDER if any(outcome.verdict is one for outcome in found)), None)
    if verdict is None:
        return _marked(NOTHING, feature.why, notes)
    note = "; ".join(dict.fromkeys(outcome.note for outcome in found if outcome.verdict is verdict and outcome.note))
    return _marked(verdict, note if verdict is not Verdict.PASS else "", notes)


def _found(outcomes: Iterable[Outcome], place: Where) -> list[Outcome]:
    return [
        outcome
        for outcome in outcomes
        if outcome.version == place.name and re.search(place.pattern, f"{outcome.scenario}: {outcome.check}")
    ]


def _marked(text: str, note: str, notes: list[str]) -> str:
    """The text, and a mark that leads to its note."""
    if not note:
        return text
    if note not in notes:
        notes.append(note)
    return f"{text} [{notes.index(note) + 1}]"

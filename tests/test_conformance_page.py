"""The page of the conformance suite: columns that were not run are kept, and the summary is computed from the page."""

import re
from datetime import date
from pathlib import Path

import pytest
from conformance.features import COLUMNS, FEATURES, Where
from conformance.page import read_page, write_part
from conformance.parts import PARTS, Part
from conformance.report import LAST_HEADING, Outcome, Scenario, Trial, Verdict
from conformance.running import Job, Timeline, run_all
from conformance.summary import write_summary

NEW, OLD = "5.3.3", "4.9.7"


@pytest.fixture
def page(tmp_path: Path) -> Path:
    made = tmp_path / "page.md"
    made.write_text(f"# Compatibility\n\n## Features\n\nnothing yet\n\n## {LAST_HEADING}\n\n- words\n", "utf-8")
    return made


def outcome(check: str, column: str, verdict: Verdict = Verdict.PASS, note: str = "") -> Outcome:
    return Outcome("small files", check, column, verdict, note)


def test_a_written_page_is_parsed_unchanged(page: Path) -> None:
    found = [
        outcome("reads <all>", NEW),
        outcome("reads <all>", OLD, Verdict.DIFFERS, "a * is a sign"),
        outcome("writes", NEW, Verdict.FAIL, "a byte differs"),
    ]

    write_part(page, "Store", (NEW, OLD), found)

    assert sorted(read_page(page)["Store"].outcomes) == sorted(found)
    assert read_page(page)["Store"].dates == {NEW: str(date.today()), OLD: str(date.today())}


def test_a_column_that_was_not_run_stays_with_its_date(page: Path) -> None:
    write_part(page, "Store", (NEW, OLD), [outcome("reads", NEW), outcome("reads", OLD)])
    page.write_text(page.read_text("utf-8").replace(f"{date.today()} ({OLD})", f"2020-02-03 ({OLD})"), "utf-8")

    write_part(page, "Store", (NEW, OLD), [outcome("reads", NEW, Verdict.FAIL, "worse now")])

    section = read_page(page)["Store"]
    assert {one.version: one.verdict for one in section.outcomes} == {NEW: Verdict.FAIL, OLD: Verdict.PASS}
    assert section.dates[OLD] == "2020-02-03"


def test_a_column_that_cannot_run_here_keeps_its_known_results(page: Path) -> None:
    write_part(page, "Store", (NEW, OLD), [outcome("reads", NEW)])

    skipped = [outcome("reads", column, Verdict.SKIPPED, "no Java") for column in (NEW, OLD)]
    write_part(page, "Store", (NEW, OLD), skipped)

    found = {one.version: (one.verdict, one.note) for one in read_page(page)["Store"].outcomes}
    assert found == {NEW: (Verdict.PASS, ""), OLD: (Verdict.SKIPPED, "no Java")}


def test_a_new_table_precedes_the_last_paragraph(page: Path) -> None:
    write_part(page, "Store", (NEW,), [outcome("reads", NEW)])

    assert re.findall("^## (.+)$", page.read_text("utf-8"), re.MULTILINE) == ["Features", "Store", LAST_HEADING]


def test_the_summary_shows_the_worst_check_of_a_feature_with_its_reason(page: Path) -> None:
    name = COLUMNS[0].name
    found = [
        Outcome("JSON headers", "a push consumer: pulls", name, Verdict.PASS),
        Outcome("binary headers", "a push consumer: pulls", name, Verdict.DIFFERS, "on purpose"),
    ]
    write_part(page, COLUMNS[0].section, PARTS["clients"].columns, found)

    write_summary(page)

    text = page.read_text("utf-8")
    assert "1 of 2 checks pass (50.0 %), 1 differ on purpose" in text
    row = next(line for line in text.splitlines() if line.startswith("| push consumption"))
    assert re.match(r"\| push consumption [^|]*\| differs \[\d+\] \|", row)
    assert re.search(r"^\[\d+\] on purpose", text, re.MULTILINE)


def test_every_pattern_of_a_feature_matches_a_check() -> None:
    by_heading = {part.heading: part for part in PARTS.values()}
    for feature in FEATURES:
        assert feature.why or feature.checks, feature.name
        for key, place in feature.checks.items():
            columns = [one for one in COLUMNS if key in (one.kind, one.title)]
            assert columns, f"{feature.name}: there is no column {key!r}"
            found = False
            for column in columns:
                where = place if isinstance(place, Where) else Where(column.section, column.name, place)
                checks = _checks(by_heading[where.section], where.name)
                found = found or any(re.search(where.pattern, check) for check in checks)
            assert found or key == "java", f"{feature.name}: {place!r} is no check of {key}"


def _checks(part: Part, column: str) -> list[str]:
    return [f"{one.name}: {check}" for one in part.scenarios if one.is_for(column) for check in one.checks]


def test_jobs_of_a_part_run_in_order_and_an_impossible_one_has_a_reason(tmp_path: Path) -> None:
    def run(trial: Trial) -> None:
        trial.expect("works", [])

    scenarios = [Scenario(name, ["works"], run) for name in ("first", "second")]
    part = Part("Some", "some", scenarios, (NEW, OLD), lambda column: "" if column == NEW else "not here")
    jobs = [Job("some", one, column, part, tmp_path) for column in part.columns for one in scenarios]

    results = run_all(jobs, 2, Timeline())["some"]

    assert [(one.version, one.scenario) for one in results] == [
        (NEW, "first"),
        (NEW, "second"),
        (OLD, "first"),
        (OLD, "second"),
    ]
    assert [one.verdict for one in results] == [Verdict.PASS, Verdict.PASS, Verdict.SKIPPED, Verdict.SKIPPED]
    assert {one.note for one in results} == {"", "not here"}

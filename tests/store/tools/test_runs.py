from pathlib import Path

import pytest

from pocketmq.store.tools import findings as runs
from pocketmq.store.tools.findings import Kind, RunBudget, Runs

FILE = Path("/a")


def added(*numbers: int, kind: Kind = Kind.QUEUE_ENTRY_WRONG) -> Runs:
    found = Runs(RunBudget())
    for number in numbers:
        found.add(kind, FILE, number * 20, 20, number, f"detail {number}")
    return found


def test_adjacent_findings_are_one_run_with_the_first_detail() -> None:
    [first, second] = added(3, 4, 5, 7)

    assert (first.begin, first.end, first.count, first.detail) == (60, 120, 3, "detail 3")
    assert first.named("entry", "entries") == "entries 3 to 5"
    assert second.named("entry", "entries") == "entry 7"


def test_another_kind_or_file_starts_another_run() -> None:
    found = added(3)
    found.add(Kind.QUEUE_ENTRY_STALE, FILE, 80, 20, 4, "")
    found.add(Kind.QUEUE_ENTRY_STALE, Path("/b"), 100, 20, 5, "")

    assert len(found) == 3


def test_runs_above_the_limit_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "MAX_RUNS", 1)

    found = added(1, 3, 5, 6)

    assert len(found) == 1
    assert found.unlisted == 3


def test_clearing_releases_the_positions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "MAX_RUNS", 1)
    found = added(1, 3)

    found.clear()
    found.add(Kind.QUEUE_ENTRY_WRONG, FILE, 0, 20, 0, "")

    assert (len(found), found.unlisted) == (1, 0)

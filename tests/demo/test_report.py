"""The result of a demo, as text and as data."""

from pathlib import Path

from rich.console import Console

from pocketmq.demo.day import Report
from pocketmq.demo.live import Window
from pocketmq.demo.reconciliation import Check


def report(*checks: Check) -> Report:
    return Report(
        checks=checks,
        reasons={"customer is missing": 2},
        windows=(Window("Oslo", 0, 1, 500),),
        folder=Path("d"),
        lake=Path("d/lake"),
        plot=Path("d/revenue.svg"),
        took_ms=65_400,
        seed=1,
    )


def words(shown: Report) -> str:
    console = Console(width=100)
    with console.capture() as captured:
        console.print(shown.render())
    return captured.get()


def test_a_good_report_shows_the_result_and_its_files() -> None:
    said = words(report(Check("sent", 1, 1)))

    assert "Every message is accounted for. Duration: 65 s." in said
    assert "customer is missing: 2" in said
    assert "d/lake" in said
    assert "d/revenue.svg" in said


def test_a_bad_report_shows_what_is_missing() -> None:
    said = words(report(Check("sent", 2, 1)))

    assert "WRONG" in said
    assert "Messages are missing or repeated" in said


def test_the_json_result_shows_whether_all_counts_match() -> None:
    assert report(Check("sent", 1, 1)).as_data()["holds"] is True
    assert report(Check("sent", 1, 2)).as_data() == {
        "holds": False,
        "took_ms": 65_400,
        "seed": 1,
        "checks": [{"what": "sent", "expected": 1, "found": 2, "holds": False}],
        "dead_reasons": {"customer is missing": 2},
        "lake": "d/lake",
        "plot": "d/revenue.svg",
    }


def test_the_next_steps_fit_on_a_terminal() -> None:
    assert all(len(line) <= 80 for line in report().next_steps().splitlines())

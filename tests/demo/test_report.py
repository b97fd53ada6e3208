"""What a demo came to, in words and as data."""

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


def test_a_report_says_that_all_is_well_and_where_to_look() -> None:
    said = words(report(Check("sent", 1, 1)))

    assert "Every message is accounted for. Duration: 65 s." in said
    assert "customer is missing: 2" in said
    assert "d/lake" in said
    assert "d/revenue.svg" in said


def test_a_report_says_that_something_is_missing() -> None:
    said = words(report(Check("sent", 2, 1)))

    assert "WRONG" in said
    assert "Messages are missing or repeated" in said


def test_as_data_it_tells_whether_it_holds() -> None:
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


def test_what_to_try_next_fits_on_a_terminal() -> None:
    assert all(len(line) <= 80 for line in report().next_steps().splitlines())

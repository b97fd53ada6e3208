"""What is seen while the shop is open."""

import io

from rich.console import Console

from pocketmq.demo.live import LINE_S, Line, LiveScreen, Rate, View, table, words
from pocketmq.testing import FakeClock

LINES = [Line("till", 4_000, 9_000, 250.4), Line("Spark: lake", 3_000, None, None, 1_000, "batch 7")]


def test_a_rate_is_that_of_the_last_seconds() -> None:
    rate = Rate()

    assert rate.at(0.0, 0) == 0.0
    assert rate.at(1.0, 100) == 100.0
    assert rate.at(10.0, 100) == 0.0


def test_progress_is_one_line_of_text() -> None:
    assert [words(line) for line in LINES] == ["till 4,000 of 9,000", "Spark: lake 3,000, 1,000 behind"]


def test_the_table_has_a_row_for_each_query() -> None:
    console = Console(width=100)
    with console.capture() as shown:
        console.print(table(LINES))

    rows = [line.split() for line in shown.get().splitlines()]
    assert rows == [
        ["who", "done", "of", "per", "s", "behind"],
        ["till", "4,000", "9,000", "250"],
        ["Spark:", "lake", "3,000", "1,000", "batch", "7"],
    ]


def test_without_a_terminal_progress_lines_appear_at_intervals() -> None:
    clock, said = FakeClock(), io.StringIO()
    with LiveScreen(clock, Console(file=said, width=200)) as screen:
        screen.show(lambda: View("open", 0.4, None, LINES))
        screen.show(lambda: View("open", 0.5, None, LINES))
        clock.advance_ms(round(LINE_S * 1000))
        screen.show(lambda: View("open", 0.6, 12.0, LINES))

    assert [line.partition(":")[0] for line in said.getvalue().splitlines()] == ["open, 40%", "open, 60%"]


def test_a_terminal_shows_a_table_with_the_remaining_time() -> None:
    said = io.StringIO()
    with LiveScreen(FakeClock(), Console(file=said, width=100, force_terminal=True)) as screen:
        screen.print("a sentence")
        screen.show(lambda: View("open", 0.6, 12.0, LINES))

    assert "a sentence" in said.getvalue()
    assert "about 12 s left" in said.getvalue()


def test_a_quiet_display_prints_nothing() -> None:
    said = io.StringIO()
    with LiveScreen(FakeClock(), Console(file=said), is_quiet=True) as screen:
        screen.print("a sentence")
        screen.show(lambda: View("open", 0.6, 12.0, LINES))

    assert said.getvalue() == ""

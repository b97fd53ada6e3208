"""Revenue as bars and as blocks."""

from pocketmq.demo.plot import BLOCKS, Window, by_hour, draw, sparkline

HOUR_MS = 3_600_000
WINDOWS = [
    Window("Riga", HOUR_MS, 2, 400),
    Window("Oslo", HOUR_MS, 1, 800),
    Window("Oslo", 0, 1, 100),
]


def test_hours_are_in_order_and_hold_each_city_once() -> None:
    assert by_hour(WINDOWS) == {0: {"Oslo": 100}, HOUR_MS: {"Riga": 400, "Oslo": 800}}
    assert list(by_hour(WINDOWS)) == [0, HOUR_MS]


def test_a_line_of_blocks_for_each_city_with_its_sum() -> None:
    lines = sparkline(WINDOWS).plain.splitlines()

    assert [line.split() for line in lines] == [["Oslo", "▁█", "9.00"], ["Riga", "▄", "4.00"]]
    assert lines[1].startswith(f"Riga    {BLOCKS[0]}▄")


def test_a_picture_is_drawn_also_of_an_empty_day() -> None:
    assert draw(WINDOWS, "a day").startswith(b"\x89PNG")
    assert draw([], "no day").startswith(b"\x89PNG")
    assert sparkline([]).plain == ""

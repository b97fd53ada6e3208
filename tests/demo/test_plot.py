"""Revenue as bars and as blocks."""

from xml.etree import ElementTree as ET

from pocketmq.demo.live import BLOCKS, COLOURS, HEIGHT, MARGIN, Window, by_hour, chart, sparkline

HOUR_MS = 3_600_000
SVG = "{http://www.w3.org/2000/svg}"
WINDOWS = [
    Window("Riga", HOUR_MS, 2, 400),
    Window("Oslo", HOUR_MS, 1, 800),
    Window("Oslo", 0, 1, 100),
]


def test_hours_are_in_order_and_have_each_city_once() -> None:
    assert by_hour(WINDOWS) == {0: {"Oslo": 100}, HOUR_MS: {"Riga": 400, "Oslo": 800}}
    assert list(by_hour(WINDOWS)) == [0, HOUR_MS]


def test_a_line_of_blocks_for_each_city_with_its_sum() -> None:
    lines = sparkline(WINDOWS).plain.splitlines()

    assert [line.split() for line in lines] == [["Oslo", "▁█", "9.00"], ["Riga", "▄", "4.00"]]
    assert lines[1].startswith(f"Riga    {BLOCKS[0]}▄")


def test_the_bars_of_an_hour_are_stacked() -> None:
    drawn = ET.fromstring(chart(WINDOWS, "a day"))
    bars = [bar for bar in drawn.iter(f"{SVG}rect") if bar.get("fill") in COLOURS[:2] and bar.get("width") != "12"]
    tops = [(bar.get("fill"), int(bar.get("y", 0)), int(bar.get("height", 0))) for bar in bars]

    floor = HEIGHT - MARGIN
    whole = floor - MARGIN
    first, second = COLOURS[:2]
    assert tops == [
        (first, floor - whole // 12, whole // 12),
        (second, floor - whole // 12, 0),
        (first, floor - whole * 8 // 12, whole * 8 // 12),
        (second, MARGIN, whole - whole * 8 // 12),
    ]


def test_the_chart_names_hours_cities_and_amounts() -> None:
    drawn = ET.fromstring(chart(WINDOWS, "a day & a <night>"))

    assert [text.text for text in drawn.iter(f"{SVG}text")] == [
        *("a day & a <night>", "0", "3", "6", "9", "12", "00", "Oslo", "Riga")
    ]


def test_an_empty_day_is_drawn_too() -> None:
    assert ET.fromstring(chart([], "no day")).tag == f"{SVG}svg"
    assert sparkline([]).plain == ""

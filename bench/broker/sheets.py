"""A table of the report: shown on the terminal, or as Markdown for the documents."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from rich.table import Table
from rich.text import Text

MET = "met"
MISSED = "missed"


class Sheet(NamedTuple):
    """Cells are texts already. The first column is what the row is about; numbers are in the others."""

    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str] = ()


def as_table(sheet: Sheet) -> Table:
    table = Table(title=sheet.title, caption="\n".join(sheet.notes) or None, caption_justify="left")
    for number, heading in enumerate(sheet.headings):
        table.add_column(Text(heading), justify="right" if number else "left", no_wrap=number == 0)
    for row in sheet.rows:
        table.add_row(*(_coloured(cell) for cell in row))
    return table


def as_markdown(sheet: Sheet) -> str:
    lines = [f"## {sheet.title}", "", _line(sheet.headings), _line(["---"] + ["---:"] * (len(sheet.headings) - 1))]
    lines += [_line(_emphasised(cell) for cell in row) for row in sheet.rows]
    if sheet.notes:
        lines += ["", *(f"- {note}" for note in sheet.notes)]
    return "\n".join(lines)


def verdict(is_met: bool) -> str:
    return MET if is_met else MISSED


def _coloured(cell: str) -> Text:
    text = Text(cell)
    text.highlight_words([MET], "green")
    text.highlight_words([MISSED], "red")
    return text


def _emphasised(cell: str) -> str:
    return cell.replace(MISSED, f"**{MISSED}**").replace("|", "\\|")


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"

"""What commands show that ask a cluster: rows as a table, or as JSON lines. In JSON, what nobody knows is null."""

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import click
import msgspec
from rich.table import Table
from rich.text import Text

from pocketmq.cli.dump_screen import cell
from pocketmq.cli.screen import screen
from pocketmq.cli.words import UNKNOWN, number, offset, share, span

Row = Mapping[str, Any]

json_option = click.option("--json", "as_json", is_flag=True, help="JSON, one object per line, instead of a table.")


def known(value: Any) -> str:
    """A value in a table."""
    return UNKNOWN if value is None else cell(value)


class Column(NamedTuple):
    """A field of the rows, and the words for it."""

    field: str
    header: str = ""
    told: Callable[[Any], str] = known

    @property
    def is_number(self) -> bool:
        return self.told in (number, offset, span, share)


def show_rows(rows: Iterable[Row], columns: Sequence[Column], *, as_json: bool, empty: str) -> None:
    """All fields of the rows as JSON, or these columns of them; `empty` is told when there is none."""
    if as_json:
        show_json(rows)
        return
    kept = list(rows)
    if not kept:
        click.echo(empty, err=True)
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(
            column.header or column.field.replace("_", " "),
            justify="right" if column.is_number else "left",
            no_wrap=column.is_number,
            overflow="fold",
        )
    for row in kept:
        table.add_row(*(Text(column.told(row.get(column.field))) for column in columns))
    screen().print(table)


def show_json(rows: Iterable[Row]) -> None:
    for row in rows:
        sys.stdout.write(msgspec.json.encode(row).decode() + "\n")
    sys.stdout.flush()


def show_facts(facts: Mapping[str, str]) -> None:
    """Names and values, one below the other."""
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in facts.items():
        table.add_row(Text(name), Text(cell(value)))
    screen().print(table)


def tell(text: str) -> None:
    """A sentence, where results go."""
    screen().print(Text(text))

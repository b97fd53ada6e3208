"""What `store dump` shows: messages as rows of a table, or as JSON lines."""

import difflib
import sys
from collections.abc import Iterator, Mapping
from typing import Any, Final

import click
import msgspec
from rich.table import Table
from rich.text import Text

from pocketmq.cli.commands import ExitCode
from pocketmq.cli.screen import screen
from pocketmq.errors import InvalidSetting
from pocketmq.model.message import StoredMessage
from pocketmq.store.dump import Skipped
from pocketmq.store.message_fields import BodyForm, fields_of

FIELD_NAMES: Final = (
    "log_offset",
    "topic",
    "queue",
    "queue_offset",
    "stored",
    "store_ms",
    "store_host",
    "born",
    "born_ms",
    "born_host",
    "tags",
    "keys",
    "message_id",
    "offset_id",
    "size",
    "reconsume_times",
    "transaction",
    "prepared_offset",
    "flag",
    "sys_flag",
    "body_crc",
    "properties",
    "body",
)
"""All fields of a message, as the command line and JSON name them."""

_TABLE_FIELDS: Final = ("log_offset", "topic", "queue", "queue_offset", "stored", "tags", "keys", "size", "body")
_NUMBERS: Final = frozenset(
    [
        "log_offset",
        "queue",
        "queue_offset",
        "store_ms",
        "born_ms",
        "size",
        "reconsume_times",
        "prepared_offset",
        "flag",
        "sys_flag",
        "body_crc",
    ]
)
MAX_CELL_CHARS: Final = 200
"""Of longer values a table shows the beginning; JSON lines have them whole."""
CELL_BODY_BYTES: Final = 4 * MAX_CELL_CHARS
"""What is decompressed of a body for a table."""
_ROWS: Final = 50
"""Rows that make a table; after them a new one begins, so that a long dump needs no memory."""


def choose_fields(text: str | None, *, as_json: bool) -> tuple[str, ...]:
    """The fields that were asked for; InvalidSetting names the nearest one for a name that is unknown."""
    if text is None:
        return FIELD_NAMES if as_json else _TABLE_FIELDS
    chosen = tuple(name.strip() for name in text.split(",") if name.strip())
    for name in chosen:
        if name not in FIELD_NAMES:
            near = difflib.get_close_matches(name, FIELD_NAMES, n=1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(FIELD_NAMES)}"
            raise InvalidSetting(f"messages have no field {name!r}; {hint}")
    if not chosen:
        raise InvalidSetting("--fields names no field")
    return chosen


def show_messages(
    messages: Iterator[StoredMessage | Skipped],
    fields: tuple[str, ...],
    body: BodyForm,
    *,
    limit: int | None,
    as_json: bool,
) -> ExitCode:
    """Show up to `limit` messages; the exit code says whether all could be read."""
    if "body" not in fields:
        body = BodyForm.NONE
    show = _JsonLines(fields, body) if as_json else _Rows(fields, body)
    shown = skipped = 0
    for found in messages:
        if isinstance(found, Skipped):
            skipped += 1
            click.echo(f"skipped: {found.text}", err=True)
            continue
        if limit is not None and shown >= limit:
            break
        show.add(found)
        shown += 1
    show.close()
    return ExitCode.DAMAGE if skipped else ExitCode.OK


class _JsonLines:
    def __init__(self, fields: tuple[str, ...], body: BodyForm) -> None:
        self._fields = {*fields, "body_error"} if "body" in fields else set(fields)
        self._body = body

    def add(self, message: StoredMessage) -> None:
        fields = {name: value for name, value in fields_of(message, self._body).items() if name in self._fields}
        sys.stdout.write(msgspec.json.encode(fields).decode() + "\n")

    def close(self) -> None:
        sys.stdout.flush()


class _Rows:
    def __init__(self, fields: tuple[str, ...], body: BodyForm) -> None:
        self._fields = fields if body is not BodyForm.NONE else tuple(name for name in fields if name != "body")
        self._body = body
        self._console = screen()
        self._rows: list[list[str]] = []

    def add(self, message: StoredMessage) -> None:
        fields = fields_of(message, self._body, CELL_BODY_BYTES)
        fields["body"] = body_cell(fields)
        self._rows.append([cell(fields.get(name)) if name != "body" else fields["body"] for name in self._fields])
        if len(self._rows) >= _ROWS:
            self.close()

    def close(self) -> None:
        if not self._rows:
            return
        table = Table(box=None, pad_edge=False, header_style="bold")
        for name in self._fields:
            is_number = name in _NUMBERS
            justify: Any = "right" if is_number else "left"
            table.add_column(name.replace("_", " "), justify=justify, no_wrap=is_number, overflow="fold")
        for row in self._rows:
            table.add_row(*(Text(cell) for cell in row))
        self._console.print(table)
        self._rows.clear()


def body_cell(fields: Mapping[str, Any]) -> str:
    """The body of a message in a table, of the fields that `fields_of` made with CELL_BODY_BYTES."""
    if fields.get("body_error") and fields.get("body") is None:
        return cell(f"({fields['body_error']})")
    body = fields.get("body")
    if "body_cut" not in fields:
        return cell(body)
    return cell(str(body)[:MAX_CELL_CHARS]) + f"… ({fields['body_cut']})"


def cell(value: Any) -> str:
    """A value in a table: short, on one line, and harmless for a terminal."""
    if value is None:
        return ""
    if isinstance(value, str):
        text = value
    elif isinstance(value, list) and all(isinstance(item, str) for item in value):
        text = " ".join(value)
    else:
        text = msgspec.json.encode(value).decode()
    short = text if len(text) <= MAX_CELL_CHARS else f"{text[:MAX_CELL_CHARS]}… ({len(text):,} characters)"
    return one_line(short)


def one_line(text: str) -> str:
    """All of a text, on one line, and harmless for a terminal."""
    return "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in text)

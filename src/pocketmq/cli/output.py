"""Output of commands: tables, JSON lines and progress bars.

Results go to stdout, progress to stderr. An unknown value is `unknown` in a table and null in JSON.

A command that changes something shows a plan, asks for confirmation, makes the change, and shows the result:

    --dry-run   shows the plan and stops
    --yes       does not ask
    --json      shows one object per row of the plan, with `is_done`
"""

import difflib
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from threading import Timer
from typing import Any, Final, NamedTuple

import click
import msgspec
from click.exceptions import Exit
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, TaskID, TextColumn, TimeRemainingColumn
from rich.progress import Progress as ProgressBar
from rich.table import Table
from rich.text import Text

from pocketmq.cli.commands import ExitCode, choice_option, flag, options, yes_option
from pocketmq.clock import Clock, SystemClock
from pocketmq.errors import InvalidSetting
from pocketmq.model import StoredMessage
from pocketmq.model.human import UNKNOWN, duration, number, offset, percent
from pocketmq.store.tools.dump import Skipped
from pocketmq.store.tools.message_fields import BodyForm, fields_of

PATIENCE_S = 2.0
"""A command that takes longer shows its progress."""
FILE_COLUMNS = 200
"""The width of a table in a file or a pipe, which have no width of their own."""


def screen() -> Console:
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=FILE_COLUMNS, soft_wrap=True)


class LateBar:
    """A progress bar that appears after PATIENCE_S. On stderr, and only on a terminal."""

    def __init__(self, clock: Clock, label: str, *, in_bytes: bool = True) -> None:
        self._clock = clock
        self._in_bytes = in_bytes
        self._label = label
        self._show_at = clock.monotonic() + PATIENCE_S
        self._console = Console(stderr=True)
        self._bar: ProgressBar | None = None
        self._task = TaskID(0)

    def update(self, done: int, total: int) -> None:
        if self._bar is None and self._console.is_terminal and self._clock.monotonic() >= self._show_at:
            self._bar = ProgressBar(
                TextColumn("{task.description}"),
                BarColumn(),
                DownloadColumn(binary_units=True) if self._in_bytes else MofNCompleteColumn(),
                TimeRemainingColumn(),
                console=self._console,
                transient=True,
            )
            self._bar.start()
            self._task = self._bar.add_task(self._label, total=total)
        if self._bar is not None:
            self._bar.update(self._task, completed=done, total=total)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


@contextmanager
def late_bar(label: str, *, in_bytes: bool = True, clock: Clock | None = None) -> Iterator[LateBar]:
    bar = LateBar(clock or SystemClock(), label, in_bytes=in_bytes)
    try:
        yield bar
    finally:
        bar.close()


@contextmanager
def late_line(text: str, patience_s: float = PATIENCE_S) -> Iterator[None]:
    """A line that names what the command waits for, shown after `patience_s`. On stderr, and only on a terminal."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield
        return
    status = console.status(Text(f"{text} …"))
    timer = Timer(patience_s, status.start)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        status.stop()


FIELD_NAMES: Final = (
    *("log_offset", "topic", "queue", "queue_offset", "stored", "store_ms", "store_host", "born"),
    *("born_ms", "born_host", "tags", "keys", "message_id", "offset_id", "size", "reconsume_times"),
    *("transaction", "prepared_offset", "flag", "sys_flag", "body_crc", "properties", "body"),
)
"""All fields of a message, by their names in options and JSON."""

_TABLE_FIELDS: Final = ("log_offset", "topic", "queue", "queue_offset", "stored", "tags", "keys", "size", "body")
MAX_CELL_CHARS: Final = 200
"""A table shows the beginning of longer values. JSON has them whole."""
CELL_BODY_BYTES: Final = 4 * MAX_CELL_CHARS
"""The part of a body that is decompressed for a table."""
_ROWS: Final = 50
"""After so many rows a new table begins, so that a long dump needs little memory."""


def choose_fields(text: str | None, *, as_json: bool) -> tuple[str, ...]:
    """The fields of --fields. InvalidSetting suggests the nearest name for an unknown one."""
    if text is None:
        return FIELD_NAMES if as_json else _TABLE_FIELDS
    chosen = tuple(name.strip() for name in text.split(",") if name.strip())
    for name in chosen:
        if name not in FIELD_NAMES:
            near = difflib.get_close_matches(name, FIELD_NAMES, n=1)
            hint = f"did you mean {near[0]}?" if near else f"the fields are {', '.join(FIELD_NAMES)}"
            raise InvalidSetting(f"messages have no field {name!r}; {hint}")
    if not chosen:
        raise InvalidSetting("--fields is empty")
    return chosen


def show_messages(
    messages: Iterator[StoredMessage | Skipped],
    fields: tuple[str, ...],
    body: BodyForm,
    *,
    limit: int | None,
    as_json: bool,
) -> ExitCode:
    """Show up to `limit` messages; the exit code is DAMAGE if some are not readable."""
    if "body" not in fields:
        body = BodyForm.NONE
    chosen = {*fields, "body_error"} if body is not BodyForm.NONE else {*fields} - {"body"}
    columns = [Column(name, shown_as=_FORMS.get(name, cell)) for name in fields if name in chosen]
    shown = skipped = 0
    rows: list[Row] = []
    for found in messages:
        if isinstance(found, Skipped):
            skipped += 1
            click.echo(f"skipped: {found.text}", err=True)
            continue
        if limit is not None and shown >= limit:
            break
        values = fields_of(found, body, None if as_json else CELL_BODY_BYTES)
        if not as_json:
            values["body"] = body_cell(values)
        rows.append({name: value for name, value in values.items() if name in chosen})
        shown += 1
        if len(rows) >= _ROWS:
            show_rows(rows, columns, as_json=as_json, empty="")
            rows.clear()
    if rows:
        show_rows(rows, columns, as_json=as_json, empty="")
    return ExitCode.DAMAGE if skipped else ExitCode.OK


def body_cell(fields: Mapping[str, Any]) -> str:
    """The body of a message for a table, from the result of `fields_of` with CELL_BODY_BYTES."""
    if fields.get("body_error") and fields.get("body") is None:
        return cell(f"({fields['body_error']})")
    body = fields.get("body")
    if "body_cut" not in fields:
        return cell(body)
    return cell(str(body)[:MAX_CELL_CHARS]) + f"… ({fields['body_cut']})"


def cell(value: Any) -> str:
    """A value for a table: short, on one line, and without control characters."""
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
    """A whole text on one line, without control characters."""
    return "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in text)


Row = Mapping[str, Any]

body_option = choice_option("--body", "form", "The format of bodies.", of=BodyForm, default=BodyForm.TEXT.value)
json_option = flag("--json", "as_json", "Print JSON, one object per line, instead of a table.")


def known(value: Any) -> str:
    return UNKNOWN if value is None else cell(value)


class Column(NamedTuple):
    """A field of the rows, with its header and format."""

    field: str
    header: str = ""
    shown_as: Callable[[Any], str] = known

    @property
    def is_number(self) -> bool:
        return self.shown_as in (number, offset, duration, percent, plain)


def plain(value: Any) -> str:
    """A number without separators, such as an offset."""
    return cell(value)


_FORMS: Final[dict[str, Callable[[Any], str]]] = dict.fromkeys(
    (
        *("log_offset", "queue", "queue_offset", "store_ms", "born_ms", "size"),
        *("reconsume_times", "prepared_offset", "flag", "sys_flag", "body_crc"),
    ),
    plain,
) | {"body": str}
"""How a table shows fields of messages that are not texts of one line."""


def texts(*fields: str) -> list[Column]:
    return [Column(field) for field in fields]


def numbers(*fields: str) -> list[Column]:
    return [Column(field, shown_as=number) for field in fields]


def show_rows(rows: Iterable[Row], columns: Sequence[Column], *, as_json: bool, empty: str) -> None:
    """Show all fields as JSON, or these columns as a table. `empty` is the text if there are no rows."""
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
        table.add_row(*(Text(column.shown_as(row.get(column.field))) for column in columns))
    screen().print(table)


def show_json(rows: Iterable[Row]) -> None:
    for row in rows:
        sys.stdout.write(msgspec.json.encode(row).decode() + "\n")
    sys.stdout.flush()


def show_facts(facts: Mapping[str, str]) -> None:
    """Show names and values, one pair per line."""
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in facts.items():
        table.add_row(Text(name), Text(cell(value)))
    screen().print(table)


def show_text(text: str) -> None:
    screen().print(Text(text))


# commands that change something


class Change(NamedTuple):
    """The options of a command that changes something."""

    dry_run: bool
    yes: bool
    as_json: bool

    def show_plan(self, rows: Iterable[Row], columns: Sequence[Column], *, empty: str = "") -> None:
        if not self.as_json:
            show_rows(rows, columns, as_json=False, empty=empty)

    def show_text(self, text: str) -> None:
        """A line of the plan or of the result, which JSON does not need."""
        if not self.as_json:
            show_text(text)

    def is_confirmed(self, question: str) -> bool:
        """False in a dry run. Exits if the answer is no."""
        if not self.dry_run:
            confirm(question, yes=self.yes)
        return not self.dry_run

    def show_result(self, rows: Iterable[Row], text: str) -> None:
        if self.as_json:
            show_json({**row, "is_done": not self.dry_run} for row in rows)
        else:
            show_text("Nothing changed." if self.dry_run else text)


def confirm(question: str, *, yes: bool) -> None:
    """Ask for confirmation unless `--yes` is set, and exit if the answer is no or there is no terminal."""
    try:
        if yes or click.confirm(question):
            return
    except click.Abort:
        click.echo(err=True)
    click.echo("Nothing changed. Use --yes to skip this question.", err=True)
    raise Exit(ExitCode.REPAIRABLE)


_CHANGE_OPTIONS = options(flag("--dry-run", "Show what would change, and exit."), yes_option, json_option)


def change_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options of a change. The command gets them as the argument `change`."""

    @wraps(command)
    def with_change(*args: Any, **params: Any) -> Any:
        change = Change(*(params.pop(name) for name in Change._fields))
        return command(*args, change=change, **params)

    return _CHANGE_OPTIONS(with_change)

"""Commands that change something: they show a plan, ask for confirmation, make the change, and show the result.

--dry-run   shows the plan and stops
--yes       does not ask
--json      shows one object per row of the plan, with `is_done`
"""

from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from typing import Any, NamedTuple

import click
from click.exceptions import Exit

from pocketmq.cli.commands import ExitCode, options
from pocketmq.cli.options import flag, yes_option
from pocketmq.cli.output import Column, Row, json_option, show_json, show_rows, show_text


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

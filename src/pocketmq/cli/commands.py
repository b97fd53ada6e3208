"""What all commands have in common: how an error becomes a sentence and an exit code, in one place."""

import difflib
import os
import sys
from collections.abc import Callable, Sequence
from enum import IntEnum
from functools import wraps
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from pocketmq.errors import PocketMQError, UsageError
from pocketmq.files import find_program

PROGRAM: Final = "pocketmq"
TRACEBACK_VARIABLE: Final = "POCKETMQ_TRACEBACK"
T = TypeVar("T")


class ExitCode(IntEnum):
    OK = 0
    REPAIRABLE = 1
    DAMAGE = 2
    REFUSED = 3
    USAGE = 64
    FAULT = 70
    INTERRUPTED = 130


class ErrorTellingGroup(click.Group):
    """A group that names the nearest command for one it does not know, and ends every error in plain words.

    Click's own exit codes are 1 and 2 for all kinds of errors, which mean something else here.
    """

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        if not standalone_mode:
            return super().main(args, prog_name, complete_var, standalone_mode, **extra)
        try:
            result = super().main(args, prog_name, complete_var, standalone_mode=False, **extra)
        except click.ClickException as error:
            error.show()
            sys.exit(ExitCode.USAGE)
        except click.Abort:
            _tell("interrupted")
            sys.exit(ExitCode.INTERRUPTED)
        except UsageError as error:
            _tell(str(error))
            sys.exit(ExitCode.USAGE)
        except PocketMQError as error:
            _tell(str(error))
            sys.exit(ExitCode.REFUSED)
        except OSError as error:
            _tell(_sentence(error))
            sys.exit(ExitCode.REFUSED)
        except Exception as error:
            if os.environ.get(TRACEBACK_VARIABLE):
                raise
            _tell(_fault(error))
            sys.exit(ExitCode.FAULT)
        sys.exit(result if isinstance(result, int) else ExitCode.OK)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0] if args else ""
        if name and not name.startswith("-") and self.get_command(ctx, name) is None:
            near = difflib.get_close_matches(name, self.list_commands(ctx), n=1)
            hint = f" Did you mean {near[0]!r}?" if near else f" There are: {', '.join(self.list_commands(ctx))}."
            ctx.fail(f"No such command {name!r}.{hint}")
        return super().resolve_command(ctx, args)


def parsed(parse: Callable[[str], T]) -> Callable[[str], T]:
    """The type of a parameter that a function of `model.human` reads: click tells the user what is wrong with the value."""

    @wraps(parse)
    def read(text: str) -> T:
        try:
            return parse(text)
        except UsageError as error:
            raise click.BadParameter(str(error)) from None

    return read


def options(*decorators: Callable[[Any], Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Several options as one decorator; help shows them in this order."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        for decorator in reversed(decorators):
            command = decorator(command)
        return command

    return decorate


def called() -> str:
    """How to call this program once more: by its name where the shell finds it, else by its path."""
    here = Path(sys.argv[0]).absolute()
    return str(here) if here.name == PROGRAM and find_program(PROGRAM) is None else PROGRAM


def _tell(text: str) -> None:
    click.echo(f"pocketmq: {text}", err=True)


def _fault(error: Exception) -> str:
    """For what no command foresaw: its first line, as libraries put their own stack below, and how to see the rest."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    what = f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
    return (
        f"{what.rstrip('.')}. This was not foreseen; {TRACEBACK_VARIABLE}=1 before the command shows where it happened"
    )


def _sentence(error: OSError) -> str:
    what = f"{error.filename}: " if error.filename else ""
    hint = ". Run it as the user that it belongs to" if isinstance(error, PermissionError) else ""
    return f"{what}{error.strerror or error}{hint}"

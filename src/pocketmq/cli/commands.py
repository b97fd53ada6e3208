"""What all commands share: exit codes, error messages, and options by kind.

An option has the same form in every command of the command line and of the console:

    flag("--read-only", "Do not allow any changes.")        the names, then the text of the help
"""

import difflib
import os
import sys
from collections.abc import Callable, Sequence
from enum import Enum, IntEnum
from functools import wraps
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from pocketmq.clock import SystemClock
from pocketmq.errors import PocketMQError, UsageError
from pocketmq.files import find_program
from pocketmq.net import LARGEST_PORT

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


class CommandGroup(click.Group):
    """A click group that suggests the nearest command for an unknown one, and turns errors into one line and an exit code.

    Click exits with 1 or 2 for all errors, which mean something else here.
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
            _print_error("interrupted")
            sys.exit(ExitCode.INTERRUPTED)
        except UsageError as error:
            _print_error(str(error))
            sys.exit(ExitCode.USAGE)
        except PocketMQError as error:
            _print_error(str(error))
            sys.exit(ExitCode.REFUSED)
        except OSError as error:
            _print_error(_sentence(error))
            sys.exit(ExitCode.REFUSED)
        except Exception as error:
            if os.environ.get(TRACEBACK_VARIABLE):
                raise
            _print_error(_unexpected(error))
            sys.exit(ExitCode.FAULT)
        sys.exit(result if isinstance(result, int) else ExitCode.OK)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0] if args else ""
        if name and not name.startswith("-") and self.get_command(ctx, name) is None:
            near = difflib.get_close_matches(name, self.list_commands(ctx), n=1)
            hint = f" Did you mean {near[0]!r}?" if near else f" Commands: {', '.join(self.list_commands(ctx))}."
            ctx.fail(f"No such command {name!r}.{hint}")
        return super().resolve_command(ctx, args)


def parsed(parse: Callable[[str], T]) -> Callable[[str], T]:
    """A click parameter type from a parser of `model.human`: a UsageError becomes a BadParameter."""

    @wraps(parse)
    def read(text: str) -> T:
        try:
            return parse(text)
        except UsageError as error:
            raise click.BadParameter(str(error)) from None

    return read


def program_name() -> str:
    """How users call this program: by its name if it is in the PATH, otherwise by its path."""
    here = Path(sys.argv[0]).absolute()
    return str(here) if here.name == PROGRAM and find_program(PROGRAM) is None else PROGRAM


def _print_error(text: str) -> None:
    click.echo(f"pocketmq: {text}", err=True)


def _unexpected(error: Exception) -> str:
    """An unexpected error in one line: libraries append their own stack traces."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
    return f"unexpected error: {text.rstrip('.')}. Set {TRACEBACK_VARIABLE}=1 to see the traceback"


def _sentence(error: OSError) -> str:
    path = f"{error.filename}: " if error.filename else ""
    hint = ". Run the command as the owner of the file" if isinstance(error, PermissionError) else ""
    return f"{path}{error.strerror or error}{hint}"


# options


Option = Callable[[Callable[..., Any]], Callable[..., Any]]


def flag(*words: str) -> Option:
    return _option(words, is_flag=True)


def text_option(*words: str, metavar: str, parse: Callable[[str], object] | None = None, **more: Any) -> Option:
    """A text, or with `parse` the value that it stands for."""
    return _option(words, type=None if parse is None else parsed(parse), metavar=metavar, **more)


def number_option(*words: str, least: int = 1, most: int | None = None, metavar: str = "N", **more: Any) -> Option:
    return _option(words, type=click.IntRange(least, most), metavar=metavar, **more)


def port_option(*words: str, **more: Any) -> Option:
    return number_option(*words, least=0, most=LARGEST_PORT, metavar="PORT", **more)


def path_option(*words: str, metavar: str = "FILE", **more: Any) -> Option:
    return _option(words, type=click.Path(path_type=Path), metavar=metavar, **more)


def choice_option(*words: str, of: type[Enum] | Sequence[str], **more: Any) -> Option:
    values = [choice.value if isinstance(choice, Enum) else choice for choice in of]
    return _option(words, type=click.Choice(values), **more)


def _option(words: Sequence[str], **more: Any) -> Option:
    return click.option(*words[:-1], help=words[-1], show_default=more.get("default") is not None, **more)


yes_option: Final = flag("--yes", "-y", "Do not ask for confirmation.")


def variable(name: str) -> dict[str, Any]:
    """For an option that an environment variable may set instead, as in a container."""
    return {"envvar": name, "show_envvar": True}


def options(*decorators: Callable[[Any], Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Several options as one decorator; help shows them in this order."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        for decorator in reversed(decorators):
            command = decorator(command)
        return command

    return decorate


def current_ms() -> int:
    """The time of this machine."""
    return SystemClock().now_ms()

"""Options by kind, so that the same option has the same form in every command of the command line and of the console.

flag("--read-only", "Do not allow any changes.")        the names, then the text of the help
"""

from collections.abc import Callable, Sequence
from enum import Enum
from pathlib import Path
from typing import Any, Final

import click

from pocketmq.cli.commands import parsed
from pocketmq.net.address import LARGEST_PORT

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

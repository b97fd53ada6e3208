"""The command lines of deployments, compared with the program."""

from collections.abc import Sequence

import click

from pocketmq.cli import main
from pocketmq.console.command import console


def unknown_options(words: Sequence[str]) -> set[str]:
    """The options of a command line that its command does not have."""
    command: click.Command = main
    context = click.Context(main)
    rest = list(words)
    while isinstance(command, click.Group) and rest and not rest[0].startswith("-"):
        name = rest.pop(0)
        found = command.get_command(context, name)
        assert found is not None, words
        command = console if name == "console" else found  # `pocketmq console` passes its words on
    known = {name for parameter in command.params for name in parameter.opts}
    return {word.partition("=")[0] for word in rest if word.startswith("--")} - known

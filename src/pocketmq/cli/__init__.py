"""The command line: `pocketmq serve|nameserver|broker|store …`. Thin: it asks, shows and chooses the exit code; what it shows is made elsewhere.

0    done, and all is well
1    store verify: derived files differ from the log; store rebuild: not confirmed
2    damage in the log or in tables
3    cannot be done: no such store, no permission, in use, a program that was started has failed
64   the command itself makes no sense: unknown option, impossible value
130  interrupted
"""

import logging

import click

from pocketmq import __version__
from pocketmq.cli.broker import broker
from pocketmq.cli.commands import ErrorTellingGroup
from pocketmq.cli.nameserver import nameserver
from pocketmq.cli.serve import serve
from pocketmq.cli.store import store_commands

__all__ = ["main"]

# What goes wrong is told by the commands themselves.
logging.getLogger("pocketmq").addHandler(logging.NullHandler())


@click.group(cls=ErrorTellingGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="pocketmq")
def main() -> None:
    """PocketMQ: Apache RocketMQ in Python."""


main.add_command(serve)
main.add_command(nameserver)
main.add_command(broker)
main.add_command(store_commands)

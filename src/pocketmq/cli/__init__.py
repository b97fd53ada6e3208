"""The command line: servers, stores, and what asks a running cluster. Thin: it asks, shows and chooses the exit code; what it shows is made elsewhere.

0    done, and all is well
1    not confirmed, nothing was changed; store verify: derived files differ from the log; msg send: stored less safely; bench: some failed; demo: messages are missing
2    damage in the log or in tables
3    cannot be done: no such store, no such topic, nobody answers, no permission, in use, a program that was started has failed; doctor: something is broken
64   the command itself makes no sense: unknown option, impossible value
70   an error that no command foresaw; POCKETMQ_TRACEBACK=1 in the environment shows its traceback
130  interrupted
"""

import logging

import click

from pocketmq import __version__
from pocketmq.cli.bench import bench
from pocketmq.cli.broker import broker
from pocketmq.cli.cluster import cluster_commands
from pocketmq.cli.commands import ErrorTellingGroup
from pocketmq.cli.completion import completion
from pocketmq.cli.console import console
from pocketmq.cli.delay import delay_commands
from pocketmq.cli.demo import demo
from pocketmq.cli.dlq import dlq_commands
from pocketmq.cli.doctor import doctor
from pocketmq.cli.group import group_commands
from pocketmq.cli.msg import msg_commands
from pocketmq.cli.nameserver import nameserver
from pocketmq.cli.pipeline import pipeline_commands
from pocketmq.cli.serve import serve
from pocketmq.cli.store import store_commands
from pocketmq.cli.topic import topic_commands
from pocketmq.cli.tx import tx_commands

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
main.add_command(console)
main.add_command(store_commands)
main.add_command(topic_commands)
main.add_command(group_commands)
main.add_command(msg_commands)
main.add_command(dlq_commands)
main.add_command(tx_commands)
main.add_command(delay_commands)
main.add_command(cluster_commands)
main.add_command(doctor)
main.add_command(bench)
main.add_command(completion)
main.add_command(pipeline_commands)
main.add_command(demo)

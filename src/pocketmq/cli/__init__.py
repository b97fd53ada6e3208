"""The command line: servers, stores, and what asks a running cluster. Thin: it asks, shows and chooses the exit code; what it shows is made elsewhere.

0    done, and all is well
1    not confirmed, nothing was changed; store verify: derived files differ from the log; msg send: stored less safely; bench: some failed; demo: messages are missing
2    damage in the log or in tables
3    cannot be done: no such store, no such topic, nobody answers, no permission, in use, a program that was started has failed; doctor: something is broken
64   the command itself makes no sense: unknown option, impossible value
70   an error that no command foresaw; POCKETMQ_TRACEBACK=1 in the environment shows its traceback
130  interrupted

Modules in reading order:

    commands           turns errors into a sentence and an exit code, for all commands
    screen             tables, progress and width of the terminal
    asking             options and connections of the commands that ask a running cluster
    programs           runs a program until SIGINT or SIGTERM, then stops it in order
    nameserver         `pocketmq nameserver`
    broker             `pocketmq broker`
    serve              `pocketmq serve`: a name server and brokers together
    console            `pocketmq console`
    topic              `pocketmq topic`
    group              `pocketmq group`
    msg                `pocketmq msg`
    msg_send           `pocketmq msg send`
    msg_trace          `pocketmq msg trace`
    dlq                `pocketmq dlq`: dead letters
    delay              `pocketmq delay`
    tx                 `pocketmq tx`: undecided transactions
    cluster            `pocketmq cluster`
    store              `pocketmq store`
    bench              `pocketmq bench`
    doctor             `pocketmq doctor`
    pipeline           `pocketmq pipeline`: one command for each job
    pipeline_lake      `pocketmq pipeline lake`
    pipeline_project   `pocketmq pipeline new` and `pocketmq pipeline run`
    demo               `pocketmq demo`
"""

import logging

import click

from pocketmq import __version__
from pocketmq.cli.asking import completion
from pocketmq.cli.bench import bench
from pocketmq.cli.broker import broker
from pocketmq.cli.cluster import cluster_commands
from pocketmq.cli.commands import ErrorTellingGroup
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

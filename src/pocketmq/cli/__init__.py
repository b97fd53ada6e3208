"""The command line: it starts servers, examines stores, and administrates running clusters.

Commands parse options, call the public API, print the result and choose the exit code:

    0    success
    1    not confirmed, so nothing changed; store verify: derived files differ from the log; msg send: stored, but not as safely
         as configured; bench: some messages failed; demo: messages are missing
    2    the log or a table is damaged
    3    failed: no such store or topic, no answer, no permission, in use, a child process failed; doctor: a step is broken
    64   usage error: unknown option, invalid value
    70   unexpected error; POCKETMQ_TRACEBACK=1 in the environment shows its traceback
    130  interrupted

Modules in reading order:

    commands           turns errors into a sentence and an exit code, for all commands
    output             tables, JSON lines and progress bars
    cluster_options    options and connections of the commands for running clusters; shell completion
    programs           runs a server until SIGINT or SIGTERM; child processes
    server_options     options and banner of all servers
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
from pocketmq.cli.bench import bench
from pocketmq.cli.broker import broker
from pocketmq.cli.cluster import cluster_commands
from pocketmq.cli.cluster_options import completion
from pocketmq.cli.commands import CommandGroup
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

# Commands print their errors themselves.
logging.getLogger("pocketmq").addHandler(logging.NullHandler())


@click.group(cls=CommandGroup, context_settings={"help_option_names": ["-h", "--help"]})
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

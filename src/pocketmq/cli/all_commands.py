"""The command `pocketmq` with all its commands."""

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
from pocketmq.cli.proxy import proxy
from pocketmq.cli.serve import serve
from pocketmq.cli.store import store_commands
from pocketmq.cli.topic import topic_commands
from pocketmq.cli.tx import tx_commands

# Commands print their errors themselves.
logging.getLogger("pocketmq").addHandler(logging.NullHandler())


@click.group(cls=CommandGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="pocketmq")
def main() -> None:
    """PocketMQ: Apache RocketMQ in Python."""


for command in (
    *(
        serve,
        nameserver,
        broker,
        proxy,
        console,
        store_commands,
        topic_commands,
        group_commands,
        msg_commands,
        dlq_commands,
    ),
    *(tx_commands, delay_commands, cluster_commands, doctor, bench, completion, pipeline_commands, demo),
):
    main.add_command(command)

"""docs/reference/cli.md has an example of every command of a cluster, and its examples run."""

import re
import shlex
from collections.abc import Mapping
from pathlib import Path

import click
from click.testing import CliRunner
from tests.cli.running_cluster import RunningCluster

import pocketmq
from pocketmq.cli import main

DOCUMENT = (Path(__file__).parents[2] / "docs" / "reference" / "cli.md").read_text("utf-8")
EXAMPLES = [shlex.split(line)[2:] for line in DOCUMENT.splitlines() if line.startswith("$ pocketmq ")]
GROUPS = ("topic", "group", "msg", "dlq", "tx", "delay", "cluster", "doctor", "bench", "completion")
"""The last ones are commands by themselves."""


def commands(group: str) -> Mapping[str, click.Command]:
    found = main.commands[group]
    return found.commands if isinstance(found, click.Group) else {"": found}


def test_every_command_has_an_example() -> None:
    there = {(group, name) for group in GROUPS for name in commands(group)}

    shown = {(words[0], words[1] if isinstance(main.commands[words[0]], click.Group) else "") for words in EXAMPLES}
    assert shown == there


def test_the_examples_of_the_command_reference_run(own_cluster: RunningCluster) -> None:
    message_id = ""
    known: dict[str, str] = {}
    with pocketmq.Producer(own_cluster.name_server, group="payers", check=_undecided) as producer:
        for words in EXAMPLES:
            if words[:2] == ["group", "ls"]:
                own_cluster.stand("billing", "orders", 0)
                with pocketmq.Admin(own_cluster.name_server) as admin:
                    admin.groups.create("audit")
            if words[:2] == ["tx", "ls"]:
                known["TRANSACTION"] = _left_open(producer)
            known |= {"ID": message_id, "DELAYED": _delayed(own_cluster)}
            given = [known.get(word, word) for word in words]
            result = own_cluster.run(*given) if words[0] != "completion" else CliRunner().invoke(main, given)
            message_id = message_id or next(iter(re.findall(r"SEND_OK +([0-9A-F]{32})", result.stdout)), "")

            assert (result.exit_code, words) == (EXIT_CODES.get(" ".join(words[:2]), 0), words), result.stderr


EXIT_CODES = {"tx check": 3, "doctor --topic": 3}
"""Examples with an exit code other than 0, because they find something, such as a group without members."""


def _undecided(_: pocketmq.StoredMessage) -> pocketmq.TransactionState:
    return pocketmq.TransactionState.UNKNOWN


def _left_open(producer: pocketmq.Producer) -> str:
    transaction = producer.transaction("paid")
    sent = transaction.send(b"1")
    transaction.leave_open()
    return sent.transaction_id or ""


def _delayed(cluster: RunningCluster) -> str:
    """A message that waits for a time of its own."""
    with pocketmq.Admin(cluster.name_server) as admin:
        found = admin.delays.waiting().found
    return next((one.message.message_id for one in found if one.level is None), "")

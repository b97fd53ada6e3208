"""docs/cli.md says what is there: no command and no option is missing, and its examples run."""

import re
import shlex
from collections.abc import Mapping
from pathlib import Path

import click
import pytest
from tests.cli.running_cluster import RunningCluster

import pocketmq
from pocketmq.cli import main

DOCUMENT = (Path(__file__).parents[2] / "docs" / "cli.md").read_text("utf-8")
EXAMPLES = [shlex.split(line)[2:] for line in DOCUMENT.splitlines() if line.startswith("$ pocketmq ")]
GROUPS = ("topic", "group", "msg", "dlq", "tx", "cluster")


def commands(group: str) -> Mapping[str, click.Command]:
    found = main.commands[group]
    assert isinstance(found, click.Group)
    return found.commands


def test_every_command_has_an_example_and_no_other() -> None:
    there = {(group, name) for group in GROUPS for name in commands(group)}

    assert {(words[0], words[1]) for words in EXAMPLES} == there


@pytest.mark.parametrize("group", GROUPS)
def test_every_option_is_told(group: str) -> None:
    told = set(re.findall(r"(?<![\w-])--?[a-z][a-z-]*", DOCUMENT))
    options = {
        name
        for command in commands(group).values()
        for option in command.params
        if isinstance(option, click.Option)
        for name in (*option.opts, *option.secondary_opts)
    }

    assert options - told == set()


def test_no_option_is_told_that_is_none() -> None:
    options = {
        name
        for group in GROUPS
        for command in commands(group).values()
        for option in command.params
        for name in (*option.opts, *option.secondary_opts)
    }

    assert set(re.findall(r"`(--[a-z-]+)", DOCUMENT)) - options == {"--help"}


def test_the_examples_run(own_cluster: RunningCluster) -> None:
    message_id = ""
    for words in EXAMPLES:
        if words[:2] == ["group", "ls"]:
            own_cluster.stand("billing", "orders", 0)
            with pocketmq.Admin(own_cluster.name_server) as admin:
                admin.groups.create("audit")
        result = own_cluster.run(*[message_id if word == "ID" else word for word in words])
        message_id = message_id or next(iter(re.findall(r"SEND_OK +([0-9A-F]{32})", result.stdout)), "")

        assert (result.exit_code, words) == (0, words), result.stderr

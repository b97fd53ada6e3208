"""Clients in real processes, over real sockets: killed, forked, kept busy, and left without a broker or a name server for a while."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.client.processes import Child, Children, processes
from tests.client.storm import storm

from pocketmq import Admin, PullConsumer
from pocketmq.broker.broker import Broker
from pocketmq.broker.settings import BrokerSettings
from pocketmq.nameserver.server import NameServer
from pocketmq.nameserver.settings import NameServerSettings
from pocketmq.net.portal import Portal
from pocketmq.store.settings import StoreSettings

MESSAGES = 3_000
LEASE_MS = 2_500
SPIN_S = 3 * LEASE_MS / 1000


@pytest.fixture
def children(tmp_path: Path) -> Iterator[Children]:
    with processes(tmp_path) as made:
        yield made


def test_nothing_is_lost_while_members_join_leave_and_are_killed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    outcome = storm(tmp_path, MESSAGES, seed=11)

    with capsys.disabled():
        print(f"\n{outcome}")  # noqa: T201 how many are doubled is for the reader to judge
    assert len(outcome.sent) == MESSAGES
    assert outcome.handled.keys() == outcome.sent
    assert outcome.killed
    assert outcome.left


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_producer_that_was_started_before_forks_sends_from_parent_and_children(children: Children) -> None:
    _, told = children.server(
        "serve", "--namesrv-port", 0, "--broker-port", 0, "--data", children.folder / "data"
    )

    program = children.client("prefork", told["name_server"], "Prefork")
    children.until(lambda: program.code is not None, "the end of the program and its children")

    assert program.leave() == 0, program.log.read_text()
    assert program.said.pop() == "done"
    assert len(program.said) == len(set(program.said)) == 8 * 50
    assert sorted(stored(told["name_server"], "Prefork")) == sorted(program.said)


def stored(name_server: str, topic: str) -> list[str]:
    """The bodies of all messages of a topic."""
    found: list[str] = []
    with Admin(name_server) as admin:
        queues = [queue.queue for queue in admin.topics.describe(topic).queues]
        for queue in queues:
            found += [message.body.decode() for message in admin.messages.in_queue(queue)]
    return found

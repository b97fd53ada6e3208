"""Clients in real processes, over TCP: killed, forked, busy, and temporarily without a broker or a name server."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.client.processes import Child, Children, processes
from tests.client.spinning import LEASE_MS, impatient_broker, spin
from tests.client.storm import is_body, storm

from pocketmq import Admin, MessageQueue

MESSAGES = 3_000


@pytest.fixture
def children(tmp_path: Path) -> Iterator[Children]:
    with processes(tmp_path) as made:
        yield made


def test_no_message_is_lost_while_members_join_leave_and_are_killed(
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
    _, told = children.server("serve", "--namesrv-port", 0, "--broker-port", 0, "--data", children.folder / "data")

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
            found += [message.body.decode() for message in admin.messages.in_queue(queue, 0, limit=1_000)]
    return found


def test_a_listener_that_computes_for_three_heartbeat_timeouts_keeps_its_queues(
    children: Children, tmp_path: Path
) -> None:
    with impatient_broker(tmp_path / "impatient") as name_server:
        looks = spin(children, name_server, spin_s=3 * LEASE_MS / 1000)

    assert looks


class Cluster:
    """A name server and a broker, each a process that can be killed and started again where it was."""

    def __init__(self, children: Children) -> None:
        self._children = children
        self._name_server, told = self._start_name_server(0)
        self.address: str = told["address"]
        self._name_server_port: int = told["port"]
        self._broker, told = self._start_broker(0)
        self._broker_port: int = told["port"]

    def kill_name_server(self) -> None:
        self._name_server.kill()

    def restart_name_server(self) -> None:
        self._name_server, _ = self._start_name_server(self._name_server_port)

    def kill_broker(self) -> None:
        self._broker.kill()

    def restart_broker(self) -> None:
        self._broker, _ = self._start_broker(self._broker_port)

    def _start_name_server(self, port: int) -> tuple[Child, dict[str, Any]]:
        folder = self._children.folder / "name-server"
        return self._children.server("nameserver", "--port", port, "--data", folder)

    def _start_broker(self, port: int) -> tuple[Child, dict[str, Any]]:
        folder = self._children.folder / "broker"
        settings = ("--set", f"mappedFileSizeCommitLog={4 << 20}", "--set", "autoCreateTopicEnable=true")
        return self._children.server("broker", "--port", port, "-n", self.address, "--data", folder, *settings)


class Traffic:
    """A sender and a member that are never restarted."""

    def __init__(self, children: Children, name_server: str) -> None:
        self._children = children
        self._ordered = 0
        with Admin(name_server) as admin:
            admin.topics.create("Traffic", queues=4)
        self.sender = children.client("sender", name_server, "Traffic")
        self.member = children.client("member", name_server, "readers", "Traffic")
        children.until_ready(self.sender, self.member)

    def order(self, messages: int) -> None:
        self.sender.tell(messages)
        self._ordered += messages

    @property
    def sent(self) -> set[str]:
        """What a broker has confirmed."""
        return set(self.sender.said[1:])

    @property
    def handled(self) -> set[str]:
        return set(filter(is_body, self.member.said))

    def until_sent(self, count: int) -> None:
        self._children.until(lambda: len(self.sent) >= count, f"the confirmation of {count} messages")

    def until_all_is_handled(self) -> None:
        self.until_sent(self._ordered)
        self._children.until(lambda: self.handled == self.sent, "every message that was confirmed")

    def end(self) -> None:
        assert [self.sender.leave(), self.member.leave()] == [0, 0]


def test_clients_continue_after_their_broker_was_killed_and_restarted(children: Children) -> None:
    cluster = Cluster(children)
    traffic = Traffic(children, cluster.address)

    for _ in range(2):
        confirmed = len(traffic.sent)
        traffic.order(1_000)
        traffic.until_sent(confirmed + 200)
        cluster.kill_broker()
        traffic.order(100)
        cluster.restart_broker()

    traffic.until_all_is_handled()
    traffic.end()


def test_clients_continue_without_their_name_server_and_use_it_again(children: Children) -> None:
    cluster = Cluster(children)
    traffic = Traffic(children, cluster.address)
    traffic.order(1_000)
    traffic.until_sent(200)

    cluster.kill_name_server()
    traffic.order(500)
    traffic.until_all_is_handled()
    cluster.restart_name_server()
    traffic.order(100)
    traffic.until_all_is_handled()

    # What they do now they know from the new one.
    with Admin(cluster.address) as admin:
        children.until(lambda: admin.topics.exists("Traffic"), "the broker at the new name server")
        admin.topics.alter("Traffic", queues=6)
        children.until(lambda: len(queues_read(admin, "Traffic")) == 6, "the member at the new queues")
    known = traffic.sent
    traffic.sender.tell("10 Late")
    traffic.until_sent(len(known) + 10)
    assert sorted(stored(cluster.address, "Late")) == sorted(traffic.sent - known)
    traffic.end()


def queues_read(admin: Admin, topic: str) -> list[MessageQueue]:
    return [
        queue for queue, readers in admin.groups.owners("readers").queues.items() if readers and queue.topic == topic
    ]

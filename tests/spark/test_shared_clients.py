"""A process of Spark has one client for each cluster, while it is used and some time longer; it may have an access key."""

import logging
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

pytest.importorskip("pyarrow", reason="the extra `spark` is not installed")

from pocketmq import Admin, Producer, Server
from pocketmq.errors import NoPermission
from pocketmq.model.message import Message
from pocketmq.model.queue import MessageQueue, QueueRange
from pocketmq.protocol.signing import Credentials
from pocketmq.spark.options.connection_options import Connection, Secret
from pocketmq.spark.read.planning import ReadPartition
from pocketmq.spark.read.range_reading import read_partition
from pocketmq.spark.schema import Name
from pocketmq.spark.shared_clients import SharedClients

LONG_MS = 60_000
COUNT = 300
OWNER = Credentials("owner", "the secret of the owner")
ACCOUNTS = """
[[account]]
access_key = "owner"
secret = "the secret of the owner"
admin = true

[[account]]
access_key = "etl"
secret = "the secret of etl"
topics = { "orders" = ["Sub"] }
groups = { "etl" = ["Sub"] }
"""


class Cluster(msgspec.Struct, frozen=True):
    name: str


class FakeCore:
    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.pid = os.getpid()
        self.stopped = threading.Event()

    async def start(self) -> None:
        """Nothing to do."""

    async def stop(self) -> None:
        self.stopped.set()


def test_successive_users_get_the_same_client() -> None:
    connections = SharedClients(FakeCore)

    with connections.borrow(Cluster("a"), LONG_MS) as first:
        core = first.core()
    with connections.borrow(Cluster("a"), LONG_MS) as second, connections.borrow(Cluster("b"), 0) as other:
        assert second.core() is core
        assert other.core() is not core
        assert not core.stopped.is_set()

    with connections.borrow(Cluster("a"), 0):
        """So that it is closed."""
    assert core.stopped.wait(10)


def test_an_idle_client_is_closed_and_a_borrowed_one_is_not() -> None:
    connections = SharedClients(FakeCore)
    with connections.borrow(Cluster("a"), 0) as held:
        core = held.core()
        with connections.borrow(Cluster("a"), 0):
            """Given back while the other one still uses it."""
        assert not core.stopped.wait(0.05)

    assert core.stopped.wait(10)
    with connections.borrow(Cluster("a"), 0) as held:
        assert held.core() is not core


def test_idle_clients_can_be_closed_early() -> None:
    connections = SharedClients(FakeCore)
    with connections.borrow(Cluster("a"), LONG_MS) as first:
        idle = first.core()

    with connections.borrow(Cluster("b"), LONG_MS) as second:
        connections.close_idle()
        assert idle.stopped.is_set()
        assert (len(connections), second.core().stopped.is_set()) == (1, False)
        used = second.core()

    connections.close_idle()
    assert used.stopped.is_set()


def test_a_forked_child_starts_without_clients() -> None:
    connections = SharedClients(FakeCore)
    with connections.borrow(Cluster("a"), LONG_MS) as held:
        assert held.core().pid == os.getpid()
        child = os.fork()
        if not child:
            with connections.borrow(Cluster("a"), LONG_MS) as own:
                os._exit(0 if own.core().pid == os.getpid() else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    with connections.borrow(Cluster("a"), 0):
        """So that it is closed."""


@pytest.fixture
def name_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A server that requires signatures and has messages in the topic `orders`."""
    accounts = tmp_path / "accounts.toml"
    accounts.write_text(ACCOUNTS)
    accounts.chmod(0o600)
    monkeypatch.setenv("ETL_KEY", "etl")
    monkeypatch.setenv("ETL_SECRET", "the secret of etl")
    monkeypatch.setenv("WRONG_SECRET", "another secret")
    with Server(tmp_path / "data", accounts=accounts) as server:
        with Admin(server.name_server, credentials=OWNER) as admin:
            admin.topics.create("orders", queues=1)
        with Producer(server.name_server, credentials=OWNER) as producer:
            producer.send_many([Message("orders", b"%d" % number) for number in range(COUNT)])
        yield server.name_server


def read(name_server: str, group: str = "etl", secret_variable: str = "ETL_SECRET") -> list[bytes]:
    """As a task of Spark does it, with a key."""
    signing = Secret("accessKeyEnv", "ETL_KEY"), Secret("secretKeyEnv", secret_variable)
    connection = Connection(name_server, access_key=signing[0], secret_key=signing[1])
    slices = (QueueRange(MessageQueue("orders", "broker-a", 0), 0, COUNT),)
    columns = Name.VALUE, Name.QUEUE_OFFSET
    partition = ReadPartition(
        slices, columns, connection, group, None, None, 32, 1 << 20, 1 << 20, True, 5_000, 0, "fail"
    )
    return [value for batch in read_partition(partition) for value in batch.column(0).to_pylist()]


def test_a_task_with_a_key_uses_direct_pulls_too(name_server: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "pocketmq.spark")

    values = read(name_server)

    assert values == [b"%d" % number for number in range(COUNT)]
    assert not [line for line in caplog.messages if "by the event loop" in line]


def test_a_key_without_read_permission_is_refused_in_the_words_of_the_broker(
    name_server: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "pocketmq.spark")

    with pytest.raises(NoPermission, match="User:etl has no permission to access Group:strangers"):
        read(name_server, "strangers")
    with pytest.raises(NoPermission, match="check signature failed"):
        read(name_server, secret_variable="WRONG_SECRET")

    assert any("by the event loop" in line and "Group:strangers" in line for line in caplog.messages)

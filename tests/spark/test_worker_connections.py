"""A process of Spark keeps one client for each cluster, for as long as somebody uses it and a while longer."""

import os
import threading

import msgspec
import pytest

pytest.importorskip("pyarrow", reason="the extra `spark` is not installed")

from pocketmq.spark.worker_connections import Connections

LONG_MS = 60_000


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


def test_who_borrows_one_after_the_other_gets_the_same_client() -> None:
    connections = Connections(FakeCore)

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
    connections = Connections(FakeCore)
    with connections.borrow(Cluster("a"), 0) as held:
        core = held.core()
        with connections.borrow(Cluster("a"), 0):
            """Given back while the other one still uses it."""
        assert not core.stopped.wait(0.05)

    assert core.stopped.wait(10)
    with connections.borrow(Cluster("a"), 0) as held:
        assert held.core() is not core


def test_the_child_of_a_fork_begins_anew() -> None:
    connections = Connections(FakeCore)
    with connections.borrow(Cluster("a"), LONG_MS) as held:
        assert held.core().pid == os.getpid()
        child = os.fork()
        if not child:
            with connections.borrow(Cluster("a"), LONG_MS) as own:
                os._exit(0 if own.core().pid == os.getpid() else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    with connections.borrow(Cluster("a"), 0):
        """So that it is closed."""

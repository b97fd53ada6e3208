"""Clients in the child of a fork: sockets, locks and in-flight limits of the parent are not used there."""

import subprocess
import sys
import textwrap
from collections.abc import Iterator

import pytest

from pocketmq import Server

CHILD_S = 20
"""A child that waits for longer is blocked."""


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server() as server:
        yield server


def run_in_child(server: Server, parent: str, child: str, parent_after: str = "") -> None:
    """The child's code runs in a fork of the program that the parent's code began."""
    script = f"""
import asyncio, faulthandler, os, sys, threading, warnings
from pocketmq.client import AsyncProducer, Producer
from pocketmq.errors import WrongState

warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons warn about every fork with threads
name_server = sys.argv[1]
{textwrap.dedent(parent)}
forked = os.fork()
if forked == 0:
    faulthandler.dump_traceback_later({CHILD_S}, exit=True)
    try:
{textwrap.indent(textwrap.dedent(child), " " * 8)}
    except BaseException as error:
        print("child:", repr(error), flush=True)
        os._exit(1)
    os._exit(0)
assert os.waitpid(forked, 0)[1] == 0
{textwrap.dedent(parent_after)}
print("fine")
"""
    command = [sys.executable, "-X", "dev", "-c", script, server.name_server]
    done = subprocess.run(command, capture_output=True, text=True, timeout=3 * CHILD_S, check=False)
    assert (done.stdout, done.returncode) == ("fine\n", 0), done.stdout + done.stderr


def test_a_thread_that_was_taking_a_connection_does_not_block_the_child(server: Server) -> None:
    run_in_child(
        server,
        """
        producer = Producer(name_server)
        producer.start()
        assert all(producer.send("T", b"has lines").is_ok for _ in range(3))
        lock = producer._direct.connections._lock
        lock.acquire()
        """,
        """
        assert producer.send("T", b"x").is_ok
        producer.stop()
        """,
        """
        lock.release()
        assert producer.send("T", b"x").is_ok
        producer.stop()
        """,
    )


def test_messages_in_flight_in_the_parent_do_not_count_in_the_child(server: Server) -> None:
    run_in_child(
        server,
        """
        producer = Producer(name_server, max_in_flight_messages=3, linger_ms=30_000)
        producer.start()
        futures = [producer.submit("T", b"waits for others") for _ in range(3)]
        """,
        """
        future = producer.submit("T", b"x")
        producer.flush()
        assert future.result(10).is_ok
        producer.stop()
        """,
        """
        producer.flush()
        assert all(future.result(10).is_ok for future in futures)
        producer.stop()
        """,
    )


def test_a_running_async_producer_is_refused_in_the_child_and_its_sockets_stay_open(server: Server) -> None:
    run_in_child(
        server,
        """
        loop = asyncio.new_event_loop()
        producer = AsyncProducer(name_server)
        loop.run_until_complete(producer.start())
        for _ in range(3):
            assert loop.run_until_complete(producer.send("T", b"has a line")).is_ok

        async def refused(work):
            try:
                await asyncio.wait_for(work(), 5)
            except WrongState as error:
                assert "create a new one in the child" in str(error)
            else:
                raise AssertionError("it was not refused")

        async def submit():
            await producer.submit("T", b"x")
        """,
        """
        for work in (lambda: producer.send("T", b"x"), submit, producer.flush, producer.stop):
            asyncio.run(refused(work))
        """,
        """
        assert loop.run_until_complete(producer.send("T", b"x")).is_ok
        loop.run_until_complete(producer.stop())
        loop.close()
        """,
    )

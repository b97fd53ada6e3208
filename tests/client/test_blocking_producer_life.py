"""The lifecycle of a blocking producer: one thread for all, loops, forks, Ctrl-C, exit."""

import asyncio
import signal
import socket
import subprocess
import sys
import textwrap
from collections.abc import Iterator

import pytest
from tests.client.topics import queues_of

from pocketmq import Server
from pocketmq.client import AsyncProducer, Producer
from pocketmq.errors import WrongState


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server() as server:
        yield server


@pytest.fixture
def producer(server: Server) -> Iterator[Producer]:
    with Producer(server.name_server, group="PG_blocking") as producer:
        yield producer


def test_a_producer_can_be_started_and_stopped_once(server: Server) -> None:
    producer = Producer(server.name_server)
    with pytest.raises(WrongState, match="was not started: use `with`"):
        producer.send("Blocking", b"x")
    producer.start()
    with pytest.raises(WrongState, match="is running"):
        producer.start()
    producer.send("Blocking", b"x")
    producer.stop()
    producer.stop()
    with pytest.raises(WrongState, match="was stopped"):
        producer.submit("Blocking", b"x")


ALONE = """
import sys, threading
from pocketmq import Producer
from pocketmq.errors import InvalidSetting

def count():
    return sum(thread.name == "pocketmq client" for thread in threading.enumerate())
"""


def printed_alone(code: str, server: Server) -> str:
    """The output of a program without other clients."""
    command = [sys.executable, "-W", "error", "-c", ALONE + code, server.name_server]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout.strip()


def test_all_producers_share_one_thread_that_ends_with_the_last(server: Server) -> None:
    code = """
before = count()
with Producer(sys.argv[1], group="A") as one, Producer(sys.argv[1], group="B") as two:
    print(before, count(), one.client_id == two.client_id, end=" ")
print(count())
"""

    assert printed_alone(code, server) == "0 1 True 0"


def test_a_failed_start_leaves_nothing_running(server: Server) -> None:
    code = """
try:
    Producer(()).start()
except InvalidSetting as error:
    print(error, count(), sep="; ")
"""

    why, threads = printed_alone(code, server).rsplit("; ", 1)

    assert why.startswith("no name server address")
    assert threads == "0"


def test_inside_a_running_loop_the_error_has_advice(server: Server) -> None:
    with Producer(server.name_server) as producer:

        async def main() -> None:
            with pytest.raises(WrongState, match="use the async class and `await` it"):
                producer.send("Blocking", b"x")
            assert (await asyncio.to_thread(producer.send, "Blocking", b"x")).is_ok
            assert (await asyncio.wrap_future(producer.submit("Blocking", b"x"))).is_ok

        asyncio.run(main())


FORKING = """
    import gc, os, sys, warnings
    from pocketmq import Server
    from pocketmq.client import Producer
    from pocketmq.errors import WrongState

    warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons warn about every fork with threads

    name_server = sys.argv[1]
    producer = Producer(name_server, group="PG_fork")
    producer.start()
    fresh = Producer(name_server, group="PG_fresh")
    assert producer.send("Fork", b"parent").is_ok
    before = producer.client_id
    child = os.fork()
    if child == 0:
        try:
            results = [producer.send("Fork", b"child"), producer.submit("Fork", b"child").result(10)]
            assert all(result.is_ok for result in results)
            assert producer.client_id != before
            with fresh:
                assert fresh.send("Fork", b"fresh").is_ok
            grandchild = os.fork()
            if grandchild == 0:
                producer.stop()  # never used there: nothing happens to the others
                os._exit(0)
            assert os.waitpid(grandchild, 0)[1] == 0
            assert producer.send("Fork", b"child again").is_ok
            gc.collect()
            producer.stop()
        except BaseException as error:
            print("child:", repr(error), flush=True)
            os._exit(1)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert producer.client_id == before
    assert producer.send("Fork", b"parent again").is_ok
    producer.stop()
    print("fine")
"""


def run_script(script: str, *args: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-X", "dev", "-c", textwrap.dedent(script), *args]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_after_a_fork_parent_and_child_continue_separately(server: Server) -> None:
    done = run_script(FORKING, server.name_server)

    assert (done.stdout, done.returncode) == ("fine\n", 0), done.stdout + done.stderr


FORGOTTEN = """
    import sys
    from pocketmq.client import Producer

    producer = Producer(sys.argv[1], group="PG_forgotten", linger_ms=30_000)
    producer.start()
    futures = [producer.submit("Forgotten", b"x") for _ in range(10)]
"""


def test_a_program_that_does_not_stop_its_producer_sends_submitted_messages_at_exit(server: Server) -> None:
    done = run_script(FORGOTTEN, server.name_server)
    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)

    with Producer(server.name_server, group="PG_after") as producer:
        queues = queues_of(producer, "Forgotten")
        last = [producer.send("Forgotten", b"y", queue=queue).queue_offset for queue in queues]
    assert sum(last) == 10


INTERRUPTED = """
    import sys
    from pocketmq.client import Producer

    with Producer(sys.argv[1], group="PG_interrupted", send_timeout_ms=60_000, call_timeout_ms=60_000) as producer:
        print("sending", flush=True)
        try:
            producer.send("T", b"x")
        except KeyboardInterrupt:
            print("interrupted", flush=True)
"""


def test_ctrl_c_ends_a_send_that_waits() -> None:
    silent = socket.create_server(("127.0.0.1", 0))
    address = f"127.0.0.1:{silent.getsockname()[1]}"
    command = [sys.executable, "-c", textwrap.dedent(INTERRUPTED), address]
    silent.settimeout(20)
    with silent, subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "sending\n"
        asked, _ = silent.accept()
        with asked:
            assert asked.recv(1), "it asks, and waits for an answer from now on"
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=20)

    assert (out, err, process.returncode) == ("interrupted\n", "", 0)


def test_an_async_producer_refuses_to_work_in_the_child_of_a_fork() -> None:
    script = """
        import asyncio, os
        from pocketmq.client import AsyncProducer
        from pocketmq.errors import WrongState

        producer = AsyncProducer("127.0.0.1:9876")
        child = os.fork()
        if child == 0:
            try:
                asyncio.run(producer.start())
            except WrongState as error:
                os._exit(0 if "create a new one in the child" in str(error) else 1)
            os._exit(1)
        assert os.waitpid(child, 0)[1] == 0
        print("fine")
    """
    done = run_script(script)

    assert (done.stdout, done.returncode) == ("fine\n", 0), done.stdout + done.stderr


def test_importing_logs_nothing_and_starts_no_thread() -> None:
    done = run_script("import threading, pocketmq.client; assert threading.active_count() == 1")

    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)


def test_async_and_blocking_producers_work_side_by_side(producer: Producer, server: Server) -> None:
    async def main() -> bool:
        async with AsyncProducer(server.name_server, group="PG_async") as other:
            return (await other.send("Blocking", b"x")).is_ok

    assert asyncio.run(main())
    assert producer.send("Blocking", b"x").is_ok

"""Clients as programs: real signals, a clean end, and the state for the next start."""

import asyncio
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from tests.client.kit import until

import pocketmq
from pocketmq import AsyncPushConsumer, LitePullConsumer, Producer, PushConsumer, Server
from pocketmq.errors import UsageError, WrongState

PATIENCE_S = 40

BEGIN = """
    import asyncio, faulthandler, logging, sys, threading, time
    import pocketmq

    faulthandler.dump_traceback_later(60, exit=True)
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
    logging.getLogger("asyncio").setLevel(logging.WARNING)
    name_server, topic = sys.argv[1:]

    def say(*words):
        # One write: print() writes its newline separately, and a log line of another thread may come between.
        sys.stdout.write(" ".join(words) + "\\n")
        sys.stdout.flush()

    def slow(message):
        say("at work" if message.topic == topic else "other")
        time.sleep(0.8)
        say("done", message.body.decode())

    async def slow_async(message):
        say("at work" if message.topic == topic else "other")
        await asyncio.sleep(0.8)
        say("done", message.body.decode())

    def endless(message):
        say("at work")
        threading.Event().wait()

    def made(kind, listener, topic=topic, **options):
        options = {"stop_timeout_ms": 30_000, **options}
        consumer = kind(name_server, group="G" + topic, start_at="first", **options)
        consumer.on(topic)(listener)
        return consumer
"""
PROGRAMS = {
    "blocking": "made(pocketmq.PushConsumer, slow).run()",
    "async": "asyncio.run(made(pocketmq.AsyncPushConsumer, slow_async).run())",
    "async on this loop": "asyncio.run(made(pocketmq.AsyncPushConsumer, slow_async, own_thread=False).run())",
    "several": """
        producer = pocketmq.Producer(name_server)

        def forward(message):
            slow(message)
            producer.send(topic + "-forwarded", b"sent while it was stopping")

        pocketmq.run(producer, made(pocketmq.PushConsumer, forward), made(pocketmq.PushConsumer, slow, topic + "-b"))
    """,
    "several async": """
        async def main():
            await asyncio.gather(
                made(pocketmq.AsyncPushConsumer, slow_async).run(),
                made(pocketmq.AsyncPushConsumer, slow_async, topic + "-b").run(),
            )

        asyncio.run(main())
    """,
}


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server() as running:
        yield running


@contextmanager
def program(server: Server, topic: str, code: str) -> "Iterator[subprocess.Popen[str]]":
    """A program whose listener is at work."""
    with Producer(server.name_server) as producer:
        producer.send(topic, b"1")
        producer.send(topic + "-b", b"2")
    text = textwrap.dedent(BEGIN) + textwrap.dedent(code) + "\nsay('returned')\n"
    command = [sys.executable, "-W", "error", "-c", text, server.name_server, topic]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        try:
            before = []
            while (line := process.stdout.readline()) != "at work\n":
                before.append(line)
                assert line, (process.wait(), "".join(before))
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("code", PROGRAMS.values(), ids=PROGRAMS)
def test_a_signal_ends_a_program_after_its_listeners_and_with_offsets_committed(
    server: Server, code: str, number: signal.Signals
) -> None:
    topic = f"Run{list(PROGRAMS.values()).index(code)}{number.name}"
    with program(server, topic, code) as process:
        process.send_signal(number)
        said = process.communicate(timeout=PATIENCE_S)[0]

    assert process.returncode == 0, said
    assert "done 1\n" in said
    assert said.endswith("returned\n")
    assert said.count(f"received {number.name}; the clients complete running work and stop") == 1
    with LitePullConsumer(server.name_server, group="G" + topic) as reader:
        committed = [reader.committed(queue) for queue in reader.queues_of(topic)]
    assert 1 in committed, committed


@pytest.mark.parametrize("code", ["blocking", "async"])
def test_a_second_signal_ends_the_program_at_once(server: Server, code: str) -> None:
    endless = PROGRAMS[code].replace("slow_async", "endless").replace("slow", "endless")
    with program(server, f"Twice{code}", endless.replace("endless)", "endless, stop_timeout_ms=60_000)")) as process:
        process.send_signal(signal.SIGTERM)
        assert process.stdout is not None
        while "complete running work" not in process.stdout.readline():
            assert process.poll() is None
        process.send_signal(signal.SIGTERM)

        assert process.wait(PATIENCE_S) == -signal.SIGTERM


def test_run_ends_when_another_thread_stops_the_consumer_and_restores_the_handlers(server: Server) -> None:
    consumer = PushConsumer(server.name_server, group="Stopped")
    consumer.on("Stopped")(print)
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    stopper = threading.Timer(0.3, consumer.stop)
    stopper.start()

    consumer.run()

    stopper.join()
    assert not consumer.is_running
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before
    with pytest.raises(WrongState, match="was stopped; create a new one"):
        consumer.run()


def test_an_async_run_that_is_cancelled_stops_its_consumer(server: Server) -> None:
    async def main() -> None:
        before = signal.getsignal(signal.SIGINT)
        consumer = AsyncPushConsumer(server.name_server, group="Cancelled")
        consumer.on("Cancelled")(print)
        running = asyncio.create_task(consumer.run())
        await until(lambda: consumer.is_running)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

        assert consumer.is_running is False
        assert signal.getsignal(signal.SIGINT) is before

    asyncio.run(main())


class Stubborn:
    """A client that cannot be stopped."""

    def __init__(self, ends: bool) -> None:
        self.is_running = False
        self.stops = 0
        self._ends = ends

    def start(self) -> None:
        self.is_running = not self._ends

    def stop(self) -> None:
        self.stops += 1
        raise OSError("no")


def test_a_client_that_fails_to_stop_does_not_keep_the_others_running() -> None:
    clients = [Stubborn(ends=False), Stubborn(ends=True)]

    with pytest.raises(OSError, match="no"):
        pocketmq.run(*clients)

    assert [client.stops for client in clients] == [1, 1]


def test_run_is_refused_outside_the_main_thread(server: Server) -> None:
    failures: list[BaseException] = []

    def attempt(work: object) -> None:
        try:
            work()  # type: ignore[operator]
        except WrongState as error:
            failures.append(error)

    consumer = PushConsumer(server.name_server, group="Thread")
    other = AsyncPushConsumer(server.name_server, group="Thread")
    for work in (consumer.run, lambda: asyncio.run(other.run())):
        thread = threading.Thread(target=attempt, args=(work,))
        thread.start()
        thread.join()

    assert ["main thread only" in str(failure) for failure in failures] == [True, True]
    assert consumer.is_new
    assert other.is_new


def test_run_needs_blocking_clients() -> None:
    with pytest.raises(UsageError, match=r"AsyncPushConsumer is for asyncio: use `await consumer.run\(\)`"):
        pocketmq.run(AsyncPushConsumer("127.0.0.1:1", group="G"))  # type: ignore[arg-type]


def test_a_signal_ends_a_start_without_a_server(server: Server) -> None:
    code = """
        import os, signal, socket

        with socket.create_server(("127.0.0.1", 0)) as silent:
            name_server = f"127.0.0.1:{silent.getsockname()[1]}"
            consumer = made(pocketmq.PushConsumer, slow, call_timeout_ms=60_000)

            kept = []

            def interrupt():
                kept.append(silent.accept()[0])
                kept[0].recv(1)  # the start has asked for a route, and waits for the answer
                os.kill(os.getpid(), signal.SIGTERM)

            threading.Thread(target=interrupt).start()
            say("at work")
            consumer.run()
            kept[0].close()
    """
    with program(server, "Silent", code) as process:
        said = process.communicate(timeout=PATIENCE_S)[0]

    assert process.returncode == 0, said
    assert said.endswith("returned\n")

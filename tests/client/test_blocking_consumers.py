"""The blocking faces, and the client's own thread: real sockets, real threads, the embedded server."""

import asyncio
import itertools
import logging
import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pocketmq.client.cluster.brokers import BrokerConnections
from pocketmq.client.consumer.blocking_consumers import LitePullConsumer, PullConsumer, PushConsumer, SimpleConsumer
from pocketmq.client.consumer.pull_consumer import AsyncPullConsumer
from pocketmq.client.consumer.pulling import PullStatus
from pocketmq.client.consumer.push_consumer import AsyncPushConsumer
from pocketmq.client.consumer.simple_consumer import AsyncSimpleConsumer
from pocketmq.client.producer.blocking_producer import Producer
from pocketmq.client.producer.producer import AsyncProducer
from pocketmq.embedded import Server
from pocketmq.errors import LeaseLost, UsageError, WrongState
from pocketmq.model import MessageQueue, StoredMessage

DEADLINE_S = 20.0


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server() as running:
        yield running


def send(server: Server, topic: str, *bodies: bytes) -> None:
    with Producer(server.name_server, group="PG") as producer:
        for body in bodies:
            producer.send(topic, body)


class Seen:
    """What listeners of any thread got."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self.bodies: list[bytes] = []

    def add(self, message: StoredMessage) -> None:
        with self._changed:
            self.bodies.append(message.body)
            self._changed.notify_all()

    def wait(self, count: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.bodies) >= count, DEADLINE_S), self.bodies


def test_a_push_consumer_calls_plain_and_async_listeners(server: Server) -> None:
    send(server, "Plain", b"1")
    send(server, "Async", b"2")
    seen, threads = Seen(), set()
    consumer = PushConsumer(server.name_server, group="blocking-push", start_at="first", client_ip="127.0.0.1")

    @consumer.on("Plain")
    def plain(message: StoredMessage) -> None:
        threads.add(threading.current_thread().name)
        seen.add(message)

    @consumer.on("Async")
    async def on_a_loop(message: StoredMessage) -> None:
        await asyncio.sleep(0)
        threads.add(threading.current_thread().name)
        seen.add(message)

    with consumer:
        seen.wait(2)
        assert {queue.topic for queue in consumer.queues()} >= {"Plain", "Async"}
        assert consumer.client_id.startswith("127.0.0.1@")
        assert consumer.running_info(stacks=True).jstack
        consumer.pause()
        consumer.resume()
        assert not consumer.wait(timeout_s=0.01)

    assert sorted(seen.bodies) == [b"1", b"2"]
    assert threads == {"pocketmq listener 0", "pocketmq listeners"}
    assert consumer.wait(timeout_s=0)


def test_a_listener_that_blocks_the_loop_of_the_user_does_not_stop_the_network(server: Server) -> None:
    async def main() -> None:
        consumer = AsyncPushConsumer(server.name_server, group="hog", start_at="first", heartbeat_ms=1_000)
        heard: list[float] = []

        @consumer.on("Hog")
        async def handle(message: StoredMessage) -> None:
            time.sleep(2.5)  # noqa: ASYNC251 it holds its loop up on purpose

        async with AsyncProducer(server.name_server, group="PG") as producer:
            await producer.send("Hog", b"1")
        async with consumer:
            heartbeats = consumer._member._instance.heartbeats
            say = heartbeats.send_to_all

            async def noted(brokers: BrokerConnections) -> None:
                heard.append(time.monotonic())
                await say(brokers)

            heartbeats.send_to_all = noted  # type: ignore[method-assign]
            async with asyncio.timeout(DEADLINE_S):
                while not heard or heard[-1] - heard[0] < 1.5:  # noqa: ASYNC110 there is no event for the condition
                    await asyncio.sleep(0.1)
            gaps = [b - a for a, b in itertools.pairwise(heard)]
            assert max(gaps) < 2

    asyncio.run(main())


def test_a_lite_pull_consumer_polls_and_iterates(server: Server) -> None:
    send(server, "Lite", *(b"%d" % number for number in range(8)))

    with LitePullConsumer(server.name_server, group="blocking-lite", start_at="first") as consumer:
        consumer.subscribe("Lite")
        bodies = [message.body for message in consumer.poll(DEADLINE_S)]
        for message in consumer:
            bodies.append(message.body)
            if len(bodies) == 8:
                break
        (queue, *_) = consumer.queues()
        assert consumer.position(queue) >= 0
        consumer.commit()
        committed = sum(consumer.committed(one) or 0 for one in consumer.queues())
        consumer.seek_to_begin(queue)
        consumer.pause([queue])
        consumer.resume([queue])

    assert sorted(bodies) == [b"%d" % number for number in range(8)]
    assert committed == 8


def test_a_pull_consumer_pulls(server: Server) -> None:
    send(server, "Pull", b"1")

    with PullConsumer(server.name_server, group="blocking-pull") as consumer:
        results = [consumer.pull(queue, 0) for queue in consumer.queues("Pull")]
        (found,) = [result for result in results if result.status is PullStatus.FOUND]
        (queue, *_) = consumer.queues("Pull")
        assert consumer.min_offset(queue) == 0
        consumer.commit({queue: 0})
        assert consumer.committed(queue) == 0

    assert [message.body for message in found.messages] == [b"1"]


def test_a_scheduled_pull_during_a_stop_is_not_logged_as_failed(
    server: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    send(server, "Scheduled", b"1")
    called, failed = threading.Event(), threading.Event()
    stop = AsyncPullConsumer.stop

    async def stop_after_the_task(consumer: AsyncPullConsumer) -> None:
        assert await asyncio.to_thread(failed.wait, DEADLINE_S)
        await stop(consumer)

    monkeypatch.setattr(AsyncPullConsumer, "stop", stop_after_the_task)
    with PullConsumer(server.name_server, group="scheduled") as consumer:

        def task(queue: MessageQueue) -> None:
            called.set()
            try:
                while True:
                    consumer.pull(queue, 0)
            except WrongState:
                failed.set()
                raise

        consumer.schedule("Scheduled", task)
        assert called.wait(DEADLINE_S)

    assert failed.is_set()
    assert [record.message for record in caplog.records if record.levelno >= logging.WARNING] == []


def test_blocking_consumers_are_refused_inside_a_loop(server: Server) -> None:
    async def main() -> None:
        consumer = PullConsumer(server.name_server, group="inside")
        with pytest.raises(WrongState, match="inside a running event loop"):
            consumer.start()

    asyncio.run(main())


def test_a_consumer_whose_stop_was_refused_inside_a_loop_continues_and_can_be_stopped(server: Server) -> None:
    async def main() -> None:
        with pytest.raises(WrongState, match="inside a running event loop"):
            consumer.stop()

    with PullConsumer(server.name_server, group="refused") as consumer:
        asyncio.run(main())
        assert (consumer.is_running, consumer.wait(0)) == (True, False)
        assert consumer.queues("SELF_TEST_TOPIC")
    assert consumer.wait(0)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_consumer_belongs_to_the_process_that_started_it(server: Server) -> None:
    seen = Seen()
    consumer = PushConsumer(server.name_server, group="fork", start_at="first")
    consumer.subscribe("Fork", seen.add)
    with consumer:
        child = os.fork()
        if not child:
            code = 1
            try:
                consumer.queues()
            except WrongState as error:
                code = 0 if "before a fork" in str(error) else 2
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        send(server, "Fork", b"1")
        seen.wait(1)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_an_unstarted_consumer_may_be_started_in_the_child(server: Server) -> None:
    send(server, "Preload", b"1")
    seen = Seen()
    consumer = PushConsumer(server.name_server, group="preload", start_at="first")
    consumer.subscribe("Preload", seen.add)

    child = os.fork()
    if not child:
        code = 1
        try:
            with consumer:
                seen.wait(1)
            code = 0
        finally:
            os._exit(code)

    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_stopping_a_consumer_ends_its_wait(server: Server) -> None:
    consumer = PushConsumer(server.name_server, group="waiting")
    consumer.subscribe("Plain", lambda message: None)
    consumer.start()
    threading.Timer(0.2, consumer.stop).start()

    assert consumer.wait(DEADLINE_S)
    consumer.stop()


def write_down(body: str) -> None:
    """In another process: leaves its process id where the test finds it."""
    path, _, text = body.partition("|")
    Path(path).write_text(f"{os.getpid()} {text}")


def test_listeners_that_compute_run_in_processes(server: Server, tmp_path: Path) -> None:
    target = tmp_path / "note"
    send(server, "Compute", f"{target}|hello".encode())
    consumer = PushConsumer(server.name_server, group="processes", start_at="first", processes=1)
    consumer.subscribe("Compute", write_down)

    with consumer:
        deadline = time.monotonic() + DEADLINE_S
        while not (target.exists() and target.read_text().endswith("hello")) and time.monotonic() < deadline:
            time.sleep(0.02)

    number, text = target.read_text().split()
    assert text == "hello"
    assert int(number) != os.getpid()


def test_a_listener_that_cannot_be_imported_is_refused_at_the_start(server: Server) -> None:
    consumer = PushConsumer(server.name_server, group="processes", processes=1)
    consumer.subscribe("Compute", lambda message: None)

    with pytest.raises(UsageError, match="at the top of a module"):
        consumer.start()


def test_a_listener_that_cannot_be_imported_is_refused_after_the_start(server: Server) -> None:
    consumer = PushConsumer(server.name_server, group="processes-later", processes=1)
    consumer.subscribe("Compute", write_down)
    with consumer, pytest.raises(UsageError, match="at the top of a module"):
        consumer.subscribe("Other", lambda message: None)


def test_a_consumer_whose_loop_was_closed_leaves_its_group(server: Server) -> None:
    kept: list[AsyncPushConsumer] = []

    async def main() -> None:
        consumer = AsyncPushConsumer(server.name_server, group="forgotten", start_at="first")

        @consumer.on("Forgotten")
        async def handle(message: StoredMessage) -> None:
            await asyncio.Event().wait()

        await consumer.start()
        kept.append(consumer)

    send(server, "Forgotten", b"1")
    seen = Seen()
    asyncio.run(main())
    other = PushConsumer(server.name_server, group="forgotten", start_at="first", instance_name="other")
    other.subscribe("Forgotten", seen.add)
    with other:
        send(server, "Forgotten", *(b"%d" % number for number in range(8)))
        seen.wait(9)
    asyncio.run(kept[0].stop())


FORGOTTEN = """
    import sys, threading
    from pocketmq.client import PushConsumer

    handled = threading.Event()
    consumer = PushConsumer(sys.argv[1], group="at-exit", start_at="first", broadcast=True, local_offsets=sys.argv[2])
    consumer.subscribe("Exit", lambda message: handled.set())
    consumer.start()
    assert handled.wait(20)
"""


def test_a_broadcasting_consumer_that_is_not_stopped_saves_its_offsets_at_exit(server: Server, tmp_path: Path) -> None:
    send(server, "Exit", b"1")
    command = [sys.executable, "-c", textwrap.dedent(FORGOTTEN), server.name_server, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)

    (file,) = tmp_path.glob("*/at-exit/offsets.json")
    assert ":1" in file.read_text().replace(" ", "")


SIGNALLED = """
    import faulthandler, signal, sys, threading
    from pocketmq.client import PushConsumer
    from pocketmq.errors import WrongState

    faulthandler.dump_traceback_later(20, exit=True)
    consumer = PushConsumer(sys.argv[1], group="signalled", start_at="first", call_timeout_ms=60_000)

    @consumer.on("Signalled")
    def handle(message):
        print("at work", flush=True)
        threading.Event().wait(1)

    signal.signal(signal.SIGTERM, lambda *_: consumer.stop())
    print("starting", flush=True)
    try:
        with consumer:
            consumer.wait()
    except WrongState as error:
        print(error)
    print("left")
"""


def signal_at(name_server: str, moment: str, signals: int) -> list[str]:
    """The output after `moment` of a program that stops its consumer on a signal."""
    command = [sys.executable, "-c", textwrap.dedent(SIGNALLED), name_server]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        while process.stdout.readline() != f"{moment}\n":
            assert process.poll() is None
        for _ in range(signals):
            threading.Event().wait(0.3)
            process.send_signal(signal.SIGTERM)
        return process.communicate(timeout=40)[0].splitlines()


def test_a_signal_may_stop_a_consumer_that_is_still_starting() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        said = signal_at(f"127.0.0.1:{silent.getsockname()[1]}", "starting", 1)

    assert said == ["this consumer was stopped during its start", "left"]


def test_a_second_signal_does_not_delay_the_stop_of_the_first(server: Server) -> None:
    send(server, "Signalled", b"1")

    assert signal_at(server.name_server, "at work", 2) == ["left"]


def test_two_members_of_a_group_in_one_process_share_its_queues(server: Server) -> None:
    """With two names of the server and separate loops: each client was mistaken for the other, and both read
    everything.
    """
    send(server, "Shared", b"makes the topic")
    here, other = server.name_server, server.name_server.replace("127.0.0.1", "localhost")
    seen = Seen()

    def member(name_server: str) -> PushConsumer:
        made = PushConsumer(name_server, group="G_shared", ordered=True, rebalance_ms=1000, start_at="first")
        made.on("Shared")(seen.add)
        return made

    async def on_a_loop_of_its_own() -> None:
        third = AsyncPushConsumer(
            here, group="G_shared", ordered=True, rebalance_ms=1000, start_at="first", own_thread=False
        )
        third.on("Shared")(seen.add)
        async with third:
            owned[2] = {str(queue) for queue in await third.queues()}
            while not over.is_set():
                await asyncio.sleep(0.05)
                owned[2] = {str(queue) for queue in await third.queues()}

    over = threading.Event()
    owned: dict[int, set[str]] = {2: set()}
    loop = threading.Thread(target=asyncio.run, args=(on_a_loop_of_its_own(),))
    with member(here) as first, member(other) as second:
        loop.start()
        try:
            deadline = time.monotonic() + DEADLINE_S
            while time.monotonic() < deadline:
                owned |= {at: {str(queue) for queue in one.queues()} for at, one in enumerate((first, second))}
                allocator = [{queue for queue in one if "Shared" in queue} for one in owned.values()]
                if all(allocator) and sum(map(len, allocator)) == len(set.union(*allocator)) == 4:
                    break
                time.sleep(0.05)
            else:
                raise AssertionError(owned)
            assert first.client_id != second.client_id
            bodies = [b"%d" % number for number in range(40)]
            send(server, "Shared", *bodies)
            seen.wait(41)
        finally:
            over.set()
            loop.join()

    assert sorted(seen.bodies) == sorted([b"makes the topic", *bodies])


def test_the_number_of_threads_changes_while_a_blocking_consumer_runs(server: Server) -> None:
    together = threading.Barrier(4)
    met = threading.Event()
    send(server, "resized", *(b"%d" % number for number in range(4)))
    consumer = PushConsumer(server.name_server, group="resized", start_at="first", workers=1)

    @consumer.on("resized")
    def handle(message: StoredMessage) -> None:
        together.wait(DEADLINE_S)
        met.set()

    with consumer:
        consumer.set_workers((1, 4))
        assert met.wait(DEADLINE_S)
        with pytest.raises(UsageError, match="workers = 'x' must be"):
            consumer.set_workers("x")  # type: ignore[arg-type]


def test_a_simple_consumer_receives_renews_and_acknowledges(server: Server) -> None:
    options: dict[str, Any] = {"group": "simple", "start_at": "first", "invisible_ms": 1000, "auto_renew": True}
    send(server, "simple", b"0", b"1", b"2")
    with pytest.raises(WrongState, match="was not started"):
        SimpleConsumer(server.name_server, group="simple").receive()

    consumer = SimpleConsumer(server.name_server, **options)
    consumer.subscribe("simple")  # before the start: it is repeated there
    with consumer:
        messages = [*consumer.receive(2, wait_s=DEADLINE_S)]
        for message in consumer:
            messages.append(message)
            if len(messages) == 3:
                break
        assert sorted(message.body for message in messages) == [b"0", b"1", b"2"]
        assert consumer.receive(wait_s=2) == []  # twice the time of a lease
        consumer.ack(messages)
        assert consumer.open_leases == 0
        with pytest.raises(LeaseLost):
            consumer.change_invisible(messages[0], 5)


def test_an_async_simple_consumer_works_in_its_own_thread(server: Server) -> None:
    send(server, "own", b"0")

    async def main() -> None:
        async with AsyncSimpleConsumer(server.name_server, group="own", start_at="first", auto_renew=True) as consumer:
            await consumer.subscribe("own")
            async for message in consumer:
                await consumer.ack(message)
                assert message.body == b"0"
                break

    asyncio.run(main())

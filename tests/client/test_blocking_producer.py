"""The producer for threads, against a real broker in this process: threads, forks, notebooks, Ctrl-C, exit."""

import asyncio
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress

import pytest

from pocketmq import Server
from pocketmq.client import AsyncProducer, Producer, TransactionState, blocking
from pocketmq.client.blocking_producer import _Handed
from pocketmq.client.shared_portal import SharedPortal
from pocketmq.errors import InvalidSetting, NetworkError, TopicNotFound, WrongState
from pocketmq.model.message import Message, StoredMessage
from pocketmq.model.queue import MessageQueue


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server(settings={"transactionTimeOut": 100, "transactionCheckInterval": 200}) as server:
        yield server


@pytest.fixture
def producer(server: Server) -> Iterator[Producer]:
    with Producer(server.name_server, group="PG_blocking") as producer:
        yield producer


def queues_of(producer: Producer, topic: str) -> list[MessageQueue]:
    """The queues of a topic that was just made: brokers tell name servers of it a moment later."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        with suppress(TopicNotFound):
            return producer.queues(topic)
    raise AssertionError(f"{topic} did not come up")


def test_a_message_is_stored(producer: Producer) -> None:
    result = producer.send("Blocking", b"hello", keys="k1", tags="A")

    assert result.is_ok
    assert result.queue.topic == "Blocking"
    assert producer.settings.group == "PG_blocking"
    assert "@" in producer.client_id
    assert producer.in_flight == 0


def test_all_ways_to_send(producer: Producer) -> None:
    producer.send("Ways", b"first")
    queue = queues_of(producer, "Ways")[0]

    assert producer.send(Message("Ways", b"x"), queue=queue).queue == queue
    assert producer.submit("Ways", b"y", queue=queue).result(10).is_ok
    producer.send_one_way("Ways", b"z")
    results = producer.send_many([Message("Ways", b"%d" % n) for n in range(10)], queue=queue)
    assert [result.queue_offset for result in results] == list(
        range(results[0].queue_offset, results[0].queue_offset + 10)
    )
    producer.flush()
    handle = producer.send("Ways", b"timed", delay_ms=60_000).recall_handle
    assert handle is not None
    assert len(producer.recall("Ways", handle)) == 32


def test_eight_threads_share_it(producer: Producer) -> None:
    def work(number: int) -> list[int]:
        queue = MessageQueue("Threads", "broker-a", number % 4)
        return [producer.send("Threads", b"%d %d" % (number, n), queue=queue).queue_offset for n in range(20)]

    producer.send("Threads", b"first")
    with ThreadPoolExecutor(8) as pool:
        offsets = list(pool.map(work, range(8)))

    assert all(own == sorted(own) for own in offsets), "a thread's messages keep their order"
    assert len({(number % 4, offset) for number, own in enumerate(offsets) for offset in own}) == 160


def test_submitting_waits_for_room_and_keeps_the_order(server: Server) -> None:
    with Producer(server.name_server, group="PG_room", max_in_flight_messages=5) as producer:
        producer.send("Room", b"first")
        queue = queues_of(producer, "Room")[1]

        futures = [producer.submit("Room", b"%d" % n, queue=queue) for n in range(200)]
        offsets = [future.result(10).queue_offset for future in futures]

        assert offsets == sorted(offsets)
        assert len(set(offsets)) == 200


def test_a_submitted_message_that_cannot_be_sent_tells_so(producer: Producer) -> None:
    future = producer.submit("Blocking", b"")
    with pytest.raises(ValueError, match="the body is empty"):
        future.result(10)
    assert isinstance(
        producer.submit("Blocking", b"x", queue=MessageQueue("Blocking", "no", 0)).exception(10), NetworkError
    )
    assert producer.submit("Blocking", b"x").result(10).is_ok


def test_a_selector_that_fails_fails_what_was_submitted(producer: Producer) -> None:
    def no_queue(queues: Sequence[MessageQueue], message: Message, key: object) -> MessageQueue:
        raise ZeroDivisionError

    producer.send("Blocking", b"finds the route")
    assert isinstance(producer.submit("Blocking", b"x", selector=no_queue).exception(10), ZeroDivisionError)


def test_a_send_does_not_overtake_what_was_submitted_to_its_queue(producer: Producer) -> None:
    producer.send("Blocking", b"finds the route")
    queue = queues_of(producer, "Blocking")[0]
    producer.send("Blocking", b"has a line", queue=queue)
    loop_goes_on = threading.Event()
    loop = producer.run(running_loop())
    loop.call_soon_threadsafe(loop_goes_on.wait, 20)

    submitted = producer.submit("Blocking", b"first", queue=queue)
    with ThreadPoolExecutor(1) as pool:
        sent = pool.submit(producer.send, "Blocking", b"second", queue=queue)
        wait([sent], 0.2)
        loop_goes_on.set()

    assert submitted.result(10).queue_offset + 1 == sent.result(10).queue_offset


async def running_loop() -> asyncio.AbstractEventLoop:
    return asyncio.get_running_loop()


def test_what_no_loop_took_before_the_stop_is_told(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocking, "SHARED", SharedPortal())  # whose loop ends with this producer, whoever else runs now
    producer = Producer(server.name_server, group="PG_late", max_in_flight_messages=3)
    producer.start()
    producer.send("Blocking", b"x")
    late = [handed_over() for _ in range(3)]
    late[0].future.cancel()

    loop = producer._mailbox._loop
    producer._mailbox._call = lambda: None  # type: ignore[method-assign]  # as if the loop had just looked for the last time
    for handed in late:
        producer._mailbox.put(handed)
    producer.stop()

    assert loop.is_closed()
    assert [type(one.future.exception(1)) for one in late[1:]] == [WrongState, WrongState]
    with pytest.raises(WrongState):
        producer.submit("Blocking", b"x")


def handed_over() -> _Handed:
    return _Handed(Message("Blocking", b"x"), None, None, None, None, Future())


def test_linger_makes_batches_of_what_threads_submit(server: Server) -> None:
    with Producer(server.name_server, group="PG_linger", linger_ms=20) as producer:
        futures = [producer.submit("Linger", b"%d" % n) for n in range(100)]

        assert len({future.result(10).offset_id for future in futures}) == 100


def test_transactions_as_a_block(server: Server) -> None:
    asked: list[StoredMessage] = []

    def check(message: StoredMessage) -> bool:
        asked.append(message)
        return True

    with Producer(server.name_server, group="PG_tx", check=check) as producer:
        with producer.transaction("Tx") as tx:
            assert tx.send(b"one", keys="1").is_ok
        assert tx.state is TransactionState.COMMIT
        with suppress(ZeroDivisionError), producer.transaction("Tx") as tx:
            tx.send(b"two", keys="2")
            raise ZeroDivisionError
        assert tx.state is TransactionState.ROLLBACK
        for decide in ("commit", "roll_back"):
            with producer.transaction("Tx") as tx:
                tx.send(b"three")
                getattr(tx, decide)()
        with producer.transaction("Tx") as tx:
            tx.send(b"four", keys="4")
            tx.leave_open()
        for _ in range(200):
            if asked:
                break
            threading.Event().wait(0.05)

    assert asked[0].body == b"four"


def test_a_listener_executes_in_the_thread_that_sends(server: Server) -> None:
    threads: list[threading.Thread] = []

    class Listener:
        def execute(self, message: Message, argument: object) -> bool:
            threads.append(threading.current_thread())
            if argument == "fail":
                raise ValueError("no")
            return True

        def check(self, message: StoredMessage) -> bool:
            return True

    class Later(Listener):
        async def execute(self, message: Message, argument: object) -> bool:  # type: ignore[override]
            threads.append(threading.current_thread())
            return False

    with Producer(server.name_server, group="PG_listener", listener=Listener()) as producer:
        assert producer.send_in_transaction(Message("Tx", b"x"), "fine").state is TransactionState.COMMIT
        with pytest.raises(ValueError, match="no"):
            producer.send_in_transaction(Message("Tx", b"x"), "fail")
        assert threads == [threading.current_thread()] * 2
    with Producer(server.name_server, group="PG_listener2", listener=Later()) as producer:
        assert producer.send_in_transaction(Message("Tx", b"x")).state is TransactionState.ROLLBACK
    with Producer(server.name_server, group="PG_none") as producer, pytest.raises(WrongState, match="needs listener"):
        producer.send_in_transaction(Message("Tx", b"x"))


def test_a_request_without_a_reply_times_out(producer: Producer) -> None:
    with pytest.raises(TimeoutError, match=r"no reply came within 0.3 s"):
        producer.request("Ask", b"anybody?", timeout_s=0.3)


def test_errors_are_those_of_the_async_one(producer: Producer) -> None:
    with pytest.raises(TopicNotFound):
        producer.queues("NoSuchTopic")
    with pytest.raises(ValueError, match="the body is empty"):
        producer.send("Blocking", b"")
    with pytest.raises(InvalidSetting, match="did you mean 'retries'"):
        Producer("a:1", retry=1)  # type: ignore[call-arg]


def test_its_life_has_one_way(server: Server) -> None:
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
    """What a program prints in which nobody else has a client."""
    command = [sys.executable, "-W", "error", "-c", ALONE + code, server.name_server]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout.strip()


def test_all_share_one_thread_that_ends_with_the_last(server: Server) -> None:
    code = """
before = count()
with Producer(sys.argv[1], group="A") as one, Producer(sys.argv[1], group="B") as two:
    print(before, count(), one.client_id == two.client_id, end=" ")
print(count())
"""

    assert printed_alone(code, server) == "0 1 True 0"


def test_a_start_that_fails_leaves_nothing_behind(server: Server) -> None:
    code = """
try:
    Producer(()).start()
except InvalidSetting as error:
    print(error, count(), sep="; ")
"""

    why, threads = printed_alone(code, server).rsplit("; ", 1)

    assert why.startswith("no name server is given")
    assert threads == "0"


def test_inside_a_running_loop_it_says_what_to_do_instead(server: Server) -> None:
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


def test_after_a_fork_parent_and_child_each_go_on_by_themselves(server: Server) -> None:
    done = run_script(FORKING, server.name_server)

    assert (done.stdout, done.returncode) == ("fine\n", 0), done.stdout + done.stderr


FORGOTTEN = """
    import sys
    from pocketmq.client import Producer

    producer = Producer(sys.argv[1], group="PG_forgotten", linger_ms=60_000)
    producer.start()
    futures = [producer.submit("Forgotten", b"x") for _ in range(10)]
"""


def test_a_program_that_forgets_to_stop_sends_what_it_handed_over(server: Server) -> None:
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
    with silent, subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "sending\n"
        threading.Event().wait(0.3)
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
                os._exit(0 if "make a new one in the child" in str(error) else 1)
            os._exit(1)
        assert os.waitpid(child, 0)[1] == 0
        print("fine")
    """
    done = run_script(script)

    assert (done.stdout, done.returncode) == ("fine\n", 0), done.stdout + done.stderr


def test_nothing_is_said_and_no_thread_is_started_by_importing() -> None:
    done = run_script("import threading, pocketmq.client; assert threading.active_count() == 1")

    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)


def test_async_and_blocking_producers_work_side_by_side(producer: Producer, server: Server) -> None:
    async def main() -> bool:
        async with AsyncProducer(server.name_server, group="PG_async") as other:
            return (await other.send("Blocking", b"x")).is_ok

    assert asyncio.run(main())
    assert producer.send("Blocking", b"x").is_ok

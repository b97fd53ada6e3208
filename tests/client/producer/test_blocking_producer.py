"""The blocking producer against a real broker in this process."""

import asyncio
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from typing import Any

import pytest
from tests.client.topics import queues_of

from pocketmq import Server
from pocketmq.client import Producer, TransactionState, blocking
from pocketmq.client.lifecycle import SharedPortal
from pocketmq.client.producer.blocking_producer import _Submitted
from pocketmq.client.producer.queue_choice import ANY_QUEUE
from pocketmq.errors import InvalidSetting, NetworkError, TopicNotFound, UsageError, WrongState
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


def test_a_message_is_stored(producer: Producer) -> None:
    result = producer.send("Blocking", b"hello", keys="k1", tags="A")

    assert result.is_ok
    assert result.queue.topic == "Blocking"
    assert producer.settings.group == "PG_blocking"
    assert "@" in producer.client_id
    assert producer.in_flight == 0


def test_messages_are_in_flight_from_the_call_on(server: Server) -> None:
    producer = Producer(server.name_server, group="PG_flight")
    assert producer.in_flight == 0

    go_on = threading.Event()

    async def hold_the_loop_up() -> None:
        go_on.wait()  # sends are rejected meanwhile

    with producer:
        producer._portal.submit(hold_the_loop_up())
        futures = [producer.submit("Flight", b"1") for _ in range(10)]
        in_flight = producer.in_flight
        go_on.set()
        for future in futures:
            future.result(10)

    assert in_flight == 10
    assert producer.in_flight == 0


def test_every_method_of_sending_works(producer: Producer) -> None:
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


def test_eight_threads_share_a_producer(producer: Producer) -> None:
    def work(number: int) -> list[int]:
        queue = MessageQueue("Threads", "broker-a", number % 4)
        return [producer.send("Threads", b"%d %d" % (number, n), queue=queue).queue_offset for n in range(20)]

    producer.send("Threads", b"first")
    with ThreadPoolExecutor(8) as pool:
        offsets = list(pool.map(work, range(8)))

    assert all(own == sorted(own) for own in offsets), "a thread's messages keep their order"
    assert len({(number % 4, offset) for number, own in enumerate(offsets) for offset in own}) == 160


def test_submitting_waits_for_the_limit_and_keeps_the_order(server: Server) -> None:
    with Producer(server.name_server, group="PG_room", max_in_flight_messages=5) as producer:
        producer.send("InFlightLimit", b"first")
        queue = queues_of(producer, "InFlightLimit")[1]

        futures = [producer.submit("InFlightLimit", b"%d" % n, queue=queue) for n in range(200)]
        offsets = [future.result(10).queue_offset for future in futures]

        assert offsets == sorted(offsets)
        assert len(set(offsets)) == 200


def test_submitting_an_impossible_message_fails(producer: Producer) -> None:
    future = producer.submit("Blocking", b"")
    with pytest.raises(ValueError, match="the body is empty"):
        future.result(10)
    assert isinstance(
        producer.submit("Blocking", b"x", queue=MessageQueue("Blocking", "no", 0)).exception(10), NetworkError
    )
    assert producer.submit("Blocking", b"x").result(10).is_ok


def test_a_failing_selector_fails_the_submitted_message(producer: Producer) -> None:
    def no_queue(queues: Sequence[MessageQueue], message: Message, key: object) -> MessageQueue:
        raise ZeroDivisionError

    producer.send("Blocking", b"finds the route")
    assert isinstance(producer.submit("Blocking", b"x", selector=no_queue).exception(10), ZeroDivisionError)


def test_a_send_does_not_overtake_submitted_messages_to_its_queue(producer: Producer) -> None:
    producer.send("Blocking", b"finds the route")
    queue = queues_of(producer, "Blocking")[0]
    producer.send("Blocking", b"has a line", queue=queue)
    loop_goes_on = threading.Event()
    loop = producer.call(running_loop())
    loop.call_soon_threadsafe(loop_goes_on.wait, 20)

    submitted = producer.submit("Blocking", b"first", queue=queue)
    with ThreadPoolExecutor(1) as pool:
        sent = pool.submit(producer.send, "Blocking", b"second", queue=queue)
        wait([sent], 0.2)
        loop_goes_on.set()

    assert submitted.result(10).queue_offset + 1 == sent.result(10).queue_offset


async def running_loop() -> asyncio.AbstractEventLoop:
    return asyncio.get_running_loop()


def test_messages_not_sent_before_the_stop_fail(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        blocking, "SHARED_PORTAL", SharedPortal()
    )  # its loop ends with this producer, although others run now
    producer = Producer(server.name_server, group="PG_late", max_in_flight_messages=3)
    producer.start()
    producer.send("Blocking", b"x")
    late = [handed_over() for _ in range(3)]
    late[0].future.cancel()

    mailbox = producer._mailbox
    assert mailbox is not None
    loop = mailbox._loop
    mailbox._schedule = lambda: None  # type: ignore[method-assign]  # as if the loop had just looked for the last time
    for handed in late:
        mailbox.put(handed)
    producer.stop()

    assert loop.is_closed()
    assert [type(one.future.exception(1)) for one in late[1:]] == [WrongState, WrongState]
    with pytest.raises(WrongState):
        producer.submit("Blocking", b"x")


def handed_over() -> _Submitted:
    return _Submitted(Message("Blocking", b"x"), ANY_QUEUE, None, Future())


def test_linger_forms_batches_of_messages_from_threads(server: Server) -> None:
    with Producer(server.name_server, group="PG_linger", linger_ms=20) as producer:
        futures = [producer.submit("Linger", b"%d" % n) for n in range(100)]

        assert len({future.result(10).offset_id for future in futures}) == 100


def test_a_transaction_can_be_a_with_block(server: Server) -> None:
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


def test_a_transaction_listener_executes_in_the_sending_thread(server: Server) -> None:
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
    with pytest.raises(TimeoutError, match=r"no reply arrived within 0.3 s"):
        producer.request("Ask", b"anybody?", timeout_s=0.3)


def test_errors_equal_those_of_the_async_producer(producer: Producer) -> None:
    with pytest.raises(TopicNotFound):
        producer.queues("NoSuchTopic")
    with pytest.raises(ValueError, match="the body is empty"):
        producer.send("Blocking", b"")
    with pytest.raises(InvalidSetting, match="did you mean 'retries'"):
        Producer("a:1", retry=1)  # type: ignore[call-arg]


@pytest.mark.parametrize("timeout_s", ["3", float("nan")])
def test_a_timeout_that_is_not_a_number_of_seconds_is_refused(producer: Producer, timeout_s: Any) -> None:
    for call in (producer.send, producer.submit, producer.request):
        with pytest.raises(UsageError, match=r"timeout_s = .* must be a number of seconds"):
            call("Blocking", b"1", timeout_s=timeout_s)

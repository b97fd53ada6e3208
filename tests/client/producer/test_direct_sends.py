"""Direct sends of threads: the same results as the loop's, failures, and closed connections."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path

import pytest

from pocketmq import Server
from pocketmq.client import Hooks, Producer, SendEvent
from pocketmq.client.cluster.identity import unique_ids
from pocketmq.client.producer import blocking_producer
from pocketmq.client.producer.blocking_producer import DirectSends, Failed
from pocketmq.client.producer.outbox import Outbox
from pocketmq.client.producer.outgoing import Outgoing, Packer
from pocketmq.client.producer.queue_choice import ANY_QUEUE, Destination
from pocketmq.client.settings import ProducerSettings
from pocketmq.clock import Clock, SystemClock
from pocketmq.errors import PocketMQError
from pocketmq.model.message import Message
from pocketmq.model.queue import MessageQueue
from pocketmq.net.address import Address
from pocketmq.net.blocking import BlockingConnection
from pocketmq.protocol.command import Command
from pocketmq.testing import FakeClock


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with Server(tmp_path / "data") as server:
        yield server


@contextmanager
def closing_after(producer: Producer) -> Iterator[None]:
    try:
        yield
    finally:
        producer.stop()


def connections(producer: Producer) -> dict[Address, int]:
    assert producer._direct is not None
    return producer._direct.connections.open_connections()


def test_a_waiting_thread_uses_its_own_connection(server: Server) -> None:
    with Producer(server.name_server) as producer:
        producer.send("T", b"finds the route")
        assert connections(producer) == {}
        for _ in range(3):
            assert producer.send("T", b"x").is_ok
        assert connections(producer) == {Address.parse(server.broker_address): 1}
    assert connections(producer) == {Address.parse(server.broker_address): 1}, "as it was when it stopped"


def test_threads_do_not_use_a_connection_at_the_same_time(server: Server) -> None:
    with Producer(server.name_server) as producer:
        producer.send("T", b"finds the route")
        start = threading.Barrier(6)

        def work(_: int) -> list[str]:
            start.wait()
            return [producer.send("T", b"x").offset_id for _ in range(30)]

        with ThreadPoolExecutor(6) as pool:
            ids = [one for own in pool.map(work, range(6)) for one in own]

        assert len(set(ids)) == 180
        (count,) = connections(producer).values()
        assert 1 <= count <= 6


def test_if_all_connections_are_busy_the_loop_sends(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocking_producer, "MAX_CONNECTIONS", 0)
    with Producer(server.name_server) as producer:
        for _ in range(5):
            assert producer.send("T", b"x").is_ok
        assert connections(producer) == {}


def test_hooks_linger_and_stop_use_the_loop(server: Server) -> None:
    watched: list[SendEvent] = []

    class Watching(Hooks):
        def after_send(self, event: SendEvent) -> None:
            watched.append(event)

    with Producer(server.name_server, hooks=[Watching()]) as producer:
        for _ in range(3):
            producer.send("T", b"x")
        assert connections(producer) == {}
    assert len(watched) == 3
    with Producer(server.name_server, linger_ms=1) as producer:
        for _ in range(3):
            producer.send("T", b"x")
        assert connections(producer) == {}


def test_connecting_takes_no_longer_than_the_timeout_of_the_send(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    passing = FakeClock()
    times: list[float] = []

    class Timed(BlockingConnection):
        def __init__(self, address: Address, clock: Clock, *, connect_s: float) -> None:
            times.append(connect_s)
            passing.advance_ms(150)
            super().__init__(address, clock, connect_s=3)

        def exchange(self, number: int, frame: bytes, timeout_s: float, *, watches: bool = False) -> Command:
            times.append(timeout_s)
            return super().exchange(number, frame, 3)

    monkeypatch.setattr(blocking_producer, "BlockingConnection", Timed)
    with Producer(server.name_server, connect_timeout_ms=2_000) as producer:
        producer.send("T", b"finds the route")
        producer._direct = DirectSends(producer.core().member.outbox, passing, connect_s=2.0)
        for _ in range(2):
            assert producer.send("T", b"x", timeout_s=0.4).is_ok

    assert times == [0.4, pytest.approx(0.25), 0.4], "the connecting is part of the first send"


def test_a_refusal_raises_the_same_error_and_keeps_the_connection(server: Server) -> None:
    with Producer(server.name_server, retries=0, max_message_bytes=16_000_000) as producer:
        producer.send("T", b"finds the route")
        for _ in range(2):
            with pytest.raises(PocketMQError):
                producer.send("T", b"x", delay_ms=10**10)
        assert producer.send("T", b"x").is_ok
        assert list(connections(producer).values()) == [1]


def test_a_recovered_broker_is_used_again(tmp_path: Path) -> None:
    with Server(tmp_path / "one") as first:
        port = int(first.broker_address.rpartition(":")[2])
        name_port = int(first.name_server.rpartition(":")[2])
        producer = Producer(first.name_server, send_timeout_ms=5_000)
        producer.start()
        producer.send("T", b"finds the route")
        producer.send("T", b"x")
    with pytest.raises(PocketMQError):
        producer.send("T", b"nobody is there")
    with Server(tmp_path / "one", broker_port=port, name_server_port=name_port):
        results = []
        for _ in range(100):
            try:
                results.append(producer.send("T", b"again"))
                break
            except PocketMQError:
                threading.Event().wait(0.1)
        assert results[0].is_ok
        producer.stop()


def test_a_thread_waits_for_a_restarting_broker_and_opens_a_new_connection(tmp_path: Path) -> None:
    with Server(tmp_path / "data") as first:
        name_server_port = Address.parse(first.name_server).port
        broker_port = Address.parse(first.broker_address).port
        producer = Producer(first.name_server, send_timeout_ms=20_000)
        producer.start()
        producer.send("T", b"finds the route")
        producer.send("T", b"over a line of its own")
    with closing_after(producer), ThreadPoolExecutor(4) as pool:
        waiting = [pool.submit(producer.send, "T", b"while it was away") for _ in range(4)]
        assert not wait(waiting, 0.7).done, "nobody listens"
        with Server(tmp_path / "data", name_server_port=name_server_port, broker_port=broker_port) as second:
            assert all(sent.result(20).is_ok for sent in waiting)
            assert producer.send("T", b"x").is_ok
            assert connections(producer).keys() == {Address.parse(second.broker_address)}


def test_threads_do_not_connect_to_a_failed_address_before_the_loop_has_a_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    connected = False
    tries: list[Address] = []

    class FixedTarget(Outbox):
        def __init__(self) -> None:
            self.packer = Packer(ProducerSettings(), unique_ids("127.0.0.1"), SystemClock())
            self.timeout_s = 1.0

        def direct_target(self, out: Outgoing, destination: Destination) -> tuple[MessageQueue, Address]:
            return MessageQueue("T", "broker-a", 0), Address("127.0.0.1", 1)

        def is_connected(self, address: Address) -> bool:
            return connected

    direct = DirectSends(FixedTarget(), SystemClock(), connect_s=1)
    take = direct.connections.take

    def counted(address: Address, within_s: float = 1.0) -> BlockingConnection | None:
        tries.append(address)
        return take(address, within_s)

    monkeypatch.setattr(direct.connections, "take", counted)
    message = Message("T", b"x")

    assert isinstance(direct.attempt(message, ANY_QUEUE), Failed)
    assert direct.attempt(message, ANY_QUEUE) is None
    assert len(tries) == 1
    connected = True
    assert isinstance(direct.attempt(message, ANY_QUEUE), Failed)
    assert len(tries) == 2

"""A connection for one thread at a time, over TCP."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from pocketmq.clock import SystemClock
from pocketmq.errors import CallTimedOut, ConnectFailed, ConnectionLost, ProtocolError
from pocketmq.net.address import Address
from pocketmq.net.blocking import FRESH_S, BlockingConnection
from pocketmq.protocol.command import RESPONSE, Command, encode_command
from pocketmq.testing import FakeClock

Behaviour = Callable[[socket.socket], None]


@contextmanager
def served(behave: Behaviour) -> Iterator[Address]:
    """A server that accepts one connection and behaves in this way."""
    door = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        connection, _ = door.accept()
        with connection:
            behave(connection)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield Address(*door.getsockname()[:2])
    finally:
        thread.join(10)
        door.close()


def answer(number: int, body: bytes = b"") -> bytes:
    return encode_command(Command(0, flag=RESPONSE, opaque=number, body=body))


def ask(connection: BlockingConnection, timeout_s: float = 5) -> Command:
    number = connection.next_number()
    return connection.exchange(number, encode_command(Command(310, opaque=number)), timeout_s)


def wait_for_the_end(connection: socket.socket) -> None:
    while connection.recv(65536):
        pass


def test_a_request_gets_only_its_own_answer() -> None:
    def behave(connection: socket.socket) -> None:
        for number in (1, 2):
            connection.recv(65536)
            late, request = answer(77), encode_command(Command(40, opaque=number))
            whole = late + request + answer(number, b"%d" % number)
            connection.sendall(whole[:10])
            connection.sendall(whole[10:])
        wait_for_the_end(connection)

    with served(behave) as address:
        connection = BlockingConnection(address, SystemClock(), connect_s=3)
        assert [ask(connection).body, ask(connection).body] == [b"1", b"2"]
        assert connection.is_open
        connection.close()
        connection.close()
        assert not connection.is_open


def test_a_missing_answer_closes_the_connection() -> None:
    with served(wait_for_the_end) as address:
        connection = BlockingConnection(address, SystemClock(), connect_s=3)
        with pytest.raises(CallTimedOut, match=r"no response within 0.1 s; the request may have been executed"):
            ask(connection, 0.1)
        assert not connection.is_open
        assert not connection.is_usable()


@pytest.mark.parametrize("timeout_s", [0, -1])
def test_without_a_timeout_a_call_does_not_wait_for_an_answer(timeout_s: float) -> None:
    with served(wait_for_the_end) as address:
        connection = BlockingConnection(address, SystemClock(), connect_s=5)
        with pytest.raises(CallTimedOut, match=f"no response within {timeout_s} s"):
            ask(connection, timeout_s)
        assert not connection.is_open


def test_a_lost_connection_is_reported() -> None:
    def behave(connection: socket.socket) -> None:
        connection.recv(65536)

    with served(behave) as address:
        connection = BlockingConnection(address, SystemClock(), connect_s=3)
        with pytest.raises(ConnectionLost):
            ask(connection)
        assert not connection.is_open


def test_invalid_bytes_close_the_connection() -> None:
    def behave(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        wait_for_the_end(connection)

    with served(behave) as address:
        connection = BlockingConnection(address, SystemClock(), connect_s=3)
        with pytest.raises(ProtocolError):
            ask(connection)
        assert not connection.is_open


def test_an_unreachable_address_is_reported() -> None:
    with socket.create_server(("127.0.0.1", 0)) as door:
        address = Address(*door.getsockname()[:2])
    with pytest.raises(ConnectFailed, match=r"Connection refused"):
        BlockingConnection(address, SystemClock(), connect_s=3)
    with pytest.raises(ConnectFailed):
        BlockingConnection(Address("no such host \x00", 1), SystemClock(), connect_s=3)


def test_an_old_connection_is_checked_before_it_is_used() -> None:
    hung_up = threading.Event()

    def behave(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(answer(1))
        hung_up.wait(10)

    clock = FakeClock()
    with served(behave) as address:
        connection = BlockingConnection(address, clock, connect_s=3)
        ask(connection)
        clock.advance_ms(int(FRESH_S * 1000) - 1)
        assert connection.is_usable()
        clock.advance_ms(1)
        assert connection.is_usable(), "nothing has happened to it"
        hung_up.set()
    assert not connection.is_usable()
    connection.close()

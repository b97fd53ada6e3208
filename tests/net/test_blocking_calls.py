"""A connection for one thread that sends requests ahead, over TCP."""

import socket
import threading

import pytest
from tests.net.test_blocking_connection import Behaviour, answer, served, wait_for_the_end

from pocketmq.clock import SystemClock
from pocketmq.errors import CallTimedOut, ConnectionLost, ProtocolError
from pocketmq.net.blocking import HEAD_BYTES, BlockingCalls
from pocketmq.protocol.command import RESPONSE, Command, encode_command
from pocketmq.testing import FakeClock


def says(*pieces: bytes) -> Behaviour:
    """Waits for a request, sends these pieces, and continues to listen."""

    def behave(connection: socket.socket) -> None:
        connection.recv(65536)
        for piece in pieces:
            connection.sendall(piece)
        wait_for_the_end(connection)

    return behave


def taken(connection: BlockingCalls, timeout_s: float = 5) -> tuple[int, bytes]:
    head, size = connection.head(timeout_s)
    body = bytearray(size)
    connection.body_into(memoryview(body), timeout_s)
    return head.opaque, bytes(body)


def request() -> bytes:
    return encode_command(Command(11, opaque=1))


BODIES = [b"", b"a", bytes(range(256)) * 8, b"x" * HEAD_BYTES, b"yz" * 100_000, b"", b"the last one"]


@pytest.mark.parametrize("at_once", [1_000_000, 65_536, HEAD_BYTES, 1_001])
def test_answers_are_complete_in_any_segmentation(at_once: int) -> None:
    stream = b"".join(answer(number, body) for number, body in enumerate(BODIES))
    pieces = [stream[at : at + at_once] for at in range(0, len(stream), at_once)]

    with served(says(*pieces)) as address:
        connection = BlockingCalls(address, SystemClock(), connect_s=3)
        connection.send(request(), 5)
        found = [taken(connection) for _ in BODIES]
        assert connection.is_usable()
        connection.close()

    assert found == list(enumerate(BODIES))


def test_a_header_longer_than_what_is_read_at_once_is_read() -> None:
    long = encode_command(Command(0, {"remark": "r" * 3 * HEAD_BYTES}, b"body", flag=RESPONSE, opaque=7))

    with served(says(answer(6, b"before") + long + answer(8))) as address:
        connection = BlockingCalls(address, SystemClock(), connect_s=3)
        connection.send(request(), 5)
        found = [taken(connection) for _ in range(3)]
        connection.close()

    assert found == [(6, b"before"), (7, b"body"), (8, b"")]


@pytest.mark.parametrize(
    "said",
    [
        pytest.param(b"HTTP/1.1 400 Bad Request\r\n\r\n", id="no frame"),
        pytest.param(b"\x00\x00\x00\x02\x00\x00\x00\x00", id="shorter than its own header length"),
        pytest.param(b"\x7f\xff\xff\xff\x00\x00\x00\x10", id="longer than frames may be"),
        pytest.param(b"\x00\x00\x00\x08\x00\x00\x00\x10", id="a header longer than its frame"),
        pytest.param(b"\x00\x00\x00\x08\x00\x00\x00\x04nope", id="an invalid header"),
    ],
)
def test_invalid_bytes_close_the_connection(said: bytes) -> None:
    with served(says(said)) as address:
        connection = BlockingCalls(address, SystemClock(), connect_s=3)
        connection.send(request(), 5)
        with pytest.raises(ProtocolError):
            connection.head(5)
        assert not connection.is_open


@pytest.mark.parametrize("said", [b"", answer(1, b"a body")[:9], answer(1, b"a body")[:-1]])
def test_a_late_answer_closes_the_connection(said: bytes) -> None:
    with served(says(said)) as address:
        connection = BlockingCalls(address, SystemClock(), connect_s=3)
        connection.send(request(), 5)
        with pytest.raises(CallTimedOut, match=r"no response within 0.2 s"):
            taken(connection, 0.2)
        assert not connection.is_open


def test_a_peer_that_does_not_read_requests_is_disconnected() -> None:
    is_over = threading.Event()

    def does_not_read(_: socket.socket) -> None:
        is_over.wait(10)

    with served(does_not_read) as address:
        connection = BlockingCalls(address, SystemClock(), connect_s=3)
        with pytest.raises(CallTimedOut, match=r"no response within 0.2 s"):
            connection.send(bytes(64 << 20), 0.2)
        is_over.set()
        assert not connection.is_open


def test_an_idle_connection_is_checked_before_its_next_use() -> None:
    clock = FakeClock()

    with served(says(answer(1, b"a body"), answer(2, b"another"))) as address:
        connection = BlockingCalls(address, clock, connect_s=3)
        connection.send(request(), 5)
        assert taken(connection) == (1, b"a body")
        clock.advance_ms(60_000)
        assert connection.is_usable()
        assert taken(connection) == (2, b"another")
        clock.advance_ms(60_000)
        assert connection.is_usable()
        connection.close()
        assert not connection.is_usable()


@pytest.mark.parametrize("sent", [0, 5, 40, -1])
def test_a_lost_connection_is_reported(sent: int) -> None:
    def behave(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(answer(1, b"a body")[:sent])

    with served(behave) as address:
        connection = BlockingCalls(address, SystemClock(), connect_s=3)
        connection.send(request(), 5)
        with pytest.raises(ConnectionLost):
            taken(connection)
        assert not connection.is_open
        with pytest.raises(ConnectionLost):
            connection.send(request(), 5)

"""Direct pulls: each response reaches its receiver, and errors reach all receivers of the connection."""

import socket
from collections.abc import Callable

import pytest
from tests.net.test_blocking_connection import served, wait_for_the_end
from tests.spark.made_records import made

from pocketmq.client.consumer.direct_pulls import MAX_CONNECTIONS, DirectPulls, connections_for_pulls
from pocketmq.client.received import Pulled, pulled_of
from pocketmq.clock import SystemClock
from pocketmq.codes import ResponseCode
from pocketmq.errors import ConnectFailed, ConnectionLost, PocketMQError, TooManyCalls
from pocketmq.model.queue import MessageQueue
from pocketmq.model.subscription import Subscription
from pocketmq.net.address import Address
from pocketmq.protocol.command import RESPONSE, Command, encode_command

QUEUE = MessageQueue("orders", "broker-a", 0)
ALL = Subscription.parse("orders")


class Pulls:
    """As `Pulling`, for one broker."""

    def __init__(self, address: Address) -> None:
        self._address = address

    def address_of(self, queue: MessageQueue) -> Address:
        return self._address

    def frame(
        self, queue: MessageQueue, offset: int, subscription: Subscription, limit: int, more_flags: int, number: int
    ) -> bytes:
        return encode_command(Command(11, {"at": str(offset)}, opaque=number))

    def parse_records(self, queue: MessageQueue, answer: Command) -> Pulled:
        return pulled_of(answer)


class Receiver:
    """Records its answers."""

    def __init__(self) -> None:
        self.body = bytearray()
        self.offsets: tuple[int, int, int] | None = None
        self.failure: PocketMQError | None = None

    def buffer(self, size: int) -> memoryview:
        self.body = bytearray(size)
        return memoryview(self.body)

    def received(self, next_offset: int, min_offset: int, max_offset: int) -> None:
        self.offsets = (next_offset, min_offset, max_offset)

    def fail(self, error: PocketMQError) -> None:
        self.failure = error


def answer(number: int, body: bytes, code: int = 0, next_offset: int = 0) -> bytes:
    offsets = {"nextBeginOffset": next_offset, "minOffset": 0, "maxOffset": 100, "suggestWhichBrokerId": 0}
    fields = {name: str(value) for name, value in offsets.items()}
    return encode_command(Command(code, fields, body, flag=RESPONSE, opaque=number))


def after_requests(count: int, then: Callable[[socket.socket], None]) -> Callable[[socket.socket], None]:
    def behave(connection: socket.socket) -> None:
        seen = b""
        while seen.count(b'"code"') < count:
            seen += connection.recv(65536)
        then(connection)

    return behave


def sent(pulls: DirectPulls, count: int) -> list[Receiver]:
    receivers = [Receiver() for _ in range(count)]
    for number, receiver in enumerate(receivers):
        pulls.send(receiver, QUEUE, number * 10, ALL, 10)
    return receivers


def test_answers_find_their_receivers_in_any_order() -> None:
    def behave(connection: socket.socket) -> None:
        strangers = answer(77, b"late") + encode_command(Command(40, opaque=2, body=b"asks"))
        connection.sendall(strangers + b"".join(answer(n, b"%d" % n, next_offset=n) for n in (3, 1, 2)))
        wait_for_the_end(connection)

    with served(after_requests(3, behave)) as address:
        connections = connections_for_pulls(SystemClock(), connect_s=3)
        pulls = DirectPulls(Pulls(address), connections, timeout_s=5)  # type: ignore[arg-type]
        receivers = sent(pulls, 3)
        for receiver in receivers:
            while receiver.offsets is None:
                pulls.receive(receiver)
        pulls.close()
        connections.close()

    assert [(bytes(receiver.body), receiver.offsets) for receiver in receivers] == [
        (b"1", (1, 0, 100)),
        (b"2", (2, 0, 100)),
        (b"3", (3, 0, 100)),
    ]


def test_a_refusal_fails_only_its_receiver() -> None:
    def behave(connection: socket.socket) -> None:
        connection.sendall(answer(1, b"", ResponseCode.NO_PERMISSION) + answer(2, b"two", next_offset=7))
        wait_for_the_end(connection)

    with served(after_requests(2, behave)) as address:
        connections = connections_for_pulls(SystemClock(), connect_s=3)
        pulls = DirectPulls(Pulls(address), connections, timeout_s=5)  # type: ignore[arg-type]
        first, second = sent(pulls, 2)
        pulls.receive(first)
        pulls.receive(second)
        pulls.close()
        connections.close()

    assert first.failure is not None
    assert second.offsets == (7, 0, 100)


def test_a_reset_group_does_not_skip_existing_messages() -> None:
    def behave(connection: socket.socket) -> None:
        connection.sendall(answer(1, b"", ResponseCode.PULL_OFFSET_MOVED, next_offset=90))
        wait_for_the_end(connection)

    with served(after_requests(1, behave)) as address:
        connections = connections_for_pulls(SystemClock(), connect_s=3)
        pulls = DirectPulls(Pulls(address), connections, timeout_s=5)  # type: ignore[arg-type]
        (receiver,) = sent(pulls, 1)
        pulls.receive(receiver)
        pulls.close()
        connections.close()

    assert (receiver.offsets, receiver.failure is None) == (None, False)


def led_to_seven(code: int, body: bytes, expression: str) -> Receiver:
    """The receivers of all messages from 0 on, or of some, after this answer that continues at 7."""

    def behave(connection: socket.socket) -> None:
        connection.sendall(answer(1, body, code, next_offset=7))
        wait_for_the_end(connection)

    receiver = Receiver()
    with served(after_requests(1, behave)) as address:
        connections = connections_for_pulls(SystemClock(), connect_s=3)
        pulls = DirectPulls(Pulls(address), connections, timeout_s=5)  # type: ignore[arg-type]
        pulls.send(receiver, QUEUE, 0, Subscription.parse("orders", expression), 10)
        pulls.receive(receiver)
        pulls.close()
        connections.close()
    return receiver


@pytest.mark.parametrize(
    ("code", "body", "is_taken"),
    [
        (ResponseCode.SUCCESS, made(0, b"wanted"), True),
        (ResponseCode.SUCCESS, made(5, b"behind"), False),
        (ResponseCode.SUCCESS, made(5, b"behind", topic="t" * 200), False),
        (ResponseCode.PULL_RETRY_IMMEDIATELY, b"", False),
    ],
    ids=["at the offset", "behind it", "behind it, of version 2", "nothing"],
)
@pytest.mark.parametrize("expression", ["*", "A"])
def test_only_a_filtered_pull_may_skip_messages(code: int, body: bytes, is_taken: bool, expression: str) -> None:
    receiver = led_to_seven(code, body, expression)

    assert (receiver.offsets is not None) == (is_taken or expression == "A")
    assert (receiver.failure is None) == (receiver.offsets is not None)


@pytest.mark.parametrize("expression", ["*", "A"])
def test_no_pull_skips_a_hole_in_the_queue(expression: str) -> None:
    receiver = led_to_seven(ResponseCode.PULL_NOT_FOUND, b"", expression)

    assert receiver.offsets is None
    assert "gap" in str(receiver.failure)


def test_a_lost_connection_fails_all_its_receivers() -> None:
    connections = connections_for_pulls(SystemClock(), connect_s=3)
    with served(after_requests(3, lambda connection: connection.sendall(answer(1, b"one")[:-1]))) as address:
        pulls = DirectPulls(Pulls(address), connections, timeout_s=5)  # type: ignore[arg-type]
        receivers = sent(pulls, 3)
        pulls.receive(receivers[0])
        pulls.close()

    assert connections.open_connections() == {}
    assert all(isinstance(receiver.failure, ConnectionLost) for receiver in receivers)


def test_an_unreachable_broker_fails_the_receiver() -> None:
    with socket.create_server(("127.0.0.1", 0)) as door:
        nobody = Address(*door.getsockname()[:2])
    connections = connections_for_pulls(SystemClock(), connect_s=3)

    (refused,) = sent(DirectPulls(Pulls(nobody), connections, timeout_s=5), 1)  # type: ignore[arg-type]

    assert isinstance(refused.failure, ConnectFailed)


@pytest.mark.parametrize("awaited", [0, 1])
def test_only_a_connection_without_pending_responses_is_reused(awaited: int) -> None:
    def behave(connection: socket.socket) -> None:
        connection.sendall(answer(1, b"one"))
        wait_for_the_end(connection)

    with served(after_requests(1 + awaited, behave)) as address:
        connections = connections_for_pulls(SystemClock(), connect_s=3)
        pulls = DirectPulls(Pulls(address), connections, timeout_s=5)  # type: ignore[arg-type]
        receivers = sent(pulls, 1 + awaited)
        connection = pulls._pending[address].connection
        pulls.receive(receivers[0])
        pulls.close()

        assert connection.is_open is not bool(awaited)
        if not awaited:
            assert connections.take(address) is connection
            connections.close()
            connections.give(connection)
            assert not connection.is_open, "given back too late"


def test_a_pull_fails_when_all_connections_are_busy() -> None:
    with socket.create_server(("127.0.0.1", 0)) as door:
        address = Address(*door.getsockname()[:2])
        connections = connections_for_pulls(SystemClock(), connect_s=3)
        taken = [connections.take(address) for _ in range(MAX_CONNECTIONS)]

        (refused,) = sent(DirectPulls(Pulls(address), connections, timeout_s=5), 1)  # type: ignore[arg-type]

        assert isinstance(refused.failure, TooManyCalls)
        for connection in taken:
            assert connection is not None
            connections.give(connection)
        connections.close()

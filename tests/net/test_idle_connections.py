"""Lines that are kept for the next thread."""

import socket
from collections.abc import Iterator

import pytest

from pocketmq.clock import SystemClock
from pocketmq.errors import ConnectFailed
from pocketmq.net.address import Address
from pocketmq.net.blocking import FRESH_S, BlockingConnection, IdleConnections
from pocketmq.testing import FakeClock

MOST = 3


@pytest.fixture
def door() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as door:
        yield door


@pytest.fixture
def address(door: socket.socket) -> Address:
    return Address(*door.getsockname()[:2])


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def connections(clock: FakeClock) -> Iterator[IdleConnections[BlockingConnection]]:
    connections = IdleConnections(lambda address, _: BlockingConnection(address, clock, connect_s=3), most=MOST)
    yield connections
    connections.close()


def in_use(connections: IdleConnections[BlockingConnection], address: Address) -> BlockingConnection:
    connection = connections.take(address)
    assert connection is not None
    return connection


def test_the_most_recently_used_connection_is_used_first(
    connections: IdleConnections[BlockingConnection], address: Address
) -> None:
    first, second = in_use(connections, address), in_use(connections, address)
    assert (first is not second, connections.in_use) == (True, 2)

    connections.give(second)
    connections.give(first)

    assert in_use(connections, address) is first
    assert in_use(connections, address) is second
    connections.give(first)
    connections.give(second)
    assert connections.in_use == 0


def test_above_the_limit_a_connection_must_be_returned_first(
    connections: IdleConnections[BlockingConnection], address: Address
) -> None:
    used = [in_use(connections, address) for _ in range(MOST)]
    assert connections.take(address) is None
    assert connections.open_connections() == {address: MOST}

    used[0].close()
    connections.give(used[0])

    assert connections.open_connections() == {address: MOST - 1}
    used[0] = in_use(connections, address)
    for connection in used:
        connections.give(connection)


def test_an_idle_connection_closed_by_the_peer_is_replaced(
    connections: IdleConnections[BlockingConnection], address: Address, door: socket.socket, clock: FakeClock
) -> None:
    connection = in_use(connections, address)
    door.accept()[0].close()
    connections.give(connection)
    clock.advance_ms(int(FRESH_S * 1000))
    connection._socket.settimeout(3)
    assert connection._socket.recv(1, socket.MSG_PEEK) == b"", "the end has arrived"
    connection._limit_s = 3

    other = in_use(connections, address)

    assert (other is connection, connection.is_open) == (False, False)
    assert connections.open_connections() == {address: 1}
    connections.give(other)


def test_closed_connections_to_other_addresses_are_removed_when_a_new_one_is_opened(
    connections: IdleConnections[BlockingConnection], address: Address, clock: FakeClock
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other_door:
        elsewhere = Address(*other_door.getsockname()[:2])
        dead, alive = in_use(connections, elsewhere), in_use(connections, elsewhere)
        ends = [other_door.accept()[0] for _ in range(2)]
        connections.give(dead)
        connections.give(alive)
        ends[0].close()
        dead._socket.settimeout(3)
        assert dead._socket.recv(1, socket.MSG_PEEK) == b"", "the end has arrived"
        dead._limit_s = 3
        clock.advance_ms(int(FRESH_S * 1000))

        connections.give(in_use(connections, address))

        assert (dead.is_open, alive.is_open) == (False, True)
        assert connections.open_connections() == {address: 1, elsewhere: 1}
        ends[1].close()


def test_a_failed_connection_is_not_counted(connections: IdleConnections[BlockingConnection]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as door:
        nobody = Address(*door.getsockname()[:2])
    for _ in range(MOST + 1):
        with pytest.raises(ConnectFailed):
            connections.take(nobody)
    assert (connections.in_use, connections.open_connections()) == (0, {})


def test_after_the_close_returned_connections_are_closed(
    connections: IdleConnections[BlockingConnection], address: Address
) -> None:
    used, spare = in_use(connections, address), in_use(connections, address)
    connections.give(spare)

    connections.close()
    connections.close()

    assert (used.is_open, spare.is_open) == (True, False)
    connections.give(used)
    assert not used.is_open
    assert connections.take(address) is None


def test_idle_times_use_the_system_clock(address: Address) -> None:
    connections = IdleConnections(lambda address, _: BlockingConnection(address, SystemClock(), connect_s=3), most=1)
    connection = in_use(connections, address)
    connections.give(connection)
    assert in_use(connections, address) is connection
    connections.give(connection)
    connections.close()

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
def lines(clock: FakeClock) -> Iterator[IdleConnections[BlockingConnection]]:
    lines = IdleConnections(lambda address, _: BlockingConnection(address, clock, connect_s=3), most=MOST)
    yield lines
    lines.close()


def taken(lines: IdleConnections[BlockingConnection], address: Address) -> BlockingConnection:
    line = lines.take(address)
    assert line is not None
    return line


def test_the_line_that_was_used_last_is_taken_first(
    lines: IdleConnections[BlockingConnection], address: Address
) -> None:
    first, second = taken(lines, address), taken(lines, address)
    assert (first is not second, lines.taken) == (True, 2)

    lines.give(second)
    lines.give(first)

    assert taken(lines, address) is first
    assert taken(lines, address) is second
    lines.give(first)
    lines.give(second)
    assert lines.taken == 0


def test_when_so_many_are_in_use_there_is_none_until_one_is_given_back(
    lines: IdleConnections[BlockingConnection], address: Address
) -> None:
    used = [taken(lines, address) for _ in range(MOST)]
    assert lines.take(address) is None
    assert lines.open_connections() == {address: MOST}

    used[0].close()
    lines.give(used[0])

    assert lines.open_connections() == {address: MOST - 1}
    used[0] = taken(lines, address)
    for line in used:
        lines.give(line)


def test_a_spare_line_that_the_peer_has_closed_is_replaced(
    lines: IdleConnections[BlockingConnection], address: Address, door: socket.socket, clock: FakeClock
) -> None:
    line = taken(lines, address)
    door.accept()[0].close()
    lines.give(line)
    clock.advance_ms(int(FRESH_S * 1000))
    line._socket.settimeout(3)
    assert line._socket.recv(1, socket.MSG_PEEK) == b"", "the end has arrived"
    line._limit_s = 3

    other = taken(lines, address)

    assert (other is line, line.is_open) == (False, False)
    assert lines.open_connections() == {address: 1}
    lines.give(other)


def test_dead_lines_to_other_addresses_are_closed_when_a_new_one_is_made(
    lines: IdleConnections[BlockingConnection], address: Address, clock: FakeClock
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other_door:
        elsewhere = Address(*other_door.getsockname()[:2])
        dead, alive = taken(lines, elsewhere), taken(lines, elsewhere)
        ends = [other_door.accept()[0] for _ in range(2)]
        lines.give(dead)
        lines.give(alive)
        ends[0].close()
        dead._socket.settimeout(3)
        assert dead._socket.recv(1, socket.MSG_PEEK) == b"", "the end has arrived"
        dead._limit_s = 3
        clock.advance_ms(int(FRESH_S * 1000))

        lines.give(taken(lines, address))

        assert (dead.is_open, alive.is_open) == (False, True)
        assert lines.open_connections() == {address: 1, elsewhere: 1}
        ends[1].close()


def test_a_line_that_cannot_be_made_is_not_counted(lines: IdleConnections[BlockingConnection]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as door:
        nobody = Address(*door.getsockname()[:2])
    for _ in range(MOST + 1):
        with pytest.raises(ConnectFailed):
            lines.take(nobody)
    assert (lines.taken, lines.open_connections()) == (0, {})


def test_after_the_end_lines_are_closed_when_they_are_given_back(
    lines: IdleConnections[BlockingConnection], address: Address
) -> None:
    used, spare = taken(lines, address), taken(lines, address)
    lines.give(spare)

    lines.close()
    lines.close()

    assert (used.is_open, spare.is_open) == (True, False)
    lines.give(used)
    assert not used.is_open
    assert lines.take(address) is None


def test_lines_are_real_by_the_system_clock_too(address: Address) -> None:
    lines = IdleConnections(lambda address, _: BlockingConnection(address, SystemClock(), connect_s=3), most=1)
    line = taken(lines, address)
    lines.give(line)
    assert taken(lines, address) is line
    lines.give(line)
    lines.close()

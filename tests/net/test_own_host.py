"""The host name or address at which others reach a listener."""

import socket

import pytest

from pocketmq.net.address import Address, reachable


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "10.1.2.3", "broker.example"])
def test_a_server_on_one_address_advertises_it(host: str) -> None:
    assert reachable(Address(host, 9)) == Address(host, 9)


@pytest.mark.parametrize("host", ["0.0.0.0", ""])
def test_a_server_on_all_addresses_advertises_one_of_this_machine(host: str) -> None:
    with socket.create_server(("0.0.0.0", 0)) as server:
        found = reachable(Address(host, server.getsockname()[1]))

        assert found.host not in ("", "0.0.0.0")
        socket.create_connection(found, timeout=10).close()


def test_a_machine_without_a_network_advertises_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_route(*_: object) -> None:
        raise OSError("Network is unreachable")

    class Door(socket.socket):
        connect = no_route

    monkeypatch.setattr(socket, "socket", Door)

    assert reachable(Address("0.0.0.0", 9)) == Address("127.0.0.1", 9)
    assert reachable(Address("::", 9)) == Address("::1", 9)

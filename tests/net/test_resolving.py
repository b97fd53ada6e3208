"""Names of hosts become numbers."""

import asyncio
import socket

import pytest

from pocketmq.errors import ConnectFailed
from pocketmq.net.address import Address, resolved


@pytest.mark.parametrize("host", ["10.0.0.1", "::1"])
def test_an_ip_address_is_not_resolved(host: str) -> None:
    assert asyncio.run(resolved(Address(host, 10911))) == Address(host, 10911)


def test_a_name_becomes_its_address() -> None:
    found = asyncio.run(resolved(Address("localhost", 10911)))

    assert found.is_loopback
    assert found.host != "localhost"
    assert found.port == 10911


def test_an_unknown_name_is_reported() -> None:
    async def main() -> None:
        async def nobody(*_: object, **__: object) -> None:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

        asyncio.get_running_loop().getaddrinfo = nobody  # type: ignore[method-assign,assignment]
        with pytest.raises(ConnectFailed, match="nowhere:10911: cannot resolve the host name"):
            await resolved(Address("nowhere", 10911))

    asyncio.run(main())

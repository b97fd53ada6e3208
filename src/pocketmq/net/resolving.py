"""Names of hosts, for those who need the number: records and message ids hold no names."""

import asyncio
import socket
from ipaddress import ip_address

from pocketmq.errors import ConnectFailed
from pocketmq.net.address import Address


async def resolved(address: Address) -> Address:
    """The same place with an IP address for its host; ConnectFailed when nobody knows the name."""
    try:
        ip_address(address.host)
    except ValueError:
        pass
    else:
        return address
    try:
        found = await asyncio.get_running_loop().getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise ConnectFailed(f"{address}: nobody knows this name: {error}") from error
    host = found[0][4][0]
    assert isinstance(host, str)
    return Address(host, address.port)

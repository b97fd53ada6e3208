"""`host:port` addresses: parsing, resolving host names, and the address by which others reach this machine.

The own address comes from the operating system's routing table; nothing is sent. Records and message ids hold IP addresses only,
so host names are resolved before they get there.
"""

import asyncio
import socket
from ipaddress import ip_address
from typing import Final, NamedTuple, Self

from pocketmq.errors import ConnectFailed, InvalidSetting

LARGEST_PORT = 65_535


class Address(NamedTuple):
    """A host (name, IPv4 or IPv6) and a TCP port. For a listener, port 0 means any free port."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str, *, default_port: int | None = None) -> Self:
        """Parse `broker:10911`, `10.0.0.1:10911` or `[::1]:10911`. The port may be missing if there is a default."""
        scheme, is_url, rest = text.strip().partition("://")
        if is_url:
            plain = rest.partition("/")[0] or "host:port"
            raise InvalidSetting(f"address {text!r} is a URL, but RocketMQ does not speak {scheme}; write {plain!r}")
        host, port = _split(text.strip(), default_port)
        if not host:
            raise InvalidSetting(f"address {text!r} has no host; write it as host:port")
        if any(map(str.isspace, host)):
            raise InvalidSetting(f"address {text!r} has a space in its host; write it as host:port")
        if host.isascii() and host.isdigit():  # the system would take the number as an IPv4 address
            raise InvalidSetting(f"address {text!r} has the number {host} as its host; write it as host:port")
        if not (port.isascii() and port.isdigit()) or int(port) > LARGEST_PORT:
            raise InvalidSetting(f"address {text!r} has no port from 0 to {LARGEST_PORT}; write it as host:port")
        return cls(host, int(port))

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it. Host names other than `localhost` count as not loopback."""
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return self.host.lower() == "localhost"

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def _split(text: str, default_port: int | None) -> tuple[str, str]:
    fallback = "" if default_port is None else str(default_port)
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        if bracket and not rest:
            return host, fallback
        return host, rest[1:] if rest.startswith(":") else ""
    if text.count(":") > 1:
        # An IPv6 address without brackets: the start of the port is ambiguous.
        raise InvalidSetting(f"address {text!r} has more than one colon; write IPv6 as [::1]:10911")
    host, colon, port = text.partition(":")
    return host, port if colon else fallback


ANY_HOSTS: Final = ("", "0.0.0.0", "::")  # noqa: S104 nothing is bound here
_FAR_AWAY: Final = {
    socket.AF_INET: ("192.0.2.1", 9),
    socket.AF_INET6: ("2001:db8::1", 9),
}
"""Addresses reserved for documentation, which no machine has."""


def reachable(listening: Address) -> Address:
    """The address for clients of a listener. A listener on all interfaces gets the machine's own address."""
    if listening.host not in ANY_HOSTS:
        return listening
    family = socket.AF_INET6 if listening.host == "::" else socket.AF_INET
    return Address(_own_host(family), listening.port)


def _own_host(family: socket.AddressFamily) -> str:
    """The source address for packets to other networks; loopback without a route."""
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(_FAR_AWAY[family])
        except OSError:
            return "::1" if family is socket.AF_INET6 else "127.0.0.1"
        return str(probe.getsockname()[0])


async def resolved(address: Address) -> Address:
    """The address with the host name resolved to an IP address. ConnectFailed if that fails."""
    try:
        ip_address(address.host)
    except ValueError:
        pass
    else:
        return address
    try:
        found = await asyncio.get_running_loop().getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise ConnectFailed(f"{address}: cannot resolve the host name: {error}") from error
    host = found[0][4][0]
    assert isinstance(host, str)
    return Address(host, address.port)

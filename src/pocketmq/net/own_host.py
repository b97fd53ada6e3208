"""By which address others reach this machine: asked of the operating system's routes, without sending anything."""

import socket
from typing import Final

from pocketmq.net.address import Address

ANY_HOSTS: Final = ("", "0.0.0.0", "::")  # noqa: S104 nothing is bound here
_FAR_AWAY: Final = {
    socket.AF_INET: ("192.0.2.1", 9),
    socket.AF_INET6: ("2001:db8::1", 9),
}
"""Addresses that are kept free for documents, so they are always somewhere else."""


def reachable(listening: Address) -> Address:
    """Where others find somebody who listens there. Who listens everywhere is found at the machine's own address."""
    if listening.host not in ANY_HOSTS:
        return listening
    family = socket.AF_INET6 if listening.host == "::" else socket.AF_INET
    return Address(_own_host(family), listening.port)


def _own_host(family: socket.AddressFamily) -> str:
    """The address from which this machine would send to the outside; loopback when it has no way there."""
    with socket.socket(family, socket.SOCK_DGRAM) as door:
        try:
            door.connect(_FAR_AWAY[family])
        except OSError:
            return "::1" if family is socket.AF_INET6 else "127.0.0.1"
        return str(door.getsockname()[0])

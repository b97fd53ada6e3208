"""The seam to the network. Everything above takes a `Network`: real sockets, or the in-memory one of the test kit.

    connect(factory, address) ──► a protocol of the factory, connected
    listen(factory, address)  ──► a Listener; the factory is called once for each connection that comes in

Protocols and transports are asyncio's, so the same line runs over TCP, TLS and memory.
"""

import asyncio
import errno
import os
import socket
import ssl
from collections.abc import Callable
from typing import Final, Protocol, TypeVar

from pocketmq.errors import ConnectFailed, ListenFailed
from pocketmq.net.accepting import Acceptor, AcceptSettings, TurnedAway
from pocketmq.net.address import Address
from pocketmq.net.tls import ServerTls

__all__ = ["Address", "Listener", "Network", "TcpNetwork"]

P = TypeVar("P", bound=asyncio.BaseProtocol)

_WAYS_OUT: Final = {
    errno.EADDRINUSE: ". Stop the program that listens there, or choose another port; 0 is any free one",
    errno.EACCES: ". Choose a port from 1024 on; those below are for the administrator",
    errno.EADDRNOTAVAIL: ". Choose an address that this machine has; 0.0.0.0 is all of them",
    socket.EAI_NONAME: ". Choose an address that this machine has; 0.0.0.0 is all of them",
}
"""By the number of what was in the way of listening."""


class Listener(Protocol):
    """An open door. `address` has the real port when 0 was asked for."""

    @property
    def address(self) -> Address: ...

    def close(self) -> None:
        """Let nobody in any more; connections that were made live on. Harmless when done twice."""


class Network(Protocol):
    """A way to reach others and to be reached."""

    async def connect(self, factory: Callable[[], P], address: Address, *, tls: ssl.SSLContext | None = None) -> P:
        """A new protocol, connected; with `tls`, its handshake done. ConnectFailed says what was in the way."""

    async def listen(
        self,
        factory: Callable[[], asyncio.BaseProtocol],
        address: Address,
        *,
        tls: ServerTls | None = None,
        turned_away: TurnedAway | None = None,
    ) -> Listener:
        """Open a door; ListenFailed when the address is taken or not ours.

        `turned_away` hears why a connection ended before it became one: it stayed silent, or its handshake failed.
        """


class TcpNetwork:
    """The operating system's sockets."""

    def __init__(self, settings: AcceptSettings | None = None) -> None:
        self._settings = settings or AcceptSettings()

    async def connect(self, factory: Callable[[], P], address: Address, *, tls: ssl.SSLContext | None = None) -> P:
        loop = asyncio.get_running_loop()
        try:
            # Nagle's delay is off: asyncio and uvloop set TCP_NODELAY on every stream socket.
            _, protocol = await loop.create_connection(factory, address.host, address.port, ssl=tls)
        except ssl.SSLCertVerificationError as error:
            raise ConnectFailed(
                f"{address}: its certificate is not accepted: {error.verify_message}; "
                "name the authority that signed it (ca=…, --tls-ca), or connect without verification "
                "(verify=False, --tls-no-verify)"
            ) from error
        except ssl.SSLError as error:
            raise ConnectFailed(f"{address}: TLS handshake failed: {error.reason or error}") from error
        except (OSError, UnicodeError) as error:
            hint = " during the TLS handshake; it may not talk TLS" if _is_cut(error) and tls is not None else ""
            raise ConnectFailed(f"{address}: {_cause(error)}{hint}") from error
        return protocol

    async def listen(
        self,
        factory: Callable[[], asyncio.BaseProtocol],
        address: Address,
        *,
        tls: ServerTls | None = None,
        turned_away: TurnedAway | None = None,
    ) -> Listener:
        try:
            door = await _bind(address, self._settings.backlog)
        except (OSError, UnicodeError) as error:
            raise ListenFailed(f"cannot listen on {address}: {_cause(error)}{_way_out(error)}") from error
        return Acceptor(door, factory, tls, self._settings, turned_away)


async def _bind(address: Address, backlog: int) -> socket.socket:
    found = await asyncio.get_running_loop().getaddrinfo(
        address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    family, kind, number, _, place = found[0]
    door = socket.socket(family, kind, number)
    try:
        door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        door.bind(place)
        door.listen(backlog)
        door.setblocking(False)
    except BaseException:
        door.close()
        raise
    return door


def _is_cut(error: OSError | UnicodeError) -> bool:
    """Whether the other side ended a handshake: asyncio has no words for it at all, uvloop has the system's."""
    return isinstance(error, ConnectionResetError)


def _way_out(error: OSError | UnicodeError) -> str:
    """What somebody can do who wanted to listen."""
    return _WAYS_OUT.get(error.errno or 0, "") if isinstance(error, OSError) else ""


def _cause(error: OSError | UnicodeError) -> str:
    """In the system's words: asyncio replaces them with its own, which say where and not why."""
    if isinstance(error, UnicodeError):
        return f"not a host name: {error}"
    if _is_cut(error):
        return "it closed the connection"
    if error.errno is None or isinstance(error, socket.gaierror):
        return error.strerror or str(error)
    return os.strerror(error.errno)

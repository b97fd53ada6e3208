"""The seam to the network. Everything above takes a `Network`: real sockets, or the in-memory one of the test kit.

    connect(factory, address) ──► a protocol of the factory, connected
    listen(factory, address)  ──► a Listener; the factory is called once for each connection that comes in

Protocols and transports are asyncio's, so the same line runs over TCP, TLS and memory.

The door of a listener: who knocks, whether TLS is spoken, and nobody may stand in the doorway for ever.

    accept ── TLS possible? ── no ───────────────────────────────► a line
                  └─ yes ── wait for the first byte ── 0x16 ── handshake ──► a line
                                   │                └─ other ──────────────► a line (permissive)
                                   └─ silent for `hello_s` ───────────────► turned away

While `max_hellos` connections are at this step, newcomers wait in the backlog of the system: a pending handshake is never given up
for them. One host takes a part of these at most, so that it cannot keep the others out.

The first byte is looked at, not read, so whoever gets the socket finds the stream whole.
"""

import asyncio
import errno
import logging
import os
import socket
import ssl
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import Final, Protocol, TypeVar

import msgspec

from pocketmq.errors import ConnectFailed, InvalidSetting, ListenFailed, NetworkError
from pocketmq.net.address import Address
from pocketmq.net.tls import TLS_FIRST_BYTE, ServerTls, TlsMode

log = logging.getLogger("pocketmq.net")

TurnedAway = Callable[[NetworkError], None]

_ACCEPTS_PER_TURN = 64


class AcceptSettings(msgspec.Struct, frozen=True):
    """Bounds of the doorway."""

    backlog: int = 1024
    """Connections that the system holds before they are accepted."""
    hello_s: float = 5.0
    """Time for the first byte and the TLS handshake together."""
    max_hellos: int = 1024
    """Connections at this step; one more is accepted when one of them is done."""
    max_hellos_per_host: int = 128
    """Of these from one host; one more is closed at once. Loopback addresses are exempt."""
    exhausted_pause_s: float = 1.0
    """How long nobody is accepted after the system ran out of descriptors or memory."""

    def __post_init__(self) -> None:
        counts = self.backlog, self.max_hellos, self.max_hellos_per_host
        if min(*counts, self.hello_s, self.exhausted_pause_s) <= 0:
            raise InvalidSetting(f"every bound of the doorway must be above 0: {self}")


class Acceptor:
    """Accepts from `door` until closed. A `Listener`."""

    def __init__(
        self,
        door: socket.socket,
        factory: Callable[[], asyncio.BaseProtocol],
        tls: ServerTls | None,
        settings: AcceptSettings,
        turned_away: TurnedAway | None,
    ) -> None:
        self._door = door
        self._factory = factory
        self._tls = tls if tls is not None and tls.mode is not TlsMode.DISABLED else None
        self._settings = settings
        self._turned_away = turned_away
        self._loop = asyncio.get_running_loop()
        self._doorway: set[asyncio.Task[None]] = set()
        self._hellos_by_host: Counter[str] = Counter()
        self._is_full = False
        self._pause: asyncio.TimerHandle | None = None
        self.address = _address(door.getsockname())
        self._loop.add_reader(door, self._accept)

    def close(self) -> None:
        if self._door.fileno() < 0:
            return
        if self._pause is not None:
            self._pause.cancel()
        self._loop.remove_reader(self._door)
        self._door.close()
        for hello in list(self._doorway):
            hello.cancel()

    def _accept(self) -> None:
        for _ in range(_ACCEPTS_PER_TURN):
            if len(self._doorway) >= self._settings.max_hellos:
                self._is_full = True
                self._loop.remove_reader(self._door)
                return
            try:
                connection, place = self._door.accept()
            except (BlockingIOError, InterruptedError):
                return
            except ConnectionAbortedError:
                continue
            except OSError as error:
                self._take_a_pause(error)
                return
            connection.setblocking(False)
            self._greet(connection, _address(place))

    def _take_a_pause(self, error: OSError) -> None:
        """Out of descriptors or memory: the door stays readable, so looking again at once would only burn the loop."""
        log.error("%s: cannot accept for %s s: %s", self.address, self._settings.exhausted_pause_s, error)
        self._loop.remove_reader(self._door)
        self._pause = self._loop.call_later(
            self._settings.exhausted_pause_s, self._loop.add_reader, self._door, self._accept
        )

    def _greet(self, connection: socket.socket, peer: Address) -> None:
        if self._hellos_by_host[peer.host] >= self._settings.max_hellos_per_host and not peer.is_loopback:
            connection.close()
            self._turn_away(peer, f"has {self._hellos_by_host[peer.host]} connections without a first request already")
            return
        self._hellos_by_host[peer.host] += 1
        hello = self._loop.create_task(self._hello(connection, peer))
        self._doorway.add(hello)
        hello.add_done_callback(lambda hello: self._leave_doorway(hello, connection, peer))

    def _leave_doorway(self, hello: asyncio.Task[None], connection: socket.socket, peer: Address) -> None:
        self._doorway.discard(hello)
        self._hellos_by_host[peer.host] -= 1
        if not self._hellos_by_host[peer.host]:
            del self._hellos_by_host[peer.host]
        if hello.cancelled():  # perhaps before it began, when the task did not own the socket yet
            connection.close()
            self._turn_away(peer, "lost its connection before its first request: the listener closed")
        elif self._is_full and self._door.fileno() >= 0:
            self._is_full = False
            self._loop.add_reader(self._door, self._accept)

    async def _hello(self, connection: socket.socket, peer: Address) -> None:
        """Make a line of `connection`, or tell why not."""
        try:
            async with asyncio.timeout(self._settings.hello_s):
                context = await self._context_for(connection)
                await self._loop.connect_accepted_socket(self._factory, connection, ssl=context)
        except TimeoutError:
            self._turn_away(peer, f"neither spoke nor finished its TLS handshake within {self._settings.hello_s} s")
        except ssl.SSLError as error:
            self._turn_away(peer, f"failed in its TLS handshake: {error.reason or error}")
        except OSError as error:
            self._turn_away(peer, f"was lost: {error}")

    def _turn_away(self, peer: Address, why: str) -> None:
        log.info("%s turned away %s: %s", self.address, peer, why)
        if self._turned_away is not None:
            self._turned_away(ConnectFailed(f"{peer} {why}"))

    async def _context_for(self, connection: socket.socket) -> ssl.SSLContext | None:
        if self._tls is None:
            return None
        if self._tls.mode is TlsMode.ENFORCING:
            return self._tls.context
        with ExitStack() as undo:
            undo.callback(connection.close)
            await self._readable(connection)
            first = connection.recv(1, socket.MSG_PEEK)
            if not first:
                raise ConnectionResetError("closed before the first byte")
            undo.pop_all()
        return self._tls.context if first == TLS_FIRST_BYTE else None

    async def _readable(self, connection: socket.socket) -> None:
        ready = self._loop.create_future()
        self._loop.add_reader(connection, _set_ready, ready)
        try:
            await ready
        finally:
            self._loop.remove_reader(connection)


def _set_ready(ready: asyncio.Future[None]) -> None:
    with suppress(asyncio.InvalidStateError):
        ready.set_result(None)


def _address(place: tuple[str, int]) -> Address:
    return Address(place[0], place[1])


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
    with ExitStack() as undo:
        listening = undo.enter_context(socket.socket(family, kind, number))
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(place)
        listening.listen(backlog)
        listening.setblocking(False)
        undo.pop_all()
    return listening


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

"""The interface to sockets. Code above it takes a `Network`: real sockets, or the in-memory network of the test kit.

    connect(factory, address) ──► a connected protocol made by the factory
    listen(factory, address)  ──► a Listener; it calls the factory for each accepted connection

Protocols and transports are asyncio's, so the same connection class runs over TCP, TLS and memory.

How `Acceptor` accepts a connection:

    accept ── TLS configured? ── no ─────────────────────────────────► connection
                  └─ yes ── wait for the first byte ── 0x16 ── TLS handshake ──► connection
                                   │                └─ other ──────────────────► connection (permissive mode)
                                   └─ nothing for `hello_s` ───────────────────► rejected

While `max_hellos` handshakes are pending, new connections wait in the system's backlog; a pending handshake is never cancelled for a
new one. One host may have `max_hellos_per_host` of them. The first byte is peeked, so the connection reads the whole stream.
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
    """Limits of accepting."""

    backlog: int = 1024
    """Connections that the system queues before they are accepted."""
    hello_s: float = 5.0
    """Total time for the first byte and the TLS handshake."""
    max_hellos: int = 1024
    """Pending handshakes; one more is accepted when one of them ends."""
    max_hellos_per_host: int = 128
    """Pending handshakes of one host; one more is closed at once. Loopback addresses are exempt."""
    exhausted_pause_s: float = 1.0
    """How long accepting pauses after the system ran out of descriptors or memory."""

    def __post_init__(self) -> None:
        counts = self.backlog, self.max_hellos, self.max_hellos_per_host
        if min(*counts, self.hello_s, self.exhausted_pause_s) <= 0:
            raise InvalidSetting(f"the limits for accepted connections must be above 0: {self}")


class Acceptor:
    """Accepts connections from the socket `listening` until closed. A `Listener`."""

    def __init__(
        self,
        listening: socket.socket,
        factory: Callable[[], asyncio.BaseProtocol],
        tls: ServerTls | None,
        settings: AcceptSettings,
        turned_away: TurnedAway | None,
    ) -> None:
        self._listening = listening
        self._factory = factory
        self._tls = tls if tls is not None and tls.mode is not TlsMode.DISABLED else None
        self._settings = settings
        self._turned_away = turned_away
        self._loop = asyncio.get_running_loop()
        self._hellos: set[asyncio.Task[None]] = set()
        self._hellos_by_host: Counter[str] = Counter()
        self._is_full = False
        self._pause: asyncio.TimerHandle | None = None
        self.address = _address(listening.getsockname())
        self._loop.add_reader(listening, self._accept)

    def close(self) -> None:
        if self._listening.fileno() < 0:
            return
        if self._pause is not None:
            self._pause.cancel()
        self._loop.remove_reader(self._listening)
        self._listening.close()
        for hello in list(self._hellos):
            hello.cancel()

    def _accept(self) -> None:
        for _ in range(_ACCEPTS_PER_TURN):
            if len(self._hellos) >= self._settings.max_hellos:
                self._is_full = True
                self._loop.remove_reader(self._listening)
                return
            try:
                connection, peer = self._listening.accept()
            except (BlockingIOError, InterruptedError):
                return
            except ConnectionAbortedError:
                continue
            except OSError as error:
                self._pause_accepting(error)
                return
            connection.setblocking(False)
            self._begin_hello(connection, _address(peer))

    def _pause_accepting(self, error: OSError) -> None:
        """Out of descriptors or memory: the socket stays readable, and accepting again at once would use all CPU."""
        log.error(
            "%s: cannot accept connections: %s; next attempt in %s s",
            self.address,
            error,
            self._settings.exhausted_pause_s,
        )
        self._loop.remove_reader(self._listening)
        self._pause = self._loop.call_later(
            self._settings.exhausted_pause_s, self._loop.add_reader, self._listening, self._accept
        )

    def _begin_hello(self, connection: socket.socket, peer: Address) -> None:
        if self._hellos_by_host[peer.host] >= self._settings.max_hellos_per_host and not peer.is_loopback:
            connection.close()
            self._turn_away(peer, f"has {self._hellos_by_host[peer.host]} connections without a first request")
            return
        self._hellos_by_host[peer.host] += 1
        hello = self._loop.create_task(self._hello(connection, peer))
        self._hellos.add(hello)
        hello.add_done_callback(lambda hello: self._hello_ended(hello, connection, peer))

    def _hello_ended(self, hello: asyncio.Task[None], connection: socket.socket, peer: Address) -> None:
        self._hellos.discard(hello)
        self._hellos_by_host[peer.host] -= 1
        if not self._hellos_by_host[peer.host]:
            del self._hellos_by_host[peer.host]
        if hello.cancelled():  # perhaps before the task owned the socket
            connection.close()
            self._turn_away(peer, "was closed before its first request: the listener closed")
        elif self._is_full and self._listening.fileno() >= 0:
            self._is_full = False
            self._loop.add_reader(self._listening, self._accept)

    async def _hello(self, connection: socket.socket, peer: Address) -> None:
        """Connect a protocol to the socket, or log why not."""
        try:
            async with asyncio.timeout(self._settings.hello_s):
                context = await self._context_for(connection)
                await self._loop.connect_accepted_socket(self._factory, connection, ssl=context)
        except TimeoutError:
            self._turn_away(peer, f"sent nothing or did not finish its TLS handshake within {self._settings.hello_s} s")
        except ssl.SSLError as error:
            self._turn_away(peer, f"failed the TLS handshake: {error.reason or error}")
        except OSError as error:
            self._turn_away(peer, f"was lost: {error}")

    def _turn_away(self, peer: Address, why: str) -> None:
        log.info("%s rejected the connection of %s: it %s", self.address, peer, why)
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


def _address(name: tuple[str, int]) -> Address:
    return Address(name[0], name[1])


__all__ = ["Address", "Listener", "Network", "TcpNetwork"]

P = TypeVar("P", bound=asyncio.BaseProtocol)

_ADVICE: Final = {
    errno.EADDRINUSE: ". Stop the program that listens there, or choose another port; 0 means any free port",
    errno.EACCES: ". Choose a port from 1024 on; lower ports need administrator rights",
    errno.EADDRNOTAVAIL: ". Choose an address of this machine; 0.0.0.0 means all of them",
    socket.EAI_NONAME: ". Choose an address of this machine; 0.0.0.0 means all of them",
}
"""By the error number of a failed listen."""


class Listener(Protocol):
    """A listening socket. `address` has the actual port if 0 was requested."""

    @property
    def address(self) -> Address: ...

    def close(self) -> None:
        """Accept no more connections; existing ones stay open. Idempotent."""


class Network(Protocol):
    """Opens connections and listeners."""

    async def connect(self, factory: Callable[[], P], address: Address, *, tls: ssl.SSLContext | None = None) -> P:
        """A new, connected protocol; with `tls`, after the handshake. ConnectFailed says why not."""

    async def listen(
        self,
        factory: Callable[[], asyncio.BaseProtocol],
        address: Address,
        *,
        tls: ServerTls | None = None,
        turned_away: TurnedAway | None = None,
    ) -> Listener:
        """Listen. ListenFailed if the address is in use or not of this machine.

        `turned_away` is called for each connection that ended before its first request, with the reason.
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
                f"{address}: the certificate of the server is not trusted: {error.verify_message}; "
                "name the authority that signed it (ca=…, --tls-ca), or connect without verification "
                "(verify=False, --tls-no-verify)"
            ) from error
        except ssl.SSLError as error:
            hint = "; the server may not use TLS" if error.reason in _NOT_TLS else ""
            raise ConnectFailed(f"{address}: TLS handshake failed: {error.reason or error}{hint}") from error
        except (OSError, UnicodeError) as error:
            hint = " during the TLS handshake; the server may not use TLS" if _is_cut(error) and tls is not None else ""
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
            listening = await _bind(address, self._settings.backlog)
        except (OSError, UnicodeError) as error:
            raise ListenFailed(f"cannot listen on {address}: {_cause(error)}{_advice(error)}") from error
        return Acceptor(listening, factory, tls, self._settings, turned_away)


async def _bind(address: Address, backlog: int) -> socket.socket:
    found = await asyncio.get_running_loop().getaddrinfo(
        address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    family, kind, number, _, name = found[0]
    with ExitStack() as undo:
        listening = undo.enter_context(socket.socket(family, kind, number))
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(name)
        listening.listen(backlog)
        listening.setblocking(False)
        undo.pop_all()
    return listening


_NOT_TLS: Final = ("WRONG_VERSION_NUMBER", "PACKET_LENGTH_TOO_LONG")
"""OpenSSL's words for bytes that are not a TLS record."""


def _is_cut(error: OSError | UnicodeError) -> bool:
    """Whether the other side closed the connection during a handshake. asyncio's error has no text for it."""
    return isinstance(error, ConnectionResetError)


def _advice(error: OSError | UnicodeError) -> str:
    """What to do about a failed listen."""
    return _ADVICE.get(error.errno or 0, "") if isinstance(error, OSError) else ""


def _cause(error: OSError | UnicodeError) -> str:
    """The text of the system. asyncio replaces it with one that does not name the cause."""
    if isinstance(error, UnicodeError):
        return f"not a host name: {error}"
    if _is_cut(error):
        return "the server closed the connection"
    if error.errno is None or isinstance(error, socket.gaierror):
        return error.strerror or str(error)
    return os.strerror(error.errno)

"""A server: listens, tracks its peers, and stops after running requests are served.

    stop:  close the listener ──► refuse new requests, finish running ones within `drain_s` ──► close all connections

A connection beyond the limit is accepted and closed, so that the client notices at once.

`Dispatcher`: from a request to its handler and back. `net.peer` turns errors that a handler raises into responses.

    command ── check, if any ── code ──► handler? ── no ──► REQUEST_CODE_NOT_SUPPORTED
                  └─► raises its error      └─ yes ──► row in the access table? ── no ──► NO_PERMISSION
                                                          └─ yes ──► decode header ──► handler ──► reply ──► command
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Container, Coroutine, Iterable, Mapping
from typing import Any, Generic, NamedTuple, Self, TypeVar

import msgspec

from pocketmq.codes import RequestCode, ResponseCode
from pocketmq.errors import (
    ConnectionLost,
    InvalidSetting,
    NetworkError,
    NoPermission,
    PocketMQError,
    RequestNotSupported,
    WrongState,
)
from pocketmq.net.address import Address
from pocketmq.net.connection import CloseReason, Connection
from pocketmq.net.network import Listener, Network, TcpNetwork
from pocketmq.net.peer import OnTurn, Peer, PeerSettings, Serve
from pocketmq.net.tls import ServerTls
from pocketmq.net.unfinished import UnfinishedFrames, UnfinishedLimits
from pocketmq.protocol.api import request_header
from pocketmq.protocol.command import Command
from pocketmq.protocol.fields import Fields, NoFields

log = logging.getLogger("pocketmq.net")


class ServerSettings(msgspec.Struct, frozen=True):
    """Limits of a server."""

    peer: PeerSettings = PeerSettings()
    max_connections: int = 10_000
    max_connections_per_host: int = 1_000
    """Loopback addresses are exempt, because all programs of this machine share them."""
    unfinished: UnfinishedLimits = UnfinishedLimits()
    drain_s: float = 10.0
    """How long `stop` waits for running requests."""

    def __post_init__(self) -> None:
        if self.max_connections <= 0 or self.max_connections_per_host <= 0:
            raise InvalidSetting("max_connections and max_connections_per_host must be above 0")
        if self.drain_s < 0:
            raise InvalidSetting("drain_s must not be below 0")


class ServerCounters(msgspec.Struct):
    """Counts of connections since the start. `open` is the current number."""

    open: int = 0
    accepted: int = 0
    refused: int = 0
    """Closed at once because of a connection limit."""
    turned_away: int = 0
    """Closed before the first request: nothing received, or the TLS handshake failed."""
    idle: int = 0
    slow: int = 0
    protocol_errors: int = 0
    unfinished: int = 0
    """Closed because of incomplete frames: too slow, or too much memory in total."""


class Server:
    """Serves requests with `serve`, or whole turns with `on_turn`; see `net.peer` for both.

    With `must_sign`, connections without a valid signature share a smaller memory limit (`net.unfinished`).
    `on_lost(peer, reason)` is called once for each closed connection, including refused ones.
    Use `async with Server(...) as server:`; `server.address` has the actual port if the given one was 0.
    """

    def __init__(
        self,
        address: Address,
        *,
        serve: Serve | None = None,
        on_turn: OnTurn | None = None,
        on_lost: Callable[[Peer, PocketMQError], None] | None = None,
        tls: ServerTls | None = None,
        must_sign: bool = False,
        network: Network | None = None,
        settings: ServerSettings | None = None,
    ) -> None:
        self._requested = address
        self._serve = serve
        self._on_turn = on_turn
        self._on_lost = on_lost
        self._tls = tls
        self._network = network or TcpNetwork()
        self._settings = settings = settings or ServerSettings()
        self._unfinished = UnfinishedFrames(settings.unfinished, must_sign=must_sign)
        self._listener: Listener | None = None
        self._by_host: Counter[str] = Counter()
        self._refusal_logged = False
        self._stopping = False
        self.peers: dict[Peer, None] = {}
        self.counters = ServerCounters()

    @property
    def address(self) -> Address:
        """The address of the listener."""
        if self._listener is None:
            raise WrongState("the server is not started: use `async with`, or `await start()`")
        return self._listener.address

    async def start(self) -> None:
        """Listen. ListenFailed when the address is taken."""
        if self._listener is not None:
            raise WrongState(f"the server already listens on {self.address}")
        self._stopping = False
        self._listener = await self._network.listen(
            self._new_connection, self._requested, tls=self._tls, turned_away=self._count_turned_away
        )
        log.info("listening on %s", self.address)

    def close_listener(self) -> None:
        """The first step of `stop`: no new connections and no new requests. Idempotent."""
        if self._listener is None:
            return
        self._stopping = True
        self._listener.close()
        for peer in self.peers:
            peer.refuse_requests()

    async def stop(self) -> None:
        """Close the listener, finish running requests, close the connections. Idempotent."""
        if self._listener is None:
            return
        self.close_listener()
        serving = {task for peer in self.peers for task in peer.serving}
        try:
            await _wait(serving, self._settings.drain_s)
        finally:
            for peer in self.peers:
                peer.close(ConnectionLost("the server stopped"))
        await asyncio.gather(*(peer.wait_lost() for peer in self.peers))
        self._unfinished.close()
        # Closing the connections has cancelled the remaining tasks; wait until they have ended.
        await _wait(serving, self._settings.drain_s)
        self._listener = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.stop()

    def _new_connection(self) -> Connection:
        peer = Peer(
            serve=self._serve,
            on_turn=self._on_turn,
            on_made=self._opened,
            on_lost=self._closed,
            settings=self._settings.peer,
            unfinished=self._unfinished,
        )
        return peer.connection

    def _opened(self, peer: Peer) -> None:
        self.counters.accepted += 1
        self.counters.open += 1
        self.peers[peer] = None
        self._by_host[peer.address.host] += 1
        refusal = self._refusal(peer.address)
        if refusal is None:
            self._refusal_logged = False
            return
        self.counters.refused += 1
        if not self._refusal_logged:
            self._refusal_logged = True
            log.warning(
                "refused connection of %s: %s; further refusals are not logged until a connection is accepted",
                peer.address,
                refusal,
            )
        peer.connection.abort(ConnectionLost(refusal))

    def _refusal(self, address: Address) -> str | None:
        settings = self._settings
        if self._stopping:
            return "server is shutting down"
        if len(self.peers) > settings.max_connections:
            return f"{settings.max_connections} connections are open, the limit of this server"
        per_host = settings.max_connections_per_host
        if self._by_host[address.host] > per_host and not address.is_loopback:
            return (
                f"{per_host} connections from {address.host} are open, the limit for one host (maxConnectionsPerHost)"
            )
        return None

    def _closed(self, peer: Peer, reason: PocketMQError) -> None:
        counters = self.counters
        counters.open -= 1
        del self.peers[peer]
        self._by_host[peer.address.host] -= 1
        if not self._by_host[peer.address.host]:
            del self._by_host[peer.address.host]
        counters.idle += peer.connection.ending is CloseReason.IDLE
        counters.slow += peer.connection.ending is CloseReason.SLOW
        counters.protocol_errors += peer.connection.ending is CloseReason.PROTOCOL
        counters.unfinished += peer.connection.ending is CloseReason.UNFINISHED
        if self._on_lost is not None:
            self._on_lost(peer, reason)

    def _count_turned_away(self, reason: NetworkError) -> None:
        self.counters.turned_away += 1


async def _wait(tasks: set[asyncio.Task[None]], timeout_s: float) -> None:
    if tasks:
        await asyncio.wait(tasks, timeout=timeout_s)


H = TypeVar("H", bound=Fields)


class Request(Generic[H]):
    """A request with a decoded header."""

    __slots__ = ("command", "header", "peer")

    def __init__(self, peer: Peer, command: Command, header: H) -> None:
        self.peer = peer
        self.command = command
        self.header = header


PlainRequest = Request[NoFields]
"""A request without header fields."""


class Reply(NamedTuple):
    """A response. Failures without a header are raised as errors instead."""

    header: Fields | None = None
    body: bytes = b""
    code: int = ResponseCode.SUCCESS
    remark: str | None = None


Check = Callable[[Peer, Command], None]
"""Called before a request is served. Raises an error to refuse it."""

Handler = Callable[[Request[Any]], Reply | Coroutine[Any, Any, Reply]]
"""Returns a reply, or a coroutine if it has to wait."""


class Dispatcher:
    """All handlers of a server. `serve` is passed to `Server`.

    `access` is the server's table of access rules; a code without a row is refused. `check` is called for each request;
    a server that checks requests in its turns passes None.
    """

    def __init__(
        self,
        tables: Iterable[Mapping[RequestCode, Handler]],
        access: Container[RequestCode],
        *,
        check: Check | None = None,
    ) -> None:
        self._handlers: dict[int, Handler] = {}
        for table in tables:
            twice = self._handlers.keys() & table.keys()
            assert not twice, f"two handlers for {twice}"
            self._handlers |= {int(code): handler for code, handler in table.items()}
        self._access = access
        self._check = check

    def serve(self, peer: Peer, command: Command) -> Command | Coroutine[Any, Any, Command]:
        if self._check is not None:
            self._check(peer, command)
        handler = self._handlers.get(command.code)
        if handler is None:
            raise RequestNotSupported(f" request type {command.code} not supported")
        code = RequestCode(command.code)
        if code not in self._access:
            raise NoPermission(f"request type {command.code} has no access rule")
        outcome = handler(Request(peer, command, request_header(code).decode(command.ext)))
        return _answer(command, outcome) if isinstance(outcome, Reply) else _answer_later(command, outcome)


def _answer(command: Command, reply: Reply) -> Command:
    ext = None if reply.header is None else reply.header.encode()
    return command.reply(reply.code, reply.remark, ext, reply.body)


async def _answer_later(command: Command, reply: Coroutine[Any, Any, Reply]) -> Command:
    return _answer(command, await reply)

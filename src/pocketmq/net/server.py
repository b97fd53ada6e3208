"""A server: listens, keeps count of its peers, and stops without dropping what is being served.

    stop:  close the door ──► refuse new requests, finish those being served within `drain_s` ──► close every line

Beyond the bound on connections a newcomer is accepted and closed, so that it learns at once and tries elsewhere.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from typing import Self

import msgspec

from pocketmq.errors import ConnectionLost, InvalidSetting, NetworkError, PocketMQError, WrongState
from pocketmq.net.address import Address
from pocketmq.net.connection import CloseReason, Connection
from pocketmq.net.network import Listener, Network, TcpNetwork
from pocketmq.net.peer import OnTurn, Peer, PeerSettings, Serve
from pocketmq.net.tls import ServerTls
from pocketmq.net.unfinished import UnfinishedFrames, UnfinishedLimits

log = logging.getLogger("pocketmq.net")


class ServerSettings(msgspec.Struct, frozen=True):
    """Bounds of a server."""

    peer: PeerSettings = PeerSettings()
    max_connections: int = 10_000
    max_connections_per_host: int = 1_000
    """Loopback addresses are exempt: programs of this machine share one."""
    unfinished: UnfinishedLimits = UnfinishedLimits()
    drain_s: float = 10.0
    """How long stopping waits for requests that are being served."""

    def __post_init__(self) -> None:
        if self.max_connections <= 0 or self.max_connections_per_host <= 0:
            raise InvalidSetting("max_connections and max_connections_per_host must be above 0")
        if self.drain_s < 0:
            raise InvalidSetting("drain_s must not be below 0")


class ServerCounters(msgspec.Struct):
    """What has happened at a server's door since it started; `open` is how many are connected now."""

    open: int = 0
    accepted: int = 0
    refused: int = 0
    """Closed at once: too many connections."""
    turned_away: int = 0
    """Never became a connection: silent, or a failed TLS handshake."""
    idle: int = 0
    slow: int = 0
    protocol_errors: int = 0
    unfinished: int = 0
    """Closed because frames did not arrive completely in time, or took too much memory together."""


class Server:
    """Serves requests by `serve`, or by `on_turn`, which gets whole turns; see `net.peer` for both.

    `must_sign`: connections without a valid signature so far share less memory (`net.unfinished`).
    `on_lost(peer, reason)` is called once for every connection, refused ones included, when it is gone.
    Use it as `async with Server(...) as server:`; `server.address` has the port that was given for 0.
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
        self._wanted = address
        self._serve = serve
        self._on_turn = on_turn
        self._on_lost = on_lost
        self._tls = tls
        self._network = network or TcpNetwork()
        self._settings = settings = settings or ServerSettings()
        self._unfinished = UnfinishedFrames(settings.unfinished, must_sign=must_sign)
        self._listener: Listener | None = None
        self._by_host: Counter[str] = Counter()
        self._refusal_told = False
        self._stopping = False
        self.peers: dict[Peer, None] = {}
        self.counters = ServerCounters()

    @property
    def address(self) -> Address:
        """Where it listens."""
        if self._listener is None:
            raise WrongState("the server does not listen: start it with `async with`, or `await start()`")
        return self._listener.address

    async def start(self) -> None:
        """Listen. ListenFailed when the address is taken."""
        if self._listener is not None:
            raise WrongState(f"the server listens on {self.address} already")
        self._stopping = False
        self._listener = await self._network.listen(
            self._new_connection, self._wanted, tls=self._tls, turned_away=self._count_turned_away
        )
        log.info("listening on %s", self.address)

    def close_door(self) -> None:
        """The first step of `stop`, at once: nobody comes in, and no new request is served. Harmless when done twice."""
        if self._listener is None:
            return
        self._stopping = True
        self._listener.close()
        for peer in self.peers:
            peer.refuse_requests()

    async def stop(self) -> None:
        """Close the door, let requests finish, close the lines. Harmless when done twice."""
        if self._listener is None:
            return
        self.close_door()
        serving = {task for peer in self.peers for task in peer.serving}
        try:
            await _wait(serving, self._settings.drain_s)
        finally:
            for peer in self.peers:
                peer.close(ConnectionLost("the server stopped"))
        await asyncio.gather(*(peer.wait_lost() for peer in self.peers))
        self._unfinished.close()
        # What was not done in time has been cancelled with its line; let it unwind before we say that all is over.
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
            on_made=self._welcome,
            on_lost=self._farewell,
            settings=self._settings.peer,
            unfinished=self._unfinished,
        )
        return peer.connection

    def _welcome(self, peer: Peer) -> None:
        self.counters.accepted += 1
        self.counters.open += 1
        self.peers[peer] = None
        self._by_host[peer.address.host] += 1
        refusal = self._refusal(peer.address)
        if refusal is None:
            self._refusal_told = False
            return
        self.counters.refused += 1
        if not self._refusal_told:
            self._refusal_told = True
            log.warning("refusing %s and maybe more: %s", peer.address, refusal)
        peer.connection.abort(ConnectionLost(refusal))

    def _refusal(self, address: Address) -> str | None:
        settings = self._settings
        if self._stopping:
            return "this server is stopping"
        if len(self.peers) > settings.max_connections:
            return f"{settings.max_connections} connections are open, the limit of this server"
        per_host = settings.max_connections_per_host
        if self._by_host[address.host] > per_host and not address.is_loopback:
            return (
                f"{per_host} connections from {address.host} are open, the limit for one host (maxConnectionsPerHost)"
            )
        return None

    def _farewell(self, peer: Peer, reason: PocketMQError) -> None:
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

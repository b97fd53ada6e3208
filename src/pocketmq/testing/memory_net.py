"""A network inside one loop: no sockets, every fault on demand, and one seed that decides everything random.

    write ──► unsent ──── window ────► on its way ── delay, segment by segment ──► received
              │ high: pause_writing    │ bytes and the end of the stream stay in order
              │ low: resume_writing    └─ a reader that paused leaves them there, so the window fills

What can be done to it, by host (`"10.0.0.1"`) or by address (`Address("10.0.0.1", 10911)`):

    refuse       connects are refused
    cut          its connections are reset at once, on both sides
    half_open    its connections look alive and carry nothing any more, in either direction
    partition    between two places bytes wait, as in TCP that retransmits, and connects hang
    heal         all of this ends: what waited is delivered, what was half open is reset

Everybody has a host: `network.at("10.0.0.1")` is the same network seen from there. Between connections nothing is in order:
each segment of each has its own delay. With the virtual loop the same seed gives the same run, to the last segment.
"""

import asyncio
import random
import ssl
from collections import deque
from collections.abc import Callable
from typing import NamedTuple, TypeVar

import msgspec

from pocketmq.errors import ConnectFailed, InvalidSetting, ListenFailed, UsageError
from pocketmq.net.address import Address
from pocketmq.net.network import TurnedAway
from pocketmq.net.tls import ServerTls
from pocketmq.testing.memory_transport import MemoryTransport, Pipe

P = TypeVar("P", bound=asyncio.BaseProtocol)
Factory = Callable[[], asyncio.BaseProtocol]
Place = str | Address
"""A host, or one address of it."""

DEFAULT_HOST = "127.0.0.1"
_ANY_HOST = ("", "0.0.0.0", "::")  # noqa: S104 nothing real is bound
_FIRST_FREE_PORT = 49_152


class Weather(msgspec.Struct, frozen=True):
    """How the network behaves when nothing is wrong. Pairs are the smallest and the largest that the dice give."""

    delay_s: tuple[float, float] = (0.0002, 0.002)
    segment_bytes: tuple[int, int] = (1, 16 * 1024)
    window_bytes: int = 64 * 1024
    """Bytes of one direction that may be on their way, or lie before a reader that paused."""
    log_lines: int = 100_000
    """Happenings that the log keeps; older ones are dropped."""

    def __post_init__(self) -> None:
        if not 0 <= self.delay_s[0] <= self.delay_s[1]:
            raise InvalidSetting(f"delay_s={self.delay_s} is not a smallest and a largest delay")
        if not 0 < self.segment_bytes[0] <= self.segment_bytes[1]:
            raise InvalidSetting(f"segment_bytes={self.segment_bytes} is not a smallest and a largest size")
        if min(self.window_bytes, self.log_lines) <= 0:
            raise InvalidSetting("window_bytes and log_lines must be above 0")


class Happening(NamedTuple):
    """One line of the log: at what loop time, what, from where to where, how many bytes."""

    at: float
    what: str
    source: str
    target: str
    size: int = 0


class MemoryConnection(NamedTuple):
    """A connection as the network sees it; `cut` and `half_open` of the network take it, too."""

    client: Address
    server: Address
    ends: tuple[MemoryTransport, MemoryTransport]
    pipes: tuple[Pipe, Pipe]

    def touches(self, place: Place) -> bool:
        return _is_at(self.client, place) or _is_at(self.server, place)


class MemoryListener:
    """A door in memory. A `Listener`."""

    def __init__(self, address: Address, factory: Factory, forget: Callable[[Address], None]) -> None:
        self.address = address
        self.factory = factory
        self._forget = forget

    def close(self) -> None:
        self._forget(self.address)


class MemoryNetwork:
    """A `Network` as seen from 127.0.0.1, which may listen as any host; `at` gives it as seen from another."""

    def __init__(self, seed: int = 0, weather: Weather | None = None) -> None:
        self.seed = seed
        self._weather = weather = weather or Weather()
        self._dice = random.Random(seed)  # noqa: S311 repeatable, not secret
        self._ports: dict[str, int] = {}
        self._listeners: dict[Address, MemoryListener] = {}
        self._refused: list[Place] = []
        self._partitions: list[tuple[Place, Place]] = []
        self._swallowed: list[MemoryConnection] = []
        self._healed = asyncio.Event()
        self.connections: dict[Address, MemoryConnection] = {}
        self.log: deque[Happening] = deque(maxlen=weather.log_lines)

    def at(self, host: str) -> "MemoryHost":
        """This network as `host` sees it."""
        return MemoryHost(self, host)

    async def connect(self, factory: Callable[[], P], address: Address, *, tls: ssl.SSLContext | None = None) -> P:
        return await self.connect_from(DEFAULT_HOST, factory, address, tls)

    async def listen(
        self,
        factory: Factory,
        address: Address,
        *,
        tls: ServerTls | None = None,
        turned_away: TurnedAway | None = None,
    ) -> MemoryListener:
        return self.listen_at(DEFAULT_HOST if address.host in _ANY_HOST else address.host, factory, address.port, tls)

    def refuse(self, place: Place) -> None:
        """Connects to `place` are refused, until `heal`."""
        self._refused.append(place)
        self._note("refuse", place)

    def cut(self, target: Place | MemoryConnection) -> int:
        """Reset one connection, or all of a place; how many there were. What was on its way is lost."""
        cut = self._chosen(target)
        for connection in cut:
            self._note("cut", connection.client, connection.server)
            self._reset(connection)
        return len(cut)

    def half_open(self, target: Place | MemoryConnection) -> int:
        """Let one connection, or all of a place, swallow every byte and tell nobody; how many there were."""
        chosen = self._chosen(target)
        for connection in chosen:
            self._note("half open", connection.client, connection.server)
            for pipe in connection.pipes:
                pipe.swallow()
        self._swallowed += chosen
        return len(chosen)

    def partition(self, one: Place, other: Place) -> None:
        """Between `one` and `other` nothing arrives and nobody connects, until `heal`."""
        self._partitions.append((one, other))
        self._note("partition", one, other)
        self._hold_what_is_parted()

    def heal(self) -> None:
        """End all refusals, partitions and half-open connections."""
        self._note("heal", "")
        self._refused.clear()
        self._partitions.clear()
        self._hold_what_is_parted()
        swallowed, self._swallowed = self._swallowed, []
        for connection in swallowed:
            self._reset(connection)
        self._healed.set()
        self._healed = asyncio.Event()

    async def connect_from(
        self, host: str, factory: Callable[[], P], address: Address, tls: ssl.SSLContext | None = None
    ) -> P:
        """What `connect` does, from `host`."""
        if tls is not None:
            raise UsageError(
                "the in-memory network has no TLS: leave it out, or use TcpNetwork on the loopback address"
            )
        client = Address(host, self._free_port(host))
        self._note("connect", client, address)
        await asyncio.sleep(self._delay_s())
        while self._is_parted(client, address):
            await self._healed.wait()
        listener = self._listeners.get(address)
        if listener is None or any(_is_at(address, place) for place in self._refused):
            self._note("refused", client, address)
            raise ConnectFailed(f"{address}: connection refused")
        protocol = factory()
        self._join(client, address, protocol, listener.factory())
        return protocol

    def listen_at(self, host: str, factory: Factory, port: int, tls: ServerTls | None = None) -> MemoryListener:
        """What `listen` does, at `host`."""
        if tls is not None:
            raise UsageError(
                "the in-memory network has no TLS: leave it out, or use TcpNetwork on the loopback address"
            )
        address = Address(host, port or self._free_port(host))
        if address in self._listeners:
            raise ListenFailed(f"cannot listen on {address}: somebody does already")
        listener = self._listeners[address] = MemoryListener(address, factory, self._stop_listening)
        self._note("listen", address)
        return listener

    def _join(
        self,
        client: Address,
        server: Address,
        client_protocol: asyncio.BaseProtocol,
        server_protocol: asyncio.BaseProtocol,
    ) -> None:
        there, back = self._new_pipe(client, server), self._new_pipe(server, client)
        ends = MemoryTransport(client, server, there, back), MemoryTransport(server, client, back, there)
        connection = MemoryConnection(client, server, ends, (there, back))
        self.connections[client] = connection
        for end in ends:
            end.on_lost = lambda: self._count_lost(connection)
        self._note("made", client, server)
        # The server's side first: nobody can hear from a client that it does not know yet.
        ends[1].start(server_protocol)
        ends[0].start(client_protocol)

    def _new_pipe(self, source: Address, target: Address) -> Pipe:
        smallest, largest = self._weather.segment_bytes
        return Pipe(
            window_bytes=self._weather.window_bytes,
            segment_bytes=lambda: self._dice.randint(smallest, largest),
            delay_s=self._delay_s,
            note=lambda what, size: self._note(what, source, target, size),
        )

    def _reset(self, connection: MemoryConnection) -> None:
        for pipe in connection.pipes:
            pipe.empty()
        for end in connection.ends:
            end.lose(ConnectionResetError("connection reset by peer"))

    def _chosen(self, target: Place | MemoryConnection) -> list[MemoryConnection]:
        if isinstance(target, MemoryConnection):
            return [target] if target.client in self.connections else []
        return [connection for connection in self.connections.values() if connection.touches(target)]

    def _count_lost(self, connection: MemoryConnection) -> None:
        if connection.client in self.connections and all(end.is_lost for end in connection.ends):
            del self.connections[connection.client]
            self._note("gone", connection.client, connection.server)

    def _hold_what_is_parted(self) -> None:
        for connection in self.connections.values():
            for pipe in connection.pipes:
                pipe.hold(self._is_parted(connection.client, connection.server))

    def _is_parted(self, a: Address, b: Address) -> bool:
        return any(
            (_is_at(a, one) and _is_at(b, other)) or (_is_at(a, other) and _is_at(b, one))
            for one, other in self._partitions
        )

    def _stop_listening(self, address: Address) -> None:
        if self._listeners.pop(address, None) is not None:
            self._note("stop listening", address)

    def _free_port(self, host: str) -> int:
        port = self._ports.get(host, _FIRST_FREE_PORT)
        while Address(host, port) in self._listeners:
            port += 1
        self._ports[host] = port + 1
        return port

    def _delay_s(self) -> float:
        return self._dice.uniform(*self._weather.delay_s)

    def _note(self, what: str, source: Place, target: Place = "", size: int = 0) -> None:
        at = asyncio.get_running_loop().time()
        self.log.append(Happening(at, what, str(source), str(target), size))


class MemoryHost:
    """A `Network`: the in-memory one as seen from one host, which can only listen as itself."""

    def __init__(self, network: MemoryNetwork, host: str) -> None:
        self._network = network
        self.host = host

    async def connect(self, factory: Callable[[], P], address: Address, *, tls: ssl.SSLContext | None = None) -> P:
        return await self._network.connect_from(self.host, factory, address, tls)

    async def listen(
        self,
        factory: Factory,
        address: Address,
        *,
        tls: ServerTls | None = None,
        turned_away: TurnedAway | None = None,
    ) -> MemoryListener:
        if address.host not in (*_ANY_HOST, self.host):
            raise ListenFailed(f"cannot listen on {address}: this host is {self.host}")
        return self._network.listen_at(self.host, factory, address.port, tls)


def _is_at(address: Address, place: Place) -> bool:
    return address == place if isinstance(place, Address) else address.host == place

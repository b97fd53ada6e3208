"""A network inside one loop: no sockets, faults on demand, and one seed for everything random.

    write ──► unsent ──── window ────► in transit ── delay, segment by segment ──► received
              │ high: pause_writing    │ bytes and the end of the stream stay in order
              │ low: resume_writing    └─ a paused reader leaves them there, so the window fills

Faults, by host (`"10.0.0.1"`) or by address (`Address("10.0.0.1", 10911)`):

    refuse       refuse connections
    cut          reset connections at once, on both sides
    half_open    keep connections open, but lose all bytes in both directions
    partition    delay all bytes between two hosts, as TCP retransmits them; new connections wait
    heal         end all faults: deliver delayed bytes, reset half-open connections

`network.at("10.0.0.1")` is the same network as seen from that host. Segments of different connections arrive in any order.
With the virtual loop, the same seed gives the same run, to the last segment.
"""

import asyncio
import random
import ssl
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, TypeVar

import msgspec

from pocketmq.errors import ConnectFailed, InvalidSetting, ListenFailed, UsageError
from pocketmq.net import Address, ServerTls, TurnedAway
from pocketmq.testing.memory_transport import MemoryTransport, Pipe

P = TypeVar("P", bound=asyncio.BaseProtocol)
Factory = Callable[[], asyncio.BaseProtocol]
Target = str | Address
"""A host, or one address of it."""

DEFAULT_HOST = "127.0.0.1"
_ANY_HOST = ("", "0.0.0.0", "::")  # noqa: S104 no real socket
_FIRST_FREE_PORT = 49_152


class Weather(msgspec.Struct, frozen=True):
    """The network without faults. Pairs are the smallest and the largest random value."""

    delay_s: tuple[float, float] = (0.0002, 0.002)
    segment_bytes: tuple[int, int] = (1, 16 * 1024)
    window_bytes: int = 64 * 1024
    """The limit on bytes in transit per direction, including those that a paused reader has not read."""
    log_lines: int = 100_000
    """The limit on events in the log; older ones are dropped."""

    def __post_init__(self) -> None:
        if not 0 <= self.delay_s[0] <= self.delay_s[1]:
            raise InvalidSetting(f"delay_s={self.delay_s} must be a minimum and a maximum delay")
        if not 0 < self.segment_bytes[0] <= self.segment_bytes[1]:
            raise InvalidSetting(f"segment_bytes={self.segment_bytes} must be a minimum and a maximum size")
        if min(self.window_bytes, self.log_lines) <= 0:
            raise InvalidSetting("window_bytes and log_lines must be above 0")


class NetworkEvent(NamedTuple):
    """One event of the log, at this loop time."""

    at: float
    what: str
    source: str
    target: str
    size: int = 0


class MemoryConnection(NamedTuple):
    """A connection. `MemoryNetwork.cut` and `half_open` also accept it."""

    client: Address
    server: Address
    ends: tuple[MemoryTransport, MemoryTransport]
    pipes: tuple[Pipe, Pipe]

    def touches(self, target: Target) -> bool:
        return _is_at(self.client, target) or _is_at(self.server, target)


class MemoryListener:
    """A `Listener` of the in-memory network."""

    def __init__(self, address: Address, factory: Factory, forget: Callable[[Address], None]) -> None:
        self.address = address
        self.factory = factory
        self._forget = forget

    def close(self) -> None:
        self._forget(self.address)


class MemoryNetwork:
    """A `Network` as seen from 127.0.0.1, which can listen as any host. `at` returns the view of another host."""

    def __init__(self, seed: int = 0, weather: Weather | None = None) -> None:
        self.seed = seed
        self._weather = weather = weather or Weather()
        self._random = random.Random(seed)  # noqa: S311 repeatable, not secret
        self._ports: dict[str, int] = {}
        self._listeners: dict[Address, MemoryListener] = {}
        self._refused: list[Target] = []
        self._partitions: list[tuple[Target, Target]] = []
        self._half_open: list[MemoryConnection] = []
        self._healed = asyncio.Event()
        self.connections: dict[Address, MemoryConnection] = {}
        self.log: deque[NetworkEvent] = deque(maxlen=weather.log_lines)

    def at(self, host: str) -> "MemoryHost":
        """The view of `host`."""
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

    def refuse(self, target: Target) -> None:
        """Refuse connections to `target`, until `heal`."""
        self._refused.append(target)
        self._record("refuse", target)

    def cut(self, target: Target | MemoryConnection) -> int:
        """Reset one connection, or all of a host or address; returns their number. Bytes in transit are lost."""
        chosen = self._chosen(target)
        for connection in chosen:
            self._record("cut", connection.client, connection.server)
            self._reset(connection)
        return len(chosen)

    def half_open(self, target: Target | MemoryConnection) -> int:
        """Lose all bytes of one connection, or of all of a host or address, without an error; returns their number."""
        chosen = self._chosen(target)
        for connection in chosen:
            self._record("half open", connection.client, connection.server)
            for pipe in connection.pipes:
                pipe.half_open()
        self._half_open += chosen
        return len(chosen)

    def partition(self, one: Target, other: Target) -> None:
        """Delay all bytes and connections between `one` and `other`, until `heal`."""
        self._partitions.append((one, other))
        self._record("partition", one, other)
        self._apply_partitions()

    def heal(self) -> None:
        """End all refusals, partitions and half-open connections."""
        self._record("heal", "")
        self._refused.clear()
        self._partitions.clear()
        self._apply_partitions()
        half_open, self._half_open = self._half_open, []
        for connection in half_open:
            self._reset(connection)
        self._healed.set()
        self._healed = asyncio.Event()

    async def connect_from(
        self, host: str, factory: Callable[[], P], address: Address, tls: ssl.SSLContext | None = None
    ) -> P:
        """`connect` from `host`."""
        if tls is not None:
            raise UsageError("the in-memory network has no TLS; use TcpNetwork on loopback instead")
        client = Address(host, self._free_port(host))
        self._record("connect", client, address)
        await asyncio.sleep(self._delay_s())
        while self._is_partitioned(client, address):
            await self._healed.wait()
        listener = self._listeners.get(address)
        if listener is None or any(_is_at(address, target) for target in self._refused):
            self._record("refused", client, address)
            raise ConnectFailed(f"{address}: connection refused")
        protocol = factory()
        self._join(client, address, protocol, listener.factory())
        return protocol

    def listen_at(self, host: str, factory: Factory, port: int, tls: ServerTls | None = None) -> MemoryListener:
        """`listen` at `host`."""
        if tls is not None:
            raise UsageError("the in-memory network has no TLS; use TcpNetwork on loopback instead")
        address = Address(host, port or self._free_port(host))
        if address in self._listeners:
            raise ListenFailed(f"cannot listen on {address}: address already in use")
        listener = self._listeners[address] = MemoryListener(address, factory, self._stop_listening)
        self._record("listen", address)
        return listener

    def _join(
        self,
        client: Address,
        server: Address,
        client_protocol: asyncio.BaseProtocol,
        server_protocol: asyncio.BaseProtocol,
    ) -> None:
        there, back = self._new_pipe(client, server), self._new_pipe(server, client)
        on_lost = partial(self._count_lost, client)
        ends = (
            MemoryTransport(client, server, there, back, client_protocol, on_lost),
            MemoryTransport(server, client, back, there, server_protocol, on_lost),
        )
        self.connections[client] = MemoryConnection(client, server, ends, (there, back))
        self._record("made", client, server)
        # The server's side first: it must know the client before the first byte arrives.
        ends[1].start()
        ends[0].start()

    def _new_pipe(self, source: Address, target: Address) -> Pipe:
        smallest, largest = self._weather.segment_bytes
        return Pipe(
            window_bytes=self._weather.window_bytes,
            segment_bytes=lambda: self._random.randint(smallest, largest),
            delay_s=self._delay_s,
            record=lambda what, size: self._record(what, source, target, size),
        )

    def _reset(self, connection: MemoryConnection) -> None:
        for pipe in connection.pipes:
            pipe.empty()
        for end in connection.ends:
            end.lose(ConnectionResetError("connection reset by peer"))

    def _chosen(self, target: Target | MemoryConnection) -> list[MemoryConnection]:
        if isinstance(target, MemoryConnection):
            return [target] if target.client in self.connections else []
        return [connection for connection in self.connections.values() if connection.touches(target)]

    def _count_lost(self, client: Address) -> None:
        connection = self.connections.get(client)
        if connection is not None and all(end.is_lost for end in connection.ends):
            del self.connections[client]
            self._record("closed", client, connection.server)

    def _apply_partitions(self) -> None:
        for connection in self.connections.values():
            for pipe in connection.pipes:
                pipe.pause(self._is_partitioned(connection.client, connection.server))

    def _is_partitioned(self, a: Address, b: Address) -> bool:
        return any(
            (_is_at(a, one) and _is_at(b, other)) or (_is_at(a, other) and _is_at(b, one))
            for one, other in self._partitions
        )

    def _stop_listening(self, address: Address) -> None:
        if self._listeners.pop(address, None) is not None:
            self._record("stop listening", address)

    def _free_port(self, host: str) -> int:
        port = self._ports.get(host, _FIRST_FREE_PORT)
        while Address(host, port) in self._listeners:
            port += 1
        self._ports[host] = port + 1
        return port

    def _delay_s(self) -> float:
        return self._random.uniform(*self._weather.delay_s)

    def _record(self, what: str, source: Target, target: Target = "", size: int = 0) -> None:
        at = asyncio.get_running_loop().time()
        self.log.append(NetworkEvent(at, what, str(source), str(target), size))


class MemoryHost:
    """The in-memory network as seen from one host, which can listen only as itself."""

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


def _is_at(address: Address, target: Target) -> bool:
    return address == target if isinstance(target, Address) else address.host == target

"""Brokers by name: their addresses, and a connection to each.

    name ── from routes ──► broker id → address      id 0 is the master, which accepts messages; slaves only serve reads
    address ── first use ──► connection ── a heartbeat as the first request ──► the broker knows this client

`calls` has the requests that a client sends to them.
"""

from collections.abc import Callable, Iterable, Mapping

from pocketmq.client.cluster.rpc import RpcClient
from pocketmq.errors import ConnectFailed, InvalidSetting
from pocketmq.net import Address, Peer
from pocketmq.protocol.bodies.topics import BrokerData
from pocketmq.protocol.command import Command

MASTER_ID = 0

Target = str | Address
"""A broker's name, meaning its master, or an address."""
OnConnected = Callable[[Address, Peer], None]
"""Sends the first heartbeat on a new connection. Must not wait."""


class BrokerConnections:
    """All brokers in known routes, and the connections to them."""

    def __init__(self, rpc: RpcClient, on_connected: OnConnected) -> None:
        self._rpc = rpc
        self._on_connected = on_connected
        self._addresses: dict[str, dict[int, Address]] = {}
        self._peers: dict[Address, Peer] = {}
        self._listed: frozenset[str] = frozenset()
        self.command = rpc.command

    # addresses

    def learn(self, brokers: Iterable[BrokerData]) -> None:
        """Use the addresses in a route from now on."""
        for broker in brokers:
            if broker.broker_name:
                self._addresses[broker.broker_name] = _parsed(broker.broker_addrs)

    def learn_all(self, brokers: Iterable[BrokerData]) -> None:
        """Use the addresses of the whole cluster, also of brokers in no route. The next list replaces this one."""
        brokers = list(brokers)
        self.learn(brokers)
        self._listed = frozenset(broker.broker_name for broker in brokers if broker.broker_name)

    def keep_only(self, names: Iterable[str]) -> None:
        """Remove the brokers that are neither in `names` nor in the list of the cluster. Their connections close when
        idle.
        """
        kept = self._listed.union(names)
        for name in [name for name in self._addresses if name not in kept]:
            del self._addresses[name]
        known = set(self.all_addresses())
        for address in [address for address in self._peers if address not in known]:
            del self._peers[address]

    @property
    def names(self) -> list[str]:
        return list(self._addresses)

    def knows(self, name: str) -> bool:
        """Whether a known route has an address of this broker."""
        return bool(self._addresses.get(name))

    def all_addresses(self, *, masters_only: bool = False) -> list[Address]:
        """Each address once, oldest first."""
        found = dict.fromkeys(
            address
            for addresses in self._addresses.values()
            for number, address in addresses.items()
            if number == MASTER_ID or not masters_only
        )
        return list(found)

    def master(self, name: str) -> Address:
        """The address of this broker's master; ConnectFailed when it is unknown."""
        address = self._addresses.get(name, {}).get(MASTER_ID)
        if address is None:
            known = ", ".join(self._addresses) or "none"
            raise ConnectFailed(f"no route has a master of broker {name!r}; known brokers: {known}")
        return address

    def reader(self, name: str, broker_id: int = MASTER_ID) -> Address:
        """The address to read from: the broker with this id, else the next id, else any."""
        addresses = self._addresses.get(name, {})
        address = addresses.get(broker_id)
        if address is None and broker_id != MASTER_ID:
            address = addresses.get(broker_id + 1)
        if address is None:
            address = next(iter(addresses.values()), None)
        if address is None:
            raise ConnectFailed(f"no route has a broker {name!r} with id {broker_id}")
        return address

    def addresses_of(self, name: str) -> list[Address]:
        """All addresses of this name, the master first. A slave has group offsets too, some seconds old."""
        addresses = self._addresses.get(name)
        if not addresses:
            raise ConnectFailed(f"no route has a broker {name!r}")
        return list(addresses.values())

    def is_master(self, name: str, address: Address) -> bool:
        return self._addresses.get(name, {}).get(MASTER_ID) == address

    # connections

    def live(self, address: Address) -> Peer | None:
        """The open connection to `address`, if there is one."""
        peer = self._peers.get(address)
        return peer if peer is not None and peer.is_open else None

    def live_master(self, name: str) -> Peer | None:
        """The open, writable connection to this broker's master, if there is one."""
        addresses = self._addresses.get(name)
        address = None if addresses is None else addresses.get(MASTER_ID)
        peer = None if address is None else self._peers.get(address)
        return peer if peer is not None and peer.connection.writable else None

    def master_peer(self, name: str) -> Peer | None:
        """The latest connection to this broker's master, which may be closed; None before the first."""
        addresses = self._addresses.get(name)
        address = None if addresses is None else addresses.get(MASTER_ID)
        return None if address is None else self._peers.get(address)

    async def peer(self, address: Address, *, waits_for_retry: bool = True) -> Peer:
        """The connection to `address`. A new one starts with a heartbeat. See `Pool.peer`."""
        peer = self.live(address) or await self._rpc.peer(address, waits_for_retry=waits_for_retry)
        if self._peers.get(address) is not peer:
            self._peers[address] = peer
            self._on_connected(address, peer)
        return peer

    # requests

    async def call(self, target: Target, command: Command, timeout_s: float | None = None) -> Command:
        """The response to a request from `command`, whatever its code."""
        return await self._rpc.call(await self.peer(self._address(target)), command, timeout_s)

    async def ask(self, target: Target, command: Command, timeout_s: float | None = None) -> Command:
        """The response of a successful call; other response codes raise their error."""
        return await self._rpc.ask_peer(await self.peer(self._address(target)), command, timeout_s)

    async def send_one_way(self, target: Target, command: Command) -> None:
        self._rpc.send_one_way(await self.peer(self._address(target)), command)

    def _address(self, target: Target) -> Address:
        return target if isinstance(target, Address) else self.master(target)


def _parsed(addresses: Mapping[int, str]) -> dict[int, Address]:
    """Addresses in the order of broker ids, without those that cannot be parsed."""
    parsed: dict[int, Address] = {}
    for number, text in sorted(addresses.items()):
        try:
            parsed[number] = Address.parse(text)
        except InvalidSetting:
            continue
    return parsed

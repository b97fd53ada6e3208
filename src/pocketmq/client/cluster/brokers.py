"""Brokers by name: where they are, a line to each, and everything that can be asked of them.

    name ── routes said so ──► id → address      0 is the master, which takes messages; others may be read from
    address ── first use ──► connected ── heartbeat, before anything else ──► a line on which the broker knows this client

What can be asked lies in families: `brokers.offsets.largest(queue)`, `brokers.topics.create("broker-a", …)`.
"""

from collections.abc import Callable, Iterable, Mapping

from pocketmq.client.cluster.calls import GroupCalls, MemberCalls, StateCalls, Target, TopicCalls
from pocketmq.client.cluster.message_calls import MessageCalls, OffsetCalls
from pocketmq.client.cluster.rpc import RpcClient
from pocketmq.codes import RequestCode
from pocketmq.errors import ConnectFailed, InvalidSetting
from pocketmq.net.address import Address
from pocketmq.net.peer import Peer
from pocketmq.protocol.bodies.routes import BrokerData
from pocketmq.protocol.command import Command
from pocketmq.protocol.fields import Fields

MASTER_ID = 0

OnConnected = Callable[[Address, Peer], None]
"""Says who we are on a line that was just made. Must not wait."""


class Brokers:
    """All brokers that routes have told of."""

    def __init__(self, rpc: RpcClient, on_connected: OnConnected) -> None:
        self._rpc = rpc
        self._on_connected = on_connected
        self._addresses: dict[str, dict[int, Address]] = {}
        self._peers: dict[Address, Peer] = {}
        self._listed: frozenset[str] = frozenset()
        self.offsets = OffsetCalls(self)
        self.messages = MessageCalls(self)
        self.members = MemberCalls(self)
        self.topics = TopicCalls(self)
        self.groups = GroupCalls(self)
        self.state = StateCalls(self)

    # where they are

    def learn(self, brokers: Iterable[BrokerData]) -> None:
        """What a route says about brokers is true from now on."""
        for broker in brokers:
            if broker.broker_name:
                self._addresses[broker.broker_name] = _parsed(broker.broker_addrs)

    def learn_all(self, brokers: Iterable[BrokerData]) -> None:
        """The whole cluster, for those who want to reach brokers of which no route speaks. The next list replaces this one."""
        brokers = list(brokers)
        self.learn(brokers)
        self._listed = frozenset(broker.broker_name for broker in brokers if broker.broker_name)

    def keep_only(self, names: Iterable[str]) -> None:
        """Forget the brokers that neither a route nor the list speaks of any more; lines to them end by being idle."""
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
        """Each address once, in the order in which it became known."""
        found = dict.fromkeys(
            address
            for addresses in self._addresses.values()
            for number, address in addresses.items()
            if number == MASTER_ID or not masters_only
        )
        return list(found)

    def name_at(self, address: Address) -> str | None:
        """The name of the broker at `address`."""
        return next((name for name, found in self._addresses.items() if address in found.values()), None)

    def master(self, name: str) -> Address:
        """Where messages for this broker go; ConnectFailed when it has no master that is known."""
        address = self._addresses.get(name, {}).get(MASTER_ID)
        if address is None:
            known = ", ".join(self._addresses) or "none"
            raise ConnectFailed(
                f"broker {name!r} has no master in the routes that name servers gave; known are: {known}"
            )
        return address

    def reader(self, name: str, broker_id: int = MASTER_ID, *, only_this: bool = False) -> Address:
        """Where to read from: the broker with this id, else the next one, else any, unless `only_this` will do."""
        addresses = self._addresses.get(name, {})
        address = addresses.get(broker_id)
        if address is None and broker_id != MASTER_ID:
            address = addresses.get(broker_id + 1)
        if address is None and not only_this:
            address = next(iter(addresses.values()), None)
        if address is None:
            raise ConnectFailed(f"broker {name!r} with id {broker_id} is in no route that name servers gave")
        return address

    def holders(self, name: str) -> list[Address]:
        """Every broker of this name, the master first: each has the group offsets, a slave those of some seconds ago."""
        addresses = self._addresses.get(name)
        if not addresses:
            raise ConnectFailed(f"broker {name!r} is in no route that name servers gave")
        return list(addresses.values())

    def is_master(self, name: str, address: Address) -> bool:
        return self._addresses.get(name, {}).get(MASTER_ID) == address

    # lines to them

    def live(self, address: Address) -> Peer | None:
        """The line to `address` if there is one now."""
        peer = self._peers.get(address)
        return peer if peer is not None and peer.is_open else None

    def live_master(self, name: str) -> Peer | None:
        """The line to the master of this broker if it is known, there now, and can be written to."""
        addresses = self._addresses.get(name)
        address = None if addresses is None else addresses.get(MASTER_ID)
        peer = None if address is None else self._peers.get(address)
        return peer if peer is not None and peer.connection.writable else None

    def master_peer(self, name: str) -> Peer | None:
        """The line to the master of this broker that was made last, which may have ended; None before the first."""
        addresses = self._addresses.get(name)
        address = None if addresses is None else addresses.get(MASTER_ID)
        return None if address is None else self._peers.get(address)

    async def peer(self, address: Address, *, waits_for_retry: bool = True) -> Peer:
        """The line to `address`, made and greeted if need be; see `Pool.peer`."""
        peer = self.live(address) or await self._rpc.peer(address, waits_for_retry=waits_for_retry)
        if self._peers.get(address) is not peer:
            self._peers[address] = peer
            self._on_connected(address, peer)
        return peer

    # asking them

    async def call(
        self,
        target: Target,
        code: RequestCode,
        header: Fields | None = None,
        body: bytes = b"",
        *,
        extra: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
    ) -> Command:
        """The answer, whatever its code."""
        peer = await self.peer(self._address(target))
        return await self._rpc.call(peer, self._rpc.command(code, header, body, extra), timeout_s)

    async def ask(
        self,
        target: Target,
        code: RequestCode,
        header: Fields | None = None,
        body: bytes = b"",
        *,
        extra: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
    ) -> Command:
        """The answer of success; another one is raised as the error that it stands for."""
        peer = await self.peer(self._address(target))
        return await self._rpc.ask_peer(peer, self._rpc.command(code, header, body, extra), timeout_s)

    async def tell(
        self,
        target: Target,
        code: RequestCode,
        header: Fields | None = None,
        body: bytes = b"",
        *,
        extra: Mapping[str, str] | None = None,
    ) -> None:
        """Send, and expect no answer."""
        peer = await self.peer(self._address(target))
        self._rpc.tell(peer, self._rpc.command(code, header, body, extra))

    def _address(self, target: Target) -> Address:
        return target if isinstance(target, Address) else self.master(target)


def _parsed(addresses: Mapping[int, str]) -> dict[int, Address]:
    """Addresses by id, in order of their ids; one that is none is left out, for it can never be reached."""
    parsed: dict[int, Address] = {}
    for number, text in sorted(addresses.items()):
        try:
            parsed[number] = Address.parse(text)
        except InvalidSetting:
            continue
    return parsed

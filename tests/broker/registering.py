"""What the tests of registration share: a broker that only registers, and name servers, one real and one that listens."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Self

import msgspec
from tests.nameserver.talk import ask, connected

from pocketmq.broker.registration import Registration
from pocketmq.broker.settings import BrokerSettings, SettingsInUse
from pocketmq.broker.topics import TopicTable
from pocketmq.codes import RequestCode
from pocketmq.errors import ServerFailed
from pocketmq.nameserver.server import NameServer
from pocketmq.nameserver.settings import NameServerSettings
from pocketmq.net.address import Address
from pocketmq.net.network import Network
from pocketmq.net.peer import Peer
from pocketmq.net.server import Server
from pocketmq.protocol.bodies.registration import read_registration
from pocketmq.protocol.bodies.topics import ClusterInfo, TopicConfig
from pocketmq.protocol.command import Command
from pocketmq.testing import FakeClock

NAME_SERVER = Address("10.0.0.1", 9876)
OTHER = Address("10.0.0.2", 9876)
BROKER_HOST = "10.0.0.9"
LISTENING = Address(BROKER_HOST, 10911)
ANYWHERE = Address("0.0.0.0", 10911)
OPEN = BrokerSettings(host="0.0.0.0", open_to_the_network_without_authentication=True)


class Broker:
    """A broker that only registers, and records its advertised address."""

    def __init__(
        self,
        network: Network,
        *name_servers: Address,
        listening: Address = LISTENING,
        settings: BrokerSettings = OPEN,
        **changes: Any,
    ) -> None:
        self.listening = listening
        self.clock = FakeClock(asyncio.get_running_loop())
        self.settings = SettingsInUse(
            msgspec.structs.replace(settings, name_servers=name_servers or (NAME_SERVER,), **changes)
        )
        self.topics = TopicTable("DefaultCluster", "broker-a", started_ms=self.clock.now_ms())
        self.moves: list[Address] = []
        self.registration = Registration(
            self.settings, self.topics, self.clock, network=network, on_address=self.moves.append
        )

    def put(self, *topics: str | TopicConfig) -> None:
        rows = [topic if isinstance(topic, TopicConfig) else TopicConfig(topic) for topic in topics]
        self.topics.put(rows, self.clock.now_ms())
        self.registration.announce()

    async def __aenter__(self) -> Self:
        await self.registration.start(self.listening)
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.registration.stop()


class Listener:
    """A name server that only records its requests. `refusals` are answered first."""

    def __init__(self, network: Network, address: Address = NAME_SERVER) -> None:
        self.told: list[tuple[float, Command]] = []
        self.refusals = 0
        self.delay_s = 0.0
        self.server = Server(address, serve=self._serve, network=network)

    async def _serve(self, peer: Peer, command: Command) -> Command:
        self.told.append((asyncio.get_running_loop().time(), command))
        await asyncio.sleep(self.delay_s)
        if self.refusals:
            self.refusals -= 1
            raise ServerFailed("register broker failed")
        return command.reply()

    @property
    def codes(self) -> list[int]:
        return [command.code for _, command in self.told]

    @property
    def sizes(self) -> list[int]:
        """How many topics each registration had."""
        return [len(self.table(command)) for _, command in self.told if command.code == RequestCode.REGISTER_BROKER]

    @property
    def times(self) -> list[float]:
        return [round(at, 1) for at, _ in self.told]

    def table(self, command: Command) -> dict[str, TopicConfig]:
        return read_registration(command.body).topics.topic_config_table

    async def __aenter__(self) -> Self:
        await self.server.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.server.stop()


@asynccontextmanager
async def name_server(
    network: Network, address: Address = NAME_SERVER, **changes: Any
) -> AsyncIterator[tuple[NameServer, Peer]]:
    """A name server, and a client of it."""
    settings = NameServerSettings(
        host=address.host, port=address.port, open_to_the_network_without_authentication=True, **changes
    )
    clock = FakeClock(asyncio.get_running_loop())
    async with NameServer(settings, network=network, clock=clock) as server:
        client = await connected(network, server.address)
        yield server, client
        client.close()
        await client.wait_lost()


async def addresses(peer: Peer) -> dict[int, str]:
    """The address of the broker at the name server."""
    answer = await ask(peer, RequestCode.GET_BROKER_CLUSTER_INFO)
    found = ClusterInfo.decode(answer.body).broker_addr_table.get("broker-a")
    return found.broker_addrs if found else {}

"""What the tests of the name server share: a server in memory, brokers that register, and questions to it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from pocketmq.clock import Clock
from pocketmq.codes import RequestCode, ResponseCode
from pocketmq.files import Files
from pocketmq.nameserver.route_tables import Registration
from pocketmq.nameserver.server import NameServer
from pocketmq.nameserver.settings import NameServerSettings
from pocketmq.net.address import Address
from pocketmq.net.connection import ConnectionSettings
from pocketmq.net.network import Network
from pocketmq.net.peer import Peer, PeerSettings
from pocketmq.protocol.api.administration import GetRoute, RegisterBroker
from pocketmq.protocol.bodies.registration import RegisterBrokerBody, write_registration
from pocketmq.protocol.bodies.topics import ClusterInfo, DataVersion, MappedTopicTable, TopicConfig, TopicRouteData
from pocketmq.protocol.command import Command
from pocketmq.protocol.fields import Fields
from pocketmq.testing import MemoryNetwork

CLUSTER = "DefaultCluster"
MASTER = "10.0.0.5:10911"
SLAVE = "10.0.0.6:10911"


def table(*topics: str | TopicConfig, counter: int = 1, state: int = 0) -> RegisterBrokerBody:
    """The registration of a broker with these topics; `counter` and `state` make its DataVersion."""
    configs = [topic if isinstance(topic, TopicConfig) else TopicConfig(topic) for topic in topics]
    version = DataVersion(counter, state, 1_000 + counter)
    return RegisterBrokerBody(MappedTopicTable(version, {config.topic_name: config for config in configs}))


def registration(
    *topics: str | TopicConfig,
    name: str = "broker-a",
    number: int = 0,
    address: str = MASTER,
    cluster: str = CLUSTER,
    counter: int = 1,
    state: int = 0,
    acting: bool | None = None,
    timeout_s: float | None = None,
    connection: object = "line",
    zone: str | None = None,
) -> Registration:
    """A registration as the route table gets it."""
    body = table(*topics, counter=counter, state=state)
    return Registration(cluster, name, number, address, address + "-ha", body, connection, timeout_s, acting, zone)


def register_command(
    *topics: str | TopicConfig,
    name: str = "broker-a",
    number: int = 0,
    address: str = MASTER,
    counter: int = 1,
    timeout_ms: int | None = None,
    acting: bool | None = False,
) -> Command:
    """A registration as it is on the wire."""
    header = RegisterBroker(
        broker_name=name,
        broker_addr=address,
        cluster_name=CLUSTER,
        ha_server_addr=address + "-ha",
        broker_id=number,
        heartbeat_timeout_millis=timeout_ms,
        enable_acting_master=acting,
    )
    body = write_registration(table(*topics, counter=counter))
    return Command(RequestCode.REGISTER_BROKER, header.encode(), body)


@asynccontextmanager
async def started(
    settings: NameServerSettings | None = None,
    *,
    network: Network | None = None,
    clock: Clock | None = None,
    files: Files | None = None,
) -> AsyncIterator[tuple[NameServer, Peer]]:
    """A name server in memory, and a client of it."""
    network = network or MemoryNetwork()
    async with NameServer(settings, network=network, clock=clock, files=files) as server:
        client = await connected(network, server.address)
        yield server, client
        client.close()
        await client.wait_lost()


async def connected(network: Network, address: Address) -> Peer:
    """A client that never hangs up by itself."""
    peer = Peer(settings=PeerSettings(connection=ConnectionSettings(idle_s=86_400)))
    await network.connect(lambda: peer.connection, address)
    return peer


async def ask(peer: Peer, code: RequestCode, header: Fields | None = None, body: bytes = b"") -> Command:
    """The answer, with any code."""
    return await peer.call(Command(code, None if header is None else header.encode(), body))


async def done(peer: Peer, command: Command) -> Command:
    """The answer of success."""
    answer = await peer.call(command)
    assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, None)
    return answer


async def route(peer: Peer, topic: str) -> TopicRouteData | None:
    answer = await ask(peer, RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRoute(topic))
    if answer.code == ResponseCode.TOPIC_NOT_EXIST:
        return None
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return TopicRouteData.decode(answer.body)


async def broker_names(peer: Peer) -> set[str]:
    answer = await ask(peer, RequestCode.GET_BROKER_CLUSTER_INFO)
    return set(ClusterInfo.decode(answer.body).broker_addr_table)

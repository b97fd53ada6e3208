"""Shared by the tests of the client: a cluster with scripted answers, in memory and in virtual time."""

import asyncio
import random
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager
from typing import Any

from pocketmq.client.cluster.instance import Dependencies
from pocketmq.client.producer.producer import AsyncProducer
from pocketmq.codes import RequestCode, ResponseCode
from pocketmq.errors import TopicNotFound
from pocketmq.model.message_id import offset_id
from pocketmq.net.address import Address
from pocketmq.net.connection import ConnectionSettings
from pocketmq.net.network import Listener
from pocketmq.net.peer import Peer, PeerSettings
from pocketmq.protocol.api.administration import GetRoute
from pocketmq.protocol.batch import decode_batch
from pocketmq.protocol.bodies.clients import HeartbeatData
from pocketmq.protocol.bodies.topics import BrokerData, QueueData, TopicRouteData
from pocketmq.protocol.command import Command
from pocketmq.testing import FakeClock, MemoryNetwork, Weather

NAME_SERVER = "10.0.0.1:9876"
CLIENT_IP = "10.0.0.9"
CLUSTER = "DefaultCluster"
BRISK = Weather(delay_s=(0.001, 0.001), segment_bytes=(1 << 20, 1 << 20), window_bytes=1 << 20)
SENDS = (
    RequestCode.SEND_MESSAGE,
    RequestCode.SEND_MESSAGE_V2,
    RequestCode.SEND_BATCH_MESSAGE,
    RequestCode.SEND_REPLY_MESSAGE_V2,
)

Answer = Command | Coroutine[Any, Any, Command | None] | None
Answering = Callable[[Command], Answer]


class FakeServer:
    """A server that records requests and sends prepared answers; `scripts` are used before `answers`, once each."""

    def __init__(self, network: MemoryNetwork, address: str) -> None:
        self.network = network
        self.address = Address.parse(address)
        self.heard: list[Command] = []
        self.received_at: list[float] = []
        self.peers: list[Peer] = []
        self.answers: dict[int, Answering] = {}
        self.scripts: dict[int, list[Answering]] = defaultdict(list)
        self._listener: Listener | None = None

    async def start(self) -> None:
        self._listener = await self.network.listen(self._new_connection, self.address)

    def stop_listening(self) -> None:
        assert self._listener is not None
        self._listener.close()

    def close(self) -> None:
        """As a killed process: it stops to listen, and all connections are cut."""
        self.stop_listening()
        self.network.cut(self.address)

    def requests(self, *codes: int) -> list[Command]:
        """The requests with one of these codes."""
        return [command for command in self.heard if command.code in codes]

    def times(self, code: int) -> list[float]:
        """The times of these requests."""
        return [at for at, command in zip(self.received_at, self.heard, strict=True) if command.code == code]

    def script(self, code: int, *answers: Answering) -> None:
        """Answer the next requests with this code in these ways, one after the other."""
        self.scripts[code] += answers

    def _new_connection(self) -> asyncio.BaseProtocol:
        peer = Peer(serve=self._serve, settings=PeerSettings(connection=ConnectionSettings(idle_s=86_400)))
        self.peers.append(peer)
        return peer.connection

    def _serve(self, peer: Peer, command: Command) -> Answer:
        self.heard.append(command)
        self.received_at.append(asyncio.get_running_loop().time())
        scripts = self.scripts[command.code]
        answering = scripts.pop(0) if scripts else self.answers.get(command.code)
        if answering is None:
            return command.reply(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, f"no answer is prepared for {command.code}")
        return answering(command)


class FakeBroker(FakeServer):
    """Stores sent messages in a number of queues, and assigns offsets as a broker does."""

    def __init__(self, network: MemoryNetwork, address: str, name: str) -> None:
        super().__init__(network, address)
        self.name = name
        self.version = 479
        self.stored: list[tuple[int, bytes]] = []
        self._next: dict[tuple[str, int], int] = defaultdict(int)
        self.answers |= {
            **dict.fromkeys(SENDS, self.store),
            RequestCode.HEART_BEAT: self.hear,
            RequestCode.UNREGISTER_CLIENT: lambda command: command.reply(),
            RequestCode.END_TRANSACTION: lambda _: None,
        }

    @property
    def heartbeats(self) -> list[HeartbeatData]:
        return [HeartbeatData.decode(command.body) for command in self.requests(RequestCode.HEART_BEAT)]

    @property
    def sends(self) -> list[Command]:
        return self.requests(*SENDS)

    def hear(self, command: Command) -> Command:
        answer = command.reply()
        answer.version = self.version
        return answer

    def store(self, command: Command, code: int = ResponseCode.SUCCESS) -> Command:
        ext = command.ext or {}
        is_batch = command.code == RequestCode.SEND_BATCH_MESSAGE
        bodies = [body for _, body, _ in decode_batch(command.body)] if is_batch else [command.body]
        queue_id = max(int(ext["e"]), 0)
        first = self._next[ext["b"], queue_id]
        self._next[ext["b"], queue_id] += len(bodies)
        host = bytes([10, 0, 0, 2]) + self.address.port.to_bytes(4, "big")
        ids = [offset_id(host, 1000 * (len(self.stored) + at)) for at in range(len(bodies))]
        self.stored += [(queue_id, body) for body in bodies]
        reply = {
            "msgId": ",".join(ids),
            "queueId": str(queue_id),
            "queueOffset": str(first),
            "transactionId": dict(_properties(ext["i"])).get("UNIQ_KEY", ""),
            "MSG_REGION": "DefaultRegion",
            "TRACE_ON": "true",
        }
        return command.reply(code, None, reply)


class Cluster:
    """A name server and brokers; the test sets the topics."""

    def __init__(self, brokers: Iterable[str] = ("broker-a",), *, seed: int = 0, weather: Weather = BRISK) -> None:
        self.network = MemoryNetwork(seed, weather)
        self.name_server = FakeServer(self.network, NAME_SERVER)
        self.name_server.answers[RequestCode.GET_ROUTEINFO_BY_TOPIC] = self._route
        self.brokers = {
            name: FakeBroker(self.network, f"10.0.0.{number}:10911", name) for number, name in enumerate(brokers, 2)
        }
        self.topics: dict[str, TopicRouteData] = {}
        self.clock = FakeClock(asyncio.get_running_loop())
        self.dependencies = Dependencies(clock=self.clock, network=self.network, dice=random.Random(seed))

    @property
    def broker(self) -> FakeBroker:
        return next(iter(self.brokers.values()))

    def add_topic(self, topic: str, queues: int = 4, perm: int = 6, brokers: Iterable[str] | None = None) -> None:
        names = list(self.brokers if brokers is None else brokers)
        self.topics[topic] = TopicRouteData(
            tuple(QueueData(name, queues, queues, perm) for name in names),
            tuple(BrokerData(CLUSTER, name, {0: str(self.brokers[name].address)}) for name in names),
        )

    def _route(self, command: Command) -> Command:
        topic = GetRoute.decode(command.ext).topic
        if topic not in self.topics:
            raise TopicNotFound(f"No topic route info in name server for the topic: {topic}")
        return command.reply(body=self.topics[topic].encode(strict=True))

    @asynccontextmanager
    async def producer(self, **options: Any) -> AsyncIterator[AsyncProducer]:
        """A producer of this cluster, running."""
        async with self.new_producer(**options) as producer:
            yield producer

    def new_producer(self, **options: Any) -> AsyncProducer:
        options.setdefault("client_ip", CLIENT_IP)
        return AsyncProducer(NAME_SERVER, dependencies=self.dependencies, **options)


@asynccontextmanager
async def cluster(
    *brokers: str, topics: Iterable[str] = ("T",), seed: int = 0, weather: Weather = BRISK
) -> AsyncIterator[Cluster]:
    """A cluster that runs, with these topics on all of its brokers."""
    made = Cluster(brokers or ("broker-a",), seed=seed, weather=weather)
    await made.name_server.start()
    for broker in made.brokers.values():
        await broker.start()
    for topic in topics:
        made.add_topic(topic)
    yield made


def refuse(code: int, remark: str = "refused") -> Answering:
    """An answer of failure."""
    return lambda command: command.reply(code, remark)


def ignore(command: Command) -> None:
    """No answer at all."""


def after(seconds: float, answering: Answering) -> Answering:
    """The same answer, later."""

    def later(command: Command) -> Answer:
        async def wait() -> Command | None:
            await asyncio.sleep(seconds)
            answer = answering(command)
            assert answer is None or isinstance(answer, Command)
            return answer

        return wait()

    return later


def properties_of(command: Command) -> dict[str, str]:
    """The properties that a send carries."""
    return dict(_properties((command.ext or {})["i"]))


def _properties(text: str) -> list[tuple[str, str]]:
    return [(name, value) for name, _, value in (entry.partition("\x01") for entry in text.split("\x02")) if name]


async def until(condition: Callable[[], object], timeout_s: float = 60) -> None:
    """Return when `condition()` is true; it fails the test when it never is."""
    async with asyncio.timeout(timeout_s):
        while not condition():  # noqa: ASYNC110 there is no event for the condition
            await asyncio.sleep(0.001)

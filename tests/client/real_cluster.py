"""A real name server and real brokers, in memory and in virtual time, with clients: shared by the tests of
consumers.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.broker.running import hold_while_the_store_works
from tests.store.kit import messages_in

from pocketmq.broker.broker import Broker
from pocketmq.broker.messages import Draft
from pocketmq.broker.settings import BrokerSettings
from pocketmq.client.admin.admin import AsyncAdmin
from pocketmq.client.cluster.instance import Dependencies
from pocketmq.client.consumer.lite_pull_consumer import AsyncLitePullConsumer
from pocketmq.client.consumer.pull_consumer import AsyncPullConsumer
from pocketmq.client.consumer.push_consumer import AsyncPushConsumer
from pocketmq.client.consumer.simple_consumer import AsyncSimpleConsumer
from pocketmq.client.producer.producer import AsyncProducer
from pocketmq.client.producer.results import SendResult
from pocketmq.model.message import Message, StoredMessage
from pocketmq.model.queue import MessageQueue
from pocketmq.nameserver.server import NameServer
from pocketmq.nameserver.settings import NameServerSettings
from pocketmq.net.address import Address
from pocketmq.net.network import Network
from pocketmq.protocol.bodies.topics import TopicConfig
from pocketmq.store.settings import StoreSettings
from pocketmq.testing import FakeClock, FaultyFiles, MemoryNetwork, VirtualLoop, Weather

NAME_SERVER = Address("10.0.0.1", 9876)
CALM = Weather(delay_s=(0.0001, 0.0005), segment_bytes=(1 << 16, 1 << 16), window_bytes=1 << 20)


class RealCluster:
    """`brokers` by name. Everybody shares one clock, one network and one disk."""

    def __init__(self, seed: int, weather: Weather) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        self.loop = loop
        self.clock = FakeClock(loop)
        self.network = MemoryNetwork(seed, weather)
        self.files = FaultyFiles(clock=self.clock)
        self.brokers: dict[str, Broker] = {}
        self._dice = random.Random(seed)
        self._hosts: dict[str, str] = {}
        self._networks: dict[str, Network] = {}
        self.name_server = NameServer(
            NameServerSettings(
                host=NAME_SERVER.host, port=NAME_SERVER.port, open_to_the_network_without_authentication=True
            ),
            network=self.network,
            clock=self.clock,
            files=self.files,
        )

    @property
    def broker(self) -> Broker:
        return next(iter(self.brokers.values()))

    async def start_broker(self, name: str, *, store: dict[str, Any] | None = None, **settings: Any) -> Broker:
        """A broker on its own folder of the disk, so a later broker of the same name continues with its files."""
        host = self._hosts.setdefault(name, f"10.0.1.{len(self._hosts) + 1}")
        made = BrokerSettings(
            host=host,
            port=10911,
            broker_name=name,
            name_servers=(NAME_SERVER,),
            store=StoreSettings(
                folder=Path("/store", name), **{"log_file_bytes": 4 << 20, "prepared_files": 1, **(store or {})}
            ),
            tick_ms=50,
            open_to_the_network_without_authentication=True,
            **settings,
        )
        broker = self.brokers[name] = Broker(made, network=self.network.at(host), clock=self.clock, files=self.files)
        await broker.start()
        hold_while_the_store_works(broker)
        return broker

    async def lose_power(self, **settings: Any) -> None:
        """A power loss of the broker; the next one starts from the remaining files. Clients have disks of their own."""
        name, broker = next(iter(self.brokers.items()))
        left = self.files.crash(random.Random(0), survives="nothing")
        self.network.cut(self._hosts[name])
        await broker.stop()
        self.files = left
        await self.start_broker(name, **settings)

    async def delete_topic(self, topic: str) -> None:
        """As an administrator deletes it: from the brokers, then from the name server."""
        async with AsyncAdmin(
            str(NAME_SERVER), dependencies=self.dependencies("10.0.4.1"), client_ip="10.0.4.1"
        ) as admin:
            await admin.topics.delete(topic)

    def place(self, name: str) -> str:
        """The host of a broker, to be cut off."""
        return self._hosts[name]

    def add_topic(self, topic: str, queues: int = 4, brokers: Iterable[str] | None = None, perm: int = 6) -> None:
        for name in brokers or self.brokers:
            parts = self.brokers[name].parts
            parts.state.topics.put(
                [TopicConfig(topic, read_queue_nums=queues, write_queue_nums=queues, perm=perm)], self.clock.now_ms()
            )
            parts.announce()

    def dependencies(self, host: str = "10.0.2.1") -> Dependencies:
        """What a client at `host` sees. Clients of one host share their connections."""
        network = self._networks.setdefault(host, self.network.at(host))
        dice = random.Random(self._dice.random())
        return Dependencies(clock=self.clock, network=network, files=self.files, dice=dice)

    def push_consumer(self, group: str = "G", *, host: str = "10.0.2.1", **options: Any) -> AsyncPushConsumer:
        """A consumer of its own client, on this loop."""
        return AsyncPushConsumer(
            str(NAME_SERVER), dependencies=self.dependencies(host), **self._own(group, host, options)
        )

    def lite_consumer(self, group: str = "G", *, host: str = "10.0.2.1", **options: Any) -> AsyncLitePullConsumer:
        return AsyncLitePullConsumer(
            str(NAME_SERVER), dependencies=self.dependencies(host), **self._own(group, host, options)
        )

    def pull_consumer(self, group: str = "G", *, host: str = "10.0.2.1", **options: Any) -> AsyncPullConsumer:
        return AsyncPullConsumer(
            str(NAME_SERVER), dependencies=self.dependencies(host), **self._own(group, host, options)
        )

    def simple_consumer(self, group: str = "G", *, host: str = "10.0.2.1", **options: Any) -> AsyncSimpleConsumer:
        return AsyncSimpleConsumer(
            str(NAME_SERVER), dependencies=self.dependencies(host), **self._own(group, host, options)
        )

    def _own(self, group: str, host: str, options: dict[str, Any]) -> dict[str, Any]:
        return {"group": group, "client_ip": host, "own_thread": False, **options}

    @asynccontextmanager
    async def producer(self, **options: Any) -> AsyncIterator[AsyncProducer]:
        host = options.pop("host", "10.0.3.1")
        made = AsyncProducer(
            str(NAME_SERVER), dependencies=self.dependencies(host), **{"group": "PG", "client_ip": host, **options}
        )
        async with made as producer:
            yield producer

    async def send(self, topic: str, *bodies: bytes, queue: int | None = None, **options: Any) -> list[SendResult]:
        """Send messages with a temporary producer."""
        async with self.producer() as producer:
            place = None if queue is None else MessageQueue(topic, next(iter(self.brokers)), queue)
            return [await producer.send(Message(topic, body, **options), queue=place) for body in bodies]

    def keep(self, topic: str, body: bytes, *, queue: int = 0, sys_flag: int = 0, tags: str = "") -> StoredMessage:
        """Store a record as another broker may have written it, with any flags. Consumers are woken."""
        properties = {"TAGS": tags} if tags else {}
        draft = Draft(
            topic=topic,
            queue_id=queue,
            body=body,
            properties=properties,
            born_ms=1,
            born_host=bytes(8),
            sys_flag=sys_flag,
        )
        place = self.broker.parts.state.appender.append(draft)
        message = self.broker.parts.state.store.message(place.log_offset)
        assert message is not None
        return message

    def members(self, group: str, broker: str | None = None) -> list[str]:
        """Who is in a group, as a broker sees it."""
        chosen = self.broker if broker is None else self.brokers[broker]
        return sorted(chosen.parts.state.members.client_ids(group))

    def committed(self, group: str, topic: str, queue_id: int, broker: str | None = None) -> int | None:
        """The committed offset of a group at a broker."""
        chosen = self.broker if broker is None else self.brokers[broker]
        return chosen.parts.state.offsets.stored(group, topic, queue_id)

    def stored(self, topic: str, queue_id: int = 0, broker: str | None = None) -> list[StoredMessage]:
        """All messages of a queue that are still there."""
        chosen = self.broker if broker is None else self.brokers[broker]
        return messages_in(chosen.parts.state.store, topic, queue_id)


@asynccontextmanager
async def real_cluster(
    *brokers: str,
    topics: Iterable[str] = ("T",),
    queues: int = 4,
    seed: int = 0,
    weather: Weather = CALM,
    **settings: Any,
) -> AsyncIterator[RealCluster]:
    """A cluster that runs, with these topics on all of its brokers."""
    made = RealCluster(seed, weather)
    async with made.name_server:
        for name in brokers or ("broker-a",):
            await made.start_broker(name, **settings)
        for topic in topics:
            made.add_topic(topic, queues)
        try:
            yield made
        finally:
            for broker in made.brokers.values():
                await broker.stop()


class Basket:
    """A listener that records its messages."""

    def __init__(self, answer: Callable[[StoredMessage], Any] = lambda _: None) -> None:
        self.messages: list[StoredMessage] = []
        self.times: list[float] = []
        self.answer = answer

    async def __call__(self, message: StoredMessage) -> Any:
        self.messages.append(message)
        self.times.append(asyncio.get_running_loop().time())
        return self.answer(message)

    @property
    def bodies(self) -> list[bytes]:
        return [message.body for message in self.messages]

    async def wait(self, count: int, timeout_s: float = 300) -> None:
        """Wait for this number of messages; the test fails if they do not arrive."""
        await until(lambda: len(self.messages) >= count, timeout_s)


async def until(condition: Callable[[], object], timeout_s: float = 300) -> None:
    """Return when `condition()` is true; it fails the test when it never is."""
    async with asyncio.timeout(timeout_s):
        while not condition():  # noqa: ASYNC110 there is no event for the condition
            await asyncio.sleep(0.01)

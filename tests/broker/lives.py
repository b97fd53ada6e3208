"""Complete brokers over several restarts, on one disk and in one network, both in memory and in virtual time.

async with lives.broker() as broker: …      a life that ends with a stop
    lives.crash()                           … or that ended here: what the broker does from now on leaves no trace
async with lives.broker() as broker: …      the next life, from what was left
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from random import Random
from typing import Any, TypeVar, cast

from msgspec.structs import replace
from tests.broker.running import SMALL_STORE, Client, hold_while_the_store_works, workers_of
from tests.net.talk import BRISK, until
from tests.store.kit import messages_in

from pocketmq.broker.broker import Broker
from pocketmq.broker.settings import BrokerSettings
from pocketmq.model.message import StoredMessage
from pocketmq.net.address import Address
from pocketmq.protocol.bodies.topics import TopicConfig
from pocketmq.testing import FakeClock, FaultyFiles, MemoryNetwork, VirtualLoop, run
from pocketmq.testing.disk.model import Survives

T = TypeVar("T")

BROKER = Address("127.0.0.1", 10911)


class Lives:
    """The environment. Every broker gets `settings`, with changes for each run."""

    def __init__(self, *, store: dict[str, Any] | None = None, **settings: Any) -> None:
        self._loop = cast("VirtualLoop", asyncio.get_running_loop())
        self.clock = FakeClock(self._loop)
        self.disk = FaultyFiles(clock=self.clock)
        self.network = MemoryNetwork(weather=BRISK)
        self.settings = BrokerSettings(store=replace(SMALL_STORE, **(store or {})), **{"vip_channel": False} | settings)

    def new_broker(self, **changes: Any) -> Broker:
        """A broker that is not started yet."""
        self._loop.count_stalled(self.disk.stalled)
        settings = replace(self.settings, **changes)
        return Broker(settings, clock=self.clock, network=self.network.at(settings.host), files=self.disk)

    @asynccontextmanager
    async def broker(self, **changes: Any) -> AsyncIterator[Broker]:
        """A broker that serves."""
        async with self.new_broker(**changes) as broker:
            await self.ready(broker)
            yield broker

    async def ready(self, broker: Broker) -> None:
        """Return when the log files of the broker are prepared. Until then, time stops while a thread of its store
        works.
        """
        hold_while_the_store_works(broker)
        await until(lambda: not any(worker.busy for worker in workers_of(broker)))

    def crash(self, survives: Survives = "everything", seed: int = 0) -> None:
        """The broker that runs is killed now, or the power fails."""
        self.disk = self.disk.crash(Random(seed), survives=survives)

    async def client(self, address: Address = BROKER, host: str = "10.1.0.1") -> Client:
        client = Client()
        await self.network.at(host).connect(lambda: client.peer.connection, address)
        return client


def in_virtual_time(main: Callable[[Lives], Coroutine[Any, Any, T]], **settings: Any) -> T:
    """Run `main` with its own environment; `settings` are the broker's."""

    async def with_lives() -> T:
        return await main(Lives(**settings))

    return run(with_lives())


async def lose_what_was_consumed(lives: Lives) -> None:
    """A run that ends with a power loss: of ten messages that a group has consumed, and whose offset is safe, one is
    left.
    """
    async with lives.broker() as broker:
        make_topic(broker)
        client = await lives.client()
        await client.sent(b"kept")
        await asyncio.sleep(11)
        for _ in range(9):
            await client.sent(b"lost")
        await client.pull(0)
        await client.commit(10)
        await broker.parts.state.snapshots.save_offsets()
        lives.crash("nothing")


def make_topic(broker: Broker, name: str = "T", queues: int = 4) -> None:
    broker.parts.state.topics.put([TopicConfig(name, queues, queues)], 0)


def stored(broker: Broker, topic: str = "T", queue_id: int = 0) -> list[StoredMessage]:
    """Every message of a queue, as readers get them."""
    return messages_in(broker.parts.state.store, topic, queue_id)


def bodies(broker: Broker, topic: str = "T", queue_id: int = 0) -> list[bytes]:
    return [message.body for message in stored(broker, topic, queue_id)]

"""A master and a slave in virtual time, each with its own disk, in one network."""

from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from tests.broker.lives import Lives, stored
from tests.broker.running import Client
from tests.net.talk import until

from pocketmq.broker.broker import Broker
from pocketmq.broker.replication_settings import ReplicationSettings, Role
from pocketmq.net.address import Address
from pocketmq.testing import run

MASTER, SLAVE = Address("127.0.0.1", 10911), Address("127.0.0.2", 10911)
HA = ReplicationSettings(port=10912)
FOLLOWS = ReplicationSettings(master=Address("127.0.0.1", 10912))


class Pair:
    """The environments of both. A part that was crashed starts again with what survived."""

    def __init__(self, *, store: dict[str, Any] | None = None, slave_store: dict[str, Any] | None = None) -> None:
        self.master = Lives(store=store, replication=HA)
        self.slave = Lives(
            store=slave_store or store,
            host=SLAVE.host,
            role=Role.SLAVE,
            broker_id=1,
            slave_read=True,
            replication=FOLLOWS,
        )
        self.slave.network = self.network = self.master.network

    @asynccontextmanager
    async def both(self, **changes: Any) -> AsyncIterator[tuple[Broker, Broker]]:
        """A running master, and a slave that follows it; `changes` are settings of the master."""
        async with self.master.broker(**changes) as master, self.slave.broker() as slave:
            await linked(master)
            yield master, slave

    async def client(self, address: Address = MASTER) -> Client:
        return await self.master.client(address)


def with_pair(main: Callable[[Pair], Coroutine[Any, Any, None]], **settings: Any) -> None:
    async def with_both() -> None:
        await main(Pair(**settings))

    run(with_both())


async def linked(master: Broker, slaves: int = 1) -> None:
    await until(lambda: [one.acked >= 0 for one in master.parts.state.replicas] == [True] * slaves)


async def caught_up(master: Broker, slave: Broker) -> None:
    """Wait until the slave has written the log of the master."""
    store = master.parts.state.store
    await until(lambda: slave.parts.state.store.facts.log_written == store.facts.log_written, timeout_s=60)


async def fill(client: Client, count: int, size: int = 4000, first: int = 0, **fields: Any) -> None:
    for number in range(first, first + count):
        await client.sent(f"{number}".encode().ljust(size, b"."), **fields)


def log_of(broker: Broker) -> dict[int, bytes]:
    """The bytes of the log, by the offsets at which its files begin."""
    store = broker.parts.state.store
    found: dict[int, bytes] = {}
    at = store.facts.log_start
    while part := store.log_bytes(at, 1 << 20):
        found[at] = part
        at += len(part)
    return found


def rows(broker: Broker, topic: str = "T", queue_id: int = 0) -> list[tuple[int, bytes]]:
    return [(one.queue_offset, one.body) for one in stored(broker, topic, queue_id)]

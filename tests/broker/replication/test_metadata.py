"""A slave copies the tables of its master, which it finds by the name server; and the master answers Apache's slaves."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.broker.lives import make_topic
from tests.broker.replication.pairs import HA, SLAVE, Pair, caught_up, fill, linked, rows, with_pair
from tests.broker.running import Client
from tests.net.talk import until

from pocketmq.broker.broker import Broker
from pocketmq.broker.delivery.timer_progress import TimerCheck
from pocketmq.broker.replication_settings import ReplicationSettings
from pocketmq.codes import RequestCode
from pocketmq.model import Subscription
from pocketmq.nameserver.server import NameServer
from pocketmq.nameserver.settings import NameServerSettings
from pocketmq.net.address import Address
from pocketmq.protocol.bodies.clients import RequestMode
from pocketmq.protocol.bodies.topics import TimerMetrics

NAME_SERVER = Address("127.0.0.1", 9876)


@asynccontextmanager
async def cluster(pair: Pair) -> AsyncIterator[tuple[Broker, Broker]]:
    """A name server, a master, and a slave that knows only the name server."""
    names = NameServer(NameServerSettings(port=NAME_SERVER.port), clock=pair.master.clock, network=pair.network)
    async with names, pair.master.broker(name_servers=(NAME_SERVER,)) as master:
        found = ReplicationSettings(metadata_ms=3_000)
        async with pair.slave.broker(name_servers=(NAME_SERVER,), replication=found) as slave:
            await linked(master)
            yield master, slave


async def copied(seconds: float = 4) -> None:
    await asyncio.sleep(seconds)


def test_tables_are_copied_and_a_consumer_reads_from_the_slave() -> None:
    async def main(pair: Pair) -> None:
        async with cluster(pair) as (master, slave):
            make_topic(master, queues=3)
            client, reader = await pair.client(), await pair.client(SLAVE)
            await client.beat("G", Subscription("T"))
            await fill(client, 5)
            await client.commit(3)
            master.parts.request_modes.put(RequestMode("T", "G", "POP", 0))
            await caught_up(master, slave)
            await copied()

            state = slave.parts.state
            assert state.topics.snapshot() == master.parts.state.topics.snapshot()
            assert state.groups.snapshot() == master.parts.state.groups.snapshot()
            assert state.offsets.stored("G", "T", 0) == 3
            assert slave.parts.request_modes.body() == master.parts.request_modes.body()
            answer = await reader.pull(0)
            assert (answer.code, (answer.ext or {})["suggestWhichBrokerId"]) == (0, "0")

    with_pair(main)


def test_with_a_master_a_slave_returns_readers_and_without_one_it_holds_them() -> None:
    async def main(pair: Pair) -> None:
        async with cluster(pair) as (master, slave):
            make_topic(master)
            await fill(await pair.client(), 2)
            await caught_up(master, slave)
            await copied()
            reader = await pair.client(SLAVE)
            at_end = await reader.pull(2, wait_ms=15_000)
            assert (at_end.code, (at_end.ext or {})["nextBeginOffset"]) == (20, "2")
            beyond = await reader.pull(7)
            assert (beyond.code, (beyond.ext or {})["nextBeginOffset"]) == (20, "7")
            await master.stop()
            await until(lambda: slave.parts.state.master.address is None, timeout_s=60)
            began = asyncio.get_running_loop().time()
            assert (await reader.pull(2, wait_ms=15_000)).code == 19
            assert asyncio.get_running_loop().time() - began >= 15

    with_pair(main)


def test_a_slave_ignores_the_offset_of_a_pull() -> None:
    async def main(pair: Pair) -> None:
        async with pair.both() as (master, slave):
            make_topic(master)
            make_topic(slave)
            await fill(await pair.client(), 2)
            await caught_up(master, slave)
            reader = await pair.client(SLAVE)
            await reader.pull(1, flags=1 | 4, commit=1)
            assert slave.parts.state.offsets.stored("G", "T", 0) is None

    with_pair(main)


def test_a_topic_that_the_master_deleted_is_deleted_on_the_slave() -> None:
    async def main(pair: Pair) -> None:
        async with cluster(pair) as (master, slave):
            make_topic(master)
            make_topic(master, "Other")
            await fill(await pair.client(), 2)
            await caught_up(master, slave)
            await copied()
            state = master.parts.state
            state.topics.delete("T", 1)
            await copied()
            assert "T" not in slave.parts.state.topics
            assert "Other" in slave.parts.state.topics
            assert slave.parts.state.store.max_offset("T", 0) == 0

    with_pair(main)


def test_the_progress_of_deliveries_is_copied_and_survives_a_restart() -> None:
    async def main(pair: Pair) -> None:
        async with cluster(pair) as (master, slave):
            make_topic(master)
            client = await pair.client()
            await client.sent(b"delayed", properties={"DELAY": "1"})
            await until(lambda: master.parts.delays.progress().get(1) == (1, 1))
            await caught_up(master, slave)
            await copied(6)
            assert slave.parts.delays.progress()[1] == (1, 1)
        async with pair.slave.broker() as again:
            assert again.parts.delays.progress()[1] == (1, 1)

    with_pair(main)


def test_a_slave_that_becomes_the_master_delivers_what_waits_once() -> None:
    async def main(pair: Pair) -> None:
        async with cluster(pair) as (master, slave):
            make_topic(master)
            client = await pair.client()
            await client.sent(b"early", properties={"DELAY": "1"})
            await client.sent(b"late", properties={"DELAY": "3"})
            await until(lambda: master.parts.delays.progress().get(1) == (1, 1))
            await caught_up(master, slave)
            await copied(6)
        changes = {"role": type(master.settings.role).ASYNC_MASTER, "broker_id": 0, "replication": HA}
        async with pair.slave.broker(**changes) as promoted:
            await asyncio.sleep(15)
            assert [body for _, body in rows(promoted)] == [b"early", b"late"]
            await (await pair.client(SLAVE)).sent(b"new")

    with_pair(main)


def test_slaves_of_apache_get_the_progress_of_timed_messages() -> None:
    async def main(pair: Pair) -> None:
        async with pair.master.broker():
            client: Client = await pair.client()
            point = await client.ask(RequestCode.GET_TIMER_CHECK_POINT)
            assert len(point.body) == 56
            assert TimerCheck.parse(bytes(point.body)) == TimerCheck(0, 0)
            metrics = await client.ask(RequestCode.GET_TIMER_METRICS)
            assert TimerMetrics.decode(metrics.body) == TimerMetrics()

    with_pair(main)

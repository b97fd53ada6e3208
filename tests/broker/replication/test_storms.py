"""Random disconnects, partitions, power losses and restarts: afterwards the slave has the log of its master."""

import asyncio
from random import Random

import pytest
from tests.broker.lives import make_topic
from tests.broker.replication.pairs import MASTER, SLAVE, Pair, caught_up, linked, log_of, rows, with_pair
from tests.broker.running import Client, damage

from pocketmq.broker.broker import Broker
from pocketmq.broker.replication_settings import Role

STEPS = 12


@pytest.mark.parametrize("seed", range(12))
def test_after_a_storm_the_logs_are_the_same(seed: int) -> None:
    async def main(pair: Pair) -> None:
        rng = Random(seed)
        role = rng.choice((Role.ASYNC_MASTER, Role.SYNC_MASTER))
        async with pair.master.broker(role=role) as master:
            make_topic(master)
            first = pair.slave.new_broker()
            async with first:
                await pair.slave.ready(first)
                await linked(master)
                await disturb(pair, rng)
            for _ in range(rng.randrange(3)):
                await one_life(pair, rng)
            pair.network.heal()
            async with pair.slave.broker() as slave:
                await caught_up(master, slave)
                await linked(master)
                assert_same(master, slave)
        assert damage(pair.slave.disk) == []

    with_pair(main)


async def one_life(pair: Pair, rng: Random) -> None:
    async with pair.slave.broker():
        await disturb(pair, rng)
        if rng.random() < 0.6:
            pair.slave.crash(rng.choice(("any", "everything")), rng.randrange(1000))


async def disturb(pair: Pair, rng: Random) -> None:
    client = await pair.client()
    for step in range(STEPS):
        what = rng.randrange(6)
        sending = asyncio.ensure_future(send_some(client, rng, step))
        await asyncio.sleep(rng.random() * 0.02)
        if what == 0:
            pair.network.cut(SLAVE.host)
        elif what == 1:
            pair.network.partition(MASTER.host, SLAVE.host)
            await asyncio.sleep(rng.random() * 10)
            pair.network.heal()
        elif what == 2:
            pair.network.half_open(SLAVE.host)
        elif what == 3:
            await asyncio.sleep(rng.random() * 8)
        await sending


async def send_some(client: Client, rng: Random, step: int) -> None:
    sizes = [rng.choice((0, 100, 3_000, 7_000)) for _ in range(rng.randrange(8))]
    for number, size in enumerate(sizes):
        answer = await client.send(f"{step}-{number}".encode().ljust(size, b"."))
        assert answer.code in (0, 11, 12), answer.remark


def assert_same(master: Broker, slave: Broker) -> None:
    """A slave that lost everything has begun with the newest file."""
    start = slave.parts.state.store.facts.log_start
    assert log_of(slave) == {at: data for at, data in log_of(master).items() if at >= start}
    kept = rows(slave)
    assert kept == rows(master)[len(rows(master)) - len(kept) :]

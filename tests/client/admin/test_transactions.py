"""Undecided transactions."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.client.admin.admins import admin_of
from tests.client.real_cluster import RealCluster, real_cluster, until

from pocketmq.client.admin.admin import AsyncAdmin
from pocketmq.client.producer.producer import AsyncProducer
from pocketmq.codes import TransactionState
from pocketmq.model.names import CHECK_MAX_TIME_TOPIC
from pocketmq.testing import run

NOTES_ARE_WRITTEN_S = 5


@asynccontextmanager
async def shop(*brokers: str, queues: int = 4) -> AsyncIterator[tuple[RealCluster, AsyncAdmin, AsyncProducer]]:
    """A cluster, its administrator, and a producer whose check always returns unknown."""
    async with (
        real_cluster(*brokers, queues=queues) as c,
        admin_of(c) as admin,
        c.producer(group="shop", check=lambda _: TransactionState.UNKNOWN) as producer,
    ):
        yield c, admin, producer


async def leave_open(producer: AsyncProducer, body: bytes) -> None:
    async with producer.transaction("T") as tx:
        await tx.send(body)
        await tx.leave_open()


def test_open_transactions_are_found_at_all_brokers_and_decided_ones_are_not() -> None:
    async def main() -> None:
        async with shop("broker-a", "broker-b") as (_, admin, producer):
            assert (await admin.transactions.undecided()).found == ()
            async with producer.transaction("T") as tx:
                await tx.send(b"done")
            for _ in range(8):
                await leave_open(producer, b"open")
            await asyncio.sleep(NOTES_ARE_WRITTEN_S)

            open_ones = await admin.transactions.undecided()

            assert open_ones.is_complete
            assert [(one.topic, one.producer_group) for one in open_ones.found] == [("T", "shop")] * 8
            assert {one.broker for one in open_ones.found} == {"broker-a", "broker-b"}

    run(main())


def test_an_administrator_decides_transactions() -> None:
    async def main() -> None:
        async with shop(queues=1) as (c, admin, producer):
            await leave_open(producer, b"yes")
            await leave_open(producer, b"no")
            yes, no = (await admin.transactions.undecided()).found

            await admin.transactions.commit(yes)
            await admin.transactions.roll_back(no)
            await asyncio.sleep(NOTES_ARE_WRITTEN_S)

            assert [message.body for message in c.stored("T")] == [b"yes"]
            assert (await admin.transactions.undecided()).found == ()

    run(main())


def test_an_incomplete_result_is_marked() -> None:
    async def main() -> None:
        async with shop() as (_, admin, producer):
            for _ in range(3):
                await leave_open(producer, b"1")

            few = await admin.transactions.undecided(limit=2)

            assert (len(few.found), few.is_complete) == (2, False)

    run(main())


def test_a_checked_transaction_is_listed_once() -> None:
    async def main() -> None:
        async with shop() as (_, admin, producer):
            await leave_open(producer, b"1")
            await asyncio.sleep(70)

            [one] = (await admin.transactions.undecided()).found

            assert one.checks >= 1

    run(main())


def test_a_given_up_transaction_is_checked_again() -> None:
    async def main() -> None:
        async with shop() as (c, admin, producer):
            await admin.cluster.change_settings("broker-a", {"transactionCheckMax": 1})
            await leave_open(producer, b"1")
            assert await admin.transactions.given_up() == []
            await until(lambda: c.broker.parts.state.store.max_offset(CHECK_MAX_TIME_TOPIC, 0))

            [lost] = await admin.transactions.given_up()
            await admin.transactions.check_again(lost.broker, lost.offset_id)

            assert (lost.topic, lost.producer_group, lost.broker) == ("T", "shop", "broker-a")
            [one] = (await admin.transactions.undecided()).found
            assert (one.transaction_id, one.checks) == (lost.transaction_id, 0)

    run(main())

"""Concurrent starts and stops of async consumers. Real servers, virtual time."""

import asyncio

import pytest
from tests.client.real_cluster import Basket, real_cluster

from pocketmq.errors import WrongState
from pocketmq.testing import run


def test_a_stop_during_the_start_undoes_the_start() -> None:
    async def main() -> None:
        async with real_cluster(queues=1) as c:
            consumer = c.push_consumer()
            consumer.on("T")(Basket())
            starting = asyncio.create_task(consumer.start())
            await asyncio.sleep(0)

            await consumer.stop()

            assert not c.members("G")
            assert (await consumer.wait(0), consumer.is_running) == (True, False)
            with pytest.raises(WrongState, match="stopped during its start"):
                await starting

    run(main())


def test_a_second_start_is_refused_and_does_not_affect_the_first() -> None:
    async def main() -> None:
        async with real_cluster(queues=1) as c:
            basket = Basket()
            consumer = c.push_consumer(start_at="first")
            consumer.on("T")(basket)
            starting = asyncio.create_task(consumer.start())
            await asyncio.sleep(0)
            with pytest.raises(WrongState, match="starting already"):
                await consumer.start()
            await starting

            await c.send("T", b"0")
            await basket.wait(1)
            await consumer.stop()
            assert not c.members("G")

    run(main())

"""Topics that a running push consumer unsubscribes and subscribes again. Real servers, virtual time."""

import asyncio

import pytest
from tests.client.real_cluster import Basket, real_cluster, until

from pocketmq.model.message import StoredMessage
from pocketmq.testing import run


@pytest.mark.parametrize("ordered", [False, True])
def test_cached_messages_of_an_unsubscribed_topic_wait_for_a_new_subscription(ordered: bool) -> None:
    async def main() -> None:
        async with real_cluster(queues=1, topics=("T", "U")) as c:
            seen: list[bytes] = []
            consumer = c.push_consumer(start_at="first", workers=1, ordered=ordered)

            async def handle(message: StoredMessage) -> None:
                seen.append(message.body)
                await asyncio.sleep(0.1)

            consumer.on("T")(handle)
            consumer.on("U")(handle)
            await c.send("T", *(b"%d" % number for number in range(50)))
            async with consumer:
                await until(lambda: len(seen) == 3)
                await consumer.unsubscribe("T")
                await asyncio.sleep(100)
                assert (len(seen), c.committed("G", "T", 0)) == (3, 3)

                await consumer.subscribe("T", handle)
                await until(lambda: len(seen) == 50)

            assert seen == [b"%d" % number for number in range(50)]

    run(main())


def test_a_topic_subscribed_again_at_once_continues_at_its_offset() -> None:
    async def main() -> None:
        async with real_cluster(queues=1) as c:
            basket = Basket()
            consumer = c.push_consumer(start_at="first")
            consumer.on("T")(basket)
            async with consumer:
                await c.send("T", b"0")
                await basket.wait(1)
                for number in range(1, 20):
                    await consumer.unsubscribe("T")
                    await consumer.subscribe("T", basket)
                    await c.send("T", b"%d" % number)
                await basket.wait(20)
                await asyncio.sleep(10)

            assert basket.bodies == [b"%d" % number for number in range(20)]
            assert c.committed("G", "T", 0) == 20

    run(main())

"""The lite pull consumer during failures and offset resets. Real servers, virtual time."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.client.real_cluster import RealCluster, real_cluster, until

from pocketmq.client.consumer.lite_pull_consumer import AsyncLitePullConsumer
from pocketmq.codes import SysFlag
from pocketmq.errors import InvalidExpression, ProtocolError
from pocketmq.model.message import Message
from pocketmq.model.queue import MessageQueue
from pocketmq.testing import run

QUEUE = MessageQueue("T", "broker-a", 0)


async def bodies_of(consumer: AsyncLitePullConsumer, count: int) -> list[bytes]:
    """Wait for this number of messages; the test fails if they do not arrive."""
    bodies: list[bytes] = []
    async with asyncio.timeout(300):
        while len(bodies) < count:
            bodies += [message.body for message in await consumer.poll(timeout_s=1)]
    return bodies


@asynccontextmanager
async def reader(c: RealCluster, **options: Any) -> AsyncIterator[AsyncLitePullConsumer]:
    async with c.lite_consumer(start_at="first", **options) as consumer:
        await consumer.subscribe("T")
        yield consumer


def test_messages_are_delivered_again_after_a_reset_to_an_earlier_offset() -> None:
    async def main() -> None:
        async with real_cluster(queues=1) as c, reader(c) as consumer:
            await c.send("T", b"0", b"1", b"2")
            await bodies_of(consumer, 3)

            c.broker.parts.state.offsets.reset("G", "T", {0: 1})
            assert await bodies_of(consumer, 2) == [b"1", b"2"]
            await consumer.commit()
            assert c.committed("G", "T", 0) == 3

    run(main())


def test_a_member_that_has_not_polled_does_not_undo_a_reset() -> None:
    async def main() -> None:
        async with real_cluster(queues=1) as c, reader(c) as consumer:
            await c.send("T", b"0", b"1", b"2")
            await bodies_of(consumer, 3)
            await consumer.commit()
            await consumer.pause([QUEUE])
            await asyncio.sleep(30)
            await c.send("T", *(b"%d" % number for number in range(3, 20)))

            c.broker.parts.state.offsets.reset("G", "T", {0: 15})
            await consumer.resume([QUEUE])
            await asyncio.sleep(30)
            assert c.committed("G", "T", 0) == 15
            assert await bodies_of(consumer, 5) == [b"15", b"16", b"17", b"18", b"19"]

    run(main())


def test_without_auto_commit_commits_of_others_are_kept() -> None:
    async def main() -> None:
        async with real_cluster(queues=1) as c:
            async with reader(c, auto_commit=False) as consumer, c.pull_consumer(host="10.0.2.7") as other:
                await c.send("T", b"0", b"1", b"2")
                await bodies_of(consumer, 3)
                await other.commit({QUEUE: 2})
                await asyncio.sleep(60)
                assert c.committed("G", "T", 0) == 2

            assert c.committed("G", "T", 0) == 2

    run(main())


def test_an_unavailable_broker_causes_neither_an_error_nor_a_delay_of_poll() -> None:
    async def main() -> None:
        async with real_cluster("broker-a", "broker-b", queues=1) as c, reader(c) as consumer:
            await until(lambda: len(consumer._member._owned) == 2)
            await c.brokers["broker-b"].stop()
            began = c.loop.time()
            for number in range(30):
                await c.send("T", b"%d" % number, queue=0)
                assert await bodies_of(consumer, 1) == [b"%d" % number]
                assert await consumer.poll(timeout_s=1) == []

            assert c.loop.time() - began < 35
            assert 20 < (c.committed("G", "T", 0) or 0) <= 30
            await c.start_broker("broker-b")

    run(main())


def test_an_unreadable_body_raises_when_it_is_next_and_may_be_skipped() -> None:
    async def main() -> None:
        async with real_cluster(queues=1) as c, reader(c) as consumer:
            await consumer.pause(await owned(consumer))
            await c.send("T", b"0", b"1")
            async with c.producer() as producer:
                damaged = producer.member.outbox.packer.pack(Message("T", b"not what zlib writes"))
                damaged.sys_flag |= SysFlag.COMPRESSED
                await producer.member.outbox.deliver(damaged)
            await c.send("T", b"3")
            await consumer.resume([QUEUE])

            assert await bodies_of(consumer, 2) == [b"0", b"1"]
            for _ in range(2):
                with pytest.raises(ProtocolError) as caught:
                    await bodies_of(consumer, 1)
            assert "offset 2 of T@broker-a:0; `seek` to 3 to skip it" in caught.value.__notes__[0]

            await consumer.seek(QUEUE, 3)
            assert await bodies_of(consumer, 1) == [b"3"]
            await consumer.commit()
            assert c.committed("G", "T", 0) == 4

    run(main())


async def owned(consumer: AsyncLitePullConsumer) -> list[MessageQueue]:
    """Its queues, once it has them."""
    await until(lambda: len(consumer._member._owned))
    return await consumer.queues()


def test_assigned_queues_refuse_an_invalid_filter() -> None:
    async def main() -> None:
        async with real_cluster(queues=1) as c:
            async with c.lite_consumer(start_at="first") as consumer:
                with pytest.raises(InvalidExpression, match="a = = b"):
                    await consumer.assign([QUEUE], sql="a = = b")
                await consumer.assign([QUEUE])
                await c.send("T", b"0")
                assert await bodies_of(consumer, 1) == [b"0"]

            late = c.lite_consumer(start_at="first", host="10.0.2.2")
            with pytest.raises(InvalidExpression, match="a = = b"):
                await late.assign([QUEUE], sql="a = = b")

    run(main())


def test_no_message_of_an_unsubscribed_topic_is_polled() -> None:
    async def main() -> None:
        async with real_cluster(queues=1) as c, reader(c, pull_batch=2) as consumer:
            await c.send("T", b"0", b"1", b"2", b"3")
            assert len(await bodies_of(consumer, 2)) == 2
            await consumer.unsubscribe("T")
            assert await consumer.poll(timeout_s=0.01) == []

            await consumer.subscribe("T")
            assert await bodies_of(consumer, 2) == [b"2", b"3"]

    run(main())

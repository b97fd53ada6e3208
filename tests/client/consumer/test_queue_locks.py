"""Locks of ordered queues that are lost, acquired again and released. Real servers, virtual time."""

import asyncio

import pytest
from tests.client.real_cluster import Basket, RealCluster, real_cluster, until

from pocketmq.client.consumer.first_offsets import FirstOffsets
from pocketmq.client.consumer.push_consumer import AsyncPushConsumer
from pocketmq.model.message import StoredMessage
from pocketmq.model.queue import MessageQueue
from pocketmq.testing import run


def member(c: RealCluster, seen: list[tuple[int, int]], number: int) -> AsyncPushConsumer:
    """A listener that takes half a second per message, and records its number and the offset."""
    consumer = c.push_consumer(start_at="first", ordered=True, host=f"10.0.2.{number}", pull_batch=200)

    @consumer.on("T")
    async def handle(message: StoredMessage) -> None:
        await asyncio.sleep(0.5)
        seen.append((number, message.queue_offset))

    return consumer


def test_a_disconnected_member_continues_after_the_messages_that_another_handled() -> None:
    async def main() -> None:
        async with real_cluster(queues=1) as c:
            seen: list[tuple[int, int]] = []
            await c.send("T", *(b"%d" % number for number in range(150)))
            async with member(c, seen, 1), member(c, seen, 2):
                await until(lambda: len(seen) == 10)
                c.network.partition("10.0.2.1", c.place("broker-a"))
                await until(lambda: (2, 149) in seen)
                await until(lambda: c.committed("G", "T", 0) == 150)
                seen.clear()

                c.network.heal()
                await asyncio.sleep(100)
                assert (seen, c.committed("G", "T", 0)) == ([], 150)
                await c.send("T", b"150")
                await until(lambda: seen)

            assert seen == [(1, 150)]

    run(main())


def test_a_disconnected_member_without_others_continues_at_its_offset() -> None:
    async def main() -> None:
        async with real_cluster(queues=1) as c:
            seen: list[tuple[int, int]] = []
            await c.send("T", *(b"%d" % number for number in range(150)))
            async with member(c, seen, 1):
                await until(lambda: len(seen) == 10)
                c.network.partition("10.0.2.1", c.place("broker-a"))
                await asyncio.sleep(100)
                c.network.heal()
                await until(lambda: len(seen) >= 150)

            assert [offset for _, offset in seen] == list(range(150))

    run(main())


def test_calls_of_a_shared_job_stop_when_the_lock_may_have_expired() -> None:
    async def main() -> None:
        async with real_cluster(queues=1) as c:
            seen: list[bytes] = []
            consumer = c.push_consumer(start_at="first", ordered=True)

            @consumer.on("T")
            async def handle(message: StoredMessage) -> None:
                if message.body == b"long":
                    await asyncio.sleep(45)
                seen.append(message.body)

            async with consumer:
                await c.send("T", *(b"%d" % number for number in range(50)))
                await until(lambda: len(seen) == 50)
                consumer.pause()
                await asyncio.sleep(20)
                await c.send("T", b"long", *(b"%d" % number for number in range(10)))
                seen.clear()
                consumer.resume()
                await until(lambda: any(one.consuming == 11 for one in consumer._member._owned.all()))
                c.network.partition("10.0.2.1", c.place("broker-a"))
                await asyncio.sleep(60)
                assert seen == [b"long"]
                c.network.heal()
                await until(lambda: len(seen) == 11)

            assert seen[1:] == [b"%d" % number for number in range(10)]

    run(main())


def test_a_stop_during_the_start_of_queues_releases_their_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with real_cluster(queues=4) as c:
            asked: list[MessageQueue] = []

            async def wait(self: FirstOffsets, queue: MessageQueue, all_queues: object) -> int:
                asked.append(queue)
                await asyncio.sleep(3600)
                return 0

            monkeypatch.setattr(FirstOffsets, "find", wait)
            # RocketMQ's brokers keep the locks of a client that has left.
            monkeypatch.setattr(type(c.broker.parts.state.locks), "release", lambda *_: None)
            consumer = c.push_consumer(start_at="first", ordered=True)
            consumer.on("T")(Basket())
            async with consumer:
                await until(lambda: asked)
                assert c.broker.parts.state.locks.has_locks("G", c.clock.monotonic())

            await until(lambda: not c.broker.parts.state.locks.has_locks("G", c.clock.monotonic()), timeout_s=1)

    run(main())

"""The lifecycle of clients: `stop` ends a client although calls wait for it, and each runs on one loop."""

import asyncio
from pathlib import Path

import pytest
from tests.client.consumer.test_offsets import Shelf
from tests.client.kit import cluster, ignore
from tests.client.real_cluster import real_cluster, until

from pocketmq import Server
from pocketmq.client import AsyncProducer, SendResult
from pocketmq.client.cluster.instance import _instances
from pocketmq.codes import RequestCode
from pocketmq.errors import InvalidSetting, WrongState
from pocketmq.model.message import Message, StoredMessage
from pocketmq.model.queue import MessageQueue
from pocketmq.testing import run


def instances() -> int:
    """Of this loop, with lines and heartbeats."""
    return len(_instances.get(asyncio.get_running_loop(), {}))


async def give_up(waiting: "asyncio.Task[None]") -> None:
    waiting.cancel()
    await asyncio.wait((waiting,))
    assert waiting.cancelled()


def test_a_producer_stops_although_the_stop_is_cancelled() -> None:
    async def main() -> None:
        async with cluster() as c:
            c.broker.answers[RequestCode.SEND_MESSAGE_V2] = ignore
            producer = c.new_producer(stop_timeout_ms=2_000, retries=0)
            await producer.start()
            sending = asyncio.create_task(producer.send("T", b"never answered"))
            await until(lambda: c.broker.sends)

            stopping = asyncio.create_task(producer.stop())
            await asyncio.sleep(0.5)
            await give_up(stopping)
            assert instances() == 1, "what is on its way is waited for"

            await until(lambda: instances() == 0)
            await asyncio.wait((sending,))
            assert sending.exception() is not None

    run(main())


def test_a_consumer_leaves_its_group_although_the_stop_is_cancelled() -> None:
    async def main() -> None:
        async with real_cluster(queues=1) as c:
            consumer = c.push_consumer(start_at="first")
            at_work = asyncio.Event()

            @consumer.on("T")
            async def never_ends(message: StoredMessage) -> None:
                at_work.set()
                await asyncio.Event().wait()

            await consumer.start()
            await c.send("T", b"x")
            await at_work.wait()
            stopping = asyncio.create_task(consumer.stop())
            await asyncio.sleep(0.5)
            await give_up(stopping)
            assert c.members("G") != [], "its listener is waited for"

            assert await consumer.wait()
            assert (c.members("G"), instances()) == ([], 0)

    run(main())


def test_the_wait_for_a_consumer_can_have_a_timeout() -> None:
    async def main() -> None:
        async with real_cluster(queues=1) as c:
            consumer = c.lite_consumer()
            await consumer.start()
            assert not await consumer.wait(timeout_s=5)

            stopping = asyncio.create_task(consumer.stop())
            assert await consumer.wait(timeout_s=5)
            await stopping
            assert await consumer.wait(timeout_s=0)

    run(main())


def test_a_second_stop_waits_for_the_end_of_the_first() -> None:
    async def main() -> None:
        async with cluster() as c:
            producer = c.new_producer()
            await producer.start()
            await producer.send("T", b"x")
            first, second = asyncio.create_task(producer.stop()), asyncio.create_task(producer.stop())
            await asyncio.wait((second,))

            assert (instances(), first.done()) == (0, True)
            await producer.stop()

    run(main())


def test_a_start_cancelled_at_any_moment_leaves_no_member() -> None:
    async def main() -> None:
        async with real_cluster(queues=1) as c:
            moment_s, given_up, started = 0.0, 0, False
            while not started:
                consumer = c.push_consumer()
                consumer.on("T")(print)
                starting = asyncio.create_task(consumer.start())
                await asyncio.sleep(moment_s)
                moment_s += 0.0001
                if started := starting.done():
                    await consumer.stop()
                else:
                    await give_up(starting)
                    given_up += 1
                assert (c.members("G"), instances()) == ([], 0)
            assert given_up > 10

    run(main())


FIRST, SECOND = (MessageQueue("T", "broker-a", number) for number in range(2))


class SlowShelf(Shelf):
    """The start waits for the offset of the second queue, and the first is read already."""

    async def load(self, queue: MessageQueue) -> int | None:
        if queue == SECOND:
            await asyncio.sleep(2)
        return await super().load(queue)


def test_a_cancelled_start_waits_for_running_listeners() -> None:
    async def main() -> None:
        async with real_cluster(queues=2) as c:
            await c.send("T", b"x", queue=0)
            shelf = SlowShelf()
            shelf.kept = {FIRST: 0, SECOND: 0}
            consumer = c.push_consumer(offset_store=shelf)
            done: list[float] = []
            at_work = asyncio.Event()

            @consumer.on("T")
            async def handle(message: StoredMessage) -> None:
                at_work.set()
                await asyncio.sleep(2)
                done.append(asyncio.get_running_loop().time())

            starting = asyncio.create_task(consumer.start())
            await at_work.wait()
            assert not starting.done()
            await give_up(starting)

            assert len(done) == 1
            assert shelf.kept[FIRST] == 1

    run(main())


def test_a_failed_start_leaves_nothing_running() -> None:
    async def main() -> None:
        async with real_cluster() as c:
            consumer = c.pull_consumer(broadcast=True, instance_name="a/b")
            with pytest.raises(InvalidSetting, match="cannot be used as the name of a folder"):
                await consumer.start()
            assert instances() == 0

    run(main())


def test_a_client_used_on_another_loop_raises_instead_of_hanging(tmp_path: Path) -> None:
    async def elsewhere(producer: AsyncProducer) -> None:
        for sending in (
            producer.send("T", b"usual"),
            producer.send("T", b"unusual", timeout_s=1),
            producer.send_many([Message("T", b"x")]),
            submit(producer, None),
            submit(producer, 1),
        ):
            with pytest.raises(WrongState, match="was started on another event loop"):
                await asyncio.wait_for(sending, 10)
        with pytest.raises(WrongState, match="belongs to another event loop"):
            await asyncio.wait_for(producer.queues("U"), 10)

    async def submit(producer: AsyncProducer, timeout_s: float | None) -> SendResult:
        return await producer.submit("T", b"x", timeout_s=timeout_s)

    with Server(tmp_path) as server, asyncio.Runner() as home:
        producer = AsyncProducer(server.name_server)
        home.run(producer.start())
        for _ in range(2):
            assert home.run(producer.send("T", b"finds the route")).is_ok

        with asyncio.Runner() as other:
            other.run(elsewhere(producer))

        assert home.run(producer.send("T", b"x")).is_ok
        assert producer.in_flight == 0
        home.run(producer.stop())

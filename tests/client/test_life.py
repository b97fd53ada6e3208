"""The life of clients: one that is told to stop does so, whoever still waits for it."""

import asyncio

import pytest
from tests.client.kit import cluster, ignore
from tests.client.real_cluster import real_cluster, until

from pocketmq.client.instance import _instances
from pocketmq.codes import RequestCode
from pocketmq.errors import InvalidSetting
from pocketmq.model.message import StoredMessage
from pocketmq.testing import run


def instances() -> int:
    """Of this loop, with lines and heartbeats."""
    return len(_instances.get(asyncio.get_running_loop(), {}))


async def give_up(waiting: "asyncio.Task[None]") -> None:
    waiting.cancel()
    await asyncio.wait((waiting,))
    assert waiting.cancelled()


def test_a_producer_stops_although_nobody_waits_for_it() -> None:
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


def test_a_consumer_leaves_its_group_although_nobody_waits_for_it() -> None:
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

            await consumer.wait()
            assert (c.members("G"), instances()) == ([], 0)

    run(main())


def test_who_stops_a_client_that_stops_already_waits_for_its_end() -> None:
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


def test_a_start_that_is_given_up_at_any_moment_leaves_no_member_behind() -> None:
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


def test_a_start_that_fails_leaves_nothing_behind() -> None:
    async def main() -> None:
        async with real_cluster() as c:
            consumer = c.pull_consumer(broadcast=True, instance_name="a/b")
            with pytest.raises(InvalidSetting, match="cannot be the name of a folder"):
                await consumer.start()
            assert instances() == 0

    run(main())

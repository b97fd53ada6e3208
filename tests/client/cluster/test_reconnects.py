"""Sends while a broker or a name server restarts: they wait until their deadline and continue after the restart."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.client.kit import Cluster, FakeServer, cluster, until
from tests.client.real_cluster import Basket, real_cluster

from pocketmq.client.cluster.instance import Instance
from pocketmq.client.hooks import Hooks, SendEvent
from pocketmq.client.producer.producer import AsyncProducer
from pocketmq.client.producer.results import SendResult
from pocketmq.client.settings import ProducerSettings
from pocketmq.codes import RequestCode, TransactionState
from pocketmq.errors import CallTimedOut, ConnectFailed, NetworkError
from pocketmq.model.message import Message
from pocketmq.model.queue import MessageQueue
from pocketmq.testing import run
from pocketmq.testing.memory_net import DEFAULT_HOST

QUEUE = MessageQueue("T", "broker-a", 1)


class Watching(Hooks):
    def after_send(self, event: SendEvent) -> None:
        """Sends take the longer way."""


Way = Callable[[AsyncProducer], Awaitable[object]]


async def in_transaction(producer: AsyncProducer) -> None:
    async with producer.transaction("T") as tx:
        await tx.send(b"x")


async def as_request(producer: AsyncProducer) -> None:
    with pytest.raises(CallTimedOut, match="the request was sent, but no reply arrived"):
        await producer.request("T", b"x", timeout_s=3)


WAYS: dict[str, Way] = {
    "send": lambda producer: producer.send("T", b"x"),
    "whole message": lambda producer: producer.send(Message("T", b"x", flag=1)),
    "chosen queue": lambda producer: producer.send("T", b"x", queue=QUEUE),
    "sharding key": lambda producer: producer.send("T", b"x", sharding_key="42"),
    "submit": lambda producer: producer.submit("T", b"x"),
    "submit to a queue": lambda producer: producer.submit("T", b"x", queue=QUEUE),
    "one way": lambda producer: producer.send_one_way("T", b"x"),
    "many": lambda producer: producer.send_many([Message("T", b"x"), Message("T", b"y")]),
    "transaction": in_transaction,
    "request": as_request,
}


async def restart(server: FakeServer, after_s: float) -> None:
    await asyncio.sleep(after_s)
    await server.start()


def now() -> float:
    return asyncio.get_running_loop().time()


def connects(c: Cluster, server: FakeServer) -> int:
    return sum(line.what == "connect" and line.target == str(server.address) for line in c.network.log)


def producer_of(c: Cluster, **options: object) -> AsyncProducer:
    return c.new_producer(group="g", check=lambda _: TransactionState.UNKNOWN, **options)


@pytest.mark.parametrize("options", [{}, {"linger_ms": 5}, {"retries": 0}], ids=str)
@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_a_send_waits_for_a_broker_that_restarts(way: Way, options: dict[str, int]) -> None:
    async def main() -> None:
        async with cluster() as c, producer_of(c, **options) as producer:
            await producer.send("T", b"before")
            c.broker.close()
            for _ in range(8):  # other users of the line have failed for a while
                with pytest.raises(NetworkError):
                    await producer.send("T", b"lost", timeout_s=0.7)
            began = now()
            back = asyncio.create_task(restart(c.broker, 1.5))

            await way(producer)
            took_s = now() - began
            await back
            await until(lambda: any(body == b"x" for _, body in c.broker.stored))

            assert 1.5 <= took_s <= 2.2 or way is as_request

    run(main())


def test_an_unavailable_broker_fails_the_send_at_its_deadline_with_few_connection_attempts() -> None:
    async def main() -> None:
        async with cluster() as c, c.producer() as producer:
            await producer.send("T", b"before")
            c.broker.close()
            began, before = now(), connects(c, c.broker)

            with pytest.raises(
                ConnectFailed, match=r"no connection to broker-a before the send timed out; nothing was sent: 10"
            ):
                await producer.send("T", b"x")

            assert now() - began == pytest.approx(3, abs=0.05)
            assert connects(c, c.broker) - before < 15

    run(main())


def test_a_search_that_has_just_failed_does_not_fail_the_next_send() -> None:
    async def main() -> None:
        async with cluster() as c, c.producer() as producer:
            await producer.send("T", b"before")
            reconnects = producer.member.outbox.attempts._reconnects
            c.broker.close()
            first = asyncio.create_task(reconnects.wait("T", None, now() + 0.1))
            await asyncio.sleep(0)
            (search,) = reconnects._searches.values()
            assert not await first
            assert not await search.task
            reconnects._searches["T", None] = search  # as it is until the callbacks of its task have run
            back = asyncio.create_task(restart(c.broker, 0.5))

            assert await reconnects.wait("T", None, now() + 2)
            await back

    run(main())


ORDERED: dict[str, Callable[[AsyncProducer, bytes], "asyncio.Future[SendResult]"]] = {
    "submit": lambda producer, body: producer.submit("T", body, queue=QUEUE),
    "whole message": lambda producer, body: producer.submit(Message("T", body, flag=1), queue=QUEUE),
    "send": lambda producer, body: asyncio.ensure_future(producer.send("T", body, queue=QUEUE)),
    "both": lambda producer, body: ORDERED["send" if int(body) % 2 else "submit"](producer, body),
}


@pytest.mark.parametrize("step_s", [0.0002, 0.003])
@pytest.mark.parametrize("options", [{}, {"linger_ms": 5}, {"hooks": [Watching()]}], ids=["plain", "linger", "hooks"])
@pytest.mark.parametrize("way", ORDERED)
def test_messages_to_a_chosen_queue_stay_in_order_when_its_broker_returns(
    way: str, options: dict[str, Any], step_s: float
) -> None:
    async def main() -> None:
        async with cluster() as c, c.producer(**options) as producer:
            await producer.send("T", b"before", queue=QUEUE)
            c.broker.close()
            back = asyncio.create_task(restart(c.broker, 0.4))
            sends: list[asyncio.Future[SendResult]] = []
            end = now() + 0.8
            while now() < end:
                sends.append(ORDERED[way](producer, b"%d" % len(sends)))
                await asyncio.sleep(step_s)
            await asyncio.gather(
                *sends, back, return_exceptions=True
            )  # the first were written before the line was lost

            numbers = [int(body) for _, body in c.broker.stored if body.isdigit()]
            assert numbers == sorted(numbers)
            assert not producer.member.outbox.choice.order._turns

    run(main())


def test_a_cancelled_message_does_not_block_those_after_it() -> None:
    async def main() -> None:
        async with cluster() as c, c.producer() as producer:
            await producer.send("T", b"before", queue=QUEUE)
            c.broker.close()
            sends = [producer.submit("T", b"%d" % number, queue=QUEUE) for number in range(4)]
            await asyncio.sleep(0.5)
            for given_up in (sends[0], sends[2]):
                given_up.cancel()
            await restart(c.broker, 0.2)
            await asyncio.gather(sends[1], sends[3])
            c.broker.close()

            with pytest.raises(ConnectFailed, match="earlier messages wait for T@broker-a:1"):
                await asyncio.gather(
                    producer.send("T", b"4", queue=QUEUE), producer.send("T", b"5", queue=QUEUE, timeout_s=1)
                )
            assert [body for _, body in c.broker.stored][1:] == [b"1", b"3"]

    run(main())


def test_many_sends_wait_for_one_connection() -> None:
    async def main() -> None:
        async with cluster() as c, c.producer() as producer:
            await producer.send("T", b"before")
            c.broker.close()
            before = connects(c, c.broker)
            sends = [producer.submit("T", b"x") for _ in range(500)]
            await restart(c.broker, 2)

            assert len(await asyncio.gather(*sends)) == 500
            assert connects(c, c.broker) - before < 15

    run(main())


def test_another_broker_of_the_topic_is_used_at_once() -> None:
    async def main() -> None:
        async with cluster("broker-a", "broker-b") as c, c.producer(retries=0) as producer:
            for _ in range(8):
                await producer.send("T", b"before")
            c.broker.close()
            began = now()

            for _ in range(16):
                assert (await producer.send("T", b"x")).queue.broker_name == "broker-b"

            assert now() - began < 0.1

    run(main())


def test_a_broker_that_answers_no_connection_delays_one_send_and_no_more() -> None:
    async def main() -> None:
        async with cluster("broker-a", "broker-b") as c, c.producer(connect_timeout_ms=1000) as producer:
            for _ in range(8):
                await producer.send("T", b"before")
            c.broker.close()
            c.network.partition(DEFAULT_HOST, "10.0.0.2")
            await c.broker.start()
            await producer.send("T", b"x")
            await producer.send("T", b"x")
            began = now()

            for _ in range(40):
                assert (await producer.send("T", b"x")).queue.broker_name == "broker-b"
                await asyncio.sleep(0.1)

            assert now() - began < 4.5

    run(main())


def test_two_brokers_that_restart_are_used_as_soon_as_one_is_back() -> None:
    async def main() -> None:
        async with cluster("broker-a", "broker-b") as c, c.producer() as producer:
            for _ in range(8):
                await producer.send("T", b"before")
            for broker in c.brokers.values():
                broker.close()
            back = asyncio.create_task(restart(c.brokers["broker-b"], 1))

            assert (await producer.send("T", b"x")).queue.broker_name == "broker-b"
            await back

    run(main())


def test_a_broker_that_returns_at_another_address_is_found() -> None:
    async def main() -> None:
        async with cluster() as c, c.producer() as producer:
            await producer.send("T", b"before")
            c.broker.close()
            c.broker.address = c.broker.address._replace(host="10.0.0.77")
            await c.broker.start()
            c.add_topic("T")

            await producer.send("T", b"x")

            assert c.broker.stored[-1][1] == b"x"

    run(main())


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_a_first_send_waits_for_a_name_server_that_restarts(way: Way) -> None:
    async def main() -> None:
        async with cluster() as c, producer_of(c) as producer:
            c.name_server.close()
            back = asyncio.create_task(restart(c.name_server, 1.5))

            await way(producer)
            await back
            await until(lambda: any(body == b"x" for _, body in c.broker.stored))

    run(main())


def test_an_unavailable_name_server_fails_the_send_at_its_deadline() -> None:
    async def main() -> None:
        async with cluster() as c, c.producer() as producer:
            c.name_server.close()
            began = now()

            with pytest.raises(ConnectFailed, match=r"no name server answered: .*connection refused"):
                await producer.send("T", b"x")

            assert now() - began == pytest.approx(3, abs=0.05)

    run(main())


def test_after_the_last_client_stopped_no_task_waits() -> None:
    async def main() -> None:
        async with cluster() as c:
            instance = Instance.join(ProducerSettings(name_servers="10.0.0.1:9876"), c.dependencies)
            c.name_server.close()
            waiting = asyncio.create_task(instance.reconnects.wait("T", None, now() + 60))
            await asyncio.sleep(1)
            await instance.leave()

            assert await waiting is False
            assert now() < 30

    run(main())


def test_a_heartbeat_precedes_the_first_send_on_a_new_connection() -> None:
    async def main() -> None:
        async with cluster() as c, c.producer() as producer:
            await producer.send("T", b"before")
            c.broker.close()
            heard = len(c.broker.heard)
            back = asyncio.create_task(restart(c.broker, 1))
            await producer.send("T", b"x")
            await back

            assert c.broker.heard[heard].code == RequestCode.HEART_BEAT

    run(main())


def test_a_consumer_pulls_again_within_two_seconds_after_its_broker_is_back() -> None:
    async def main() -> None:
        async with real_cluster() as c:
            c.add_topic("T")
            seen = Basket()
            consumer = c.push_consumer(start_at="first")
            await consumer.subscribe("T", seen)
            async with consumer:
                for times in range(1, 7):
                    await c.broker.stop()
                    await asyncio.sleep(60 + times)
                    await c.start_broker(c.broker.settings.broker_name)
                    began = now()
                    await c.send("T", b"after")
                    await seen.wait(times)

                    assert now() - began < 2

    run(main())

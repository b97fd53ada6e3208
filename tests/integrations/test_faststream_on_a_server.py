"""Subscribers on a server: acknowledgements, retries, dead letters, requests, groups, starts and stops."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from faststream import AckPolicy
from faststream.exceptions import NackMessage, RejectMessage, StopConsume
from faststream.security import BaseSecurity, SASLPlaintext, SASLScram256
from tests.integrations.programs import program

import pocketmq
from pocketmq.errors import InvalidSetting, UsageError
from pocketmq.integrations.faststream import RocketBroker, RocketMessage, TestRocketBroker
from pocketmq.integrations.faststream.broker import _secured

PATIENCE_S = 30


@pytest.fixture
def server(rocketmq: pocketmq.Server) -> pocketmq.Server:
    """With topics, for which subscribers would wait a second each."""
    with pocketmq.Admin(rocketmq.name_server) as admin:
        for topic in ("orders", "invoices", "events", "sums", "totals"):
            admin.topics.create(topic)
    return rocketmq


async def until(is_so: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not is_so():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def until_awaited(ask: Callable[[], Awaitable[Any]]) -> Any:
    async with asyncio.timeout(PATIENCE_S):
        while not (found := await ask()):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    return found


@asynccontextmanager
async def started(broker: RocketBroker) -> AsyncIterator[RocketBroker]:
    await broker.start()
    try:
        yield broker
    finally:
        await broker.stop()


def broker_of(server: pocketmq.Server, **options: Any) -> RocketBroker:
    return RocketBroker(server.name_server, logger=None, **options)


def test_an_acknowledged_message_is_not_delivered_again(server: pocketmq.Server) -> None:
    async def main() -> None:
        first = broker_of(server, group="billing")
        seen: list[str] = []

        @first.subscriber("orders", start_at="first")
        async def bill(order: str) -> None:
            seen.append(order)

        async with started(first):
            for number in range(5):
                await first.publish(f"order {number}", "orders")
            await until(lambda: len(seen) == 5)

        second = broker_of(server, group="billing")
        second.subscriber("orders", start_at="first")(bill)
        async with started(second):
            await second.publish("order 5", "orders")
            await until(lambda: len(seen) == 6)

        assert sorted(seen) == [f"order {number}" for number in range(6)]

    asyncio.run(main())


def test_a_handler_that_raises_is_retried_and_a_rejected_message_is_a_dead_letter(server: pocketmq.Server) -> None:
    attempts: list[str] = []

    async def main() -> None:
        broker = broker_of(server, group="billing")

        @broker.subscriber("orders", start_at="first")
        async def bill(order: str, message: RocketMessage) -> None:
            attempts.append(f"{order} {message.raw_message.reconsume_times}")
            if order == "later" and message.raw_message.reconsume_times == 0:
                raise NackMessage(delay_level=1)
            if order == "never":
                raise RejectMessage(reason="no such customer")

        async with started(broker), pocketmq.AsyncAdmin(server.name_server) as admin:
            for body in ("later", "never"):
                await broker.publish(body, "orders")
            await until(lambda: "later 1" in attempts)
            [dead] = await until_awaited(lambda: admin.dead_letters.read("billing"))
            assert dead.message.body == b"never"
            assert dead.reason == "no such customer"

    asyncio.run(main())

    assert sorted(attempts) == ["later 0", "later 1", "never 0"]


@pytest.mark.parametrize(
    ("policy", "is_dead"), [(AckPolicy.REJECT_ON_ERROR, True), (AckPolicy.ACK, False), (AckPolicy.ACK_FIRST, False)]
)
def test_the_policy_says_what_follows_an_error(server: pocketmq.Server, policy: AckPolicy, is_dead: bool) -> None:
    async def main() -> None:
        broker = broker_of(server, group="billing", ack_policy=policy)
        seen: list[str] = []

        @broker.subscriber("orders", start_at="first", max_workers=1, ordered=False)
        async def bill(order: str) -> None:
            seen.append(order)
            if order == "bad":
                raise ValueError("no price")

        async with started(broker), pocketmq.AsyncAdmin(server.name_server) as admin:
            queue = (await broker.publish("bad", "orders")).queue
            await until(lambda: seen)
            if is_dead:
                [dead] = await until_awaited(lambda: admin.dead_letters.read("billing"))
                assert (dead.message.body, dead.reason) == (b"bad", "ValueError: no price")
            await broker.stop()
            committed = await admin.offsets.committed("billing", "orders")
            assert committed[queue] == 1
            assert bool(await admin.dead_letters.read("billing")) == is_dead

    asyncio.run(main())


def test_a_manual_handler_acknowledges_itself_and_an_early_ack_is_final(server: pocketmq.Server) -> None:
    async def main() -> None:
        broker = broker_of(server, group="billing")
        seen: list[str] = []
        go_on = asyncio.Event()

        @broker.subscriber("orders", start_at="first", ack_policy=AckPolicy.MANUAL)
        async def bill(order: str, message: RocketMessage) -> None:
            await message.ack()
            seen.append(order)
            await go_on.wait()
            raise ValueError("after the ack, an error changes nothing")

        async with started(broker), pocketmq.AsyncAdmin(server.name_server) as admin:
            queue = (await broker.publish("1", "orders")).queue
            await until(lambda: seen)
            leaving = asyncio.create_task(broker.stop())

            async def is_committed() -> bool:
                return (await admin.offsets.committed("billing", "orders")).get(queue) == 1

            await until_awaited(is_committed)
            go_on.set()
            await leaving

        assert seen == ["1"]

    asyncio.run(main())


def test_a_request_is_answered_over_rocketmq_and_a_topic_may_get_the_reply(server: pocketmq.Server) -> None:
    async def main() -> None:
        broker = broker_of(server, group="sums")
        replies: list[int] = []

        @broker.subscriber("sums", start_at="first")
        async def add(numbers: list[int]) -> int:
            return sum(numbers)

        @broker.subscriber("totals", start_at="first")
        async def store(total: int) -> None:
            replies.append(total)

        async with started(broker):
            reply = await broker.request([1, 2], "sums", timeout=PATIENCE_S, correlation_id="c")
            assert await reply.decode() == 3
            assert reply.correlation_id == "c"
            await broker.publish([3, 4], "sums", reply_to="totals")
            await until(lambda: replies == [7])

    asyncio.run(main())


def test_a_request_is_handled_once_though_its_sender_is_gone(
    server: pocketmq.Server, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        broker, begun, gone = broker_of(server, group="sums"), asyncio.Event(), asyncio.Event()

        @broker.subscriber("sums", start_at="first")
        async def add(numbers: list[int]) -> int:
            begun.set()
            await gone.wait()
            return sum(numbers)

        async with started(broker):
            async with broker_of(server, instance_name="asking") as asking:
                request = asyncio.create_task(asking.request([1, 2], "sums", timeout=PATIENCE_S))
                await begun.wait()
                request.cancel()
            gone.set()
            await until(lambda: "does not arrive" in caplog.text)
        async with pocketmq.AsyncAdmin(server.name_server) as admin:
            assert (await admin.offsets.lag("sums")).messages == 0

    asyncio.run(main())


def test_batches_and_order(server: pocketmq.Server) -> None:
    async def main() -> None:
        broker = broker_of(server)
        ordered: list[int] = []
        batches: list[list[int]] = []

        @broker.subscriber("events", group="one", start_at="first", ordered=True)
        async def follow(number: int) -> None:
            ordered.append(number)

        @broker.subscriber("events", group="many", start_at="first", batch_size=10)
        async def store(numbers: list[int]) -> None:
            batches.append(numbers)

        publisher = broker.publisher("events", sharding_key="one queue")
        await broker.connect()
        for number in range(20):
            await publisher.publish(number)
        async with started(broker):
            await until(lambda: len(ordered) == sum(map(len, batches)) == 20)

        assert ordered == list(range(20))
        assert max(map(len, batches)) > 1

    asyncio.run(main())


def test_subscribers_of_a_group_share_a_consumer(server: pocketmq.Server) -> None:
    async def main() -> None:
        broker = broker_of(server, group="shop")
        seen: list[str] = []

        for topic in ("orders", "invoices"):

            @broker.subscriber(topic, start_at="first")
            async def handle(body: str, message: RocketMessage) -> None:
                seen.append(f"{message.raw_message.topic} {body}")

        async with started(broker), pocketmq.AsyncAdmin(server.name_server) as admin:
            await broker.publish("1", "orders")
            await broker.publish("2", "invoices")
            await until(lambda: sorted(seen) == ["invoices 2", "orders 1"])
            members = await admin.groups.members("shop")
            assert len(members) == 1

    asyncio.run(main())


def test_contradicting_subscribers_of_a_group_are_refused(server: pocketmq.Server) -> None:
    async def start(**options: Any) -> None:
        broker = broker_of(server)

        async def handle(body: str) -> None: ...

        async def other(body: str) -> None: ...

        broker.subscriber("orders", group="shop")(handle)
        broker.subscriber(**{"topic": "invoices", "group": "shop", **options})(other)
        async with started(broker):
            pass

    with pytest.raises(
        InvalidSetting, match=r"the subscribers of group 'shop' share a consumer, so .* need the same options"
    ):
        asyncio.run(start(ordered=True))
    with pytest.raises(UsageError, match="topic 'orders' has two subscribers in group 'shop'"):
        asyncio.run(start(topic="orders"))
    with pytest.raises(InvalidSetting, match="the subscriber of topic 'invoices' needs group=…"):
        asyncio.run(start(group=None))


def test_a_handler_can_stop_its_subscriber(server: pocketmq.Server) -> None:
    async def main() -> None:
        broker = broker_of(server, group="billing")

        @broker.subscriber("orders", start_at="first", ack_policy=AckPolicy.ACK)
        async def bill(order: str) -> None:
            raise StopConsume

        async with started(broker), pocketmq.AsyncAdmin(server.name_server) as admin:
            await broker.publish("1", "orders")
            await until(lambda: not broker.subscribers[0].running)

            async def has_left() -> bool:
                return not await admin.groups.members("billing")

            await until_awaited(has_left)

    asyncio.run(main())


def test_messages_can_be_read_one_by_one(server: pocketmq.Server) -> None:
    async def main() -> None:
        broker = broker_of(server, group="billing")
        await broker.connect()
        for number in range(3):
            await broker.publish(number, "orders")
        reader = broker.subscriber("orders", start_at="first")
        found: list[Any] = []
        async with started(broker):
            first = await reader.get_one(timeout=PATIENCE_S)
            assert first is not None
            found.append(await first.decode())
            async for message in reader:
                found.append(await message.decode())
                if len(found) == 3:
                    break
            assert await reader.get_one(timeout=0.01) is None
            assert await broker.ping(PATIENCE_S)
        assert sorted(found) == [0, 1, 2]

    asyncio.run(main())


def test_a_broker_starts_again_after_its_stop(server: pocketmq.Server) -> None:
    async def main() -> None:
        broker = broker_of(server, group="billing")
        seen: list[int] = []

        @broker.subscriber("orders", start_at="first")
        async def bill(order: int) -> None:
            seen.append(order)

        for number in range(2):
            async with started(broker):
                await broker.publish(number, "orders")
                await until(lambda number=number: number in seen)  # type: ignore[misc]

    asyncio.run(main())


def test_no_server_is_said_by_ping() -> None:
    assert not asyncio.run(RocketBroker("127.0.0.1:1", group="billing", connect_timeout_ms=100).ping(5))


def test_a_test_can_have_a_server_of_its_own() -> None:
    broker = RocketBroker("127.0.0.1:1", group="billing")

    @broker.subscriber("orders", start_at="first")
    @broker.publisher("invoices")
    async def bill(order: str) -> str:
        return f"invoice of {order}"

    async def main() -> None:
        async with TestRocketBroker(broker, with_server=True) as test:
            await test.publish("1", "orders")
            await bill.wait_call(PATIENCE_S)
            bill.mock.assert_called_once_with("1")

    asyncio.run(main())
    assert broker.config.broker_config.client_options["name_servers"] == "127.0.0.1:1"


def test_security_of_faststream_stands_for_options_of_the_client() -> None:
    options = _secured(SASLPlaintext("key", "secret", use_ssl=True))

    assert options == {"tls": True, "credentials": pocketmq.Credentials("key", "secret")}
    assert _secured(BaseSecurity(use_ssl=False)) == {"tls": False}
    with pytest.raises(InvalidSetting, match="security=SASLScram256 is not possible with RocketMQ"):
        _secured(SASLScram256("key", "secret"))


APPLICATION = """
import asyncio, sys
from faststream import FastStream
from pocketmq.integrations.faststream import RocketBroker

broker = RocketBroker(sys.argv[1], group="billing", logger=None)

@broker.subscriber("orders", start_at="first")
async def bill(order: str) -> None:
    print("got", order, flush=True)
    if sys.argv[2] == "hang":
        await asyncio.sleep(3600)

asyncio.run(FastStream(broker, logger=None).run())
"""


def test_a_message_of_a_killed_process_is_delivered_again(server: pocketmq.Server, tmp_path: Path) -> None:
    with pocketmq.Producer(server.name_server) as producer:
        producer.send("orders", "one")
    with program(APPLICATION, tmp_path, server.name_server, "hang") as first:
        first.wait_for("got one")
        first.kill()
    with program(APPLICATION, tmp_path, server.name_server, "work") as second:
        second.wait_for("got one")
        os.kill(second.pid, signal.SIGTERM)
        assert second.wait() == 0

"""Requests of administrators and brokers to consumers, through a real broker, in virtual time."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from tests.client.real_cluster import NAME_SERVER, Basket, RealCluster, real_cluster

from pocketmq.client.cluster.instance import Instance
from pocketmq.client.consumer.consume_result import LATER
from pocketmq.client.hooks import ConsumeEvent, Hooks
from pocketmq.client.settings import ClientSettings
from pocketmq.errors import ServerFailed
from pocketmq.model.queue import MessageQueue
from pocketmq.protocol.api.messages import ConsumeMessageDirectly, ResetOffset
from pocketmq.protocol.bodies.clients import ConsumeOutcome
from pocketmq.protocol.trace_text import Outcome
from pocketmq.testing import run

QUEUE = MessageQueue("T", "broker-a", 0)


@asynccontextmanager
async def administrator(c: RealCluster) -> AsyncIterator[Instance]:
    instance = Instance.join(
        ClientSettings(name_servers=str(NAME_SERVER), client_ip="10.0.9.9"), c.dependencies("10.0.9.9")
    )
    await instance.routes.find("T")
    yield instance
    await instance.leave()


def test_a_consumer_reports_its_running_info() -> None:
    async def main() -> None:
        async with real_cluster(queues=1) as c, administrator(c) as admin:
            basket = Basket(lambda message: LATER if message.body == b"bad" else None)
            consumer = c.push_consumer(start_at="first", workers=7)
            consumer.on("T", tags="A || B")(basket)
            async with consumer:
                await c.send("T", b"good", b"bad", tags="A")
                await basket.wait(2)
                await asyncio.sleep(30)

                info = await admin.brokers.members.running_info("broker-a", "G", consumer.client_id, stacks=True)

            assert info.properties["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY"
            assert info.properties["PROP_CONSUMEORDERLY"] == "false"
            assert info.properties["PROP_THREADPOOL_CORE_SIZE"] == "7"
            assert info.properties["PROP_CLIENT_VERSION"] == "V5_3_3"
            assert int(info.properties["PROP_CONSUMER_START_TIMESTAMP"]) < c.clock.now_ms() - 29_000
            assert "credentials" not in info.properties
            assert {one.topic for one in info.subscription_set} == {"T", "%RETRY%G"}
            assert info.mq_table[QUEUE].commit_offset == 2
            assert info.status_table["T"].consume_failed_msgs == 1
            assert info.status_table["T"].consume_ok_tps > 0
            assert "MainThread" in (info.jstack or "")

    run(main())


def test_a_consumer_reports_its_offsets() -> None:
    async def main() -> None:
        async with real_cluster(queues=1) as c, administrator(c) as admin:
            basket = Basket()
            consumer = c.push_consumer(start_at="first")
            consumer.on("T")(basket)
            async with consumer:
                await c.send("T", b"1", b"2")
                await basket.wait(2)
                status = await admin.brokers.offsets.of_members("broker-a", "T", "G")

            assert list(status.consumer_table.values()) == [{QUEUE: 2}]

    run(main())


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (None, ConsumeOutcome.CR_SUCCESS),
        (LATER, ConsumeOutcome.CR_LATER),
        (ValueError("x"), ConsumeOutcome.CR_THROW_EXCEPTION),
        ("OK", ConsumeOutcome.CR_THROW_EXCEPTION),
    ],
)
def test_a_message_is_consumed_on_request(answer: object, outcome: ConsumeOutcome) -> None:
    async def main() -> None:
        async with real_cluster(queues=1) as c, administrator(c) as admin:
            basket = Basket()
            consumer = c.push_consumer(start_at="first")
            consumer.on("T")(basket)
            async with consumer:
                (sent,) = await c.send("T", b"1")
                await basket.wait(1)
                basket.answer = lambda _: answer
                header = ConsumeMessageDirectly("G", consumer.client_id, sent.offset_id, "broker-a", "T")
                result = await admin.brokers.members.consume_directly("broker-a", header)

                assert result.consume_result is outcome
                assert len(basket.messages) == 2
                await asyncio.sleep(30)

            assert c.committed("G", "T", 0) == 1
            assert len(basket.messages) == 2, "what is consumed on request does not come again"

    run(main())


def test_a_member_without_listeners_consumes_nothing_on_request() -> None:
    async def main() -> None:
        async with real_cluster(queues=1) as c, administrator(c) as admin, c.lite_consumer() as consumer:
            await consumer.subscribe("T")
            await asyncio.sleep(1)
            (sent,) = await c.send("T", b"1")
            header = ConsumeMessageDirectly("G", consumer.client_id, sent.offset_id, "broker-a", "T")
            with pytest.raises(ServerFailed, match="reads the messages"):
                await admin.brokers.members.consume_directly("broker-a", header)

    run(main())


@pytest.mark.parametrize("by_broker", [True, False])
def test_a_reset_moves_a_running_group(by_broker: bool) -> None:
    async def main() -> None:
        async with real_cluster(queues=1, server_side_reset=by_broker) as c, administrator(c) as admin:
            basket = Basket()
            consumer = c.push_consumer(start_at="first")
            consumer.on("T")(basket)
            async with consumer:
                await c.send("T", b"0", b"1", b"2")
                await basket.wait(3)
                await admin.brokers.offsets.reset(
                    "broker-a", ResetOffset("G", "T", 0, True, 0, 1 if by_broker else None)
                )
                await basket.wait(5 if by_broker else 6, timeout_s=60)
                await asyncio.sleep(10)

            assert basket.bodies[3:] == ([b"1", b"2"] if by_broker else [b"0", b"1", b"2"])
            assert c.committed("G", "T", 0) == 3

    run(main())


def test_hooks_are_called_for_every_call_of_a_listener() -> None:
    async def main() -> None:
        events: list[tuple[str, ConsumeEvent]] = []

        class Watching(Hooks):
            def before_consume(self, event: ConsumeEvent) -> None:
                assert event.outcome is None
                events.append(("before", event))

            def after_consume(self, event: ConsumeEvent) -> None:
                events.append(("after", event))
                raise ValueError("watching must not change what is watched")

        async with real_cluster(topics=("ns%T",), queues=1) as c:
            basket = Basket(lambda message: LATER if not message.reconsume_times else None)
            consumer = c.push_consumer(start_at="first", hooks=[Watching()], namespace="ns")
            consumer.on("T")(basket)
            async with consumer, c.producer(namespace="ns") as producer:
                await producer.send("T", b"1", keys="k")
                await basket.wait(2)

        assert [word for word, _ in events] == ["before", "after", "before", "after"]
        first, again = events[1][1], events[3][1]
        assert (first.group, first.queue, first.outcome) == ("G", QUEUE, Outcome.FAILED)
        assert (again.outcome, again.messages[0].topic, again.queue.topic) == (Outcome.SUCCESS, "T", "%RETRY%G")
        assert again.messages[0].keys == ["k"]

    run(main())

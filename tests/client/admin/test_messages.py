"""Messages: find, trace, deliver again."""

import asyncio

import pytest
from tests.client.admin.admins import admin_of
from tests.client.real_cluster import Basket, real_cluster

from pocketmq.errors import NotFound, ProtocolError, UsageError
from pocketmq.model.message import Message
from pocketmq.model.queue import MessageQueue
from pocketmq.protocol.bodies.clients import ConsumeOutcome
from pocketmq.protocol.trace_text import Outcome
from pocketmq.testing import run

FIRST = MessageQueue("T", "broker-a", 0)


def test_a_message_is_found_by_both_of_its_ids() -> None:
    async def main() -> None:
        async with real_cluster("broker-a", "broker-b") as c, admin_of(c) as admin:
            results = await c.send("T", b"1", b"2", b"x" * 10_000)

            for result, body in zip(results, (b"1", b"2", b"x" * 10_000), strict=True):
                [found] = await admin.messages.by_id("T", result.message_id)
                assert found.body == body
                assert (await admin.messages.by_offset_id(result.offset_id)).body == body

    run(main())


def test_an_invalid_id_and_an_unknown_id_have_different_errors() -> None:
    async def main() -> None:
        async with real_cluster() as c, admin_of(c) as admin:
            [result] = await c.send("T", b"1")

            with pytest.raises(ProtocolError, match="not hexadecimal"):
                await admin.messages.by_offset_id("no id at all, though of 32 chars")
            with pytest.raises(NotFound, match=r"10\.0\.1\.1:10911 has no message"):
                await admin.messages.by_offset_id(result.offset_id[:-4] + "0001")
            assert await admin.messages.by_id("T", "0" * 32) == []

    run(main())


def test_messages_are_found_by_key_and_time() -> None:
    async def main() -> None:
        async with real_cluster("broker-a", "broker-b") as c, admin_of(c) as admin:
            await c.send("T", b"old", keys="42 43")
            c.clock.sleep_ms(60_000)
            await c.send("T", b"new", keys="42")
            middle = c.clock.now_ms() - 30_000

            assert [message.body for message in await admin.messages.by_key("T", "42")] == [b"old", b"new"]
            assert [one.body for one in await admin.messages.by_key("T", "42", begin_ms=middle)] == [b"new"]
            assert [one.body for one in await admin.messages.by_key("T", "42", end_ms=middle)] == [b"old"]
            assert await admin.messages.by_key("T", "4") == []
            assert [one.body for one in await admin.messages.in_time("T", 0, middle)] == [b"old"]
            assert [one.body for one in await admin.messages.in_time("T", middle, c.clock.now_ms() + 1)] == [b"new"]

    run(main())


def test_a_range_of_a_queue_is_read() -> None:
    async def main() -> None:
        async with real_cluster() as c, admin_of(c) as admin:
            await c.send("T", *(b"%d" % number for number in range(100)), queue=0)

            assert [one.queue_offset for one in await admin.messages.in_queue(FIRST, 90)] == list(range(90, 100))
            assert [one.queue_offset for one in await admin.messages.in_queue(FIRST, 3, 5)] == [3, 4]
            assert len(await admin.messages.in_queue(FIRST, 0, limit=70)) == 70
            assert await admin.messages.in_queue(FIRST, 100) == []

    run(main())


def test_groups_whose_offset_is_after_a_message_are_listed() -> None:
    async def main() -> None:
        async with real_cluster() as c, admin_of(c) as admin:
            await c.send("T", b"1", b"2", queue=0)
            for group, offset in (("fast", 2), ("slow", 1)):
                async with c.pull_consumer(group) as consumer:
                    await consumer.commit({FIRST: offset})

            assert await admin.messages.passed_by(FIRST, 1) == {"fast": True, "slow": False}

    run(main())


def test_a_trace_has_the_producer_and_the_consumers_of_a_message() -> None:
    async def main() -> None:
        async with real_cluster(queues=1, trace_topic=True) as c, admin_of(c) as admin:
            basket = Basket()
            consumer = c.push_consumer(start_at="first", trace=True)
            consumer.on("T")(basket)
            async with consumer, c.producer(trace=True) as producer:
                sent = await producer.send("T", b"1", keys="k")
                await basket.wait(1)
                await asyncio.sleep(10)

            trace = await admin.messages.trace(sent.message_id)

            assert [(pub.group, pub.topic, pub.success) for pub in trace.sent] == [("PG", "T", True)]
            assert [(one.group, one.retry_times, one.outcome) for one in trace.attempts] == [("G", 0, Outcome.SUCCESS)]
            assert (await admin.messages.trace("0" * 32)).sent == ()

    run(main())


def test_a_member_consumes_a_message_on_request() -> None:
    async def main() -> None:
        async with real_cluster() as c, admin_of(c) as admin:
            [result] = await c.send("T", b"1")
            basket = Basket()
            consumer = c.push_consumer(start_at="first")
            consumer.on("T")(basket)
            async with consumer:
                await basket.wait(1)
                message = await admin.messages.by_offset_id(result.offset_id)

                outcome = await admin.messages.consume_directly("G", consumer.client_id, message)

                assert outcome.consume_result is ConsumeOutcome.CR_SUCCESS
                assert basket.bodies == [b"1", b"1"]

    run(main())


def test_a_message_that_is_sent_back_is_delivered_to_its_group_only() -> None:
    async def main() -> None:
        async with real_cluster() as c, admin_of(c) as admin:
            [result] = await c.send("T", b"1")
            basket, other = Basket(), Basket()
            consumers = [c.push_consumer(start_at="first"), c.push_consumer("other", start_at="first")]
            for consumer, one in zip(consumers, (basket, other), strict=True):
                consumer.on("T")(one)
                await consumer.start()
            await basket.wait(1)
            await other.wait(1)

            await admin.messages.send_back("G", await admin.messages.by_offset_id(result.offset_id), delay_level=1)

            await basket.wait(2)
            assert [message.topic for message in basket.messages] == ["T", "T"]
            assert len(other.messages) == 1
            for consumer in consumers:
                await consumer.stop()

    run(main())


def test_a_message_of_another_cluster_is_not_sent_back_here() -> None:
    async def main() -> None:
        async with real_cluster() as c, admin_of(c) as admin:
            [result] = await c.send("T", b"1")
            message = await admin.messages.by_offset_id(result.offset_id)
            message.head = message.head.replace(message.packed_store_host, bytes([10, 9, 9, 9, 0, 0, 0, 1]))

            with pytest.raises(UsageError, match=r"10\.9\.9\.9:1, which is not a broker of this cluster"):
                await admin.messages.send_back("G", message)

    run(main())


def test_in_a_namespace_messages_have_the_names_of_users() -> None:
    async def main() -> None:
        async with real_cluster(topics=("dev%T",)) as c, admin_of(c, namespace="dev") as admin:
            async with c.producer(namespace="dev") as producer:
                result = await producer.send(Message("T", b"1", keys="k"))

            [found] = await admin.messages.by_key("T", "k")

            assert found.topic == "T"
            assert (await admin.messages.in_queue(result.queue, 0))[0].topic == "T"

    run(main())

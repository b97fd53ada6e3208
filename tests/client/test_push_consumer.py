"""The push consumer against real servers, in memory and in virtual time."""

import asyncio
from dataclasses import dataclass
from datetime import datetime, timedelta

import pytest
from tests.client.real_cluster import Basket, real_cluster, until

from pocketmq.client.consume_result import LATER, AckIndex, DeadLetter, RetryLater
from pocketmq.client.push_consumer import AsyncPushConsumer
from pocketmq.client.send_backs import REASON
from pocketmq.errors import InvalidExpression, InvalidSetting, UsageError, WrongState
from pocketmq.model.message import Message, StoredMessage
from pocketmq.testing import run

# what comes, and where a group begins


def test_every_message_comes_to_its_listener_once_and_is_committed() -> None:
    async def main() -> None:
        async with real_cluster() as c:
            await c.send("T", *(b"%d" % number for number in range(100)))
            basket = Basket()
            consumer = c.push_consumer(start_at="first")
            consumer.on("T")(basket)

            async with consumer:
                await basket.wait(100)
                await c.send("T", b"later")
                await basket.wait(101)

            assert sorted(basket.bodies) == sorted([b"%d" % number for number in range(100)] + [b"later"])
            assert sum(c.committed("G", "T", queue) or 0 for queue in range(4)) == 101

    run(main())


def test_a_second_start_goes_on_where_the_group_was() -> None:
    async def main() -> None:
        async with real_cluster() as c:
            first, second = Basket(), Basket()
            for basket, body in ((first, b"1"), (second, b"2")):
                consumer = c.push_consumer(start_at="first")
                consumer.on("T")(basket)
                async with consumer:
                    await c.send("T", body)
                    await basket.wait(1)

            assert (first.bodies, second.bodies) == ([b"1"], [b"2"])

    run(main())


def test_a_new_group_begins_at_the_end_unless_told_otherwise() -> None:
    async def main() -> None:
        async with real_cluster() as c:
            for broker in c.brokers.values():  # else a young queue counts as begun at 0
                broker.parts.store.is_in_memory = lambda *_: False  # type: ignore[method-assign]
            await c.send("T", b"old")
            basket = Basket()
            consumer = c.push_consumer()
            consumer.on("T")(basket)

            async with consumer:
                await until(lambda: c.committed("G", "T", 0) is not None)
                await c.send("T", b"new")
                await basket.wait(1)

            assert basket.bodies == [b"new"]

    run(main())


@pytest.mark.parametrize("kind", [int, datetime, timedelta])
def test_a_new_group_may_begin_at_a_time(kind: type) -> None:
    async def main() -> None:
        async with real_cluster(queues=1) as c:
            for broker in c.brokers.values():
                broker.parts.store.is_in_memory = lambda *_: False  # type: ignore[method-assign]
            await c.send("T", b"old")
            await asyncio.sleep(60)
            middle_ms = c.clock.now_ms()
            await asyncio.sleep(60)
            await c.send("T", b"new")
            basket = Basket()
            places = {
                int: middle_ms,
                datetime: datetime.fromtimestamp(middle_ms / 1000),
                timedelta: timedelta(seconds=60),
            }
            consumer = c.push_consumer(start_at=places[kind])
            consumer.on("T")(basket)

            async with consumer:
                await basket.wait(1)
                await asyncio.sleep(30)

            assert basket.bodies == [b"new"]

    run(main())


def test_tags_are_filtered_by_the_broker_and_once_more_here() -> None:
    async def main() -> None:
        async with real_cluster(queues=1) as c:
            same_hash = ("Aa", "BB")
            for tag in (*same_hash, "C"):
                await c.send("T", tag.encode(), tags=tag)
            basket = Basket()
            consumer = c.push_consumer(start_at="first")
            consumer.on("T", tags="Aa || D")(basket)

            async with consumer:
                await basket.wait(1)
                await asyncio.sleep(30)

            assert basket.bodies == [b"Aa"]
            assert c.committed("G", "T", 0) == 3

    run(main())


def test_messages_are_filtered_by_sql() -> None:
    async def main() -> None:
        async with real_cluster(queues=1, property_filter=True) as c:
            for number in range(5):
                await c.send("T", b"%d" % number, properties={"n": str(number)})
            basket = Basket()
            consumer = c.push_consumer(start_at="first")
            consumer.on("T", sql="n BETWEEN 1 AND 3 AND n <> 2")(basket)

            async with consumer:
                await basket.wait(2)
                await asyncio.sleep(30)

            assert basket.bodies == [b"1", b"3"]

    run(main())


def test_a_filter_that_no_broker_can_read_is_refused_at_the_start_by_name() -> None:
    async def main() -> None:
        async with real_cluster(property_filter=True) as c:
            consumer = c.push_consumer()
            consumer.on("T", sql="a >>> 1")(Basket())

            with pytest.raises(InvalidExpression, match=r"topic T by SQL92 'a >>> 1'"):
                await consumer.start()
            await consumer.stop()

            assert c.members("G") == []

    run(main())


# what fails


def test_a_failed_message_comes_again_later_and_later_and_ends_as_a_dead_letter_with_its_reason() -> None:
    async def main() -> None:
        async with real_cluster(queues=1) as c:

            def fail(message: StoredMessage) -> None:
                raise ValueError("no such customer")

            basket = Basket(fail)
            consumer = c.push_consumer(start_at="first", max_reconsume_times=3)
            consumer.on("T")(basket)

            async with consumer:
                await c.send("T", b"bad", keys="k1")
                await basket.wait(4)
                await asyncio.sleep(120)

            assert [message.reconsume_times for message in basket.messages] == [0, 1, 2, 3]
            assert {message.topic for message in basket.messages} == {"T"}
            waits = [round(b - a) for a, b in zip(basket.times, basket.times[1:], strict=False)]
            assert waits == [10, 30, 60]
            (dead,) = c.stored("%DLQ%G")
            assert dead.body == b"bad"
            assert dead.keys == ["k1"]
            assert dead.properties[REASON].startswith("ValueError: no such customer, at test_push_consumer.py:")
            assert c.committed("G", "T", 0) == 1

    run(main())


def test_a_listener_may_choose_the_delay_and_give_up() -> None:
    async def main() -> None:
        async with real_cluster(queues=1) as c:

            def answer(message: StoredMessage) -> object:
                if message.body == b"later":
                    return None if message.reconsume_times else RetryLater("busy", delay_level=5)
                raise DeadLetter("cannot be read")

            basket = Basket(answer)
            consumer = c.push_consumer(start_at="first")
            consumer.on("T")(basket)

            async with consumer:
                await c.send("T", b"later", b"never")
                await basket.wait(3)

            assert basket.bodies == [b"later", b"never", b"later"]
            assert round(basket.times[2] - basket.times[0]) == 60
            (dead,) = c.stored("%DLQ%G")
            assert dead.properties[REASON] == "cannot be read"

    run(main())


def test_of_a_batch_only_what_is_not_acknowledged_comes_again() -> None:
    async def main() -> None:
        async with real_cluster(queues=1) as c:
            await c.send("T", b"0", b"1", b"2", b"3")
            batches: list[list[bytes]] = []
            consumer = c.push_consumer(start_at="first")

            @consumer.on("T", batch_size=4)
            async def handle(messages: list[StoredMessage]) -> object:
                batches.append([message.body for message in messages])
                return AckIndex(1) if len(batches) == 1 else None

            async with consumer:
                await until(lambda: sum(map(len, batches)) == 6)

            assert batches[0] == [b"0", b"1", b"2", b"3"]
            assert sorted(body for batch in batches[1:] for body in batch) == [b"2", b"3"]

    run(main())


def test_a_result_that_means_nothing_counts_as_a_failure() -> None:
    async def main() -> None:
        async with real_cluster(queues=1) as c:
            basket = Basket(lambda message: None if message.reconsume_times else "OK")
            consumer = c.push_consumer(start_at="first")
            consumer.on("T")(basket)

            async with consumer:
                await c.send("T", b"1")
                await basket.wait(2)

            assert [message.reconsume_times for message in basket.messages] == [0, 1]

    run(main())


# listeners and messages of all kinds


def test_topics_have_listeners_of_their_own_also_when_messages_come_again() -> None:
    async def main() -> None:
        async with real_cluster(topics=("A", "B"), queues=1) as c:
            once = lambda message: None if message.reconsume_times else LATER  # noqa: E731
            a, b = Basket(once), Basket(once)
            consumer = c.push_consumer(start_at="first")
            consumer.on("A")(a)
            consumer.on("B")(b)

            async with consumer:
                await c.send("A", b"a")
                await c.send("B", b"b")
                await a.wait(2)
                await b.wait(2)

            assert (a.bodies, b.bodies) == ([b"a", b"a"], [b"b", b"b"])

    run(main())


def test_a_plain_listener_is_called_in_threads() -> None:
    async def main() -> None:
        async with real_cluster() as c:
            await c.send("T", *(b"%d" % number for number in range(50)))
            bodies: list[bytes] = []
            consumer = c.push_consumer(start_at="first", workers=3)
            consumer.on("T")(lambda message: bodies.append(message.body))

            async with consumer:
                c.loop.hold_while(lambda: consumer.is_running and consumer.at_work > 0)
                await until(lambda: len(bodies) == 50)

            assert len(set(bodies)) == 50

    run(main())


def test_compressed_bodies_are_seen_as_they_were() -> None:
    async def main() -> None:
        async with real_cluster(queues=1) as c:
            body = b"long " * 10_000
            basket = Basket(lambda message: None if message.reconsume_times else LATER)
            consumer = c.push_consumer(start_at="first")
            consumer.on("T")(basket)

            async with consumer:
                await c.send("T", body)
                await basket.wait(2)

            assert basket.bodies == [body, body]

    run(main())


def test_a_namespace_is_on_the_wire_and_nowhere_else() -> None:
    async def main() -> None:
        async with real_cluster(topics=("ns%T",), queues=1) as c:
            basket = Basket(lambda message: None if message.reconsume_times else LATER)
            consumer = c.push_consumer(start_at="first", namespace="ns")
            consumer.on("T")(basket)

            async with consumer:
                async with c.producer(namespace="ns") as producer:
                    await producer.send("T", b"1")
                await basket.wait(2)
                queues = await consumer.queues()

            assert {message.topic for message in basket.messages} == {"T"}
            assert {queue.topic for queue in queues} == {"T", "%RETRY%G"}
            assert c.committed("ns%G", "ns%T", 0) == 1

    run(main())


# what cannot be sent back


def test_a_message_that_cannot_be_sent_back_is_tried_again_here() -> None:
    async def main() -> None:
        async with real_cluster(queues=1) as c:
            seen: list[int] = []
            consumer = c.push_consumer(start_at="first")

            @consumer.on("T")
            async def handle(message: StoredMessage) -> object:
                seen.append(message.reconsume_times)
                if len(seen) == 1:
                    c.network.partition("10.0.2.1", c.place("broker-a"))
                    return LATER
                return None

            async with consumer:
                await c.send("T", b"1")
                await until(lambda: len(seen) == 2, timeout_s=60)
                c.network.heal()
                await until(lambda: c.committed("G", "T", 0) == 1)

            assert seen == [0, 1]

    run(main())


# broadcasting


def test_broadcasting_members_get_every_message_and_remember_where_they_were() -> None:
    async def main() -> None:
        async with real_cluster(queues=2) as c:
            baskets = [Basket(), Basket()]
            for round_number in range(2):
                consumers = []
                for number, basket in enumerate(baskets):
                    consumer = c.push_consumer(
                        broadcast=True, start_at="first", host=f"10.0.2.{number + 1}", local_offsets="/home"
                    )
                    consumer.on("T")(basket)
                    consumers.append(consumer)
                async with consumers[0], consumers[1]:
                    await c.send("T", *(b"%d" % (10 * round_number + number) for number in range(10)))
                    for basket in baskets:
                        await basket.wait(10 * round_number + 10)

            for basket in baskets:
                assert sorted(map(int, basket.bodies)) == list(range(20))
            assert c.committed("G", "T", 0) is None

    run(main())


def test_a_broadcasting_member_drops_what_it_fails_on() -> None:
    async def main() -> None:
        async with real_cluster(queues=1) as c:
            basket = Basket(lambda _: LATER)
            consumer = c.push_consumer(broadcast=True, start_at="first", local_offsets="/home")
            consumer.on("T")(basket)

            async with consumer:
                await c.send("T", b"1", b"2")
                await basket.wait(2)
                await asyncio.sleep(60)

            assert basket.bodies == [b"1", b"2"]

    run(main())


# use


def test_a_consumer_is_used_as_it_should_be() -> None:
    async def main() -> None:
        async with real_cluster() as c:
            with pytest.raises(InvalidSetting, match="did you mean 'pull_batch'"):
                c.push_consumer(pull_bacth=3)
            with pytest.raises(InvalidSetting, match="needs group"):
                AsyncPushConsumer("127.0.0.1:9876")
            with pytest.raises(InvalidSetting, match="start_at"):
                c.push_consumer(start_at=[1])
            consumer = c.push_consumer()
            with pytest.raises(UsageError, match="needs a listener"):
                await consumer.start()
            consumer.on("T")(Basket())
            with pytest.raises(UsageError, match="already"):
                consumer.on("T")(Basket())
            with pytest.raises(UsageError, match="not by both"):
                consumer.on("X", tags="a", sql="b = 1")(Basket())
            with pytest.raises(WrongState, match="was not started"):
                consumer.pause()
            await consumer.start()
            with pytest.raises(WrongState, match="is running"):
                await consumer.start()
            twin = c.push_consumer()
            twin.on("T")(Basket())
            with pytest.raises(WrongState, match="instance_name"):
                await twin.start()
            await consumer.stop()
            await consumer.stop()
            with pytest.raises(WrongState, match="was stopped"):
                await consumer.queues()

    run(main())


def test_messages_sent_in_batches_come_one_by_one() -> None:
    async def main() -> None:
        async with real_cluster(queues=1) as c:
            basket = Basket()
            consumer = c.push_consumer(start_at="first")
            consumer.on("T")(basket)
            async with consumer, c.producer() as producer:
                await producer.send_many([Message("T", b"%d" % number) for number in range(5)])
                await basket.wait(5)

            assert basket.bodies == [b"0", b"1", b"2", b"3", b"4"]

    run(main())


def test_a_body_that_is_not_what_the_listener_wants_ends_as_a_dead_letter_that_says_why() -> None:
    @dataclass
    class Order:
        number: int

    async def main() -> None:
        async with real_cluster(queues=1) as c:
            got: list[Order] = []
            consumer = c.push_consumer(start_at="first", max_reconsume_times=1)

            async def handle(order: Order) -> None:
                got.append(order)

            consumer.on("T")(handle)
            async with consumer:
                await c.send("T", b'{"number": 42}', b'{"number": "many"}', b"no JSON")
                await until(lambda: len(c.stored("%DLQ%G")) == 2, 120)

            assert got == [Order(42)]
            reasons = [message.properties[REASON] for message in c.stored("%DLQ%G")]
            assert any("Expected `int`, got `str`" in reason for reason in reasons)
            assert any("JSON is malformed" in reason for reason in reasons)

    run(main())

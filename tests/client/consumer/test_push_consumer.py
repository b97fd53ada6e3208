"""The push consumer against real servers, in memory and in virtual time."""

import asyncio
from datetime import datetime, timedelta

import pytest
from tests.client.real_cluster import Basket, real_cluster, until

from pocketmq.client import LitePullConsumer, PushConsumer
from pocketmq.client.consumer.consume_result import LATER, RetryLater
from pocketmq.client.consumer.push_consumer import AsyncPushConsumer
from pocketmq.errors import InvalidExpression, InvalidSetting, UsageError, WrongState
from pocketmq.model.message import Message, StoredMessage
from pocketmq.model.queue import MessageQueue
from pocketmq.testing import run

# what comes, and where a group begins


def test_every_message_is_passed_to_its_listener_once_and_committed() -> None:
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


def test_a_second_start_continues_at_the_committed_offsets() -> None:
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


def test_a_new_group_starts_at_the_end_by_default() -> None:
    async def main() -> None:
        async with real_cluster() as c:
            await c.send("T", b"old")
            basket = Basket()
            consumer = c.push_consumer()
            consumer.on("T")(basket)

            async with consumer:
                await c.send("T", b"new")
                await basket.wait(1)
                await asyncio.sleep(30)

            assert basket.bodies == [b"new"]

    run(main())


@pytest.mark.parametrize("exists", [True, False], ids=["an empty topic", "a topic that is created later"])
def test_a_new_group_gets_all_messages_sent_after_its_start(exists: bool) -> None:
    async def main() -> None:
        async with real_cluster(topics=["T"] if exists else []) as c:
            basket = Basket()
            consumer = c.push_consumer()
            consumer.on("T")(basket)

            async with consumer:
                if not exists:
                    await asyncio.sleep(5)
                    c.add_topic("T")
                    await asyncio.sleep(1)
                await c.send("T", b"1", b"2", b"3")
                await basket.wait(3)

            assert sorted(basket.bodies) == [b"1", b"2", b"3"]

    run(main())


@pytest.mark.parametrize("kind", [int, datetime, timedelta])
def test_a_new_group_may_start_at_a_time(kind: type) -> None:
    async def main() -> None:
        async with real_cluster(queues=1) as c:
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


def test_tags_are_filtered_by_the_broker_and_again_by_the_client() -> None:
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


def test_an_invalid_filter_is_refused_at_once_with_the_column() -> None:
    async def main() -> None:
        async with real_cluster(property_filter=True) as c:
            with pytest.raises(InvalidExpression, match=r"'a >>> 1' for topic 'T' is invalid: .* column 4"):
                c.push_consumer().on("T", sql="a >>> 1")(Basket())

    run(main())


def test_a_filter_that_the_broker_does_not_offer_is_refused_at_the_start() -> None:
    async def main() -> None:
        async with real_cluster(property_filter=False) as c:
            consumer = c.push_consumer()
            consumer.on("T", sql="a > 1")(Basket())

            with pytest.raises(InvalidExpression, match=r"topic T by SQL92 'a > 1': .*enablePropertyFilter is off"):
                await consumer.start()
            await consumer.stop()

            assert c.members("G") == []

    run(main())


# listeners and messages of all kinds


def test_topics_have_separate_listeners_also_for_retries() -> None:
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


def test_compressed_bodies_are_decompressed() -> None:
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


def test_a_namespace_is_only_visible_on_the_wire() -> None:
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


# broadcasting


def test_broadcasting_members_get_every_message_and_keep_their_offsets() -> None:
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


# use


def test_wrong_use_of_a_consumer_is_refused() -> None:
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


def test_messages_sent_in_batches_are_passed_one_by_one() -> None:
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


def test_a_start_with_the_address_of_a_broker_fails_at_once() -> None:
    async def main() -> None:
        async with real_cluster(queues=1) as c:
            broker = str(c.broker.address)
            consumer = AsyncPushConsumer(broker, dependencies=c.dependencies(), group="G", own_thread=False)
            await consumer.subscribe("T", Basket())

            with pytest.raises(InvalidSetting, match=r"is not a name server.*looks like a broker"):
                await consumer.start()
            assert c.loop.time() < 5

    run(main())


def test_unknown_arguments_are_refused_with_the_known_ones() -> None:
    for consumer in (AsyncPushConsumer("a:9876", group="G"), PushConsumer("a:9876", group="G")):
        with pytest.raises(UsageError, match=r"on has no argument 'tag'; did you mean 'tags'"):
            consumer.on("T", tag="a")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"subscribe has no argument 'filter'; did you mean 'tags'"):
        PushConsumer("a:9876", group="G").subscribe("T", print, filter="a")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"subscribe has no argument 'tag'; did you mean 'tags'"):
        LitePullConsumer("a:9876", group="G").subscribe("T", tag="a")  # type: ignore[arg-type]


def test_a_message_knows_the_queue_that_it_was_read_from() -> None:
    async def main() -> None:
        async with real_cluster("broker-a", "broker-b", topics=("T", "ns%T"), queues=2) as c:
            seen: list[tuple[str, MessageQueue]] = []

            def note(message: StoredMessage) -> object:
                seen.append((message.topic, message.queue))
                return None if message.reconsume_times else RetryLater(delay_level=1)

            for namespace in (None, "ns"):
                async with c.producer(namespace=namespace) as producer:
                    await producer.send("T", b"1", queue=MessageQueue("T", "broker-b", 1))
                consumer = c.push_consumer(start_at="first", namespace=namespace)
                seen.clear()
                consumer.on("T", batch_size=None if namespace else 4)(
                    (lambda messages: note(messages[0])) if namespace is None else note
                )
                async with consumer:
                    c.loop.hold_while(lambda: consumer.is_running and consumer.at_work > 0)  # noqa: B023 at once
                    await until(lambda: len(seen) == 2)

                assert seen == [
                    ("T", MessageQueue("T", "broker-b", 1)),
                    ("T", MessageQueue("%RETRY%G", "broker-b", 0)),
                ]

    run(main())


def test_polled_and_pulled_messages_know_their_queue() -> None:
    async def main() -> None:
        async with real_cluster("broker-a", "broker-b", topics=("ns%T",), queues=2) as c:
            place = MessageQueue("T", "broker-b", 1)
            async with c.producer(namespace="ns") as producer:
                await producer.send("T", b"1", queue=place)
            async with c.lite_consumer(start_at="first", namespace="ns") as lite:
                await lite.subscribe("T")
                (polled,) = await lite.poll(30)
                assert polled.queue == place
                assert await lite.position(polled.queue) == 0
            async with c.pull_consumer("H", namespace="ns") as puller:
                (one,) = (await puller.pull(place, 0)).messages
                assert one.queue == place

    run(main())

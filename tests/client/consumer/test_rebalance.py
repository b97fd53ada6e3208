"""Members that join, leave and crash: who consumes which queue, and that nothing is lost. Real servers, virtual time."""

import asyncio
import itertools
import logging
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from tests.client.real_cluster import Basket, RealCluster, real_cluster, until

from pocketmq.client.consumer.allocation import Circle, Configured
from pocketmq.client.consumer.push_consumer import AsyncPushConsumer
from pocketmq.errors import TopicNotFound
from pocketmq.model.message import Message, StoredMessage
from pocketmq.model.queue import MessageQueue
from pocketmq.testing import run


def member(c: RealCluster, number: int, listener: Any, **options: Any) -> AsyncPushConsumer:
    consumer = c.push_consumer(host=f"10.0.2.{number}", **{"start_at": "first", **options})
    consumer.on("T")(listener)
    return consumer


async def queue_ids(consumer: AsyncPushConsumer, topic: str = "T") -> list[int]:
    return sorted(queue.queue_id for queue in await consumer.queues() if queue.topic == topic)


async def allocator(consumers: Sequence[AsyncPushConsumer]) -> list[list[int]]:
    return [await queue_ids(consumer) for consumer in consumers]


async def settle(consumers: Sequence[AsyncPushConsumer], *wanted: list[int], timeout_s: float = 30) -> None:
    async with asyncio.timeout(timeout_s):
        while await allocator(consumers) != [*wanted]:  # noqa: ASYNC110 there is no event for the condition
            await asyncio.sleep(0.05)


def test_queues_are_allocated_again_as_members_join_and_leave() -> None:
    async def main() -> None:
        async with real_cluster(queues=8) as c:
            first, second, third = (member(c, number, Basket()) for number in (1, 2, 3))
            async with first:
                await settle([first], [0, 1, 2, 3, 4, 5, 6, 7])
                async with second:
                    await settle([first, second], [0, 1, 2, 3], [4, 5, 6, 7], timeout_s=5)
                    async with third:
                        await settle([first, second, third], [0, 1, 2], [3, 4, 5], [6, 7], timeout_s=5)
                    await settle([first, second], [0, 1, 2, 3], [4, 5, 6, 7], timeout_s=5)
                await settle([first], [0, 1, 2, 3, 4, 5, 6, 7], timeout_s=5)

    run(main())


def test_a_stopped_member_leaves_within_a_second_and_its_queues_move_at_once() -> None:
    async def main() -> None:
        async with real_cluster(queues=2) as c:
            stays, leaves = member(c, 1, Basket()), member(c, 2, Basket())
            async with stays:
                await leaves.start()
                await settle([stays, leaves], [0], [1])
                await asyncio.sleep(10)

                before = c.loop.time()
                await leaves.stop()
                assert c.loop.time() - before < 1
                await settle([stays], [0, 1])
                assert c.loop.time() - before < 1.5

    run(main())


def test_a_crashed_member_is_replaced_when_its_connection_is_lost() -> None:
    async def main() -> None:
        async with real_cluster(queues=2) as c:
            stays, crashes = member(c, 1, Basket()), member(c, 2, Basket())
            async with stays:
                await crashes.start()
                await settle([stays, crashes], [0], [1])

                c.network.partition("10.0.2.2", c.place("broker-a"))
                await settle([stays], [0, 1], timeout_s=150)
                c.network.heal()
                await settle([stays, crashes], [0], [1], timeout_s=150)
                await crashes.stop()

    run(main())


def test_no_message_is_lost_while_members_join_and_leave() -> None:
    async def main() -> None:
        async with real_cluster("broker-a", "broker-b", queues=4) as c:
            seen: Counter[bytes] = Counter()

            async def handle(message: StoredMessage) -> None:
                await asyncio.sleep(0.02)
                seen[message.body] += 1

            async def send() -> None:
                async with c.producer() as producer:
                    for number in range(600):
                        await producer.send(Message("T", b"%d" % number))
                        await asyncio.sleep(0.05)

            sending = asyncio.create_task(send())
            async with member(c, 1, handle):
                for number in range(2, 8):
                    async with member(c, number, handle):
                        await asyncio.sleep(4)
                await sending
                await until(lambda: len(seen) == 600)

            twice = sum(count - 1 for count in seen.values())
            assert twice <= 12

    run(main())


def test_a_queue_moves_without_handling_a_message_twice() -> None:
    async def main() -> None:
        async with real_cluster(queues=2) as c:
            seen: Counter[bytes] = Counter()

            async def handle(message: StoredMessage) -> None:
                await asyncio.sleep(0.1)
                seen[message.body] += 1

            await c.send("T", *(b"%d" % number for number in range(400)))
            async with member(c, 1, handle, workers=2):
                await until(lambda: len(seen) > 20)
                async with member(c, 2, handle, workers=2):
                    await until(lambda: len(seen) == 400)

            assert set(seen.values()) == {1}

    run(main())


def test_queues_added_to_a_topic_are_read_from_their_first_message() -> None:
    async def main() -> None:
        async with real_cluster(queues=1) as c:
            basket = Basket()
            async with member(c, 1, basket, start_at="last") as consumer:
                await settle([consumer], [0])
                c.add_topic("T", queues=3)
                await c.send("T", b"1", queue=2)
                await basket.wait(1, timeout_s=60)

                assert await queue_ids(consumer) == [0, 1, 2]

    run(main())


def test_a_broker_added_while_the_group_is_stopped_is_read_from_its_first_message() -> None:
    async def main() -> None:
        async with real_cluster("broker-a", queues=1) as c:
            basket = Basket()
            await c.send("T", b"1")
            async with member(c, 1, basket):
                await basket.wait(1)
            await c.start_broker("broker-b")
            c.add_topic("T", 1, ["broker-b"])
            async with c.producer() as producer:
                await producer.send("T", b"2", queue=MessageQueue("T", "broker-b", 0))

            async with member(c, 1, basket, start_at="last"):
                await basket.wait(2, timeout_s=30)

    run(main())


def test_both_members_of_a_new_group_start_at_the_end() -> None:
    async def main() -> None:
        async with real_cluster(queues=4) as c:
            await c.send("T", *(b"old" for _ in range(40)))
            baskets = Basket(), Basket()
            first, second = (member(c, number, basket, start_at="last") for number, basket in enumerate(baskets, 1))

            await first.start()
            await second.start()
            await settle([first, second], [0, 1], [2, 3])
            await asyncio.sleep(5)
            await c.send("T", *(b"new" for _ in range(8)))
            await until(lambda: sum(len(basket.messages) for basket in baskets) >= 8)
            await asyncio.sleep(10)

            assert [*baskets[0].bodies, *baskets[1].bodies] == [b"new"] * 8
            await first.stop()
            await second.stop()

    run(main())


def test_other_strategies_allocate_differently() -> None:
    async def main() -> None:
        async with real_cluster(queues=5) as c:
            first, second = (member(c, number, Basket(), allocation="AVG_BY_CIRCLE") for number in (1, 2))
            async with first, second:
                await settle([first, second], [0, 2, 4], [1, 3])
            chosen = Configured([MessageQueue("T", "broker-a", 3)])
            async with member(c, 1, Basket(), allocation=chosen) as consumer:
                await settle([consumer], [3])
            async with member(c, 1, Basket(), allocation=Circle()) as consumer:
                await settle([consumer], [0, 1, 2, 3, 4])

    run(main())


def test_queues_of_an_unavailable_broker_stay_allocated_and_continue_later() -> None:
    async def main() -> None:
        async with real_cluster("broker-a", "broker-b", queues=1) as c:
            basket = Basket()
            async with member(c, 1, basket), c.producer() as producer:
                await producer.send("T", b"a1", queue=MessageQueue("T", "broker-a", 0))
                await producer.send("T", b"b1", queue=MessageQueue("T", "broker-b", 0))
                await basket.wait(2)
                await asyncio.sleep(20)

                await c.brokers["broker-b"].stop()
                await producer.send("T", b"a2", queue=MessageQueue("T", "broker-a", 0))
                await basket.wait(3, timeout_s=20)
                await asyncio.sleep(60)

                await c.start_broker("broker-b")
                await asyncio.sleep(35)
                await producer.send("T", b"b2", queue=MessageQueue("T", "broker-b", 0))
                await basket.wait(4, timeout_s=60)

            assert basket.bodies == [b"a1", b"b1", b"a2", b"b2"]

    run(main())


def test_an_unavailable_name_server_changes_nothing() -> None:
    async def main() -> None:
        async with real_cluster(queues=1) as c:
            basket = Basket()
            async with member(c, 1, basket), c.producer() as producer:
                await producer.send("T", b"1")
                await basket.wait(1)
                c.network.partition("10.0.2.1", "10.0.0.1")
                await asyncio.sleep(300)
                await producer.send("T", b"2")
                await basket.wait(2, timeout_s=5)
                c.network.heal()

    run(main())


def test_a_topic_without_a_route_is_queried_less_and_less_often() -> None:
    async def main() -> None:
        async with real_cluster() as c:
            asked: list[float] = []
            consumer = c.push_consumer()
            consumer.on("Nowhere")(Basket())
            await consumer.start()
            routes = consumer._member._instance.routes
            find = routes.find

            async def noted(topic: str) -> object:
                if topic == "Nowhere":
                    asked.append(c.loop.time())
                return await find(topic)

            routes.find = noted  # type: ignore[assignment, method-assign]
            with pytest.raises(TopicNotFound):
                await find("Nowhere")
            await asyncio.sleep(120)
            gaps = [round(b - a) for a, b in itertools.pairwise(asked)]
            await consumer.stop()

            assert gaps[-3:] == [20, 20, 20]
            assert max(gaps) == 20

    run(main())


def test_offsets_are_reset_by_an_administrator() -> None:
    async def main() -> None:
        async with real_cluster(queues=1) as c:
            basket = Basket()
            async with member(c, 1, basket):
                await c.send("T", b"0", b"1", b"2")
                await basket.wait(3)
                await asyncio.sleep(20)
                c.broker.parts.state.offsets.reset("G", "T", {0: 1})
                await basket.wait(5, timeout_s=60)
                await asyncio.sleep(10)

            assert basket.bodies == [b"0", b"1", b"2", b"1", b"2"]
            assert c.committed("G", "T", 0) == 3

    run(main())


def test_a_failing_strategy_of_the_user_is_called_again(caplog: pytest.LogCaptureFixture) -> None:
    class Moody(Circle):
        calls = 0

        def __call__(self, queues: Sequence[MessageQueue], members: Sequence[str], me: str) -> Sequence[MessageQueue]:
            Moody.calls += 1
            if Moody.calls < 3:
                raise KeyError("no idea")
            return super().__call__(queues, members, me)

    async def main() -> None:
        async with real_cluster(queues=2) as c, member(c, 1, Basket(), allocation=Moody()) as consumer:
            await settle([consumer], [0, 1], timeout_s=60)

    run(main())
    assert "rebalance of T failed: KeyError: 'no idea'; next attempt in 1 s" in caplog.text


def test_a_strategy_that_fails_for_one_topic_does_not_affect_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class NotForOrders(Circle):
        def __call__(self, queues: Sequence[MessageQueue], members: Sequence[str], me: str) -> Sequence[MessageQueue]:
            if queues[0].topic == "orders":
                raise KeyError("no rule for orders")
            return super().__call__(queues, members, me)

    async def main() -> None:
        async with real_cluster(topics=("orders", "T"), queues=2) as c:
            consumer = c.push_consumer(start_at="first", allocation=NotForOrders())
            basket = Basket()
            consumer.on("orders")(Basket())
            consumer.on("T")(basket)
            async with consumer:
                await c.send("T", b"1")
                await basket.wait(1, timeout_s=30)
                await asyncio.sleep(30)
                assert await queue_ids(consumer, "orders") == []

    run(main())
    said = [line for line in caplog.messages if "rebalance of" in line]
    assert said == ["rebalance of orders failed: KeyError: 'no rule for orders'; next attempt in 1 s"]


@pytest.mark.parametrize("kind", ["push", "lite"])
def test_a_missing_topic_is_logged_once_after_a_few_seconds(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    def told(words: str) -> list[str]:
        return [record.getMessage() for record in caplog.records if words in record.getMessage()]

    async def main() -> None:
        caplog.set_level(logging.INFO, "pocketmq.client")
        async with real_cluster() as c:
            consumer: Any = c.push_consumer() if kind == "push" else c.lite_consumer()
            await (consumer.subscribe("Missing", Basket()) if kind == "push" else consumer.subscribe("Missing"))
            async with consumer:
                await asyncio.sleep(2)
                assert not told("Missing")
                await asyncio.sleep(3)
                (warning,) = told("No route info of this topic: Missing")
                assert "pocketmq topic create Missing -n 10.0.0.1:9876" in warning
                assert "every 20 s" in warning
                await asyncio.sleep(300)
                assert len(told("No route info of this topic")) == 1, "once, and not for the retry topic"
                c.add_topic("Missing")
                await until(lambda: told("assigned 4 of 4 queues of Missing"), 30)

    run(main())


def test_a_topic_that_appears_soon_causes_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with real_cluster() as c:
            consumer = c.push_consumer()
            await consumer.subscribe("Soon", Basket())
            async with consumer:
                await asyncio.sleep(0.5)
                c.add_topic("Soon")
                await asyncio.sleep(60)
        assert "No route info" not in caplog.text

    run(main())

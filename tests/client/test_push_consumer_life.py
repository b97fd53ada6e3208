"""A push consumer at run time: pauses, changes of its subscriptions, later servers and topics, and its stop."""

import asyncio
import logging

import pytest
from tests.client.real_cluster import Basket, real_cluster, until

from pocketmq.client.consumer.consume_result import DeadLetter
from pocketmq.client.consumer.flow_limits import PauseCause
from pocketmq.errors import InvalidExpression, InvalidSetting
from pocketmq.model.message import StoredMessage
from pocketmq.testing import run


def test_pulls_pause_while_too_many_messages_are_cached_and_the_cause_is_counted() -> None:
    async def main() -> None:
        async with real_cluster(queues=1) as c:
            await c.send("T", *(b"%d" % number for number in range(200)))
            gate = asyncio.Event()
            seen: list[bytes] = []
            consumer = c.push_consumer(start_at="first", max_queue_messages=50, pull_batch=10, workers=1)

            @consumer.on("T")
            async def handle(message: StoredMessage) -> None:
                await gate.wait()
                seen.append(message.body)

            async with consumer:
                await asyncio.sleep(10)
                info = (await consumer.running_info()).mq_table
                (held,) = [one.cached_msg_count for queue, one in info.items() if queue.topic == "T"]
                assert held == 60
                assert consumer.pauses[PauseCause.MESSAGES] >= 190
                assert not c.committed("G", "T", 0)

                gate.set()
                await until(lambda: len(seen) == 200)

            assert c.committed("G", "T", 0) == 200

    run(main())


def test_a_paused_consumer_pulls_nothing_and_continues_when_resumed() -> None:
    async def main() -> None:
        async with real_cluster(queues=1) as c:
            basket = Basket()
            consumer = c.push_consumer(start_at="first")
            consumer.on("T")(basket)

            async with consumer:
                consumer.pause()
                await asyncio.sleep(20)  # a pull that a broker holds is not called back
                await c.send("T", b"1")
                await asyncio.sleep(30)
                assert basket.bodies == []

                consumer.resume()
                await basket.wait(1)
                assert consumer.pauses[PauseCause.PAUSED] > 20

    run(main())


def test_subscriptions_can_change_at_run_time() -> None:
    async def main() -> None:
        async with real_cluster(topics=("A", "B"), queues=1) as c:
            a, b = Basket(), Basket()
            consumer = c.push_consumer(start_at="first")
            consumer.on("A")(a)

            async with consumer:
                await c.send("B", b"b1")
                await consumer.subscribe("B", b)
                await b.wait(1)

                await consumer.unsubscribe("A")
                await asyncio.sleep(3)
                await c.send("A", b"a1")
                await asyncio.sleep(30)

                await consumer.subscribe("A", a)
                await a.wait(1)

            assert (a.bodies, b.bodies) == ([b"a1"], [b"b1"])

    run(main())


def test_a_change_to_an_invalid_filter_keeps_the_old_one() -> None:
    async def main() -> None:
        async with real_cluster(queues=1, property_filter=True) as c:
            basket = Basket()
            consumer = c.push_consumer(start_at="first")
            consumer.on("T", tags="A")(basket)

            async with consumer:
                with pytest.raises(InvalidExpression):
                    await consumer.subscribe("T", basket, sql="a >>> 1")
                await c.send("T", b"b", tags="B")
                await c.send("T", b"a", tags="A")
                await basket.wait(1)

            assert basket.bodies == [b"a"]

    run(main())


def test_a_cancelled_subscription_is_removed() -> None:
    async def main() -> None:
        async with real_cluster(topics=("T", "U"), property_filter=True) as c:
            consumer = c.push_consumer()
            consumer.on("T", tags="a")(print)
            async with consumer:
                before = {one.topic: one.sub_string for one in consumer._member.heartbeat().subscription_data_set}
                for topic in ("T", "U"):
                    subscribing = asyncio.create_task(consumer.subscribe(topic, print, sql="price > 1"))
                    await asyncio.sleep(0)
                    subscribing.cancel()
                    await asyncio.wait((subscribing,))
                    assert subscribing.cancelled()

                after = {one.topic: one.sub_string for one in consumer._member.heartbeat().subscription_data_set}
                assert after == before

    run(main())


def test_a_topic_created_later_is_read_from_its_first_message() -> None:
    async def main() -> None:
        async with real_cluster() as c:
            basket = Basket()
            consumer = c.push_consumer()
            consumer.on("New")(basket)

            async with consumer:
                await asyncio.sleep(100)
                await c.send("New", b"1")
                await basket.wait(1, timeout_s=40)

            assert basket.bodies == [b"1"]

    run(main())


def test_a_consumer_started_before_its_servers_gets_messages_later() -> None:
    async def main() -> None:
        async with real_cluster() as c:
            c.network.refuse(c.place("broker-a"))
            basket = Basket()
            consumer = c.push_consumer(start_at="first")
            consumer.on("T")(basket)

            async with consumer:
                await asyncio.sleep(30)
                c.network.heal()
                await c.send("T", b"1")
                await basket.wait(1, timeout_s=60)

    run(main())


def test_stopping_waits_for_listeners_and_commits_their_messages() -> None:
    async def main() -> None:
        async with real_cluster(queues=1) as c:
            await c.send("T", b"1")
            began = asyncio.Event()
            consumer = c.push_consumer(start_at="first")

            @consumer.on("T")
            async def handle(message: StoredMessage) -> None:
                began.set()
                await asyncio.sleep(2)

            await consumer.start()
            await began.wait()
            before = c.loop.time()
            await consumer.stop()

            assert 1.9 < c.loop.time() - before < 2.5
            assert c.committed("G", "T", 0) == 1

    run(main())


def test_messages_unfinished_at_the_stop_go_to_the_next_member() -> None:
    async def main() -> None:
        async with real_cluster(queues=1) as c:
            await c.send("T", b"1")
            began = asyncio.Event()
            consumer = c.push_consumer(start_at="first", stop_timeout_ms=500)

            @consumer.on("T")
            async def handle(message: StoredMessage) -> None:
                began.set()
                await asyncio.sleep(3600)

            await consumer.start()
            await began.wait()
            await consumer.stop()
            basket = Basket()
            other = c.push_consumer(host="10.0.2.2")
            other.on("T")(basket)

            async with other:
                await basket.wait(1, timeout_s=10)

    run(main())


def test_a_message_with_a_hanging_listener_is_released() -> None:
    async def main() -> None:
        async with real_cluster(queues=1) as c:
            seen: list[int] = []
            consumer = c.push_consumer(start_at="first", consume_timeout_ms=60_000, stop_timeout_ms=100)

            @consumer.on("T")
            async def handle(message: StoredMessage) -> None:
                seen.append(message.reconsume_times)
                if not message.reconsume_times:
                    await asyncio.sleep(86_000)

            async with consumer:
                await c.send("T", b"1")
                await until(lambda: len(seen) == 2, timeout_s=200)
                await until(lambda: c.committed("G", "T", 0) == 1)

            assert seen == [0, 1]

    run(main(), timeout_s=200_000)


class Speechless(Exception):
    def __str__(self) -> str:
        raise AttributeError("never set")


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("error", [Speechless(), DeadLetter(ValueError("not a text"))])  # type: ignore[arg-type]
def test_an_error_without_text_does_not_block_its_queue(
    error: Exception, ordered: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for handler in logging.root.handlers:  # Spark may have set a formatter that fails on such an error
        monkeypatch.setattr(handler, "formatter", None)

    async def main() -> None:
        async with real_cluster(queues=1) as c:
            bodies: list[bytes] = []
            consumer = c.push_consumer(start_at="first", ordered=ordered)

            @consumer.on("T")
            async def handle(message: StoredMessage) -> None:
                bodies.append(message.body)
                if len(bodies) == 1:
                    raise error

            async with consumer:
                await c.send("T", b"0", b"1")
                await asyncio.sleep(60)

            again = [b"0"] if isinstance(error, Speechless) else []
            assert sorted(bodies) == [b"0", *again, b"1"]
            assert c.committed("G", "T", 0) == 2

    run(main())


@pytest.mark.parametrize("ordered", [False, True])
def test_the_number_of_calls_at_the_same_time_changes_while_it_runs(ordered: bool) -> None:
    async def main() -> None:
        async with real_cluster(queues=8) as c:
            all_messages: list[int] = []
            busy = 0

            async def handle(message: StoredMessage) -> None:
                nonlocal busy
                busy += 1
                all_messages.append(busy)
                await asyncio.sleep(1)
                busy -= 1

            for queue in range(8):
                await c.send("T", *(b"%d" % number for number in range(100)), queue=queue)
            consumer = c.push_consumer(start_at="first", workers=2, ordered=ordered)
            consumer.on("T")(handle)
            async with consumer:
                for workers, least, most in ((2, 2, 2), ((2, 6), 2, 6), (1, 1, 1)):
                    await consumer.set_workers(workers)
                    await asyncio.sleep(70 if ordered else 3)  # an ordered queue keeps its turn for a minute
                    all_messages.clear()
                    await asyncio.sleep(3)
                    assert max(all_messages) == most
                    info = await consumer.running_info()
                    assert info.properties["PROP_THREADPOOL_CORE_SIZE"] == str(least)
                with pytest.raises(InvalidSetting, match="workers = 0 must be"):
                    await consumer.set_workers(0)

    run(main())

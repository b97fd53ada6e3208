"""The push consumer in mode "pop" against real servers, in memory and in virtual time."""

import asyncio
import logging
from collections import Counter
from typing import Any

import pytest
from tests.client.real_cluster import Basket, RealCluster, real_cluster, until

from pocketmq.client import AsyncPushConsumer
from pocketmq.client.consumer.consume_result import DeadLetter, RetryLater
from pocketmq.client.consumer.flow_limits import PauseCause
from pocketmq.errors import InvalidSetting
from pocketmq.model import StoredMessage
from pocketmq.protocol.pop import pop_retry_topic
from pocketmq.testing import run

MANY = [b"%d" % number for number in range(200)]


def pop_consumer(cluster: RealCluster, basket: Any, **options: Any) -> AsyncPushConsumer:
    listener = {name: options.pop(name) for name in ("batch_size", "tags") if name in options}
    consumer = cluster.push_consumer(**{"mode": "pop", "start_at": "first", **options})
    consumer.on("T", **listener)(basket)
    return consumer


def returned(cluster: RealCluster, *, v2: bool = False) -> int:
    """The messages that returned to the retry topic."""
    return len(cluster.stored(pop_retry_topic("G", "T", v2=v2)))


def unacked(cluster: RealCluster) -> int:
    """Leased messages at the broker."""
    return cluster.broker.parts.state.leases.in_flight.total()


# the usual case


def test_every_message_of_all_queues_is_handled_once_and_acknowledged() -> None:
    async def main() -> None:
        async with real_cluster() as c:
            await c.send("T", *MANY)
            basket = Basket()
            async with pop_consumer(c, basket) as consumer:
                await basket.wait(200)
                await c.send("T", b"later")
                await basket.wait(201)
                sent_at = c.loop.time()
                await c.send("T", b"last")
                await basket.wait(202)
                assert c.loop.time() - sent_at < 0.2
                await until(lambda: not unacked(c))
                assert [
                    (queue.broker_name, queue.queue_id) for queue in await consumer.queues() if queue.topic == "T"
                ] == [("broker-a", -1)]

            assert Counter(basket.bodies) == Counter([*MANY, b"later", b"last"])
            assert {message.topic for message in basket.messages} == {"T"}
            await asyncio.sleep(120)
            assert returned(c) == 0

    run(main())


def test_a_message_reaches_a_waiting_member_at_once_after_minutes_without_messages() -> None:
    async def main() -> None:
        async with real_cluster() as c:
            basket = Basket()
            async with pop_consumer(c, basket, start_at="last"):
                await asyncio.sleep(305.3)
                sent_at = c.loop.time()
                await c.send("T", b"x")
                await basket.wait(1)

            assert c.loop.time() - sent_at < 0.2

    run(main())


def test_only_messages_that_match_the_filter_are_handled() -> None:
    async def main() -> None:
        async with real_cluster() as c:
            for tag in ("a", "b", "c"):
                await c.send("T", tag.encode(), tags=tag)
            basket = Basket()
            async with pop_consumer(c, basket, tags="a || c"):
                await basket.wait(2)
                await asyncio.sleep(200)

            assert sorted(basket.bodies) == [b"a", b"c"]
            assert returned(c) == 0

    run(main())


def test_a_batch_listener_gets_lists_and_failed_messages_return_alone() -> None:
    async def main() -> None:
        async with real_cluster(queues=1) as c:
            await c.send("T", *MANY[:10])
            sizes: list[int] = []
            failed: list[StoredMessage] = []
            handled: Counter[bytes] = Counter()

            async def listen(messages: list[StoredMessage]) -> list[bool]:
                sizes.append(len(messages))
                failed.extend(one for one in messages if one.body == b"3" and not one.reconsume_times)
                handled.update(one.body for one in messages if one not in failed)
                return [one not in failed for one in messages]

            async with pop_consumer(c, listen, batch_size=8):
                await until(lambda: handled.total() == 10)
                await asyncio.sleep(100)

            assert max(sizes) == 8
            assert handled == Counter(MANY[:10])
            assert [one.body for one in failed] == [b"3"]
            assert returned(c) == 1

    run(main())


def test_a_plain_listener_is_called_in_threads() -> None:
    async def main() -> None:
        async with real_cluster() as c:
            await c.send("T", *MANY[:20])
            handled: list[bytes] = []

            def listen(body: bytes) -> None:
                handled.append(body)

            async with pop_consumer(c, listen, workers=3):
                await until(lambda: len(handled) == 20)
                await until(lambda: not unacked(c))

            assert sorted(handled) == sorted(MANY[:20])

    run(main())


# failures


def test_a_failed_message_returns_alone_after_the_back_off() -> None:
    async def main() -> None:
        async with real_cluster(queues=1) as c:
            basket = Basket(lambda one: one.body != b"1" or one.reconsume_times == 2)
            await c.send("T", *MANY[:4])
            async with pop_consumer(c, basket) as consumer:
                await basket.wait(6)
                assert consumer.leases.returned == 2
                await until(lambda: not unacked(c))

            assert basket.bodies[:4] == MANY[:4]
            assert [one.reconsume_times for one in basket.messages if one.body == b"1"] == [0, 1, 2]
            first, second, third = (
                at for at, one in zip(basket.times, basket.messages, strict=True) if one.body == b"1"
            )
            assert 10 <= second - first < 15, "level 3"
            assert 30 <= third - second < 35, "level 4"
            assert {one.topic for one in basket.messages} == {"T"}

    run(main())


def test_a_listener_chooses_the_delay_of_the_next_attempt() -> None:
    async def main() -> None:
        async with real_cluster() as c:
            basket = Basket(lambda one: None if one.reconsume_times else RetryLater("busy", delay_level=6))
            await c.send("T", b"x")
            async with pop_consumer(c, basket):
                await basket.wait(2)

            assert 120 <= basket.times[1] - basket.times[0] < 125

    run(main())


@pytest.mark.parametrize(("answer", "attempts"), [(False, 2), (DeadLetter("no such customer"), 1)])
def test_a_message_becomes_a_dead_letter_after_its_last_attempt_or_when_the_listener_says_so(
    answer: Any, attempts: int
) -> None:
    async def main() -> None:
        async with real_cluster() as c:
            basket = Basket(lambda _: answer)
            await c.send("T", b"x", keys=["k"])
            async with pop_consumer(c, basket, max_reconsume_times=1):
                await until(lambda: c.stored("%DLQ%G"))
                await asyncio.sleep(300)

            (dead,) = c.stored("%DLQ%G")
            assert (dead.body, dead.keys) == (b"x", ["k"])
            assert dead.properties["RETRY_TOPIC"] == "T"
            assert len(basket.messages) == attempts
            assert not unacked(c)

    run(main())


def test_a_message_that_no_listener_could_handle_becomes_a_dead_letter_without_another_call() -> None:
    async def main() -> None:
        async with real_cluster() as c:
            basket = Basket()
            await c.send("T", b"x")
            async with c.simple_consumer(start_at="first") as simple:
                await simple.subscribe("T")
                for _ in range(3):  # as members that die
                    (message,) = await simple.receive(invisible_s=5, wait_s=60)
                    await asyncio.sleep(5)
            assert message.reconsume_times == 2
            async with pop_consumer(c, basket, max_reconsume_times=2):
                await until(lambda: c.stored("%DLQ%G"))

            assert basket.bodies == []
            assert "attempts are used up" in c.stored("%DLQ%G")[0].properties["DEAD_LETTER_REASON"]

    run(main())


# leases


def test_a_listener_that_runs_longer_than_the_lease_keeps_its_message() -> None:
    async def main() -> None:
        async with real_cluster() as c:
            calls: Counter[bytes] = Counter()

            async def listen(message: StoredMessage) -> None:
                calls[message.body] += 1
                await asyncio.sleep(47)

            await c.send("T", *MANY[:6])
            options = {"pop_invisible_ms": 5_000, "workers": 2}
            async with (
                pop_consumer(c, listen, **options) as one,
                pop_consumer(c, listen, host="10.0.2.2", **options) as other,
            ):
                await until(lambda: calls.total() == 6 and not unacked(c))
                assert (one.leases.rejected_acks, other.leases.rejected_acks) == (0, 0)
                await asyncio.sleep(100)

            assert calls == Counter(MANY[:6])
            assert returned(c) == 0

    run(main())


def test_acks_of_one_broker_count_while_another_one_does_not_answer() -> None:
    async def main() -> None:
        async with real_cluster("broker-a", "broker-b", queues=1) as c:
            await c.send("T", *MANY[:8])
            may_end = asyncio.Event()

            async def listen(message: StoredMessage) -> None:
                await may_end.wait()

            async with pop_consumer(c, listen, workers=8) as consumer:
                await asyncio.sleep(5)
                c.network.partition("10.0.2.1", c.place("broker-b"))
                may_end.set()
                await asyncio.sleep(5)
                assert consumer.leases.in_flight == 4
                c.network.heal()
                await asyncio.sleep(100)
                assert (consumer.leases.in_flight, consumer.leases.lapsed) == (0, 0)
            assert returned(c) == 0

    run(main())


def test_a_member_that_lost_its_lease_is_fenced(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with real_cluster(queues=1) as c:
            finish = asyncio.Event()
            stuck = Basket()

            async def listen(message: StoredMessage) -> None:
                await stuck(message)
                await finish.wait()

            await c.send("T", b"0", b"1")
            first = pop_consumer(c, listen, pop_invisible_ms=5_000, workers=1)
            async with first:
                await stuck.wait(1)
                assert first.leases.in_flight == 2
                c.network.partition("10.0.2.1", c.place("broker-a"))
                second = Basket()
                async with pop_consumer(c, second, host="10.0.2.2", pop_invisible_ms=5_000) as other:
                    lost_at = c.loop.time()
                    await second.wait(2)
                    assert c.loop.time() - lost_at > 3
                    with caplog.at_level(logging.WARNING):
                        finish.set()
                        await until(lambda: first.leases.rejected_acks)
                        await until(lambda: not first.at_work)
                    assert other.leases.rejected_acks == 0

                assert stuck.bodies == [b"0"], "the listener is not called with a message whose lease is over"
                assert first.leases == (0, 0.0, 0, 2, 1)
                assert sorted(second.bodies) == [b"0", b"1"]
            assert "an ack came too late" in caplog.text
            assert "ended before a listener was called" in caplog.text

    run(main())


def test_workers_limit_how_much_a_member_leases() -> None:
    async def main() -> None:
        async with real_cluster() as c:
            await c.send("T", *MANY[:100])
            largest = 0
            handled: Counter[str] = Counter()

            def listener(name: str) -> Any:
                async def listen(_: StoredMessage) -> None:
                    nonlocal largest
                    largest = max(largest, unacked(c))
                    await asyncio.sleep(1)
                    handled[name] += 1

                return listen

            async with (
                pop_consumer(c, listener("one"), workers=2),
                pop_consumer(c, listener("two"), host="10.0.2.2", workers=6),
            ):
                await until(lambda: handled.total() == 100)

            assert largest <= 2 * (2 + 6), "those in work, and one ahead for each worker"
            assert 18 <= handled["one"] <= 32, handled

    run(main())


def test_fast_listeners_lease_whole_batches_up_to_the_limit_of_a_queue() -> None:
    async def main() -> None:
        async with real_cluster() as c:
            await c.send("T", *MANY)
            handled: list[StoredMessage] = []
            largest = 0

            async def listen(message: StoredMessage) -> None:
                nonlocal largest
                largest = max(largest, unacked(c))
                handled.append(message)

            async with pop_consumer(c, listen, workers=30, max_popped_messages=40):
                await until(lambda: len(handled) == 200)

            assert 30 < largest <= 40

    run(main())


# control


def test_a_paused_member_pops_nothing_and_a_resumed_one_continues() -> None:
    async def main() -> None:
        async with real_cluster() as c:
            basket = Basket()
            async with pop_consumer(c, basket) as consumer:
                consumer.pause()
                await asyncio.sleep(20)
                await c.send("T", *MANY[:5])
                await asyncio.sleep(60)
                assert (basket.bodies, unacked(c)) == ([], 0)
                assert consumer.pauses[PauseCause.PAUSED] > 50
                consumer.resume()
                await basket.wait(5)

    run(main())


def test_a_stop_waits_for_running_listeners_and_returns_waiting_messages_at_once() -> None:
    async def main() -> None:
        async with real_cluster(queues=1) as c:
            done: list[bytes] = []

            async def listen(message: StoredMessage) -> None:
                await asyncio.sleep(3)
                done.append(message.body)

            await c.send("T", *MANY[:4])
            async with pop_consumer(c, listen, workers=2):
                await until(lambda: unacked(c) == 4)
                await asyncio.sleep(1)
            assert sorted(done) == MANY[:2]
            stopped_at = c.loop.time()
            basket = Basket()
            async with pop_consumer(c, basket):
                await basket.wait(2)
            assert c.loop.time() - stopped_at < 5
            assert sorted(basket.bodies) == MANY[2:4]

    run(main())


def test_a_message_after_a_stop_is_not_leased_to_the_stopped_member() -> None:
    async def main() -> None:
        async with real_cluster(queues=1) as c:
            basket = Basket()
            async with pop_consumer(c, Basket()):
                await asyncio.sleep(12)
            async with pop_consumer(c, basket, host="10.0.2.2"):
                await c.send("T", b"x")
                sent_at = c.loop.time()
                await basket.wait(1)
            assert c.loop.time() - sent_at < 1

    run(main())


def test_an_unsubscribed_topic_returns_what_waits_for_listeners() -> None:
    async def main() -> None:
        async with real_cluster(queues=1, topics=["T", "U"]) as c:
            done: list[bytes] = []

            async def listen(message: StoredMessage) -> None:
                await asyncio.sleep(3)
                done.append(message.body)

            await c.send("T", *MANY[:4])
            consumer = pop_consumer(c, listen, workers=2)
            consumer.on("U")(Basket())
            async with consumer:
                await until(lambda: consumer.leases.in_flight == 4)
                await asyncio.sleep(1)
                await consumer.unsubscribe("T")
                await until(lambda: len(done) == 2)
                await until(lambda: returned(c) == 2)
                await asyncio.sleep(100)
                assert len(done) == 2
                assert [queue.topic for queue in await consumer.queues() if queue.queue_id == -1] == ["U"]
            assert not unacked(c)

    run(main())


def test_the_running_info_shows_pops_and_leases() -> None:
    async def main() -> None:
        async with real_cluster(queues=1) as c:
            finish = asyncio.Event()

            async def listen(_: StoredMessage) -> None:
                await finish.wait()

            await c.send("T", *MANY[:3])
            async with pop_consumer(c, listen) as consumer:
                await until(lambda: unacked(c) == 3)
                await asyncio.sleep(7)
                info = await consumer.running_info()
                ((queue, popped),) = info.mq_pop_table.items()
                assert (queue.queue_id, popped.wait_ack_count) == (-1, 3)
                assert 0 <= c.clock.now_ms() - popped.last_pop_timestamp < 20_000
                assert info.properties["mode"] == "pop"
                leases = consumer.leases
                assert (leases.in_flight, round(leases.oldest_s)) == (3, 7)
                finish.set()

    run(main())


# order


def test_ordered_messages_are_handled_in_order_by_one_member_at_a_time() -> None:
    async def main() -> None:
        async with real_cluster(queues=3) as c:
            for number in range(30):
                await c.send("T", b"%d" % number, queue=number % 3)
            handled: dict[int, list[int]] = {0: [], 1: [], 2: []}
            failing = {7, 14}
            running: Counter[int] = Counter()

            async def listen(message: StoredMessage) -> None:
                number = int(message.body)
                running[number % 3] += 1
                assert running[number % 3] == 1
                try:
                    await asyncio.sleep(0.5)
                finally:
                    running[number % 3] -= 1
                if number in failing:
                    failing.discard(number)
                    raise ValueError(number)
                handled[number % 3].append(number)

            async with (
                pop_consumer(c, listen, ordered=True, pop_invisible_ms=5_000) as one,
                pop_consumer(c, listen, ordered=True, pop_invisible_ms=5_000, host="10.0.2.2") as other,
            ):
                await until(lambda: sum(map(len, handled.values())) == 30)
                await until(lambda: all(c.committed("G", "T", queue) == 10 for queue in range(3)))
                assert (one.leases.rejected_acks, other.leases.rejected_acks) == (0, 0)

            assert handled == {queue: list(range(queue, 30, 3)) for queue in range(3)}
            assert returned(c) == 0

    run(main())


def test_an_ordered_batch_continues_with_another_member_when_the_first_one_is_away() -> None:
    async def main() -> None:
        async with real_cluster(queues=1) as c:
            await c.send("T", *MANY[:8])
            first, second = Basket(), Basket()

            async def listen(message: StoredMessage) -> None:
                await first(message)
                await asyncio.sleep(2)

            async with pop_consumer(c, listen, ordered=True, pop_invisible_ms=5_000) as consumer:
                await first.wait(3)
                c.network.partition("10.0.2.1", c.place("broker-a"))
                async with pop_consumer(c, second, ordered=True, pop_invisible_ms=5_000, host="10.0.2.2"):
                    await until(lambda: c.committed("G", "T", 0) == 8)
                    await asyncio.sleep(110)
                assert consumer.leases.in_flight == 0

            assert second.bodies == MANY[8 - len(second.bodies) : 8]
            assert second.messages[0].reconsume_times >= 1
            assert len(first.bodies) < 8
            assert first.bodies == MANY[: len(first.bodies)]

    run(main())


def test_an_ordered_member_that_lost_all_its_leases_pops_again() -> None:
    async def main() -> None:
        async with real_cluster(queues=1) as c:
            await c.send("T", *MANY[:20])
            basket = Basket()
            finish = asyncio.Event()

            async def listen(message: StoredMessage) -> None:
                await basket(message)
                await finish.wait()

            async with pop_consumer(c, listen, ordered=True, workers=1, pop_invisible_ms=5_000) as consumer:
                await basket.wait(1)
                c.network.partition("10.0.2.1", c.place("broker-a"))
                await asyncio.sleep(60)
                assert consumer.leases.in_flight == 0
                c.network.heal()
                finish.set()
                await until(lambda: c.committed("G", "T", 0) == 20)

            assert basket.bodies == [b"0", *MANY[:20]]

    run(main())


def test_an_ordered_message_that_fails_after_its_topic_was_unsubscribed_is_free_for_others() -> None:
    async def main() -> None:
        async with real_cluster(queues=1, topics=["T", "U"]) as c:
            await c.send("T", *MANY[:3])

            async def listen(_: StoredMessage) -> None:
                await asyncio.sleep(5)
                raise ValueError("unsubscribed meanwhile")

            consumer = pop_consumer(c, listen, ordered=True)
            consumer.on("U")(Basket())
            async with consumer:
                await until(lambda: consumer.leases.in_flight)
                await asyncio.sleep(1)
                await consumer.unsubscribe("T")
                basket = Basket()
                async with pop_consumer(c, basket, ordered=True, host="10.0.2.2"):
                    await basket.wait(3)
                assert consumer.leases.in_flight == 0

            assert basket.bodies == MANY[:3]

    run(main())


def test_more_workers_lease_more_messages() -> None:
    async def main() -> None:
        async with real_cluster() as c:
            await c.send("T", *MANY[:50])
            finish = asyncio.Event()

            async def listen(_: StoredMessage) -> None:
                await finish.wait()

            async with pop_consumer(c, listen, workers=2) as consumer:
                await until(lambda: consumer.leases.in_flight == 4)
                await consumer.set_workers(10)
                await until(lambda: consumer.leases.in_flight == 20, 5)
                finish.set()

    run(main())


# options


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"mode": "push"}, "'pull', 'pop' or 'broker'"),
        ({"mode": "pop", "pop_invisible_ms": 4_999}, "from 5000 to 300000"),
        ({"mode": "pop", "pop_invisible_ms": 300_001}, "from 5000 to 300000"),
        ({"mode": "pop", "pop_batch": 0}, "from 1 to 32"),
        ({"mode": "pop", "pop_batch": 33}, "from 1 to 32"),
        ({"mode": "pop", "max_popped_messages": 0}, "from 1 to 65535"),
        ({"pop_batch": 8}, "no effect with mode='pull'"),
        ({"mode": "pop", "broadcast": True}, "brokers keep the offsets"),
        ({"mode": "broker", "ordered": True}, "mode='pull' or 'pop'"),
        ({"mode": "pop", "start_at": "2h"}, "'first' or 'last'"),
        ({"mode": "pop", "allocation": "CONSISTENT_HASH"}, "AVG and AVG_BY_CIRCLE"),
    ],
)
def test_options_that_a_mode_excludes_are_refused(options: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidSetting, match=text):
        AsyncPushConsumer("127.0.0.1:9876", group="G", **options)


@pytest.mark.parametrize("options", [{"pop_invisible_ms": 5_000}, {"pop_invisible_ms": 300_000}, {"pop_batch": 32}])
def test_options_at_their_bounds_are_accepted(options: dict[str, Any]) -> None:
    AsyncPushConsumer("127.0.0.1:9876", group="G", mode="pop", **options)

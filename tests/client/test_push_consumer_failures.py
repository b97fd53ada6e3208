"""What a push consumer does with messages that its listeners fail on: against real servers, in memory and in virtual time."""

import asyncio
from dataclasses import dataclass

import pytest
from tests.client.real_cluster import Basket, real_cluster, until

from pocketmq.client.consumer.consume_result import LATER, AckIndex, DeadLetter, RetryLater
from pocketmq.client.received import DEAD_LETTER_REASON
from pocketmq.model.message import StoredMessage
from pocketmq.testing import run


def test_a_failed_message_is_retried_with_increasing_delays_and_becomes_a_dead_letter_with_its_reason() -> None:
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
            assert dead.properties[DEAD_LETTER_REASON].startswith(
                "ValueError: no such customer, at test_push_consumer_failures.py:"
            )
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
            assert dead.properties[DEAD_LETTER_REASON] == "cannot be read"

    run(main())


def test_only_unacknowledged_messages_of_a_batch_are_delivered_again() -> None:
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


def test_an_invalid_result_counts_as_a_failure() -> None:
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


def test_a_message_that_cannot_be_sent_back_is_retried_locally() -> None:
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


def test_a_broadcasting_member_drops_failed_messages() -> None:
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


def test_a_body_of_the_wrong_type_becomes_a_dead_letter_with_the_reason() -> None:
    @dataclass
    class Order:
        number: int

    async def main() -> None:
        async with real_cluster(queues=1) as c:
            delivered: list[Order] = []
            consumer = c.push_consumer(start_at="first", max_reconsume_times=1)

            async def handle(order: Order) -> None:
                delivered.append(order)

            consumer.on("T")(handle)
            async with consumer:
                await c.send("T", b'{"number": 42}', b'{"number": "many"}', b"no JSON")
                await until(lambda: len(c.stored("%DLQ%G")) == 2, 120)

            assert delivered == [Order(42)]
            reasons = [message.properties[DEAD_LETTER_REASON] for message in c.stored("%DLQ%G")]
            assert any("Expected `int`, got `str`" in reason for reason in reasons)
            assert any("JSON is malformed" in reason for reason in reasons)

    run(main())


@pytest.mark.parametrize("ordered", [False, True])
def test_a_listener_that_cancels_its_own_task_does_not_block_its_queue(ordered: bool) -> None:
    async def main() -> None:
        async with real_cluster(queues=1) as c:
            seen: list[bytes] = []
            consumer = c.push_consumer(start_at="first", workers=1, ordered=ordered)

            @consumer.on("T")
            async def handle(message: StoredMessage) -> None:
                seen.append(message.body)
                task = asyncio.current_task()
                assert task is not None
                if len(seen) == 1:
                    task.cancel()
                    await asyncio.sleep(1)

            async with consumer:
                await c.send("T", b"0", b"1")
                await until(lambda: len(seen) == 3)

            assert seen == ([b"0", b"0", b"1"] if ordered else [b"0", b"1", b"0"])

    run(main())


def test_a_reason_without_space_in_the_properties_is_omitted() -> None:
    async def main() -> None:
        async with real_cluster(queues=1) as c:
            seen: list[bytes] = []
            consumer = c.push_consumer(start_at="first", ordered=True)

            @consumer.on("T")
            async def handle(message: StoredMessage) -> None:
                seen.append(message.body)
                if message.body == b"0":
                    raise DeadLetter("much to say " * 40)

            async with consumer:
                await c.send("T", b"0", properties={"long": "x" * 32_300})
                await c.send("T", b"1")
                await until(lambda: len(seen) == 2)

            assert seen == [b"0", b"1"]
            (letter,) = c.stored("%DLQ%G")
            assert (letter.body, DEAD_LETTER_REASON in letter.properties) == (b"0", False)

    run(main())

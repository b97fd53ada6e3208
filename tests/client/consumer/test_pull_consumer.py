"""The pull consumer against real servers, in memory and in virtual time."""

import asyncio
import itertools
from collections.abc import Sequence
from typing import Any

import pytest
from tests.client.real_cluster import Basket, real_cluster, until

from pocketmq.client.consumer.pull_consumer import PullTask
from pocketmq.client.consumer.pulling import PullStatus
from pocketmq.errors import InvalidExpression, InvalidParameter, RemoteError, TopicNotFound, UsageError
from pocketmq.model.queue import MessageQueue
from pocketmq.testing import run

QUEUE = MessageQueue("T", "broker-a", 0)


def test_results_of_pulls_have_their_status() -> None:
    async def main() -> None:
        async with real_cluster(queues=1) as c, c.pull_consumer() as consumer:
            for number, tag in enumerate("ABABA"):
                await c.send("T", b"%d" % number, tags=tag)

            found = await consumer.pull(QUEUE, 0)
            some = await consumer.pull(QUEUE, 1, 2)
            tagged = await consumer.pull(QUEUE, 0, tags="B || Z")
            unmatched = await consumer.pull(QUEUE, 0, tags="Z")
            at_the_end = await consumer.pull(QUEUE, 5)
            beyond = await consumer.pull(QUEUE, 99)

            assert (found.status, found.next_offset, found.min_offset, found.max_offset) == (PullStatus.FOUND, 5, 0, 5)
            assert [message.body for message in found.messages] == [b"0", b"1", b"2", b"3", b"4"]
            assert [message.body for message in some.messages] == [b"1", b"2"]
            assert [message.body for message in tagged.messages] == [b"1", b"3"]
            assert (unmatched.status, unmatched.next_offset) == (PullStatus.NO_MATCHED_MESSAGE, 5)
            assert (at_the_end.status, at_the_end.next_offset) == (PullStatus.NO_NEW_MESSAGE, 5)
            assert (beyond.status, beyond.next_offset) == (PullStatus.OFFSET_ILLEGAL, 0)
            assert not (unmatched.messages)
            assert not (at_the_end.messages)
            assert not (beyond.messages)

    run(main())


def test_an_argument_of_a_pull_that_does_not_exist_is_refused() -> None:
    unknown: dict[str, Any] = {"tag": "B"}

    async def main() -> None:
        async with real_cluster(queues=1) as c, c.pull_consumer() as consumer:
            with pytest.raises(UsageError, match="pull has no argument 'tag'; did you mean 'tags'"):
                await consumer.pull(QUEUE, 0, **unknown)
            with pytest.raises(UsageError, match="pull_block_if_not_found has no argument 'tag'"):
                await consumer.pull_block_if_not_found(QUEUE, 0, **unknown)

    run(main())


def test_a_pull_may_wait_for_a_message() -> None:
    async def main() -> None:
        async with real_cluster(queues=1) as c, c.pull_consumer(pull_wait_ms=3_000) as consumer:
            waiting = asyncio.create_task(consumer.pull_block_if_not_found(QUEUE, 0))
            await asyncio.sleep(1)
            await c.send("T", b"1")
            assert [message.body for message in (await waiting).messages] == [b"1"]

            before = c.loop.time()
            assert (await consumer.pull_block_if_not_found(QUEUE, 1)).status is PullStatus.NO_NEW_MESSAGE
            assert 3 <= c.loop.time() - before < 9

    run(main())


def test_pulls_are_filtered_by_sql() -> None:
    async def main() -> None:
        async with real_cluster(queues=1, property_filter=True) as c, c.pull_consumer() as consumer:
            for number in range(5):
                await c.send("T", b"%d" % number, properties={"n": str(number)})
            found = await consumer.pull(QUEUE, 0, sql="n > 2")
            assert [message.body for message in found.messages] == [b"3", b"4"]
            for pull in (consumer.pull, consumer.pull_block_if_not_found):
                with pytest.raises(InvalidExpression, match=r"'nonsense nonsense' .* column 10"):
                    await pull(QUEUE, 0, sql="nonsense nonsense")
                with pytest.raises(InvalidExpression, match="contains no tag"):
                    await pull(QUEUE, 0, tags="||")

    run(main())


def test_a_broker_without_sql_filters_refuses_a_pull_by_sql() -> None:
    async def main() -> None:
        async with real_cluster(queues=1, property_filter=False) as c, c.pull_consumer() as consumer:
            await c.send("T", b"1")
            with pytest.raises(RemoteError, match="does not support consumer to filter message by SQL92"):
                await consumer.pull(QUEUE, 0, sql="n > 2")

    run(main())


def test_impossible_pulls_are_refused() -> None:
    async def main() -> None:
        async with real_cluster(queues=1) as c, c.pull_consumer() as consumer:
            with pytest.raises(UsageError, match="offset -3"):
                await consumer.pull(QUEUE, -3)
            with pytest.raises(UsageError, match="0 messages"):
                await consumer.pull(QUEUE, 0, 0)
            with pytest.raises(TopicNotFound):
                await consumer.pull(MessageQueue("No", "broker-a", 0), 0)
            with pytest.raises(InvalidParameter):
                await consumer.pull(MessageQueue("T", "broker-a", 9), 0)

    run(main())


def test_offsets_are_queried_and_committed() -> None:
    async def main() -> None:
        async with real_cluster(queues=2) as c, c.pull_consumer() as consumer:
            await c.send("T", b"0", queue=0)
            await asyncio.sleep(10)
            middle_ms = c.clock.now_ms()
            await asyncio.sleep(10)
            await c.send("T", b"1", queue=0)
            empty = MessageQueue("T", "broker-a", 1)

            assert await consumer.queues("T") == [QUEUE, empty]
            assert (await consumer.min_offset(QUEUE), await consumer.max_offset(QUEUE)) == (0, 2)
            assert await consumer.max_offset(empty) == 0
            assert await consumer.offset_at(QUEUE, middle_ms) == 1
            assert await consumer.earliest_time_ms(empty) == -1
            assert middle_ms - 11_000 < await consumer.earliest_time_ms(QUEUE) < middle_ms
            assert await consumer.committed(empty) is None
            await consumer.commit({QUEUE: 2})
            assert await consumer.committed(QUEUE) == 2 == c.committed("G", "T", 0)

    run(main())


def test_a_broadcasting_pull_consumer_stores_its_own_offsets() -> None:
    async def main() -> None:
        async with real_cluster(queues=1) as c:
            async with c.pull_consumer(broadcast=True, local_offsets="/home") as consumer:
                await consumer.commit({QUEUE: 7})
            async with c.pull_consumer(broadcast=True, local_offsets="/home") as consumer:
                assert await consumer.committed(QUEUE) == 7
            assert c.committed("G", "T", 0) is None

    run(main())


def test_a_message_that_is_sent_back_is_delivered_again() -> None:
    async def main() -> None:
        async with real_cluster(queues=1) as c:
            await c.send("T", b"1", b"2")
            async with c.pull_consumer() as consumer:
                again, dead = (await consumer.pull(QUEUE, 0)).messages
                await consumer.send_back(again, "broker-a", delay_level=1)
                await consumer.send_back(dead, "broker-a", delay_level=-1)
            basket = Basket()
            push = c.push_consumer(start_at="first")
            push.on("T", tags="none")(basket)
            async with push:
                await basket.wait(1)

            assert basket.bodies == [b"1"]
            assert [message.body for message in c.stored("%DLQ%G")] == [b"2"]

    run(main())


def test_a_message_of_a_namespace_is_retried_although_its_broker_refuses_it() -> None:
    async def main() -> None:
        async with real_cluster(queues=1, topics=("ns%T",)) as c:
            async with c.producer(namespace="ns") as producer:
                await producer.send("T", b"1")
            async with c.pull_consumer(namespace="ns") as consumer:
                (message,) = (await consumer.pull(QUEUE, 0)).messages
                await consumer.send_back(message, "broker-that-is-gone")
            basket = Basket()
            push = c.push_consumer(namespace="ns")
            push.on("T", tags="none")(basket)
            push.on("U")(Basket())
            async with push:
                await basket.wait(1)

            assert [(one.topic, one.body) for one in basket.messages] == [("T", b"1")]

    run(main())


def test_a_second_listener_also_gets_the_allocated_queues() -> None:
    async def main() -> None:
        async with real_cluster(queues=2) as c, c.pull_consumer() as consumer:
            first: list[int] = []
            await consumer.on_queues_changed("T", lambda _, __, mine: first.append(len(mine)))
            await until(lambda: first == [2], timeout_s=5)
            second: list[int] = []
            await consumer.on_queues_changed("T", lambda _, __, mine: second.append(len(mine)))
            await until(lambda: second == [2], timeout_s=5)

    run(main())


def test_the_listener_gets_the_allocated_queues_after_every_change() -> None:
    async def main() -> None:
        async with real_cluster(queues=4) as c:
            told: list[list[int]] = []

            def changed(topic: str, all_queues: Sequence[MessageQueue], mine: Sequence[MessageQueue]) -> None:
                told.append([queue.queue_id for queue in mine])

            async with c.pull_consumer() as first:
                await first.on_queues_changed("T", changed)
                await until(lambda: told == [[0, 1, 2, 3]])
                async with c.pull_consumer(host="10.0.2.2") as second:
                    await second.on_queues_changed("T", lambda *_: None)
                    await until(lambda: told[-1] == [0, 1])
                await until(lambda: told[-1] == [0, 1, 2, 3])

    run(main())


def test_namespaces_are_only_visible_on_the_wire() -> None:
    async def main() -> None:
        async with (
            real_cluster(topics=("ns%T",), queues=1) as c,
            c.pull_consumer(namespace="ns") as consumer,
            c.producer(namespace="ns") as producer,
        ):
            await producer.send("T", b"1")
            (queue,) = await consumer.queues("T")
            assert queue == QUEUE
            assert [message.topic for message in (await consumer.pull(queue, 0)).messages] == ["T"]

    run(main())


# scheduled pulls


def test_a_task_is_called_for_each_allocated_queue_until_the_queue_moves() -> None:
    async def main() -> None:
        async with real_cluster(queues=4) as c:
            calls: dict[str, list[int]] = {"a": [], "b": []}

            def task(name: str) -> PullTask:
                async def call(queue: MessageQueue) -> float | None:
                    calls[name].append(queue.queue_id)
                    return 1.0

                return call

            async with c.pull_consumer(host="10.0.2.1") as first:
                await first.schedule("T", task("a"))
                await until(lambda: set(calls["a"]) == {0, 1, 2, 3})
                async with c.pull_consumer(host="10.0.2.2") as second:
                    await second.schedule("T", task("b"))
                    await until(lambda: set(calls["b"]) == {2, 3})
                    await asyncio.sleep(3)
                    calls["a"].clear()
                    await asyncio.sleep(10.5)
                    assert sorted(calls["a"]) == [0] * 10 + [1] * 10 or sorted(calls["a"]) == [0] * 11 + [1] * 11
                await until(lambda: set(calls["a"]) == {0, 1, 2, 3})
            count = len(calls["a"])
            await asyncio.sleep(10)
            assert len(calls["a"]) == count, "the consumer was stopped"

    run(main())


def test_a_task_without_a_result_is_called_soon_and_a_failed_one_after_a_second(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        async with real_cluster(queues=1) as c, c.pull_consumer() as consumer:
            times: list[float] = []

            async def call(queue: MessageQueue) -> float | None:
                times.append(c.loop.time())
                if len(times) == 2:
                    raise ValueError("not now")
                return "soon" if len(times) == 3 else None  # type: ignore[return-value]

            await consumer.schedule("T", call)
            await until(lambda: len(times) == 5)
            assert [round(after - before, 1) for before, after in itertools.pairwise(times)] == [0.2, 1.0, 1.0, 0.2]

            other: list[MessageQueue] = []

            async def instead(queue: MessageQueue) -> float | None:
                other.append(queue)
                return 5

            await consumer.schedule("T", instead)
            count = len(times)
            await until(lambda: other == [QUEUE])
            assert len(times) == count

    run(main())
    assert "pull task of T@broker-a:0 failed; next call in 1 s" in caplog.text

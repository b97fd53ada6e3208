"""Ordered messages: one member at a time, one message after the other, in every situation. Real servers, virtual
time.
"""

import asyncio
import itertools
from collections import defaultdict
from typing import Any

import pytest
from tests.client.real_cluster import Basket, RealCluster, real_cluster, until

from pocketmq.client.consumer.consume_result import COMMIT, LATER, ROLLBACK, DeadLetter, RetryLater, Suspend
from pocketmq.client.consumer.orderly_listening import MAX_CONTINUOUS_S
from pocketmq.client.consumer.push_consumer import AsyncPushConsumer
from pocketmq.client.received import DEAD_LETTER_REASON
from pocketmq.model.message import Message, StoredMessage
from pocketmq.model.queue import MessageQueue
from pocketmq.testing import run


def member(c: RealCluster, listener: Any, number: int = 1, **options: Any) -> AsyncPushConsumer:
    consumer = c.push_consumer(host=f"10.0.2.{number}", **{"start_at": "first", "ordered": True, **options})
    consumer.on("T")(listener)
    return consumer


class Order:
    """A slow listener that checks that no other listener processes its queue at the same time."""

    def __init__(self, took_s: float = 0.01) -> None:
        self.took_s = took_s
        self.seen: dict[int, list[int]] = defaultdict(list)
        self.busy: set[int] = set()
        self.crowded = False

    async def __call__(self, message: StoredMessage) -> None:
        self.crowded = self.crowded or message.queue_id in self.busy
        self.busy.add(message.queue_id)
        try:
            await asyncio.sleep(self.took_s)
            self.seen[message.queue_id].append(message.queue_offset)
        finally:
            self.busy.discard(message.queue_id)

    @property
    def count(self) -> int:
        """How many messages were handled; it fails the test when two listeners worked on one queue."""
        assert not self.crowded
        return sum(map(len, self.seen.values()))


def test_messages_of_a_queue_are_handled_one_after_the_other() -> None:
    async def main() -> None:
        async with real_cluster(queues=3) as c:
            await c.send("T", *(b"%d" % number for number in range(90)))
            order = Order()

            async with member(c, order):
                await until(lambda: order.count == 90)

            assert {queue: seen == sorted(seen) for queue, seen in order.seen.items()} == {0: True, 1: True, 2: True}
            assert [c.committed("G", "T", queue) for queue in range(3)] == [30, 30, 30]

    run(main())


def test_queues_are_locked_and_the_locks_are_renewed_and_released() -> None:
    async def main() -> None:
        async with real_cluster(queues=2) as c:
            async with member(c, Order()) as consumer:
                await until(lambda: c.broker.parts.state.locks.has_locks("G", c.clock.monotonic()))
                await asyncio.sleep(300)
                info = await consumer.running_info()
                assert all(one.locked for one in info.mq_table.values())
                assert min(one.last_lock_timestamp for one in info.mq_table.values()) > c.clock.now_ms() - 21_000

            assert not c.broker.parts.state.locks.has_locks("G", c.clock.monotonic())

    run(main())


def test_a_failure_blocks_only_its_own_queue() -> None:
    async def main() -> None:
        async with real_cluster(queues=2) as c:
            basket = Basket(lambda message: LATER if message.body == b"bad" and message.reconsume_times < 3 else None)
            await c.send("T", b"bad", b"after", queue=0)
            await c.send("T", b"other", queue=1)

            async with member(c, basket):
                await basket.wait(6)

            assert [body for body in basket.bodies if body != b"other"] == [b"bad"] * 4 + [b"after"]
            of_queue = [at for at, message in zip(basket.times, basket.messages, strict=True) if message.body == b"bad"]
            assert [round(b - a, 1) for a, b in itertools.pairwise(of_queue)] == [1.0, 1.0, 1.0]
            assert basket.bodies.index(b"other") < 3

    run(main())


@pytest.mark.parametrize(
    ("answer", "wait_s"),
    [
        (Suspend(wait_ms=200), 0.2),
        (Suspend(wait_ms=1), 0.01),
        (Suspend(wait_ms=100_000), 30.0),
        (RetryLater(delay_level=2), 5.0),
        (ValueError("x"), 1.0),
    ],
)
def test_a_listener_chooses_the_pause_of_its_queue(answer: Exception, wait_s: float) -> None:
    async def main() -> None:
        async with real_cluster(queues=1) as c:
            basket = Basket(lambda message: None if message.reconsume_times else answer)
            await c.send("T", b"1")

            async with member(c, basket):
                await basket.wait(2)

            assert round(basket.times[1] - basket.times[0], 2) == wait_s

    run(main())


def test_after_the_last_attempt_a_message_is_a_dead_letter_and_the_next_is_delivered() -> None:
    async def main() -> None:
        async with real_cluster(queues=1) as c:
            basket = Basket(lambda message: LATER if message.body == b"bad" else None)
            await c.send("T", b"bad", b"good")

            async with member(c, basket, max_reconsume_times=2, suspend_ms=100):
                await basket.wait(4)

            assert basket.bodies == [b"bad", b"bad", b"bad", b"good"]
            (dead,) = c.stored("%DLQ%G")
            assert dead.body == b"bad"
            assert dead.properties[DEAD_LETTER_REASON] == "failed 3 times"
            assert c.committed("G", "T", 0) == 2

    run(main())


def test_a_listener_can_make_a_message_a_dead_letter() -> None:
    async def main() -> None:
        async with real_cluster(queues=1) as c:

            def answer(message: StoredMessage) -> None:
                if message.body == b"bad":
                    raise DeadLetter("nobody can read this")

            basket = Basket(answer)
            await c.send("T", b"bad", b"good")

            async with member(c, basket):
                await basket.wait(2)

            assert basket.bodies == [b"bad", b"good"]
            assert c.stored("%DLQ%G")[0].properties[DEAD_LETTER_REASON] == "nobody can read this"

    run(main())


def test_all_messages_of_a_batch_from_the_first_failure_on_are_delivered_again() -> None:
    async def main() -> None:
        async with real_cluster(queues=1) as c:
            await c.send("T", *(b"%d" % number for number in range(6)))
            batches: list[list[bytes]] = []
            consumer = c.push_consumer(start_at="first", ordered=True, suspend_ms=50)

            @consumer.on("T", batch_size=4)
            async def handle(messages: list[StoredMessage]) -> object:
                batches.append([message.body for message in messages])
                return [None, LATER, None, None][: len(messages)] if len(batches) == 1 else None

            async with consumer:
                await until(lambda: sum(map(len, batches)) == 9)

            assert batches == [[b"0", b"1", b"2", b"3"], [b"1", b"2", b"3", b"4"], [b"5"]]

    run(main())


def test_order_is_kept_while_members_join_and_leave() -> None:
    async def main() -> None:
        async with real_cluster(queues=4) as c:
            order = Order(took_s=0.03)

            async def send() -> None:
                async with c.producer() as producer:
                    for number in range(400):
                        queue = MessageQueue("T", "broker-a", number % 4)
                        await producer.send(Message("T", b"%d" % number), queue=queue)
                        await asyncio.sleep(0.05)

            sending = asyncio.create_task(send())
            async with member(c, order, 1):
                for number in range(2, 6):
                    async with member(c, order, number):
                        await asyncio.sleep(5)
                await sending
                await until(lambda: all(len(set(order.seen[queue])) == 100 for queue in range(4)))

            for seen in order.seen.values():
                first_time = list(dict.fromkeys(seen))
                assert first_time == sorted(first_time)
                assert len(seen) - len(first_time) <= 2

    run(main())


def test_a_queue_is_not_released_while_its_listener_runs() -> None:
    async def main() -> None:
        async with real_cluster(queues=2) as c:
            order = Order(took_s=7)
            await c.send("T", b"0", queue=1)

            async with member(c, order, 1) as first:
                await until(lambda: order.busy)
                async with member(c, order, 2) as second:
                    await asyncio.sleep(4)
                    assert len([queue for queue in await first.queues() if queue.topic == "T"]) == 2
                    await until(lambda: order.count == 1)
                    await asyncio.sleep(3)
                    assert [queue.queue_id for queue in await second.queues() if queue.topic == "T"] == [1]
                    assert order.count == 1

    run(main())


def test_nothing_is_consumed_after_the_lock_may_have_expired() -> None:
    async def main() -> None:
        async with real_cluster(queues=1) as c:
            order = Order(took_s=0.5)
            await c.send("T", *(b"%d" % number for number in range(200)))

            async with member(c, order, pull_batch=200, max_queue_messages=200):
                await until(lambda: order.count == 10)
                c.network.partition("10.0.2.1", c.place("broker-a"))
                await asyncio.sleep(60)
                stopped_at = order.count
                assert 40 < stopped_at < 80
                await asyncio.sleep(20)
                assert order.count == stopped_at
                c.network.heal()
                await until(lambda: order.count >= 200)

            assert sorted(set(order.seen[0])) == list(range(200))

    run(main())


def test_a_queue_pauses_after_a_minute_in_favour_of_others() -> None:
    async def main() -> None:
        async with real_cluster(queues=2) as c:
            order = Order(took_s=1)
            await c.send("T", *(b"%d" % number for number in range(100)), queue=0)

            async with member(c, order, workers=1):
                await until(lambda: order.busy)
                await c.send("T", b"patient", queue=1)
                await until(lambda: 1 in order.seen, timeout_s=200)
                assert MAX_CONTINUOUS_S - 2 <= len(order.seen[0]) <= MAX_CONTINUOUS_S + 2

    run(main())


def test_an_ordered_broadcast_needs_no_locks() -> None:
    async def main() -> None:
        async with real_cluster(queues=2) as c:
            orders = Order(), Order()
            members = [
                member(c, order, number, broadcast=True, local_offsets="/home") for number, order in enumerate(orders)
            ]
            async with members[0], members[1]:
                await c.send("T", *(b"%d" % number for number in range(20)))
                await until(lambda: all(order.count == 20 for order in orders))

            assert not c.broker.parts.state.locks.has_locks("G", c.clock.monotonic())

    run(main())


def test_a_restarted_queue_waits_for_the_running_listener() -> None:
    async def main() -> None:
        async with real_cluster(queues=1) as c:
            order = Order(took_s=20)
            await c.send("T", b"0", b"1")

            async with member(c, order, stop_timeout_ms=30_000):
                await until(lambda: order.busy)
                c.broker.parts.state.offsets.reset("G", "T", {0: 1})
                await until(lambda: order.count == 2, timeout_s=100)

            assert order.seen[0] == [0, 1]

    run(main())


def test_a_restarted_queue_is_not_released_while_the_earlier_listener_runs() -> None:
    async def main() -> None:
        async with real_cluster(queues=1) as c:
            order = Order(took_s=30)
            await c.send("T", b"0", b"1", b"2")

            async with member(c, order, 2, stop_timeout_ms=60_000):
                await until(lambda: order.busy)
                c.broker.parts.state.offsets.reset("G", "T", {0: 1})
                await asyncio.sleep(17)
                async with member(c, order, 1, stop_timeout_ms=60_000):
                    await until(lambda: order.count == 3, timeout_s=400)

            assert order.seen[0] == [0, 1, 2]

    run(main())


def test_consumption_continues_after_an_unexpected_error(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with real_cluster(queues=1) as c:
            basket = Basket()
            consumer = c.push_consumer(start_at="first", ordered=True)
            consumer.on("T")(basket)
            async with consumer:
                noted = consumer._member._stats.record_consumed
                failures = iter([ZeroDivisionError()])

                def fail_once(topic: str, ok: int, failed: int, took_s: float) -> None:
                    for failure in failures:
                        raise failure
                    noted(topic, ok, failed, took_s)

                monkeypatch.setattr(consumer._member._stats, "record_consumed", fail_once)
                await c.send("T", b"0", b"1")
                await basket.wait(3)

            assert basket.bodies == [b"0", b"0", b"1"]
            assert c.committed("G", "T", 0) == 2

    run(main())
    assert "unexpected error while consuming" in caplog.text


# with auto_commit=False


def manual(c: RealCluster, listener: Any, **options: Any) -> AsyncPushConsumer:
    return member(c, listener, auto_commit=False, persist_ms=1_000, suspend_ms=100, **options)


def test_processed_messages_are_committed_when_the_listener_returns_commit() -> None:
    async def main() -> None:
        async with real_cluster(queues=1) as c:
            offsets: list[int] = []

            def handle(message: StoredMessage) -> object:
                offsets.append(message.queue_offset)
                return COMMIT if message.queue_offset == 5 else None

            await c.send("T", *(b"%d" % number for number in range(9)))
            async with manual(c, handle) as consumer:
                c.loop.hold_while(lambda: consumer.is_running and consumer.at_work > 0)
                await until(lambda: len(offsets) == 9)
                await asyncio.sleep(20)
                assert c.committed("G", "T", 0) == 6
                (info,) = [one for queue, one in (await consumer.running_info()).mq_table.items() if queue.topic == "T"]
                assert (info.transaction_msg_count, info.transaction_msg_min_offset) == (3, 6)

            assert (offsets, c.committed("G", "T", 0)) == (list(range(9)), 6)
            async with manual(c, handle) as consumer:
                c.loop.hold_while(lambda: consumer.is_running and consumer.at_work > 0)
                await until(lambda: len(offsets) == 12)
            assert offsets[9:] == [6, 7, 8]

    run(main())


def test_a_rollback_delivers_all_uncommitted_messages_again() -> None:
    async def main() -> None:
        async with real_cluster(queues=1) as c:
            seen: list[tuple[int, int]] = []
            results: dict[int, list[object]] = {1: [COMMIT], 3: [ROLLBACK, None], 5: [COMMIT]}

            async def handle(message: StoredMessage) -> object:
                seen.append((message.queue_offset, message.reconsume_times))
                rest = results.get(message.queue_offset)
                return rest.pop(0) if rest else None

            await c.send("T", *(b"%d" % number for number in range(6)))
            async with manual(c, handle):
                await until(lambda: c.committed("G", "T", 0) == 6)

            assert seen == [(offset, 0) for offset in (0, 1, 2, 3, 2, 3, 4, 5)]

    run(main())


def test_a_failure_affects_only_its_own_message() -> None:
    async def main() -> None:
        async with real_cluster(queues=1) as c:
            seen: list[tuple[int, int]] = []

            async def handle(message: StoredMessage) -> object:
                seen.append((message.queue_offset, message.reconsume_times))
                if message.queue_offset == 2 and message.reconsume_times < 2:
                    raise ValueError("not yet")
                return COMMIT if message.queue_offset == 3 else None

            await c.send("T", *(b"%d" % number for number in range(4)))
            async with manual(c, handle):
                await until(lambda: c.committed("G", "T", 0) == 4)

            assert seen == [(0, 0), (1, 0), (2, 0), (2, 1), (2, 2), (3, 0)]

    run(main())


def test_a_queue_with_uncommitted_messages_moves_to_another_member() -> None:
    async def main() -> None:
        async with real_cluster(queues=2) as c:
            seen: dict[int, list[int]] = {1: [], 2: []}

            def listening(number: int) -> Any:
                async def handle(message: StoredMessage) -> None:
                    seen[number].append(message.queue_offset)

                return handle

            await c.send("T", *(b"%d" % number for number in range(3)), queue=1)
            async with manual(c, listening(1), number=1):
                await until(lambda: len(seen[1]) == 3)
                async with manual(c, listening(2), number=2):
                    await until(lambda: len(seen[2]) == 3, timeout_s=30)

            assert seen == {1: [0, 1, 2], 2: [0, 1, 2]}
            assert c.committed("G", "T", 1) in (None, 0)

    run(main())


def test_a_rollback_with_automatic_commits_is_an_error_and_delivers_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        async with real_cluster(queues=1) as c:
            basket = Basket(lambda message: COMMIT if message.reconsume_times else ROLLBACK)
            await c.send("T", b"1")
            async with member(c, basket, suspend_ms=100):
                await basket.wait(2)

            assert c.committed("G", "T", 0) == 1

    run(main())
    assert "ROLLBACK, which requires ordered=True and auto_commit=False" in caplog.text

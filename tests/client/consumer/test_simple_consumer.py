"""The simple consumer against real servers, in memory and in virtual time."""

import asyncio
import logging
from typing import Any

import pytest
from tests.client.real_cluster import RealCluster, real_cluster, until

from pocketmq.client import (
    AsyncSimpleConsumer,
    ClientMetrics,
    ConsumeEvent,
    FilterEvent,
    Hooks,
    MetricsInMemory,
    PullEvent,
)
from pocketmq.errors import InvalidSetting, LeaseLost, UsageError
from pocketmq.model import Message, MessageQueue, StoredMessage
from pocketmq.protocol.trace_text import Outcome
from pocketmq.store.settings import FlushMode
from pocketmq.testing import run


async def drained(consumer: AsyncSimpleConsumer, count: int, **options: Any) -> list[StoredMessage]:
    """So many messages, from as many calls as they need."""
    found: list[StoredMessage] = []
    async with asyncio.timeout(300):
        while len(found) < count:
            found += await consumer.receive(**options)
    return found


def bodies(messages: list[StoredMessage]) -> list[bytes]:
    return sorted(message.body for message in messages)


def returned(cluster: RealCluster, group: str = "G") -> int:
    """The messages that returned to the retry topic."""
    return len(cluster.stored(f"%RETRY%{group}_T"))


def test_messages_of_all_queues_are_received_and_acknowledged() -> None:
    async def main() -> None:
        async with real_cluster() as c, c.simple_consumer(start_at="first") as consumer:
            await consumer.subscribe("T")
            for queue in range(4):
                await c.send("T", b"%d" % queue, queue=queue)

            messages = await drained(consumer, 4)
            assert bodies(messages) == [b"0", b"1", b"2", b"3"]
            assert {message.topic for message in messages} == {"T"}
            assert consumer.open_leases == 4
            await consumer.ack(messages)

            assert consumer.open_leases == 0
            assert await consumer.receive(wait_s=60) == []
            assert returned(c) == 0

    run(main())


def test_receive_waits_for_a_message_and_gets_it_at_once() -> None:
    async def main() -> None:
        async with real_cluster() as c, c.simple_consumer(start_at="first") as consumer:
            await consumer.subscribe("T")
            receiving = asyncio.create_task(consumer.receive(wait_s=60))
            await asyncio.sleep(31.7)
            sent_at = c.loop.time()
            await c.send("T", b"late")

            assert bodies(await receiving) == [b"late"]
            assert c.loop.time() - sent_at < 0.1

    run(main())


def test_a_message_that_is_not_acknowledged_returns_with_its_topic_and_one_attempt_more() -> None:
    async def main() -> None:
        async with real_cluster() as c, c.simple_consumer(start_at="first") as consumer:
            await consumer.subscribe("T")
            await c.send("T", b"x", tags="a")
            first = await drained(consumer, 1, invisible_s=10)
            began = c.loop.time()

            (again,) = await drained(consumer, 1, wait_s=30)

            assert 8 < c.loop.time() - began < 16
            assert (again.body, again.topic, again.reconsume_times) == (b"x", "T", 1)
            assert first[0].reconsume_times == 0
            await consumer.ack(again)
            await asyncio.sleep(120)
            assert await consumer.receive(wait_s=0) == []

    run(main())


def test_a_late_ack_is_reported_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with real_cluster() as c, c.simple_consumer(start_at="first") as consumer:
            await consumer.subscribe("T")
            await c.send("T", b"0", b"1")
            early = await drained(consumer, 1, max_messages=1, invisible_s=5)
            timely = await drained(consumer, 1, invisible_s=60)
            await asyncio.sleep(5)

            with caplog.at_level(logging.WARNING), pytest.raises(LeaseLost, match="not leased") as caught:
                await consumer.ack([*early, *timely])

            assert caught.value.message_ids == (early[0].message_id,)
            assert "the broker may deliver again" in caplog.text
            again = await drained(consumer, 1)
            assert bodies(again) == bodies(early)
            await consumer.ack(again)
            await asyncio.sleep(120)
            assert await consumer.receive(wait_s=0) == []

    run(main())


def test_change_invisible_extends_a_lease_or_returns_the_message() -> None:
    async def main() -> None:
        async with real_cluster() as c, c.simple_consumer(start_at="first") as consumer:
            await consumer.subscribe("T")
            await c.send("T", b"0", b"1")
            long, short = await drained(consumer, 2, invisible_s=5)
            await consumer.change_invisible(long, 100)
            await consumer.change_invisible(short, 0)

            (again,) = await drained(consumer, 1)
            assert again.body == short.body
            with pytest.raises(LeaseLost):
                await consumer.change_invisible(short, 5)
            await consumer.ack(again)
            await asyncio.sleep(90)
            assert await consumer.receive(wait_s=0) == []
            await consumer.ack(long)
            await asyncio.sleep(90)
            assert await consumer.receive(wait_s=0) == []

    run(main())


def test_auto_renew_keeps_a_message_until_it_is_acknowledged() -> None:
    async def main() -> None:
        async with real_cluster() as c, c.simple_consumer(start_at="first", auto_renew=True) as consumer:
            await consumer.subscribe("T")
            await c.send("T", *(b"%d" % number for number in range(40)))
            messages = await drained(consumer, 40, invisible_s=4)
            await asyncio.sleep(600)
            assert await consumer.receive(wait_s=0) == []
            await consumer.ack(messages)
            await asyncio.sleep(120)

            assert await consumer.receive(wait_s=0) == []
            assert returned(c) == 0

    run(main())


def test_auto_renew_ends_at_its_limit_and_at_the_stop(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with real_cluster() as c:
            options: dict[str, Any] = {"start_at": "first", "invisible_ms": 4000, "auto_renew": True}
            async with c.simple_consumer(max_hold_ms=60_000, **options) as consumer:
                await consumer.subscribe("T")
                await c.send("T", b"forgotten")
                began = c.loop.time()
                await drained(consumer, 1)
                (again,) = await drained(consumer, 1)
                assert 60 <= c.loop.time() - began < 70
                assert "was not acknowledged in time (max_hold_ms)" in caplog.text
                assert again.reconsume_times == 1

            stopped = c.loop.time()
            async with c.simple_consumer(**options) as other:
                await other.subscribe("T")
                assert (await drained(other, 1))[0].reconsume_times == 2
                assert c.loop.time() - stopped < 10

    run(main())


def test_after_the_last_attempt_a_message_is_a_dead_letter() -> None:
    async def main() -> None:
        async with real_cluster() as c, c.simple_consumer(start_at="first", invisible_ms=1000) as consumer:
            await consumer.subscribe("T")
            await c.send("T", b"poison")
            attempts = [(await drained(consumer, 1))[0].reconsume_times for _ in range(17)]
            assert attempts == list(range(17))
            await until(lambda: c.stored("%DLQ%G"))

            assert [message.body for message in c.stored("%DLQ%G")] == [b"poison"]
            assert await consumer.receive(wait_s=60) == []

    run(main())


def test_two_members_share_without_overlap() -> None:
    async def main() -> None:
        async with (
            real_cluster() as c,
            c.simple_consumer(start_at="first") as one,
            c.simple_consumer(start_at="first", host="10.0.2.2") as other,
        ):
            for member in (one, other):
                await member.subscribe("T")
            await c.send("T", *(b"%03d" % number for number in range(200)))
            first, second = await drained(one, 64), await drained(other, 136)

            assert bodies(first + second) == [b"%03d" % number for number in range(200)]
            await one.ack(first)
            await other.ack(second)
            assert len(c.members("G")) == 2

    run(main())


def test_messages_of_a_killed_member_go_to_another_one() -> None:
    async def main() -> None:
        async with real_cluster() as c, c.simple_consumer(start_at="first", host="10.0.2.2") as other:
            await other.subscribe("T")
            victim = c.simple_consumer(start_at="first", invisible_ms=10_000, auto_renew=True)
            await victim.start()
            await victim.subscribe("T")
            await c.send("T", b"0", b"1", b"2")
            await drained(victim, 3)
            c.network.cut("10.0.2.1")
            await victim.stop()

            assert bodies(await drained(other, 3, wait_s=30)) == [b"0", b"1", b"2"]

    run(main())


def test_a_cancelled_receive_loses_no_message() -> None:
    async def main() -> None:
        async with real_cluster() as c, c.simple_consumer(start_at="first") as consumer:
            await consumer.subscribe("T")
            assert await consumer.receive(wait_s=1) == []
            await c.send("T", *(b"%d" % number for number in range(9)))
            found: list[StoredMessage] = []
            for turn in range(30):
                receiving = asyncio.create_task(consumer.receive(1, wait_s=0))
                await asyncio.sleep(0.0001 * turn)
                receiving.cancel()
                done = await asyncio.gather(receiving, return_exceptions=True)
                found += [message for one in done if isinstance(one, list) for message in one]
            found += await drained(consumer, 9 - len(found), wait_s=1)

            assert bodies(found) == [b"%d" % number for number in range(9)]

    run(main())


def test_iteration_yields_one_message_at_a_time_and_leaves_out_those_whose_lease_is_over() -> None:
    async def main() -> None:
        async with real_cluster(queues=1) as c, c.simple_consumer(start_at="first", invisible_ms=5000) as consumer:
            await consumer.subscribe("T")
            await c.send("T", b"0", b"1", b"2")
            handled: list[tuple[bytes, int]] = []
            async for message in consumer:
                await consumer.ack(message)
                await asyncio.sleep(6)
                handled.append((message.body, message.reconsume_times))
                if len(handled) == 3:
                    break

            assert handled == [(b"0", 0), (b"1", 1), (b"2", 2)]

    run(main())


def test_all_brokers_are_read_and_one_that_is_away_does_not_stop_the_others() -> None:
    async def main() -> None:
        async with (
            real_cluster("broker-a", "broker-b") as c,
            c.simple_consumer(start_at="first") as consumer,
            c.producer() as producer,
        ):
            await consumer.subscribe("T")
            for broker in ("broker-a", "broker-b"):
                await producer.send(Message("T", broker.encode()), queue=MessageQueue("T", broker, 0))
            messages = await drained(consumer, 2)
            assert {(message.body, message.queue.broker_name) for message in messages} == {
                (b"broker-a", "broker-a"),
                (b"broker-b", "broker-b"),
            }
            await consumer.ack(messages)

            c.network.cut(c.place("broker-a"))
            await producer.send(Message("T", b"still"), queue=MessageQueue("T", "broker-b", 0))
            assert bodies(await drained(consumer, 1)) == [b"still"]

    run(main())


def test_filters_by_tag_sql_and_hook() -> None:
    class Odd(Hooks):
        def filter_messages(self, event: FilterEvent) -> None:
            event.messages = [message for message in event.messages if message.body != b"hook"]

    async def main() -> None:
        async with (
            real_cluster(topics=("T", "S")) as c,
            c.simple_consumer(start_at="first", invisible_ms=2000, hooks=[Odd()]) as consumer,
        ):
            await consumer.subscribe("T", tags="a || b")
            await consumer.subscribe("S", sql="n > 1")
            await c.send("T", b"a", tags="a")
            await c.send("T", b"c", tags="c")
            await c.send("T", b"hook", tags="b")
            for number in (1, 2):
                await c.send("S", b"%d" % number, properties={"n": str(number)})
            messages = await drained(consumer, 2)
            assert bodies(messages) == [b"2", b"a"]
            await consumer.ack(messages)
            assert await consumer.receive(wait_s=60) == []

    run(main())


def test_names_have_the_namespace_on_the_wire_only() -> None:
    async def main() -> None:
        async with real_cluster(topics=("ns%T",)) as c:
            async with c.producer(namespace="ns") as producer:
                await producer.send(Message("T", b"x"))
            async with c.simple_consumer(namespace="ns", start_at="first", invisible_ms=2000) as consumer:
                await consumer.subscribe("T")
                first = await drained(consumer, 1)
                (again,) = await drained(consumer, 1)
                assert (first[0].topic, again.topic, again.reconsume_times) == ("T", "T", 1)
                await consumer.ack(again)
                assert len(c.stored("%RETRY%ns%G_ns%T")) == 1

    run(main())


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"start_at": "yesterday"}, "must be 'first' or 'last'"),
        ({"invisible_ms": 10}, "from 1000 to"),
        ({"max_hold_ms": 60_000}, "no effect with auto_renew=False"),
        ({"auto_renew": True, "max_hold_ms": 5000}, "must not be below invisible_ms"),
        ({"broadcast": True}, "broadcast has no effect on a simple consumer"),
        ({"invisible": 3}, "invisible_ms"),
    ],
)
def test_impossible_options_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidSetting, match=said):
        AsyncSimpleConsumer("127.0.0.1:9876", group="G", **options)


def test_impossible_arguments_are_refused() -> None:
    async def main() -> None:
        async with real_cluster() as c, c.simple_consumer(start_at="first") as consumer:
            with pytest.raises(UsageError, match=r"call subscribe\(topic\)"):
                await consumer.receive()
            await consumer.subscribe("T")
            for bad in (0, 33, "3", True):
                with pytest.raises(UsageError, match="max_messages"):
                    await consumer.receive(bad)  # type: ignore[arg-type]
            for invisible in (0, -1, 10**6, float("nan"), "5"):
                with pytest.raises(UsageError, match="invisible time"):
                    await consumer.receive(invisible_s=invisible)  # type: ignore[arg-type]
            with pytest.raises(UsageError, match="invisible_s"):
                await consumer.receive(invisible=5)  # type: ignore[arg-type]
            with pytest.raises(UsageError, match="not a message"):
                await consumer.ack([b"x"])  # type: ignore[list-item]
            await c.send("T", b"x")
            (message,) = await drained(consumer, 1)
            await consumer.ack([message, message])
            with pytest.raises(LeaseLost):
                await consumer.ack(message)

    run(main())


def test_hooks_see_pops_acks_and_leases_that_end() -> None:
    class Notes(Hooks):
        def __init__(self) -> None:
            self.pulled: list[tuple[int, int]] = []
            self.begun: list[bytes] = []
            self.ended: list[tuple[bytes, object, str]] = []

        def after_pull(self, event: PullEvent) -> None:
            self.pulled.append((event.queue.queue_id, event.messages))

        def before_consume(self, event: ConsumeEvent) -> None:
            self.begun += [message.body for message in event.messages]

        def after_consume(self, event: ConsumeEvent) -> None:
            error = "" if event.error is None else type(event.error).__name__
            self.ended.append((event.messages[0].body, event.outcome, error))

    async def main() -> None:
        notes, memory = Notes(), MetricsInMemory()
        hooks = [notes, ClientMetrics(memory)]
        async with real_cluster(queues=1) as c:
            async with c.simple_consumer(start_at="first", hooks=hooks) as consumer:
                await consumer.subscribe("T")
                await c.send("T", b"0", b"1", b"2")
                first, *_ = await drained(consumer, 3, invisible_s=5)
                await consumer.ack(first)
                await asyncio.sleep(6)
                assert notes.begun == [b"0", b"1", b"2"]
                assert notes.ended == [
                    (b"0", Outcome.SUCCESS, ""),
                    (b"1", Outcome.RAISED, "LeaseLost"),
                    (b"2", Outcome.RAISED, "LeaseLost"),
                ]
                assert notes.pulled == [(-1, 3)]
                await drained(consumer, 2)
            assert len(notes.ended) == len(notes.begun) == 5  # the stop ends the others

    run(main())


def test_trace_records_are_those_of_a_consumer() -> None:
    async def main() -> None:
        async with real_cluster(topics=("T", "traces"), queues=1) as c:
            async with c.simple_consumer(start_at="first", trace=True, trace_topic="traces") as consumer:
                await consumer.subscribe("T")
                (sent,) = await c.send("T", b"x")
                await consumer.ack(await drained(consumer, 1))
            records = b"".join(message.body for message in c.stored("traces"))
            assert b"SubBefore" in records
            assert b"SubAfter" in records
            assert sent.message_id.encode() in records

    run(main())


def test_a_power_loss_of_the_broker_returns_exactly_what_was_not_acknowledged() -> None:
    async def main() -> None:
        store = {"flush": FlushMode.SYNC}
        async with real_cluster(store=store) as c, c.simple_consumer(start_at="first") as consumer:
            await consumer.subscribe("T")
            await c.send("T", *(b"%d" % number for number in range(8)))
            messages = await drained(consumer, 8, invisible_s=60)
            acked, others = messages[:5], messages[5:]
            await consumer.ack(acked)
            await c.lose_power(store=store)

            again = await drained(consumer, 3, wait_s=30)
            assert bodies(again) == bodies(others)
            assert {message.reconsume_times for message in again} == {1}
            await consumer.ack(again)
            await asyncio.sleep(120)
            assert await consumer.receive(wait_s=0) == []

    run(main())

"""Metrics of producers and consumers."""

import asyncio

import pytest
from tests.client.kit import cluster, refuse
from tests.client.messages import stored
from tests.client.real_cluster import Basket, real_cluster

from pocketmq.client.consumer.consume_result import LATER
from pocketmq.client.hooks import ConsumeEvent, LeaveEvent, PauseEvent, PullEvent
from pocketmq.client.telemetry import metrics as m
from pocketmq.codes import RequestCode, ResponseCode, TransactionState
from pocketmq.errors import LeaseLost
from pocketmq.model.message import Message
from pocketmq.model.queue import MessageQueue
from pocketmq.protocol.trace_text import Outcome
from pocketmq.testing import run

QUEUE = MessageQueue("T", "broker-a", 0)
OF_QUEUE = ("G", "T", "broker-a", "0")


def new_metrics() -> tuple[m.MetricsInMemory, m.ClientMetrics]:
    kept = m.MetricsInMemory()
    return kept, m.ClientMetrics(kept)


def pulled(behind: int, cached: int, messages: int = 0) -> PullEvent:
    return PullEvent(group="G", queue=QUEUE, messages=messages, cost_ms=5, behind=behind, cached=cached)


def consumed(count: int, outcome: Outcome) -> ConsumeEvent:
    messages = [stored(offset) for offset in range(count)]
    return ConsumeEvent(group="G", messages=messages, queue=QUEUE, started_ms=0, cost_ms=2, outcome=outcome)


def test_sends_are_counted_with_their_time_and_size() -> None:
    async def main() -> None:
        kept, metrics = new_metrics()
        async with cluster() as c, c.producer(group="PG", hooks=[metrics]) as producer:
            await producer.send("T", b"1234")
            await producer.send_many([Message("T", b"1"), Message("T", b"2")])

        assert kept.value(m.SENT, "PG", "T") == 3
        assert kept.value(m.SENT_BYTES, "PG", "T") > 4
        assert kept.count(m.SEND_TIME, "PG", "T", "success") == 2
        assert kept.value(m.SENDING, "PG", "T") == 0
        assert kept.labels(m.FAILED) == []

    run(main())


def test_failures_and_retries_are_counted_by_cause() -> None:
    async def main() -> None:
        kept, metrics = new_metrics()
        async with cluster("broker-a", "broker-b") as c, c.producer(group="PG", hooks=[metrics]) as producer:
            for broker in c.brokers.values():
                broker.script(RequestCode.SEND_MESSAGE_V2, refuse(ResponseCode.SERVICE_NOT_AVAILABLE))

            await producer.send("T", b"1")

        assert kept.value(m.FAILED, "PG", "T", "ServiceNotAvailable") == 2
        assert kept.value(m.RETRIED, "PG", "T") == 2
        assert kept.value(m.SENT, "PG", "T") == 1
        assert kept.count(m.SEND_TIME, "PG", "T", "failure") == 2
        assert kept.value(m.SENDING, "PG", "T") == 0

    run(main())


def test_decisions_are_counted() -> None:
    async def main() -> None:
        kept, metrics = new_metrics()
        options = {"group": "PG", "check": lambda _: TransactionState.UNKNOWN, "hooks": [metrics]}
        async with cluster() as c, c.producer(**options) as producer, producer.transaction("T") as tx:
            await tx.send(b"1")

        assert kept.value(m.DECIDED, "PG", "T", "commit") == 1

    run(main())


def test_consumption_is_counted_from_the_pull_to_the_outcome() -> None:
    async def main() -> None:
        kept, metrics = new_metrics()
        async with real_cluster(queues=1) as c:
            await c.send("T", b"1", b"2", b"bad")
            basket = Basket(lambda message: LATER if message.body == b"bad" else None)
            consumer = c.push_consumer(start_at="first", hooks=[metrics])
            consumer.on("T")(basket)
            async with consumer:
                await basket.wait(3)
                await asyncio.sleep(1)

                assert kept.value(m.PULLED, "G", "T") == 3
                assert kept.count(m.PULL_TIME, "G", "T") >= 1
                assert kept.value(m.CONSUMED, "G", "T", "success") == 2
                assert kept.value(m.CONSUMED, "G", "T", "failed") == 1
                assert kept.count(m.PROCESS_TIME, "G", "T", "success") == 2
                assert kept.count(m.DELIVERY_TIME, "G", "T") == 3
                assert kept.value(m.IN_WORK, "G", "T") == 0
                await asyncio.sleep(20)
                assert kept.value(m.LAG, *OF_QUEUE) == 0
            assert kept.labels(m.LAG) == []

    run(main())


def test_a_lite_pull_consumer_reports_its_pulls() -> None:
    async def main() -> None:
        kept, metrics = new_metrics()
        async with real_cluster(queues=1) as c:
            await c.send("T", b"1", b"2")
            async with c.lite_consumer(start_at="first", hooks=[metrics]) as consumer:
                await consumer.subscribe("T")

                assert len(await consumer.poll(30)) == 2

                assert kept.value(m.PULLED, "G", "T") == 2

    run(main())


def test_lag_is_the_sum_of_messages_at_the_broker_and_in_the_client() -> None:
    kept, metrics = new_metrics()

    metrics.after_pull(pulled(behind=100, cached=32, messages=32))
    assert kept.value(m.LAG, *OF_QUEUE) == 132
    metrics.before_consume(consumed(30, Outcome.SUCCESS))
    metrics.after_consume(consumed(30, Outcome.SUCCESS))
    assert kept.value(m.LAG, *OF_QUEUE) == 102
    metrics.after_consume(consumed(2, Outcome.FAILED))
    assert kept.value(m.LAG, *OF_QUEUE) == 102
    metrics.after_consume(consumed(5, Outcome.SUCCESS))
    assert kept.value(m.LAG, *OF_QUEUE) == 100

    metrics.after_leave(LeaveEvent(group="G", queue=QUEUE))
    metrics.after_leave(LeaveEvent(group="G", queue=QUEUE))
    assert kept.labels(m.LAG) == []


def test_pauses_are_counted_by_cause() -> None:
    kept, metrics = new_metrics()

    metrics.after_pause(PauseEvent(group="G", queue=QUEUE, cause="span"))

    assert kept.value(m.PAUSED, "G", "T", "span") == 1


def test_every_metric_is_declared_once_with_the_fields_of_its_kind() -> None:
    assert len({metric.name for metric in m.ALL}) == len(m.ALL)
    assert all(bool(metric.buckets) == (metric.kind is m.Kind.HISTOGRAM) for metric in m.ALL)
    assert all(metric.buckets == tuple(sorted(metric.buckets)) for metric in m.ALL)


def test_leases_are_counted_until_they_end() -> None:
    async def main() -> None:
        kept, metrics = new_metrics()
        async with real_cluster(queues=1) as c, c.simple_consumer(start_at="first", hooks=[metrics]) as consumer:
            await consumer.subscribe("T")
            await c.send("T", *(b"%d" % number for number in range(5)))
            acked, returned, *late = await consumer.receive(5, invisible_s=5)
            assert kept.value(m.LEASED, "G", "T") == 5
            await consumer.ack(acked)
            await consumer.change_invisible(returned, 60)
            assert kept.value(m.LEASED, "G", "T") == 4
            await asyncio.sleep(6)
            with pytest.raises(LeaseLost):
                await consumer.ack(late)

        ends = {
            end: kept.value(m.LEASE_ENDS, "G", "T", end) for end in ("acknowledged", "lapsed", "rejected", "returned")
        }
        assert ends == {"acknowledged": 1, "lapsed": 4, "rejected": 3, "returned": 0}
        assert kept.value(m.LEASED, "G", "T") == 0

    run(main())


def test_a_push_consumer_counts_what_it_gives_back() -> None:
    async def main() -> None:
        kept, metrics = new_metrics()
        async with real_cluster() as c:
            await c.send("T", b"1", b"2")
            basket = Basket(lambda one: one.body == b"1" or one.reconsume_times > 0)
            consumer = c.push_consumer(mode="pop", start_at="first", hooks=[metrics])
            consumer.on("T")(basket)
            async with consumer:
                await basket.wait(3)
                await asyncio.sleep(1)
            assert kept.value(m.LEASE_ENDS, "G", "T", "acknowledged") == 2
            assert kept.value(m.LEASE_ENDS, "G", "T", "returned") == 1
            assert kept.value(m.LEASED, "G", "T") == 0

    run(main())

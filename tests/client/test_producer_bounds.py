"""The limits of a producer: messages in flight, their results, and the wait at a stop."""

import asyncio

import pytest
from tests.client.kit import after, cluster, ignore, refuse

from pocketmq.client.producer.results import SendResult
from pocketmq.codes import RequestCode
from pocketmq.errors import (
    ConnectionLost,
    RemoteError,
    TooManyCalls,
    WrongState,
)
from pocketmq.model.queue import MessageQueue
from pocketmq.testing import run

SEND = RequestCode.SEND_MESSAGE_V2


def test_the_limit_on_messages_makes_senders_wait() -> None:
    async def main() -> None:
        async with cluster() as c, c.producer(max_in_flight_messages=10) as producer:
            c.broker.answers[SEND] = after(0.5, c.broker.store)
            sends = [asyncio.create_task(producer.send("T", b"x")) for _ in range(25)]
            await asyncio.sleep(0.4)
            assert (producer.in_flight, len(c.broker.sends)) == (10, 10)

            with pytest.raises(TooManyCalls, match="10 messages with"):
                producer.submit("T", b"x")
            await producer.wait_for_capacity()

            assert all(result.is_ok for result in await asyncio.gather(*sends))
            assert producer.in_flight == 0

    run(main())


def test_the_limit_on_bytes_makes_senders_wait() -> None:
    async def main() -> None:
        async with cluster() as c, c.producer(max_in_flight_bytes=5_000) as producer:
            c.broker.answers[SEND] = after(0.5, c.broker.store)
            sends = [asyncio.create_task(producer.send("T", b"x" * 2_000)) for _ in range(6)]
            await asyncio.sleep(0.4)
            assert producer.in_flight == 2

            await asyncio.gather(*sends)

    run(main())


def test_submitted_messages_return_futures_and_are_sent_in_order() -> None:
    async def main() -> None:
        async with cluster() as c, c.producer() as producer:
            queue = MessageQueue("T", "broker-a", 1)
            done: list[SendResult] = []
            await producer.send("T", b"warm", queue=queue)

            futures = [producer.submit("T", b"%d" % n, queue=queue) for n in range(50)]
            futures[0].add_done_callback(lambda future: done.append(future.result()))
            assert producer.in_flight == 50

            results = await asyncio.gather(*futures)
            assert [result.queue_offset for result in results] == list(range(1, 51))
            assert done == results[:1]
            assert [body for _, body in c.broker.stored[1:]] == [b"%d" % n for n in range(50)]
            assert producer.in_flight == 0

    run(main())


def test_a_submitted_message_is_retried_after_a_lost_connection_but_not_after_a_refusal() -> None:
    async def main() -> None:
        async with cluster("broker-a", "broker-b") as c, c.producer() as producer:
            await asyncio.gather(*(producer.send("T", b"x") for _ in range(8)))
            c.brokers["broker-a"].answers[SEND] = ignore
            futures = [producer.submit("T", b"y") for _ in range(8)]
            await asyncio.sleep(0.1)
            c.network.cut(c.brokers["broker-a"].address)
            assert {(await future).queue.broker_name for future in futures} == {"broker-b"}

            for broker in c.brokers.values():
                broker.answers[SEND] = refuse(14)
            before = sum(len(broker.sends) for broker in c.brokers.values())
            with pytest.raises(RemoteError):
                await producer.submit("T", b"z")
            assert sum(len(broker.sends) for broker in c.brokers.values()) == before + 1

    run(main())


def test_a_cancelled_submitted_message_counts_until_the_broker_has_answered() -> None:
    async def main() -> None:
        async with cluster() as c, c.producer() as producer:
            await producer.send("T", b"x")
            c.broker.answers[SEND] = after(1, c.broker.store)
            future = producer.submit("T", b"x")
            future.cancel()
            await asyncio.sleep(0.5)
            assert producer.in_flight == 1
            await asyncio.sleep(0.6)
            assert producer.in_flight == 0

    run(main())


def test_attempts_end_when_the_submitted_message_is_cancelled() -> None:
    async def main() -> None:
        async with cluster(topics=("T", "U")) as c, c.producer() as producer:
            never_begun = producer.submit("U", b"x")
            never_begun.cancel()
            await producer.send("T", b"x")
            c.broker.answers[SEND] = ignore
            await asyncio.sleep(1.5)
            retried = producer.submit("T", b"x")
            await asyncio.sleep(0.01)
            c.network.cut(c.broker.address)
            await asyncio.sleep(0.01)
            assert producer.in_flight == 1
            retried.cancel()
            await asyncio.sleep(0.01)

            assert producer.in_flight == 0
            assert len(asyncio.all_tasks()) == 3, "this one, and the two rounds of the instance"

    run(main())


def test_stopping_waits_for_messages_in_flight() -> None:
    async def main() -> None:
        async with cluster() as c:
            producer = c.new_producer()
            await producer.start()
            await producer.send("T", b"x")
            c.broker.answers[SEND] = after(1, c.broker.store)
            futures = [producer.submit("T", b"y") for _ in range(5)]

            await producer.stop()

            assert all(future.result().is_ok for future in futures)
            assert len(c.broker.stored) == 6

    run(main())


def test_stopping_does_not_wait_forever(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with cluster() as c:
            producer = c.new_producer(stop_timeout_ms=700, send_timeout_ms=60_000)
            await producer.start()
            await producer.send("T", b"x")
            c.broker.answers[SEND] = ignore
            lost = asyncio.create_task(producer.send("T", b"y"))
            await asyncio.sleep(0.01)
            started = asyncio.get_running_loop().time()

            await producer.stop()

            assert asyncio.get_running_loop().time() - started == pytest.approx(0.7, abs=0.1)
            with pytest.raises((ConnectionLost, WrongState)):
                await lost

    run(main())
    assert any("producer stopped with 1 messages in flight" in record.message for record in caplog.records)


def test_a_waiting_sender_gets_an_error_when_the_producer_stops() -> None:
    async def main() -> None:
        async with cluster() as c:
            producer = c.new_producer(max_in_flight_messages=1)
            await producer.start()
            c.broker.answers[SEND] = after(1, c.broker.store)
            first, second = (asyncio.create_task(producer.send("T", b"x")) for _ in range(2))
            await asyncio.sleep(0.1)

            await producer.stop()

            assert (await first).is_ok
            with pytest.raises(WrongState, match="was stopped"):
                await second

    run(main())

"""Automatic batches: their content, and the order within a queue."""

import asyncio
from array import array
from typing import cast

import pytest
from tests.client.kit import after, cluster, ignore, properties_of, refuse

from pocketmq.client.producer.batches import batch_length
from pocketmq.client.producer.outgoing import Outgoing
from pocketmq.client.producer.producer import AsyncProducer
from pocketmq.codes import RequestCode
from pocketmq.errors import CallTimedOut, RemoteError, WrongState
from pocketmq.model.message import Message
from pocketmq.model.queue import MessageQueue
from pocketmq.protocol.batch import decode_batch
from pocketmq.protocol.command import Command
from pocketmq.testing import run

SEND, BATCH = RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE


def is_at_rest(producer: AsyncProducer) -> bool:
    return (producer._limit.count, producer._limit.bytes) == (0, 0)


def bodies(command: Command) -> list[bytes]:
    return [body for _, body, _ in decode_batch(command.body)]


def test_messages_of_one_loop_iteration_are_sent_together() -> None:
    async def main() -> None:
        async with cluster() as c, c.producer(linger_ms=5) as producer:
            results = await asyncio.gather(*(producer.send("T", b"%d" % n, keys=f"k{n}") for n in range(10)))

            (command,) = c.broker.sends
            assert bodies(command) == [b"%d" % n for n in range(10)]
            assert [result.queue_offset for result in results] == list(range(10))
            assert len({result.message_id for result in results}) == 10
            assert len({result.offset_id for result in results}) == 10
            raw = [properties for _, _, properties in decode_batch(command.body)]
            assert all(
                result.message_id.encode() in properties for result, properties in zip(results, raw, strict=True)
            )
            assert c.broker.times(BATCH)[0] == pytest.approx(0.011, abs=0.003), "5 ms later"

    run(main())


def test_a_full_batch_does_not_wait() -> None:
    async def main() -> None:
        async with cluster() as c, c.producer(linger_ms=10_000, batch_bytes=1_000) as producer:
            await asyncio.gather(*(producer.send("T", b"x" * 100) for _ in range(6)))

            assert asyncio.get_running_loop().time() < 1
            assert all(len(command.body) <= 1_000 for command in c.broker.sends)

    run(main())


def test_a_single_message_is_sent_as_a_plain_message() -> None:
    async def main() -> None:
        async with cluster() as c, c.producer(linger_ms=5) as producer:
            result = await producer.send("T", b"x", tags="A")

            (command,) = c.broker.requests(SEND)
            assert properties_of(command) == {"UNIQ_KEY": result.message_id, "WAIT": "true", "TAGS": "A"}

    run(main())


def test_without_linger_every_message_is_sent_alone() -> None:
    async def main() -> None:
        async with cluster() as c, c.producer() as producer:
            await asyncio.gather(*(producer.send("T", b"x") for _ in range(10)))

            assert len(c.broker.requests(SEND)) == 10

    run(main())


def test_a_message_that_does_not_fit_into_a_batch_is_sent_alone() -> None:
    async def main() -> None:
        async with cluster(topics=("T", "%RETRY%g")) as c, c.producer(linger_ms=5) as producer:
            await asyncio.gather(
                producer.send("T", b"x"),
                producer.send("T", b"y"),
                producer.send("T", b"level", delay_level=1),
                producer.send("T", b"at", deliver_at_ms=1),
                producer.send("T", b"in", delay_ms=1),
                producer.send("T", b"z" * 5000),
                producer.send("%RETRY%g", b"again"),
            )

            assert [bodies(command) for command in c.broker.requests(BATCH)] == [[b"x", b"y"]]
            assert len(c.broker.requests(SEND)) == 5

    run(main())


def test_batches_are_separate_by_topic_chosen_queue_and_sync_option() -> None:
    async def main() -> None:
        async with cluster(topics=("T", "U")) as c, c.producer(linger_ms=5) as producer:
            queue = MessageQueue("T", "broker-a", 3)
            await asyncio.gather(
                *(producer.send("T", b"any") for _ in range(2)),
                *(producer.send("U", b"other") for _ in range(2)),
                *(producer.send("T", b"queue", queue=queue) for _ in range(2)),
                *(producer.send("T", b"selected", selector=lambda q, m, k: q[2]) for _ in range(2)),
                *(producer.send("T", b"unwaited", wait_stored=False) for _ in range(2)),
            )

            lanes = {bodies(command)[0]: command for command in c.broker.requests(BATCH)}
            assert {name: len(bodies(command)) for name, command in lanes.items()} == dict.fromkeys(lanes, 2)
            assert len(lanes) == 5
            assert [(lanes[name].ext or {})["e"] for name in (b"queue", b"selected")] == ["3", "2"]
            assert properties_of(lanes[b"unwaited"])["WAIT"] == "false"

    run(main())


def test_the_order_of_a_queue_is_the_order_of_the_sends_also_when_brokers_are_slow() -> None:
    async def main() -> None:
        async with cluster() as c, c.producer(linger_ms=2, batch_bytes=2_000) as producer:
            delays = iter([0.05, 0.001, 0.03, 0.002] * 100)
            for code in (SEND, BATCH):
                c.broker.answers[code] = lambda command: after(next(delays), c.broker.store)(command)
            queue = MessageQueue("T", "broker-a", 1)

            futures = [producer.submit("T", b"%05d" % n, queue=queue) for n in range(500)]
            results = await asyncio.gather(*futures)

            assert [body for _, body in c.broker.stored] == [b"%05d" % n for n in range(500)]
            assert [result.queue_offset for result in results] == list(range(500))

    run(main())


def test_a_message_sent_alone_keeps_its_order_in_a_chosen_queue() -> None:
    async def main() -> None:
        async with cluster() as c, c.producer(linger_ms=5) as producer:
            queue = MessageQueue("T", "broker-a", 1)
            large = b"2" * 5000
            await producer.send("T", b"first", queue=queue)
            futures = [
                producer.submit("T", b"0", queue=queue),
                producer.submit("T", b"1", queue=queue),
                producer.submit("T", large, queue=queue),
                producer.submit("T", b"3", queue=queue, wait_stored=False),
                producer.submit("T", b"4", selector=lambda queues, message, key: queues[1]),
                producer.submit("T", b"5", queue=queue, delay_level=1),
                asyncio.ensure_future(producer.send("T", b"6", selector=lambda queues, message, key: queues[1])),
            ]
            results = await asyncio.gather(*futures)

            assert [result.queue_offset for result in results] == [1, 2, 3, 4, 5, 6, 7]
            assert [len(command.body) for command in c.broker.sends][2] < 5000, "it is compressed as ever"
            assert is_at_rest(producer)

    run(main())


@pytest.mark.parametrize("way", ["send", "submit"])
def test_a_timeout_of_a_send_is_kept(way: str) -> None:
    async def main() -> None:
        async with cluster() as c, c.producer(linger_ms=5) as producer:
            await producer.send("T", b"x")
            c.broker.answers[SEND] = ignore
            began = asyncio.get_running_loop().time()
            with pytest.raises(CallTimedOut, match=r"no response within 0\.5 s; the message may still be stored"):
                await (producer.send if way == "send" else producer.submit)("T", b"y", timeout_s=0.5)
            assert asyncio.get_running_loop().time() - began == pytest.approx(0.5)

            c.broker.answers[SEND] = c.broker.store
            await producer.flush()
            assert (await producer.send("T", b"z", timeout_s=0.5)).is_ok
            assert is_at_rest(producer)

    run(main())


def test_a_failed_batch_fails_each_of_its_messages() -> None:
    async def main() -> None:
        async with cluster() as c, c.producer(linger_ms=5) as producer:
            c.broker.script(BATCH, refuse(13))

            outcomes = await asyncio.gather(*(producer.send("T", b"x") for _ in range(3)), return_exceptions=True)

            assert [type(outcome).__name__ for outcome in outcomes] == ["MessageIllegal"] * 3
            assert producer.in_flight == 0
            assert (await producer.send("T", b"y")).is_ok

    run(main())


def test_a_failed_batch_is_retried_like_a_message() -> None:
    async def main() -> None:
        async with cluster("broker-a", "broker-b") as c, c.producer(linger_ms=5) as producer:
            for broker in c.brokers.values():
                broker.script(BATCH, refuse(14))

            results = await asyncio.gather(*(producer.send("T", b"x") for _ in range(3)))

            assert all(result.is_ok for result in results)
            assert sum(len(broker.requests(BATCH)) for broker in c.brokers.values()) == 3

    run(main())


def test_flush_sends_all_waiting_messages_and_returns_afterwards() -> None:
    async def main() -> None:
        async with cluster() as c, c.producer(linger_ms=30_000) as producer:
            futures = [producer.submit("T", b"x") for _ in range(3)]

            await producer.flush()

            assert [future.done() for future in futures] == [True] * 3
            assert asyncio.get_running_loop().time() < 1
            await producer.flush()

    run(main())


def test_stopping_sends_all_waiting_messages() -> None:
    async def main() -> None:
        async with cluster() as c:
            async with c.producer(linger_ms=30_000) as producer:
                futures = [producer.submit("T", b"x") for _ in range(3)]

            assert all(future.result().is_ok for future in futures)
            assert len(c.broker.stored) == 3

    run(main())


def test_batches_not_sent_before_the_stop_fail() -> None:
    async def main() -> None:
        async with cluster() as c:
            for code in (SEND, BATCH):
                c.broker.answers[code] = ignore
            async with c.producer(linger_ms=5, stop_timeout_ms=500, send_timeout_ms=60_000) as producer:
                sending = [producer.submit("T", b"x") for _ in range(2)]
                await asyncio.sleep(0.1)
                waiting = producer.submit("T", b"y")

            for future in (*sending, waiting):
                with pytest.raises((WrongState, RemoteError), match="was stopped"):
                    await future
            assert producer.in_flight == 0

    run(main())


def test_a_cancelled_message_counts_as_in_flight_until_its_batch_is_done() -> None:
    async def main() -> None:
        async with cluster() as c, c.producer(linger_ms=5) as producer:
            c.broker.answers[BATCH] = after(0.2, c.broker.store)
            four_bytes_each = cast("bytes", memoryview(array("I", [1, 2, 3])))
            given_up, kept = producer.submit("T", b"x"), producer.submit("T", four_bytes_each)
            given_up.cancel()
            sending = asyncio.create_task(producer.send("T", b"y"))
            await asyncio.sleep(0.1)
            sending.cancel()
            assert producer.in_flight == 3

            await kept
            await asyncio.sleep(0)
            assert (producer.in_flight, producer._limit.bytes) == (0, 0)
            assert len(c.broker.stored) == 3

    run(main())


def test_back_pressure_applies_to_messages_that_wait_for_others() -> None:
    async def main() -> None:
        async with cluster() as c, c.producer(linger_ms=5, max_in_flight_messages=10) as producer:
            for code in (SEND, BATCH):
                c.broker.answers[code] = after(0.2, c.broker.store)
            sends = [asyncio.create_task(producer.send("T", b"x")) for _ in range(35)]
            await asyncio.sleep(0.1)
            assert producer.in_flight == 10

            await asyncio.gather(*sends)
            assert len(c.broker.stored) == 35

    run(main())


@pytest.mark.parametrize(("limit", "count"), [(61, 1), (63, 1), (64, 2), (95, 2), (96, 3), (1, 1)])
def test_batches_are_filled_up_to_the_limit(limit: int, count: int) -> None:
    member = Outgoing(Message("T", b"12345"), "T", "id", b"12345", "67890")

    assert member.batch_bytes == 32
    assert batch_length([member.batch_bytes] * 3, limit) == count

"""Sends: the queue, the connection, and messages that cannot be sent."""

import asyncio

import pytest
from tests.client.kit import after, cluster, ignore

from pocketmq.client.producer.queue_choice import ANY_QUEUE
from pocketmq.codes import RequestCode
from pocketmq.errors import (
    CallTimedOut,
    ConnectFailed,
    HeaderError,
    NetworkError,
    NoPermission,
    TopicNotFound,
    UsageError,
)
from pocketmq.model.message import Message
from pocketmq.model.queue import MessageQueue
from pocketmq.protocol.command import decode_command
from pocketmq.protocol.frames import split_frames
from pocketmq.protocol.signing import Credentials, verify
from pocketmq.testing import Weather, run

SEND = RequestCode.SEND_MESSAGE_V2
QUEUE = MessageQueue("T", "broker-a", 1)


def test_a_connect_timeout_is_an_error() -> None:
    async def main() -> None:
        async with cluster() as c, c.producer(send_timeout_ms=500, retries=0) as producer:
            c.network.partition("127.0.0.1", c.broker.address.host)

            with pytest.raises(
                CallTimedOut, match="no writable connection before the send timed out; nothing was sent"
            ):
                await producer.send("T", b"x")

    run(main())


def test_a_silent_name_server_is_an_error() -> None:
    async def main() -> None:
        async with cluster() as c, c.producer(send_timeout_ms=500) as producer:
            c.name_server.answers[RequestCode.GET_ROUTEINFO_BY_TOPIC] = ignore

            with pytest.raises(CallTimedOut, match="no route for topic 'T' before the send timed out"):
                await producer.send("T", b"x")

    run(main())


def test_no_reachable_name_server_is_an_error() -> None:
    async def main() -> None:
        async with cluster() as c, c.producer() as producer:
            c.name_server.close()

            with pytest.raises(NetworkError, match="no name server answered"):
                await producer.send("T", b"x")

    run(main())


def test_queues_take_turns() -> None:
    async def main() -> None:
        async with cluster("broker-a", "broker-b") as c, c.producer() as producer:
            queues = [(await producer.send("T", b"x")).queue for _ in range(16)]

            assert len(set(queues[:8])) == 8
            assert queues[:8] == queues[8:]

    run(main())


def test_the_broker_may_choose_the_queue() -> None:
    async def main() -> None:
        async with cluster() as c, c.producer() as producer:
            result = await producer.send("T", b"x", queue=MessageQueue("T", "broker-a", -1))

            assert result.queue == MessageQueue("T", "broker-a", 0)

    run(main())


def test_a_queue_of_another_topic_is_a_mistake() -> None:
    async def main() -> None:
        async with cluster() as c, c.producer() as producer:
            with pytest.raises(UsageError, match="cannot be sent to U@broker-a:0, a queue of another topic"):
                await producer.send("T", b"x", queue=MessageQueue("U", "broker-a", 0))
            with pytest.raises(UsageError, match="set queue, or selector"):
                await producer.send("T", b"x", queue=QUEUE, selector_key=3)
            with pytest.raises(ConnectFailed, match="no route has a master of broker 'broker-x'"):
                await producer.send("T", b"x", queue=MessageQueue("T", "broker-x", 0))
            assert c.broker.sends == []

    run(main())


def test_messages_of_one_sharding_key_go_to_one_queue_as_in_java() -> None:
    async def main() -> None:
        async with cluster() as c, c.producer() as producer:
            by_property = [await producer.send("T", b"x", sharding_key="order-42") for _ in range(5)]
            by_key = [await producer.send("T", b"x", selector_key="order-42") for _ in range(5)]

            assert {result.queue.queue_id for result in [*by_property, *by_key]} == {1}, "abs(hash) % 4"
            assert c.broker.stored[0] == (1, b"x")

    run(main())


def test_a_topic_that_is_not_writable_is_an_error() -> None:
    async def main() -> None:
        async with cluster() as c, c.producer() as producer:
            c.add_topic("T", perm=4)

            with pytest.raises(NoPermission, match="topic 'T' has no writable queue"):
                await producer.send("T", b"x")
            with pytest.raises(TopicNotFound, match="No route info of this topic: 'New'"):
                await producer.send("New", b"x")

    run(main())


def test_an_invalid_response_is_an_error() -> None:
    async def main() -> None:
        async with cluster() as c, c.producer() as producer:
            c.broker.answers[SEND] = lambda command: command.reply(0, None, {"msgId": "1", "queueId": "x"})

            with pytest.raises(HeaderError, match="invalid response to a send"):
                await producer.send("T", b"x")

    run(main())


def test_answers_may_arrive_in_any_order_and_connections_are_shared() -> None:
    async def main() -> None:
        weather = Weather(delay_s=(0.0002, 0.004), segment_bytes=(1, 700))
        async with cluster("broker-a", "broker-b", weather=weather, seed=5) as c, c.producer() as producer:
            for broker in c.brokers.values():
                broker.answers[SEND] = lambda command, broker=broker: after(  # type: ignore[misc]
                    c.dependencies.dice.random() / 10, broker.store
                )(command)

            results = await asyncio.gather(*(producer.send("T", b"%d" % n) for n in range(300)))

            bodies = [body for broker in c.brokers.values() for _, body in broker.stored]
            assert sorted(bodies) == sorted(b"%d" % n for n in range(300))
            assert len({(result.queue, result.queue_offset) for result in results}) == 300
            assert [len(broker.peers) for broker in c.brokers.values()] == [1, 1]

    run(main())


def test_a_connection_with_a_full_buffer_delays_sends() -> None:
    async def main() -> None:
        weather = Weather(delay_s=(0.001, 0.001), segment_bytes=(1 << 14, 1 << 14), window_bytes=1 << 16)
        async with cluster(weather=weather) as c, c.producer(compress_over_bytes=1 << 22) as producer:
            results = await asyncio.gather(*(producer.send("T", b"x" * 300_000) for _ in range(20)))

            assert all(result.is_ok for result in results)
            assert len(c.broker.stored) == 20

    run(main())


def test_one_way_sends_are_written_once_without_an_answer() -> None:
    async def main() -> None:
        async with cluster() as c, c.producer() as producer:
            c.broker.answers[SEND] = ignore
            await producer.send_one_way("T", b"x", queue=QUEUE)
            await asyncio.sleep(10)

            (command,) = c.broker.sends
            assert command.is_oneway
            assert (command.ext or {})["e"] == "1"

    run(main())


def test_a_direct_send_of_a_thread_is_the_same_request_signed_or_not() -> None:
    async def main() -> None:
        for credentials in (None, Credentials("key", "secret")):
            async with cluster() as c, c.producer(credentials=credentials) as producer:
                await producer.send("T", b"x")
                outbox = producer.member.outbox
                out = outbox.packer.pack(Message("T", b"x"))
                target = outbox.direct_target(out, ANY_QUEUE)
                assert target is not None
                (frame,) = split_frames(outbox.frames.encode(out, target[0], 1, 77))
                command = decode_command(frame)

                assert (target[1], command.opaque, command.body) == (c.broker.address, 77, b"x")
                assert verify(command.ext or {}, command.body, "secret") is (credentials is not None)

    run(main())

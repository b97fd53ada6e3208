"""Requests and replies: heartbeats first, waiting, and late, foreign or compressed replies."""

import asyncio

import pytest
from tests.client.kit import Cluster, FakeBroker, after, cluster, ignore, properties_of, refuse, until

from pocketmq.client.producer.producer import AsyncProducer
from pocketmq.codes import Compression, RequestCode
from pocketmq.errors import CallTimedOut, RemoteError, TooManyCalls, UsageError
from pocketmq.model.message import Message, StoredMessage
from pocketmq.model.properties import format_properties
from pocketmq.protocol.api.messages import PushReplyMessage
from pocketmq.protocol.command import Command
from pocketmq.protocol.compression import compress, with_compression
from pocketmq.testing import run

SEND, REPLY, PUSH = (
    RequestCode.SEND_MESSAGE_V2,
    RequestCode.SEND_REPLY_MESSAGE_V2,
    RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT,
)
REPLY_TOPIC = "DefaultCluster_REPLY_TOPIC"


def push(correlation_id: str, body: bytes = b"answer", *, sys_flag: int = 0, host: str = "10.0.0.7:1234") -> Command:
    """A reply as a broker delivers it."""
    properties = format_properties({"CORRELATION_ID": correlation_id, "MSG_TYPE": "reply"})
    header = PushReplyMessage(
        "PG_replier", REPLY_TOPIC, "TBW102", 4, 0, sys_flag, 1000, 0, host, "10.0.0.2:10911", 2000, properties, 0, False
    )
    return Command(PUSH, header.encode(), body)


def correlation_of(broker: FakeBroker, at: int = -1) -> str:
    return properties_of(broker.requests(SEND)[at])["CORRELATION_ID"]


async def asked(c: Cluster, producer: AsyncProducer, timeout_s: float = 5) -> "asyncio.Task[StoredMessage]":
    before = len(c.broker.requests(SEND))
    task = asyncio.create_task(producer.request("T", b"question", timeout_s=timeout_s))
    await until(lambda: len(c.broker.requests(SEND)) > before)
    return task


def test_a_request_gets_its_reply() -> None:
    async def main() -> None:
        async with cluster(topics=("T", REPLY_TOPIC)) as c, c.producer(group="PG") as producer:
            asking = await asked(c, producer)
            answer = await c.broker.peers[0].call(push(correlation_of(c.broker)))
            reply = await asking

            assert answer.code == 0
            assert (reply.body, reply.topic, reply.born_ms, reply.store_ms) == (b"answer", REPLY_TOPIC, 1000, 2000)
            assert str(reply.born_host) == "10.0.0.7:1234"
            properties = properties_of(c.broker.requests(SEND)[0])
            assert (properties["REPLY_TO_CLIENT"], properties["TTL"]) == (producer.client_id, "5000")

    run(main())


def test_a_heartbeat_precedes_the_first_request() -> None:
    async def main() -> None:
        async with cluster("broker-a", "broker-b", topics=(REPLY_TOPIC,)) as c, c.producer(group="PG") as producer:
            c.add_topic("T", brokers=["broker-a"])
            for broker in c.brokers.values():
                broker.answers[RequestCode.HEART_BEAT] = after(0.5, broker.hear)
            asking = await asked(c, producer)

            first, second = c.brokers.values()
            assert [command.code for command in first.heard] == [RequestCode.HEART_BEAT, SEND]
            assert first.times(SEND)[0] > 0.5
            assert [command.code for command in second.heard] == [RequestCode.HEART_BEAT], "it may bring the reply"
            await second.peers[0].call(push(correlation_of(first)))
            assert (await asking).body == b"answer"

    run(main())


def test_a_missing_reply_is_an_error_and_a_late_one_is_dropped() -> None:
    async def main() -> None:
        async with cluster(topics=("T", REPLY_TOPIC)) as c, c.producer() as producer:
            asking = await asked(c, producer, timeout_s=1)
            with pytest.raises(CallTimedOut, match="the request was sent, but no reply arrived within 1 s"):
                await asking
            assert asyncio.get_running_loop().time() == pytest.approx(1, abs=0.01)

            answer = await c.broker.peers[0].call(push(correlation_of(c.broker)))
            assert answer.code == 0, "the broker has done its part"

    run(main())


def test_a_reply_is_assigned_to_its_request() -> None:
    async def main() -> None:
        async with cluster(topics=("T", REPLY_TOPIC)) as c, c.producer() as producer:
            asking = [await asked(c, producer) for _ in range(5)]
            for at in (3, 0, 4, 1, 2):
                await c.broker.peers[0].call(push(correlation_of(c.broker, at), b"%d" % at))
            await c.broker.peers[0].call(push("somebody else's"))

            assert [(await task).body for task in asking] == [b"0", b"1", b"2", b"3", b"4"]

    run(main())


def test_a_compressed_reply_is_read_and_a_host_name_as_address_is_accepted() -> None:
    async def main() -> None:
        async with cluster(topics=("T", REPLY_TOPIC)) as c, c.producer() as producer:
            asking = await asked(c, producer)
            flag = with_compression(0, Compression.ZLIB)
            packed = compress(b"y" * 9000, Compression.ZLIB)
            await c.broker.peers[0].call(push(correlation_of(c.broker), packed, sys_flag=flag, host="/some.host:1"))
            reply = await asking

            assert (reply.body, reply.sys_flag) == (b"y" * 9000, 0)

    run(main())


def test_a_request_that_cannot_be_sent_raises_an_error() -> None:
    async def main() -> None:
        async with cluster(topics=("T", REPLY_TOPIC)) as c, c.producer(max_waiting_requests=1) as producer:
            c.broker.script(SEND, refuse(13))
            with pytest.raises(RemoteError, match="MESSAGE_ILLEGAL"):
                await producer.request("T", b"question", timeout_s=5)

            asking = await asked(c, producer)
            with pytest.raises(TooManyCalls, match="1 requests already wait for a reply"):
                await producer.request("T", b"question", timeout_s=5)
            await c.broker.peers[0].call(push(correlation_of(c.broker)))
            await asking

    run(main())


def test_a_request_without_a_connection_times_out() -> None:
    async def main() -> None:
        async with cluster(topics=("T", REPLY_TOPIC)) as c, c.producer() as producer:
            c.name_server.answers[RequestCode.GET_ROUTEINFO_BY_TOPIC] = ignore
            with pytest.raises(TimeoutError):
                await producer.request("T", b"question", timeout_s=1)

            assert asyncio.get_running_loop().time() < 1.1

    run(main())


def test_a_request_is_sent_to_a_cluster_without_a_reply_topic() -> None:
    async def main() -> None:
        async with cluster() as c, c.producer() as producer:
            asking = await asked(c, producer)
            await c.broker.peers[0].call(push(correlation_of(c.broker)))

            assert (await asking).body == b"answer"

    run(main())


def test_a_reply_is_sent_to_the_reply_topic_of_the_cluster() -> None:
    async def main() -> None:
        async with cluster(topics=("T", REPLY_TOPIC)) as c, c.producer(group="PG_replier") as producer:
            asking = await asked(c, producer)
            await c.broker.peers[0].call(push(correlation_of(c.broker)))
            request = await asking
            request.properties.update(properties_of(c.broker.requests(SEND)[0]), CLUSTER="DefaultCluster")

            result = await producer.reply(request, b"the answer")

            (reply,) = c.broker.requests(REPLY)
            assert result.queue.topic == REPLY_TOPIC
            assert reply.body == b"the answer"
            properties = properties_of(reply)
            del properties["UNIQ_KEY"]
            assert properties == {
                "MSG_TYPE": "reply",
                "CORRELATION_ID": correlation_of(c.broker, 0),
                "REPLY_TO_CLIENT": producer.client_id,
                "TTL": "5000",
            }

    run(main())


def test_a_message_that_is_not_a_request_cannot_be_answered() -> None:
    async def main() -> None:
        async with cluster(topics=("T", REPLY_TOPIC)) as c, c.producer() as producer:
            asking = await asked(c, producer)
            await c.broker.peers[0].call(push(correlation_of(c.broker)))

            with pytest.raises(UsageError, match="is not a request: it has no CLUSTER, REPLY_TO_CLIENT, TTL"):
                await producer.reply(await asking, b"x")

    run(main())


def test_any_message_can_be_a_request() -> None:
    async def main() -> None:
        async with cluster(topics=("T", REPLY_TOPIC)) as c, c.producer() as producer:
            message = Message("T", b"question", tags="Ask")
            asking = asyncio.create_task(producer.request(message, timeout_s=2, selector=lambda q, m, k: q[3]))
            await until(lambda: c.broker.requests(SEND))
            await c.broker.peers[0].call(push(correlation_of(c.broker)))
            await asking

            assert message.properties == {"TAGS": "Ask"}
            assert (c.broker.requests(SEND)[0].ext or {})["e"] == "3"

    run(main())


def test_a_request_times_out_at_the_in_flight_limit() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        async with cluster(topics=("T", REPLY_TOPIC)) as c, c.producer(max_in_flight_messages=1) as producer:
            await producer.send("T", b"first")
            c.broker.script(SEND, after(2, c.broker.store))
            slow, began = producer.submit("T", b"slow"), loop.time()

            with pytest.raises(
                CallTimedOut, match="the in-flight limit was reached until the deadline; nothing was sent"
            ):
                await producer.request("T", b"question", timeout_s=1)

            assert loop.time() - began == pytest.approx(1, abs=0.1)
            assert (await slow).is_ok
            await asyncio.sleep(1)
            assert len(c.broker.requests(SEND)) == 2, "a request that is no longer awaited is not sent"
            assert producer.in_flight == 0

    run(main())
